"""The recorded flights as a list of cues: what each node gets and does, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Protocol

from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.state_input import mark
from temporeal_bridge.mission import END_REQUESTED, NOT_RESET, refused
from temporeal_bridge.recording.bags import Message, Recording, full_name
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.records import Row
from temporeal_bridge.replay.timing import TimedRow, acted, delivery, led_to, made_at, uses
from temporeal_bridge.transports.messages import MessageError

INPUTS = ("mission/stop", "mission/reset", "estop", "monitor/verdict")  # requests to the guard
STOPS = ("operator", "violated")  # codes of stops that somebody asked for
ARMED_NS = 20_000_000  # chosen: by so much later a recorder may get the autopilot's status by which a mission began
CONTROLLER, GUARD = 0, 1  # sides


class Stage(Protocol):
    """What a cue makes happen."""

    def give(self, side: int, message: Message) -> None:
        """A recorded message arrives at one node."""

    def begin(self, flight: int) -> None:
        """A mission is about to start."""

    def step(self, flight: int, row: Row) -> None:
        """One control step."""

    def command(self, row: Row) -> None:
        """One command of the guard."""

    def stop(self, flight: int, reason: str) -> None:
        """A stop that no message in the bag asks for."""

    def found(self, flight: int, at: int) -> None:
        """The recorded guard found its stop at ``at`` [ns]."""


@dataclass(order=True)
class Cue:
    """Something that happens at ``at`` [ns]; at one time the lower ``rank`` goes first."""

    at: int
    rank: int
    number: int
    act: Callable[[Stage], None] = field(compare=False)


class CueSheet:
    """The cues of a recording.

    Args:
        flights: every start that the guard accepted, void ones included.
        told_late: longest time from the first command of a stop to its event [ns].

    Attributes:
        commands: the guard's commands.
        guessed: by flight, steps whose message the bag lacks.
        first_seen: by flight, when the state that it began with was given to the controller [ns].
        cues: in order.
    """

    def __init__(
        self, recording: Recording, flights: Sequence[RecordedFlight], interface: Interface, namespace: str,
        told_late: int,
    ) -> None:
        self.recording, self.flights, self.base, self.told_late = recording, flights, namespace.rstrip("/"), told_late
        self.states = [full_name(row.topic, namespace) for row in interface.topics]
        self.status = "" if interface.autopilot is None else full_name(interface.autopilot.status.topic, namespace)
        self.steps, self.commands = timed_rows(flights)
        self.guessed = [0] * len(flights)
        self.first_seen: dict[int, int] = {}
        self.cues = sorted([*self._deliveries(), *self._steps(), *self._requests(), *self._stops(), *self._statuses()])

    def _deliveries(self) -> Iterable[Cue]:
        """State messages, to each node before the record that was made of them."""
        for side, rows in ((CONTROLLER, self.steps), (GUARD, self.commands)):
            for k, topic in enumerate(self.states):
                if topic in self.states[:k]:  # one topic with two rows: its messages are delivered once
                    continue
                yield from self._state_cues(side, k, self.recording.of(topic), rows)

    def _state_cues(self, side: int, k: int, found: Sequence[Message], rows: Sequence[TimedRow]) -> Iterable[Cue]:
        """Deliveries of state topic ``k`` to one node."""
        at, when = [message.at for message in found], [time for time, _, _ in rows]
        wanted = [row.marks[k] if k < len(row.marks) else 0 for _, _, row in rows]
        used, _ = uses(at, [mark(message.data) for message in found], wanted, when)
        if side == CONTROLLER:
            self._count_guessed(found, wanted, used, rows)
        times = delivery(at, used, when)
        if side == CONTROLLER and k == 0:
            self.first_seen = {i: times[used[n]][0] for n, (_, i, row) in enumerate(rows)
                               if row.step == row.missed and used[n] >= 0}
        for n, (message, (time, rank)) in enumerate(zip(found, times)):
            yield Cue(time, rank + side * (3 if rank == 0 else 4), n, methodcaller("give", side, message))

    def _count_guessed(
        self, found: Sequence[Message], wanted: Sequence[int], used: Sequence[int], rows: Sequence[TimedRow]
    ) -> None:
        for target, index, (_, i, _) in zip(wanted, used, rows):
            self.guessed[i] += bool(target) and (index < 0 or mark(found[index].data) != target)

    def _steps(self) -> Iterable[Cue]:
        """Missions begin, the controller steps, the guard commands."""
        for n, (at, i, row) in enumerate(self.steps):
            if row.step == row.missed:
                yield Cue(min(at, self.first_seen.get(i, at)), -1, n, methodcaller("begin", i))
            yield Cue(at, 1, n, methodcaller("step", i, row))
        for n, (at, _, row) in enumerate(self.commands):
            yield Cue(at, 5, n, methodcaller("command", row))

    def _requests(self) -> Iterable[Cue]:
        """Requests to the guard."""
        found = [message for name in INPUTS for message in self.recording.of(f"{self.base}/{name}")]
        for n, message in enumerate(sorted(found, key=lambda message: message.at)):
            yield Cue(self._asked(message), 4, n, methodcaller("give", GUARD, message))
        for n, (event, i, reason) in enumerate(self._unexplained(found)):
            yield Cue(acted(event, self.commands, self.told_late), 4, n, methodcaller("stop", i, reason))

    def _stops(self) -> Iterable[Cue]:
        """Stops whose first command does not say which state they were found in."""
        stops = [(flight.start_ns + round(1e9 * at), i) for i, flight in enumerate(self.flights)
                 for at, _, _ in flight.stops]
        for n, (at, i) in enumerate(stops):
            if acted(at, self.commands, self.told_late) == at:
                yield Cue(at, 7, n, methodcaller("found", i, at))

    def _statuses(self) -> Iterable[Cue]:
        """The autopilot's status, to the guard."""
        found = self.recording.of(self.status) if self.status else []
        for n, (message, at) in enumerate(zip(found, self._status_times(found))):
            yield Cue(at, 6, n, methodcaller("give", GUARD, message))

    def _status_times(self, statuses: Sequence[Message]) -> list[int]:
        """When the guard got each status [ns]: by the recorder's time, except that one that led to a stop came when the
        stop's event says, and one that let a mission begin came before that."""
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

    def _asked(self, message: Message) -> int:
        """When the guard got a request [ns]: the event or mode that followed it, and the first command of the stop,
        say so more exactly than the recorder (outside missions the guard reads its bus every 20 ms)."""
        reset = message.topic == f"{self.base}/mission/reset"
        for flight in self.flights:
            answers = ([at for at, mode in flight.modes if mode == "waiting"] if reset else
                       [at for at, code, _ in flight.events if code in STOPS])
            for since in answers:
                event = flight.start_ns + round(1e9 * since)
                if led_to(message, event, flight.shifts):
                    return event if reset else acted(event, self.commands, self.told_late)
        return message.at

    def _unexplained(self, requests: Sequence[Message]) -> Iterable[tuple[int, int, str]]:
        """Time [ns], flight and reason of the operator's stops that no message of the bag led to."""
        asked = [message for message in requests if self._asks(message)]
        for i, flight in enumerate(self.flights):
            for since, code, reason in flight.events:
                if code != "operator" or reason.startswith(NOT_RESET) or refused(reason) is not None:
                    continue  # no stop of the operator's
                event = flight.start_ns + round(1e9 * since)
                explained = reason != END_REQUESTED and any(led_to(message, event, flight.shifts) for message in asked)
                if not explained:
                    yield event, i, reason

    def _asks(self, message: Message) -> bool:
        """Whether it requests a stop or a reset. A stop button that reports every 0.1 s that it is released does
        not."""
        if message.topic != f"{self.base}/estop":
            return message.topic != f"{self.base}/monitor/verdict"
        try:
            return bool(message.decode().data)
        except MessageError:  # it stops the robot
            return True


def timed_rows(flights: Sequence[RecordedFlight]) -> tuple[list[TimedRow], list[TimedRow]]:
    """The controller's steps, and the guard's commands."""
    steps, commands = list[TimedRow](), list[TimedRow]()
    for i, flight in enumerate(flights):
        commands += [(flight.start_ns + round(1e9 * row.at), i, row) for row in flight.basis]
        steps += [(flight.start_ns + round(1e9 * at), i, row) for at, row in zip(made_at(flight), flight.steps)]
    return steps, commands
