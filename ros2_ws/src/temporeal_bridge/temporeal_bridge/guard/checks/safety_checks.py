"""Everything that must hold before and during a mission, in the order in which it is checked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from temporeal_bridge.guard.checks.competing_publishers import PublisherChecks
from temporeal_bridge.guard.checks.controller_session import ControllerSession
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.px4 import Offboard
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason


class SafetyChecks:
    """Times are in s, monotonic.

    Args:
        monitor, publishers, controller: what is known of the state, of others on the bus, and of the controller.
        active: whether the node is active: ROS 2 can deactivate a managed node.
        offboard: the autopilot between commands and motors; None: there is none.
    """

    def __init__(
        self, monitor: StateMonitor, publishers: PublisherChecks, controller: ControllerSession,
        active: Callable[[], bool], offboard: Offboard | None = None,
    ) -> None:
        self.monitor, self.publishers, self.controller, self.offboard = monitor, publishers, controller, offboard
        self.active, self.button = active, publishers.button

    def alone(self) -> bool:
        """Whether this guard may command the robot, and nobody else does."""
        return self.active() and not self.publishers.competing

    def autopilot(self, now: float) -> str:
        """Why the autopilot may get no command now; "": it may, or there is none."""
        return "" if self.offboard is None else self.offboard.refusal(now)

    def before_start(self, now: float) -> Reason:
        """Why no mission may begin. What was wrong with the state before is forgotten: somebody may have moved the
        robot."""
        if not self.active():
            return "inactive", "the guard is not active: ros2 lifecycle set configures and activates it"
        if self.controller.stranger:
            return "policy", self.controller.stranger
        self.monitor.begin(now)
        stop = self.button.reason(now)
        if stop == NOTHING and self.publishers.competing:
            stop = ("publisher", self.publishers.competing)
        return stop if stop != NOTHING else self.monitor.reason(now, None)

    def in_flight(self, now: float, sent: np.ndarray | None) -> Reason:
        """Why the mission must end. ``sent``: its last command [A]."""
        if not self.active():
            return "inactive", "deactivated"
        if self.publishers.competing:
            return "publisher", self.publishers.competing
        barred = self.autopilot(now)
        if barred:
            return "autopilot", barred
        seen = self.monitor.reason(now, sent)
        if seen != NOTHING:
            return seen
        silent = self.controller.silent(now, self.monitor.profile.silent_after_s)
        return silent if silent != NOTHING else self.button.reason(now)
