"""Whether a robot rests, and rests where its first command may begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal_bridge.guard.checks.finger_readings import MOVED
from temporeal_bridge.guard.safety.profile import Start
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason

REST_S = 0.05  # how long a robot must have rested before the first command
RESTS = 0.2  # share of the distance that the first command may have: a robot that moves less rests


class RestMonitor:
    """Since when the signal of a rule for the first command has been at rest. Times are in s, monotonic.

    Attributes:
        seen_since, since: when the signal was first seen; when it last moved.
    """

    def __init__(self, rule: Start | None) -> None:
        self.rule = rule
        self.signal = "" if rule is None else rule.signal
        self.place: np.ndarray | None = None
        self.seen_since = self.since = inf

    def take(self, value: np.ndarray, now: float) -> None:
        """A value [B] of the signal."""
        assert self.rule is not None
        self.seen_since = min(self.seen_since, now)
        if self.place is None or any(abs(a - b) > RESTS * far for a, b, far in zip(
                value.tolist(), self.place.tolist(), self.rule.within, strict=True)):
            self.place, self.since = value, now

    def known(self, now: float) -> bool:
        """Whether the signal was seen for long enough to tell."""
        return not self.signal or now - self.seen_since >= REST_S

    def unrest(self, values: Mapping[str, np.ndarray]) -> Reason:
        """The robot is too fast for a first speed or effort, which are 0 only where it rests."""
        rule = self.rule
        if rule is None or not rule.rests:
            return NOTHING
        speed, below = np.abs(values[rule.rests].reshape(-1)), np.asarray(rule.below)
        i = int(np.argmax(speed - below))
        return NOTHING if speed[i] <= below[i] else (
            "start", f"{rule.rests}[{i}] is {speed[i]:.3f}, {below[i]:g} at most is allowed: the robot must rest first")

    def distance(
        self, command: np.ndarray, values: Mapping[str, np.ndarray], now: float, doubted: Sequence[int]
    ) -> Reason:
        """The first command [A] is too far from the robot, or the robot does not rest: an earlier guard may have left
        it in motion, and a command that begins at rest would be a jolt. ``doubted``: components whose place may be
        old."""
        rule = self.rule
        if rule is None:
            return NOTHING
        measured = values[rule.signal].reshape(-1)
        if now - self.since < REST_S:
            return "start", f"{rule.signal} is still moving: it must have rested for {REST_S:g} s"
        if doubted:
            return "start", (f"{rule.signal}{list(doubted)} stood while the command moved by more than {MOVED:g}: it "
                             "may be an old place, and the first command a leap. If a finger rests on something, "
                             "mission/stop releases it, then mission/reset; else check that motor")
        text = shield.behind(command[: measured.size], measured, rule.within)
        return ("start", f"the first command is too far from where the robot is: {text}") if text else NOTHING
