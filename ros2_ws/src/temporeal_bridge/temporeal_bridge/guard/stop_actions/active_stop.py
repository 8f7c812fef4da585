"""The stop action that a guard has under way: which one, where it leads, and its next command.

It knows the robot by the guard's :class:`~temporeal_bridge.guard.state_monitor.Watch`, and where that fails it goes on
without: a stop must. When a stop begins, and which mode comes after it, is :mod:`temporeal_bridge.guard_node`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from temporeal.robots.motion.rate_limiter import Motion
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard import admission, hold, level, safety, stop_actions
from temporeal_bridge.guard.hover_thrust import Flown
from temporeal_bridge.guard.level import Levelling
from temporeal_bridge.guard.safety import Profile
from temporeal_bridge.guard.state_monitor import Watch
from temporeal_bridge.guard.stop_actions import Step, Stopping, Values

T = TypeVar("T")


class Stopper:
    """Of one robot. ``looks``: the state has a say in what may be sent; ``autopilot``: one lands it by itself."""

    def __init__(
        self, robot: RobotSpec, spec: CommandSpec, profile: Profile, watch: Watch, looks: bool, autopilot: bool
    ) -> None:
        self.robot, self.spec, self.profile, self.watch = robot, spec, profile, watch
        self.looks, self.autopilot = looks, autopilot
        self.under_way = Stopping("silence", 0.0)
        self.unheld: list[int] = []  # components of a hold of which was said that nobody knows where they are
        self.pressed: list[int] = []  # components that made a hold of a ramp, of which nothing was said yet
        self.blind = 0  # times that it did without what the robot says, for the watch failed
        if profile.fingers is not None:
            hold.gentle(profile.limits)  # takes its time: not at the stop

    @property
    def keeps(self) -> bool:
        """Whether the action keeps the robot where it brought it."""
        return self.under_way.action in safety.KEEPS

    def begin(self, action: str, now: float, motion: Motion | None, grounded: bool, floor: bool) -> None:
        """``action`` begins. ``motion``: of the last command of this mission; ``grounded``: nothing that was sent can
        have lifted the robot; ``floor``: the mission began there."""
        self.unheld, self.pressed = [], []
        values = self.values(now)
        self.under_way = (level.begun(now, motion, grounded, floor) if action == "level" else
                          stop_actions.begun(self.profile, action, now, motion, values))
        if self.under_way.action == "off" and self.autopilot:  # its own business, once nothing comes
            self.silence(now)
        self._aim(values, now, motion)

    def silence(self, now: float) -> None:
        """Nothing more is said."""
        self.under_way = Stopping("silence", now)

    def insist(self) -> bool:
        """The operator says again that it is to end; whether that changes anything."""
        told = None if self.autopilot else level.insisted(self.under_way)
        if told is not None:
            self.under_way = told
        return told is not None

    def next(self, now: float, motion: Motion | None, before: Flown, active: bool) -> Step:
        """What comes next; ``before``: what the mission's commands and states said; ``active``: the node is."""
        stop, values = self.under_way, self.values(now)
        if stop.action == "silence":
            return Step(None, over=True)
        if isinstance(stop, Levelling):
            return self._levelled(stop, values, now, before, active)
        if stop.action == "hold" and motion is not None:
            stop, window = self._aim(values, now, motion), admission.window(self.profile, self._moving(values, now))
            return hold.held(stop, self.profile, self.spec.shape, motion, window)
        moving = self._moving(values, now)
        self.under_way = stop = stop_actions.watched(stop, self.profile, moving, now)
        step = stop_actions.calmed(stop, self.profile, self.spec, motion, moving, now)
        return self._kept(stop, step, values, now) if stop.action == "ramp" else step

    def _kept(self, stop: Stopping, step: Step, values: Values | None, now: float) -> Step:
        """A ``step`` of a ramp, which is over once the robot is where it was told, or nobody knows where it is. One
        that presses for PRESS_S longer than it does not goes to where it is measured."""
        motion = step.motion
        if not step.over or motion is None or values is None or self._whereabouts(now)[0] is None:
            return step
        joints = hold.pressing(self.profile, motion, values)
        pressed = max(stop.pressed + (self.profile.limits.dt if joints else -self.profile.limits.dt), 0.0)
        if pressed > hold.PRESS_S:
            self.under_way, self.pressed = Stopping("hold", now), joints
            self._aim(values, now, motion)
        elif pressed != stop.pressed:
            self.under_way = replace(stop, pressed=pressed)
        return step._replace(over=not joints)

    def _levelled(self, stop: Levelling, values: Values | None, now: float, before: Flown, active: bool) -> Step:
        if stop.action == "off":
            self.under_way, step = level.off(stop, self.spec, self.profile.limits.dt)
            return step
        values, sound = self._attitude(values, now)
        self.under_way, step = level.onward(
            stop, self.robot, self.profile, self.spec, values, now, before, self.autopilot, sound,
            waits=not self.autopilot and active and self.watch.upright)
        return step

    def _aim(self, values: Values | None, now: float, motion: Motion | None) -> Stopping:
        """The stop action, which knows where it leads, of a hold, as far as that can be known now."""
        if self.under_way.action == "hold" and motion is not None:
            doubts = None if values is None else self._whereabouts(now)[0]
            self.under_way = hold.aimed(self.under_way, self.profile, motion, values, doubts)
        return self.under_way

    def brakes(self, now: float) -> bool:
        """Whether an action that answers speeds or efforts still brakes, if it does not take too long."""
        return now - self.under_way.since <= stop_actions.DAMPED_S and stop_actions.braking(
            self.under_way, self.profile, self.values(now))

    def held(self, now: float, over: bool) -> str:
        """What is to be said of a hold, in words: that a ramp became one, and once it is ``over`` which joints are not
        held yet, whenever there are fewer of them; else nothing."""
        if self.pressed:
            pressed, self.pressed = self.pressed, []
            return hold.let_go(pressed)
        if not over or self.under_way.action != "hold":
            return ""
        joints = hold.unknown(self.under_way)
        if len(joints) == len(self.unheld):
            return ""
        self.unheld = joints
        return hold.words(joints, self._whereabouts(now)[1])

    def found(self, now: float, last: Motion) -> Motion | None:
        """Rest where a hand is that was silent after its ``last`` motion, once that is known again."""
        values, doubts, readings = self.values(now), self._whereabouts(now)[0], self.watch.readings
        if values is None or doubts is None or readings is None:
            return None
        return hold.found(self.profile, last, values, [a or b for a, b in zip(doubts, readings.unsaid())])

    def values(self, now: float) -> Values | None:
        """The newest signals; None while those that the profile reads are stale."""
        return self._seen(lambda: self.watch.values if self.watch.seen(now) else None, None)

    def _attitude(self, values: Values | None, now: float) -> tuple[Values | None, bool]:
        """What is believed of ``values``, None where nobody sees the attitude; whether the height is sound, too."""
        watch = self.watch
        if values is None or not self._seen(lambda: watch.sees_attitude(now), False):
            return None, False
        # on the ground a quiet estimator's last bits rest
        return watch.believed, self._seen(lambda: watch.sound(now, stands=watch.rests(now)), False)

    def sees(self, now: float) -> bool:
        """Whether a robot that levels would know its attitude and its height."""
        return self._attitude(self.values(now), now)[1]

    def _moving(self, values: Values | None, now: float) -> Values | None:
        """``values``, where they say what may be sent; None while those of motion are stale."""
        return values if not self.looks or self._seen(lambda: self.watch.seen_moving(now), False) else None

    def _whereabouts(self, now: float) -> tuple[list[bool] | None, str]:
        """See :meth:`temporeal_bridge.guard.state_monitor.Watch.whereabouts`."""
        return self._seen(lambda: self.watch.whereabouts(now), (None, "the watch failed"))

    def _seen(self, ask: Callable[[], T], otherwise: T) -> T:
        """What the watch says; ``otherwise`` where it fails, which is counted."""
        try:
            return ask()
        except Exception:
            self.blind += 1
            return otherwise
