"""The flights in a bag: the controller's steps, proposed and sent commands, modes and events.

Times are seconds since the flight's time zero, by the nodes' own clocks where they give them, else by the recorder's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import mission_digest
from temporeal_bridge import mission
from temporeal_bridge.guard.safety.reasons import CODES
from temporeal_bridge.mission import IDLE, NOT_RESET, ChunkRecord, CommandRecord, MissionStatus
from temporeal_bridge.recording import records
from temporeal_bridge.recording.bags import BagError, Recording
from temporeal_bridge.recording.records import RecordError, Row, Unread

SAME_NS = 1_000_000_000  # largest difference between time zeros of one flight, by two clocks of one machine
SWAPPED_NS = 2_000_000  # messages of one node on two topics may be received in another order
APART_NS = 60_000_000_000  # largest difference between a message's own time and its receipt by the recorder's clock
BEFORE_NS = 50_000_000  # the guard's messages on a flight may be received this long before the controller's first step

UNDER_WAY = ("arming", "active")  # modes of the guard in which a flight is not over

Handler = Callable[[list["RecordedFlight"], int, Any], None]
"""``handler(flights so far, receipt [ns], record)``"""


@dataclass
class RecordedFlight:
    """One flight.

    Args:
        steps: of the controller. basis: of each of the guard's commands.
        proposed: command [A] by step. sent: (step, command) in order.
        age: of the state behind each command [s] by step.
        work: the guard's time for each command, from its beginning until it was published [s] by step.
        modes: (time, mode). events: (time, code, reason). stops: the events that stopped the guard.
        verdict: the monitor's last one. drift: what the monitor noticed of the machine, in order.
        mixed: by step, the mixed command of an artifact swap.
        swapped: last step of the artifact that the flight began with; None: it flew to the end.
        flown_by: name of that artifact and the beginning of its identity.
        judges: digest of its robot, formula, constants, horizon and rate.
        chunks: those that were used, of a policy that gives chunks.
        shifts: offsets of the recorder's clock to its offset at the beginning [ns]: it was set, or had stood still.
        misfits: steps that name this flight and do not fit in. unread: those of them after its last step.
        refusal: why the guard did not let it begin.
        void: earlier starts of this mission, void because the autopilot had to be armed first. Each has its own time
            zero and steps; its modes and events are among these.
    """

    number: int
    start_ns: int
    steps: list[Row] = field(default_factory=list)
    basis: list[Row] = field(default_factory=list)
    proposed: dict[int, np.ndarray] = field(default_factory=dict)
    sent: list[tuple[int, np.ndarray]] = field(default_factory=list)
    age: dict[int, float] = field(default_factory=dict)
    work: dict[int, float] = field(default_factory=dict)
    modes: list[tuple[float, str]] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    stops: list[tuple[float, str, str]] = field(default_factory=list)
    verdict: dict[str, Any] = field(default_factory=dict)
    drift: list[dict[str, Any]] = field(default_factory=list)
    mixed: dict[int, np.ndarray] = field(default_factory=dict)
    swapped: int | None = None
    flown_by: str = ""
    judges: str = ""
    chunks: list[ChunkRecord] = field(default_factory=list)
    shifts: list[int] = field(default_factory=lambda: [0])
    misfits: set[int] = field(default_factory=set)
    unread: int = 0
    refusal: str = ""
    void: list[RecordedFlight] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Number of the controller's steps that the bag lacks."""
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
        """The stop that ended it: time, code, reason. None where it flew to its end, or the bag does not say. Stops
        between missions are published under the number of the last one, and do not count."""
        idle = next((at for at, mode in self.modes if mode in IDLE), np.inf)
        return None if self.rest == "finished" else next((stop for stop in self.stops if stop[0] <= idle), None)


class Flights(NamedTuple):
    """The flights of one robot, refused ones included; ``partial``: number of flights whose beginning the bag lacks;
    ``unread``: by topic, messages that no node of ours can have published."""

    found: list[RecordedFlight]
    partial: int
    unread: dict[str, Unread]


def flights(recording: Recording, namespace: str) -> Flights:
    """The flights of one robot."""
    found, partial, unread = list[RecordedFlight](), dict[int, set[int]](), dict[str, Unread]()
    # steps first: the guard's messages on a flight may have been received before them
    _dispatch(recording, namespace, {"policy/step": lambda *given: _step(partial, *given)}, found, unread)
    _dispatch(recording, namespace, {"mission": _mission}, found, unread)
    # then the refusals: a flight that did not begin continues the one before. Unread messages are counted below
    _dispatch(recording, namespace, {"guard/event": _refusal}, found, {})
    _dispatch(recording, namespace, HANDLERS, found, unread)
    command = unread.get("guard/command")
    if command is not None and not any(flight.basis for flight in found):
        raise BagError(f"guard/command: {command.why}; was the bag recorded by an earlier version?")
    for flight in found:
        flight.unread = len(after(flight, partial.get(flight.number, set())))
    return Flights(joined(found), len(partial), unread)


def joined(found: Sequence[RecordedFlight]) -> list[RecordedFlight]:
    """Each mission once: a start that is void, because the autopilot had to be armed first, belongs to the next one."""
    out = list[RecordedFlight]()
    for flight in found:
        if out and out[-1].number == flight.number and not out[-1].basis and {
                mode for _, mode in out[-1].modes} == {"arming"}:
            take_in(flight, out.pop())
        out.append(flight)
    return out


def take_in(flight: RecordedFlight, start: RecordedFlight) -> None:
    """``flight`` takes over its void ``start``, with that one's modes and events."""
    earlier = 1e-9 * (start.start_ns - flight.start_ns)
    flight.modes = [*((at + earlier, mode) for at, mode in start.modes), *flight.modes]
    flight.events = [*((at + earlier, code, why) for at, code, why in start.events), *flight.events]
    flight.void = [*start.void, start]
    start.modes, start.events, start.void = [], [], []


def _dispatch(
    recording: Recording, namespace: str, handlers: Mapping[str, Handler], found: list[RecordedFlight],
    unread: dict[str, Unread],
) -> None:
    """Give every message on one of our topics to its handler, and count those that cannot be read."""
    base = namespace.rstrip("/")
    for message in recording.messages:
        topic = message.topic.removeprefix(f"{base}/")
        if topic not in handlers or message.topic != f"{base}/{topic}":
            continue
        try:
            handlers[topic](found, message.at, records.read(topic, message))
        except RecordError as error:
            unread.setdefault(topic, Unread(str(error))).count += 1


def _step(partial: dict[int, set[int]], found: list[RecordedFlight], at: int, step: records.Step) -> None:
    """A first step begins a flight. ``partial``: by number, steps of flights whose beginning the bag lacks."""
    number, row = step
    if row.step == row.missed:
        found.append(RecordedFlight(number, at - round(1e9 * row.at)))
    if not found or found[-1].number != number:
        partial.setdefault(number, set()).add(row.step)
        return
    flight, steps = found[-1], found[-1].steps
    if not follows(flight, row, at) or (steps and len(row.marks) != len(steps[0].marks)):
        flight.misfits.add(row.step)
        raise RecordError(f"a step at {row.at:g} s of {len(row.marks)} marks is none of the flight that it names")
    if not timely(flight, row.at, at):
        flight.shifts.append(at - flight.start_ns - round(1e9 * row.at))
    if not steps or row.step > steps[-1].step:  # both controllers publish the step at which one relieves the other
        steps.append(row)


def timely(flight: RecordedFlight, since: float, at: int) -> bool:
    """Whether receipt at ``at`` [ns] agrees with a time ``since`` the flight began [s]."""
    return any(abs(flight.start_ns + shift + 1e9 * since - at) <= APART_NS for shift in flight.shifts)


def follows(flight: RecordedFlight, row: Row, at: int) -> bool:
    """Whether a step can be the next one: by its receipt, or by the step before it, whatever the clock did."""
    return timely(flight, row.at, at) or (
        bool(flight.steps) and 1e9 * abs(row.at - flight.steps[-1].at) <= APART_NS)


def after(flight: RecordedFlight, partial: set[int]) -> set[int]:
    """Steps after the last one of a flight that were not read as its own: misfits, or, where a clock that was set back
    has moved them before its beginning, ``partial``: steps without a beginning, if none of them is one of its own."""
    last = flight.steps[-1].step if flight.steps else -1
    return {step for step in flight.misfits if step > last} | (partial if partial and min(partial) > last else set())


def among(
    found: Sequence[RecordedFlight], number: int, at: int, before_ns: int = BEFORE_NS
) -> RecordedFlight | None:
    """The flight of a message: the last one begun by then, if it has that number. Refused ones do not count: the guard
    still publishes for the one before."""
    last = next((f for f in reversed(found) if f.start_ns - before_ns <= at and not f.refusal), None)
    return last if last is not None and last.number == number else None


def _command(found: list[RecordedFlight], at: int, record: CommandRecord) -> None:
    flight = among(found, record.flight, at)
    if flight is None:
        return
    if not timely(flight, record.since, at):
        raise RecordError(f"a command at {record.since:g} s is none of this flight, or of an earlier one")
    flight.basis.append(Row(record.step, record.since, tuple(record.marks)))
    flight.sent.append((record.step, record.sent))
    if record.step >= 0:
        flight.proposed[record.step], flight.age[record.step] = record.proposed, record.age
        flight.work[record.step] = record.left - record.since


def _chunk(found: list[RecordedFlight], at: int, record: ChunkRecord) -> None:
    flight = among(found, record.flight, at, SWAPPED_NS)  # published after the step: never of an earlier, void start
    if flight is None:
        return
    size = record.rows.shape[1]
    if not timely(flight, record.at, at) or (flight.chunks and size != flight.chunks[0].rows.shape[1]):
        raise RecordError(f"a chunk at {record.at:g} s of commands of {size} components is none of the flight it names")
    flight.chunks.append(record)


def _mission(found: list[RecordedFlight], at: int, status: MissionStatus) -> None:
    """The stamp says which start a status is about; without one it is latched, of an earlier flight of this number."""
    same = [f for f in found if f.number == status.number and f.start_ns - BEFORE_NS <= at
            and abs(status.start_ns - f.start_ns) < SAME_NS]
    if not same:
        return
    flight = min(same, key=lambda f: abs(status.start_ns - f.start_ns))
    if status.mode in UNDER_WAY:
        flight.start_ns = status.start_ns  # by the controller's own clock
    flight.modes.append((1e-9 * (at - flight.start_ns), status.mode))


def _refusal(found: list[RecordedFlight], at: int, event: records.Event) -> None:
    """A refused start. Not of a flight that did begin: the guard then refuses another one of its number."""
    number = mission.refused(event.reason)
    flight = None if number is None else among(found, number, at)
    if flight is not None and not any(mode in UNDER_WAY for _, mode in flight.modes):
        flight.refusal = event.reason


def _event(found: list[RecordedFlight], at: int, event: records.Event) -> None:
    refused = mission.refused(event.reason)  # published under the number of the flight before it
    flight = among(found, event.flight if refused is None else refused, at)
    if flight is None or (
            refused is not None and any(f.refusal == event.reason and f.number == refused for f in found)):
        return  # the refused flight keeps it already
    since = event.since
    if since is None or not timely(flight, since, at):  # the guard has counted from an earlier flight
        since = 1e-9 * (at - flight.start_ns)
    flight.events.append((since, event.code, event.reason))
    if stops(event):
        flight.stops.append(flight.events[-1])


def stops(event: records.Event) -> bool:
    """Whether the event is a stop of the guard. It publishes one once it stops: while still active it only warns. A
    refused start or reset has the code of the reason against it."""
    answers = mission.refused(event.reason) is not None or event.reason.startswith(NOT_RESET)
    return event.code in CODES and event.mode != "active" and not answers


def _verdict(found: list[RecordedFlight], at: int, verdict: dict[str, Any]) -> None:
    flight = among(found, verdict["flight"], at)
    if flight is None or abs(verdict.get("start_ns", flight.start_ns) - flight.start_ns) >= SAME_NS:
        return  # it is of an earlier flight of this number
    if not flight.judges or verdict.get("mission", flight.judges) == flight.judges:  # else of another formula
        flight.verdict = verdict


def _swap(found: list[RecordedFlight], at: int, mix: records.Mix) -> None:
    """A command of an artifact swap, which is complete where the successor's weight is 1."""
    flight = among(found, mix.flight, at)
    if flight is None:
        return
    flight.mixed[mix.step] = mix.command
    if mix.weight == 1.0 and flight.swapped is None:
        flight.swapped = mix.step


def _artifact(found: list[RecordedFlight], at: int, artifact: dict[str, Any]) -> None:
    for flight in found:
        if flight.start_ns > at or not flight.flown_by:
            flight.flown_by = f"{artifact['name']} ({artifact['identity'][:12]})"
            flight.judges = mission_digest(artifact["manifest"])


def _drift(found: list[RecordedFlight], at: int, noticed: dict[str, Any]) -> None:
    flight = among(found, noticed["flight"], at)
    if flight is not None and abs(noticed["start_ns"] - flight.start_ns) < SAME_NS and noticed not in flight.drift:
        flight.drift.append(noticed)


HANDLERS: Mapping[str, Handler] = {
    "policy/chunk": _chunk, "guard/command": _command, "guard/event": _event, "guard/swap": _swap,
    "guard/artifact": _artifact, "monitor/verdict": _verdict, "monitor/drift": _drift}
