"""The process of stlcg++: what it can be asked.

It has no parser: a formula is a list ``[operator, ...]`` as :func:`temporeal_benchmarks.peers.translate.to_stlcgpp`
writes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from stlcgpp import formula as stlcg  # type: ignore[import-not-found]

from temporeal_benchmarks.peers.process import peak_beyond, seconds_of, serve

Tree = list[Any]
OPERATORS = {"G": "Always", "F": "Eventually", "U": "Until"}


def build(tree: Tree, names: list[str], recurrent: bool = False) -> Any:
    """The formula over a signal [T, len(names)].

    With ``recurrent`` of the operators that go along the signal with a hidden state, from its last sample to its first;
    else of those with masks, which are the library's default.
    """
    match tree:
        case [">", str(name), float(number)]:
            index = names.index(name)
            return stlcg.Predicate(name, lambda signal: signal[:, index]) > number
        case ["and", first, *others]:
            out = build(first, names, recurrent)
            for other in others:
                out = stlcg.And(out, build(other, names, recurrent))
            return out
        case [str(letter), int(lo), int(hi), *args] if letter in OPERATORS:
            operator = getattr(stlcg, OPERATORS[letter] + ("Recurrent" if recurrent else ""))
            return operator(*(build(arg, names, recurrent) for arg in args), interval=[lo, hi])
    raise ValueError(f"not a formula: {tree}")


def batch(signals: dict[str, Any], names: list[str]) -> torch.Tensor:
    """[N, T, signals] of signals [T][N]."""
    return torch.tensor([signals[name] for name in names], dtype=torch.float32).permute(2, 1, 0).contiguous()


def traces(tree: Tree, names: list[str], recurrent: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    """Robustness [N, T] of signals [N, T, len(names)]: one signal as the library takes it, several through vmap."""
    formula = build(tree, names, recurrent)
    several = torch.vmap(formula)

    def forward(data: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = several(data) if len(data) > 1 else formula(data[0])[None]
        return values

    # recurrent operators look back: the signal is turned around, as the library's own tests do
    return (lambda data: forward(data.flip(1)).flip(1)) if recurrent else forward


def evaluate(tree: Tree, signals: dict[str, Any], recurrent: bool = False) -> list[list[float]]:
    """Robustness [T][N] of signals [T][N]."""
    names = sorted(signals)
    values: list[list[float]] = traces(tree, names, recurrent)(batch(signals, names)).T.tolist()
    return values


def gradient(tree: Tree, signals: dict[str, Any], recurrent: bool = False) -> dict[str, list[list[float]]]:
    """Gradient [T][N] of the summed robustness at the first sample with respect to each signal."""
    names = sorted(signals)
    data = batch(signals, names).requires_grad_()
    torch.autograd.backward(traces(tree, names, recurrent)(data)[:, 0].sum())
    assert data.grad is not None
    return {name: data.grad[:, :, i].T.tolist() for i, name in enumerate(names)}


kept: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {}


def prepare(key: str, tree: Tree, signals: dict[str, Any], backward: bool, recurrent: bool = False) -> None:
    """Keep a formula and signals under ``key``, for :func:`run`."""
    names = sorted(signals)
    kept[key] = traces(tree, names, recurrent), batch(signals, names).requires_grad_(backward)


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
