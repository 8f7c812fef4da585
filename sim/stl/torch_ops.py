"""The torch side of the exact semantics. Imported only where a tensor comes in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import torch
from torch import Tensor

from sim.stl.values import Arrays
from sim.stl.windows import Lattice


def _norm(v: Tensor) -> Tensor:
    # vector_norm and not sqrt(sum of squares): its gradient at zero is zero, not NaN
    out: Tensor = torch.linalg.vector_norm(v, dim=-1)
    return out


def _tensors(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """``function`` with a number allowed as one argument."""

    def of(a: Tensor | float, b: Tensor | float) -> Tensor:
        if isinstance(a, Tensor):
            return function(a, b if isinstance(b, Tensor) else torch.full_like(a, b))
        assert isinstance(b, Tensor)  # two numbers are folded before they come here
        return function(torch.full_like(b, a), b)

    return of


def _hypot(a: Tensor, b: Tensor) -> Tensor:
    return _norm(torch.stack([a, b], -1))


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "neg": operator.neg,
    "abs": torch.abs, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "norm": _norm,
    "dist": lambda a, b: _norm(a - b), "hypot": _tensors(_hypot), "atan2": _tensors(torch.atan2),
    "min": _tensors(torch.minimum), "max": _tensors(torch.maximum),
}


def torch_arrays(like: Tensor) -> Arrays:
    """torch, with vector constants of ``like``'s type and device."""
    dtype = like.dtype if like.dtype.is_floating_point else torch.get_default_dtype()

    def vector(value: tuple[float, ...]) -> Tensor:
        # filled on the device and not copied to it: no synchronization, and nothing for a tracer to warn of
        return torch.stack([torch.full((), x, dtype=dtype, device=like.device) for x in value])

    return Arrays(OPERATIONS, vector)


def _rows(like: Tensor, count: int, fill: float | bool) -> Tensor:
    return like.new_full((count, *like.shape[1:]), fill)


def _where(mask: Tensor, x: Tensor, fill: float | bool) -> Tensor:
    return torch.where(mask, x, torch.full_like(x, fill))


MARGINS = Lattice(torch.minimum, torch.maximum, operator.neg, inf, -inf, torch.cat, _rows, _where)  # type: ignore[arg-type]
TRUTHS = Lattice(
    torch.logical_and, torch.logical_or, torch.logical_not, True, False, torch.cat, _rows, _where)  # type: ignore[arg-type]
