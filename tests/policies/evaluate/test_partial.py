"""Bounds with missing samples: they hold every completion, and they are the exact values once nothing is missing."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from temporeal.policies.evaluate.partial import bounds, verdict
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

SCHEMA = schema(SignalSpec("x"), SignalSpec("y"))
FORMULAS = [
    "G[0,3] (x > 0)", "F[1,4] (x > 0)", "F[0,2] (x > 0 & F[0,2] (y > 0))", "(x > 0) U[1,3] (y > 0)",
    "G[0,4] (x > 0 -> F[0,1] (y > 0))", "!F[0,3] (x > 0) | G[2,4] (y < 0)", "!((x > 0) U[0,3] (y > 0))",
    "G[0,2] (x > 0 <-> y > 0)", "F[0,2] G[0,2] (x > y)", "G[3,4] true & F[0,1] (x > 0)",
]


def spec(text: str):
    return parse(text, SCHEMA)


def trace(**values: list[float]) -> dict[str, np.ndarray]:
    return {name: np.array(v, dtype=np.float32)[:, None] for name, v in values.items()}


@pytest.mark.parametrize(("text", "x", "known", "want"), [
    ("G[0,3] (x > 0)", [1, 1, 1, 1], 4, (True, False, 3.0)),  # known to hold with the window's last sample
    ("G[0,3] (x > 0)", [1, 1, 1, 1], 3, (False, False, inf)),  # one sample short: open
    ("G[0,3] (x > 0)", [1, -1, 1, 1], 2, (False, True, 1.0)),  # fails at the first violation
    ("F[0,3] (x > 0)", [-1, -1, 1, -1], 3, (True, False, 2.0)),  # holds at the first hit
    ("F[0,3] (x > 0)", [-1, -1, -1, -1], 4, (False, True, 3.0)),  # fails when the window is over
    ("F[0,3] (x > 0)", [-1, -1, -1, -1], 3, (False, False, inf)),
    ("G[5,6] (x > 0)", [1, 1, 1, 1], 4, (False, False, inf)),  # a window past the end is open, not empty
    ("!G[0,3] (x > 0)", [1, -1, 1, 1], 2, (True, False, 1.0)),
    ("G[0,3] (x > 0)", [1, 0, 1, 1], 4, (False, True, 1.0)),  # strict: a margin of zero is not enough
    ("G[0,3] (x >= 0)", [1, 0, 1, 1], 4, (True, False, 3.0)),
])
def test_verdict_and_its_time_by_hand(text: str, x: list[float], known: int, want: tuple[bool, bool, float]) -> None:
    found = verdict(spec(text), trace(x=x), 1.0, np.array([known]))
    assert (bool(found.satisfied[0]), bool(found.violated[0]), float(found.decided_at_s[0])) == want


def test_bounds_by_hand() -> None:
    # known x = 3, 2 of G[0,3]: it can still end anywhere up to the least seen
    x = trace(x=[3, 2, 9, 9])
    assert [float(b[0]) for b in bounds(spec("G[0,3] (x > 0)"), x, 1.0, np.array([2]))] == [-inf, 2.0]
    assert [float(b[0]) for b in bounds(spec("F[0,3] (x > 0)"), x, 1.0, np.array([2]))] == [3.0, inf]
    # y held at 1 with 2 and x before it with 4; a later y would need x = 1 to hold before it: 2 is final
    found = bounds(spec("(x > 0) U[0,3] (y > 0)"), trace(x=[4, 1, 0, 0], y=[-1, 2, 0, 0]), 1.0, np.array([2]))
    assert (float(found[0][0]), float(found[1][0])) == (2.0, 2.0)


values = st.lists(st.floats(-2, 2, width=32), min_size=7, max_size=7)


@pytest.mark.parametrize("text", FORMULAS)
@settings(max_examples=examples(40))
@given(x=values, y=values, known=st.integers(0, 7), other=st.integers(0, 2**32 - 1))
def test_bounds_hold_every_completion(text: str, x: list[float], y: list[float], known: int, other: int) -> None:
    formula, rng = spec(text), np.random.default_rng(other)
    low, high = bounds(formula, trace(x=x, y=y), 1.0, np.array([known]))
    found = verdict(formula, trace(x=x, y=y), 1.0, np.array([known]))
    for _ in range(3):
        late = {"x": list(x[:known]) + list(rng.uniform(-3, 3, 7 - known)),
                "y": list(y[:known]) + list(rng.uniform(-3, 3, 7 - known))}
        value = robustness(formula, trace(**late), 1.0)[0, 0]
        assert low[0] <= value <= high[0]
        truth = bool(satisfied(formula, trace(**late), 1.0)[0, 0])
        assert not (found.satisfied[0] and not truth) and not (found.violated[0] and truth)


@pytest.mark.parametrize("text", FORMULAS)
@settings(max_examples=examples(40))
@given(x=values, y=values)
def test_nothing_missing_is_exact(text: str, x: list[float], y: list[float]) -> None:
    formula, signals = spec(text), trace(x=x, y=y)
    low, high = bounds(formula, signals, 1.0, np.array([7]))
    exact = robustness(formula, signals, 1.0)[0, 0]
    assert low[0] == high[0] == exact
    found = verdict(formula, signals, 1.0, np.array([7]))
    assert bool(found.satisfied[0]) is bool(satisfied(formula, signals, 1.0)[0, 0])
    assert bool(found.violated[0]) is not bool(found.satisfied[0])


@pytest.mark.parametrize("text", FORMULAS)
@settings(max_examples=examples(40))
@given(x=values, y=values)
def test_time_of_decision_is_the_first_prefix_that_decides(text: str, x: list[float], y: list[float]) -> None:
    formula, signals = spec(text), trace(x=x, y=y)
    at = float(verdict(formula, signals, 1.0, np.array([7])).decided_at_s[0])
    decided = [verdict(formula, signals, 1.0, np.array([k])) for k in range(1, 8)]
    known = [bool(v.satisfied[0] | v.violated[0]) for v in decided]
    assert at == known.index(True)
