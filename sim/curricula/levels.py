"""``levels``: each world climbs by itself, a level up after a good episode, a level down after a bad one.

As the terrain curriculum of Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
Learning", 2021: a world that has solved the last level goes on at a random one, so that the easy is not forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.curriculum.checks import check_settings
from temporeal.sim.curriculum.points import Points, Trials
from temporeal.sim.curriculum.ranges import Ranges

GROWS = True


@dataclass(frozen=True)
class Settings:
    """``levels``: how many. ``up``, ``down``: outcomes from which a world goes a level up, and at most which down."""

    levels: int = 10
    up: float = 0.8
    down: float = 0.5

    def __post_init__(self) -> None:
        check_settings(self, shares=("up", "down"))
        if self.levels < 2 or not self.down < self.up:
            raise ValueError(f"curriculum: needs at least 2 levels and down < up, got {self}")


class Levels(Ranges):
    """The state is the level of each world; level l draws from ranges widened by l / (levels - 1)."""

    def __init__(self, low: np.ndarray, high: np.ndarray, worlds: int, settings: Settings | None = None) -> None:
        super().__init__(low, high)
        self.settings = settings or Settings()
        self.level = torch.zeros(worlds, dtype=torch.int64)
        self.solved = torch.zeros(worlds, dtype=torch.int64)  # how often the last level was

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]; the tag is the level."""
        here = worlds.cpu()
        level, last = self.level[here].to(worlds.device), self.settings.levels - 1
        again = uniform(seed, worlds, episode, stream("curriculum.level"), 1)[:, 0]
        level = torch.where(level > last, (again * self.settings.levels).long(), level)
        points, _ = self.drawn(seed, worlds, episode, level.double() / last)
        return Points(points, level)

    def observe(self, trials: Trials) -> None:
        """Move each world by the outcomes of its own episodes; the level above the last stands for a random one."""
        s = self.settings
        for world, level, outcome in zip(trials.world, trials.tag, trials.outcome):
            moved = int(level) + int(outcome >= s.up) - int(outcome <= s.down)
            self.level[world] = max(moved, 0)
            self.solved[world] += int(moved >= s.levels)

    def figures(self) -> dict[str, float]:
        """``level``: the mean; ``solved``: share of the worlds that have solved the last one."""
        return {"level": float(self.level.double().mean()), "solved": float((self.solved > 0).double().mean())}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""
        return {"level": self.level.clone(), "solved": self.solved.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if len(state["level"]) != len(self.level):
            raise ValueError(f"curriculum: a state of {len(state['level'])} worlds, expected {len(self.level)}")
        self.level, self.solved = state["level"].clone(), state["solved"].clone()


def make(low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Settings) -> Levels:
    """The teacher."""
    return Levels(low, high, num_worlds, settings)
