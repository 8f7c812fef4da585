"""A small set of demonstrations with words: two squares in a picture, and a sentence that names one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tests.policies.toy_demonstrations import InMemory, episodes

from temporeal.robots.signals import SignalSpec

COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255)}
SIZE = 16


class Record(NamedTuple):
    language: str


@dataclass(frozen=True)
class Worded(InMemory):
    """With the sentence of each episode, as a dataset on disk has them."""

    records: tuple[Record, ...] = ()


def squares(count: int = 200, steps: int = 5, seed: int = 0) -> Worded:
    """The demonstrator goes to the square that is named: velocity = its place in [-1, 1]."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((count, SIZE, SIZE, 3), np.uint8)
    place, said = np.zeros((count, 2), np.float32), list[Record]()
    for k in range(count):
        cells = rng.choice(25, 2, replace=False)
        named = rng.integers(2)
        for i, (colour, cell) in enumerate(zip(COLOURS.values(), cells)):
            row, column = 3 * (cell // 5), 3 * (cell % 5)
            picture[k, row : row + 3, column : column + 3] = colour
            if i == named:
                place[k] = 2.0 * (np.array([row, column]) + 1.0) / (SIZE - 1) - 1.0
        said.append(Record(f"go to the {list(COLOURS)[named]} square"))
    found = episodes(
        {"front_rgb": picture[:, None].repeat(steps + 1, 1), "target_pos_w": place[:, None].repeat(steps + 1, 1),
         "speed": np.zeros((count, steps + 1, 1), np.float32)},
        place[:, None].repeat(steps, 1), SignalSpec("front_rgb", (SIZE, SIZE, 3), "1", "", "uint8"),
        SignalSpec("target_pos_w", (2,), "m", "w"), SignalSpec("speed", (1,), "m/s"))
    return Worded(found.interface, found.starts, found.columns, tuple(said))
