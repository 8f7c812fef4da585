"""The compiled kernels against the array operations and the definition: sizes, types, layouts, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, P, X, Y, defined, formulas, split, traces

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, dist, eventually, norm, once, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Apply, Constant, Or, Predicate, Signal, Truth
from temporeal.sim.stl.language.queries import history, horizon
from temporeal.sim.stl.language.temporal import Always, Eventually, Historically, Once, Previous, Since, Until, Window
from temporeal.sim.stl.rewriting.lower import lower
from temporeal.sim.stl.semantics import robustness as engine
from temporeal.sim.stl.semantics.robustness import evaluate_leaves, robustness, satisfied

SEMANTICS = st.builds(Semantics, st.sampled_from(["clip", "strong", "weak"]), st.sampled_from(["half-open", "closed"]))
MIXED = (until(X > 0, 0.2, 0.7, Y > 0.1) & always(0, 2.1, once(0.1, 0.5, eventually(0, 1.3, Y > -1)))
         & ~Since(X < 1, Y > 0, Window(0.3, 0.9)))


@pytest.fixture
def by_arrays(monkeypatch):
    """Robustness and truth as they are without numba."""

    def of(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "COMPILED", False)
            return function(*args)

    return of


def agree(f, given, semantics):
    """How much and whether are what the definition says."""
    np.testing.assert_array_equal(robustness(f, given, DT, None, semantics), defined(f, given, 0, None, semantics))
    np.testing.assert_array_equal(satisfied(f, given, DT, None, semantics), defined(f, given, 1, None, semantics))


def signals(length, worlds, dtype=np.float64, seed=0):
    return split(np.random.default_rng(seed).normal(size=(length, worlds, 5)).astype(dtype))


@pytest.mark.parametrize("worlds", [1, 2, 15, 16, 17, 100, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_traces(worlds, dtype, by_arrays):
    given = signals(60, worlds, dtype)
    for f in (MIXED, And((MIXED, norm(P) < 2))):
        out = robustness(f, given, DT)
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, by_arrays(robustness, f, given, DT))
        np.testing.assert_array_equal(satisfied(f, given, DT), by_arrays(satisfied, f, given, DT))


def test_layouts_types_and_batches(by_arrays):
    wide = np.random.default_rng(1).normal(size=(5, 7, 40))
    given = split(wide.transpose(2, 1, 0))  # time is the fastest axis
    expected = by_arrays(robustness, MIXED, {k: np.ascontiguousarray(v) for k, v in given.items()}, DT)
    np.testing.assert_array_equal(robustness(MIXED, given, DT), expected)
    np.testing.assert_array_equal(robustness(MIXED, {k: v[::-1] for k, v in given.items()}, DT)[3:],
                                  by_arrays(robustness, MIXED, {k: v[::-1].copy() for k, v in given.items()}, DT)[3:])
    one = {k: v[:, 2] for k, v in given.items()}
    np.testing.assert_array_equal(robustness(MIXED, one, DT), expected[:, 2])
    # a trailing batch of two dimensions, big-endian numbers, half precision, integers, a broadcast signal
    cube = {k: v.reshape(40, 7, 1, *v.shape[2:]).repeat(2, 2) for k, v in given.items()}
    np.testing.assert_array_equal(robustness(MIXED, cube, DT)[:, :, 1], expected)
    swapped = {k: v.astype(v.dtype.newbyteorder(">")) for k, v in given.items()}
    np.testing.assert_array_equal(robustness(MIXED, swapped, DT), expected)
    half = {k: v.astype(np.float16) for k, v in given.items()}
    assert robustness(MIXED, half, DT).dtype == np.float16
    whole = {"x": np.arange(12).reshape(6, 2), "y": np.ones((6, 2), dtype=bool)}
    assert robustness(always(0, 0.2, X > Y), whole, DT)[0].tolist() == [-1.0, 0.0]
    flat = {"x": np.broadcast_to(given["x"][:1], (40, 7)), "y": given["y"]}
    np.testing.assert_array_equal(robustness(always(0, 1, X > Y), flat, DT),
                                  by_arrays(robustness, always(0, 1, X > Y), flat, DT))
    with pytest.raises(SignalError, match="complex128; legal"):
        robustness(X > 0, {"x": np.ones((3, 1), dtype=complex)}, DT)


def test_arithmetic_of_every_function():
    q, p, m = Signal("q", (4,), "wxyz"), Signal("p", (3,)), Signal("m", (2, 3))
    rng = np.random.default_rng(2)
    given = {n: rng.normal(size=(9, 3, *s)) for n, s in (("x", ()), ("y", ()), ("p", (3,)), ("q", (4,)), ("m", (2, 3)))}
    identity = Constant((1.0, 0.0, 0.0, 0.0))
    x, y = Signal("x"), Signal("y")
    for left in (x + y, 2 - x, x - 3, x * y, x / (abs(y) + 1), -x, abs(x), norm(p), dist(p, (1, 0, 2)),
                 Apply("hypot", (x, y)), Apply("angle", (p, Constant((0.0, 0.0, 1.0)))),
                 Apply("rotation_angle", (q, identity)), Apply("wrap", (3 * x,)),
                 Apply("sqrt", (abs(x),)), Apply("exp", (x,)), Apply("sin", (x,)), Apply("cos", (x,)),
                 Apply("pow", (abs(x), Constant(1.5))), Apply("atan2", (x, y)), Apply("min", (x, y, Constant(0.5))),
                 Apply("max", (x, y)), (2 * p - p / 3)[1], m[1][2], norm(m[0]), norm(p * x)):
        for op in ("<", "<=", ">", ">=", "==", "!="):
            f = eventually(0, 0.2, Predicate(op, left, Constant(0.25)))
            for case in (f, ~f):
                tensors = {k: torch.from_numpy(v).requires_grad_() for k, v in given.items()}
                expected = robustness(case, tensors, DT).detach().numpy()
                np.testing.assert_allclose(robustness(case, given, DT), expected, rtol=1e-12, atol=1e-14)


LENGTHS = st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1))


def counted(parts, rows):
    """Lengths of two traces from parts of the whole."""
    return None if parts is None else np.array([1 + round(part * (rows - 1)) for part in parts])


@settings(max_examples=examples(120), deadline=None)
@given(formulas(unbounded=True), traces(least=2), SEMANTICS, LENGTHS)
def test_without_numba_the_values_are_the_same(f, given, semantics, parts):
    f = And((f, X >= X))
    lengths = counted(parts, len(given["x"]))
    args = (f, given, DT, lengths, semantics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "COMPILED", False)
        slow, slow_truth = robustness(*args), satisfied(*args)
    np.testing.assert_array_equal(robustness(*args), slow)
    np.testing.assert_array_equal(satisfied(*args), slow_truth)


@settings(max_examples=examples(60), deadline=None)
@given(formulas(unbounded=True), st.data())
def test_a_nan_spreads_to_what_depends_on_it_and_no_further(f, data):
    f = And((f, X >= X))
    given = data.draw(traces(least=3, batch=2))
    at = data.draw(st.integers(0, len(given["x"]) - 1))
    given["x"][at, 0] = np.nan
    out = robustness(f, given, DT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "COMPILED", False)
        np.testing.assert_array_equal(out, robustness(f, given, DT))
    assert np.isnan(out[at, 0]) and not np.isnan(out[:, 1]).any()


# ---------------------------------------------------------------- gradients


@settings(max_examples=examples(120), deadline=None)
@given(formulas(unbounded=True), traces(least=2), SEMANTICS, LENGTHS)
def test_the_gradient_is_that_of_the_deciding_sample(f, given, semantics, parts):
    """Moving the one sample that decides moves the value as the gradient says: every value, one-sided at ties."""
    f = And((f, X >= X))
    lengths = counted(parts, len(given["x"]))
    rng = np.random.default_rng(0)
    # no two samples alike, so that the value is differentiable
    given = {k: v + 0.2 * rng.random(v.shape) for k, v in given.items()}
    exact = robustness(f, given, DT, lengths, semantics)
    finite = np.isfinite(exact)
    weight = rng.normal(size=exact.shape) * finite
    direction, step = {k: rng.normal(size=v.shape) for k, v in given.items()}, 1e-8

    def gradients(at):
        """Values at a point, and the gradient of their weighted sum."""
        tensors = {k: torch.from_numpy(v).requires_grad_() for k, v in at.items()}
        out = robustness(f, tensors, DT, lengths, semantics)
        total = (torch.from_numpy(weight) * torch.where(torch.from_numpy(finite), out, 0)).sum()
        found = torch.autograd.grad(total, list(tensors.values()), allow_unused=True)
        return out.detach().numpy(), [np.zeros_like(v) if g is None else g.numpy() for v, g in zip(at.values(), found)]

    moved = {k: v + step * direction[k] for k, v in given.items()}
    (out, here), (out_moved, there) = gradients(given), gradients(moved)
    np.testing.assert_allclose(out, exact, rtol=1e-12)
    # a step across the border between two deciding samples has no derivative
    assume(all(((g != 0) == (h != 0)).all() for g, h in zip(here, there)))
    change = (np.where(finite, out_moved, 0) - np.where(finite, out, 0)) / step
    expected = sum(float((g * d).sum()) for g, d in zip(here, direction.values()))
    assert float((weight * change).sum()) == pytest.approx(expected, abs=1e-5 * (1 + abs(expected)))


def test_gradients_agree_with_autograd_through_array_operations(by_arrays):
    for dtype in (torch.float32, torch.float64):
        given = {k: torch.from_numpy(v).to(dtype) for k, v in signals(50, 33).items()}
        found = []
        for run in (lambda *a: a[0](*a[1:]), by_arrays):
            leaves = {k: v.clone().requires_grad_() for k, v in given.items()}
            out = run(robustness, MIXED, leaves, DT)
            torch.where(torch.isfinite(out), out, 0).square().sum().backward()
            found.append([leaves[k].grad for k in ("x", "y")])
        for ours, theirs in zip(*found):
            torch.testing.assert_close(ours, theirs)


def test_only_the_first_value_asked_for():
    x = torch.tensor([[3.0], [1.0], [2.0]], requires_grad=True)
    robustness(always(0, 0.2, X > 0), {"x": x}, DT)[0].sum().backward()
    assert x.grad.tolist() == [[0.0], [1.0], [0.0]]
    x.grad = None
    robustness(eventually(0, 0.2, X < 0), {"x": x}, DT)[0].sum().backward()
    assert x.grad.tolist() == [[0.0], [-1.0], [0.0]]


def test_a_gradient_ends_at_what_is_empty_or_constant():
    x = torch.tensor([[3.0], [1.0]], requires_grad=True)
    out = robustness(Always(X > 0, Window(0.5, 0.6)), {"x": x}, DT)
    assert out.tolist() == [[np.inf], [np.inf]]
    out.sum().backward()
    assert x.grad.tolist() == [[0.0], [0.0]]
    assert torch.autograd.gradcheck(
        lambda a: robustness(Until(X > 0, X < 2, Window(0, 0.3)), {"x": a}, DT),
        torch.tensor([[3.0], [1.0], [4.0]], dtype=torch.float64, requires_grad=True))


# ---------------------------------------------------------------- other numbers than margins


def test_times_in_the_place_of_margins():
    f = Or((Eventually(X > 0, Window(0, 0.3)), Always(Y > 0, Window(0, 0.2))))
    lowered = lower(f, DT)
    time = np.arange(4.0)[:, None] * np.ones(2)
    values = {"x": time, "y": -time}

    def leaf(node):
        return values[node.predicate.left.name]

    out = evaluate_leaves(lowered, leaf, (4, 2))
    assert out[0].tolist() == [3.0, 3.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "COMPILED", False)
        np.testing.assert_array_equal(evaluate_leaves(lowered, leaf, (4, 2), np.array([2, 4]))[:2],
                                      [[1.0, 3.0], [1.0, 3.0]])
    np.testing.assert_array_equal(evaluate_leaves(lowered, leaf, (4, 2), np.array([2, 4]))[:2],
                                  [[1.0, 3.0], [1.0, 3.0]])


# ---------------------------------------------------------------- what a review found


@settings(max_examples=examples(80), deadline=None)
@given(formulas(unbounded=False), st.integers(0, 19), st.sampled_from(["numpy", "arrays", "torch", "grad"]))
def test_a_nan_reaches_what_may_look_at_it_and_nothing_else(f, at, how):
    """Every value without a NaN is that of the trace with any number there; every other one looks at the sample."""
    given = signals(20, 1, seed=at)
    hurt = {k: v.copy() for k, v in given.items()}
    for name in ("x", "y", "p"):
        hurt[name][at] = np.nan
    f = And((f, X >= X))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "COMPILED", how != "arrays")
        if how in ("torch", "grad"):
            tensors = {k: torch.from_numpy(v).requires_grad_(how == "grad") for k, v in hurt.items()}
            out = robustness(f, tensors, DT).detach().numpy()
        else:
            out = robustness(f, hurt, DT)
    whole = ~np.isnan(out)
    np.testing.assert_allclose(out[whole], robustness(f, given, DT)[whole], rtol=1e-12)
    other = {k: v.copy() for k, v in given.items()}
    for seed in range(8):
        for name in ("x", "y", "p"):
            other[name][at] = np.random.default_rng(seed).normal(scale=3, size=other[name][at].shape)
        np.testing.assert_allclose(robustness(f, other, DT)[whole], out[whole], rtol=1e-12)
    reach = round((horizon(f, DT) + history(f, DT)) / DT)
    far = np.abs(np.arange(20) - at) > reach
    assert whole[far].all()


def test_a_timed_until_is_nan_for_its_window_only():
    given = {"x": np.ones((20, 1)), "y": np.ones((20, 1))}
    given["x"][5] = np.nan
    for f, hit in ((Until(X > 0, Y > 0, Window(0, 0.2)), [4, 5]), (Since(X > 0, Y > 0, Window(0, 0.2)), [5, 6])):
        assert np.flatnonzero(np.isnan(robustness(f, given, DT))).tolist() == hit


@pytest.mark.parametrize("compiled", [True, False])
def test_the_left_side_is_not_asked_for_where_the_trace_ends(compiled, monkeypatch):
    """The first sample of a since and the last of an until: streams and the definition do not read them either."""
    monkeypatch.setattr(engine, "COMPILED", compiled)
    for at, kind in ((0, Since), (9, Until)):
        given = {"x": np.ones((10, 1)), "y": np.ones((10, 1))}
        given["x"][at] = np.nan
        for window in (Window(), Window(0, 0.3), Window(0.1, 0.3)):
            out = robustness(kind(X > 0, Y > 0, window), given, DT)
            assert not np.isnan(out).any()
            given["x"][at] = 5.0
            np.testing.assert_array_equal(out, robustness(kind(X > 0, Y > 0, window), given, DT))
            given["x"][at] = np.nan
        assert np.isnan(robustness(kind(X > 0, Y > 0), given, DT, None, Semantics(until="closed"))[at, 0])


@pytest.mark.parametrize("end", ["strong", "weak"])
def test_a_view_of_the_end_goes_on_until_nothing_changes(end):
    given = {"x": np.array([[2.0], [1.0]]), "y": np.array([[-1.0], [-2.0]])}
    for f in (Always(Once(X > 0, Window(0, 0.1))), Eventually(Historically(Y > 0, Window(0, 0.3))),
              Always(Since(X > 0, X > 1, Window(0, 0.2))), Until(X > 0, Historically(Y > 0, Window(0.1, 0.2))),
              Always(Previous(Previous(X > 0))), Eventually(Always(Once(X > 0, Window(0.2, 0.4)), Window(0.3, 0.5)))):
        agree(f, given, Semantics(end))


def test_windows_far_beyond_the_trace_cost_nothing():
    given = {"x": np.random.default_rng(0).normal(size=(50, 3))}
    cases = (eventually(0, 1e8, X > 0), always(1e7, 1e8, eventually(1e7, 2e8, X > 0)), until(X > -9, 1e6, 1e7, X > 1))
    # what is asked for beyond the end is false in one view and true in the other; until then x is at least -9
    for f, low, high in zip(cases, (given["x"].max(0), -np.inf, -np.inf), (np.inf, np.inf, given["x"].min(0) + 9)):
        for end, value in (("strong", low), ("weak", high)):
            assert lower(f, DT, Semantics(end)).viewed(50)[1] <= 200
            np.testing.assert_array_equal(robustness(f, given, DT, None, Semantics(end))[0], value + np.zeros(3))


def test_tensors_of_several_types_meet_in_the_widest():
    x = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64, requires_grad=True)
    for y in (torch.ones(3, 1, dtype=torch.bool), torch.ones(3, 1, dtype=torch.int64), torch.ones(3, 1)):
        for f in (And((always(0, 0.1, X > 0), Y > -9)), And((Y > -9, always(0, 0.1, X > 0)))):
            x.grad = None
            out = robustness(f, {"x": x, "y": y}, DT)
            assert out.dtype == torch.float64 and out[:, 0].tolist() == [1.0, 2.0, 3.0]
            out.sum().backward()
            assert x.grad[:, 0].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(SignalError, match="complex64; legal"):
        robustness(X > 0, {"x": torch.ones(3, dtype=torch.complex64)}, DT)


def test_a_formula_that_is_constant_and_a_derivative_that_is_infinite():
    x = torch.tensor([[0.0], [0.5], [0.3]], requires_grad=True)
    assert torch.isposinf(robustness(Or((X > 1, X > X - 1, Truth(True))), {"x": x}, DT)).all()
    # at x = 0 the derivative is infinite; the sample that decides is another one
    for root in (Apply("sqrt", (X,)), Apply("pow", (X, Constant(0.5))), Apply("sqrt", (1 * X,)) / 2):
        f = always(0, 0.2, Predicate("<", root, Constant(1.0)))
        x.grad = None
        robustness(f, {"x": x}, DT)[0].sum().backward()
        assert (x.grad[:, 0] != 0).tolist() == [False, True, False] and torch.isfinite(x.grad).all()


def test_lengths_as_a_tensor_inside_a_transform():
    x, lengths = torch.tensor([[3.0], [1.0], [0.0]]), torch.tensor([2])
    found = torch.func.grad(lambda v: robustness(always(0, 0.2, X > 0), {"x": v}, DT, lengths)[0].sum())(x)
    assert found[:, 0].tolist() == [0.0, 1.0, 0.0]


def test_a_formula_nested_too_deeply_is_refused():
    f = X > 0
    for _ in range(2000):
        f = ~f
    for run in (lambda: robustness(f, {"x": np.ones((3, 1))}, DT), lambda: lower(f, DT)):
        with pytest.raises(FormulaError, match="nested"):
            run()
