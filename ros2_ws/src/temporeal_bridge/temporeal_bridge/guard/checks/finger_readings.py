"""What the guard remembers of how the state has come in, in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan

from temporeal.robots.motion.rate_limiter import Array

NEAR_S = 2.0  # so long it is remembered how soon messages come, to say when places and rates were. Chosen: a clock that
# was set is no reason to compare nothing for longer
STANDS = 0.05  # rad or m: in doubt is what stands in every bit for longer while its command moves by more. Chosen


class Lately:
    """The least of a row of numbers of the last NEAR_S to twice that."""

    def __init__(self) -> None:
        self.before, self.now, self.until = inf, inf, -inf

    def least(self, value: float, now: float) -> float:
        """... with this one."""
        if now >= self.until:
            self.before, self.now, self.until = self.now, inf, now + NEAR_S
        self.now = min(self.now, value)
        return min(self.before, self.now)


class Readings:
    """Of each component of a hand's place, when what is said of it last changed in any bit, and its command then.

    Args:
        names: signals [V] that say something of the joints.
        parts: by component, which of their values say it: a place that is the sum of several joints changes while one
            of these stands.
    """

    def __init__(self, names: frozenset[str], parts: Sequence[Sequence[int]]) -> None:
        self.names, self.components, self.sums = names, len(parts), [len(part) > 1 for part in parts]
        self.rows = [(component, value) for component, part in enumerate(parts) for value in part]
        self.changed, self.under = [-inf] * len(self.rows), [nan] * len(self.rows)
        self.told: list[float] = []
        self.silent_at = -inf

    def forget(self, now: float, longest: float) -> None:
        """The robot may have what was sent no more. What stood while that moved is in doubt until it changes."""
        doubted, self.silent_at = self._standing(now, longest), now
        self.under, self.told = [under if doubt else nan for under, doubt in zip(self.under, doubted)], []

    def seen(self, before: Array, value: Array, now: float) -> None:
        """A signal that was ``before`` is ``value`` [V]."""
        old, new = before.ravel().tolist(), value.ravel().tolist()
        for row, (component, i) in enumerate(self.rows):
            if old[i] != new[i]:
                self.changed[row], self.under[row] = now, self.told[component] if self.told else nan

    def sent(self, command: Array) -> None:
        """A command [A]."""
        self.told = command.tolist()
        self.under = [self.told[component] if isnan(under) else under
                      for (component, _), under in zip(self.rows, self.under)]

    def stood(self, now: float, longest: float, place: Sequence[float] = ()) -> list[bool]:
        """Of which components something has stood in every bit, for ``longest`` [s], though their command moved. Of a
        sum whose ``place`` is what it is told to be, the joint that moved does it all: the other one may rest."""
        out = self._any(self._standing(now, longest))
        return [stands and not (self.sums[i] and self.told and i < len(place)
                                and abs(self.told[i] - place[i]) <= STANDS) for i, stands in enumerate(out)]

    def unsaid(self) -> list[bool]:
        """Of which components something has not changed in any bit since the robot was silent."""
        return self._any([changed <= self.silent_at for changed in self.changed])

    def _any(self, rows: Sequence[bool]) -> list[bool]:
        """By component, whether it is so of any of its ``rows``."""
        out = [False] * self.components
        for (component, _), so in zip(self.rows, rows):
            out[component] = out[component] or so
        return out

    def _standing(self, now: float, longest: float) -> list[bool]:
        """The same by row; of a robot that may have no command, those that it stood by before."""
        return [now - changed > longest and not isnan(under) and (
                    not self.told or abs(self.told[component] - under) > STANDS)
                for (component, _), under, changed in zip(self.rows, self.under, self.changed)]
