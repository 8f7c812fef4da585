"""``uniform``: the whole of all ranges in every episode, what the other curricula are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.curriculum.points import Points
from temporeal.sim.curriculum.ranges import Ranges

GROWS = False


@dataclass(frozen=True)
class Settings:
    """There are none."""


class Uniform(Ranges):
    """The whole cube: plain domain randomization."""

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""
        return self.drawn(seed, worlds, episode, torch.ones_like(worlds))


def make(low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Settings) -> Uniform:
    """The teacher."""
    return Uniform(low, high)
