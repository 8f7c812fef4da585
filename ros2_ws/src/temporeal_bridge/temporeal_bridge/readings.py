"""What the guard remembers of how the state has come in, in plain numbers."""

from __future__ import annotations

from math import inf, isnan, nan

from robots.motion import Array

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
    """Of each joint, when what is said of it last changed in any bit, and its command then.

    Args:
        names: signals [B] that say something of the joints, in the order of the command. joints: B.
    """

    def __init__(self, names: frozenset[str], joints: int) -> None:
        self.names = names
        self.changed, self.under = [-inf] * joints, [nan] * joints
        self.told: list[float] = []

    def forget(self) -> None:
        """The robot has what was sent no more."""
        self.under, self.told = [nan] * len(self.under), []

    def seen(self, before: Array, value: Array, now: float) -> None:
        """A signal that was ``before`` is ``value`` [B]."""
        for joint, (old, new) in enumerate(zip(before.ravel().tolist(), value.ravel().tolist())):
            if old != new:
                self.changed[joint] = now
                if self.told:
                    self.under[joint] = self.told[joint]

    def sent(self, command: Array) -> None:
        """A command [A]."""
        self.told = command.tolist()
        if isnan(self.under[0]):
            self.under = self.told[: len(self.under)]

    def stood(self, now: float, longest: float) -> list[bool]:
        """Which joints stand in every bit, for ``longest`` [s], though their command has moved since."""
        return [abs(told - under) > STANDS and now - changed > longest
                for told, under, changed in zip(self.told, self.under, self.changed)] or [False] * len(self.under)
