"""One episode in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Episode:
    """S samples and T commands: T = S where each sample has its command, T = S - 1 where the last is the final state.

    Args:
        signals: name -> [S, *shape], as measured (what a policy would be shown).
        action: [T, U], the command in its units.
        policy_action: [T, A] in [-1, 1], what the task's policy gave; None where unknown.
        reward: [T]; None: there is none.
        terminated: the last sample ends the task, after which nothing is worth anything; else time, or a person, cut.
        success: whether it did what was asked; None: nobody judged.
        language: the instruction; "".
        info: plain figures and words about it: seed, quality, source.
    """

    signals: Mapping[str, np.ndarray]
    action: np.ndarray
    policy_action: np.ndarray | None = None
    reward: np.ndarray | None = None
    terminated: bool = False
    success: bool | None = None
    language: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """S."""
        return len(next(iter(self.signals.values())))

    @property
    def steps(self) -> int:
        """T."""
        return len(self.action)
