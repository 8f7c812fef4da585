"""Whether the guard's commands have lifted a quadrotor, and how it hovers: what ``level`` must know before it
begins."""

from __future__ import annotations

from collections.abc import Callable

from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.guard.safety.fallback_actions import FLIES_S
from temporeal_bridge.guard.stop_actions.ground import Ground
from temporeal_bridge.guard.stop_actions.hover_thrust import HoverEstimate, lifts, nominal_thrust, updated


class Airborne:
    """Fed with every command. A robot that does not level has none of it. Times are in s, monotonic.

    Attributes:
        levels: whether a stop action levels.
        ground: whether the robot stands, by the commands of all missions. estimate: of this mission's hover thrust.
        below: height [m] below which a robot stands where a mission begins.
    """

    def __init__(self, config: GuardConfig, monitor: StateMonitor) -> None:
        profile = config.profile
        self.config, self.monitor, self.levels = config, monitor, config.levels
        flies_s = (profile.level or {}).get("flies_s", FLIES_S)
        self.ground, self.estimate = Ground(lifts(config.robot) if self.levels else 1.0, flies_s), HoverEstimate()
        self.below = max((profile.level or {}).get("landed_m", 0.0), profile.unlock_below_m or 0.0)
        self.nominal = nominal_thrust(config.robot) if self.levels else 1.0  # N

    def begin(self, now: float) -> None:
        """A mission begins."""
        self.estimate = HoverEstimate()
        self.monitor.grounded = self.levels and not self.flies(now)
        if self.levels:
            self.ground.begin(float(self.monitor.values["height"]), self.below)

    def flies(self, now: float) -> bool:
        """Whether the robot is in the air because of this guard: an earlier mission lifted it a moment ago, and it has
        not landed. Its height or speed says nothing: it may stand on a table, or be carried. A robot that somebody else
        flies goes on by his setpoints, one of an earlier guard by its firmware, and an autopilot lands by itself."""
        level = self.config.profile.level
        return (level is not None and not self.config.autopilot and self.ground.flies(now)
                and float(self.monitor.values["height"]) > level["landed_m"])

    def grounded(self, began: float, sent: bool, sees: Callable[[], bool]) -> bool:
        """Whether no command of the mission that ``began`` [s] can have lifted the robot. ``sent``: whether there was
        one; a mission may begin in the air, and then a robot with too little thrust falls.

        Nor has a robot left the floor that was sent little, never was seen to rise, and whose height is unknown (unless
        ``sees()``): a thrust that levels may carry it to the ceiling."""
        if not self.monitor.grounded:
            return False
        if self.ground.lifted_at < began:
            return not sent or self.ground.stands
        return self.ground.floor and not self.estimate.rose and not sees()

    def push(self, thrust: float, now: float, periods: int = 1) -> None:
        """``thrust`` [N] is sent, or was left in force for ``periods``: it may lift the robot, sooner or later."""
        velocity = self.monitor.credible.get("base_vel_w") if self.monitor.freshness.seen(now) else None
        speed = None if velocity is None else velocity.item(2)
        if self.ground.push(thrust, periods * self.config.period, now, speed) and self.monitor.grounded:
            self.monitor.lift(now)

    def hovers(self, thrust: float, now: float) -> None:
        """The controller's ``thrust`` [N] was sent for the time ``now``."""
        self.estimate = updated(
            self.estimate, self.below, thrust / self.nominal, self.monitor.values, now, self.config.period)
