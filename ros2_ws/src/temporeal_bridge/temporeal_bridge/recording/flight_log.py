"""What a bag tells of each flight: the controller's steps, what was proposed and sent, modes and events.

Times are seconds since the flight's time zero: by the nodes' own clocks where they say them, else by the recorder's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import mission_digest
from temporeal_bridge import mission
from temporeal_bridge.guard.safety import CODES
from temporeal_bridge.mission import IDLE, NOT_RESET, ChunkRecord, CommandRecord, MissionStatus
from temporeal_bridge.recording import records
from temporeal_bridge.recording.bags import BagError, Recording
from temporeal_bridge.recording.records import RecordError, Row, Unread

SAME_NS = 1_000_000_000  # between two times zero of one flight, by two clocks of one machine
SWAPPED_NS = 2_000_000  # messages of one node on two topics may be received in another order
APART_NS = 60_000_000_000  # from the time that a message says to its receipt, as the recorder's clock stood
BEFORE_NS = 50_000_000  # so much earlier than the controller's first step may the guard's words on a flight be received

UNDER_WAY = ("arming", "active")  # modes of the guard in which a flight is not over

Taker = Callable[[list["Flight"], int, Any], None]


@dataclass
class Flight:
    """One flight. ``proposed``: command [A] by step; ``sent``: (step, command) in order; ``age``: of the state behind
    each command [s] by step; ``work``: of the guard's with it, from when it begins to make it until it has gone [s] by
    step; ``shifts``: by how much more than at its beginning the recorder's clock was ahead, once it was stepped or the
    recorder had stood still [ns]; ``misfits``: steps that name it and do not fit in; ``unread``: those that come after
    its last one; ``barred``: why the guard did not let it begin; ``void``: its starts before this one, void because the
    autopilot had to be armed first: each with its own time zero and steps, its modes and events are among these."""

    number: int
    start_ns: int
    steps: list[Row] = field(default_factory=list)
    basis: list[Row] = field(default_factory=list)
    proposed: dict[int, np.ndarray] = field(default_factory=dict)
    sent: list[tuple[int, np.ndarray]] = field(default_factory=list)
    age: dict[int, float] = field(default_factory=dict)
    work: dict[int, float] = field(default_factory=dict)
    modes: list[tuple[float, str]] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)  # time, code, reason
    stops: list[tuple[float, str, str]] = field(default_factory=list)  # those by which the guard was stopped
    verdict: dict[str, Any] = field(default_factory=dict)  # the monitor's last word
    mixed: dict[int, np.ndarray] = field(default_factory=dict)  # by step, the mix of two controllers that was asked for
    swapped: int | None = None  # the last step of the artifact that the flight began with; None: it flew to the end
    flown_by: str = ""  # name of that artifact, and the beginning of its identity
    judges: str = ""  # digest of its robot, formula, constants, horizon and rate
    chunks: list[ChunkRecord] = field(default_factory=list)  # those that were used, of a policy that gives chunks
    shifts: list[int] = field(default_factory=lambda: [0])
    misfits: set[int] = field(default_factory=set)
    unread: int = 0
    barred: str = ""
    void: list[Flight] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Steps of the controller of which the bag has no record."""
        return sum(row.step - row.missed - before.step - 1 for before, row in zip(self.steps, self.steps[1:]))

    @property
    def over(self) -> float:
        """When it was over [s]; infinite where the bag ends before."""
        return next((at for at, mode in self.modes if mode not in UNDER_WAY), np.inf)

    @property
    def rest(self) -> str:
        """The mode in which it came to rest; empty where the bag ends before."""
        return next((mode for _, mode in self.modes if mode not in (*UNDER_WAY, "stopping")), "")

    @property
    def stop(self) -> tuple[float, str, str] | None:
        """What it was stopped by: time, code, reason. None where it flew to its end, or the bag does not tell. Between
        missions the guard can be stopped, too, and says so in the name of the last one."""
        idle = next((at for at, mode in self.modes if mode in IDLE), np.inf)
        return None if self.rest == "finished" else next((stop for stop in self.stops if stop[0] <= idle), None)


class Flights(NamedTuple):
    """The flights of one robot, those that the guard did not let begin among them; ``partial``: how many there are of
    which the bag lacks the beginning; ``unread``: by topic, messages that no node of ours can have said."""

    found: list[Flight]
    partial: int
    unread: dict[str, Unread]


def flights(recording: Recording, namespace: str) -> Flights:
    """What the bag tells of one robot."""
    found, partial, unread = list[Flight](), dict[int, set[int]](), dict[str, Unread]()
    # steps first: the guard's words on a flight may have been received before them
    _hand_out(recording, namespace, {"policy/step": lambda *said: _step(partial, *said)}, found, unread)
    _hand_out(recording, namespace, {"mission": _mission}, found, unread)
    # then which of them did not begin: in those the one before goes on. What cannot be read is counted below
    _hand_out(recording, namespace, {"guard/event": _refusal}, found, {})
    _hand_out(recording, namespace, TAKERS, found, unread)
    command = unread.get("guard/command")
    if command is not None and not any(flight.basis for flight in found):
        raise BagError(f"guard/command: {command.why}; was the bag recorded by an earlier version?")
    for flight in found:
        flight.unread = len(after(flight, partial.get(flight.number, set())))
    return Flights(joined(found), len(partial), unread)


def joined(found: Sequence[Flight]) -> list[Flight]:
    """Each mission once: a start that is void, because the autopilot had to be armed first, belongs to the next one."""
    out = list[Flight]()
    for flight in found:
        if out and out[-1].number == flight.number and not out[-1].basis and {
                mode for _, mode in out[-1].modes} == {"arming"}:
            take_in(flight, out.pop())
        out.append(flight)
    return out


def take_in(flight: Flight, start: Flight) -> None:
    """``flight`` takes its void ``start``, with what was said then."""
    earlier = 1e-9 * (start.start_ns - flight.start_ns)
    flight.modes = [*((at + earlier, mode) for at, mode in start.modes), *flight.modes]
    flight.events = [*((at + earlier, code, why) for at, code, why in start.events), *flight.events]
    flight.void = [*start.void, start]
    start.modes, start.events, start.void = [], [], []


def _hand_out(
    recording: Recording, namespace: str, takers: Mapping[str, Taker], found: list[Flight], unread: dict[str, Unread]
) -> None:
    """Give every message on a topic of ours to its taker. One that nobody can make anything of is counted."""
    base = namespace.rstrip("/")
    for message in recording.said:
        topic = message.topic.removeprefix(f"{base}/")
        if topic not in takers or message.topic != f"{base}/{topic}":
            continue
        try:
            takers[topic](found, message.at, records.read(topic, message))
        except RecordError as error:
            unread.setdefault(topic, Unread(str(error))).count += 1


def _step(partial: dict[int, set[int]], found: list[Flight], at: int, told: records.Step) -> None:
    """A first step begins a flight. ``partial``: by number, steps of those of which the bag lacks the beginning."""
    number, row = told
    if row.step == row.missed:
        found.append(Flight(number, at - round(1e9 * row.at)))
    if not found or found[-1].number != number:
        partial.setdefault(number, set()).add(row.step)
        return
    flight, steps = found[-1], found[-1].steps
    if not follows(flight, row, at) or (steps and len(row.marks) != len(steps[0].marks)):
        flight.misfits.add(row.step)
        raise RecordError(f"a step at {row.at:g} s of {len(row.marks)} marks is none of the flight that it names")
    if not timely(flight, row.at, at):
        flight.shifts.append(at - flight.start_ns - round(1e9 * row.at))
    if not steps or row.step > steps[-1].step:  # two may tell one, as one relieves the other
        steps.append(row)


def timely(flight: Flight, since: float, at: int) -> bool:
    """Whether what was received at ``at`` [ns] can have been so long ``since`` the flight began [s]."""
    return any(abs(flight.start_ns + shift + 1e9 * since - at) <= APART_NS for shift in flight.shifts)


def follows(flight: Flight, row: Row, at: int) -> bool:
    """Whether a step can be the next one: by its receipt, or by the step before it, whatever the clock did."""
    return timely(flight, row.at, at) or (
        bool(flight.steps) and 1e9 * abs(row.at - flight.steps[-1].at) <= APART_NS)


def after(flight: Flight, partial: set[int]) -> set[int]:
    """Steps after the last one of a flight that were not read as its own: refused, or, where a clock that was set back
    has put them before its beginning, ``partial``: those without a beginning, if none of them is one of its own."""
    last = flight.steps[-1].step if flight.steps else -1
    return {step for step in flight.misfits if step > last} | (partial if partial and min(partial) > last else set())


def among(found: Sequence[Flight], number: int, at: int, before_ns: int = BEFORE_NS) -> Flight | None:
    """The flight that a message is about: the last one begun by then, if it has that number. One that the guard did
    not let begin is none: the guard speaks of the one before it."""
    last = next((f for f in reversed(found) if f.start_ns - before_ns <= at and not f.barred), None)
    return last if last is not None and last.number == number else None


def _command(found: list[Flight], at: int, told: CommandRecord) -> None:
    flight = among(found, told.flight, at)
    if flight is None:
        return
    if not timely(flight, told.since, at):
        raise RecordError(f"a command at {told.since:g} s is none of this flight, or of an earlier one")
    flight.basis.append(Row(told.step, told.since, tuple(told.marks)))
    flight.sent.append((told.step, told.sent))
    if told.step >= 0:
        flight.proposed[told.step], flight.age[told.step] = told.proposed, told.age
        flight.work[told.step] = told.left - told.since


def _chunk(found: list[Flight], at: int, told: ChunkRecord) -> None:
    flight = among(found, told.flight, at, SWAPPED_NS)  # said after the step: not of a start that was void before it
    if flight is None:
        return
    size = told.rows.shape[1]
    if not timely(flight, told.at, at) or (flight.chunks and size != flight.chunks[0].rows.shape[1]):
        raise RecordError(f"a chunk at {told.at:g} s of commands of {size} components is none of the flight it names")
    flight.chunks.append(told)


def _mission(found: list[Flight], at: int, told: MissionStatus) -> None:
    """Which start it is about its stamp says; one that is of none is latched, of an earlier flight of this number."""
    same = [f for f in found if f.number == told.number and f.start_ns - BEFORE_NS <= at
            and abs(told.start_ns - f.start_ns) < SAME_NS]
    if not same:
        return
    flight = min(same, key=lambda f: abs(told.start_ns - f.start_ns))
    if told.mode in UNDER_WAY:
        flight.start_ns = told.start_ns  # by the controller's own clock
    flight.modes.append((1e-9 * (at - flight.start_ns), told.mode))


def _refusal(found: list[Flight], at: int, told: records.Event) -> None:
    """A start that may not be: not one that was let begin, after which the guard refuses another of its number."""
    number = mission.refused(told.reason)
    flight = None if number is None else among(found, number, at)
    if flight is not None and not any(mode in UNDER_WAY for _, mode in flight.modes):
        flight.barred = told.reason


def _event(found: list[Flight], at: int, told: records.Event) -> None:
    refused = mission.refused(told.reason)  # which is said in the name of the flight before it
    flight = among(found, told.flight if refused is None else refused, at)
    if flight is None or (refused is not None and any(f.barred == told.reason and f.number == refused for f in found)):
        return  # what a start was barred by it keeps
    since = told.since
    if since is None or not timely(flight, since, at):  # the guard has counted from an earlier flight
        since = 1e-9 * (at - flight.start_ns)
    flight.events.append((since, told.code, told.reason))
    if stops(told):
        flight.stops.append(flight.events[-1])


def stops(told: records.Event) -> bool:
    """Whether the guard says that it was stopped. It does so once it stops: while it is still active it only warns. A
    start or a reset that may not be has the code of what it may not be for."""
    answers = mission.refused(told.reason) is not None or told.reason.startswith(NOT_RESET)
    return told.code in CODES and told.mode != "active" and not answers


def _verdict(found: list[Flight], at: int, said: dict[str, Any]) -> None:
    flight = among(found, said["flight"], at)
    if flight is None or abs(said.get("start_ns", flight.start_ns) - flight.start_ns) >= SAME_NS:
        return  # it is of an earlier flight of this number
    if not flight.judges or said.get("mission", flight.judges) == flight.judges:  # else of another formula
        flight.verdict = said


def _swap(found: list[Flight], at: int, told: records.Mix) -> None:
    """While an artifact is exchanged: where the weight of the successor is 1 it is done."""
    flight = among(found, told.flight, at)
    if flight is None:
        return
    flight.mixed[told.step] = told.command
    if told.weight == 1.0 and flight.swapped is None:
        flight.swapped = told.step


def _artifact(found: list[Flight], at: int, said: dict[str, Any]) -> None:
    for flight in found:
        if flight.start_ns > at or not flight.flown_by:
            flight.flown_by = f"{said['name']} ({said['identity'][:12]})"
            flight.judges = mission_digest(said["manifest"])


TAKERS: Mapping[str, Taker] = {
    "policy/chunk": _chunk, "guard/command": _command, "guard/event": _event, "guard/swap": _swap,
    "guard/artifact": _artifact, "monitor/verdict": _verdict}
