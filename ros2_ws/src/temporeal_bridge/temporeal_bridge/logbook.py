"""What a bag tells of each flight: the controller's steps, what was proposed and sent, modes and events.

Times are seconds since the flight's time zero: by the nodes' own clocks where they say them, else by the recorder's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal_bridge import messages
from temporeal_bridge.bags import BagError, Recording
from temporeal_bridge.mission import Told, ToldChunk

SWAPPED_NS = 2_000_000  # messages of one node on two topics may be received in another order
BEFORE_NS = 50_000_000  # so much earlier than the controller's first step may the guard's words on a flight be received


@dataclass(frozen=True)
class Row:
    """One control step of the controller, or one command of the guard.

    Args:
        step: of the controller; -1: a command of the guard's own.
        at: time [s].
        marks: of the message of each state topic that it was made of (:func:`temporeal_bridge.state.mark`).
        missed: steps before it that were not made in their time (controller only).
    """

    step: int
    at: float
    marks: tuple[int, ...]
    missed: int = 0


@dataclass
class Flight:
    """One flight. ``proposed``: command [A] by step; ``sent``: (step, command) in order; ``age``: of the state behind
    each command [s] by step."""

    number: int
    start_ns: int
    steps: list[Row] = field(default_factory=list)
    basis: list[Row] = field(default_factory=list)
    proposed: dict[int, np.ndarray] = field(default_factory=dict)
    sent: list[tuple[int, np.ndarray]] = field(default_factory=list)
    age: dict[int, float] = field(default_factory=dict)
    modes: list[tuple[float, str]] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)  # time, code, reason
    verdict: dict[str, Any] = field(default_factory=dict)  # the monitor's last word
    mixed: dict[int, np.ndarray] = field(default_factory=dict)  # by step, the mix of two controllers that was asked for
    swapped: int | None = None  # the last step of the artifact that the flight began with; None: it flew to the end
    flown_by: str = ""  # name of that artifact, and the beginning of its identity
    chunks: list[ToldChunk] = field(default_factory=list)  # those that were used, of a policy that gives chunks

    @property
    def lost(self) -> int:
        """Steps of the controller of which the bag has no record."""
        return sum(row.step - row.missed - before.step - 1 for before, row in zip(self.steps, self.steps[1:]))


def flights(recording: Recording, namespace: str) -> tuple[list[Flight], int]:
    """The flights of one robot, and how many there are of which the bag lacks the beginning."""
    base = namespace.rstrip("/")
    found, partial = begun(recording, base)
    for message in recording.said:
        taker = TAKERS.get(message.topic.removeprefix(f"{base}/"))
        if taker is not None and message.topic.startswith(f"{base}/"):
            taker(found, message.at, message.decode())
    return found, partial


def begun(recording: Recording, base: str) -> tuple[list[Flight], int]:
    """A flight for every first step, with its steps."""
    out: list[Flight] = []
    partial: set[int] = set()
    for message in recording.of(f"{base}/policy/step"):
        number, step, missed, at, *marks = (float(x) for x in message.decode().data)
        row = Row(int(step), at, tuple(int(x) for x in marks), int(missed))
        if row.step == row.missed:
            out.append(Flight(int(number), message.at - round(at * 1e9)))
        if not out or out[-1].number != int(number):
            partial.add(int(number))
        elif not out[-1].steps or row.step > out[-1].steps[-1].step:  # two may tell one, as one relieves the other
            out[-1].steps.append(row)
    return out, len(partial)


def among(found: list[Flight], number: int, at: int, before_ns: int = BEFORE_NS) -> Flight | None:
    """The flight that a message is about: the last one begun by then, if it has that number."""
    last = next((flight for flight in reversed(found) if flight.start_ns - before_ns <= at), None)
    return last if last is not None and last.number == number else None


def _command(found: list[Flight], at: int, message: Any) -> None:
    try:
        told = Told.of(message.data)
    except ValueError as error:
        raise BagError(f"guard/command: {error}; was the bag recorded by an earlier version?") from error
    flight = among(found, told.flight, at)
    if flight is None:
        return
    flight.basis.append(Row(told.step, told.since, tuple(told.marks)))
    flight.sent.append((told.step, told.sent))
    if told.step >= 0:
        flight.proposed[told.step], flight.age[told.step] = told.proposed, told.age


def _chunk(found: list[Flight], at: int, message: Any) -> None:
    try:
        told = ToldChunk.of(message.data)
    except ValueError as error:
        raise BagError(f"policy/chunk: {error}") from error
    flight = among(found, told.flight, at, SWAPPED_NS)  # said after the step: not of a start that was void before it
    if flight is not None:
        flight.chunks.append(told)


def _mission(found: list[Flight], at: int, message: Any) -> None:
    mode, _, number = message.frame_id.partition(" ")
    flight = among(found, int(number), at)
    if flight is None:
        return
    stamp = messages.nanoseconds(message.stamp)
    if mode == "active" and abs(stamp - flight.start_ns) < 1_000_000_000:
        flight.start_ns = stamp  # by the controller's own clock
    if abs(stamp - flight.start_ns) < 1_000_000_000:  # else it is latched, of an earlier flight of this number
        flight.modes.append((1e-9 * (at - flight.start_ns), mode))


def _event(found: list[Flight], at: int, message: Any) -> None:
    said = json.loads(message.data)
    flight = among(found, int(said["flight"]), at)
    if flight is not None:
        since = said.get("t")
        flight.events.append((1e-9 * (at - flight.start_ns) if since is None else since, said["code"], said["reason"]))


def _verdict(found: list[Flight], at: int, message: Any) -> None:
    said = json.loads(message.data)
    flight = among(found, int(said.get("flight", -1)), at)
    if flight is not None and abs(said.get("start_ns", flight.start_ns) - flight.start_ns) < 1_000_000_000:
        flight.verdict = said  # else it is of an earlier flight of this number


def _swap(found: list[Flight], at: int, message: Any) -> None:
    """While an artifact is exchanged: where the weight of the successor is 1 it is done."""
    number, step, weight, *commands = (float(x) for x in message.data)
    flight = among(found, int(number), at)
    if flight is None:
        return
    old, other = np.split(np.array(commands), 2)
    flight.mixed[int(step)] = old + weight * (other - old)
    if weight == 1.0 and flight.swapped is None:
        flight.swapped = int(step)


def _artifact(found: list[Flight], at: int, message: Any) -> None:
    said = json.loads(message.data)
    for flight in found:
        if flight.start_ns > at or not flight.flown_by:
            flight.flown_by = f"{said['name']} ({said['identity'][:12]})"


TAKERS = {"policy/chunk": _chunk, "guard/command": _command, "mission": _mission, "guard/event": _event,
          "guard/swap": _swap, "guard/artifact": _artifact, "monitor/verdict": _verdict}
