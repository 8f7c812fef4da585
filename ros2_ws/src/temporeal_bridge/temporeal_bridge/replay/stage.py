"""Controller and guard on a stage: the real nodes on a fake clock, driven by the cues of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.stop_actions import hold
from temporeal_bridge.guard.stop_actions.ramp_and_damp import AT_REST
from temporeal_bridge.guard_node import TICK_S, GuardNode
from temporeal_bridge.interface.interface import Interface, carried_by
from temporeal_bridge.interface.state_input import StateReader
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.mission import END_REQUESTED, ESTOP_SILENT
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recording.bags import Message, Recording, full_name
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.records import Row
from temporeal_bridge.replay.chunks import Made, RecordedChunks
from temporeal_bridge.replay.cues import CONTROLLER, GUARD, CueSheet
from temporeal_bridge.replay.timing import ended_silent
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, Received

LEAD_S = 1.0  # from the start of the nodes to the first message
FIRST_S = 0.2  # of a recording: a recorder that has just started may have got everything that waited for it at once
TOLD_NS = 50_000_000  # from the first command of a stop to its event, on a busy machine; chosen
NOT_SEEN: tuple[float, Mapping[str, np.ndarray]] = (-inf, {})
CONTROLLER_TOPICS = (("policy/step", "Float64MultiArray"),)
GUARD_TOPICS = (("guard/command", "Float64MultiArray"), ("guard/event", "String"), ("mission", "Header"))


class ReplayLink(InProcessGuard):
    """The guard's end of the link. The controller says with its first command that a mission begins, and with its last
    one that it is over; a guard in its own process may get either pair in two turns of its loop.

    Attributes:
        waits: kinds that are held back, with all later datagrams, until they are removed from this set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.kept = set[int](), list[datagrams.Proposal]()

    def receive(self) -> list[datagrams.Proposal]:
        """See :class:`temporeal_bridge.link.ends.GuardEnd`."""
        found = self.kept + super().receive()
        end = next((n for n, proposal in enumerate(found) if proposal.kind in self.waits), len(found))
        self.kept = found[end:]
        return found[:end]


class ReplayStage:
    """Controller and guard, each on its own bus (each sees messages at its own times), with one clock.

    Args:
        flights: every start that the guard accepted, void ones included.
        made: by flight, the chunks of a policy that gives some.

    Attributes:
        published: what the nodes published.
        guessed: by flight, steps whose message the bag lacks. unasked: by flight, stops that no message asks for.
    """

    def __init__(
        self, recording: Recording, artifact: Artifact, robot: RobotSpec, interface: Interface, namespace: str,
        flights: Sequence[RecordedFlight], made: Sequence[Made] | None = None,
    ) -> None:
        self.recording, self.namespace, self.flights, self.made = recording, namespace, flights, made
        self.states = [full_name(row.topic, namespace) for row in interface.topics]
        self.chunks = None if made is None else RecordedChunks(artifact.manifest)
        self.begin_ns = recording.messages[0].at - round(1e9 * LEAD_S)
        self.buses = [Bus(self.begin_ns), Bus(self.begin_ns)]
        self.link = ReplayLink()
        self.own = [MemoryTransport(bus, name, namespace)
                    for bus, name in zip(self.buses, ("policy_node", "guard_node"))]
        self.policy = PolicyNode(
            self.own[CONTROLLER], self.chunks or artifact, robot, interface, InProcessController(self.link))
        self.new_guard = lambda: GuardNode(self.own[GUARD], artifact.manifest, robot, interface, self.link)
        self.guard: GuardNode = self.new_guard()
        self.guard.monitor.rest.seen_since = -inf  # it had seen the robot for long enough, or no mission had begun
        self.players = [MemoryTransport(bus, "player", namespace) for bus in self.buses]
        self.endpoints: dict[tuple[int, str], Any] = {}
        self.published = Recording(recording.path, [], {}, "")
        for player, topics in zip(self.players, (CONTROLLER_TOPICS, GUARD_TOPICS)):
            for topic, kind in topics:
                player.subscribe(topic, f"std_msgs/msg/{kind}", QOS["deep"], self._record)
        # the guard's one zero setpoint on the ground waits for a subscriber
        self.players[GUARD].subscribe(
            self.guard.config.topic.topic, self.guard.config.topic.type, QOS["deep"], lambda received: None)
        # a guard that keeps its robot publishes its stop at once, and its first command comes a period later
        self.sheet = CueSheet(recording, flights, interface, namespace, 0 if self.guard.config.keeps else TOLD_NS)
        self.guessed, self.unasked = self.sheet.guessed, [0] * len(flights)
        self.looked = 0.0  # when the nodes last looked at their clock [s]
        self.coming = sorted((at for at, _, _ in self.sheet.commands), reverse=True)  # of the guard's commands [ns]
        self.to_come = {(i, row.step) for _, i, row in self.sheet.commands}  # (flight, step) of these
        self.pending = False  # whether the guard's next turn is a recorded one
        self.ending = self.ended = False  # whether the guard was asked to end, and has ended
        self.begun = 0  # flights
        self.seen = NOT_SEEN  # when the recorded guard found a stop [s], and the signals that it knew

    def play(self) -> None:
        """From the first message to the last."""
        for cue in self.sheet.cues:
            self._until(cue.at)
            cue.act(self)
            self._drain()

    # time

    def _set(self, seconds: float) -> None:
        for bus in self.buses:
            bus.seconds = max(bus.seconds, seconds)

    def _until(self, at: int) -> None:
        """Let time pass; the guard looks at its clock meanwhile as in flight."""
        target = 1e-9 * (at - self.begin_ns)
        while target - self.looked > TICK_S:  # also where messages come more often than that
            self.looked += TICK_S
            self._set(self.looked)
            self._idle()
        self._set(target)

    def _idle(self) -> None:
        """The nodes' own activity between two recorded steps."""
        if self.policy.mode != "starting":  # in flight it only reads the guard's answers: its steps are recorded ones
            self.policy.step()
        now = self.begin_ns + round(1e9 * self.buses[GUARD].seconds)
        while self.coming and self.coming[-1] < now:
            self.coming.pop()
        soon = bool(self.coming) and self.coming[-1] - now < 0.5e9 * self.guard.config.period
        if not (soon or self.pending):
            self._turn()
            self._drain()

    def _turn(self) -> None:
        """The guard's loop once (:func:`temporeal_bridge.process.node.spin`)."""
        if not self.ended:
            self.guard.step()
            self._hold()
            self.ended = self.ending and self.guard.may_end()
        if self.ended and self.begun < len(self.flights):  # there is another flight: it was started again
            self._start_again()

    def _start_again(self) -> None:
        """Another guard, after the first one has ended."""
        self.own[GUARD].close()
        self.own[GUARD] = MemoryTransport(self.buses[GUARD], "guard_node", self.namespace)
        self.guard, self.ending, self.ended = self.new_guard(), False, False

    # messages

    def _record(self, received: Received) -> None:
        at = self.begin_ns + round(1e9 * received.at)
        self.published.messages.append(Message(at, received.topic, received.type, received.data))

    def _drain(self) -> None:
        for player in self.players:
            player.wait(0.0)

    def give(self, side: int, message: Message) -> None:
        """See :class:`temporeal_bridge.replay.cues.Stage`."""
        key = (side, message.topic)
        if key not in self.endpoints:
            self.endpoints[key] = self.players[side].advertise(message.topic, message.type, QOS["latched"])
        self.players[side].publish(self.endpoints[key], message.data)
        self.own[side].wait(0.0)
        self._drain()

    # the controller

    def begin(self, flight: int) -> None:
        """The next state is the mission's first."""
        recorded, policy, self.begun = self.flights[flight], self.policy, flight + 1
        policy.next_hello = 0.0  # the link is not recorded: the guard must know by now which controller is there
        if policy.mode in ("waiting", "ready"):
            policy.step()
        self.link.waits = set()
        self._turn()
        policy.after = "silence" if ended_silent(recorded) else "stop"
        self.link.waits = {datagrams.COMMAND}
        if policy.after == "stop" and not self.guard.config.keeps and any(row.step < 0 for row in recorded.basis):
            self.link.waits.add(datagrams.END)
        if self.chunks is not None and self.made is not None:
            self.chunks.load(recorded.chunks, self.made[flight])
        if policy.told.told:
            policy.told.take(recorded.verdict.get("instruction", ""))
        policy.begin(recorded.number)
        policy.schedule.used -= 1.0  # the state that comes now is newer

    def step(self, flight: int, row: Row) -> None:
        """One control step, now, with as many missed before it as were recorded."""
        policy, schedule = self.policy, self.policy.schedule
        before = policy.flight.steps
        if self.chunks is not None:
            self.chunks.passed = row.at
            if row.step == row.missed:
                self.chunks.zero = policy.transport.monotonic()
        if policy.mode == "active":
            missed = row.step - before
            schedule.next = policy.transport.monotonic() - schedule.window - (missed + 1e-6) * schedule.period
        policy.step()
        if policy.mode == "active":
            schedule.next = inf  # until the next recorded one
        self.pending = (flight, row.step) in self.to_come
        if not self.pending:
            self.link.waits.discard(datagrams.COMMAND)
        if not self.pending or row.step == row.missed:  # the guard gets the beginning now, the command in its own time
            self._turn()

    # the guard

    def command(self, row: Row) -> None:
        """The guard's turn: the controller's proposal, or a command of its own."""
        now = self.guard.transport.monotonic()
        if row.step < 0 and self.guard.mode in ("stopping", "holding") and self.guard.stream.sent_at < now:
            self.guard.modes.due = min(self.guard.modes.due, now)
        if now < LEAD_S + FIRST_S:
            self.guard.monitor.rest.since = -inf  # how long the robot had rested is not recorded: the guard knew
        # where it does not keep the robot, its first own command is sent as it gets the end
        self.link.waits -= {datagrams.COMMAND} if row.step >= 0 else {datagrams.COMMAND, datagrams.END}
        self._turn()
        self.pending = self.pending and row.step < 0

    def stop(self, flight: int, reason: str) -> None:
        """Stop the guard for somebody who is not in the bag. That its stop button fell silent it finds by itself."""
        if reason == END_REQUESTED:
            self.ending, self.ended = True, self.guard.may_end()
        elif not (self.guard.button.watched and reason.startswith(ESTOP_SILENT)):
            self.unasked[flight] += 1
            self.guard.modes.stop("operator", reason)
        self._drain()

    def found(self, flight: int, at: int) -> None:
        """The recorded guard found its stop: note what this one knows now."""
        values = {**self.guard.monitor.values, **self._held_at(self.flights[flight], at)}
        self.seen = (self.buses[GUARD].seconds, values)
        self._hold()

    def _held_at(self, flight: RecordedFlight, at: int) -> dict[str, np.ndarray]:
        """The signals of the message, of those received about ``at`` [ns], that says where the robot was held: one of
        the guard's own commands is that place. The recording does not say which message a stop was made of, and the
        recorder may have received it later. Empty where there is none."""
        guard, rule = self.guard, self.guard.config.profile.tracking
        own = np.array([command for step, command in flight.sent if step < 0])
        if rule is None or guard.stream.motion is None or own.ndim != 2 or own.shape[1] != guard.config.spec.size:
            return {}
        k = next(k for k, row in enumerate(guard.config.interface.states) if rule.signal in carried_by(row))
        reader = StateReader(guard.config.interface.states[k], guard.config.interface.carried, [rule.signal])
        about = [m for m in self.recording.of(self.states[k]) if abs(m.at - at) <= 1e9 * guard.config.period]
        apart_by = AT_REST * (guard.config.limits.high - guard.config.limits.low)
        for message in sorted(about, key=lambda message: abs(message.at - at)):
            with suppress(Exception):  # bytes from anywhere: the guard counted them
                state = reader.message(message.type, message.data, 1e-9 * message.at)
                if state is None:
                    continue
                signals = reader.signals(state[0])
                place = hold.measured(guard.config.profile, guard.stream.motion, signals)
                if (np.abs(own - place) <= apart_by).all(axis=1).any():
                    return {rule.signal: signals[rule.signal]}
        return {}

    def _hold(self) -> None:
        """A robot is held where it was when its stop was found; this guard finds it a little earlier or later."""
        guard, (at, values) = self.guard, self.seen
        stop = guard.active_stop.under_way
        if stop.target is None or guard.stream.motion is None or abs(stop.since - at) > guard.config.period:
            return
        self.seen = NOT_SEEN
        known = ~np.isnan(stop.target)
        if guard.config.profile.place:
            place = hold.measured(guard.config.profile, guard.stream.motion, values)
            guard.active_stop.under_way = replace(stop, target=np.where(known, place, stop.target))
