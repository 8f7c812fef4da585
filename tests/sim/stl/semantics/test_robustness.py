"""Robustness: cases worked by hand, gradients, types, errors, and the exported graph of a margin."""

from math import inf

import numpy as np
import pytest
import torch

from temporeal.robots.signals import SignalError, SignalSpec
from temporeal.sim.stl.language.constructors import always, eventually, norm, until
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Signal
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.semantics.robustness import margin, robustness, satisfied

SCHEMA = {"x": SignalSpec("x"), "y": SignalSpec("y"), "p": SignalSpec("p", (3,), "m"), "t": SignalSpec("t", (), "s")}
X, Y = Signal("x"), Signal("y")


def read(text, **constants):
    return parse(text, SCHEMA, constants)


def column(*values):
    return np.array(values, dtype=float)[:, None]


def test_windows_by_hand():
    x = {"x": column(3, 1, 2, 5, 4)}
    assert robustness(always(0, 2, X > 0), x, 1.0)[:, 0].tolist() == [1, 1, 2, 4, 4]  # clipped at the end
    assert robustness(always(1, 2, X > 0), x, 1.0)[:, 0].tolist() == [1, 2, 4, 4, inf]  # an empty window is +inf
    assert robustness(eventually(1, 2, X > 0), x, 1.0)[:, 0].tolist() == [2, 5, 5, 4, -inf]
    assert robustness(eventually(7, 9, X > 0), x, 1.0)[:, 0].tolist() == [-inf] * 5
    assert satisfied(always(7, 9, X > 0), x, 1.0).all() and not satisfied(eventually(7, 9, X > 0), x, 1.0).any()


def test_until_by_hand():
    xy = {"x": column(5, 3, -1, 5), "y": column(-2, -1, 2, 4)}
    # from 0: y at 2 is 2, x before it min(5, 3) = 3, so 2; y at 3 fails because x at 2 is -1
    assert robustness(until(X > 0, 0, 3, Y > 0), xy, 1.0)[0, 0] == 2
    # only y at 3 is inside the window: min(4, min(5, 3, -1)) = -1
    assert robustness(until(X > 0, 3, 3, Y > 0), xy, 1.0)[0, 0] == -1
    # x need not hold at the sample at which y does
    assert satisfied(until(X > 0, 0, 2, Y > 0), xy, 1.0)[0, 0]


def test_equality_is_decided_by_the_comparison():
    x = {"x": column(1.0)}
    for text, truth in (("x <= 1", True), ("x < 1", False), ("x >= 1", True), ("x > 1", False), ("!(x <= 1)", False),
                        ("G[0,1] x <= 1", True), ("F[0,1] !(x < 1)", True)):
        assert satisfied(read(text), x, 1.0)[0, 0] == truth
        assert robustness(read(text), x, 1.0)[0, 0] == 0


def test_expressions_by_hand():
    p = np.array([[[3.0, 4.0, 0.0]]])
    t = np.array([[0.5]])
    for text, value in {
        "norm(p) > 1": 4, "dist(p, a) > 0": 4, "hypot(p.x, p.y) < 6": 1, "atan2(p.x, p.y) > 0": np.arctan2(3, 4),
        "sin(w * t) > 0": np.sin(1.0), "cos(w * t) > 0": np.cos(1.0), "min(p.x, p.y, 2) > 0": 2,
        "max(p.x, p.y) > 0": 4, "sqrt(p.y) > 0": 2, "-p.x / p.y > 0": -0.75,
        "norm(p * 2 - a / 2) > 0": np.hypot(4.5, 8),
        "norm(t * p) > 0": 2.5, "p.x - 2 * w > sqrt(4)": -3.0, "1 < 2 & p.x > 0": 1, "abs(-p.x) > 0": 3,
    }.items():
        f = read(text, a=(3.0, 0.0, 0.0), w=2.0)
        assert robustness(f, {"p": p, "t": t}, 1.0)[0, 0] == pytest.approx(value), text
        tensors = {"p": torch.from_numpy(p), "t": torch.from_numpy(t)}
        assert robustness(f, tensors, 1.0)[0, 0].item() == pytest.approx(value), text


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_any_batch_dimensions(shape):
    x = np.random.default_rng(0).normal(size=(7, *shape))
    out = robustness(always(0, 2, X > 0), {"x": x}, 1.0)
    expected = np.stack([x[t : t + 3].min(0) for t in range(7)])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept_and_integers_become_floats(dtype):
    f = read("G[0,2] (x > 0.5) & (x > 0 U[1,2] norm(p - [1, 2, 3]) < 1)")
    signals = {"x": np.ones((5, 2), dtype), "p": np.ones((5, 2, 3), dtype)}
    assert robustness(f, signals, 1.0).dtype == dtype
    tensors = {k: torch.from_numpy(v) for k, v in signals.items()}
    assert robustness(f, tensors, 1.0).dtype == tensors["x"].dtype
    assert satisfied(f, tensors, 1.0).dtype == torch.bool and satisfied(f, signals, 1.0).dtype == bool
    assert robustness(read("x > 0.5"), {"x": torch.tensor([[1], [2]])}, 1.0).tolist() == [[0.5], [1.5]]


def test_gradient_is_that_of_the_deciding_sample():
    x = torch.tensor([[3.0], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    robustness(always(0, 2, X > 0), {"x": x}, 1.0)[0].sum().backward()
    assert x.grad[:, 0].tolist() == [0, 1, 0]


def test_gradcheck_of_every_operator():
    gen = torch.Generator().manual_seed(1)
    f = read("G[0,2] (x > 0) & F[0,3] (y > 0 & G[0,1] x > y) | (x > 0 U[1,3] norm(p - [1, 2, 3]) < 1)")
    inputs = [torch.randn(6, 2, *s, generator=gen, dtype=torch.float64, requires_grad=True) for s in ((), (), (3,))]

    def at_start(x, y, p):
        return robustness(f, {"x": x, "y": y, "p": p}, 1.0, lengths=[6, 5])[0]

    assert torch.autograd.gradcheck(at_start, inputs)


def test_gradients_are_finite_at_zero_distance_and_in_padding():
    p = torch.zeros(3, 1, 3, requires_grad=True)
    margin(read("norm(p) < 1 & hypot(p.x, p.y) < 1"), {"p": p}).sum().backward()
    assert torch.isfinite(p.grad).all()
    x = torch.tensor([[1.0], [4.0], [float("nan")]], requires_grad=True)
    robustness(read("F[0,2] sqrt(x) > 0"), {"x": x}, 1.0, lengths=[2])[0].sum().backward()
    assert x.grad[:, 0].tolist() == [0, 0.25, 0]


def test_nothing_grows_with_the_window():
    # a [T, w] array would be 8 GB here, and a loop over T would not end
    x = np.random.default_rng(0).normal(size=(30_000, 1))
    f = until(X > -9, 0, 29_999, X > 3) & always(0, 29_999, X > -9)
    assert robustness(f, {"x": x}, 1.0)[0, 0] == min(x.max() - 3, x.min() + 9)


def test_nan_reaches_exactly_what_depends_on_it():
    x = {"x": column(1, 2, np.nan, 4, 5)}
    assert np.isnan(robustness(always(0, 1, X > 0), x, 1.0)[:, 0]).tolist() == [False, True, True, False, False]
    with pytest.raises(SignalError, match="signal 'x' has a NaN"):
        satisfied(always(0, 1, X > 0), x, 1.0)


@pytest.mark.parametrize("signals, lengths, rule", [
    ({}, None, r"reads \['x', 'y'\], which are missing; signals given: \[\]"),
    ({"x": np.ones((3, 2)), "z": np.ones((3, 2))}, None, r"reads \['y'\].*given: \['x', 'z'\]"),
    ({"x": np.ones((3, 2)), "y": np.ones((4, 2))}, None, "differ in their leading dimensions"),
    ({"x": np.ones((0, 2)), "y": np.ones((0, 2))}, None, "at least one sample"),
    ({"x": np.ones((3, 2)), "y": torch.ones(3, 2)}, None, "torch tensors and numpy arrays"),
    ({"x": np.ones((3, 2)), "y": np.ones((3, 2))}, [1, 4], r"integers \(2,\) from 1 to 3"),
    ({"x": np.ones((3, 2)), "y": np.ones((3, 2))}, [0, 1], "from 1 to 3"),
    ({"x": np.ones((3, 2)), "y": np.ones((3, 2))}, [1.0, 2.0], "must be integers"),
])
def test_bad_signals(signals, lengths, rule):
    with pytest.raises(SignalError, match=rule):
        robustness((X > 0) & (Y > 0), signals, 1.0, lengths)


def test_wrong_shape_of_a_signal():
    with pytest.raises(SignalError, match=r"'p' has shape \(5, 2, 4\).*must end in \(3,\)"):
        robustness(read("norm(p) < 1"), {"p": np.ones((5, 2, 4))}, 1.0)


def test_windows_are_whole_samples_or_refused():
    assert steps(0.3, 0.1) == 3 and steps(9.0, 0.02) == 450 and steps(1e5, 1e-3) == 100_000_000
    with pytest.raises(FormulaError, match=r"window bound 0.1 s is no multiple of the sample period dt = 0.03 s"):
        robustness(always(0, 0.1, X > 0), {"x": column(1, 2)}, 0.03)
    with pytest.raises(FormulaError, match="must be positive"):
        robustness(always(0, 0.1, X > 0), {"x": column(1, 2)}, 0.0)
    with pytest.raises(FormulaError, match="looks further"):
        margin(always(0, 1, X > 0), {"x": column(1, 2)})


class Margins(torch.nn.Module):
    """Two margins as a policy has them in its graph."""

    def __init__(self):
        super().__init__()
        self.formulas = [read("norm(p - [1, 2, 3]) < 1 | !(hypot(p.x - 0.5, p.y) > 2 -> x > 0)"),
                         read("min(max(x, 0), 2) >= 1 & abs(atan2(p.x, p.y)) < 1 + sin(x) * 2 * r", r=0.5)]

    def forward(self, x, p):
        return torch.stack([margin(f, {"x": x, "p": p}) for f in self.formulas], -1)


def test_a_margin_is_traced_into_an_exported_graph(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    module, path = Margins(), str(tmp_path / "margins.onnx")
    torch.onnx.export(module, (torch.ones(2), torch.ones(2, 3)), path, input_names=["x", "p"], dynamo=False,
                      dynamic_axes={"x": {0: "n"}, "p": {0: "n"}})
    gen = torch.Generator().manual_seed(0)
    x, p = torch.randn(50, generator=gen), torch.randn(50, 3, generator=gen)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {"x": x.numpy(), "p": p.numpy()})
    np.testing.assert_allclose(out, module(x, p).numpy(), rtol=0, atol=1e-5)


def test_norm_of_python_construction():
    f = norm(Signal("p", (3,), "m") - (1, 2, 3)) < 1
    assert margin(f, {"p": np.array([1.0, 2.0, 3.5])}) == 0.5
