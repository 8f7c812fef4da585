"""Exact robustness of torch tensors on the CPU with its subgradient, through the compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from temporeal.sim.stl.language.propositional import Predicate
from temporeal.sim.stl.rewriting.lower import Leaf, Lowered
from temporeal.sim.stl.semantics import compiled


class _CriticalSamples(torch.autograd.Function):
    """Each value is that of one leaf at one critical sample, which gets its gradient."""

    @staticmethod
    def forward(ctx: Any, lowered: Lowered, signs: Sequence[tuple[int, bool]], counts: Any, *margins: Tensor) -> Tensor:
        shape = margins[0].shape
        flat = [m.detach().numpy().reshape(shape[0], -1) for m in margins]
        leaves = [-flat[k] if negated else flat[k] for k, negated in signs]
        size = (shape[0], prod(shape[1:]))
        out, origins = compiled.evaluate_with_origins(lowered, leaves, size, leaves[0].dtype, counts)
        ctx.origins, ctx.signs, ctx.shape, ctx.count = origins, signs, shape, len(margins)
        return torch.from_numpy(out).reshape(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        flat = np.ascontiguousarray(upstream.detach().numpy().reshape(ctx.origins.shape))
        each = torch.from_numpy(compiled.gradient(ctx.origins, flat, len(ctx.signs))).reshape(-1, *ctx.shape)
        out: list[Tensor | None] = [None] * ctx.count
        for gradient, (k, negated) in zip(each, ctx.signs):
            signed = -gradient if negated else gradient
            before = out[k]
            out[k] = signed if before is None else before + signed
        return (None, None, None, *out)


def robustness(
    lowered: Lowered, leaves: Sequence[Leaf], margins: Mapping[Predicate, Tensor], shape: tuple[int, ...],
    counts: np.ndarray | None,
) -> Tensor:
    """Robustness [T, ...] from the margins [T, ...] of the predicates."""
    order = {predicate: k for k, predicate in enumerate(margins)}
    signs = [(order[leaf.predicate], leaf.negated) for leaf in leaves]
    ends = None if counts is None else counts.reshape(-1)
    given = [m.expand(shape) for m in margins.values()]
    out: Tensor = _CriticalSamples.apply(lowered, signs, ends, *given)  # type: ignore[no-untyped-call]
    return out
