"""Sample and hold: the value of a topic at a time is its newest sample before that time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

import numpy as np

EVER = 1  # ns, as a stamp: before everything

Signals = dict[str, np.ndarray]
Read = Callable[[], Signals | None]
"""Decodes a sample when it is needed; None: it cannot be right."""


class HeldSamples:
    """The samples of one topic that are still needed. They are decoded only when they are in force at a grid point: an
    arm publishes a thousand a second.

    Args:
        steady: a sample holds until the next one, however old it is.

    Attributes:
        last: stamp of the newest sample [ns]; -inf: none yet.
        late: number of samples that repeated a stamp or went back, and were left out.
    """

    def __init__(self, steady: bool = False) -> None:
        self.steady, self.last, self.late = steady, -inf, 0
        self.samples: deque[tuple[int, Read]] = deque()  # not decoded yet
        self.known: tuple[int, Signals] | None = None  # the newest decoded one

    def add(self, stamp: int, read: Read) -> None:
        """Add a sample, unless it is not newer than the last: then it is counted."""
        if stamp > self.last:
            self.last = stamp
            self.samples.append((stamp, read))
        else:
            self.late += 1

    def restart(self, stamp: int) -> None:
        """Take ``stamp`` as that of the newest sample so far: what was taken for it was of another clock."""
        if self.samples:
            self.samples = deque([(stamp, self.samples[-1][1])])
            self.known = None
        elif self.known is not None:
            self.known = stamp, self.known[1]
        self.last = -inf if self.last == -inf else stamp

    def since(self, now: int) -> int:
        """The stamp [ns] for a sample without one that arrives ``now``. The first one of a steady topic was latched: it
        may have been published at any earlier time, and discovery may take until after a mission's beginning."""
        return EVER if self.steady and self.last == -inf else now

    def passed(self, time: int) -> bool:
        """Whether a sample later than ``time`` [ns] has arrived: then the value at ``time`` is final."""
        return self.last > (-inf if self.steady else time)

    def forget(self, time: int) -> None:
        """Drop samples older than the newest one at or before ``time``."""
        while len(self.samples) > 1 and self.samples[1][0] <= time:
            self.samples.popleft()

    def at(self, time: int, hold_ns: float) -> Signals | None:
        """The newest sample at or before ``time``, not older than ``hold_ns`` [ns] unless it is steady, else None.

        Older ones are dropped.
        """
        due = []
        while self.samples and self.samples[0][0] <= time:
            due.append(self.samples.popleft())
        while due:
            stamp, read = due.pop()
            signals = read()
            if signals is not None:
                self.known = stamp, signals
                break
        if self.known is None or not 0 <= time - self.known[0] <= (inf if self.steady else hold_ns):
            return None
        return self.known[1]
