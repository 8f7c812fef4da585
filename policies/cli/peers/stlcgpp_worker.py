"""The process of stlcg++: what it can be asked.

It has no parser: a formula is a list ``[operator, ...]`` as :func:`policies.cli.peers.translate.to_stlcgpp` writes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from stlcgpp import formula as stlcg  # type: ignore[import-not-found]

from policies.cli.peers import peak_beyond, seconds_of, serve

Tree = list[Any]


def build(tree: Tree, names: list[str]) -> Any:
    """The formula over a signal [T, len(names)]."""
    match tree:
        case [">", str(name), float(number)]:
            index = names.index(name)
            return stlcg.Predicate(name, lambda signal: signal[:, index]) > number
        case ["and", first, *others]:
            out = build(first, names)
            for other in others:
                out = stlcg.And(out, build(other, names))
            return out
        case ["G", int(lo), int(hi), arg]:
            return stlcg.Always(build(arg, names), interval=[lo, hi])
        case ["F", int(lo), int(hi), arg]:
            return stlcg.Eventually(build(arg, names), interval=[lo, hi])
        case ["U", int(lo), int(hi), left, right]:
            return stlcg.Until(build(left, names), build(right, names), interval=[lo, hi])
    raise ValueError(f"not a formula: {tree}")


def batch(signals: dict[str, Any], names: list[str]) -> torch.Tensor:
    """[N, T, signals] of signals [T][N]."""
    return torch.tensor([signals[name] for name in names], dtype=torch.float32).permute(2, 1, 0).contiguous()


def traces(tree: Tree, names: list[str]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Robustness [N, T] of signals [N, T, len(names)]: one signal as the library takes it, several through vmap."""
    formula = build(tree, names)
    several = torch.vmap(formula)
    return lambda data: several(data) if len(data) > 1 else formula(data[0])[None]


def evaluate(tree: Tree, signals: dict[str, Any]) -> list[list[float]]:
    """Robustness [T][N] of signals [T][N]."""
    names = sorted(signals)
    values: list[list[float]] = traces(tree, names)(batch(signals, names)).T.tolist()
    return values


def gradient(tree: Tree, signals: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Gradient [T][N] of the summed robustness at the first sample with respect to each signal."""
    names = sorted(signals)
    data = batch(signals, names).requires_grad_()
    torch.autograd.backward(traces(tree, names)(data)[:, 0].sum())
    assert data.grad is not None
    return {name: data.grad[:, :, i].T.tolist() for i, name in enumerate(names)}


kept: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {}


def prepare(key: str, tree: Tree, signals: dict[str, Any], backward: bool) -> None:
    """Keep a formula and signals under ``key``, for :func:`run`."""
    names = sorted(signals)
    kept[key] = traces(tree, names), batch(signals, names).requires_grad_(backward)


def run(key: str) -> float:
    """Processor time [s] of the forward pass; with ``backward`` also of the gradient at the first sample."""
    function, data = kept[key]

    def once() -> float:
        data.grad = None
        begin = time.process_time()
        values = function(data)
        if data.requires_grad:
            torch.autograd.backward(values[:, 0].sum())
        return time.process_time() - begin

    return seconds_of(once)


def memory(tree: Tree, signals: dict[str, Any]) -> int:
    """Peak memory [B] that forward and backward need beyond what the process has before. For a fresh process."""
    names = sorted(signals)
    data = batch(signals, names)
    small = data[:, : 2 + data.shape[1] // 50].clone().requires_grad_()
    torch.autograd.backward(traces([*tree[:1], 0, 1, *tree[3:]], names)(small)[:, 0].sum())
    data.requires_grad_()
    return peak_beyond(lambda: torch.autograd.backward(traces(tree, names)(data)[:, 0].sum()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve([evaluate, gradient, prepare, run, memory])
