"""Running mean and variance of observations: the statistics, their exact merge, and the layer that applies them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Moments(NamedTuple):
    """Number, mean [O] and (population) variance [O] of a set of rows, in float64."""

    rows: Tensor  # [], their number
    mean: Tensor
    var: Tensor


def moments(rows: Tensor) -> Moments:
    """Moments of ``rows`` [..., R, O]; leading axes are slices that are summed in float32 and merged in float64."""
    if rows.ndim == 2:
        rows = rows[None]
    rows = rows.reshape(-1, *rows.shape[-2:])
    # two passes: no cancellation; slice by slice: a second copy of all rows costs more than the arithmetic
    means, apart = rows.new_empty(len(rows), rows.shape[-1]), rows.new_empty(len(rows), rows.shape[-1])
    offset = rows.new_empty(rows.shape[1:])
    for part, mean, variance in zip(rows, means, apart):
        torch.mean(part, 0, out=mean)
        torch.sub(part, mean, out=offset)
        torch.mean(offset.square_(), 0, out=variance)
    slice_mean, within = means.double(), apart.double()
    mean = slice_mean.mean(0)
    var = within.mean(0) + (slice_mean - mean).square().mean(0)
    count = torch.tensor(float(rows.shape[0] * rows.shape[1]), dtype=torch.float64, device=rows.device)
    return Moments(count, mean, var)


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of the union of two disjoint sets, exactly (Chan, Golub and LeVeque 1979, eq. 1.5)."""
    count = a.rows + b.rows
    weight = torch.where(count > 0, b.rows / count.clamp(min=1.0), torch.zeros_like(count))
    delta = b.mean - a.mean
    var = a.var + (b.var - a.var) * weight + delta.square() * weight * (1.0 - weight)
    return Moments(count, a.mean + delta * weight, var)


class Normalizer(nn.Module):
    """``clip((x - mean) / std, -limit, limit)`` with the statistics of all rows given to :meth:`update`.

    Identity (but for the limit) before the first update. The statistics are float64 buffers; what ``forward``
    (and an exported graph) uses are the float32 buffers ``shift`` and ``scale`` derived from them.
    A feature that never varied has scale 1: it may move later, and 1/0 would then be its value.
    """

    count: Tensor
    mean: Tensor
    var: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, size: int, *, limit: float = 10.0) -> None:
        super().__init__()
        self.limit, self.frozen = limit, False
        for name, value in (("count", torch.zeros(())), ("mean", torch.zeros(size)), ("var", torch.ones(size))):
            self.register_buffer(name, value.double())
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalized ``x`` [..., O]."""
        return ((x - self.shift) * self.scale).clamp(-self.limit, self.limit)

    def normalize_(self, x: Tensor) -> None:
        """:meth:`forward`, in place: a whole rollout at once without a second copy of it."""
        x.sub_(self.shift).mul_(self.scale).clamp_(-self.limit, self.limit)

    def freeze(self) -> None:
        """Ignore all further updates (evaluation, fine-tuning)."""
        self.frozen = True

    @torch.no_grad()
    def update(self, batch: Moments) -> None:
        """Merge the moments of new rows."""
        if self.frozen:
            return
        bad = (~(torch.isfinite(batch.mean) & torch.isfinite(batch.var))).nonzero().flatten().tolist()
        if bad:
            raise ValueError(f"components {bad} of the rows to normalize are NaN or infinite")
        merged = merge(Moments(self.count, self.mean, self.var), batch)
        for name, value in zip(("count", "mean", "var"), merged):
            getattr(self, name).copy_(value)
        self.shift.copy_(self.mean)
        # below 1e-6 of the mean a float32 variance is rounding
        constant = self.var <= 1e-12 * (1.0 + self.mean.square())
        self.scale.copy_(torch.where(constant, torch.ones_like(self.var), self.var.clamp(min=1e-30).rsqrt()))
