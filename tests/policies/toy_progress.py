"""Small sets of episodes in memory with verdicts, for models of progress."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.policies.toy_demonstrations import InMemory, episodes

from temporeal.robots.signals import SignalSpec

PLACE = SignalSpec("place_w", (2,), "m", "w")
TOLD = SignalSpec("instruction", (2,), "token", "", "int32")
SEEN = SignalSpec("front_rgb", (16, 16, 3), "1", "", "uint8")


@dataclass(frozen=True)
class Judged(InMemory):
    """With verdicts."""

    records: list[Any]


def judged(data: InMemory, success: list[bool]) -> Judged:
    return Judged(data.interface, data.starts, data.columns, [SimpleNamespace(success=one) for one in success])


def walks(count: int = 40, steps: int = 30, seed: int = 0) -> Judged:
    """A point: every second episode walks to the origin and is a success, with pauses; the others walk about where they
    began. Nothing but the place says how far it is."""
    rng = np.random.default_rng(seed)
    begin = rng.uniform(0.5, 1.0, (count, 1, 2)) * rng.choice([-1.0, 1.0], (count, 1, 2))
    pace = rng.uniform(0.0, 1.0, (count, steps, 1)).cumsum(1)
    left = np.concatenate([np.ones((count, 1, 1)), 1.0 - pace / pace[:, -1:]], 1)
    good = np.arange(count) % 2 == 0
    place = np.where(good[:, None, None], begin * left, begin + 0.1 * rng.normal(size=(count, steps + 1, 2)))
    data = episodes({"place_w": place.astype(np.float32)}, np.diff(place, axis=1), PLACE)
    return judged(data, good.tolist())


def told_walks(count: int = 60, steps: int = 20, seed: int = 0) -> Judged:
    """The point is told word 1, to the right, or 2, to the left, and goes there from the middle: the place alone does
    not say whether the task is done. Every third episode goes the wrong way, a failure."""
    rng = np.random.default_rng(seed)
    word, good = rng.integers(1, 3, count), np.arange(count) % 3 != 0
    side = np.where((word == 1) == good, 1.0, -1.0)[:, None, None]
    place = side * np.linspace(0.0, 1.0, steps + 1)[:, None] + 0.02 * rng.normal(size=(count, steps + 1, 2))
    told = np.stack([word, np.zeros(count)], 1)[:, None].repeat(steps + 1, 1).astype(np.int32)
    data = episodes({"place_w": place.astype(np.float32), "instruction": told}, np.diff(place, axis=1), PLACE, TOLD)
    return judged(data, good.tolist())


def films(count: int = 24, steps: int = 12, seed: int = 0) -> Judged:
    """Pictures: a bright square goes from a corner to the middle; in every third episode it stays, a failure."""
    rng = np.random.default_rng(seed)
    good = np.arange(count) % 3 != 0
    picture = np.zeros((count, steps + 1, 16, 16, 3), np.uint8)
    for e in range(count):
        corner = rng.choice([1, 12], 2)
        for k in range(steps + 1):
            row, column = np.round(corner + (6.5 - corner) * (k / steps if good[e] else 0.0)).astype(int)
            picture[e, k, row : row + 3, column : column + 3] = 255
    data = episodes({"front_rgb": picture}, np.zeros((count, steps, 2)), SEEN)
    return judged(data, good.tolist())
