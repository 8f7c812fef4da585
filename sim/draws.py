"""Uniform numbers in [0, 1) as places and as choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def between(low: Sequence[float], high: Sequence[float], u: Tensor) -> Tensor:
    """``u`` [K, n] in [0, 1) as a place in the box from ``low`` to ``high`` [n]."""
    a, b = torch.tensor(low, device=u.device), torch.tensor(high, device=u.device)
    return a + (b - a) * u


def one_of(stored: Mapping[str, Tensor], u: Tensor) -> dict[str, Tensor]:
    """The entry of ``stored`` [G, ...] that ``u`` [K] in [0, 1) picks, for each of K worlds."""
    count = len(next(iter(stored.values())))
    pick = (u * count).long().clamp(max=count - 1)
    return {name: value.to(u.device)[pick] for name, value in stored.items()}
