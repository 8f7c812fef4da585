"""The kernels of a GPU, compiled by Warp for its CPU device: the numbers of the CPU's own kernels, bit for bit."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch

pytest.importorskip("warp", reason="needs warp-lang")

from tests.sim.compiler.test_vectorize import ELEMENTWISE, EXTREMES, SHAPES, SPECIAL

from temporeal.sim.compiler import devices, keyed_random, keyed_random_warp, vectorize, vectorize_warp
from temporeal.sim.compiler.expressions import CannotCompile
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

ON = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
BEYOND = {"tangents": lambda x, y: x.tan() * y.atan(), "inverse": lambda x, y: (x / 4).asin() + y}


def every(functions, shapes):
    """All of ``functions`` of x and y as one function of rows, with its rows."""
    places = {name: shapes[name] for name in functions}
    return (lambda r: {name: functions[name](r["x"], r["y"]).float() for name in functions}), {
        "x": (3,), "y": (3,), **places}


def results(kind, function, shapes, given, device="cpu"):
    n = len(given["x"])
    found = {name: given.get(name, torch.zeros(n, *shape)).clone().to(device) for name, shape in shapes.items()}
    kind(function, {}, shapes, ("x", "y"))(None, found)
    return {name: value.cpu() for name, value in found.items()}


def compare(functions, shapes, given, device):
    """To the bit, on a GPU to what its sines and logarithms differ by."""
    function, places = every(functions, shapes)
    ours = results(vectorize_warp.Kernel, function, places, given, device)
    known, least = results(vectorize.Kernel, function, places, given), 0 if device == "cpu" else 4e-6
    for name in functions:
        torch.testing.assert_close(ours[name], known[name], rtol=least, atol=least, equal_nan=True, msg=name)
    return known


@pytest.mark.parametrize("device", ON)
def test_operations(device):
    generator = torch.Generator().manual_seed(1)
    given = {k: torch.empty(37, 3).uniform_(-2, 2, generator=generator) for k in "xy"}
    each = {**ELEMENTWISE, **BEYOND}
    compare(each, dict.fromkeys(each, (3,)), given, device)
    compare({name: of for name, (of, _) in SHAPES.items()}, {name: shape for name, (_, shape) in SHAPES.items()}, given,
            device)


@pytest.mark.parametrize("device", ON)
def test_what_is_not_a_number_goes_where_it_goes_on_the_cpu(device):
    x = torch.cartesian_prod(SPECIAL, SPECIAL, SPECIAL)
    known = compare(EXTREMES, dict.fromkeys(EXTREMES, (3,)), {"x": x, "y": x.roll(1, 0)}, device)
    assert any(value.isnan().any() for value in known.values())


def test_columns_of_a_table_are_read_and_written_in_place():
    def function(r):
        return {"b": r["a"].flip(-1) + r["c"][:, None], "c": r["c"] + r["row"][:, 1], "row": r["a"][:, :2] * 3}

    columns, shapes = {"a": (3,), "before": (2,), "b": (3,), "c": ()}, {"row": (2,)}
    found = []
    for kind in (vectorize_warp.Kernel, vectorize.Kernel):
        generator = torch.Generator().manual_seed(2)
        table = vectorize.table(columns, 21).uniform_(generator=generator)
        row = torch.rand(21, 2, generator=generator)
        kind(function, columns, shapes, ("a", "c", "row"))(table, {"row": row})
        found.append((table[:, :21], row))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_constants_are_exact():
    values = [0.1, -0.0, 1e-45, 3.4028235e38, float("inf"), -float("inf"), float("nan"), 1.0, -7.0, True, False]
    text = [vectorize_warp.literal(v) for v in values]
    out = torch.zeros(len(values))
    vectorize_warp.Native("\n".join(f"((float*)a[0])[{i}] = {t};" for i, t in enumerate(text)), 1)(
        1, out.device, out.data_ptr())
    wanted = torch.tensor([float(v) for v in values])
    torch.testing.assert_close(out, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(out.signbit(), wanted.signbit())


def test_no_rows_are_no_work_and_wrong_rows_are_refused():
    kernel = vectorize_warp.Kernel(lambda r: {"out": 2 * r["x"]}, {}, {"x": (2,), "out": (2,)}, ("x",))
    kernel(None, {"x": torch.zeros(0, 2), "out": torch.zeros(0, 2)})
    with pytest.raises(ValueError, match="out must be contiguous float32"):
        kernel(None, {"x": torch.zeros(4, 2), "out": torch.zeros(4, 2, dtype=torch.float64)})
    with pytest.raises(ValueError, match="on one device, got cpu and meta"):
        kernel(None, {"x": torch.zeros(4, 2), "out": torch.zeros(4, 2, device="meta")})
    with pytest.raises(CannotCompile, match="no place"):
        vectorize_warp.Kernel(lambda r: {"other": r["x"]}, {}, {"x": (2,)}, ("x",))
    with pytest.raises(CannotCompile, match="only its value can be"):
        vectorize_warp.Kernel(lambda r: {"out": r["x"].max(-1).indices.float()}, {}, {"x": (2,), "out": ()}, ("x",))


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_draws_are_those_of_the_cpu(kind, device):
    generator = torch.Generator().manual_seed(3)
    world = torch.arange(333)
    episode, step = (torch.randint(0, 2**33, (333,), generator=generator) for _ in range(2))
    for count in (1, 4, 7):
        known = getattr(keyed_random, kind)(2**40 + 7, world, episode, keyed_random.stream("x"), count, step=step)
        for out in (torch.zeros(333, count), torch.zeros(count, 333).T):  # a tensor, columns of a table
            out = out.to(device)
            keyed_random_warp.fill(kind, keyed_random.key(2**40 + 7, keyed_random.stream("x")),
                             *(x.to(device) for x in (world, episode, step)), out)
            assert torch.equal(out.cpu(), known)


def test_draws_go_to_rows_that_fit():
    key, world = keyed_random.key(1, 2), torch.arange(5)
    for out in (torch.zeros(5, 2, dtype=torch.float64), torch.zeros(4, 2), torch.zeros(5, 2, device="meta")):
        with pytest.raises(ValueError, match=r"go to float32 \[5, count\] on the same device, got"):
            keyed_random_warp.fill("normal", key, world, world, world, out)


@pytest.mark.slow
def test_an_environment_steps_as_on_the_cpu(monkeypatch):
    def env(name):
        made = make_env(load_task(name), num_worlds=6, seed=4, threads=1, sensors={"noise": {"joint_pos": 0.01}})
        made.reset()
        made.column["count"].copy_(made.task.steps - 1.0 - torch.arange(6.0))  # some episodes end on the way
        return made

    known = env("reach")
    monkeypatch.setattr(vectorize, "kernels_of", lambda device: vectorize_warp.Kernel)
    ours = env("reach")
    assert isinstance(ours.table.after, vectorize_warp.Kernel)
    ended = 0
    for k in range(8):
        action = 2 * torch.rand(6, known.action_dim, generator=torch.Generator().manual_seed(k)) - 1
        a, b = known.step(action), ours.step(action)
        for x, y in zip((*a.obs[:2], a.reward, a.terminated, a.truncated), (*b.obs[:2], b.reward, b.terminated,
                                                                           b.truncated)):
            assert torch.equal(x, y)
        ended += int((a.terminated | a.truncated).sum())
    assert ended >= 5


@pytest.mark.parametrize("version, why", [(None, "Warp is not installed"), ("1.9.2", "Warp 1.9.2 is too old")])
def test_without_a_warp_that_will_do_a_gpu_s_functions_say_what_to_do(monkeypatch, version, why):
    monkeypatch.setattr(devices, "find_spec", lambda name: version)
    monkeypatch.setattr(metadata, "version", lambda name: version)
    devices.lacks_warp.cache_clear()
    try:
        with pytest.raises(ModuleNotFoundError, match=rf"{why}: pip install 'warp-lang>=1.15'.*compiled=false"):
            vectorize.kernels_of(torch.device("cuda"))
    finally:
        monkeypatch.undo()
        devices.lacks_warp.cache_clear()
    assert not devices.lacks_warp()
