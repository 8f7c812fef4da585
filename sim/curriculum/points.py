"""What teachers propose and what they are told: points of the unit cube and the outcomes of episodes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor


class Points(NamedTuple):
    """What is proposed to K worlds."""

    points: Tensor  # [K, D] float64 in [0, 1]
    tag: Tensor  # [K] int64: what the teacher wants to know of it when its episode is over


class Trials(NamedTuple):
    """E finished episodes, in the order in which they are to be taken in. numpy."""

    points: np.ndarray  # [E, D] float64
    tag: np.ndarray  # [E] int64
    outcome: np.ndarray  # [E] float64: 0 is bad, 1 is good
    world: np.ndarray  # [E] int64


class Teacher(Protocol):
    """Chooses where to learn. A point depends on (seed, world, episode) and on what the teacher has been told.

    ``shared``: several processes have one such teacher, which is told of the episodes of all; else each its own.
    """

    shared: bool

    def propose(self, seed: int, worlds: Tensor, episode: Tensor) -> Points:
        """Points for the episodes [K] of the worlds [K]."""

    def observe(self, trials: Trials) -> None:
        """Learn from finished episodes."""

    def figures(self) -> dict[str, float]:
        """What to log."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def check_share(name: str, value: float) -> None:
    """``value`` is in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"curriculum.{name} is a share, 0 to 1, got {value!r}")
