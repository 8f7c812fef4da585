"""What compiled functions read and write: columns of a table and tensors of their own, checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from temporeal.sim.compiler.expressions import CannotCompile
from temporeal.sim.compiler.tracing import Function, Shapes, Traced, traced


def placed(
    function: Function, columns: Shapes, rows: Shapes, inputs: Sequence[str], known: Traced | None = None
) -> Traced:
    """``function`` traced, with a place for each of its outputs; arguments as for
    :class:`temporeal.sim.compiler.vectorize.Kernel`."""
    shapes = {**columns, **rows}
    found = known or traced(function, {name: shapes[name] for name in inputs})
    for name, values in found.outputs.items():
        if name not in shapes:
            raise CannotCompile(f"output {name!r} has no place; places: {', '.join(shapes)}")
        if len(values) != prod(shapes[name]):
            raise CannotCompile(f"output {name!r} has {len(values)} numbers in a row, its place {shapes[name]}")
    return found


def first_columns(columns: Shapes) -> list[int]:
    """Of each column, where it begins in the table."""
    return list(accumulate((prod(shape) for shape in columns.values()), initial=0))[: len(columns)]


def checked(name: str, tensor: Tensor, n: int, shape: tuple[int, ...]) -> Tensor:
    """``tensor`` if a kernel can take it as the rows [n, *shape]; a ValueError otherwise."""
    if tensor.shape != (n, *shape) or tensor.dtype != torch.float32 or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous float32 {(n, *shape)}, got {tensor.dtype} {tuple(tensor.shape)} "
                         f"with strides {tensor.stride()}")
    return tensor
