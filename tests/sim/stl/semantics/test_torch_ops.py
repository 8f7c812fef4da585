"""The torch evaluation on any device against the definitions; its gradient, its work and its memory."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.costs import FAMILIES, assert_linear, normal, tensors
from tests.sim.stl.definition import DT, P, X, Y, defined, formulas, split, traces

from temporeal.sim.stl.language.constructors import always, eventually, historically, once, since, until
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Constant, Predicate
from temporeal.sim.stl.language.temporal import Always, Eventually, Historically, Once, Release, Since, Until, Window
from temporeal.sim.stl.language.values import predicate_margin, predicate_truth
from temporeal.sim.stl.rewriting.lower import lower
from temporeal.sim.stl.semantics.torch_ops import evaluate, torch_arrays
from temporeal.sim.stl.semantics.torch_scans import recursion

SETTINGS = settings(max_examples=examples(60), deadline=None)
CLOSED = Semantics(until="closed")


def evaluated(formula, signals, lengths=None, semantics=RTAMT, truth=False, dt=DT):
    """``evaluate`` on the margins or truths of tensors [T, N, ...]."""
    like = signals["x"] > 0 if truth else signals["x"]
    arrays, of = torch_arrays(signals["x"]), predicate_truth if truth else predicate_margin
    mask = None if lengths is None else torch.arange(len(like))[:, None] < torch.as_tensor(lengths)

    def leaf(node):
        x = of(node.predicate, signals, arrays)
        x = x if isinstance(x, torch.Tensor) else torch.full_like(like, x)
        return x if not node.negated else ~x if truth else -x

    return evaluate(lower(formula, dt, semantics), leaf, like.shape, like, mask)


# ---------------------------------------------------------------- values


@SETTINGS
@given(formulas(unbounded=True), traces(), st.sampled_from([RTAMT, CLOSED]), st.booleans())
def test_equals_the_definition(f, signals, semantics, double):
    given_ = tensors(signals, torch.float64 if double else torch.float32)
    out = evaluated(f, given_, semantics=semantics)
    assert out.dtype == given_["x"].dtype
    np.testing.assert_allclose(out, defined(f, signals, 0, semantics=semantics), rtol=0, atol=1e-12 if double else 2e-6)
    # the numbers drawn are halves of integers, exact in float64: equalities are
    exact = evaluated(f, tensors(signals), semantics=semantics, truth=True)
    np.testing.assert_array_equal(exact, defined(f, signals, 1, semantics=semantics))


@SETTINGS
@given(formulas(unbounded=True), traces(least=2), st.data())
def test_the_mask_hides_what_lies_past_the_end(f, signals, data):
    lengths = np.array([data.draw(st.integers(1, len(signals["x"]))) for _ in range(2)])
    for kind, truth in ((0, False), (1, True)):
        expected = defined(f, signals, kind, lengths)
        out = evaluated(f, tensors(signals), lengths, truth=truth).numpy()
        for n, count in enumerate(lengths):
            np.testing.assert_allclose(out[:count, n], expected[:count, n], rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_every_window_of_every_operator(length):
    signals = split(np.random.default_rng(length).normal(size=(length, 2, 5)))
    given_ = tensors(signals)
    for lo in range(length + 2):
        for hi in (*range(lo, length + 2), inf):
            window = Window(round(lo * DT, 9), round(hi * DT, 9) if hi < inf else inf)
            one = [operator(X > 0, window) for operator in (Always, Eventually, Historically, Once)]
            for f in (*one, *(operator(X > 0, Y > 0, window) for operator in (Until, Release, Since))):
                np.testing.assert_array_equal(evaluated(f, given_), defined(f, signals, 0), err_msg=str(f))


@pytest.mark.parametrize("batch", [(), (3, 2)])
def test_any_batch_dimensions(batch):
    f = until(X > 0, 0.1, 0.4, always(0, 0.3, Y > 0) | once(0, 0.2, P[1] > 0))
    signals = normal(9, *batch)
    flat = {k: v.reshape(9, -1, *v.shape[1 + len(batch):]) for k, v in signals.items()}
    torch.testing.assert_close(evaluated(f, signals), evaluated(f, flat).reshape(9, *batch))


@pytest.mark.parametrize(("f", "first", "last"), [
    (always(0.2, 0.5, X > 0), -5, -2), (eventually(0, 0.3, X > 0), -3, 0), (eventually(0.1, inf, X > 0), -20, -1),
    (historically(0.2, 0.5, X > 0), 2, 5), (once(0, inf, X > 0), 0, 20),
    (Until(Y > 9, X > 0), -20, 0), (Until(X > -9, Y > 0), -20, 0), (since(X > -9, 0, inf, Y > 0), 0, 20)], ids=str)
def test_nan_reaches_every_value_that_depends_on_it_and_no_other(f, first, last):
    signals = normal(20, 1)
    clean = evaluated(f, signals)
    for at in (0, 7, 19):
        x = signals["x"].clone()
        x[at] = torch.nan
        out = evaluated(f, {**signals, "x": x})
        hit = torch.zeros(20, dtype=torch.bool)
        hit[max(at + first, 0): max(at + last + 1, 0)] = True
        assert out[hit].isnan().all()
        torch.testing.assert_close(out[~hit], clean[~hit])


@pytest.mark.parametrize("length", [1, 2, 3, 6, 13, 32])
def test_recursion_equals_the_loop(length):
    gain, step = torch.randn(2, length, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    u, expected = torch.ones(1, 4, dtype=torch.float64), []
    for t in reversed(range(length)):
        u = step[t] + gain[t] * u
        expected.insert(0, u)
    out = recursion((gain, step), (torch.ones(1, 4, dtype=torch.float64),),
                    lambda f, g: (f[0] * g[0], f[1] + f[0] * g[1]), lambda f, u: (f[1] + f[0] * u[0],))
    torch.testing.assert_close(out[0], torch.cat(expected))


# ---------------------------------------------------------------- gradients

NESTED = until(always(0, 0.3, X > 0), 0.1, 0.6, eventually(0, 0.2, Y > 0) & once(0, 0.2, P[0] > 0)) | ~since(
    X > 0, 0, 0.4, P[2] > 0)


def test_gradient_is_that_of_finite_differences():
    signals = {k: v.requires_grad_() for k, v in normal(12, 2).items()}  # random normals: no ties
    names = list(signals)
    assert torch.autograd.gradcheck(
        lambda *a: evaluated(NESTED, dict(zip(names, a)), lengths=[12, 7])[:7], tuple(signals.values()))


@SETTINGS
@given(formulas(unbounded=True), traces())
def test_gradient_is_a_convex_combination_where_finite_and_zero_where_not(f, signals):
    leaf = Predicate(">", X, Constant(0.0))
    f = _with_leaves(f, leaf)
    x = torch.tensor(signals["x"], requires_grad=True)  # of halves of integers: ties everywhere
    out = evaluated(f, {**tensors(signals), "x": x})
    for t in range(len(x)):
        if not out.requires_grad:
            assert out[t].isinf().all()  # nothing but empty windows
            continue
        (g,) = torch.autograd.grad(out[t, 0], x, retain_graph=True)
        assert not g.isnan().any()
        assert g.abs().sum() <= 1 + 1e-12
        if out[t, 0].isinf():
            assert not g.any()


def _with_leaves(f, leaf):
    """``f`` with every predicate replaced, so that the slope of each margin is one."""
    if isinstance(f, Predicate):
        return leaf
    parts = {k: _with_leaves(v, leaf) if hasattr(v, "__dataclass_fields__") and not isinstance(v, Window)
             else tuple(_with_leaves(a, leaf) for a in v) if isinstance(v, tuple) else v for k, v in vars(f).items()}
    return type(f)(**parts)


def test_functional_transforms():
    signals = normal(12, 30)

    def score(x, y, p):
        return evaluated(NESTED, {"x": x, "y": y, "p": p})[0]

    arrays = (signals["x"], signals["y"], signals["p"])
    mapped = torch.func.vmap(score, 1)(*arrays)
    torch.testing.assert_close(mapped, score(*arrays))
    gradient = torch.func.vmap(torch.func.grad(score), 1, 1)(*arrays)
    torch.testing.assert_close(gradient, torch.func.grad(lambda *a: score(*a).sum())(*arrays))
    assert gradient.any()


# ---------------------------------------------------------------- work and memory


@pytest.mark.parametrize("formula", FAMILIES.values(), ids=FAMILIES)
def test_work_and_memory_grow_neither_with_the_window_nor_faster_than_the_trace(formula):
    assert_linear(lambda f, s: evaluated(f, s, dt=1.0), formula)
