"""The stream of commands to the robot: the motion of the last one, and what may follow it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.collision import Nearness
from temporeal.robots.motion.rate_limiter import Array, Motion, at_rest, resting
from temporeal_bridge.guard import command_limits
from temporeal_bridge.guard.checks import admission
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason
from temporeal_bridge.guard.stop_actions.airborne import Airborne
from temporeal_bridge.guard.stop_actions.ramp_and_damp import caught_up, eased, inside
from temporeal_bridge.guard.stop_actions.step import Values

LATE = 1.5  # periods after the last command until which the next one is not late
ON_TIME = 0.9  # periods after the last command from which on, with every period, one more has been missed
EARLY = 0.5  # periods before its turn in which a command is not early
PACE = 0.95  # of a period: clocks and drivers may be faster by so much, but not for long
NEARER_M = 0.001  # by which links may come nearer to each other than at the beginning: noise of sensors. Chosen


class Limited(NamedTuple):
    """What may be sent of a command, the motion that it makes, and why it may not be sent because of a collision."""

    verdict: shield.Verdict
    motion: Motion | None
    collides: str


class CommandStream:
    """One robot's. Times are in s, monotonic.

    Attributes:
        motion: of the last command of this mission; None: none was sent.
        retained: the same of an earlier mission, which the robot may hold for ever.
        lost: the last motion of a hand that fell silent after it.
        origin: where [A] the robot was at the first command.
        nearest: distance [m] of its links at the first command, if measured joints decide on collisions.
        sent_at, turn: when the last command had gone; when the next one is expected.
        stands_at: the time that ``motion`` is of: ``sent_at``, or later after missed periods.
    """

    def __init__(self, config: GuardConfig, monitor: StateMonitor, airborne: Airborne) -> None:
        self.config, self.profile, self.limits = config, config.profile, config.limits
        self.monitor, self.airborne = monitor, airborne
        rule = self.profile.self_collision
        self.nearness = None if rule is None else Nearness(rule.capsules, rule.margin)
        self.motion: Motion | None = None
        self.retained: Motion | None = None
        self.lost: Motion | None = None
        self.origin: Array | None = None
        self.nearest = np.inf
        self.sent_at = self.turn = self.stands_at = -np.inf

    @property
    def held(self) -> Motion | None:
        """What the robot may hold."""
        return self.motion or self.retained

    def begin(self) -> None:
        """A mission begins."""
        self.retain()
        self.origin = None
        self.sent_at = self.turn = self.stands_at = -np.inf

    def retain(self) -> None:
        """The last motion belongs to an earlier mission."""
        self.retained, self.motion = self.held, None

    def start(self, asked: Array, now: float) -> Reason:
        """Why ``asked`` [A] may not be the first command; the motion that it begins from."""
        refused = admission.refused_start(asked, now, self.profile, self.monitor)
        if refused == NOTHING or self.config.rates:  # a stop takes over the speed that a robot has, though refused
            self.origin = admission.origin(asked, self.profile, self.monitor.values)
            self.motion = None if self.origin is None else at_rest(inside(self.limits, self.origin))
        if self.nearness is not None and self.profile.joints:
            joints = self.monitor.values[self.profile.joints].reshape(-1)
            self.nearest = self.nearness.distance(joints)[0] - NEARER_M
        return refused

    # ---- what may follow

    def limited(self, asked: Array, elapsed: float, values: Values | None) -> Limited:
        """What may be sent of ``asked`` [A], ``elapsed`` [s] into the mission. ``values``: the newest signals, if they
        limit it and are fresh."""
        config, reach = self.config, command_limits.window(self.profile, values)
        wanted = command_limits.wanted(asked, elapsed, self.origin, self.profile, reach)
        verdict, motion = shield.guard(config.spec, wanted.reshape(config.spec.shape), self.limits, self.motion, reach)
        if self.nearness is None or motion is None:
            return Limited(verdict, motion, "")
        return Limited(verdict, motion, self._collision(motion, values))

    def _collision(self, motion: Motion, values: Values | None) -> str:
        """Why ``motion`` leads the robot's links too close to each other."""
        rest = command_limits.rests(self.profile, self.limits, motion, values)
        if rest is None or self.nearness is None:
            return ""
        if self.profile.joints:  # measured, with noise: what matters is the distance when the mission began
            return command_limits.collision(self.nearness, rest, None, self.nearest)
        last = self.motion
        return command_limits.collision(
            self.nearness, rest, None if last is None else lambda: resting(self.limits, last))

    def ease(self, values: Values | None) -> Array:
        """One period further towards rest; the command [A]. A robot that was sent its way to rest does that by itself;
        for any other, a command after a gap, or a stop, would begin where the robot is no more."""
        assert self.motion is not None  # there was a command
        self.motion = eased(self.profile, self.config.spec, self.motion, values)
        return self.motion.command

    def rest(self) -> None:
        """Zero: what a robot that is sent speeds or efforts is left with."""
        self.motion = at_rest(np.zeros(self.config.spec.size))

    # ---- time

    def early(self, now: float) -> bool:
        """Whether a command comes before its turn. Limits of motion are per period, and a burst would be faster."""
        return now < self.turn - EARLY * self.config.period

    def late(self, now: float) -> bool:
        """Whether the next command of a robot that is kept is late."""
        return self.motion is not None and self.config.keeps and now - self.sent_at >= LATE * self.config.period

    def catch_up(self, now: float) -> None:
        """After missed periods the robot is not where the last command left it."""
        period = self.config.period
        missed = int((now - self.stands_at) / period - ON_TIME) if self.stands_at > -np.inf else 0
        if self.motion is None or missed < 1:
            return
        self.stands_at += missed * period
        if self.airborne.levels:
            self.airborne.push(self.motion.command.item(0), now, missed)
        self.motion = caught_up(self.limits, self.motion, missed, self.config.led)

    def departed(self, command: Array, made_at: float, now: float) -> None:
        """``command`` [A], made for the time ``made_at``, had gone at ``now``."""
        self.sent_at = self.stands_at = now
        if self.monitor.readings is not None:
            self.monitor.readings.sent(command)
            self.retained = self.lost = None
        self.turn = max(self.turn, made_at) + PACE * self.config.period  # of recorded times, so that a replay is exact

    def forget(self, now: float, taken: bool) -> None:
        """The robot may no longer hold its command: it was silent, or somebody else commands it (``taken``)."""
        readings = self.monitor.readings
        if readings is not None:
            self.lost = None if taken else self.held
            readings.forget(now, self.monitor.freshness.now_s)
        self.retained = self.motion = None
