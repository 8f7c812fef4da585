"""The online monitor: readings by hand, mixed horizons, saved state, lost samples, errors."""

from math import inf, nan

import numpy as np
import pytest

from robots.signals import SignalError
from sim.stl.monitor import Monitor, watch
from sim.stl.robustness import robustness
from sim.stl.syntax import FormulaError, Signal, always, eventually, until

X, Y = Signal("x"), Signal("y")


def readings(formula, rows, dt=1.0):
    monitor = Monitor(formula, dt)
    return [monitor.update(row) for row in rows]


def test_always_and_eventually_by_hand():
    out = readings(always(0, 2, X > 0) & eventually(0, 3, X > 4), [{"x": v} for v in (3, 1, 5, 9)])
    assert [(r.clauses[0].lower, r.clauses[0].upper) for r in out] == [(-inf, 3), (-inf, 1), (1, 1), (1, 1)]
    assert [(r.clauses[1].lower, r.clauses[1].upper) for r in out] == [(-1, inf), (-1, inf), (1, inf), (5, 5)]
    assert [r.verdict for r in out] == ["undecided", "undecided", "satisfied", "satisfied"]
    assert [r.final for r in out] == [False, False, False, True]
    assert out[-1].time_s == 3 and out[-1].lower == out[-1].upper == 1
    assert out[0].clauses[1].text == "F[0,3] (x > 4)"


def test_a_violation_is_known_at_once_and_its_clause_named():
    out = readings(always(0, 5, X > 0) & always(0, 5, Y > 0), [{"x": 1, "y": 1}, {"x": 1, "y": -2}])
    assert out[-1].verdict == "violated" and out[-1].upper == -2 and not out[-1].final
    assert [c.verdict for c in out[-1].clauses] == ["undecided", "violated"]


def test_formulas_with_mixed_horizons():
    # every sample of x counts in the same sample as that of y, whatever the other part waits for
    formula = eventually(0, 2, (X > 0) & eventually(0, 5, Y > 0) & always(0, 1, Y > -9))
    rng = np.random.default_rng(3)
    for _ in range(50):
        trace = {"x": rng.normal(size=8), "y": rng.normal(size=8)}
        exact = robustness(formula, {k: v[:, None] for k, v in trace.items()}, 1.0)[0, 0]
        reading = watch(formula, trace, 1.0)
        assert reading.lower == reading.upper == exact


def test_until_by_hand():
    formula = until(X > 0, 1, 3, Y > 0)
    out = readings(formula, [{"x": 2, "y": 9}, {"x": -1, "y": -3}, {"x": 5, "y": 5}, {"x": 5, "y": 5}])
    # y at 0 lies before the window; at 1 it is -3; later x has been -1
    assert [(r.lower, r.upper) for r in out] == [(-inf, 2), (-3, -1), (-1, -1), (-1, -1)]
    assert [r.verdict for r in out] == ["undecided", "violated", "violated", "violated"]


def test_equality_is_decided_by_the_comparison():
    cases = ((X <= 1, "satisfied"), (X < 1, "violated"), (~(X <= 1), "violated"), (X >= 1, "satisfied"))
    for formula, verdict in cases:
        reading = watch(always(0, 0, formula), {"x": [1.0]}, 1.0)
        assert reading.verdict == verdict and reading.lower == reading.upper == 0


def test_before_the_first_sample_and_after_the_last():
    monitor = Monitor(always(0, 1, X > 0), 0.5)
    assert (monitor.reading.lower, monitor.reading.upper, monitor.reading.verdict) == (-inf, inf, "undecided")
    for v in (1, 2, 3, -4, -5):  # the window is over after three samples
        reading = monitor.update({"x": v})
    assert reading.verdict == "satisfied" and reading.lower == 1 and reading.samples == 5


def test_memory_is_that_of_the_horizon():
    flat, nested = Monitor(always(0, 100, X > 0), 0.01), Monitor(eventually(0, 1, always(0, 2, X > 0)), 0.01)
    size = [sum(b.size for row in m.state()["bounds"] for b in row) for m in (flat, nested)]
    assert size == [2, 2 * (1 + 101 + 301)]  # lower and upper: root; root, G at each start, x at each sample


@pytest.mark.parametrize("cut", range(5))
def test_state_is_complete(cut):
    formula = always(0, 3, X > 0) & eventually(0, 2, always(0, 2, X > 1))
    rows = [{"x": v} for v in (0.5, 3.0, 2.0, 4.0, 5.0)]
    first = Monitor(formula, 1.0)
    for row in rows[:cut]:
        first.update(row)
    second = Monitor(formula, 1.0)
    second.set_state(first.state())
    saved = first.state()
    assert second.reading == first.reading
    assert [second.update(r) for r in rows[cut:]] == [first.update(r) for r in rows[cut:]]
    second.set_state(saved)  # what was saved is a copy
    assert second.reading.samples == cut
    with pytest.raises(FormulaError, match="another formula or period"):
        Monitor(always(0, 3, X > 0), 1.0).set_state(saved)


@pytest.mark.parametrize("lost", [None, {"x": None}, {"x": nan}])
def test_a_lost_sample_is_unknown(lost):
    assert readings(always(0, 2, X > 0), [{"x": 1}, lost, {"x": 2}])[-1].verdict == "undecided"
    assert readings(always(0, 2, X > 0), [lost, {"x": 1}, {"x": -2}])[-1].verdict == "violated"
    assert readings(eventually(0, 2, X > 0), [lost, {"x": 1}])[-1].verdict == "satisfied"
    last = readings(always(0, 2, X > 0), [{"x": 1}, {"x": 3}, lost])[-1]
    assert (last.lower, last.upper, last.final) == (-inf, 1, True)


def test_errors():
    with pytest.raises(FormulaError, match="bounded windows.*G"):
        Monitor(eventually(0, 1, always(0, inf, X > 0)), 1.0)
    with pytest.raises(FormulaError, match="no multiple"):
        Monitor(always(0, 0.1, X > 0), 0.03)
    monitor = Monitor(always(0, 1, X > 0), 1.0)
    with pytest.raises(SignalError, match=r"\['x'\], which are missing; signals given: \['y'\]"):
        monitor.update({"y": 1.0})
    with pytest.raises(SignalError, match=r"'x' has shape \(2,\)"):
        monitor.update({"x": [1.0, 2.0]})
    with pytest.raises(SignalError, match="differ in length"):
        watch((X > 0) & (Y > 0), {"x": [1.0], "y": [1.0, 2.0]}, 1.0)
