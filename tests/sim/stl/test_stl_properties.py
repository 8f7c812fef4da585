"""Random formulas on random traces against an evaluator written straight from the definitions."""

import itertools
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robots.signals import SignalSpec
from sim.stl.decompose import NotDecomposable, decompose
from sim.stl.monitor import Monitor, watch
from sim.stl.parse import check, parse
from sim.stl.robustness import margin, robustness, satisfied
from sim.stl.syntax import (
    Always,
    And,
    Constant,
    Eventually,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    Until,
    Window,
    from_json,
    horizon,
    norm,
    to_json,
    to_text,
)

DT = 0.1
X, Y, P = Signal("x", (), "m"), Signal("y", (), "m"), Signal("p", (3,), "m")
SCHEMA = {"x": SignalSpec("x", (), "m"), "y": SignalSpec("y", (), "m"), "p": SignalSpec("p", (3,), "m")}
SETTINGS = settings(max_examples=150, deadline=None)

# ---------------------------------------------------------------- the definitions


def holds(predicate, sample):
    """(margin, truth) of a predicate at one sample, by hand for the expressions drawn here."""
    left, right = number(predicate.left, sample), number(predicate.right, sample)
    return {"<": (right - left, left < right), "<=": (right - left, left <= right),
            ">": (left - right, left > right), ">=": (left - right, left >= right)}[predicate.op]


def number(e, sample):
    match type(e).__name__:
        case "Signal":
            return sample[e.name]
        case "Constant":
            return e.value
        case "Component":
            return number(e.of, sample)[e.index]
    args = [number(a, sample) for a in e.args]
    return {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a,
            "abs": abs, "min": min, "max": max, "norm": lambda v: float(np.sqrt(np.sum(np.square(v))))}[e.op](*args)


def definition(f, trace, t, kind, known=None):
    """Value of ``f`` at sample ``t``; ``kind`` 0: robustness, 1: truth. ``trace``: a list of samples."""
    known = {} if known is None else known
    if (id(f), t) not in known:
        known[id(f), t] = defined_as(f, trace, t, kind, known)
    return known[id(f), t]


def defined_as(f, trace, t, kind, known):
    top, bottom, negate = (inf, -inf, lambda v: -v) if kind == 0 else (True, False, lambda v: not v)
    meet, join = (lambda vs: min(vs, default=top)), (lambda vs: max(vs, default=bottom))

    def of(g, at):
        return definition(g, trace, at, kind, known)

    def window(w):
        lo, hi = round(w.lo / DT), len(trace) if w.hi == inf else round(w.hi / DT)
        return range(t + lo, min(t + hi, len(trace) - 1) + 1)

    match f:
        case Predicate():
            return holds(f, trace[t])[kind]
        case Truth(value):
            return top if value else bottom
        case Not(a):
            return negate(of(a, t))
        case And(args):
            return meet([of(a, t) for a in args])
        case Or(args):
            return join([of(a, t) for a in args])
        case Implies(a, b):
            return join([negate(of(a, t)), of(b, t)])
        case Iff(a, b):
            u, v = of(a, t), of(b, t)
            return meet([join([negate(u), v]), join([u, negate(v)])])
        case Always(a, w):
            return meet([of(a, s) for s in window(w)])
        case Eventually(a, w):
            return join([of(a, s) for s in window(w)])
        case Until(a, b, w):
            return join([meet([of(b, s), *(of(a, r) for r in range(t, s))]) for s in window(w)])


# ---------------------------------------------------------------- random formulas and traces

values = st.integers(-4, 4).map(lambda k: k / 2)  # few values: ties and equalities happen
scalars = st.one_of(
    st.sampled_from([X, Y, P[0], P[2], abs(X), -Y, X - Y, 2 * X, norm(P)]),
    values.map(lambda v: X + v))
predicates = st.builds(Predicate, st.sampled_from(["<", "<=", ">", ">="]), scalars,
                       st.one_of(scalars, values.map(Constant)))


@st.composite
def windows(draw, most=5, unbounded=False):
    lo = draw(st.integers(0, most))
    if unbounded and draw(st.integers(0, 5)) == 0:
        return Window(round(lo * DT, 9))
    return Window(round(lo * DT, 9), round(draw(st.integers(lo, most)) * DT, 9))


def formulas(unbounded=False, leaf=predicates):
    w = windows(unbounded=unbounded)

    def grow(f):
        several = st.lists(f, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Not, f), st.builds(And, several), st.builds(Or, several), st.builds(Implies, f, f),
            st.builds(Iff, f, f), st.builds(Always, f, w), st.builds(Eventually, f, w), st.builds(Until, f, f, w))

    return st.recursive(leaf, grow, max_leaves=5)


states = st.recursive(
    predicates, lambda f: st.one_of(st.builds(Not, f), st.lists(f, min_size=2, max_size=2).map(lambda a: Or(tuple(a))),
                                    st.builds(Implies, f, f)), max_leaves=3)


def traces(least=1, most=12, batch=2):
    def arrays(length):
        size = 5 * length * batch
        drawn = st.lists(values, min_size=size, max_size=size)
        return drawn.map(lambda v: split(np.array(v).reshape(length, batch, 5)))

    return st.integers(least, most).flatmap(arrays)


def split(a):
    return {"x": a[..., 0], "y": a[..., 1], "p": a[..., 2:]}


def samples(signals, world=0, length=None):
    return [{k: v[t, world] for k, v in signals.items()} for t in range(length or len(signals["x"]))]


# ---------------------------------------------------------------- offline


def defined(f, signals, kind, lengths=None):
    """[T, N] by the definition; NaN or False past the lengths."""
    length, worlds = signals["x"].shape
    out = np.full((length, worlds), np.nan if kind == 0 else False, dtype=float if kind == 0 else bool)
    for n in range(worlds):
        trace = samples(signals, n, None if lengths is None else lengths[n])
        known = {}
        for t in range(len(trace)):
            out[t, n] = definition(f, trace, t, kind, known)
    return out


@SETTINGS
@given(formulas(unbounded=True), traces())
def test_numpy_and_torch_equal_the_definition(f, signals):
    f = And((f, X >= X))  # reads a signal
    expected, truth = defined(f, signals, 0), defined(f, signals, 1)
    np.testing.assert_allclose(robustness(f, signals, DT), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, signals, DT), truth)
    tensors = {k: torch.from_numpy(v) for k, v in signals.items()}
    np.testing.assert_allclose(robustness(f, tensors, DT).numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, tensors, DT).numpy(), truth)


WINDOWS = [Window(round(lo * DT, 9), round(hi * DT, 9)) for lo in range(9) for hi in range(lo, 11)]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_operator_over_every_window(window):
    rng = np.random.default_rng(round(100 * window.lo + 10 * window.hi))
    signals = split(rng.normal(size=(9, 40, 5)))
    tensors = {k: torch.from_numpy(v) for k, v in signals.items()}
    for f in (Always(X > 0, window), Eventually(X > 0, window), Until(X > 0, Y > 0, window)):
        expected = defined(f, signals, 0)
        np.testing.assert_array_equal(robustness(f, signals, DT), expected)
        np.testing.assert_array_equal(robustness(f, tensors, DT).numpy(), expected)
        np.testing.assert_array_equal(satisfied(f, signals, DT), defined(f, signals, 1))


@SETTINGS
@given(formulas(unbounded=True), traces(least=2), st.data())
def test_padded_traces_equal_their_own_lengths(f, signals, data):
    f = And((f, X >= X))
    length = len(signals["x"])
    lengths = np.array([data.draw(st.integers(1, length)) for _ in range(2)])
    for n, count in enumerate(lengths):
        for v in signals.values():
            v[count:, n] = np.nan  # what stands in the padding does not matter
    expected, truth = defined(f, signals, 0, lengths), defined(f, signals, 1, lengths)
    np.testing.assert_allclose(robustness(f, signals, DT, lengths), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, signals, DT, lengths), truth)
    tensors = {k: torch.from_numpy(v) for k, v in signals.items()}
    np.testing.assert_allclose(robustness(f, tensors, DT, torch.from_numpy(lengths)).numpy(), expected, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, tensors, DT, lengths).numpy(), truth)


@SETTINGS
@given(states, traces())
def test_margin_is_the_robustness_of_each_sample(f, signals):
    np.testing.assert_allclose(margin(f, signals), defined(f, signals, 0), rtol=0, atol=1e-12)


@SETTINGS
@given(formulas(), formulas(), windows(), traces())
def test_algebraic_laws(f, g, w, signals):
    f, g = And((f, X >= X - 9)), And((g, X >= X - 9))

    def equal(a, b):
        np.testing.assert_allclose(robustness(a, signals, DT), robustness(b, signals, DT), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(satisfied(a, signals, DT), satisfied(b, signals, DT))

    equal(~(f & g), ~f | ~g)
    equal(Always(f, w), ~Eventually(~f, w))
    equal(Always(f & g, w), Always(f, w) & Always(g, w))
    equal(Eventually(f | g, w), Eventually(f, w) | Eventually(g, w))
    # expansion: f U g now, or f now and f U g at the next sample
    step = Window(DT, DT)
    last = len(signals["x"]) - 1
    whole, now = robustness(Until(f, g), signals, DT), robustness(g | (f & Eventually(Until(f, g), step)), signals, DT)
    np.testing.assert_allclose(whole[:last], now[:last], rtol=0, atol=1e-12)
    # the sign of the robustness never contradicts the truth
    r, s = robustness(f, signals, DT), satisfied(f, signals, DT)
    assert s[r > 0].all() and not s[r < 0].any()


@SETTINGS
@given(formulas(unbounded=True, leaf=st.one_of(predicates, st.booleans().map(Truth))))
def test_text_and_json_round_trips(f):
    assert parse(to_text(f), SCHEMA) == f
    assert check(f, SCHEMA) == f
    assert from_json(to_json(f)) == f


# ---------------------------------------------------------------- online


def completed(signals, length, filler):
    """``signals`` cut to ``length`` and continued with ``filler``."""
    return {k: np.concatenate([v[:length], filler[k][length:]]) for k, v in signals.items()}


@SETTINGS
@given(formulas(), traces(least=1, most=1, batch=1), st.data())
def test_monitor_bounds_every_continuation_and_ends_exact(f, _, data):
    total = round(horizon(f) / DT) + 1
    signals, other = (data.draw(traces(total, total, 1)) for _ in range(2))
    monitor = Monitor(f, DT)
    before = (-inf, inf)
    for k in range(total):
        reading = monitor.update({name: v[k, 0] for name, v in signals.items()})
        assert before[0] <= reading.lower <= reading.upper <= before[1]
        before = (reading.lower, reading.upper)
        for future in (signals, other):
            trace = samples(completed(signals, k + 1, future))
            assert reading.lower - 1e-12 <= definition(f, trace, 0, 0) <= reading.upper + 1e-12
            if reading.verdict != "undecided":
                assert (reading.verdict == "satisfied") == definition(f, trace, 0, 1)
    exact = definition(f, samples(signals), 0, 0)
    assert reading.lower == pytest.approx(exact, abs=1e-12) and reading.upper == pytest.approx(exact, abs=1e-12)
    assert reading.verdict == ("satisfied" if definition(f, samples(signals), 0, 1) else "violated") and reading.final
    assert reading.lower == min(c.lower for c in reading.clauses)


@SETTINGS
@given(formulas(), st.data())
def test_lost_samples_leave_the_bounds_sound(f, data):
    total = round(horizon(f) / DT) + 1
    signals = data.draw(traces(total, total, 1))
    lost = data.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    monitor = Monitor(f, DT)
    for k in range(total):
        reading = monitor.update(None if lost[k] else {name: v[k, 0] for name, v in signals.items()})
    value, truth = (definition(f, samples(signals), 0, kind) for kind in (0, 1))
    assert reading.lower - 1e-12 <= value <= reading.upper + 1e-12
    assert reading.verdict in ("undecided", "satisfied" if truth else "violated")


@SETTINGS
@given(formulas(), st.data())
def test_monitor_goes_on_from_a_saved_state(f, data):
    total = round(horizon(f) / DT) + 1
    signals = data.draw(traces(total, total, 1))
    cut = data.draw(st.integers(0, total))
    first, second = Monitor(f, DT), Monitor(f, DT)
    for k in range(total):
        if k == cut:
            second.set_state(first.state())
        sample = {name: v[k, 0] for name, v in signals.items()}
        reading = first.update(sample)
        if k >= cut:
            assert second.update(sample) == reading
    assert watch(f, {k: v[:, 0] for k, v in signals.items()}, DT) == reading


# ---------------------------------------------------------------- decomposition


@st.composite
def missions(draw, depth=1):
    """Formulas of the fragment that decomposes."""
    w, p, q = draw(windows(2)), draw(states), draw(states)
    body = p if depth == 0 else And((p, draw(missions(depth=depth - 1))))
    return draw(st.sampled_from([
        Always(p, w), Eventually(p, w), Eventually(body, w), Eventually(Always(p, draw(windows(3))), w), Until(p, q, w),
        Eventually(Eventually(q, draw(windows(2))), w), Always(And((p, Always(q, draw(windows(2))))), w),
        Eventually(And((Always(p, draw(windows(2))), Eventually(q, draw(windows(2, False))))), Window(0, 0.2))
        if depth == 0 else body, Not(Eventually(p, w)), p]))


def best_grounding(parts, trace):
    """Max over hit times of the min over everything that is asked for, by trying them all."""
    ranges = [range(round(s.window[0] / DT), round(s.window[1] / DT) + 1) for s in parts.subgoals]
    best, known = -inf, {}
    for offsets in itertools.product(*ranges):
        hits = []
        for goal, offset in zip(parts.subgoals, offsets):
            hits.append(offset + (0 if goal.after is None else hits[goal.after]))
        asked = [definition(goal.predicate, trace, t, 0, known)
                 for goal, hit in zip(parts.subgoals, hits) for t in range(hit, hit + round(goal.hold / DT) + 1)]
        for inv in parts.invariants:
            base = 0 if inv.after is None else hits[inv.after]
            last = base + round(inv.hi / DT) if inv.until is None else hits[inv.until] - 1
            asked += [definition(inv.predicate, trace, t, 0, known) for t in range(base + round(inv.lo / DT), last + 1)]
        best = max(best, min(asked, default=inf))
    return best


@settings(max_examples=120, deadline=None)
@given(st.lists(missions(), min_size=1, max_size=2), st.data())
def test_decomposition_has_the_robustness_of_the_formula(parts, data):
    f = parts[0] if len(parts) == 1 else And(tuple(parts))
    try:
        found = decompose(f, DT)
    except NotDecomposable as error:
        assert "of which none must hold" in error.reason
        return
    total = round(horizon(f) / DT) + 1
    trace = samples(data.draw(traces(total, total, 1)))
    assert best_grounding(found, trace) == pytest.approx(definition(f, trace, 0, 0), abs=1e-12)
    for goal in found.subgoals:
        assert goal.after is None or goal.after < goal.index
        assert found.subgoals[goal.index] is goal
