"""Bounds while missions run against the definition in the strong and weak views, in every world, at every sample."""

import io
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, Definition, X, Y, formulas, predicates, states, traces

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, eventually, historically, once, since, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Not, Truth
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.temporal import Always, Eventually, Next, Release, Until, WeakUntil, Window
from temporeal.sim.stl.monitoring.batch_monitor import BatchMonitor

with_truths = st.one_of(predicates, predicates, predicates, st.booleans().map(Truth))
random_formulas = formulas(unbounded_past=True, leaf=with_truths, max_leaves=6)
lefts = st.sampled_from(["half-open", "closed"])


class Partial(Definition):
    """The definition over a trace of which some samples, None, are unknown: at their worst or best, as the future."""

    def _literal(self, f, t, positive):
        if t < len(self.trace) and self.trace[t] is None:
            return self.bottom if self.semantics.end == "strong" else self.top
        return super()._literal(f, t, positive)


def views(f, trace, left, kind=0):
    """(strong, weak) value of ``f`` at the first sample."""
    return [Partial(trace, kind, Semantics(end, left)).at(f, 0) for end in ("strong", "weak")]


def sample(signals, k, world):
    return {name: v[k, world] for name, v in signals.items()}


def at(signals, k):
    return {name: v[k] for name, v in signals.items()}


@settings(max_examples=examples(80), deadline=None)
@given(random_formulas, traces(least=2, most=14), lefts, st.booleans(), st.integers(0, 8), st.data())
def test_bounds_are_the_strong_and_weak_views_and_end_exact(f, signals, left, compiled, restart, data):
    semantics = Semantics(until=left)
    missions = BatchMonitor(f, DT, 2, np.float64, semantics, compiled)
    assert missions.horizon_steps <= round(horizon(f, DT) / DT)
    lost = data.draw(st.sets(st.integers(0, 13), max_size=2))
    traces_, before = [[], []], [None, None]
    for k in range(len(signals["x"])):
        if k == restart:  # the second world begins again
            missions.reset(np.array([False, True]))
            traces_[1], before[1] = [], None
        now = at(signals, k)
        if k in lost:  # in the first world only
            now = {name: np.concatenate([np.full_like(v[:1], nan), v[1:]]) for name, v in now.items()}
        found = missions.update(now)
        ends = {end: missions.finish(end) for end in ("clip", "strong", "weak")}
        for world, trace in enumerate(traces_):
            trace.append(None if world == 0 and k in lost else sample(signals, k, world))
            low, high = found.lower[world], found.upper[world]
            assert [low, high] == pytest.approx(views(f, trace, left), abs=1e-12)
            strong, weak = views(f, trace, left, kind=1)
            assert found.verdict[world] == (1 if strong else -1 if not weak else 0)
            if before[world] is not None:
                assert before[world][0] <= low <= high <= before[world][1]  # it only shrinks
            before[world] = low, high
            if None in trace:
                continue
            if len(trace) > missions.horizon_steps:
                assert low == high
            for end, answer in ends.items():
                exact = Definition(trace, 0, Semantics(end, left)).at(f, 0)
                assert [answer.lower[world], answer.upper[world]] == pytest.approx([exact, exact], abs=1e-12)
                truth = Definition(trace, 1, Semantics(end, left)).at(f, 0)
                assert answer.verdict[world] == (1 if truth else -1)


@settings(max_examples=examples(80), deadline=None)
@given(states, states, st.sampled_from([Until, Release, WeakUntil]), st.integers(0, 3), traces(1, 9, 1), st.booleans())
def test_windows_without_an_end_are_decided_or_wait_for_the_end(p, q, kind, lo, signals, compiled):
    w = Window(round(lo * DT, 9))
    for f in (kind(p, q, w), Not(kind(p, q, w)), Always(p, w), Next(Eventually(p, w)), And((Eventually(q, w), p))):
        missions = BatchMonitor(f, DT, 1, np.float64, compiled=compiled)
        assert missions.horizon_steps is None
        trace = []
        for k in range(len(signals["x"])):
            trace.append(sample(signals, k, 0))
            found, ended = missions.update(at(signals, k)), missions.finish()
            assert [found.lower[0], found.upper[0]] == pytest.approx(views(f, trace, "half-open"), abs=1e-12)
            exact = Definition(trace, 0).at(f, 0)
            assert [ended.lower[0], ended.upper[0]] == pytest.approx([exact, exact], abs=1e-12)


@settings(max_examples=examples(40), deadline=None)
@given(random_formulas, st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_numba_and_numpy_give_the_same_bits_and_a_saved_state_goes_on(f, seed, dtype):
    rng = np.random.default_rng(seed)
    both = [BatchMonitor(f, DT, 5, dtype, compiled=c) for c in (True, False)]
    assert [m.compiled for m in both] == [True, False]
    for k in range(16):
        now = {"x": rng.normal(size=5), "y": rng.normal(size=5), "p": rng.normal(size=(5, 3))}
        now["x"][rng.random(5) < 0.05] = nan
        if k % 5 == 2:
            mask = rng.random(5) < 0.3
            for m in both:
                m.reset(mask)
        if k == 9:
            file = io.BytesIO()
            np.savez(file, **both[0].state())
            file.seek(0)
            both.append(BatchMonitor(f, DT, 5, dtype))
            both[-1].set_state(np.load(file, allow_pickle=False))
        found = [m.update(now) for m in both] + [m.finish() for m in both]
        count = len(both)
        for group in (found[:count], found[count:]):
            for other in group[1:]:
                np.testing.assert_array_equal(other.lower, group[0].lower)
                np.testing.assert_array_equal(other.upper, group[0].upper)
                np.testing.assert_array_equal(other.verdict, group[0].verdict)


def steps(lo, hi):
    return round(lo * DT, 9), round(hi * DT, 9)


NESTED = [
    eventually(*steps(0, 30), always(*steps(0, 12), X > -1)),
    always(*steps(0, 30), (X > 1) >> eventually(*steps(0, 12), Y > 1)),
    eventually(*steps(3, 20), (X > 0) & eventually(*steps(0, 9), Y > 1)),
    always(*steps(0, 9), eventually(*steps(2, 11), always(*steps(1, 4), X > -2))),
    eventually(*steps(0, 20), since(X > -1, *steps(0, 9), Y > 1)),
    always(*steps(0, 20), until(X > -2, *steps(2, 9), Y > 1)),
    always(*steps(0, 20), once(*steps(0, 9), eventually(*steps(0, 5), Y > 0))),
    always(*steps(0, 20), once(*steps(8, 9), eventually(*steps(3, 5), Y > 0))),
    eventually(*steps(0, 12), historically(*steps(3, 9), X > -1)),
    eventually(*steps(0, 12), historically(0, inf, eventually(*steps(4, 9), X > -1)))]


@pytest.mark.parametrize("f", NESTED, ids=str)
def test_wide_nested_windows_of_many_worlds(f):
    rng = np.random.default_rng(5)
    worlds, length = 1024 + 9, 50
    x, y = rng.normal(size=(2, length, worlds)).astype(np.float32)
    missions = BatchMonitor(f, DT, worlds)
    start = np.zeros(worlds, dtype=int)
    for k in range(length):
        if k == 17:
            half = np.arange(worlds) % 2 == 1
            missions.reset(half)
            start[half] = k
        found = missions.update({"x": x[k], "y": y[k]})
        if k % 7 == 3 or k in (0, 1, 17, 18):
            for n in (0, 1, 511, worlds - 1):
                trace = [{"x": x[i, n], "y": y[i, n]} for i in range(start[n], k + 1)]
                assert [found.lower[n], found.upper[n]] == pytest.approx(views(f, trace, "half-open"), rel=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("f", [eventually(0, 3, always(0, 2, X > 0)), Always(X > 0), always(2, 4, once(0, inf, X > 0)),
                               until(X > 0, 0, inf, Y > 0), since(X > 0, 0, 1, Y > 0)], ids=str)
def test_skipping_is_many_missing_samples(f, compiled):
    for count in (1, 2, 5, 60):
        one, other = (BatchMonitor(f, 1.0, 1, np.float64, compiled=compiled) for _ in range(2))
        for m in (one, other):
            m.update({"x": [1.0], "y": [-1.0]})
        one.skip(count)
        for _ in range(count):
            other.advance(None)
        for m in (one, other):
            m.advance({"x": [2.0], "y": [1.0]})
        assert one.ages.tolist() == other.ages.tolist() == [count + 2]
        assert (one.bounds().lower, one.bounds().upper) == (other.bounds().lower, other.bounds().upper)
    one.skip(10**12)
    assert one.ages.tolist() == [10**12 + 62]


def test_clauses_and_worlds_without_a_sample():
    missions = BatchMonitor(always(0, 2, X > 0) & eventually(0, 1, Y > 0), 1.0, 2)
    assert missions.texts == ("G[0,2] (x > 0)", "F[0,1] (y > 0)") and missions.horizon_steps == 2
    before = missions.bounds()
    assert before.lower.tolist() == [-inf, -inf] and before.verdict.tolist() == [0, 0]
    found = missions.update({"x": [1, -2], "y": [3, 4]})
    assert found.clause_lower.tolist() == [[-inf, -inf], [3, 4]]
    assert found.clause_upper.tolist() == [[1, -2], [inf, inf]]
    assert found.upper.tolist() == [1, -2] and found.verdict.tolist() == [0, -1]
    missions.reset(np.array([False, True]))
    assert missions.bounds().verdict.tolist() == [0, 0] and missions.ages.tolist() == [1, 0]
    with pytest.raises(SignalError, match=r"at least one sample; worlds without: \[1\]"):
        missions.finish()


def test_memory_does_not_grow_with_the_outer_window():
    def size(f):
        return sum(a.nbytes for a in BatchMonitor(f, 0.01, 4).state().values())

    assert size(always(0, 1, X > 0)) == pytest.approx(size(always(0, 1000, X > 0)), abs=99)  # its text is longer
    assert size(eventually(0, 1, always(0, 2, X > 0))) == pytest.approx(
        size(eventually(0, 1000, always(0, 2, X > 0))), abs=99)


def test_errors():
    with pytest.raises(FormulaError, match=r"this one has no end: G \(x > 0\); robustness\(\)"):
        BatchMonitor(eventually(0, 1, (Y > 0) & Always(X > 0)), 1.0)
    with pytest.raises(FormulaError, match="another formula, period or options: worlds is 3"):
        BatchMonitor(X > 0, 1.0, 2).set_state(BatchMonitor(X > 0, 1.0, 3).state())
    missions = BatchMonitor(X > 0, 1.0, 2)
    missions.update({"x": [1, 2]})
    with pytest.raises(FormulaError, match="'soft'; legal: clip, strong, weak"):
        missions.finish("soft")
