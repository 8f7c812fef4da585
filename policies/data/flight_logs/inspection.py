"""All checks of one log, in the order in which one is the ground of the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs import channels, clocks, physics, response
from temporeal.policies.data.flight_logs.flight_log import (
    COMMAND,
    GOOD,
    MARKED,
    MOTORS,
    UNKNOWN,
    WRONG,
    Finding,
    FlightLog,
    Marks,
)
from temporeal.policies.data.flight_logs.motion import Even, even
from temporeal.robots.spec import RobotSpec

NEEDED = ("mass", "inertia", "thrust_curve", "arm", "motor_gain")
"""Parameters of a spec that the answer to commands is compared with."""
PHYSICS = ("gravity", "orientation", "acceleration", "velocity", "robot")
"""Checks of which one at least must hold for a log to be called good."""
ORDER = (WRONG, MARKED, UNKNOWN, GOOD)


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Args:
        measured: by stream, which samples are measurements as far as can be told [T].
        even: the log on a grid; None: its streams have no time in common.
    """

    log: FlightLog
    findings: tuple[Finding, ...]
    measured: Mapping[str, Marks]
    even: Even | None

    def of(self, *statuses: str) -> list[Finding]:
        """The findings of these statuses."""
        return [each for each in self.findings if each.status in statuses]

    @property
    def defects(self) -> set[str]:
        """The names of what is wrong or marked."""
        return {each.defect for each in self.of(WRONG, MARKED)}

    @property
    def verdict(self) -> str:
        """The worst status; what a log cannot tell is no fault of it, but for one that physics says nothing of."""
        found = {each.status for each in self.findings}
        judged = any(each.status == GOOD and each.check in PHYSICS for each in self.findings)
        return next((status for status in (WRONG, MARKED) if status in found), GOOD if judged else UNKNOWN)


def inspect(log: FlightLog, robot: RobotSpec | None = None) -> Inspection:
    """All checks.

    Args:
        robot: whose log it is said to be; None: nobody says, and commands are compared with nothing.
    """
    found, measured = channels.check(log)
    if any(each.defect == channels.CLOCK_SET for each in found):
        return Inspection(log, ordered(found), measured, None)
    grid = even(log, measured)
    doubted = set[str]()
    if grid is not None:
        judged = physics.check(grid)
        found += judged
        doubted = {each.subject for each in judged if each.status == WRONG}
    found += clocks.check(log, grid, doubted)
    if grid is not None:
        known = any(each.check == "orientation" and each.status == GOOD for each in found)
        # a sensor that is clipped answers less than the robot did
        clipped = {each.subject.partition(".")[0] for each in found if each.defect == "clipped"} - {COMMAND}
        found += response.check(grid, comparable(robot), doubted | clipped, known)
    return Inspection(log, ordered(found), measured, grid)


def comparable(robot: RobotSpec | None) -> RobotSpec | None:
    """The robot, if its spec says how it answers its motors."""
    return robot if robot is not None and all(name in robot.parameters for name in NEEDED) else None


def ordered(found: list[Finding]) -> tuple[Finding, ...]:
    """The worst first, else in the order of the checks."""
    return tuple(sorted(found, key=lambda each: ORDER.index(each.status)))


def align(inspection: Inspection, robot: RobotSpec | None) -> Inspection:
    """The inspection of the log whose two clocks are made one; the same where they are one."""
    two = [each for each in inspection.of(WRONG) if each.defect == "two clocks"]
    if not two:
        return inspection
    if "offset_s" not in two[0].figures or two[0].subject.startswith(MOTORS):
        raise DataError(f"{inspection.log.path}: {two[0].said}; --align corrects motion capture against the IMU alone")
    log = clocks.aligned(inspection.log, two[0])
    return inspect(log, robot)
