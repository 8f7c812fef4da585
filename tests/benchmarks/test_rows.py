"""How figures are judged, and what rounds are compared by."""

from __future__ import annotations

from math import isnan

import pytest

from temporeal_benchmarks import rounds
from temporeal_benchmarks.rounds import Program
from temporeal_benchmarks.rows import Row, at_least, at_most, none_of, not_measured, spread


def test_a_target_is_met_at_its_value() -> None:
    assert [at_least("a", value, "s", 2.0).ok for value in (1.9, 2.0, 2.1)] == [False, True, True]
    assert [at_most("a", value, "s", 2.0).ok for value in (1.9, 2.0, 2.1)] == [True, True, False]
    assert [none_of("a", count).ok for count in (0, 1)] == [True, False]


def test_a_target_without_a_figure_is_not_met() -> None:
    assert not_measured("a", "s", 2.0, "no time") == Row("a", None, "s", 2.0, "not measured: no time", False)
    assert not_measured("a", "s", None, "no time").ok is None


def test_the_median_of_rounds_is_judged_with_the_least_and_the_most_beside_it() -> None:
    """A single fast round says little."""
    judged, least, most = spread("a", [1.0, 9.0, 2.0, 1.5, 8.0], "1/s", 3.0)
    assert (judged.value, judged.ok, least.value, most.value) == (2.0, False, 1.0, 9.0)
    assert (least.name, most.name, least.ok, most.ok) == ("a.least", "a.most", None, None)
    assert spread("a", [1.0], "1/s")[0].ok is None


def test_ratios_are_of_the_same_round() -> None:
    """Two programs that halve together on a busy machine: the best of each would say 1.6."""
    found = {"ours": [8.0, 4.0, 2.0], "theirs": [4.0, 5.0, 1.0]}
    assert rounds.ratios(found, "ours", "theirs") == [2.0, 0.8, 2.0] and rounds.ratio(found, "ours", "theirs") == 2.0


def test_slow_programs_run_in_fewer_rounds() -> None:
    programs = {name: Program(lambda s=seconds: s, 100) for name, seconds in  # type: ignore[misc]
                {"fast": 0.1, "slow": 1.0, "slowest": 10.0}.items()}
    found = rounds.rates(programs, 6, fewer_if_slow=True)
    assert [sum(not isnan(rate) for rate in found[name]) for name in programs] == [6, 2, 1]
    assert [rounds.middle(found[name]) for name in programs] == [pytest.approx(1000), 100, 10]
    assert not any(map(isnan, rounds.rates(programs, 6)["slowest"]))


def test_short_work_is_repeated_to_a_span() -> None:
    calls: list[int] = []
    clock = iter(range(100))
    seconds = rounds.repeated(lambda: calls.append(1), lambda: float(next(clock)), span=1e-4)
    before = len(calls)
    each = seconds()
    assert each == pytest.approx(1.0 / (len(calls) - before - 1))  # one call brings the memory back first
