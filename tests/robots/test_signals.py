"""Named signals: what is checked where a value enters."""

from __future__ import annotations

import numpy as np
import pytest

from robots.signals import FEW, SignalError, SignalSpec, all_finite, check_signal, check_signals


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
