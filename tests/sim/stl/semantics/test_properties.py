"""Random formulas on random traces against an evaluator written straight from the definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples, thinned
from tests.sim.stl.definition import (
    DT,
    X,
    Y,
    defined,
    formulas,
    split,
    states,
    traces,
    windows,
)

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import And, Formula, Or, Predicate, Truth
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Release,
    Since,
    Until,
    WeakUntil,
    Window,
)
from temporeal.sim.stl.semantics.robustness import margin, robustness, satisfied

SETTINGS = settings(max_examples=examples(100), deadline=None)


# ---------------------------------------------------------------- offline


SEMANTICS = st.builds(Semantics, st.sampled_from(["clip", "strong", "weak"]), st.sampled_from(["half-open", "closed"]))


def agree(f, signals, semantics, lengths=None):
    """numpy and torch give what the definition says: how much, and whether."""
    expected, truth = (defined(f, signals, kind, lengths, semantics) for kind in (0, 1))
    np.testing.assert_allclose(robustness(f, signals, DT, lengths, semantics), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, signals, DT, lengths, semantics), truth)
    tensors = {k: torch.from_numpy(v) for k, v in signals.items()}
    counts = None if lengths is None else torch.from_numpy(lengths)
    np.testing.assert_allclose(robustness(f, tensors, DT, counts, semantics).numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(satisfied(f, tensors, DT, counts, semantics).numpy(), truth)


@SETTINGS
@given(formulas(unbounded=True), traces(), SEMANTICS)
def test_numpy_and_torch_equal_the_definition(f, signals, semantics):
    agree(And((f, X >= X)), signals, semantics)  # reads a signal


WINDOWS = [Window(round(lo * DT, 9), round(hi * DT, 9)) for lo in range(9) for hi in range(lo, 11)]
WINDOWS += [Window(round(lo * DT, 9)) for lo in range(9)]
KEPT = [Window(round(lo * DT, 9), round(hi * DT, 9)) for lo, hi in (
    (0, 0), (0, 3), (0, 10), (1, 1), (1, 4), (5, 5), (5, 10), (0, np.inf), (5, np.inf))]


@pytest.mark.parametrize("window", thinned(WINDOWS, keep=KEPT), ids=str)
@pytest.mark.slow
def test_every_operator_over_every_window(window):
    rng = np.random.default_rng(round(100 * window.lo + 10 * min(window.hi, 99)))
    signals = split(rng.normal(size=(9, 40, 5)))
    for f in (Always(X > 0, window), Eventually(X > 0, window), Historically(X > 0, window), Once(X > 0, window),
              *(binary(X > 0, Y > 0, window) for binary in (Until, Release, WeakUntil, Since))):
        agree(f, signals, Semantics())
        agree(~f, signals, Semantics("strong", "closed"))


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("operator", [Next, Previous])
def test_one_sample_ahead_and_behind(operator, strong):
    signals = split(np.random.default_rng(1).normal(size=(5, 3, 5)))
    for f in (operator(X > 0, strong), ~operator(X > 0, strong), operator(operator(X > 0, strong), not strong)):
        agree(f, signals, Semantics())


@SETTINGS
@given(formulas(unbounded=True), traces(least=2), SEMANTICS, st.data())
def test_padded_traces_equal_their_own_lengths(f, signals, semantics, data):
    length = len(signals["x"])
    lengths = np.array([data.draw(st.integers(1, length)) for _ in range(2)])
    for n, count in enumerate(lengths):
        for v in signals.values():
            v[count:, n] = np.nan  # what stands in the padding does not matter
    agree(And((f, X >= X)), signals, semantics, lengths)


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
    equal(Release(f, g, w), ~Until(~f, ~g, w))
    equal(WeakUntil(f, g, w), Until(f, g, w) | Always(f, Window(0.0, w.hi)))
    equal(Historically(f, w), ~Once(~f, w))
    # monotone: more can only help what asks for some, and harm what asks for all
    wider = Window(w.lo, round(w.hi + DT, 9))
    assert (robustness(Eventually(f, wider), signals, DT) >= robustness(Eventually(f, w), signals, DT)).all()
    assert (robustness(Always(f, wider), signals, DT) <= robustness(Always(f, w), signals, DT)).all()
    assert (robustness(Until(f, g, wider), signals, DT) >= robustness(Until(f, g, w), signals, DT)).all()
    # expansion: f U g now, or f now and f U g at the next sample
    step = Window(DT, DT)
    last = len(signals["x"]) - 1
    whole, now = robustness(Until(f, g), signals, DT), robustness(g | (f & Eventually(Until(f, g), step)), signals, DT)
    np.testing.assert_allclose(whole[:last], now[:last], rtol=0, atol=1e-12)
    # the sign of the robustness never contradicts the truth
    r, s = robustness(f, signals, DT), satisfied(f, signals, DT)
    assert s[r > 0].all() and not s[r < 0].any()


@SETTINGS
@given(formulas(unbounded=True), traces(), SEMANTICS)
def test_the_past_is_the_future_of_the_reversed_trace(f, signals, semantics):
    def mirrored(g):
        pairs = {Always: Historically, Eventually: Once, Until: Since, Next: Previous}
        both = {**pairs, **{past: future for future, past in pairs.items()}}
        match g:
            case Predicate() | Truth():
                return g
            case And(args) | Or(args):
                return type(g)(tuple(mirrored(a) for a in args))
            case Release(a, b, w):
                return ~Since(~mirrored(a), ~mirrored(b), w)
            case WeakUntil(a, b, w):
                return Since(mirrored(a), mirrored(b), w) | Historically(mirrored(a), Window(0.0, w.hi))
        kind = both.get(type(g), type(g))
        return kind(*(mirrored(v) if isinstance(v, Formula) else v for v in vars(g).values()))

    f, closed = And((f, X >= X)), Semantics(until=semantics.until)
    back = {k: v[::-1] for k, v in signals.items()}
    np.testing.assert_array_equal(robustness(f, signals, DT, None, closed),
                                  robustness(mirrored(f), back, DT, None, closed)[::-1])
    np.testing.assert_array_equal(satisfied(f, signals, DT, None, closed),
                                  satisfied(mirrored(f), back, DT, None, closed)[::-1])


@SETTINGS
@given(formulas(past=False), st.integers(1, 5), traces(least=6))
def test_the_value_at_a_sample_is_that_of_the_trace_from_there_on(f, by, signals):
    f = And((f, X >= X))
    later = {k: v[by:] for k, v in signals.items()}
    np.testing.assert_array_equal(robustness(f, signals, DT)[by:], robustness(f, later, DT))


@SETTINGS
@given(formulas(unbounded=True), traces(), st.integers(0, 4))
def test_what_lies_past_the_end_is_between_the_strong_and_the_weak_view(f, signals, k):
    """Whatever comes after the trace, the robustness of the whole lies between the two views of its beginning."""
    f = And((f, X >= X))
    low, high = (robustness(f, signals, DT, None, Semantics(end)) for end in ("strong", "weak"))
    rng = np.random.default_rng(k)
    longer = {n: np.concatenate([v, rng.normal(size=(k, *v.shape[1:]))]) for n, v in signals.items()}
    low_later, high_later = (robustness(f, longer, DT, None, Semantics(end)) for end in ("strong", "weak"))
    rows = len(signals["x"])
    assert (low <= low_later[:rows]).all() and (high_later[:rows] <= high).all()
