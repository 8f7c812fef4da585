"""Uniform points in ranges that widen: what teachers that do not model the learner share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.curriculum.points import Points, Trials


class Ranges:
    """Uniform in ranges that widen from where they begin (share 0) to the whole cube (share 1).

    Args:
        low, high: [D] where the ranges begin.
    """

    shared = False

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = torch.from_numpy(low.astype(np.float64)), torch.from_numpy(high.astype(np.float64))

    def drawn(self, seed: int, worlds: Tensor, episode: Tensor, share: Tensor) -> Points:
        """Points for shares [K]."""
        low, high = (x.to(worlds.device) for x in (self.low, self.high))
        u = uniform(seed, worlds, episode, stream("curriculum.point"), len(low)).double()
        share = share[:, None].double()
        low, high = low * (1 - share), high + (1 - high) * share
        return Points(low + (high - low) * u, torch.zeros_like(worlds))

    def observe(self, trials: Trials) -> None:
        """Nothing is learned."""

    def figures(self) -> dict[str, float]:
        """Nothing to log."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""
