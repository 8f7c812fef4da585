"""Action splines: the actions of all control steps from a few knots."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

SPLINES = ("hold", "linear", "cubic")


@lru_cache(maxsize=64)
def _basis(steps: int, knots: int, kind: str) -> np.ndarray:
    if knots == 0 or knots >= steps:
        return np.eye(steps)
    if kind == "hold":
        return np.eye(knots)[np.arange(steps) * knots // steps]
    at, where = np.linspace(0.0, 1.0, steps), np.linspace(0.0, 1.0, knots)
    if kind == "linear" or knots < 3:
        return np.stack([np.interp(at, where, row) for row in np.eye(knots)], 1)
    from scipy.interpolate import CubicSpline

    curves: np.ndarray = CubicSpline(where, np.eye(knots), bc_type="natural")(at)
    return curves


def basis(steps: int, knots: int, kind: str, like: Tensor) -> Tensor:
    """Matrix [T, K] that maps the actions at the knots to those of all steps. ``knots`` 0: one knot per step.

    ``hold`` repeats each knot for an equal share of the steps; ``linear`` and ``cubic`` (natural) have the first knot
    at the first step and the last at the last one. A cubic overshoots its knots: limit the result.
    """
    return torch.as_tensor(_basis(steps, knots, kind), dtype=like.dtype, device=like.device)


def check_spline(knots: int, kind: str) -> None:
    """Raise a ``ValueError`` for an unknown spline."""
    if kind not in SPLINES:
        raise ValueError(f"spline is {kind!r}; legal: {', '.join(SPLINES)}")
    if knots < 0 or knots == 1 and kind != "hold":
        raise ValueError(f"knots is {knots}; legal: 0 (one for each step), 1 (hold only), 2 and more")
