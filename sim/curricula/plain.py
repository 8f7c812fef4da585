"""Teachers that do not model the learner: fixed, uniform, a schedule, and levels that each world climbs by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


class Fixed(Ranges):
    """The ranges as they begin."""

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""
        return self.drawn(seed, worlds, episode, torch.zeros_like(worlds))


class Uniform(Ranges):
    """The whole cube: plain domain randomization."""

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""
        return self.drawn(seed, worlds, episode, torch.ones_like(worlds))


class Linear(Ranges):
    """Widens with each world's own episodes, to the whole cube after ``episodes`` of them."""

    def __init__(self, low: np.ndarray, high: np.ndarray, episodes: int) -> None:
        super().__init__(low, high)
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
            raise ValueError(f"curriculum.episodes is a whole number, at least 1, got {episodes!r}")
        self.episodes = episodes

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""
        return self.drawn(seed, worlds, episode, (episode.double() / self.episodes).clamp(max=1.0))


@dataclass(frozen=True)
class LevelSettings:
    """``levels``: how many. ``up``, ``down``: outcomes from which a world goes a level up, and at most which down."""

    levels: int = 10
    up: float = 0.8
    down: float = 0.5


class Levels(Ranges):
    """Each world climbs by itself: up a level after an episode that went well, down after one that did not.

    As the terrain curriculum of Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", 2021: a world that has solved the last level goes on at a random one, so that the easy is not forgotten.
    Level l draws from ranges widened by l / (levels - 1).
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, worlds: int, settings: LevelSettings | None = None) -> None:
        super().__init__(low, high)
        self.settings = s = settings or LevelSettings()
        if isinstance(s.levels, bool) or not isinstance(s.levels, int) or s.levels < 2 or not s.down < s.up:
            raise ValueError(f"curriculum: needs at least 2 levels and down < up, got {s}")
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
