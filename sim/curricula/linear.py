"""``linear``: ranges that widen with each world's own episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from temporeal.sim.curriculum.checks import check_settings
from temporeal.sim.curriculum.points import Points
from temporeal.sim.curriculum.ranges import Ranges

GROWS = True


@dataclass(frozen=True)
class Settings:
    """``episodes``: of a world, until the whole of the ranges is drawn; must be given."""

    episodes: int = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.episodes < 1:
            raise ValueError("curriculum: kind linear needs episodes, at least 1: how many of a world until all is "
                             f"drawn; got {self.episodes}")


class Linear(Ranges):
    """The whole cube after ``settings.episodes`` episodes of a world."""

    def __init__(self, low: np.ndarray, high: np.ndarray, settings: Settings) -> None:
        super().__init__(low, high)
        self.settings = settings

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""
        return self.drawn(seed, worlds, episode, (episode.double() / self.settings.episodes).clamp(max=1.0))


def make(low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Settings) -> Linear:
    """The teacher."""
    return Linear(low, high, settings)
