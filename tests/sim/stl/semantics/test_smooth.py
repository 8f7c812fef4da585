"""Smooth robustness: its definition by loops, its bounds against the exact definition, its gradient and its cost."""

import re
from math import exp, inf, log
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples, thinned
from tests.sim.stl.costs import FAMILIES, assert_linear, normal, tensors
from tests.sim.stl.definition import DT, P, X, Y, defined, formulas, predicates, traces

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, eventually, historically, once, release, since, until
from temporeal.sim.stl.language.conventions import ENDS, LEFTS, RTAMT, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Iff, Truth
from temporeal.sim.stl.language.temporal import Historically, Once, Until
from temporeal.sim.stl.semantics.smooth import METHODS, _ladder, _large, smooth_bounds, smooth_robustness

SETTINGS = settings(max_examples=examples(60), deadline=None)
SEMANTICS = [Semantics(end, left) for end in ENDS for left in LEFTS]
methods, temperatures = st.sampled_from(METHODS), st.sampled_from([1e-4, 0.02, 0.3, 4.0])

# ---------------------------------------------------------------- the definition


def smooth_max(v, method):
    """Over axis 0, at temperature one, straight from the definition."""
    if method == "logsumexp":
        return torch.logsumexp(v, 0)
    weights = torch.where(v == -inf, 0.0, torch.softmax(v, 0))
    return torch.where(weights > 0, weights * v, 0.0).sum(0)


def by_windows(v, lo, hi, method, sign, past):
    """The smooth maximum (``sign`` -1: minimum) over v[t+lo .. t+hi]; infinite where there is no such sample."""
    rows = []
    for t in range(len(v)):
        window = [v[s] for k in range(lo, hi + 1) if 0 <= (s := t - k if past else t + k) < len(v)]
        none = torch.full_like(v[0], -sign * inf)
        rows.append(sign * smooth_max(sign * torch.stack(window), method) if window else none)
    return torch.stack(rows)


def loop(keep, reach):
    """The logsumexp until to the end, sample by sample."""
    u, out = reach[-1], [reach[-1]]
    for x, y in zip(keep[:-1].flip(0), reach[:-1].flip(0)):
        u = torch.logaddexp(y, -torch.logaddexp(-x, -u))
        out.insert(0, u)
    return torch.stack(out)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("lo", "hi"), [(0, 1), (0, 4), (1, 3), (2, 12), (5, 8), (13, 14)])
def test_windows_equal_their_definition(lo, hi, method):
    signals, temperature = normal(13, 3), 0.3
    v = signals["x"] / temperature
    a, b = round(lo * DT, 9), round(hi * DT, 9)
    for f, sign, past in ((always(a, b, X > 0), -1, False), (eventually(a, b, X > 0), 1, False),
                          (historically(a, b, X > 0), -1, True), (once(a, b, X > 0), 1, True)):
        out = smooth_robustness(f, signals, DT, temperature, method)
        torch.testing.assert_close(out, temperature * by_windows(v, lo, hi, method, sign, past), msg=str(f))


@pytest.mark.parametrize("method", METHODS)
def test_conjunctions_equal_their_definition(method):
    signals = normal(4, 3)
    v = torch.stack([signals["x"], signals["y"], -signals["x"]]) / 0.5
    out = smooth_robustness((X > 0) & (Y > 0) & (X < 0), signals, DT, 0.5, method)
    torch.testing.assert_close(out, -0.5 * smooth_max(-v, method))


@pytest.mark.parametrize("past", [False, True])
def test_until_equals_its_recursion(past):
    signals = normal(11, 3)
    keep, reach = (signals[k].flip(0) if past else signals[k] for k in ("x", "y"))
    f = since(X > 0, 0, inf, Y > 0) if past else Until(X > 0, Y > 0)
    expected = 0.2 * loop(keep / 0.2, reach / 0.2)
    torch.testing.assert_close(smooth_robustness(f, signals, DT, 0.2), expected.flip(0) if past else expected)


def test_softmax_until_is_the_mean_weighted_by_the_gradient_of_the_logsumexp():
    keep, reach = (signal.requires_grad_() for signal in (normal(9, 1)["x"], normal(9, 1, seed=1)["x"]))
    means = []
    for u in loop(keep, reach)[:, 0]:
        by_keep, by_reach = torch.autograd.grad(u, (keep, reach), retain_graph=True, allow_unused=True)
        means.append((0 if by_keep is None else (by_keep * keep).sum()) + (by_reach * reach).sum())
    out = smooth_robustness(Until(X > 0, Y > 0), {"x": keep, "y": reach}, DT, 1.0, "softmax")
    torch.testing.assert_close(out[:, 0], torch.stack(means))


ladders = st.integers(1, 40).flatmap(lambda n: st.lists(
    st.floats(-1, 1, width=32), min_size=2 * n, max_size=2 * n))


@SETTINGS
@given(ladders, st.sampled_from([1, 1e2, 1e4, 1e6]))
def test_the_recursion_in_few_passes_loses_no_digits_to_the_loop(numbers, scale):
    keep, reach = (torch.tensor(numbers).reshape(2, -1, 1) * scale).float()
    exact = loop(keep.double(), reach.double())
    out = _ladder(_large(keep), True, keep, reach)
    # a few units in the last place of the largest number for each of log2(40) passes
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=16 * scale * torch.finfo(torch.float32).eps)


# ---------------------------------------------------------------- bounds


@SETTINGS
@given(formulas(unbounded=True), traces(), methods, temperatures, st.sampled_from(SEMANTICS), st.booleans())
def test_between_the_bounds(f, signals, method, temperature, semantics, double):
    f = f & (X >= X)  # reads a signal
    exact = defined(f, signals, 0, semantics=semantics)
    below, above = smooth_bounds(f, len(exact), DT, temperature, method, semantics)
    dtype, rounding = (np.float64, 1e-11) if double else (np.float32, 2e-5)
    out = smooth_robustness(f, {k: v.astype(dtype) for k, v in signals.items()}, DT, temperature, method,
                            semantics=semantics)
    assert type(out) is np.ndarray and out.dtype == dtype
    assert_between(out, exact, below + rounding, above + rounding)


def assert_between(out, exact, below, above):
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(out[infinite], exact[infinite])
    assert (out[~infinite] >= exact[~infinite] - below).all() and (out[~infinite] <= exact[~infinite] + above).all()


@SETTINGS
@given(formulas(unbounded=True), traces(least=2), methods, st.sampled_from(SEMANTICS), st.data())
def test_padded_traces_equal_their_own_lengths(f, signals, method, semantics, data):
    f = f & (X >= X)
    lengths = np.array([data.draw(st.integers(1, len(signals["x"]))) for _ in range(2)])
    padded = {k: v.copy() for k, v in signals.items()}
    for n, count in enumerate(lengths):
        for v in padded.values():
            v[count:, n] = np.nan  # what stands in the padding does not matter
    given_ = {k: v.requires_grad_() for k, v in tensors(padded).items()}
    out = smooth_robustness(f, given_, DT, 0.3, method, torch.from_numpy(lengths), semantics)
    for n, count in enumerate(lengths):
        alone = smooth_robustness(f, {k: v[:count, n] for k, v in signals.items()}, DT, 0.3, method,
                                  semantics=semantics)
        np.testing.assert_allclose(out[:count, n].detach(), alone, rtol=0, atol=1e-11)
        assert out[count:, n].isnan().all()
    own = torch.arange(len(out))[:, None] < torch.from_numpy(lengths)
    for g in gradients(out[own].clamp(-1e3, 1e3).sum(), given_):
        assert g.isfinite().all() and not g[~own].any()


def gradients(value, signals):
    """Those of ``value`` by the signals that it reads."""
    read = torch.autograd.grad(value, tuple(signals.values()), allow_unused=True, retain_graph=True)
    return [g for g in read if g is not None]


@pytest.mark.parametrize("n", [2, 3, 10])
def test_bounds_are_reached(n):
    """Traces on which the smooth value is as far off as the bound says; the ladder's in both directions."""
    last, far = round((n - 1) * DT, 9), 1e3
    level = np.zeros((n, 1))
    single = np.where(np.arange(n)[:, None] == n - 1, 0.0, -far)

    def off(f, x, y, method):
        exact, trace = defined(f, {"x": x, "y": y}, 0)[0, 0], {"x": x, "y": y}
        return smooth_robustness(f, trace, DT, 1.0, method)[0, 0] - exact, smooth_bounds(f, n, DT, 1.0, method)

    error, (below, above) = off(eventually(0, last, X > 0), level, level, "logsumexp")
    assert error == pytest.approx(above) == pytest.approx(log(n)) and below == 0
    error, (below, above) = off(always(0, last, X > 0), level, level, "logsumexp")
    assert -error == pytest.approx(below) == pytest.approx(log(n)) and above == 0
    error, (_, above) = off(Until(X > 0, Y > 0), level + far, level, "logsumexp")
    assert error == pytest.approx(above) == pytest.approx(log(n))
    error, (below, _) = off(Until(X > 0, Y > 0), level, single, "logsumexp")
    assert -error == pytest.approx(below) == pytest.approx(log(n))
    # the softmax is farthest off where all others lie lower by the bound and one
    below, above = smooth_bounds(eventually(0, last, X > 0), n, DT, 1.0, "softmax")
    x = np.where(np.arange(n)[:, None] == 0, 0.0, -1 - below)
    error, _ = off(eventually(0, last, X > 0), x, x, "softmax")
    assert -error == pytest.approx(below) and below < log(n) and above == 0
    assert below * exp(below) == pytest.approx((n - 1) / exp(1))


@pytest.mark.parametrize("side", [-1, 1])
def test_the_softmax_until_where_it_is_farthest_off(side):
    """The worst traces that maximizing the error found: one maximum, or one minimum, of n with all others beyond it."""
    n, far = 30, 1e3
    bounds = smooth_bounds(Until(X > 0, Y > 0), n, DT, 1.0, "softmax")
    worst = smooth_bounds(eventually(0, round((n - 1) * DT, 9), X > 0), n, DT, 1.0, "softmax")[0]
    others = np.full(n, side * (1 + worst))
    if side < 0:
        x, y = np.full(n, far), others
        y[0] = 0
    else:
        x, y = others, np.full(n, -far)
        x[0], y[-1] = 0, 1 + worst
    trace = {"x": x[:, None], "y": y[:, None]}
    error = smooth_robustness(Until(X > 0, Y > 0), trace, DT, 1.0, "softmax")[0, 0] - defined(
        Until(X > 0, Y > 0), trace, 0)[0, 0]
    assert error == pytest.approx(side * worst, abs=1e-6)
    assert -bounds[0] <= error <= bounds[1]
    assert bounds == pytest.approx((2 * log(n), 2 * log(n)))


def test_bounds_add_along_the_depth():
    f = always(0, 0.9, eventually(0, 0.4, X > 0) & (Y > 0))
    assert smooth_bounds(f, 100, DT, 0.5) == pytest.approx((0.5 * (log(10) + log(2)), 0.5 * log(5)))
    timed = until(X > 0, 0.3, 0.5, Y > 0)  # the least of F[3,5], G[0,2] and the until to the end
    assert smooth_bounds(timed, 100, DT, 1.0) == pytest.approx((log(3) + log(100), log(100)))
    assert smooth_bounds(X > 0, 100, DT, 1.0) == smooth_bounds(always(2, 3, X > 0), 5, DT, 1.0) == (0.0, 0.0)
    assert smooth_bounds(always(0, inf, X > 0), 20, DT, 1.0)[0] == pytest.approx(log(20))


@SETTINGS
@given(formulas(unbounded=True), traces(), methods)
def test_exact_as_the_temperature_goes_to_zero(f, signals, method):
    f = f & (X >= X)
    exact = defined(f, signals, 0)
    errors = [np.abs(np.where(np.isinf(exact), 0, smooth_robustness(f, signals, DT, t, method) - np.nan_to_num(
        exact, posinf=0, neginf=0))).max() for t in (1e-3, 1e-6)]
    assert errors[0] < 0.05 and errors[1] < 5e-5


@st.composite
def rising(draw):
    """Formulas in which no signal is negated, and only logical operators and those of time."""
    leaf = st.sampled_from([X > 0, Y > -1])
    window = st.sampled_from([(0, 0.3), (0.1, 0.2), (0.2, inf)])
    f = draw(leaf)
    for _ in range(draw(st.integers(1, 3))):
        w, g = draw(window), draw(leaf)
        f = draw(st.sampled_from([
            always(*w, f), eventually(*w, f), once(*w, f), until(g, *w, f), release(f, *w, g), since(f, *w, g), f | g]))
    return f


@SETTINGS
@given(rising(), traces(), traces(12, 12))
def test_logsumexp_is_monotone(f, signals, more):
    higher = {k: v + np.abs(more[k][: len(v)]) for k, v in signals.items()}
    low, high = (smooth_robustness(f, s, DT, 0.3) for s in (signals, higher))
    assert (high >= low - 1e-12).all()


def test_softmax_is_not_monotone():
    low, high = (smooth_robustness((X > 0) | (Y > 0), {"x": np.array([1.0]), "y": np.array([y])}, DT, 1.0, "softmax")
                 for y in (-9.0, -1.0))
    assert high < low


# ---------------------------------------------------------------- gradients

DEEP = until(always(0, 0.3, X > 0), 0.1, 0.6, eventually(0, 0.2, Y > 0) & once(0, 0.2, P[0] > 0)) | ~since(
    X > 0, 0, 0.4, Iff(P[2] > 0, Y < 0.5)) | release(X > 0, 0, inf, Y > 0)


@pytest.mark.parametrize("method", thinned(METHODS, keep=["logsumexp"]))
@pytest.mark.parametrize("semantics", [
    RTAMT, pytest.param(Semantics("strong", "closed"), marks=pytest.mark.slow),
    pytest.param(Semantics("weak"), marks=pytest.mark.slow)
], ids=str)
def test_gradient_is_that_of_finite_differences(method, semantics):
    signals = {k: v.requires_grad_() for k, v in normal(6, 2).items()}
    names = list(signals)

    def value(*arrays):
        out = smooth_robustness(DEEP, dict(zip(names, arrays)), DT, 0.7, method, np.array([6, 4]), semantics)
        return out[out.isfinite()]

    assert len(value(*signals.values())) >= 8
    assert torch.autograd.gradcheck(value, tuple(signals.values()))


def test_second_derivatives_of_the_until():
    keep, reach = (normal(5, 2, seed=k)["x"].requires_grad_() for k in (0, 1))
    assert torch.autograd.gradgradcheck(lambda a, b: _ladder(_large(a), True, a, b), (keep, reach))


@pytest.mark.parametrize("f", [always(0, 0.9, X > 0), Once(X > 0), Until(X > -9, X > 0), since(X > -9, 0, 0.9, X > 0),
                               always(0, 0.4, eventually(0, 0.5, X > 0))], ids=str)
def test_every_sample_that_counts_has_a_gradient_and_the_weights_sum_to_one(f):
    x = normal(10, 3)["x"].requires_grad_()
    t = 9 if isinstance(f, Once) or "S" in str(f) else 0
    (g,) = torch.autograd.grad(smooth_robustness(f, {"x": x}, DT, 1.0)[t].sum(), x)
    assert (g > 1e-4).all()
    torch.testing.assert_close(g.sum(0), torch.ones(3, dtype=g.dtype))
    (g,) = torch.autograd.grad(smooth_robustness(f, {"x": x}, DT, 1.0, "softmax")[t].sum(), x)
    assert (g != 0).all()
    torch.testing.assert_close(g.sum(0), torch.ones(3, dtype=g.dtype))  # adding a constant adds it to the mean


@SETTINGS
@given(formulas(unbounded=True, leaf=st.one_of(predicates, st.booleans().map(Truth))), traces(), methods,
       temperatures, st.sampled_from(SEMANTICS))
def test_gradients_are_finite_and_zero_where_the_value_is_infinite(f, signals, method, temperature, semantics):
    f = Historically(f) & (X >= X)
    given_ = {k: v.requires_grad_() for k, v in tensors(signals, torch.float32).items()}
    out = smooth_robustness(f, given_, DT, temperature, method, semantics=semantics)
    for g in gradients(out.sum(), given_):
        assert g.isfinite().all()
    infinite = out[out.isinf()]
    for g in gradients(infinite.sum(), given_):
        assert not g.any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e30])
def test_low_temperatures_neither_overflow_nor_lose_the_gradient(method, scale):
    signals = {k: v.detach() for k, v in normal(200, 4).items()}
    single = {k: v.float().requires_grad_() for k, v in signals.items()}
    double = {k: v.detach().double() for k, v in single.items()}
    f = until(X > 0, 0, 3, always(0, 1, Y > 0)) & eventually(0, inf, Y > X)
    out = smooth_robustness(f, single, DT, 1 / scale, method)
    if scale == 1e30:  # beyond the range of float32: the sign is left
        assert (out.isinf()).all()
        return
    exact = defined(f, {k: v.numpy() for k, v in double.items()}, 0)[:150]
    torch.testing.assert_close(out[:150].double(), torch.tensor(exact), rtol=1e-5, atol=2e-3 if scale == 1e4 else 2e-5)
    for g in torch.autograd.grad(out[:150].sum(), [single["x"], single["y"]], retain_graph=True):
        assert g.isfinite().all() and g.any()
    if method == "logsumexp":  # weights of sum one on margins, of which that of Y > X has slope two
        pair = torch.autograd.grad(out[0, 0], [single["x"], single["y"]])
        assert 1 - 1e-3 <= sum(g.abs().sum() for g in pair) <= 2 + 1e-3


# ---------------------------------------------------------------- cost, transforms, input


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("formula", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.slow
def test_work_and_memory_grow_neither_with_the_window_nor_faster_than_the_trace(formula, method):
    assert_linear(lambda f, s: smooth_robustness(f, s, 1.0, 0.3, method), formula)


@pytest.mark.parametrize("method", METHODS)
def test_functional_transforms(method):
    signals = normal(10, 3)

    def score(x, y, p):
        return smooth_robustness(DEEP, {"x": x, "y": y, "p": p}, DT, 0.3, method)[0]

    arrays = (signals["x"], signals["y"], signals["p"])
    torch.testing.assert_close(torch.func.vmap(score, 1)(*arrays), score(*arrays))
    gradient = torch.func.vmap(torch.func.grad(score), 1, 1)(*arrays)
    torch.testing.assert_close(gradient, torch.func.grad(lambda *a: score(*a).sum())(*arrays))
    assert gradient.any()


def test_any_batch_dimensions():
    signals = normal(8, 6)
    out = smooth_robustness(DEEP, signals, DT, 0.3)
    for batch in ((6,), (3, 2)):
        shaped = {k: v.reshape(8, *batch, *v.shape[2:]) for k, v in signals.items()}
        torch.testing.assert_close(smooth_robustness(DEEP, shaped, DT, 0.3), out.reshape(8, *batch))
    one = smooth_robustness(DEEP, {k: v[:, 0] for k, v in signals.items()}, DT, 0.3)
    torch.testing.assert_close(one, out[:, 0])


@pytest.mark.parametrize("method", METHODS)
def test_nan_reaches_what_depends_on_it(method):
    x = np.linspace(-1, 1, 10)
    x[5] = np.nan
    for f, first, last in ((always(0, 0.2, X > 0), 3, 5), (once(0.1, 0.3, X > 0), 6, 8),
                           (Until(X > -2, X > 0), 0, 5)):
        out = smooth_robustness(f, {"x": x}, DT, 0.1, method)
        np.testing.assert_array_equal(np.isnan(out), (np.arange(10) >= first) & (np.arange(10) <= last))


def test_signals_of_different_types_meet_in_the_wider_one():
    signals = normal(9, 2)
    mixed = {**signals, "y": signals["y"].float()}
    out = smooth_robustness(DEEP, mixed, DT, 0.3)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, smooth_robustness(DEEP, {**mixed, "y": mixed["y"].double()}, DT, 0.3))
    whole = {"x": np.arange(5).reshape(5, 1)}  # integers are float64, as for robustness
    assert smooth_robustness(X > 0, whole, DT, 0.3).dtype == np.float64


def test_bad_input_is_refused():
    signals = {"x": np.zeros((3, 1))}
    for temperature in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(FormulaError, match="temperature = .* greater than zero"):
            smooth_robustness(X > 0, signals, DT, temperature)
        with pytest.raises(FormulaError, match="temperature = "):
            smooth_bounds(X > 0, 3, DT, temperature)
    with pytest.raises(FormulaError, match="'max'; legal: logsumexp, softmax"):
        smooth_robustness(X > 0, signals, DT, 1.0, "max")
    with pytest.raises(SignalError, match="float32 or float64"):
        smooth_robustness(X > 0, {"x": torch.zeros(3, 1, dtype=torch.float16)}, DT, 1.0)
    with pytest.raises(SignalError, match="at least one sample"):
        smooth_bounds(X > 0, 0, DT, 1.0)
    with pytest.raises(SignalError, match="missing"):
        smooth_robustness(Y > 0, signals, DT, 1.0)


def test_the_python_of_the_page_runs():
    page = (Path(__file__).parents[4] / "docs" / "explanation/stl-smooth.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    scope = {}
    exec(block, scope)
    assert scope["exact"] > 0.15  # the largest possible is 0.2: the trace stays at the goal
    for n, usual in ((2, 0.28), (100, 2.63)):
        assert smooth_bounds(eventually(0, round(n * DT - DT, 9), X > 0), n, DT, 1.0, "softmax")[0] == pytest.approx(
            usual, abs=0.005)
