"""Operators on a GPU, as a share of a pass that only reads and writes their traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

from temporeal.sim.stl.language.constructors import always, eventually, since, until
from temporeal.sim.stl.language.propositional import Formula
from temporeal_benchmarks.machine import NO_GPU, has_gpu
from temporeal_benchmarks.rows import Row, at_least, not_measured
from temporeal_benchmarks.stl_engine.formulas import WORLDS, X, Y, formulas
from temporeal_benchmarks.stl_engine.whole_traces import scored

GPU_SHARE = 0.5  # of a memory-bound pass, target


def gpu() -> list[Row]:
    """Each operator on a GPU."""
    if has_gpu():
        return share_rows(shares("cuda", 1000, 16 * WORLDS))
    return [not_measured(f"gpu.{name}.of_memory_bound", "1", GPU_SHARE, NO_GPU) for name in operators(1000)]


def operators(length: int) -> dict[str, Formula]:
    """One formula for each kind of operator, with windows of 50 samples, and the conjunction."""
    x, y = X > 0.0, Y > 0.0
    return {"G": always(0, 50, x), "F": eventually(0, 50, x), "U": until(x, 0, 50, y), "S": since(x, 0, 50, y),
            "ALL": formulas(length)["ALL"]}  # fmt: skip


def shares(device: str, length: int, worlds: int) -> dict[str, float]:
    """Time of the pass over the same traces divided by that of the operator: a copy of x, the minimum of x and y."""
    import torch

    data = {name: torch.randn(length, worlds, device=device) for name in ("x", "y")}
    least = wall_seconds(lambda: torch.minimum(data["x"], data["y"]), device)
    copied = wall_seconds(lambda: data["x"].clone(), device)
    return {name: (copied if name in ("G", "F") else least) / wall_seconds(scored(formula, data), device)
            for name, formula in operators(length).items()}


def share_rows(found: Mapping[str, float]) -> list[Row]:
    """The shares, judged."""
    passes = {name: "a copy of x" if name in ("G", "F") else "the minimum of x and y" for name in found}
    return [at_least(f"gpu.{name}.of_memory_bound", share, "1", GPU_SHARE, passes[name])
            for name, share in found.items()]


def wall_seconds(work: Callable[[], object], device: str) -> float:
    """Median time of a call on ``device``, after two that compile."""
    import torch

    times = []
    for _ in range(8):
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return median(times[2:])
