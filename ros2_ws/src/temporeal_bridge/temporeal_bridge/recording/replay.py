"""Flies a recording again: the real controller and guard, in fake time, on the raw bytes that were recorded.

Which message each step was made of is not a matter of the order in which a third process received them: the controller
says it with every step (``policy/step``), the guard with every command (``guard/command``). Here each node gets the
messages by the recorder's time, but one that a step was made of always before it, and the next one after it; and a
step is made when the recording says so, whatever the node's own schedule. That a mission begins, and that it is over,
the controller says together with a command: the guard hears it when it did then. A step that led to no command came
before its turn; it is made at the soonest that it can have come (:func:`made_at`). All else is the nodes' own doing:
what is proposed, what is limited, when a flight is stopped and how.

A policy that gives chunks was run by a worker. The controller says of which observation each chunk is that it used, and
when it came (``policy/chunk``): the chunks are made again of those observations and compared, and taken in when they
came then. How fast a worker is, is not repeated.

A guard that was told to end (Ctrl-C) says so in an event: it is told at that time, and ends when it may. A stop of the
operator's of which the bag has the event only is asked for when that says, so that the rest can be compared; but it is
counted, and the flight differs: nobody who is in the bag has asked for it.

What a bag does not hold cannot happen again: a second publisher of commands, a deactivation. How long a step took is
not repeated either. A stop that the guard found by its clock (a stale state, a silent
controller) is found within a tick of it: a command may be sent more or less. How old a state was then is known by the
recorder's time only, which may have stood still as well: commands of the guard's own may differ by that.

How long the robot had rested before the bag began is not in it. Of a mission that starts in a bag's first 0.2 s it is
taken for granted: the guard of then let it start.

Where an autopilot stands between commands and motors, its status comes from the bag, so the guard arms and waits as it
did; the start that was void until then is made again, too. What is asked of the autopilot on the way is not compared.

One artifact is flown again. Where another one took over in flight (:mod:`temporeal_bridge.guard.artifact_swap`), a
flight is compared up to that step; and what was sent not where it was a mix of two.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, Used
from temporeal_bridge.guard import hold, stop_actions
from temporeal_bridge.guard_node import TICK_S, GuardNode
from temporeal_bridge.interface.interface import Interface, armed_by
from temporeal_bridge.interface.state_input import StateReader, mark
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.mission import END_REQUESTED, ESTOP_SILENT, IDLE, MISSION_TIME, NOT_RESET, ChunkRecord, refused
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recording import flight_log
from temporeal_bridge.recording.bags import BagError, Recording, Said
from temporeal_bridge.recording.flight_analysis import full
from temporeal_bridge.recording.flight_log import Flight, Row
from temporeal_bridge.recording.records import Unread, remarks
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.messages import MessageError
from temporeal_bridge.transports.transport import QOS, Received

TOLERANCE = 1e-5  # of each component of a command, in its unit
INPUTS = ("mission/stop", "mission/reset", "estop", "monitor/verdict")  # what others say to the guard
OURS = ("policy/step", "guard/command", "guard/event", "guard/artifact", "mission", "guard/swap", "policy/chunk")
SWAPS = ("swap", "swap_refused", "swapped")  # codes of events that nobody but a successor can bring about
STOPS = ("operator", "violated")  # codes of stops that somebody asked for
LEAD_S = 1.0  # that the nodes are there before the first message
FIRST_S = 0.2  # of a recording: a recorder that has just started may have got what had waited for it all at once
AT_ONCE_NS = 2_000_000  # between the reason and the first command of the stop action, where that does not wait
TOLD_NS = 50_000_000  # ... and from that to its event, on a busy machine; chosen
ARMED_NS = 20_000_000  # so late may a recorder hear, chosen, that the autopilot obeys, by which a mission has begun
NOT_SEEN: tuple[float, Mapping[str, np.ndarray]] = (-inf, {})
ASKED_S = (-0.005, 0.05)  # from when such a word was recorded to the event that it led to


@dataclass(frozen=True)
class Compared:
    """Commands of one kind, recorded against replayed.

    Args:
        count: those compared.
        differing: those of them that differ by more than the tolerance in some component.
        largest: greatest difference [A]; infinite where the length differs or a number is not finite on one side only.
        first: step (of the guard's own commands and of rows of chunks: how many commands, or chunks, were before) of
            the first that differs, None: none does.
        missing: recorded, and not replayed.
        extra: replayed, and not recorded.
    """

    count: int
    differing: int
    largest: tuple[float, ...]
    first: int | None
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.differing or self.missing or self.extra)


@dataclass(frozen=True)
class FlightReplay:
    """One flight, recorded against replayed.

    Args:
        modes, events: (recorded, replayed) names of modes and codes of events, in order.
        guessed: steps that were made of a message that the bag lacks: they got the one before it.
        lost: steps of the controller of which the bag has no record: they got the state of the next one that has.
        swapped: the last step that was compared, for then another artifact had taken over; None: all were.
        mixed: steps in which a mix of two controllers was sent, which is not compared.
        chunks: the rows of the chunks that were used; None: the policy gives single commands.
        unmade: chunks whose observation the bag lacks: they are not compared, and played as recorded.
        unrecorded: chunks that were used and are not in the bag: what was proposed until the next one differs.
        flown_by: the artifact that the flight began with.
        unread: steps after the last one that was replayed, which could not be read as this flight's.
        unasked: stops of the operator's for which the bag has no message: the recorder missed it, or nobody said any.
    """

    flight: int
    start_ns: int
    steps: int
    proposed: Compared
    sent: Compared
    own: Compared
    modes: tuple[tuple[str, ...], tuple[str, ...]]
    events: tuple[tuple[str, ...], tuple[str, ...]]
    guessed: int
    lost: int
    swapped: int | None = None
    mixed: int = 0
    flown_by: str = ""
    chunks: Compared | None = None
    unmade: int = 0
    unrecorded: int = 0
    unread: int = 0
    unasked: int = 0

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return (self.proposed.equal and self.sent.equal and self.own.equal
                and (self.chunks is None or (self.chunks.equal and self.chunks.count > 0))
                and self.modes[0] == self.modes[1] and self.events[0] == self.events[1]
                and not self.unread and not self.unasked)


@dataclass(frozen=True)
class Replay:
    """All flights of a robot; ``partial``: flights of which the bag lacks the beginning (of a policy that gives chunks:
    the first one), which were not replayed; ``unread``: messages on our topics that are none of ours, by topic;
    ``barred``: what the guard said of each mission that it did not let begin, which was not replayed either."""

    flights: list[FlightReplay]
    partial: int
    cut: str
    unread: Mapping[str, Unread] = field(default_factory=dict)
    barred: Sequence[str] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return all(flight.equal for flight in self.flights)


def needed(interface: Interface, namespace: str) -> Callable[[str], bool]:
    """Which topics of a bag a replay reads."""
    pilot = interface.autopilot
    rows = [] if pilot is None else [row for row in (pilot.status, pilot.orders) if row is not None]
    names = {full(topic, namespace) for topic in (*(row.topic for row in (*interface.topics, *rows)), *INPUTS, *OURS)}
    return names.__contains__


def replay(
    recording: Recording, artifact: Artifact, robot: RobotSpec, interface: Interface, namespace: str,
    tolerance: float = TOLERANCE,
) -> Replay:
    """Fly every flight of a recording again with ``artifact`` and say what differs."""
    told, partial, unread = flight_log.flights(recording, namespace)
    recorded, barred = [f for f in told if not f.barred], [f.barred for f in told if f.barred]
    if not recorded:
        raise BagError("; ".join([
            f"{recording.path} has no flight of {namespace}" + ("" if barred else ": no control step on policy/step"),
            *([f"{partial} began before it"] if partial else []), *barred, *remarks(unread)]))
    if artifact.manifest.chunk is not None:
        whole = [flight for flight in recorded if flight.chunks and flight.chunks[0].number == 0]
        partial, recorded = partial + len(recorded) - len(whole), whole
        if not recorded:
            raise BagError(f"{artifact.manifest.name} gives chunks, and {recording.path} has no flight of {namespace} "
                           "with its first one on policy/chunk: it was recorded by an earlier version, lost it, or "
                           "another artifact was flown")
    starts = [start for flight in recorded for start in (*flight.void, flight)]
    stage = Stage(recording, artifact, robot, armed_as(interface, recording, namespace), namespace, starts,
                  None if artifact.manifest.chunk is None else made_again(
                      recording, artifact, interface, namespace, starts))
    stage.play()
    again = {flight.start_ns // 1_000_000: flight for flight in flight_log.flights(stage.heard, namespace).found}
    out = []
    for i, flight in enumerate(starts):
        if not any(flight is each for each in recorded):
            continue
        other = next((again[key] for key in again if abs(key - flight.start_ns // 1_000_000) <= 1),
                     Flight(flight.number, flight.start_ns))
        last = flight is recorded[-1] and bool(recording.cut)
        found = replace(compared(flight, other, stage.guessed[i], tolerance, open_end=last), unasked=stage.unasked[i])
        out.append(found if stage.made is None else replace(
            found, chunks=compared_chunks(flight.chunks, stage.made[i], tolerance),
            unmade=sum(rows is None for rows in stage.made[i]),
            unrecorded=flight.chunks[-1].number + 1 - len(flight.chunks)))
    return Replay(out, partial, recording.cut, unread, barred)


def armed_as(interface: Interface, recording: Recording, namespace: str) -> Interface:
    """Who armed the autopilot, where that takes orders, is told to the guard (``--arm``) and not in the bag: we did, if
    there are orders in it."""
    pilot = interface.autopilot
    if pilot is not None and not recording.of(full(pilot.status.topic, namespace)):
        raise BagError(f"{recording.path} has no message on {full(pilot.status.topic, namespace)}, the autopilot's "
                       "status: without it no guard flies")
    if pilot is None or pilot.orders is None:
        return interface
    return armed_by(interface, "ask" if recording.of(full(pilot.orders.topic, namespace)) else "never")


# ---------------------------------------------------------------- order


@dataclass(order=True)
class Cue:
    """Something that happens at ``at`` [ns]; at one time the lower ``rank`` goes first."""

    at: int
    rank: int
    number: int
    act: Callable[[], None] = field(compare=False)


def delivery(at: Sequence[int], used: Sequence[int], when: Sequence[int]) -> list[tuple[int, int]]:
    """When each message of a topic is given to a node: (time [ns], 0 before a record of that time, 2 after it).

    Args:
        at: when each was recorded.
        used: for each record of the node, in order, the newest message that it was made of; -1: none. Never falls.
        when: time of each record.
    """
    out = []
    for i, time in enumerate(at):
        r = bisect_left(used, i)  # the first record that has this message
        floor, ceiling = when[r - 1] if r else -inf, when[r] if r < len(used) else inf
        if time >= ceiling:
            out.append((int(ceiling), 0))
        elif time <= floor:
            out.append((int(floor), 2))
        else:
            out.append((time, 0))
    for i in range(len(out) - 2, -1, -1):  # in the order in which they were recorded
        out[i] = min(out[i], out[i + 1])
    return out


def uses(at: Sequence[int], marks: Sequence[int], wanted: Sequence[int], when: Sequence[int]) -> tuple[list[int], int]:
    """For each record the index of the message with its mark, nearest in time and not before that of the record before;
    and how many were not found: those keep the one before."""
    places: dict[int, list[int]] = {}
    for i, found in enumerate(marks):
        places.setdefault(found, []).append(i)
    out, last, missing = [], -1, 0
    for target, time in zip(wanted, when):
        near = [i for i in places.get(target, ()) if i >= last]
        if near:
            last = min(near, key=lambda i: abs(at[i] - time))
        elif target:
            missing += 1
        out.append(last)
    return out, missing


def made_at(flight: Flight) -> list[float]:
    """When each step of the controller is made again [s since the guard's mission began].

    A mission begins at the guard when it hears of it, some 0.1 ms after the controller's own zero. On the guard's clock
    a step is not later than the command that it led to. One that led to none came before its turn, at a time that
    nobody says: no sooner than the quickest proposal of this flight came, so it is before its turn again.
    """
    heard = {row.step: row.at for row in flight.basis if row.step >= 0}
    quickest = min((heard[row.step] - row.at for row in flight.steps if row.step in heard), default=0.0)
    at, out = inf, list[float]()
    for row in reversed(flight.steps):
        begins = row.step == row.missed  # where chunks are played, ``at`` is somewhat later than the beginning
        at = 0.0 if begins else min(at, row.at, heard.get(row.step, row.at + quickest))
        out.append(at)
    return out[::-1]


# ---------------------------------------------------------------- chunks


def made_again(
    recording: Recording, artifact: Artifact, interface: Interface, namespace: str, flights: Sequence[Flight]
) -> list[list[np.ndarray | None]]:
    """By flight, the rows [K, A] of each chunk that was used, made again of its observation; None where the bag lacks
    a message of that."""
    manifest, period = artifact.manifest, 1.0 / artifact.manifest.rate_hz
    wanted = [signal.name for signal in manifest.signals]
    readers, by_mark = [], list[dict[int, list[Said]]]()
    for row in interface.topics:
        readers.append(StateReader(row, interface.carried, wanted))
        by_mark.append({})
        for message in recording.of(full(row.topic, namespace)):
            by_mark[-1].setdefault(mark(message.data), []).append(message)

    def observation(flight: Flight, told: ChunkRecord) -> dict[str, np.ndarray] | None:
        at, signals = flight.start_ns + 1e9 * told.observed, dict[str, np.ndarray]()
        for target, found, reader in zip(told.marks, by_mark, readers):
            if target:  # 0: that topic had brought nothing yet
                near = min(found.get(target, ()), key=lambda message: abs(message.at - at), default=None)
                if near is None:
                    return None
                signals |= reader.signals(reader.message(near.type, near.data)[0])
        return {**signals, MISSION_TIME.name: np.asarray(told.step * period, dtype=np.float32)}

    def rows(signals: dict[str, np.ndarray] | None) -> np.ndarray | None:
        given = None if signals is None else artifact.act(signals)[manifest.commands[0].name]
        return None if given is None else given.reshape(len(given), -1).astype(float)

    return [[rows(observation(flight, told)) for told in flight.chunks] for flight in flights]


def compared_chunks(told: Sequence[ChunkRecord], made: Sequence[np.ndarray | None], tolerance: float) -> Compared:
    """The rows of all chunks, recorded against made again."""
    longest = max(len(rows) for rows in (*(chunk.rows for chunk in told), *(m for m in made if m is not None)))
    recorded, replayed = dict[int, np.ndarray](), dict[int, np.ndarray]()
    for n, (chunk, rows) in enumerate(zip(told, made)):
        if rows is not None:
            recorded |= {n * longest + k: row for k, row in enumerate(chunk.rows)}
            replayed |= {n * longest + k: row for k, row in enumerate(rows)}
    found = compare(recorded, replayed, tolerance)
    return found if found.first is None else replace(found, first=found.first // longest)


class NoWorker:
    """The line to a worker that is not there."""

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """Nobody reads it."""

    def take(self) -> list[Any]:
        """Nothing comes."""
        return []

    def close(self) -> None:
        """Nothing is open."""


class Rerun(ChunkedPolicy):
    """A policy whose chunks are made already, and come when they came.

    Attributes:
        zero: when the first step of the mission was [s, the stage's clock].
        passed: from there to the time that the step being made is for [s].
    """

    def __init__(self, manifest: Manifest) -> None:
        self.zero = self.passed = 0.0
        self.coming = deque[Used]()
        super().__init__(manifest, NoWorker(), lambda: self.zero + self.passed)

    def load(self, told: Sequence[ChunkRecord], made: Sequence[np.ndarray | None]) -> None:
        """The chunks of the next mission, as ``made``, else as recorded."""
        self.coming = deque(Used(chunk.at, chunk.observed, chunk.rows if rows is None else rows)
                            for chunk, rows in zip(told, made))

    def _go_on(self, now: float, signals: Mapping[str, np.ndarray]) -> None:
        while self.coming and self.coming[0].at <= self.passed:
            new = self.coming.popleft()
            self.use(Used(self.zero + new.at, self.zero + new.observed, new.rows))
        self.used.clear()  # nobody is told: they are on the record


# ---------------------------------------------------------------- the stage


class Line(InProcessGuard):
    """The guard's end of the line. The controller says with its first command that a mission begins, and with its last
    one that it is over; a guard in a process of its own may hear either pair in two turns of its loop.

    Attributes:
        waits: kinds that are kept, and what was said after them, until they are taken out of this.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.kept = set[int](), list[datagrams.Proposal]()

    def receive(self) -> list[datagrams.Proposal]:
        """See :class:`temporeal_bridge.link.ends.GuardEnd`."""
        heard = self.kept + super().receive()
        end = next((n for n, said in enumerate(heard) if said.kind in self.waits), len(heard))
        self.kept = heard[end:]
        return heard[:end]


class Stage:
    """Controller and guard, each on a bus of its own (each has its own view of what came when), one clock."""

    def __init__(
        self, recording: Recording, artifact: Artifact, robot: RobotSpec, interface: Interface, namespace: str,
        flights: Sequence[Flight], made: Sequence[Sequence[np.ndarray | None]] | None = None,
    ) -> None:
        """``flights``: every start that the guard took, the void ones, too; ``made``: by flight, the chunks of a policy
        that gives some."""
        self.recording, self.namespace, self.base = recording, namespace, namespace.rstrip("/")
        self.flights, self.made = flights, made
        self.rerun = None if made is None else Rerun(artifact.manifest)
        self.guessed, self.unasked = [0] * len(flights), [0] * len(flights)
        self.begin_ns = recording.said[0].at - round(1e9 * LEAD_S)
        self.buses = [Bus(self.begin_ns), Bus(self.begin_ns)]
        self.line = Line()
        self.own = own = [MemoryTransport(bus, name, namespace)
                          for bus, name in zip(self.buses, ("policy_node", "guard_node"))]
        self.policy = PolicyNode(
            own[0], self.rerun or artifact, robot, interface, InProcessController(self.line))
        self.new_guard = lambda: GuardNode(self.own[1], artifact.manifest, robot, interface, self.line)
        self.guard = self.new_guard()
        # one that keeps its robot says so at once, and its first command comes a period later
        self.told_late = 0 if self.guard.keeps else TOLD_NS
        self.guard.watch.seen_since = -inf  # the guard had seen the robot for long enough: it began
        self.players = [MemoryTransport(bus, "player", namespace) for bus in self.buses]
        self.endpoints: dict[tuple[int, str], Any] = {}
        self.heard = Recording(recording.path, [], {}, "")
        topics = [*((name, "Float64MultiArray") for name in OURS[:2]), ("guard/event", "String"), ("mission", "Header")]
        for i, player in enumerate(self.players):
            for topic, kind in topics[:1] if i == 0 else topics[1:]:
                player.subscribe(topic, f"std_msgs/msg/{kind}", QOS["deep"], self._hear)
        # the guard's one zero setpoint on the ground waits for somebody who listens
        self.players[1].subscribe(self.guard.topic.topic, self.guard.topic.type, QOS["deep"], lambda received: None)
        self.states = [full(row.topic, namespace) for row in interface.topics]
        self.status = "" if interface.autopilot is None else full(interface.autopilot.status.topic, namespace)
        self.looked = 0.0  # when the nodes looked at their clock last [s]
        self.coming: list[int] = []  # times of the guard's records still to come, latest first
        self.to_come: set[tuple[int, int]] = set()  # (flight, step) that the guard has a record of
        self.pending = False  # whether the guard's turn is a recorded one
        self.ending = self.gone = False  # whether the guard was told to end, and has ended
        self.begun = 0  # flights
        self.seen = NOT_SEEN  # when the guard of then found a stop [s], and the signals that it knew
        self.first_seen: dict[int, int] = {}  # by flight, when the state that it began with was given to the controller

    def play(self) -> None:
        """From the first message to the last."""
        cues = sorted(self._cues())
        for cue in cues:
            self._until(cue.at)
            cue.act()
            self._drain()

    # time

    def _set(self, seconds: float) -> None:
        for bus in self.buses:
            bus.seconds = max(bus.seconds, seconds)

    def _until(self, at: int) -> None:
        """Let time pass; the guard looks at its clock meanwhile as it does in flight."""
        target = 1e-9 * (at - self.begin_ns)
        while target - self.looked > TICK_S:  # also where messages come oftener than that
            self.looked += TICK_S
            self._set(self.looked)
            self._idle()
        self._set(target)

    def _idle(self) -> None:
        """What the nodes do by themselves between two recorded steps."""
        if self.policy.mode != "starting":  # in flight it only hears what the guard says: its steps are recorded ones
            self.policy.step()
        now = self.begin_ns + round(1e9 * self.buses[1].seconds)
        while self.coming and self.coming[-1] < now:
            self.coming.pop()
        soon = bool(self.coming) and self.coming[-1] - now < 0.5e9 * self.guard.period
        if not (soon or self.pending):
            self._turn()
            self._drain()

    def _turn(self) -> None:
        """The guard's loop once (:func:`temporeal_bridge.process.node.spin`)."""
        if not self.gone:
            self.guard.step()
            self._hold()
            self.gone = self.ending and self.guard.may_end()
        if self.gone and self.begun < len(self.flights):  # there is another flight: it was started again
            self._start_again()

    def _start_again(self) -> None:
        """Another guard, after the first one has ended."""
        self.own[1].close()
        self.own[1] = MemoryTransport(self.buses[1], "guard_node", self.namespace)
        self.guard, self.ending, self.gone = self.new_guard(), False, False

    # what is heard

    def _hear(self, received: Received) -> None:
        at = self.begin_ns + round(1e9 * received.at)
        self.heard.said.append(Said(at, received.topic, received.type, received.data))

    def _drain(self) -> None:
        for player in self.players:
            player.wait(0.0)

    def _give(self, side: int, message: Said) -> None:
        """A recorded message to one node."""
        key = (side, message.topic)
        if key not in self.endpoints:
            self.endpoints[key] = self.players[side].advertise(message.topic, message.type, QOS["latched"])
        self.players[side].publish(self.endpoints[key], message.data)
        self.own[side].wait(0.0)
        self._drain()

    # cues

    def _cues(self) -> Iterable[Cue]:
        """Everything that was recorded, in the order in which each node saw it."""
        steps, commands = self._records()
        self.coming = sorted((at for at, _, _ in commands), reverse=True)
        self.to_come = {(i, row.step) for _, i, row in commands}
        for side, records in ((0, steps), (1, commands)):
            for k, topic in enumerate(self.states):
                yield from self._state_cues(side, k, self.recording.of(topic), records)
        for n, (at, i, row) in enumerate(steps):
            if row.step == row.missed:
                yield Cue(min(at, self.first_seen.get(i, at)), -1, n, lambda i=i: self._begin(i))
            yield Cue(at, 1, n, lambda i=i, row=row: self._step(i, row))
        for n, (at, _, row) in enumerate(commands):
            yield Cue(at, 5, n, lambda row=row: self._command(row))
        said = [message for name in INPUTS for message in self.recording.of(f"{self.base}/{name}")]
        for n, message in enumerate(sorted(said, key=lambda message: message.at)):
            yield Cue(self._asked(message, commands), 4, n, lambda message=message: self._give(1, message))
        for n, (event, i, reason) in enumerate(self._unexplained(said)):
            yield Cue(acted(event, commands, self.told_late), 4, n, lambda i=i, reason=reason: self._stop(i, reason))
        stops = [(flight.start_ns + round(1e9 * at), i) for i, flight in enumerate(self.flights)
                 for at, _, _ in flight.stops]
        for n, (at, i) in enumerate(stops):
            if acted(at, commands, self.told_late) == at:  # else its first command says of which state it is
                yield Cue(at, 7, n, lambda i=i, at=at: self._found(i, at))
        statuses = self.recording.of(self.status) if self.status else []
        for n, (message, at) in enumerate(zip(statuses, self._heard(statuses))):
            yield Cue(at, 6, n, lambda message=message: self._give(1, message))

    def _heard(self, statuses: Sequence[Said]) -> list[int]:
        """When the guard heard each word of the autopilot [ns]: by the recorder's time, but one that led to a stop when
        its event says, and one that let a mission begin before that."""
        events = [(flight, flight.start_ns + round(1e9 * since)) for flight in self.flights
                  for since, code, _ in flight.events if code == "autopilot"]
        begins = [flight.start_ns - 1 for flight in self.flights if flight.void]
        out = []
        for message in statuses:
            stop = next((at for flight, at in events if led_to(message, at, flight.shifts)), None)
            begin = next((at for at in begins if 0 < message.at - at < ARMED_NS), message.at)
            out.append(begin if stop is None else stop)
        for i in range(len(out) - 2, -1, -1):  # in the order in which they were recorded
            out[i] = min(out[i], out[i + 1])
        return out

    def _records(self) -> tuple[list[tuple[int, int, Row]], list[tuple[int, int, Row]]]:
        """(time [ns], flight, row) of the controller's steps and of the guard's commands."""
        steps, commands = [], []
        for i, flight in enumerate(self.flights):
            commands += [(flight.start_ns + round(1e9 * row.at), i, row) for row in flight.basis]
            steps += [(flight.start_ns + round(1e9 * at), i, row) for at, row in zip(made_at(flight), flight.steps)]
        return steps, commands

    def _state_cues(
        self, side: int, k: int, said: Sequence[Said], records: Sequence[tuple[int, int, Row]]
    ) -> Iterable[Cue]:
        """Deliveries of one state topic to one node."""
        at, when = [message.at for message in said], [time for time, _, _ in records]
        wanted = [row.marks[k] if k < len(row.marks) else 0 for _, _, row in records]
        used, _ = uses(at, [mark(message.data) for message in said], wanted, when)
        if side == 0:
            self._note(k, said, wanted, used, records)
        times = delivery(at, used, when)
        if side == 0 and k == 0:
            self.first_seen = {i: times[used[n]][0] for n, (_, i, row) in enumerate(records)
                               if row.step == row.missed and used[n] >= 0}
        for n, (message, (time, rank)) in enumerate(zip(said, times)):
            yield Cue(time, rank + side * (3 if rank == 0 else 4), n, lambda message=message: self._give(side, message))

    def _note(
        self, k: int, said: Sequence[Said], wanted: Sequence[int], used: Sequence[int],
        records: Sequence[tuple[int, int, Row]]
    ) -> None:
        """Count the steps whose message the bag lacks."""
        for target, index, (_, i, _) in zip(wanted, used, records):
            self.guessed[i] += bool(target) and (index < 0 or mark(said[index].data) != target)

    def _asked(self, message: Said, commands: Sequence[tuple[int, int, Row]]) -> int:
        """When the guard heard what somebody asked for: the event or the mode that followed, and the command that began
        the stop, know it better than the recorder (outside missions the guard looks at its bus every 20 ms)."""
        reset = message.topic == f"{self.base}/mission/reset"
        for flight in self.flights:
            told = ([at for at, mode in flight.modes if mode == "waiting"] if reset else
                    [at for at, code, _ in flight.events if code in STOPS])
            for since in told:
                event = flight.start_ns + round(1e9 * since)
                if led_to(message, event, flight.shifts):
                    return event if reset else acted(event, commands, self.told_late)
        return message.at

    def _unexplained(self, said: Sequence[Said]) -> Iterable[tuple[int, int, str]]:
        """Time [ns], flight and reason of the operator's stops that no message of the bag led to."""
        asked = [message for message in said if self._asks(message)]
        for i, flight in enumerate(self.flights):
            for since, code, reason in flight.events:
                if code != "operator" or reason.startswith(NOT_RESET) or refused(reason) is not None:
                    continue  # no stop of the operator's
                event = flight.start_ns + round(1e9 * since)
                told = reason != END_REQUESTED and any(led_to(message, event, flight.shifts) for message in asked)
                if not told:
                    yield event, i, reason

    def _asks(self, message: Said) -> bool:
        """Whether it asks for something, as a stop button that says every 0.1 s that it is not set does not."""
        if message.topic != f"{self.base}/estop":
            return message.topic != f"{self.base}/monitor/verdict"
        try:
            return bool(message.decode().data)
        except MessageError:  # it stops the robot
            return True

    # acts

    def _stop(self, i: int, reason: str) -> None:
        """Somebody stops the guard who is not in the bag. That its stop button fell silent it finds by itself."""
        if reason == END_REQUESTED:
            self.ending, self.gone = True, self.guard.may_end()
        elif not (self.guard.button.watched and reason.startswith(ESTOP_SILENT)):
            self.unasked[i] += 1
            self.guard.stop("operator", reason)
        self._drain()

    def _found(self, i: int, at: int) -> None:
        """The guard of then has found its stop: of what it knows now."""
        self.seen = (self.buses[1].seconds, {**self.guard.watch.values, **self._held_at(self.flights[i], at)})
        self._hold()

    def _held_at(self, flight: Flight, at: int) -> dict[str, np.ndarray]:
        """The signals of the message, of those received about ``at`` [ns], that says where the robot was held then: one
        of the guard's own commands is that place. Of which message a stop was made it does not say, and the recorder
        may have received it later. Empty where there is none."""
        guard, rule = self.guard, self.guard.profile.tracking
        own = np.array([command for step, command in flight.sent if step < 0])
        if rule is None or guard.motion is None or own.ndim != 2 or own.shape[1] != guard.spec.size:
            return {}
        k = next(k for k, row in enumerate(guard.interface.states)
                 if rule.signal in STATE_CODECS[row.codec].signals(row.options))
        reader = StateReader(guard.interface.states[k], guard.interface.carried, [rule.signal])
        about = [m for m in self.recording.of(self.states[k]) if abs(m.at - at) <= 1e9 * guard.period]
        apart_by = stop_actions.AT_REST * (guard.limits.high - guard.limits.low)
        for message in sorted(about, key=lambda message: abs(message.at - at)):
            with suppress(Exception):  # bytes from anywhere: the guard counted them
                signals = reader.signals(reader.message(message.type, message.data)[0])
                place = hold.measured(guard.profile, guard.motion, signals)
                if (np.abs(own - place) <= apart_by).all(axis=1).any():
                    return {rule.signal: signals[rule.signal]}
        return {}

    def _hold(self) -> None:
        """A robot is held where it was when its stop was found; this guard finds it a little earlier or later."""
        guard, (at, values) = self.guard, self.seen
        stop = guard.stopper.under_way
        if stop.target is None or guard.motion is None or abs(stop.since - at) > guard.period:
            return
        self.seen = NOT_SEEN
        known = ~np.isnan(stop.target)
        if guard.profile.place:
            place = hold.measured(guard.profile, guard.motion, values)
            guard.stopper.under_way = replace(stop, target=np.where(known, place, stop.target))

    def _begin(self, i: int) -> None:
        """A mission is about to start: the next state is its first."""
        flight, policy, self.begun = self.flights[i], self.policy, i + 1
        policy.next_hello = 0.0  # the line to the guard is not recorded: it must know by now who is there
        if policy.mode in ("waiting", "ready"):
            policy.step()
        self.line.waits = set()
        self._turn()
        policy.after = "silence" if ended_silent(flight) else "stop"
        self.line.waits = {datagrams.COMMAND}
        if policy.after == "stop" and not self.guard.keeps and any(row.step < 0 for row in flight.basis):
            self.line.waits.add(datagrams.END)
        if self.rerun is not None and self.made is not None:
            self.rerun.load(flight.chunks, self.made[i])
        policy.begin(flight.number)
        policy.used -= 1.0  # the state that comes now is newer

    def _step(self, i: int, row: Row) -> None:
        """One control step, now, with as many missed before it as there were."""
        policy = self.policy
        before = policy.flight.steps
        if self.rerun is not None:
            self.rerun.passed = row.at
            if row.step == row.missed:
                self.rerun.zero = policy.transport.monotonic()
        if policy.mode == "active":
            missed = row.step - before
            policy.next = policy.transport.monotonic() - policy.window - (missed + 1e-6) * policy.period
        policy.step()
        if policy.mode == "active":
            policy.next = inf  # until the next recorded one
        self.pending = (i, row.step) in self.to_come
        if not self.pending:
            self.line.waits.discard(datagrams.COMMAND)
        if not self.pending or row.step == row.missed:  # of the beginning it hears now, of the command in its own time
            self._turn()

    def _command(self, row: Row) -> None:
        """The guard's turn: what the controller has proposed, or a command of its own."""
        now = self.guard.transport.monotonic()
        if row.step < 0 and self.guard.mode in ("stopping", "holding") and self.guard.sent_at < now:
            self.guard.due = min(self.guard.due, now)
        if now < LEAD_S + FIRST_S:
            self.guard.watch.rests_since = -inf  # how long the robot had rested is not on record: the guard knew
        # where it does not keep the robot, the first of its own is sent as it hears of the end
        self.line.waits -= {datagrams.COMMAND} if row.step >= 0 else {datagrams.COMMAND, datagrams.END}
        self._turn()
        self.pending = self.pending and row.step < 0


def led_to(message: Said, event: int, shifts: Sequence[int]) -> bool:
    """Whether a message can have led to an event [ns]. ``shifts``: of the recorder's clock in that flight [ns]."""
    return any(ASKED_S[0] <= 1e-9 * (event - (message.at - shift)) <= ASKED_S[1] for shift in shifts)


def acted(event: int, commands: Sequence[tuple[int, int, Row]], late: int) -> int:
    """When the guard acted on what it says in an event [ns]: it says so after it has begun its stop, and that knows the
    time of its first command. ``late``: it may say so that much after it [ns]."""
    first = [at for (_, _, before), (at, _, row) in zip(commands, commands[1:])
             if before.step >= 0 > row.step and 0 <= event - at < late]
    own = first or [at for at, _, row in commands if row.step < 0 and abs(at - event) < AT_ONCE_NS]
    return min(own, key=lambda at: abs(at - event), default=event)


def ended_silent(flight: Flight) -> bool:
    """Whether the controller was to be silent after the mission: then the guard goes from active to finished."""
    names = [mode for _, mode in flight.modes]
    return any(pair == ("active", "finished") for pair in zip(names, names[1:]))


def until_idle(modes: Sequence[str]) -> tuple[str, ...]:
    """Modes up to the first in which the guard waits for another mission: what it sees then is not of this one."""
    ends = [i for i, mode in enumerate(modes) if mode in IDLE]
    return tuple(modes[: ends[0] + 1] if ends else modes)


# ---------------------------------------------------------------- comparison


def compared(
    recorded: Flight, replayed: Flight, guessed: int, tolerance: float, open_end: bool = False
) -> FlightReplay:
    """What differs. ``open_end``: the bag breaks off in this flight; what comes after its last command is not asked."""
    last = inf if recorded.swapped is None else recorded.swapped
    until = next((row.at for row in recorded.basis if row.step > last), inf)
    open_end = open_end or until < inf
    held = open_end or (bool(recorded.modes) and recorded.modes[-1][1] == "holding")  # until it was told to end: unsaid
    both = [(flight, before(flight.sent, last)) for flight in (recorded, replayed)]
    proposed = [{step: command for step, command in flight.proposed.items() if step <= last} for flight, _ in both]
    sent = [{step: command for step, command in part if step >= 0 and step not in recorded.mixed} for _, part in both]
    own = [dict(enumerate(command for step, command in part if step < 0)) for _, part in both]
    modes = [until_idle([mode for at, mode in flight.modes if at < until]) for flight, _ in both]
    events = [tuple(code for at, code, _ in flight.events if at < until and code not in SWAPS) for flight, _ in both]
    if open_end:
        modes[1], events[1] = modes[1][: len(modes[0])], events[1][: len(events[0])]
    return FlightReplay(
        recorded.number, recorded.start_ns, len(recorded.steps),
        compare(*proposed, tolerance, open_end), compare(*sent, tolerance, open_end),
        compare(*own, tolerance, held), (modes[0], modes[1]), (events[0], events[1]), guessed, recorded.lost,
        recorded.swapped, len(recorded.mixed), recorded.flown_by, unread=recorded.unread)


def before(sent: Sequence[tuple[int, np.ndarray]], last: float) -> list[tuple[int, np.ndarray]]:
    """What was sent, the guard's own commands too, up to step ``last``."""
    end = next((i for i, (step, _) in enumerate(sent) if step > last), len(sent))
    return list(sent[:end])


def compare(
    recorded: Mapping[int, np.ndarray], replayed: Mapping[int, np.ndarray], tolerance: float, open_end: bool = False
) -> Compared:
    """Commands by step."""
    both = sorted(set(recorded) & set(replayed))
    last = max(recorded, default=-1)
    extra = [step for step in replayed if step not in recorded and not (open_end and step > last)]
    difference = [apart(recorded[step], replayed[step]) for step in both]
    size = max((len(row) for row in difference), default=0)
    largest = np.max([np.broadcast_to(row, size) for row in difference], axis=0) if both else np.zeros(0)
    bad = [step for step, row in zip(both, difference) if not row.max(initial=0.0) <= tolerance]
    return Compared(len(both), len(bad), tuple(float(x) for x in largest), bad[0] if bad else None,
                    len(set(recorded) - set(replayed)), len(extra))


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| of two commands [A]; equal where both are the same infinity or no number, else infinite."""
    if a.shape != b.shape:
        return np.array([inf])
    with np.errstate(invalid="ignore"):
        out = np.abs(a - b)
    out[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return np.where(np.isnan(out), inf, out)


def to_json(found: Replay) -> dict[str, Any]:
    """As plain JSON values."""
    def kind(c: Compared) -> dict[str, Any]:
        return {"compared": c.count, "differing": c.differing, "first": c.first, "missing": c.missing, "extra": c.extra,
                "largest": [x if np.isfinite(x) else None for x in c.largest], "equal": c.equal}

    return json.loads(json.dumps({"equal": found.equal, "cut": found.cut, "partial": found.partial,
        "barred": list(found.barred),
        "unread": {topic: each.count for topic, each in found.unread.items()}, "flights": [
        {"flight": f.flight, "start_ns": f.start_ns, "steps": f.steps, "equal": f.equal, "proposed": kind(f.proposed),
         "sent": kind(f.sent), "own": kind(f.own), "chunks": None if f.chunks is None else kind(f.chunks),
         "unmade": f.unmade, "unrecorded_chunks": f.unrecorded, "guessed": f.guessed, "lost": f.lost,
         "unread": f.unread, "unasked": f.unasked, "swapped": f.swapped, "mixed": f.mixed, "flown_by": f.flown_by,
         "modes": {"recorded": f.modes[0], "replayed": f.modes[1]},
         "events": {"recorded": f.events[0], "replayed": f.events[1]}} for f in found.flights]}))
