"""A dry run of the next step just before its turn: code and data are then in the processor's caches.

For a core that is reserved for guard and controller: memory that was idle for a period is slow.
"""

from __future__ import annotations

import math

from temporeal_bridge.transports.transport import Transport

REHEARSED_S = 0.0003  # before the next state. Chosen: caches are soon overwritten, and a state may come early
MOST_REHEARSED = 0.4  # of a period, the time before that state included
FORGOTTEN = 0.99  # decay of the longest duration per shorter step: a policy with a reflex has steps of two lengths


class Rehearsal:
    """When to rehearse.

    Args:
        period: of the steps [s]. wanted: False: never.
        most: steps that take longer [s] are not rehearsed. The guard, which goes ahead of the controller, must be
            done before the state arrives.
    """

    def __init__(self, period: float, wanted: bool, most: float = math.inf) -> None:
        self.period, self.wanted, self.most, self.at, self.took = period, wanted, most, math.inf, 0.0
        self.expected, self.until = math.inf, -math.inf  # arrival of the next state [s]; end of polling for it

    def plan(self, seen: float, took: float) -> None:
        """Plan the next rehearsal after a step that took ``took`` [s] for the state that arrived at ``seen`` [s].
        There is none where it would take too much of the period."""
        self.took = max(took, FORGOTTEN * self.took)
        before = REHEARSED_S + self.took
        good = self.wanted and self.took <= self.most and before < MOST_REHEARSED * self.period
        self.expected, self.until = seen + self.period, -math.inf
        self.at = self.expected - before if good else math.inf

    def due(self, now: float) -> bool:
        """Whether it is time, true once per plan; False when it is so late that it would delay the step itself. The
        controller mostly is late, because the guard rehearses at that time, too."""
        if now < self.at:
            return False
        late, self.at = now - self.at, math.inf
        self.until = self.expected + REHEARSED_S if late < REHEARSED_S else -math.inf
        return late < REHEARSED_S

    def wait(self, transport: Transport, timeout_s: float) -> None:
        """Wait for a message for at most ``timeout_s``. While a state is due whose step was rehearsed, poll: that is
        faster than to be woken. A process that polls gives way to the threads that receive
        (:func:`temporeal_bridge.process.scheduling.give_way`)."""
        now = transport.monotonic()
        until = now + timeout_s
        while now < min(until, self.until):
            if transport.wait(0.0):
                return
            now = transport.monotonic()
        transport.wait(max(until - now, 0.0))
