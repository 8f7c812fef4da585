"""The world of an actor: one robot, in real time, as signals and commands. Learning on a robot knows no more of it.

    sample = world.reset()                      # as long as it takes; the robot is ready for an episode
    sample = world.step(command)                # sends the command, and returns at the next sampling time

U numbers of a command. Nothing here reads a simulator or ROS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Protocol

import numpy as np

from temporeal.robots.signals import Schema
from temporeal.robots.spec import RobotSpec

LATE = 0.5  # of a period: a command that comes later than this counts as a late cycle, as in `temporeal bench deploy`


class WorldError(RuntimeError):
    """The world cannot go on: its robot is silent, its guard refuses, its simulator failed. Says what to do."""


@dataclass(frozen=True)
class Sample:
    """What is known at a sampling time.

    Args:
        signals: as measured, name -> [*shape] of the world's schema; pictures uint8 [H, W, 3].
        command: [U], in its units: what the robot *executed* in the period that ends here, after limits, guard and
            shield; None at an episode's first sample. The learner sees this, never what was proposed.
        changed: why it is not what was proposed; "": it is.
        failed: why the episode cannot go on, such as a fall, or a guard that took over; "": it can.
        late: cycles of that period whose command came more than :data:`LATE` of a period late, or not at all.
    """

    signals: Mapping[str, np.ndarray]
    command: np.ndarray | None = None
    changed: str = ""
    failed: str = ""
    late: int = 0


class RobotWorld(Protocol):
    """One robot in real time. After ``failed``, and before the first step, comes :meth:`reset`.

    Attributes:
        robot, command: what is moved, and by which of its commands.
        period_s: between samples. ``signals``: the schema of what every sample holds.
        name: what moves the robot: "mujoco 4.0.0", "ros2". Not part of what must be equal between actor and learner.
    """

    robot: RobotSpec
    command: str
    period_s: float
    signals: Schema
    name: str

    def reset(self) -> Sample:
        """Make the robot ready for an episode, as far as the world itself can: a simulation draws a new one, a robot
        waits until it is sampled and its guard lets commands through. A :class:`WorldError` says why it cannot.

        Where that moves anything, the world has ``resume``, too, which moves nothing: a second policy resets it then.
        """

    def step(self, command: np.ndarray) -> Sample:
        """Send ``command`` [U] at once, and return at the next sampling time with what was measured then."""

    def hold(self) -> None:
        """No command comes for a while, such as between episodes: the robot is to stay where it is, safely."""

    def close(self) -> None:
        """Stop the robot safely, and give back what is held. Nothing else may be called afterwards."""


class Pacer:
    """The clock of a world: cycles at ``period_s``, on a schedule that no late cycle moves.

    Args:
        now, sleep: the clock, s.
    """

    def __init__(
        self, period_s: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.period_s, self.now, self.sleep = period_s, now, sleep
        self.due, self.delay = now(), 0.0

    def start(self) -> None:
        """A first cycle begins now."""
        self.due = self.now()

    def sent(self) -> int:
        """The command of this cycle is sent now. Returns 1 where that is late, else 0; ``delay``: s since the cycle
        began."""
        self.delay = self.now() - self.due
        return int(self.delay > LATE * self.period_s)

    def wait(self) -> int:
        """Wait until the next cycle begins. Returns how many cycles passed meanwhile without a command: who comes late
        does not catch up."""
        self.due += self.period_s
        left = self.due - self.now()
        if left > 0:
            self.sleep(left)
            return 0
        passed = floor(-left / self.period_s)
        self.due += passed * self.period_s
        return passed
