"""Named signals: what is checked where a value enters."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.signals import FEW, CommandSpec, SignalError, SignalSpec, all_finite, check_signal, check_signals


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (FEW,), (FEW + 1,), (9, 9), (0,)])
def test_one_number_that_is_none_is_found_wherever_it_is(shape: tuple[int, ...]) -> None:
    good = np.ones(shape, dtype=np.float32)
    assert all_finite(good) and check_signal(SignalSpec("x", shape), good) is good
    for place in np.ndindex(shape):
        for wrong in (np.nan, np.inf, -np.inf):
            bad = good.copy()
            bad[place] = wrong
            assert not all_finite(bad)
            with pytest.raises(SignalError, match="'x' has a non-finite value"):
                check_signal(SignalSpec("x", shape), bad)


def test_what_is_missing_is_named() -> None:
    schema = {name: SignalSpec(name) for name in ("a", "b")}
    with pytest.raises(SignalError, match=r"missing signals \['b'\]; got \['a', 'c'\]"):
        check_signals(schema, {"a": np.float32(1), "c": np.float32(1)})
    assert set(check_signals(schema, {"a": 1.0, "b": 2.0, "c": 3.0})) == {"a", "b"}


@pytest.mark.parametrize(("given", "words"), [
    ({"name": None}, "None is not an identifier"), ({"shape": [3]}, r"shape is \[3\]; whole numbers"),
    ({"shape": (2.5,)}, r"shape is \(2.5,\)"), ({"shape": (-1,)}, "shape is"), ({"shape": (True,)}, "shape is"),
    ({"unit": None}, "unit is None; text"), ({"frame": 3}, "frame is 3; text"), ({"dtype": None}, "dtype is None"),
    ({"dtype": "object"}, "dtype is 'object'"), ({"dtype": "flaot32"}, "dtype is 'flaot32'"),
    ({"rate_hz": np.nan}, "rate_hz is nan"), ({"rate_hz": 10**400}, "rate_hz is 1000"), ({"rate_hz": -1}, "from 0 on")])
def test_a_spec_is_of_the_kinds_it_says(given: dict[str, object], words: str) -> None:
    with pytest.raises(SignalError, match=words):
        SignalSpec(**{"name": "x", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("low", [None, (None,), (np.nan,), (-np.inf,), ("0",), [0.0]])
def test_limits_are_numbers(low: object) -> None:
    with pytest.raises(SignalError, match="command 'x': low is .*; a number per component is needed"):
        CommandSpec("x", (1,), low=low, high=(1.0,))  # type: ignore[arg-type]
