"""The plan of a flight, for its checks: the robot as it should be, and the artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.interface.interface import Interface

Propose = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""The artifact's first command for the signals of the robot, from the memory that a mission begins with."""


@dataclass(frozen=True)
class Plan:
    """What is going to run.

    Attributes:
        profile: what the guard will demand of the artifact's command.
        command: that command.
        golden: the artifact's recorded trace by signal name, [T, *shape]; it reads these signals.
        propose: its first command; None where it cannot be loaded.
    """

    robot: RobotSpec
    interface: Interface
    profile: Profile
    command: CommandSpec
    golden: Mapping[str, np.ndarray] = field(default_factory=dict)
    propose: Propose | None = None
