"""What the nodes of one mission share: modes, records that they publish, figures that they keep."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, check_robot
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.interface.checks import check_reads
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Received

AGES = 20_000  # figures that a node keeps: the last ones, for it may run for months; 0.6 MB each
FLIGHTS = 1000  # missions that it keeps
RECENT = 500  # figures that its diagnostics cover
IDLE = ("waiting", "ready", "finished")  # modes of the guard in which it sends nothing, without a reason to stop
MOVING = ("active", "stopping")  # modes in which the robot moves, or may: the guard does not end in them
MODES = (*IDLE, "arming", *MOVING, "holding", "stopped")  # all modes of the guard
GREATEST = 2**53  # number of a mission: ROS's UInt64 has more, records of steps and commands are of float64
# Texts of the guard that other nodes and replays look for
END_REQUESTED = "the guard was told to end"  # reason of its last stop
ESTOP_SILENT = "the operator's stop was not heard for"  # begins the reason of a stop that the guard makes by its clock
NOT_RESET = "not reset"  # begins its answer to a refused reset
MISSION_TIME = SignalSpec("mission_time", (), "s")  # s since time zero; made by the nodes


def refusal(number: int | str) -> str:
    """Begins the guard's answer to a refused start."""
    return f"mission {number} is refused"


def refused(reason: str) -> int | None:
    """Number of the mission whose start the guard refuses with ``reason``; None: it is no refusal."""
    found = re.match(refusal(r"(\d+)"), reason)
    return None if found is None else int(found[1])


class MissionStatus(NamedTuple):
    """The guard's mode, the mission's number, and the stamp of its time zero [ns]."""

    mode: str
    number: int
    start_ns: int


def mission_status(received: Received) -> MissionStatus | None:
    """The content of a message on topic ``mission``; None of one that no guard published."""
    try:
        header = messages.decode(received.type, received.data)
        mode, _, number = header.frame_id.partition(" ")
        return MissionStatus(mode, int(number), messages.nanoseconds(header.stamp))
    except (messages.MessageError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class CommandRecord:
    """The guard's record of a command that it has sent. Times are [s since the mission began].

    Args:
        flight: number of the mission. step: of the controller; -1: a command of the guard's own.
        age: of the state [s] when the controller proposed it; NaN for the guard's own.
        since: when the guard began to make it.
        left: when it was published; the next one is due a period later.
        sent: the command [A] in its own units. proposed: what the controller asked for [A], NaN for the guard's own.
        marks: of the message in force on each state topic (:func:`temporeal_bridge.interface.state_input.mark`).
    """

    flight: int
    step: int
    age: float
    since: float
    left: float
    sent: Any
    proposed: Any
    marks: Sequence[int]

    def row(self) -> np.ndarray:
        """As numbers: flight, step, age, since, left, number of components of a command, sent, proposed, marks."""
        return np.concatenate([
            (self.flight, self.step, self.age, self.since, self.left, len(self.sent)), self.sent, self.proposed,
            self.marks])

    @staticmethod
    def of(row: Any) -> CommandRecord:
        """The record in such a row; ValueError if it is none."""
        values = np.asarray(row, dtype=float)
        size = int(values[5]) if len(values) > 5 and 0 < values[5] <= (len(values) - 6) // 2 else 0
        sent, proposed, marks = np.split(values[6:], [size, 2 * size])
        # marks are whole numbers: records from before ``left`` was added have parts of commands in their place
        if not size or not np.isfinite([*values[[0, 1, 3, 4]], *marks]).all() or (marks != np.floor(marks)).any():
            raise ValueError(f"{len(values)} numbers are no record of a command")
        return CommandRecord(int(values[0]), int(values[1]), float(values[2]), float(values[3]), float(values[4]), sent,
                             proposed, [int(mark) for mark in marks])


@dataclass(frozen=True, eq=False)
class ChunkRecord:
    """The controller's record of a chunk that it uses. Times are [s since the first control step of the mission].

    Args:
        flight: number of the mission. number: of the chunk in it, from 0.
        at: when it was taken in. observed: time of the observation behind it.
        step: control step of that observation, from 0; observations before the mission count as step 0.
        marks: of the observed message on each state topic (:func:`temporeal_bridge.interface.state_input.mark`).
        rows: the chunk [K, A].
    """

    flight: int
    number: int
    at: float
    observed: float
    step: int
    marks: Sequence[int]
    rows: np.ndarray

    def row(self) -> np.ndarray:
        """As numbers: flight, number, at, observed, step, number of marks, number of rows, marks, rows."""
        return np.concatenate([
            (self.flight, self.number, self.at, self.observed, self.step, len(self.marks), len(self.rows)), self.marks,
            np.reshape(self.rows, -1)])

    @staticmethod
    def of(row: Any) -> ChunkRecord:
        """The record in such a row; ValueError if it is none."""
        values = np.asarray(row, dtype=float)
        topics, rows = (int(values[5]), int(values[6])) if len(values) > 7 and np.isfinite(values).all() else (0, 0)
        marks, numbers = np.split(values[7:], [max(topics, 0)])
        if topics < 1 or rows < 1 or len(marks) != topics or not len(numbers) or len(numbers) % rows:
            raise ValueError(f"{len(values)} numbers are no record of a chunk")
        return ChunkRecord(int(values[0]), int(values[1]), float(values[2]), float(values[3]), int(values[4]),
                           [int(mark) for mark in marks], numbers.reshape(rows, -1))


def check_numbers(name: str, first: int, count: int = 1) -> None:
    """Refuse numbers of ``count`` missions from ``first`` on that records cannot hold exactly."""
    if not 0 <= first <= GREATEST - (count - 1):
        less, more = (f" - {count - 1}", f", for {count} count up from it") if count > 1 else ("", "")
        raise ValueError(f"{name} is a whole number from 0 to 2^53{less}{more}; got {first}")


def own_signals(manifest: Manifest) -> dict[str, SignalSpec]:
    """Signals that the controller makes itself: the mission's time, and the words or the program of what an operator
    types."""
    told = manifest.formulas
    if told is None and manifest.instruction is not None and not manifest.instruction.fixed:
        return {manifest.instruction.signal: manifest.instruction.spec, MISSION_TIME.name: MISSION_TIME}
    return {**({} if told is None else {told.signal: told.spec}), MISSION_TIME.name: MISSION_TIME}


def task_signals(robot: RobotSpec, interface: Interface) -> dict[str, SignalSpec]:
    """Signals that a task adds to the robot's: those of extra topics, and the mission's time."""
    added = {name: spec for name, spec in interface.carried.items() if name not in robot.signals}
    return {**added, MISSION_TIME.name: MISSION_TIME}


def check_fits(manifest: Manifest, robot: RobotSpec, interface: Interface) -> None:
    """The artifact is for this robot, and topics of the interface carry all signals that it reads."""
    check_robot(manifest, robot, {**task_signals(robot, interface), **own_signals(manifest)})
    check_reads(interface, manifest.signals, own=tuple(own_signals(manifest)))


def newest(figures: deque[float]) -> list[float]:
    """The last RECENT figures."""
    return list(islice(reversed(figures), RECENT))


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the maximum in milliseconds; None where nothing was measured."""
    if not seconds:
        return {"p50": None, "p99": None, "max": None}
    p50, p99, top = np.percentile(seconds, [50, 99, 100]) * 1e3
    return {"p50": float(p50), "p99": float(p99), "max": float(top)}
