"""The online monitor: readings by hand, mixed horizons, saved state, lost samples, errors."""

import json
import re
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, equal, eventually, next_sample, once, since, unequal, until
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Signal
from temporeal.sim.stl.monitoring import kernels
from temporeal.sim.stl.monitoring.monitor import Monitor, monitor_trace, numpy_update_s, real_time_monitor
from temporeal.sim.stl.semantics.robustness import robustness

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
        reading = monitor_trace(formula, trace, 1.0)
        assert reading.lower == reading.upper == exact


def test_until_by_hand():
    formula = until(X > 0, 1, 3, Y > 0)
    out = readings(formula, [{"x": 2, "y": 9}, {"x": -1, "y": -3}, {"x": 5, "y": 5}, {"x": 5, "y": 5}])
    # y at 0 lies before the window; at 1 it is -3; later x has been -1
    assert [(r.lower, r.upper) for r in out] == [(-inf, 2), (-3, -1), (-1, -1), (-1, -1)]
    assert [r.verdict for r in out] == ["undecided", "violated", "violated", "violated"]


def test_equality_is_decided_by_the_comparison():
    cases = ((X <= 1, "satisfied"), (X < 1, "violated"), (~(X <= 1), "violated"), (X >= 1, "satisfied"),
             (equal(X, 1), "satisfied"), (unequal(X, 1), "violated"), (~unequal(X, 1), "satisfied"))
    for formula, verdict in cases:
        reading = monitor_trace(always(0, 0, formula), {"x": [1.0]}, 1.0)
        assert reading.verdict == verdict and reading.lower == reading.upper == 0


def test_before_the_first_sample_and_after_the_last():
    monitor = Monitor(always(0, 1, X > 0), 0.5)
    assert (monitor.reading.lower, monitor.reading.upper, monitor.reading.verdict) == (-inf, inf, "undecided")
    for v in (1, 2, 3, -4, -5):  # the window is over after three samples
        reading = monitor.update({"x": v})
    assert reading.verdict == "satisfied" and reading.lower == 1 and reading.samples == 5


def test_memory_is_that_of_the_inner_windows():
    def rows(f):
        return Monitor(f, 0.01).state()["memory"].size

    assert rows(always(0, 1, X > 0)) == rows(always(0, 1000, X > 0)) < 50
    inner = always(0, 2, X > 0)
    assert rows(eventually(0, 1, inner)) == rows(eventually(0, 1000, inner)) < 50 * 200


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
    with pytest.raises(FormulaError, match="another formula, period"):
        Monitor(always(0, 3, X > 0), 1.0).set_state(saved)


@pytest.mark.parametrize("lost", [None, {"x": None}, {"x": nan}])
def test_a_lost_sample_is_unknown(lost):
    assert readings(always(0, 2, X > 0), [{"x": 1}, lost, {"x": 2}])[-1].verdict == "undecided"
    assert readings(always(0, 2, X > 0), [lost, {"x": 1}, {"x": -2}])[-1].verdict == "violated"
    assert readings(eventually(0, 2, X > 0), [lost, {"x": 1}])[-1].verdict == "satisfied"
    last = readings(always(0, 2, X > 0), [{"x": 1}, {"x": 3}, lost])[-1]
    assert (last.lower, last.upper, last.final) == (-inf, 1, True)


def test_errors():
    with pytest.raises(FormulaError, match="bounded windows inside .*: G .x > 0.;"):
        Monitor(eventually(0, 1, always(0, inf, X > 0)), 1.0)
    with pytest.raises(FormulaError, match="no multiple"):
        Monitor(always(0, 0.1, X > 0), 0.03)
    monitor = Monitor(always(0, 1, X > 0), 1.0)
    with pytest.raises(SignalError, match=r"\['x'\], which are missing; signals given: \['y'\]"):
        monitor.update({"y": 1.0})
    with pytest.raises(SignalError, match=r"'x' has shape \(2,\)"):
        monitor.update({"x": [1.0, 2.0]})
    with pytest.raises(SignalError, match="differ in length"):
        monitor_trace((X > 0) & (Y > 0), {"x": [1.0], "y": [1.0, 2.0]}, 1.0)


# ---------------------------------------------------------------- time


def timed(formula, samples, dt=1.0):
    """A monitor after the samples, pairs (time in s, x)."""
    monitor = Monitor(formula, dt)
    for at, x in samples:
        monitor.update({"x": x}, at=at)
    return monitor


def test_a_sample_counts_for_the_nearest_index():
    reading = timed(always(0, 3, X > 0), [(0.4, 5), (1.4, 4), (1.6, 3), (3.49, 2)]).reading
    assert (reading.samples, reading.lower, reading.final, reading.lost, reading.late) == (4, 2, True, 0, 0)
    assert timed(always(0, 3, X > 0), [(0, 5), (0.5, 4)]).reading.samples == 2  # halfway counts for the later one


def test_samples_between_are_lost():
    reading = timed(always(0, 3, X > 0), [(0, 5), (3, 2)]).reading
    assert (reading.samples, reading.time_s, reading.lost) == (4, 3, 2)
    assert (reading.lower, reading.upper, reading.verdict, reading.final) == (-inf, 2, "undecided", True)
    assert timed(eventually(0, 3, X > 0), [(2, 5)]).reading.verdict == "satisfied"
    late_start = timed(always(1, 2, X > 0), [(1, 5), (2, 4)]).reading  # sample 0 was not needed
    assert (late_start.lower, late_start.upper, late_start.lost) == (4, 4, 1)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("formula", [always(0, 3, X > 0), always(0, inf, X > 0), always(0, 30, once(0, 2, X > 0)),
                                     since(X > 0, 0, 1, X > 1), next_sample(eventually(0, 9, always(0, 2, X > 0)))])
def test_a_gap_is_as_many_lost_samples(formula, compiled):
    gap, one_by_one = (Monitor(formula, 1.0, compiled=compiled, max_gap_s=inf) for _ in range(2))
    for at in (0, 4, 5, 40):
        while one_by_one.reading.samples < at:
            one_by_one.update(None)
        assert gap.update({"x": 1.0}, at=at) == one_by_one.update({"x": 1.0})
    far = gap.update({"x": 1.0}, at=1e9)  # at once, not in a loop over a billion samples
    assert far.samples == 10**9 + 1 and far.lost == 10**9 + 1 - 5


def test_late_repeated_and_early_samples_change_nothing():
    monitor = timed(always(0, 5, X > 0), [(0, 5), (1, 4), (2, 3)])
    before = monitor.reading
    for count, at in enumerate([1, 2, 2.4, -3, 0], 1):
        reading = monitor.update({"x": -9.0}, at=at)
        assert reading.late == count and reading._replace(late=0) == before
    after = monitor.update({"x": 2.0}, at=3)
    assert (after.samples, after.upper, after.late, after.lost) == (4, 2, 5, 0)
    again = Monitor(monitor.formula, 1.0)
    again.set_state(monitor.state())
    assert again.reading == after
    monitor.reset()
    assert monitor.reading == Monitor(monitor.formula, 1.0).reading


def same_state(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("at", [nan, inf, -inf, "0.1", True, [1.0], 1e18, 1.7e9, 10**400, 3604.0])
def test_time_must_be_a_number_of_the_mission(at):
    monitor = Monitor(once(0, 2, X > 0), 1.0)
    monitor.update({"x": 1.0})
    state, before = monitor.state(), monitor.reading
    with pytest.raises(SignalError, match="at = "):
        monitor.update({"x": 1.0}, at=at)
    assert monitor.reading == before and same_state(monitor.state(), state)


def test_a_clock_is_no_mission_time_but_a_long_mission_is():
    monitor = Monitor(always(0, 5000, X > 0), 1.0)  # up to ten horizons
    assert monitor.update({"x": 1.0}, at=40_000.0).lost == 40_000
    with pytest.raises(SignalError, match=r"at most 50000 s ahead .*\(max_gap_s\). Time counts from the beginning of"):
        monitor.update({"x": 1.0}, at=1.7e9)
    strict = Monitor(X > 0, 0.1, max_gap_s=1.0)
    assert strict.update({"x": 1.0}, at=np.float32(1.0)).samples == 11
    with pytest.raises(SignalError, match="ahead of the next sample, at 1.1 s; at most 1 s"):
        strict.update({"x": 1.0}, at=2.5)
    with pytest.raises(SignalError, match="max_gap_s = -1"):
        Monitor(X > 0, 0.1, max_gap_s=-1)
    with pytest.raises(SignalError, match=r"at = 1e\+18 s lies"):  # beyond what counts samples, whatever is allowed
        Monitor(X > 0, 1.0, max_gap_s=inf).update({"x": 1.0}, at=1e18)


def test_a_time_long_before_the_mission_is_late():
    monitor = Monitor(X > 0, 1.0)
    assert [monitor.update({"x": 1.0}, at=at).late for at in (-1, -1e300, -(10**400))] == [1, 2, 3]


def test_a_refused_sample_after_a_gap_changes_nothing():
    monitor = Monitor(eventually(0, 9, always(0, 1, X > 0)), 1.0)
    monitor.update({"x": 1.0})
    state, before = monitor.state(), monitor.reading
    masked = np.ma.masked_array(1.0, True)
    for bad in ({"y": 1.0}, {"x": [1.0, 2.0]}, {"x": "high"}, {"x": 10**400}, 1.0, {"x": masked}):
        with pytest.raises(SignalError):
            monitor.update(bad, at=5.0)
        assert monitor.reading == before and same_state(monitor.state(), state)


# ---------------------------------------------------------------- saved state


@pytest.mark.parametrize("formula", [X > 0, always(0, 3, once(0, 2, X > 0)), (X > 0) | ~(X > 0)])
def test_the_state_survives_json(formula):
    first, second = Monitor(formula, 1.0), Monitor(formula, 1.0)
    first.update({"x": 0.5})
    second.set_state(json.loads(json.dumps({key: value.tolist() for key, value in first.state().items()})))
    assert second.reading == first.reading and same_state(first.state(), second.state())
    assert second.update({"x": 2.0}) == first.update({"x": 2.0})


@pytest.mark.parametrize("change", [
    {"bounds": np.zeros(1)}, {"bounds": None}, {"memory": np.zeros(3)}, {"start": np.zeros((2, 2))}, {"time": "late"},
    {"counts": [1, 2]}, {"counts": ...}, {"bounds": ...}, {"time": ...}, {"start": ...}, {"memory": ...}, {"dt": ...},
    {"time": 0.5}])
def test_a_state_is_taken_whole_or_not_at_all(change):
    formula = always(0, 3, once(0, 2, X > 0))
    monitor, other = Monitor(formula, 1.0), Monitor(formula, 1.0)
    other.update({"x": 3.0})
    monitor.update({"x": -2.0})
    mine, before = monitor.state(), monitor.reading
    bad = {key: value for key, value in {**other.state(), **change}.items() if value is not ...}
    with pytest.raises(FormulaError, match=next(iter(change))):
        monitor.set_state(bad)
    assert monitor.reading == before and same_state(monitor.state(), mine)


# ---------------------------------------------------------------- what is no input


@pytest.mark.parametrize("dt", [0, -1, nan, inf, "0.1", None, True, 0.0])
def test_the_period_is_a_positive_number_also_without_windows(dt):
    for formula in (X > 0, always(0, 1, X > 0)):
        with pytest.raises(FormulaError, match="sample period must be positive and finite, got dt = "):
            Monitor(formula, dt)


def test_a_text_is_no_formula():
    with pytest.raises(FormulaError, match=r"not a formula: 'x > 0'; temporeal.parse"):
        Monitor("x > 0", 1.0)


# ---------------------------------------------------------------- pace

SLOW = always(0, 20, (X > 0.9) >> once(0, 4, X > 0.8))


def test_numpy_where_it_keeps_pace_and_numba_where_not():
    monitor, warning = real_time_monitor(SLOW, 0.02)
    assert not monitor.compiled and warning == ""
    monitor, warning = real_time_monitor(SLOW, 0.002)
    assert monitor.compiled and warning == ""
    assert monitor.update({"x": 1.0}) == Monitor(SLOW, 0.002, compiled=False).update({"x": 1.0})


def test_a_warning_where_numba_is_missing(monkeypatch):
    monkeypatch.setattr(kernels, "compiled_kernels", lambda: None)
    monitor, warning = real_time_monitor(SLOW, 0.002)
    assert not monitor.compiled
    assert re.fullmatch(r"an update .* may take 16\.\d ms and the sample period is 2 ms: the monitor may fall "
                        r"behind \(compiled kernels need numba, which is not installed; .*\)", warning)


def test_the_estimate_grows_with_the_reach_of_inner_operators_only():
    flat, wide = always(0, 1, X > 0), always(0, 100, X > 0)
    assert numpy_update_s(flat, 0.01) == numpy_update_s(wide, 0.01) < 1e-4
    short, long = (numpy_update_s(eventually(0, 9, always(0, w, X > 0)), 0.01) for w in (1, 4))
    assert 3 * short < long < 4 * short and numpy_update_s(SLOW, 0.002) > 9 * numpy_update_s(SLOW, 0.02)


# ---------------------------------------------------------------- the end of a trace


def test_a_window_without_an_end_waits_for_the_end_of_the_trace():
    monitor = Monitor(always(0, inf, X > 0) & eventually(0, inf, Y > 0), 1.0)
    assert monitor.horizon_steps is None
    for x, y in ((1, -1), (2, 3), (0.5, 2)):
        reading = monitor.update({"x": x, "y": y})
    assert (reading.lower, reading.upper, reading.verdict, reading.final) == (-inf, 0.5, "undecided", False)
    assert [c.verdict for c in reading.clauses] == ["undecided", "satisfied"]
    ended = monitor.finish()
    assert (ended.lower, ended.upper, ended.verdict, ended.final) == (0.5, 0.5, "satisfied", True)
    assert monitor.reading == reading  # asking changes nothing
    assert monitor.update({"x": -1, "y": 0}).verdict == "violated"


def test_the_end_is_clipped_strong_or_weak():
    monitor = Monitor(always(0, 5, X > 0), 1.0)
    monitor.update({"x": 1.0})
    assert [monitor.finish(end).verdict for end in ("clip", "strong", "weak")] == ["satisfied", "violated", "satisfied"]
    with pytest.raises(SignalError, match="at least one sample"):
        Monitor(X > 0, 1.0).finish()


def test_numba_and_numpy_read_the_same():
    formula = always(0, 4, (X > 0) >> eventually(0, 3, once(0, 2, Y > 0))) & until(X > -1, 0, 5, Y > 1)
    both = [Monitor(formula, 1.0, compiled=c) for c in (True, False)]
    assert [m.compiled for m in both] == [True, False]
    rng = np.random.default_rng(0)
    for _ in range(9):
        x, y = rng.normal(size=2)
        first, second = (m.update({"x": x, "y": y}) for m in both)
        assert first == second


@pytest.mark.slow
def test_the_page_shows_what_happens():
    page = (Path(__file__).parents[4] / "docs" / "how-to/stl-monitoring.md").read_text()
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(block, scope)
    reading = scope["reading"]
    assert (reading.lower, round(reading.upper, 9), reading.verdict) == (-inf, 0.9, "undecided")
    assert reading.clauses[1].verdict == "satisfied"
    known = scope["known"]
    assert known.upper.shape == (4096,) and known.upper[0] == np.float32(1 - 0.3) and known.verdict[0] == 0
    assert scope["stream"].delay_steps == 150 and np.isnan(scope["values"]).all() and np.isnan(scope["value"])
