"""What the nodes of one mission have in common."""

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

AGES = 20_000  # figures that a node keeps: the last ones, it may be up for months; 0.6 MB each
FLIGHTS = 1000  # missions that it keeps
RECENT = 500  # figures that its diagnostics are of
IDLE = ("waiting", "ready", "finished")  # modes of the guard in which nothing is sent, and for no reason
MOVING = ("active", "stopping")  # modes in which the robot moves, or may: the guard does not end before
MODES = (*IDLE, "arming", *MOVING, "holding", "stopped")  # all of the guard
GREATEST = 2**53  # number of a mission: ROS's UInt64 has more, records of steps and commands are of float64
# Words of the guard's that are looked for in what it says, or in a record of it
TOLD_TO_END = "the guard was told to end"  # reason of the stop that a guard makes then, its last one
ESTOP_SILENT = "the operator's stop was not heard for"  # begins the reason of a stop that a guard makes by its clock
NOT_RESET = "not reset"  # begins its answer to a reset that may not be
MISSION_TIME = SignalSpec("mission_time", (), "s")  # s since time zero; made by the nodes


def refusal(number: int | str) -> str:
    """Begins the guard's answer to a start that may not be."""
    return f"mission {number} is refused"


def refused(reason: str) -> int | None:
    """Number of the mission whose start the guard refuses by saying ``reason``; None: it says something else."""
    found = re.match(refusal(r"(\d+)"), reason)
    return None if found is None else int(found[1])


class Announced(NamedTuple):
    """What the guard says of its mission: its mode, the mission's number, the stamp of its time zero [ns]."""

    mode: str
    number: int
    start_ns: int


def announced(received: Received) -> Announced | None:
    """What a message of topic ``mission`` says; None of one that no guard sent: what was said before holds."""
    try:
        header = messages.decode(received.type, received.data)
        mode, _, number = header.frame_id.partition(" ")
        return Announced(mode, int(number), messages.nanoseconds(header.stamp))
    except (messages.MessageError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class Told:
    """What the guard tells of a command that it has sent.

    Args:
        flight: number of the mission. step: of the controller; -1: a command of the guard's own.
        age: of the state [s] when the controller proposed it; NaN for the guard's own.
        since: when the guard began to make it [s since the mission began].
        left: when it had gone [s since the mission began]; the next one goes on from there.
        sent: the command [A] in its own units. proposed: what the controller asked for [A], NaN for the guard's own.
        marks: for each state topic, of the message that was in force (:func:`temporeal_bridge.interface.state_input.mark`).
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
        """As numbers: flight, step, age, since, left, how many components a command has, sent, proposed, marks."""
        return np.concatenate([
            (self.flight, self.step, self.age, self.since, self.left, len(self.sent)), self.sent, self.proposed,
            self.marks])

    @staticmethod
    def of(row: Any) -> Told:
        """What such a row says; ValueError if it is none."""
        values = np.asarray(row, dtype=float)
        size = int(values[5]) if len(values) > 5 and 0 < values[5] <= (len(values) - 6) // 2 else 0
        sent, proposed, marks = np.split(values[6:], [size, 2 * size])
        # marks are whole numbers: a record of before there was ``left`` has parts of commands in their place
        if not size or not np.isfinite([*values[[0, 1, 3, 4]], *marks]).all() or (marks != np.floor(marks)).any():
            raise ValueError(f"{len(values)} numbers are no record of a command")
        return Told(int(values[0]), int(values[1]), float(values[2]), float(values[3]), float(values[4]), sent,
                    proposed, [int(mark) for mark in marks])


@dataclass(frozen=True, eq=False)
class ToldChunk:
    """What the controller tells of a chunk that it uses. Times are [s since the first control step of the mission].

    Args:
        flight: number of the mission. number: of the chunk in it, from 0.
        at: when it was taken in. observed: when the observation that it was made of was.
        step: control step of that observation, from 0; those before the mission are of step 0, too.
        marks: for each state topic, of the message that was observed (:func:`temporeal_bridge.interface.state_input.mark`).
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
        """As numbers: flight, number, at, observed, step, how many marks, how many rows, marks, rows."""
        return np.concatenate([
            (self.flight, self.number, self.at, self.observed, self.step, len(self.marks), len(self.rows)), self.marks,
            np.reshape(self.rows, -1)])

    @staticmethod
    def of(row: Any) -> ToldChunk:
        """What such a row says; ValueError if it is none."""
        values = np.asarray(row, dtype=float)
        topics, rows = (int(values[5]), int(values[6])) if len(values) > 7 and np.isfinite(values).all() else (0, 0)
        marks, numbers = np.split(values[7:], [max(topics, 0)])
        if topics < 1 or rows < 1 or len(marks) != topics or not len(numbers) or len(numbers) % rows:
            raise ValueError(f"{len(values)} numbers are no record of a chunk")
        return ToldChunk(int(values[0]), int(values[1]), float(values[2]), float(values[3]), int(values[4]),
                         [int(mark) for mark in marks], numbers.reshape(rows, -1))


def check_numbers(name: str, first: int, count: int = 1) -> None:
    """``count`` missions from number ``first`` on have numbers that records bring back as they were."""
    if not 0 <= first <= GREATEST - (count - 1):
        less, more = (f" - {count - 1}", f", for {count} count up from it") if count > 1 else ("", "")
        raise ValueError(f"{name} is a whole number from 0 to 2^53{less}{more}; got {first}")


def task_signals(robot: RobotSpec, interface: Interface) -> dict[str, SignalSpec]:
    """Signals that a task adds to the robot's: what extra topics carry, and the mission's time."""
    added = {name: spec for name, spec in interface.carried.items() if name not in robot.signals}
    return {**added, MISSION_TIME.name: MISSION_TIME}


def check_fits(manifest: Manifest, robot: RobotSpec, interface: Interface) -> None:
    """The artifact is this robot's, and what it reads comes in by some topic of the interface."""
    check_robot(manifest, robot, task_signals(robot, interface))
    check_reads(interface, manifest.signals, own=(MISSION_TIME.name,))


def newest(figures: deque[float]) -> list[float]:
    """The last of the figures."""
    return list(islice(reversed(figures), RECENT))


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the maximum in milliseconds; None where nothing was measured."""
    if not seconds:
        return {"p50": None, "p99": None, "max": None}
    p50, p99, top = np.percentile(seconds, [50, 99, 100]) * 1e3
    return {"p50": float(p50), "p99": float(p99), "max": float(top)}
