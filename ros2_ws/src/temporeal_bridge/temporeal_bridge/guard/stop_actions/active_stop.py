"""The stop action under way: which one, where it leads, and its next command.

It reads the robot through the guard's state monitor, and goes on without it where that fails: a stop must not depend on
it. When a stop begins, and which mode follows, is decided in :mod:`temporeal_bridge.guard.mode_machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from temporeal.robots.motion.rate_limiter import Motion
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.command_limits import window
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.guard.safety.fallback_actions import KEEPS, OFF_S
from temporeal_bridge.guard.stop_actions import hold, level, ramp_and_damp
from temporeal_bridge.guard.stop_actions.hover_thrust import HoverEstimate
from temporeal_bridge.guard.stop_actions.level import Levelling, Seen, Vehicle
from temporeal_bridge.guard.stop_actions.step import Step, Stopping, Values

T = TypeVar("T")


class ActiveStop:
    """Of one robot. Times are in s, monotonic.

    Attributes:
        under_way: the action.
        unheld: components of a hold of which the operator was told that their place is unknown.
        blind: how often it did without the state, because the monitor failed.
    """

    def __init__(self, config: GuardConfig, monitor: StateMonitor) -> None:
        self.config, self.profile, self.spec, self.monitor = config, config.profile, config.spec, monitor
        self.autopilot = config.autopilot
        self.vehicle = Vehicle(config.robot, config.spec, config.profile, config.autopilot)
        self.under_way = Stopping("silence", 0.0)
        self.unheld: list[int] = []
        self.pressed: list[int] = []  # components that turned a ramp into a hold, not announced yet
        self.blind = 0
        if self.profile.fingers is not None:
            hold.gentle(self.profile.limits)  # computed now, not at the stop

    @property
    def keeps(self) -> bool:
        """Whether the action keeps the robot where it brought it."""
        return self.under_way.action in KEEPS

    def begin(self, action: str, now: float, motion: Motion | None, grounded: bool, floor: bool) -> None:
        """``action`` begins. ``motion``: of the last command of this mission; ``grounded``: nothing that was sent can
        have lifted the robot; ``floor``: the mission began on the ground."""
        self.unheld, self.pressed = [], []
        values = self.values(now)
        self.under_way = (level.begin(now, motion, grounded, floor) if action == "level" else
                          ramp_and_damp.begin(self.profile, action, now, motion, values))
        if self.under_way.action == "off" and self.autopilot:  # it lands by itself once nothing comes
            self.silence(now)
        self._aim(values, now, motion)

    def silence(self, now: float) -> None:
        """Send nothing more."""
        self.under_way = Stopping("silence", now)

    def order_down(self) -> bool:
        """The operator repeats the order to stop; whether that changes anything."""
        ordered = None if self.autopilot else level.ordered_down(self.under_way)
        if ordered is not None:
            self.under_way = ordered
        return ordered is not None

    def next(self, now: float, motion: Motion | None, before: HoverEstimate, active: bool) -> Step:
        """The next step. ``before``: what the mission's commands and states have shown; ``active``: the node is."""
        stop, values = self.under_way, self.values(now)
        if stop.action == "silence":
            return Step(None, over=True)
        if isinstance(stop, Levelling):
            return self._levelled(stop, values, now, before, active)
        if stop.action == "hold" and motion is not None:
            stop, reach = self._aim(values, now, motion), window(self.profile, self._moving(values, now))
            return hold.held(stop, self.profile, self.spec.shape, motion, reach)
        moving = self._moving(values, now)
        self.under_way = stop = ramp_and_damp.note_speed(stop, self.profile, moving, now)
        step = ramp_and_damp.next_step(stop, self.profile, self.spec, motion, moving, now)
        return self._kept(stop, step, values, now) if stop.action == "ramp" else step

    def _kept(self, stop: Stopping, step: Step, values: Values | None, now: float) -> Step:
        """A ``step`` of a ramp, which is over once the robot is where it was told to be, or its place is unknown. A
        robot that presses for PRESS_S longer than it does not goes to where it is measured."""
        motion = step.motion
        if not step.over or motion is None or values is None or self._doubts(now)[0] is None:
            return step
        joints = hold.pressing(self.profile, motion, values)
        pressed = max(stop.pressed + (self.profile.limits.dt if joints else -self.profile.limits.dt), 0.0)
        if pressed > hold.PRESS_S:
            self.under_way, self.pressed = Stopping("hold", now), joints
            self._aim(values, now, motion)
        elif pressed != stop.pressed:
            self.under_way = replace(stop, pressed=pressed)
        return step._replace(over=not joints)

    def _levelled(
        self, stop: Levelling, values: Values | None, now: float, before: HoverEstimate, active: bool
    ) -> Step:
        if stop.action == "off":
            self.under_way, step = level.off(
                stop, self.spec, self.profile.limits.dt, (self.profile.level or {}).get("off_s", OFF_S))
            return step
        values, sound = self._attitude(values, now)
        waits = not self.autopilot and active and self.monitor.attitude_sound
        self.under_way, step = level.next_step(stop, self.vehicle, Seen(values, sound, now), before, waits)
        return step

    def _aim(self, values: Values | None, now: float, motion: Motion | None) -> Stopping:
        """The stop action; of a hold, with its targets as far as they are known now."""
        if self.under_way.action == "hold" and motion is not None:
            doubts = None if values is None else self._doubts(now)[0]
            self.under_way = hold.aimed(self.under_way, self.profile, motion, values, doubts)
        return self.under_way

    def brakes(self, now: float) -> bool:
        """Whether an action that answers speeds or efforts still brakes, and does not take too long."""
        return now - self.under_way.since <= ramp_and_damp.DAMPED_S and ramp_and_damp.brakes(
            self.under_way, self.profile, self.values(now))

    def message(self, now: float, over: bool) -> str:
        """What to announce: that a ramp became a hold; once a hold is ``over``, which joints are not held yet, whenever
        there are fewer of them; else "". Each is returned once."""
        if self.pressed:
            pressed, self.pressed = self.pressed, []
            return hold.release_message(pressed)
        if not over or self.under_way.action != "hold":
            return ""
        joints = hold.unknown(self.under_way)
        if len(joints) == len(self.unheld):
            return ""
        self.unheld = joints
        return hold.hold_message(joints, self._doubts(now)[1])

    def recovered(self, now: float, last: Motion) -> Motion | None:
        """Rest where a hand is that was silent after its ``last`` motion, once its place is known again."""
        values, doubts, readings = self.values(now), self._doubts(now)[0], self.monitor.readings
        if values is None or doubts is None or readings is None:
            return None
        return hold.recovered(self.profile, last, values, [a or b for a, b in zip(doubts, readings.unchanged())])

    def values(self, now: float) -> Values | None:
        """The newest signals; None while those that the profile reads are stale."""
        return self._seen(lambda: self.monitor.values if self.monitor.freshness.seen(now) else None, None)

    def sees(self, now: float) -> bool:
        """Whether attitude and height of a robot that levels would be known."""
        return self._attitude(self.values(now), now)[1]

    def _attitude(self, values: Values | None, now: float) -> tuple[Values | None, bool]:
        """The credible ones of ``values``, None while the attitude is unknown; and whether the height is sound."""
        monitor = self.monitor
        if values is None or not self._seen(lambda: monitor.sees_attitude(now), False):
            return None, False
        # on the ground the last bits of a quiet estimator do not change
        return monitor.credible, self._seen(lambda: monitor.sound(now, stands=monitor.on_ground(now)), False)

    def _moving(self, values: Values | None, now: float) -> Values | None:
        """``values`` that limit what may be sent; None while those of motion are not credible."""
        if not self.config.needs_state or self._seen(lambda: self.monitor.sees_motion(now), False):
            return values
        return None

    def _doubts(self, now: float) -> tuple[list[bool] | None, str]:
        """See :meth:`temporeal_bridge.guard.checks.state_monitor.StateMonitor.doubts`."""
        failed: tuple[list[bool] | None, str] = None, "the state monitor failed"
        return self._seen(lambda: self.monitor.doubts(now), failed)

    def _seen(self, ask: Callable[[], T], otherwise: T) -> T:
        """The monitor's answer; ``otherwise`` where it fails, which is counted."""
        try:
            return ask()
        except Exception:
            self.blind += 1
            return otherwise
