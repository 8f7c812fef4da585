"""The rule for the time of samples, of every reader: files, bags and nodes. numpy only.

- **One clock per topic.** It is the headers' where any stamp of the topic is set, that is, not 0; a stamp of 0 is then
  the time 0. Where no stamp is set, and where the type has none, it is the receipt by the recorder or the node.
- **Times increase.** A sample whose time repeats, or goes back from the newest before it, is an error; or such samples
  are dropped and counted. Of two samples at one time nobody knows which is right.
- **A clock that was set** by more than :data:`CLOCK_SET_S` puts samples of two orders one after the other: no part of
  them can be dropped, and it is an error in any case.
- **A sample holds** for :data:`HOLD_PERIODS` of its own topic's periods, or as long as the reader is told; of a latched
  topic until the next one. After that it is lost. A topic with one sample has no period: unless it is latched, or the
  reader is told, its sample holds at its own time alone.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

CLOCK_SET_S = 1.0
"""A time that goes back by more belongs to a clock that was set; by less, to a sample that was overtaken. Chosen: far
above the delays of a network, far below the steps in which clocks are set by hand or at a restart."""

HOLD_PERIODS = 3.0
"""Periods that a sample holds unless the reader is told otherwise: two in a row may be lost, as in a report's gaps."""

Times = NDArray[np.float64]


class TopicClock:
    """The clock of one topic whose messages come one by one. Until a stamp is set it is that of the receipt."""

    stamped = False

    def sets(self, stamp: int) -> bool:
        """Whether this is the first stamp that is set: the samples before it, whose stamps were 0, were at time 0."""
        first = not self.stamped and stamp != 0
        self.stamped |= first
        return first

    def time(self, stamp: int, received: int) -> int:
        """The time of a sample [ns]; ``stamp``: 0 also where the type has none."""
        return stamp if self.stamped else received


def are_set(stamps: NDArray[np.int64]) -> bool:
    """Whether the clock of a whole topic is that of its ``stamps`` [T], ns."""
    return bool((stamps != 0).any())


def newest_before(times: Times) -> Times:
    """[T] the newest time before each sample; -inf before the first."""
    return np.concatenate([[-inf], np.maximum.accumulate(times)[:-1]])


def late(times: Times) -> NDArray[np.bool_]:
    """[T] which samples repeat a time, or go back."""
    return np.asarray(times <= newest_before(times))


def clock_set(times: Times) -> int | None:
    """The first sample at which the clock was set back; None: it never was."""
    found = np.flatnonzero(newest_before(times) - times > CLOCK_SET_S)
    return int(found[0]) if len(found) else None


def hold_s(times: Times, told: float | None = None) -> float:
    """How long a sample of ``times`` [T] (s, increasing) holds [s]."""
    if told is not None:
        return told
    return HOLD_PERIODS * float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def held_by(grid: Times, times: Times, slack: float) -> NDArray[np.intp]:
    """[G] the newest sample of ``times`` [T] at or before each time of ``grid``, to ``slack`` seconds; -1: none yet."""
    return np.asarray(np.searchsorted(times, grid + slack, side="right") - 1)
