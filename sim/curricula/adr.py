"""``adr``: automatic domain randomization. A range grows where the learner succeeds at its end, and shrinks where not.

OpenAI et al., "Solving Rubik's Cube with a Robot Hand", 2019 (section 5, algorithm 1), vectorized as in Handa et al.,
"DeXtreme: Transfer of Agile In-hand Manipulation from Simulation to Reality", 2022: many worlds at once, of which a
share has one parameter, drawn at random, at one end of its range. The outcomes of these are collected by end. As soon
as an end has ``samples`` of them, it moves by ``step`` outwards if their mean is at least ``grow``, inwards if it is at
most ``shrink``, and its outcomes are thrown away; so are outcomes at an end that has moved since they were drawn.

All in the unit cube: 0 is a parameter's least value, 1 its greatest.
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

GROWS = True
INSIDE = -1  # tag of a point that is at no end; 2 d + 1 is at the high end of dimension d, 2 d at the low one


@dataclass(frozen=True)
class Settings:
    """Of the algorithm; the defaults are those of the paper's experiments, where ``samples`` is 240.

    ``boundary``: share of the episodes that are at an end. ``step``: of the whole range. ``grow``, ``shrink``: mean
    outcomes (share of successes, or of the return range).
    """

    boundary: float = 0.5
    samples: int = 240
    step: float = 0.02
    grow: float = 0.8
    shrink: float = 0.5

    def __post_init__(self) -> None:
        check_settings(self, shares=("boundary", "grow", "shrink"))
        if self.samples < 1 or not 0 < self.step <= 1 or not self.shrink < self.grow:
            raise ValueError(f"curriculum: needs samples >= 1, 0 < step <= 1 and shrink < grow; got {self}")


class Adr:
    """The state is the range of each dimension and the outcomes at its ends.

    Args:
        low, high: [D] where the ranges begin; they never become narrower.
    """

    shared = True

    def __init__(self, low: np.ndarray, high: np.ndarray, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.first = np.stack([low, high]).astype(np.float64)  # [2, D]
        self.ends = self.first.copy()
        self.outcomes: list[list[float]] = [[] for _ in range(2 * self.ends.shape[1])]

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points [K, D] of the ranges, a share of them at an end."""
        count = self.ends.shape[1]
        inside = uniform(seed, worlds, episode, stream("curriculum.adr.inside"), count).double()
        low, high = torch.from_numpy(self.ends).to(inside.device)
        points = low + (high - low) * inside
        pick = uniform(seed, worlds, episode, stream("curriculum.adr.end"), 2)
        tag = torch.where(pick[:, 0] < self.settings.boundary, (pick[:, 1] * 2 * count).long(), INSIDE)
        for end in range(2 * count):
            side = (low, high)[end % 2]
            points[:, end // 2] = torch.where(tag == end, side[end // 2], points[:, end // 2])
        return Points(points, tag)

    def observe(self, trials: Trials) -> None:
        """Take in finished episodes, in their order."""
        for end in range(len(self.outcomes)):
            mine = trials.tag == end
            for value, outcome in zip(trials.points[mine, end // 2], trials.outcome[mine]):
                if value == self.ends[end % 2, end // 2]:
                    self.outcomes[end].append(float(outcome))
                    if len(self.outcomes[end]) >= self.settings.samples:
                        self._move(end)

    def _move(self, end: int) -> None:
        s, (side, d) = self.settings, (end % 2, end // 2)
        mean = float(np.mean(self.outcomes[end]))
        outwards = 1.0 if mean >= s.grow else -1.0 if mean <= s.shrink else 0.0
        moved = self.ends[side, d] + outwards * s.step * (1.0 if side else -1.0)
        first = self.first[side, d]
        self.ends[side, d] = np.clip(moved, *((first, 1.0) if side else (0.0, first)))
        self.outcomes[end].clear()

    def figures(self) -> dict[str, float]:
        """``entropy``: mean logarithm of the widths, as in the paper (no width counts for less than a step);
        ``volume``: their geometric mean; and each range."""
        widths = np.maximum(self.ends[1] - self.ends[0], min(self.settings.step, 1.0))
        out = {"entropy": float(np.log(widths).mean()), "volume": float(np.exp(np.log(widths).mean()))}
        for d in range(self.ends.shape[1]):
            out |= {f"low.{d}": float(self.ends[0, d]), f"high.{d}": float(self.ends[1, d])}
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""
        return {"ends": torch.from_numpy(self.ends.copy()), "outcomes": [list(x) for x in self.outcomes]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if np.shape(state["ends"]) != self.ends.shape:
            raise ValueError(f"curriculum: a state of {np.shape(state['ends'])} ends, expected {self.ends.shape}")
        self.ends = torch.as_tensor(state["ends"]).numpy().copy()
        self.outcomes = [list(x) for x in state["outcomes"]]


def make(low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Settings) -> Adr:
    """The teacher."""
    return Adr(low, high, settings)
