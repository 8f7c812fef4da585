"""Small sets of demonstrations in memory, for learners of action chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.robots.signals import SignalSpec, schema


@dataclass(frozen=True)
class InMemory:
    """What learners ask of a dataset."""

    interface: Interface
    starts: np.ndarray
    columns: dict[str, np.ndarray]

    def column(self, name: str) -> np.ndarray:
        return self.columns[name]


def episodes(signals: dict[str, np.ndarray], action: np.ndarray, *specs: SignalSpec, dt: float = 0.1) -> InMemory:
    """E episodes of T commands: signals [E, T + 1, *shape], actions [E, T, U] within [-2, 2]; the last action is
    repeated, as on disk."""
    count, steps, size = action.shape
    interface = Interface("point", schema(*specs), ActionSpec("velocity", (-2.0,) * size, (2.0,) * size, "m/s"), 1 / dt)
    columns: dict[str, Any] = {name: value.reshape(-1, *value.shape[2:]) for name, value in signals.items()}
    columns["action"] = np.concatenate([action, action[:, -1:]], 1).reshape(-1, size).astype(np.float32)
    columns["has_action"] = np.tile(np.arange(steps + 1) < steps, count)
    return InMemory(interface, np.arange(count + 1, dtype=np.int64) * (steps + 1), columns)


def forks(count: int = 200, steps: int = 8, seed: int = 0) -> InMemory:
    """An obstacle straight ahead: half of the demonstrations pass it on the left (0.8), half on the right (-0.8), from
    places that say nothing about which. The mean runs into it."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1.0, 1.0, (count, 1, 2)).repeat(steps + 1, 1).astype(np.float32)
    side = np.where(rng.random(count) < 0.5, 0.8, -0.8)[:, None, None]
    action = side + 0.1 * place[:, :-1, :1] + 0.02 * rng.normal(size=(count, 1, 1))
    return episodes({"place_w": place}, action.repeat(1, 2), SignalSpec("place_w", (2,), "m", "w"))


def pictured(count: int = 40, steps: int = 6, size: int = 16, seed: int = 0) -> InMemory:
    """A bright square somewhere in a picture; the demonstrator goes to it: velocity = its place in [-1, 1]."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(1, size - 3, (count, 2))
    picture = np.zeros((count, size, size, 3), np.uint8)
    for k, (row, column) in enumerate(cell):
        picture[k, row : row + 3, column : column + 3] = 255
    place = (2.0 * (cell + 1.0) / (size - 1) - 1.0).astype(np.float32)
    return episodes(
        {"front_rgb": picture[:, None].repeat(steps + 1, 1), "goal_w": place[:, None].repeat(steps + 1, 1)},
        place[:, None].repeat(steps, 1), SignalSpec("front_rgb", (size, size, 3), "1", "", "uint8"),
        SignalSpec("goal_w", (2,), "m", "w"))
