"""Pictures that are remembered, as bytes and each once. T times, N worlds, M steps drawn.

What cameras show after a step is what they show before the next one, so it is not stored twice. Where time cut an
episode, the next step shows another one: there the last picture is kept beside, because its value still counts. Where
the task ended, nothing after it counts, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.types import Obs

NONE, ROOM = -1, 64


class Pictures:
    """What cameras of N worlds showed before and after the last T steps.

    Args:
        shapes: (H, W, 3) of each picture, by name.

    Attributes:
        table: by name [T + 1, N, H, W, 3]: what was seen before step k is at k modulo T + 1.
        lasts: by name [L, H, W, 3]: last pictures of episodes that time cut; ``last_of`` [T + 1, N]: which of these a
            step ended with, or -1.
        time: steps so far.
    """

    def __init__(self, times: int, worlds: int, shapes: Mapping[str, Sequence[int]]) -> None:
        self.table = {name: torch.empty(times + 1, worlds, *shape, dtype=torch.uint8) for name, shape in shapes.items()}
        self.lasts = {name: torch.empty(0, *shape, dtype=torch.uint8) for name, shape in shapes.items()}
        self.last_of = torch.full((times + 1, worlds), NONE)
        self.free, self.time = list[int](), 0

    def slot(self, time: Any) -> Any:
        """Where a time is: a number or [M]."""
        return time % len(self.last_of)

    def add(self, before: Obs, final: Obs, cut: Tensor) -> None:
        """A step: what was seen before it, what right after it, and whether [N] time cut the episode there."""
        place = self.slot(self.time)
        self.free += [row for row in self.last_of[place].tolist() if row != NONE]
        self.last_of[place] = NONE
        for name, table in self.table.items():
            table[place] = before.images[name]
            table[self.slot(self.time + 1)] = final.images[name]  # until the next step says what was seen before it
        worlds = cut.nonzero()[:, 0]
        self.make_room(len(worlds))
        rows = torch.tensor([self.free.pop() for _ in range(len(worlds))], dtype=torch.int64)
        self.last_of[place, worlds] = rows
        for name, lasts in self.lasts.items():
            lasts[rows] = final.images[name][worlds]
        self.time += 1

    def fill(self, pictures: Mapping[str, np.ndarray], sample: Tensor, cut: Tensor) -> None:
        """With the T steps of one world that begin with samples [T] of ``pictures`` [samples, H, W, 3], of which time
        ``cut`` [T] the episode: what is seen next is the next sample."""
        rows, last = sample.numpy(), sample[cut].numpy() + 1
        for name, table in self.table.items():
            table[:-1, 0] = torch.from_numpy(np.asarray(pictures[name][rows]))
            table[-1] = 0
            self.lasts[name] = torch.from_numpy(np.asarray(pictures[name][last]))
        self.last_of[:-1, 0][cut] = torch.arange(len(last))
        self.time = len(rows)

    def make_room(self, count: int) -> None:
        """For so many more last pictures."""
        if count <= len(self.free):
            return
        have = len(next(iter(self.lasts.values())))
        more = max(ROOM, have, count)
        self.lasts = {name: torch.cat([lasts, lasts.new_empty(more, *lasts.shape[1:])])
                      for name, lasts in self.lasts.items()}
        self.free += range(have, have + more)

    def before(self, age: Tensor, world: Tensor) -> dict[str, Tensor]:
        """What was seen before steps [M]: ``age`` counts back from the newest, which is 1."""
        place = self.slot(self.time - age)
        return {name: table[place, world] for name, table in self.table.items()}

    def after(self, age: Tensor, world: Tensor) -> dict[str, Tensor]:
        """What was seen after steps [M], of the same episode."""
        found, last = self.before(age - 1, world), self.last_of[self.slot(self.time - age), world]
        cut = (last != NONE).nonzero()[:, 0]
        for name, pictures in found.items():
            pictures[cut] = self.lasts[name][last[cut]]
        return found

    def state_dict(self, count: int) -> dict[str, Any]:
        """What is remembered of the last ``count`` steps, the oldest first, without the room for more."""
        times = torch.arange(self.time - count, self.time + 1)
        last = self.last_of[self.slot(times[:-1])]
        kept = last[last != NONE]
        numbered = torch.where(last != NONE, (last != NONE).flatten().cumsum(0).view_as(last) - 1, NONE)
        return {"table": {name: table[self.slot(times)] for name, table in self.table.items()},
                "lasts": {name: lasts[kept] for name, lasts in self.lasts.items()}, "last_of": numbered}

    def load_state_dict(self, state: dict[str, Any], count: int) -> None:
        """Restore what :meth:`state_dict` returned, the newest ``count`` steps of it."""
        for name, table in self.table.items():
            table[: count + 1] = state["table"][name][-count - 1 :]
        self.last_of.fill_(NONE)
        self.last_of[:count] = state["last_of"][len(state["last_of"]) - count :]
        self.lasts = {name: lasts.clone() for name, lasts in state["lasts"].items()}
        used = set(self.last_of.flatten().tolist())
        self.free = [row for row in range(len(next(iter(self.lasts.values())))) if row not in used]
        self.time = count
