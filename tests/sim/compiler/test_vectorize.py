"""Compiled functions of rows give what the same tensor operations give, whatever the number and layout of the rows."""

import copy

import pytest
import torch

from temporeal.sim.compiler.expressions import CannotCompile
from temporeal.sim.compiler.vectorize import LANES, Kernel, Plain, VectorizedFunction, table, views
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

POINTS = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


def both(function, n, columns, rows, inputs, low=-2.0, high=2.0):
    """Outputs of the compiled function and of the function as it is, on the same random rows."""
    out = []
    for kind in (Kernel, Plain):
        generator = torch.Generator().manual_seed(n)
        memory = table(columns, n)
        memory.uniform_(low, high, generator=generator)
        given = {k: torch.empty(n, *s).uniform_(low, high, generator=generator) for k, s in rows.items()}
        kind(function, columns, rows, inputs)(memory if columns else None, given)
        out.append({**views(memory, columns, n), **given})
    return out


def agree(function, *, n=37, shape=(3,), result=(3,), **kw):
    compiled, plain = both(function, n, {"x": shape, "y": shape}, {"out": result}, ("x", "y"), **kw)
    torch.testing.assert_close(compiled["out"], plain["out"].float(), rtol=2e-6, atol=2e-6)
    return compiled["out"]


ELEMENTWISE = {
    "arithmetic": lambda x, y: (x + 2 * y - 0.5) * (1 - x) / (y.abs() + 0.1) + torch.add(x, y, alpha=3) + (3 - x),
    "extremes": lambda x, y: torch.maximum(x, y) + torch.minimum(x, 0.3 * y) + x.clamp(-1, 1) + y.clamp(min=0.2),
    "comparisons": lambda x, y: ((x > y) & ~(x < 0.5) | (y >= 0)).float() + (x <= y).float() * (x != y).float(),
    "exclusive": lambda x, y: torch.logical_xor(x > 0, y > 0).float() + torch.logical_not(x > 0).float(),
    "where": lambda x, y: torch.where(x > 0, y, torch.zeros_like(x)) + torch.where(y > 1, 7.0, x),
    "roots": lambda x, y: x.abs().sqrt() + (y.square() + 0.1).rsqrt() + (x.abs() + 1).reciprocal() + x**2,
    "library": lambda x, y: x.exp() + y.sin() * x.cos() + torch.atan2(x, y) + (x / 4).acos() + x.tanh() + y.abs().log(),
    "rounding": lambda x, y: (3 * x).floor() + (3 * y).ceil() + (5 * x).round() + x.sign() + (4 * y).long().float(),
    "finite": lambda x, y: torch.nan_to_num(x / (y > 0).float(), nan=0.0, posinf=0.0, neginf=0.0),
    "isfinite": lambda x, y: torch.isfinite(x / (y > 0).float()).float(),
    "constants": lambda x, y: x * torch.tensor([1.0, 0.0, 2.0]) + torch.ones_like(y) + y.new_full((1,), 2.5),
    "power": lambda x, y: x.abs() ** 1.5 + y.abs() ** x + 0.5**y,
}
EXTREMES = {
    "maximum": torch.maximum, "minimum": torch.minimum, "maximum the other way": lambda x, y: torch.maximum(y, x),
    "clamp": lambda x, y: x.clamp(-1.0, 1.0), "least": lambda x, y: x.clamp(min=0.0),
    "greatest": lambda x, y: y.clamp(max=0.5), "zero": lambda x, y: x.clamp(max=-0.0),
    "tensor ends": lambda x, y: torch.clamp(x, y, y + 1),
    "constant first": lambda x, y: torch.maximum(x.new_ones(3), x),
    "constant": lambda x, y: torch.minimum(x, torch.tensor([1.0, 0.0, float("nan")])),
    "amax": lambda x, y: x.amax(-1, keepdim=True) + y, "amin": lambda x, y: x.amin(-1, keepdim=True) * y,
    "max": lambda x, y: x.max(-1, keepdim=True).values + x, "min": lambda x, y: x.min(-1, keepdim=True).values + x,
    "quotient": lambda x, y: ((x - x) / (y - y)).clamp(-1.0, 1.0),
}
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 2.0])
SHAPES = {
    "slices": (lambda x, y: torch.cat([x[:, 1:], y[:, :1]], -1), (3,)),
    "stack": (lambda x, y: torch.stack([x, y], -1).flatten(1), (6,)),
    "sums": (lambda x, y: torch.stack([x.sum(-1), y.mean(-1), x.prod(-1), x.norm(dim=-1)], -1), (4,)),
    "reductions": (lambda x, y: torch.stack([x.amax(-1), y.amin(-1), x.max(-1).values, y.min(-1).values], -1), (4,)),
    "any": (lambda x, y: torch.stack([(x > 1).any(-1), (y > -1).all(-1)], -1), (2,)),
    "cumsum": (lambda x, y: torch.cumsum(x, -1) - y, (3,)),
    "distances": (lambda x, y: (x[:, None] - POINTS).norm(dim=-1), (2,)),
    "matmul": (lambda x, y: x[:, :2] @ POINTS, (3,)),
    "outer": (lambda x, y: (x[:, :, None] @ y[:, None, :]).flatten(1), (9,)),
    "picked": (lambda x, y: x[:, [2, 0, 2]] + y[..., 1:2], (3,)),
    "unbind": (lambda x, y: torch.stack([a * b[:, 0] for a, b in zip(x.unbind(-1), y.split(1, -1))], -1), (3,)),
    "views": (lambda x, y: x.reshape(-1, 3, 1).transpose(1, 2).squeeze(1).flip(-1) + y.unsqueeze(1)[:, 0], (3,)),
    "linear": (lambda x, y: torch.nn.functional.linear(x, POINTS, torch.tensor([1.0, -1.0])), (2,)),
    "none": (lambda x, y: torch.stack([x[:, :0].any(-1), x[:, :0].all(-1)], -1).float() + y[:, :2], (2,)),
    "gathered": (lambda x, y: torch.cat([x, 2 * y], -1).gather(1, (9 * x).clamp(0, 5).long()), (3,)),
    "gathered inputs": (lambda x, y: torch.stack([x, y], 1).gather(
        2, (2 * y).clamp(0, 2).long()[:, None].expand(-1, 2, -1)).flatten(1), (6,)),
    "empty": (lambda x, y: torch.cat([x[:, :0], y, x[:, :0].sum(-1, keepdim=True)], -1), (4,)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operations(name):
    agree(lambda r: {"out": ELEMENTWISE[name](r["x"], r["y"])})


@pytest.mark.parametrize("name", EXTREMES)
def test_not_a_number_goes_where_torch_lets_it_go(name):
    """All triples of special values against each other; bit patterns of NaN aside, equal."""
    x = torch.cartesian_prod(SPECIAL, SPECIAL, SPECIAL)
    y = x.roll(1, -1).flip(0).contiguous()
    for a, b in ((x, y), (x, x.roll(1, 0).contiguous())):
        found = {}
        for kind in (Kernel, Plain):
            out = torch.empty_like(a)
            kind(lambda r: {"out": EXTREMES[name](r["x"], r["y"])}, {}, dict.fromkeys(("x", "y", "out"), (3,)),
                 ("x", "y"))(None, {"x": a, "y": b, "out": out})
            found[kind] = out
        assert found[Plain].isnan().any()
        torch.testing.assert_close(found[Kernel], found[Plain], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_reductions(name):
    function, result = SHAPES[name]
    agree(lambda r: {"out": function(r["x"], r["y"])}, result=result)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 15, 16, 17, 31, 32, 40])
@pytest.mark.parametrize("n", [1, 16, 33])
def test_every_width_in_every_layout(size, n):
    def function(r):
        total = r["row"] + 2 * r["column"]
        return {"column": total.flip(-1), "row": 3 * total, "other": total[:, :1].expand(-1, size) + r["row"]}

    shapes = {"row": (size,), "other": (size,)}
    compiled, plain = both(function, n, {"before": (2,), "column": (size,), "after": ()}, shapes, ("column", "row"))
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-6, atol=1e-6)


def test_outputs_may_lie_where_inputs_did():
    compiled, plain = both(lambda r: {"x": r["y"], "y": r["x"]}, 20, {"x": (2,), "y": (2,)}, {"z": ()}, ("x", "y"))
    assert torch.equal(compiled["x"], plain["x"]) and torch.equal(compiled["y"], plain["y"])


def test_a_row_does_not_depend_on_the_others():
    def function(r):
        return {"out": (r["x"].exp().sum(-1, keepdim=True) * r["x"] / r["x"].norm(dim=-1, keepdim=True)).sin()}

    kernel = Kernel(function, {}, {"x": (5,), "out": (5,)}, ("x",))
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    whole, alone = torch.empty(50, 5), torch.empty(1, 5)
    kernel(None, {"x": x, "out": whole})
    for i in (0, LANES - 1, LANES, 47, 49):
        kernel(None, {"x": x[i : i + 1], "out": alone})
        assert torch.equal(alone[0], whole[i])


def test_what_cannot_be_compiled_is_named():
    shapes = {"x": (3,), "out": (3,)}

    def decides(r):
        return {"out": r["x"] if r["x"].sum() > 0 else -r["x"]}

    with pytest.raises(CannotCompile, match=r"use torch\.where"):
        Kernel(decides, {}, shapes, ("x",))
    with pytest.raises(CannotCompile, match="linalg_qr: not among the operations on rows; known: .*atan2"):
        Kernel(lambda r: {"out": torch.linalg.qr(r["x"][:, None])[0][:, 0]}, {}, shapes, ("x",))
    with pytest.raises(CannotCompile, match="only its value"):
        Kernel(lambda r: {"out": r["x"] + r["x"].max(-1).indices[:, None]}, {}, shapes, ("x",))
    with pytest.raises(CannotCompile, match="'out' has 2 numbers"):
        Kernel(lambda r: {"out": r["x"][:, :2]}, {}, shapes, ("x",))
    with pytest.raises(CannotCompile, match="'more' has no place; places: x, out"):
        Kernel(lambda r: {"more": r["x"]}, {}, shapes, ("x",))
    with pytest.raises(CannotCompile, match="depends on the values of a row"):
        Kernel(lambda r: {"out": r["x"][:, r["x"][0].long()]}, {}, shapes, ("x",))


def test_a_tensor_of_another_layout_is_refused():
    kernel = Kernel(lambda r: {"out": -r["x"]}, {}, {"x": (3,), "out": (3,)}, ("x",))
    for wrong in (torch.zeros(4, 2), torch.zeros(4, 3, dtype=torch.float64), torch.zeros(3, 4).T):
        with pytest.raises(ValueError, match="x must be contiguous float32"):
            kernel(None, {"x": wrong, "out": torch.zeros(4, 3)})


@pytest.mark.parametrize("task", [
    "hover", *(pytest.param(task, marks=pytest.mark.slow) for task in ("waypoints", "track"))])
def test_the_compiled_environment_is_the_environment(task):
    settings = {"randomize": {"mass": {"kind": "sources"}},
                "sensors": {"noise": {"base_pos_w": 0.002, "base_quat_w": 0.005}, "bias": {"base_quat_w": 0.01},
                            "delay_steps": 2}}
    envs = [make_env(load_task(task), num_worlds=21, seed=3, threads=1, compiled=c, **settings) for c in (True, False)]
    a, b = (env.reset() for env in envs)
    torch.testing.assert_close(a.critic, b.critic, rtol=1e-5, atol=1e-5)
    generator, ended = torch.Generator().manual_seed(0), 0
    for _ in range(150):
        action = 0.5 * torch.randn(21, 4, generator=generator)
        a, b = (env.step(action) for env in envs)
        torch.testing.assert_close(a.obs.critic, b.obs.critic, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a.final_obs.actor, b.final_obs.actor, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a.reward, b.reward, rtol=1e-5, atol=1e-5)
        for name in ("terminated", "truncated"):
            assert torch.equal(getattr(a, name), getattr(b, name))
        ended += int(a.terminated.sum())
    assert ended > 0


def decides(x):
    """Decided by the values of a row: not for vector registers."""
    return {"y": x["a"] * (2.0 if bool(x["a"].sum() > 0) else 3.0)}


def test_functions_of_rows_are_compiled_for_all_shapes_they_come_with():
    def function(x):
        return {"y": x["a"] * x["b"][:, None]}

    run = VectorizedFunction(function, {"y": (3,)})
    for n in (0, 1, 16, 37):
        a = torch.randn(3, n).t()  # not contiguous
        torch.testing.assert_close(run({"a": a, "b": a[:, 0]})["y"], function({"a": a, "b": a[:, 0]})["y"])
    assert [type(made) for made in run._made.values()] == [Kernel]
    run({"b": torch.ones(2), "a": torch.ones(2, 3)})
    assert len(run._made) == 2  # in another order
    found = copy.deepcopy(run)({"a": torch.ones(2, 3, dtype=torch.float64), "b": torch.ones(2)}, compiled=False)
    assert found["y"].dtype == torch.float32 and torch.equal(found["y"], function(
        {"a": torch.ones(2, 3), "b": torch.ones(2)})["y"])


def test_functions_of_rows_that_cannot_be_compiled_say_so_and_run_as_they_are():
    run, given = VectorizedFunction(decides, {"y": (3,)}), {"a": torch.ones(2, 3)}
    with pytest.raises(CannotCompile, match="decides by the values of a row"):
        run(given)
    assert torch.equal(run(given, compiled=False)["y"], 2 * given["a"])
