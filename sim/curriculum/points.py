"""What teachers propose and learn from: points of the unit cube, and the outcomes of episodes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor


class Points(NamedTuple):
    """What is proposed to K worlds."""

    points: Tensor  # [K, D] float64 in [0, 1]
    tag: Tensor  # [K] int64: what the teacher gets back with the outcome


class Trials(NamedTuple):
    """E finished episodes, in the order in which they are to be taken in. numpy."""

    points: np.ndarray  # [E, D] float64
    tag: np.ndarray  # [E] int64
    outcome: np.ndarray  # [E] float64: 0 is bad, 1 is good
    world: np.ndarray  # [E] int64


class Teacher(Protocol):
    """Chooses where to learn. A point depends on (seed, world, episode) and on the episodes observed so far.

    ``shared``: several processes have one such teacher, which observes the episodes of all; else each its own.
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


class Kind(Protocol):
    """What a module of ``temporeal.sim.curricula`` has: one way to choose where to learn.

    ``Settings``: a frozen dataclass of what its configuration may hold. ``GROWS``: whether dimensions begin with a
    range of their own (``first``) that widens.
    """

    Settings: type
    GROWS: bool

    def make(self, low: np.ndarray, high: np.ndarray, num_worlds: int, settings: Any) -> Teacher | None:
        """The teacher of dimensions that begin with ``low`` to ``high`` [D]; None where nothing is to be chosen."""
