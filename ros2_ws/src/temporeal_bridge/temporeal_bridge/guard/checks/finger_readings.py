"""Whether the measured joints of a hand are current: a driver may repeat the last place of a motor that failed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan

from temporeal.robots.motion.rate_limiter import Array

MOVED = 0.05  # rad or m: a reading that stays bit-identical while its command moves by more is in doubt. Chosen


class FingerReadings:
    """By component of a hand's place, when its reading last changed in any bit, and the command at that time.

    Args:
        names: signals [V] that report the joints.
        parts: by component the indices of their values. A place that is the sum of several joints changes while one of
            these stands.
    """

    def __init__(self, names: frozenset[str], parts: Sequence[Sequence[int]]) -> None:
        self.names, self.components, self.sums = names, len(parts), [len(part) > 1 for part in parts]
        self.rows = [(component, value) for component, part in enumerate(parts) for value in part]
        self.changed, self.under = [-inf] * len(self.rows), [nan] * len(self.rows)
        self.command: list[float] = []
        self.silent_at = -inf

    def forget(self, now: float, longest: float) -> None:
        """The robot may no longer have its command. A reading that is in doubt stays so until it changes."""
        doubted, self.silent_at = self._standing(now, longest), now
        self.under, self.command = [under if doubt else nan for under, doubt in zip(self.under, doubted)], []

    def seen(self, before: Array, value: Array, now: float) -> None:
        """A signal [V] changed from ``before`` to ``value``."""
        old, new = before.ravel().tolist(), value.ravel().tolist()
        for row, (component, i) in enumerate(self.rows):
            if old[i] != new[i]:
                self.changed[row], self.under[row] = now, self.command[component] if self.command else nan

    def sent(self, command: Array) -> None:
        """A command [A] was sent."""
        self.command = command.tolist()
        self.under = [self.command[component] if isnan(under) else under
                      for (component, _), under in zip(self.rows, self.under)]

    def stood(self, now: float, longest: float, place: Sequence[float] = ()) -> list[bool]:
        """By component, whether one of its readings was bit-identical for ``longest`` [s] though its command moved. A
        sum whose ``place`` is the commanded one is not in doubt: one joint did it all, and the other may rest."""
        out = self._any(self._standing(now, longest))
        return [stands and not (self.sums[i] and self.command and i < len(place)
                                and abs(self.command[i] - place[i]) <= MOVED) for i, stands in enumerate(out)]

    def unchanged(self) -> list[bool]:
        """By component, whether one of its readings has not changed since the robot was silent."""
        return self._any([changed <= self.silent_at for changed in self.changed])

    def _any(self, rows: Sequence[bool]) -> list[bool]:
        """By component, whether any of its ``rows`` is true."""
        out = [False] * self.components
        for (component, _), so in zip(self.rows, rows):
            out[component] = out[component] or so
        return out

    def _standing(self, now: float, longest: float) -> list[bool]:
        """The same as :meth:`stood` by row. Without a command, rows that were in doubt before stay so."""
        return [now - changed > longest and not isnan(under) and (
                    not self.command or abs(self.command[component] - under) > MOVED)
                for (component, _), under, changed in zip(self.rows, self.under, self.changed)]
