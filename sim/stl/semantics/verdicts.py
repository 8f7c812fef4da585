"""Verdicts, and margins of zero: the sign of a robustness as its truth. numpy only."""

from __future__ import annotations

import numpy as np

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"

TINY = float(np.finfo(np.float64).tiny)
"""A margin of zero is true for <= and >=, false for < and >: it is carried as the smallest number of that sign, so that
the sign is the truth, and shown as zero again."""


def verdict_of(low: float, high: float) -> str:
    """The verdict of a robustness between ``low`` and ``high``."""
    return SATISFIED if low > 0 else VIOLATED if high < 0 else UNDECIDED


def shown(bound: float) -> float:
    """``bound`` for people: zero for :data:`TINY`."""
    return 0.0 if -TINY <= bound <= TINY else float(bound)
