"""Options of benchmarks: what is given is checked, and legal choices are named."""

from __future__ import annotations

from typing import Any

import pytest

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks import options


def test_what_is_given_is_taken_and_defaults_where_nothing_is() -> None:
    assert options.among("parts", ["b"], ("a", "b")) == ["b"] and options.among("parts", None, ("a", "b")) == ("a", "b")
    assert options.seeds(["3", "1", "3"], ()) == [3, 1] and options.seeds(None, (1, 2)) == (1, 2)
    assert options.count("rounds", ["3"], 5) == 3 and options.count("rounds", None, 5) == 5
    assert options.counts("worlds", ["7", "8"], ()) == [7, 8] and options.counts("worlds", None, (1,)) == (1,)
    assert options.amount("learn", ["0"], 1.0) == 0.0 and options.amount("learn", None, 1.0) == 1.0


@pytest.mark.parametrize(("check", "given", "message"), [
    (lambda given: options.among("parts", given, ("a", "b")), ["c"], "--parts: there is no 'c'; legal: a, b"),
    (lambda given: options.count("rounds", given, 1), ["0"], "--rounds: one whole number from 1, got 0"),
    (lambda given: options.count("rounds", given, 1), [5000 * "9"], "--rounds: one whole number from 1"),
    (lambda given: options.count("rounds", given, 1), ["1", "2"], "--rounds: one whole number from 1, got 1,2"),
    (lambda given: options.counts("worlds", given, ()), ["1", "x"], "--worlds: whole numbers from 1, got 'x'"),
    (lambda given: options.amount("minutes", given, 1.0, positive=True), ["0"], "--minutes: one number above 0, got 0"),
    (lambda given: options.amount("learn", given, 1.0), ["inf"], "--learn: one number from 0, got inf"),
    *((lambda given: options.seeds(given, ()), given, "whole numbers from 0") for given in ([], ["x"], ["-1"])),
])
def test_what_cannot_be_is_refused(check: Any, given: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(given)


def test_a_missing_gpu_is_announced_and_its_part_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for there, wanted in ((True, ("cpu", "gpu")), (False, ("cpu",))):
        monkeypatch.setattr(options, "has_gpu", lambda there=there: there)
        assert options.parts(None) == wanted and options.parts(["gpu"]) == ["gpu"]
    assert capsys.readouterr().err.count("left out: the part gpu, no GPU here") == 1
