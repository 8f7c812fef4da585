"""The controller: newest state in, command of the artifact out, at the artifact's rate. It proposes; the guard sends.

    python -m temporeal_bridge.policy_node --artifact outputs/demo/artifact --namespace /cf1

Modes: ``waiting`` (no state yet) -> ``ready`` -> ``starting`` (from ``mission/start``, until a state comes) ->
``active`` -> ``ready``. Where an autopilot must be armed first, the guard says so: that start is void, and after
``arming`` comes another one. Mission time zero is the time of the first control step. What is proposed goes over a
local socket (:mod:`temporeal_bridge.link`) to the guard (:mod:`temporeal_bridge.guard_node`), which says on ``mission``
what becomes of it, and stops the robot where this node fails.

With ``--takeover`` another artifact is exchanged for the one that flies
(:mod:`temporeal_bridge.guard.artifact_swap`): this node
lives through the running mission beside the controller in charge (mode ``succeeding``;
:mod:`temporeal_bridge.controller.step_log`),
asks the guard, and goes on from there. Who is relieved ends with exit status 0, a successor that is refused with 2.

Topics, in the robot's namespace: ``mission/start`` (std_msgs/UInt64: number of the flight) in; ``policy/step``
(std_msgs/Float64MultiArray: flight, step, missed steps before it, time since the first one [s], then for each state
topic the :func:`~temporeal_bridge.interface.state_input.mark` of the message that was acted on), after every step, for
:mod:`temporeal_bridge.replay.replay`, ``policy/chunk`` (std_msgs/Float64MultiArray,
:class:`~temporeal_bridge.mission.ChunkRecord`: chunks as they are used), where a worker runs the policy, ``policy/event``
(std_msgs/String, JSON: mode, flight, code, reason: why a mission does not begin or go on, where the guard cannot know),
and ``/diagnostics`` (diagnostic_msgs/DiagnosticArray, 1 Hz) out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import ArtifactError, identity, load_manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalError
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.controller.chunked_policy import ChunkBook, ChunkedPolicy, NoAction
from temporeal_bridge.controller.mailbox import SocketLine
from temporeal_bridge.controller.step_log import Step, Tape, TapeReader, tape_path
from temporeal_bridge.controller.takeover import TakeoverError
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link import artifact_offer, datagrams
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import ControllerEnd
from temporeal_bridge.link.sockets import SocketController
from temporeal_bridge.mission import (
    AGES,
    FLIGHTS,
    GREATEST,
    MISSION_TIME,
    MissionStatus,
    check_fits,
    mission_status,
    newest,
    percentiles,
    task_signals,
)
from temporeal_bridge.process.command_line import add_artifact, add_awake, link_path, parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.process.rehearsal import Rehearsal
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, require_peer

AFTER_HORIZON_S = 0.1  # the formula is decided by the sample at its horizon: fly a little longer
PHASE_GAIN = 0.05  # share of the phase error between control steps and arriving states that each step corrects
DIAGNOSTICS_S = 1.0
HELLO_S = 0.25  # so often the guard hears that the controller is there, outside missions
START_S = 2.0  # for the first state after a start
SUCCEED_S = 60.0  # for a successor to be ready, and to be answered
CATCH_UP_S = 0.005  # so long at a time, and with such pauses, a successor catches up: others need the machine
AUTOSTART_S = 3.0  # from when the guard is ready: monitor and recorder, started beside, must see the mission begin


@dataclass
class Flight:
    """Figures of one mission."""

    number: int
    start_ns: int = 0
    steps: int = 0
    missed: int = 0  # control periods without a control step of their own
    starved: int = 0  # control steps for which the policy had no command
    reason: str = ""  # why it ended early
    # from the state's arrival to the proposal's departure; percentiles once the next mission began
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=AGES))
    latency_ms: dict[str, float | None] | None = None

    def close(self) -> None:
        """Keep percentiles only."""
        self.latency_ms, self.latency_s = percentiles(list(self.latency_s)), deque(maxlen=AGES)


class PolicyNode:
    """One artifact for one robot."""

    def __init__(
        self, transport: Transport, artifact: Artifact | ChunkedPolicy, robot: RobotSpec, interface: Interface,
        line: ControllerEnd, *, after: str = "stop", autostart: bool = False, tape: Path | None = None,
        offer: str = "", awake: bool = False,
    ) -> None:
        """``tape``: file for a successor (None: this controller has none); ``offer``: what a successor shows the guard
        (:func:`temporeal_bridge.link.artifact_offer.offer`); ``awake``: see
        :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        if after not in ("stop", "silence"):
            raise ValueError(f"after is {after!r}; legal: stop, silence")
        if len(artifact.manifest.commands) != 1:
            given = [command.name for command in artifact.manifest.commands]
            raise ValueError(f"one command is expected, the artifact gives {given}")
        self.transport, self.artifact, self.robot, self.interface = transport, artifact, robot, interface
        self.link, self.after, self.autostart = line, after, autostart
        self.name, self.size = artifact.manifest.commands[0].name, artifact.manifest.commands[0].size
        self.identity = identity(artifact.manifest)
        self.period = 1.0 / artifact.manifest.rate_hz
        self.rehearsal = Rehearsal(self.period, awake and isinstance(artifact, Artifact))
        self.steps = round((artifact.manifest.horizon_s + AFTER_HORIZON_S) * artifact.manifest.rate_hz) + 1
        state_period = 1.0 / interface.states[0].rate_hz
        self.window = 0.5 * state_period if state_period <= self.period + 1e-9 else 0.0
        reads = [signal.name for signal in artifact.manifest.signals]
        self.state = StateInput(transport, robot, interface, wanted=reads, pictures=reads)
        self.report = transport.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
        self.told = transport.advertise("policy/step", "std_msgs/msg/Float64MultiArray", QOS["default"])
        self.event = transport.advertise("policy/event", "std_msgs/msg/String", QOS["default"])
        self.book: ChunkBook | None = None
        if isinstance(artifact, ChunkedPolicy):
            self.book = ChunkBook(artifact)
            self.chunk = transport.advertise("policy/chunk", "std_msgs/msg/Float64MultiArray", QOS["default"])
        transport.subscribe("mission/start", "std_msgs/msg/UInt64", QOS["default"], self._on_start)
        self.mode, self.flight, self.flights = "waiting", Flight(-1), deque[Flight](maxlen=FLIGHTS)
        self.tape, self.offer, self.done, self.in_charge = None if tape is None else Tape(tape), offer, False, not offer
        self.reader: TapeReader | None = None
        if offer:
            if tape is None or isinstance(artifact, ChunkedPolicy):
                raise ValueError("a successor needs a tape, and a policy that gives one command at a time")
            self.mode, self.tape_file, self.mission, self.asked = "succeeding", tape, MissionStatus("", -1, 0), False
            self.until = transport.monotonic() + SUCCEED_S
            transport.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], self._on_mission)
        self.latency_s, self.age_s = deque[float](maxlen=AGES), deque[float](maxlen=AGES)
        self.guard, self.starved = Answer("missing"), ""
        self.next = self.used = 0.0  # when the next control step is due; arrival of the state last acted on
        self.first = 0.0  # when the first control step was made
        self.ready_since = np.inf
        self.next_hello = transport.monotonic()
        self.next_report = self.next_hello + DIAGNOSTICS_S

    # modes

    def _on_start(self, received: Received) -> None:
        """What is dropped is said. A successor leaves it to who is in charge, and who is relieved to its heir."""
        if not self.in_charge or self.done:
            return
        try:
            number = int(messages.decode(received.type, received.data).data)
        except messages.MessageError as error:
            return self._say(-1, "dropped", f"what came on mission/start is no number of a mission: {error}")
        self._look_ready()
        if number > GREATEST:
            self._say(-1, "dropped", f"the number of a mission is 0 to 2^53, got {number}")
        elif self.mode == "ready":
            self.begin(number)
        elif self.mode == "waiting":
            self._say(number, "dropped", f"mission {number} is not started: the controller is waiting for "
                                         f"{', '.join(self.state.missing)}, which brought nothing yet")
        else:
            self._say(number, "dropped", f"mission {number} is not started: the controller is {self.mode}, in mission "
                                         f"{self.flight.number}")

    def _on_mission(self, received: Received) -> None:
        self.mission = mission_status(received) or self.mission

    def begin(self, number: int) -> None:
        """Start a mission: its time zero is the next control step."""
        self.artifact.reset()
        if self.flights:
            self.flights[-1].close()
        self.flight = Flight(number)
        self.flights.append(self.flight)
        self.mode, self.autostart = "starting", False
        self.next = self.used = self.transport.monotonic()  # only a state that arrives from now on starts the mission

    def _over(self, reason: str) -> None:
        if not self.in_charge:
            raise TakeoverError(reason or "the mission was over before this controller was in charge")
        self.flight.reason = self.flight.reason or reason
        self.mode = "ready"
        self.next_hello = self.transport.monotonic()

    def _fail(self, code: str, reason: str) -> None:
        """The mission is over, and the guard does not know why."""
        if self.in_charge:
            self._say(self.flight.number, code, f"mission {self.flight.number} is over: {reason}")
        self._over(reason)

    def _hear(self, answer: Answer) -> None:
        """The guard speaks: what it says of another mission than this one is of its past."""
        if not self.in_charge and self._heard_as_heir(answer):
            return
        if answer.mode == "relieved":
            self.flight.reason = answer.reason if self.mode == "active" else self.flight.reason
            self.mode, self.done = "relieved", True
            return
        ours = (answer.flight, answer.stamp_ns) == (self.flight.number, self.flight.start_ns)
        if self.mode != "active" or ours:
            self.guard = answer
        if self.mode == "arming" and not ours:  # what it said before we began was heard before
            self._over("the guard knows nothing of this mission any more: it was started anew")
        elif self.mode not in ("active", "arming") or not ours or answer.mode == self.mode:
            return
        elif answer.mode == "arming":  # that start is void: time zero is when the autopilot obeys
            self.mode, self.next_hello = "arming", self.transport.monotonic()
        elif answer.mode == "clear":
            self.flights.pop()
            self.begin(self.flight.number)
        else:
            self._over(answer.reason or f"the guard is {answer.mode}")

    def _heard_as_heir(self, answer: Answer) -> bool:
        """What the guard says to a successor; whether that is all that there is to it."""
        if answer.mode == "refused":
            raise TakeoverError(f"the guard refuses the takeover: {answer.reason}")
        if answer.mode == "blending":
            self._catch_up(np.inf)
            self.mode, self.asked = "active", False
            return True
        self.in_charge, self.guard, self.next_hello = True, answer, self.transport.monotonic()
        if self.mode == "succeeding":  # no mission is flown: it waits for one as any other
            self.mode = "waiting"
        elif self.tape is not None and self.reader is not None and self.reader.head is not None:
            self.tape.go_on(self.reader.head)
        return True

    def _send(self, kind: int, values: Any = (), text: str = "") -> bool:
        """Tell the guard; without one the mission is over."""
        taken = self.link.send(Proposal(
            kind, self.flight.number, self.flight.steps - 1, self.flight.start_ns, self.state.paced.at,
            self.transport.monotonic(), values, text, oldest=self.state.since))
        if not taken:
            self.guard = Answer("missing")
            if self.mode in ("active", "arming"):
                self._fail("guard",
                           "no guard takes what is proposed: is guard_node running, in this namespace and domain?")
        return taken

    # the loop

    def wait(self, timeout_s: float) -> None:
        """See :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        self.rehearsal.wait(self.transport, timeout_s)

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        if self.mode == "starting":  # asleep until a state wakes it: a busy wait at real-time priority starves others
            return min(self.next + START_S, self.next_report)
        if self.mode == "active":
            return min(self.next + self.window, self.next_report, self.rehearsal.at)
        if self.mode == "succeeding":
            return self.transport.monotonic() + CATCH_UP_S
        return min(self.next_hello, self.next_report)

    def step(self) -> None:
        """See :class:`temporeal_bridge.process.node.Node`."""
        for answer in self.link.receive():
            self._hear(answer)
        now = self.transport.monotonic()
        if self.mode == "active":
            self._active_step(now)
        elif self.mode == "starting":
            self._start_step(now)
        elif self.mode == "succeeding":
            self._succeed(now)
        else:
            self._idle_step(now)
        if now >= self.next_report:
            self.next_report = now + DIAGNOSTICS_S
            self._diagnose(now)

    def _idle_step(self, now: float) -> None:
        if now >= self.next_hello:
            self.next_hello = now + HELLO_S
            self.state.read_pictures()
            if not self.state.overdue(now):  # else no mission could begin: the guard must not be ready
                self._send(datagrams.HELLO, text=self.identity)
        self._look_ready()
        self.ready_since = min(self.ready_since, now) if self.guard.mode == "ready" else np.inf
        if self.autostart and self.mode == "ready" and now >= self.ready_since + AUTOSTART_S:
            self.begin(0)

    def _look_ready(self) -> None:
        if self.mode == "waiting" and self.state.complete:
            self.mode = "ready"

    def _succeed(self, now: float) -> None:
        """A successor: prepare for the mission that is flown, if one is, then ask."""
        mode, number, start_ns = self.mission
        if now > self.until:
            raise TakeoverError(f"no exchange within {SUCCEED_S:g} s (guard: {mode or 'silent'}, state: "
                            f"{'there' if self.state.complete else 'missing'}, prepared: {self._prepared_for()})")
        if self.asked or not (mode and self.state.complete) or (mode == "active" and not self._lived(number, start_ns)):
            return
        self.asked = True
        if not self._send(datagrams.TAKEOVER, text=self.offer):
            raise TakeoverError("no guard takes what is said: is guard_node running, in this namespace and domain?")

    def _lived(self, number: int, start_ns: int) -> bool:
        """Whether the artifact has lived through the mission up to now."""
        if (number, start_ns) != (self.flight.number, self.flight.start_ns) or self.reader is None:
            self.artifact.reset()
            self.flight, self.reader = Flight(number, start_ns), TapeReader(self.tape_file, number, start_ns)
            self.flights.append(self.flight)
        return self.reader.ready() and self._catch_up(CATCH_UP_S) and self.flight.steps > 0

    def _catch_up(self, seconds: float) -> bool:
        """Make the steps that are on the tape, for so many ``seconds`` at most; whether it is at the tape's end."""
        if self.reader is None or self.reader.head is None:
            return True
        until, head = self.transport.monotonic() + seconds, self.reader.head
        self.first = head.first
        for step in self.reader.steps():
            self._live(step)
            if self.transport.monotonic() > until:
                return False
        return True

    def _live(self, step: Step) -> None:
        """A control step that the controller in charge has made, of the same signals: the memory goes on by it. Where
        that holds the last command, it is the one that was proposed to the guard, so that targets do not run away."""
        signals = dict(step.signals)
        try:
            for _ in range(step.missed + 1):
                signals[MISSION_TIME.name] = np.asarray(self.flight.steps * self.period, dtype=np.float32)
                self.artifact.act(signals)
                self.flight.steps += 1
        except SignalError as error:  # it reads what the other one does not, or gives nothing that could be sent
            raise TakeoverError(f"cannot live through mission {self.flight.number}: at step {self.flight.steps} {error}"
                            ) from error
        if not isinstance(self.artifact, ChunkedPolicy) and np.isfinite(step.command).all():
            self.artifact.adopt({self.name: step.command})
        self.next, self.used = step.due, self.state.paced.at

    def _prepared_for(self) -> str:
        return f"{self.flight.steps} steps of mission {self.flight.number}"

    def _start_step(self, now: float) -> None:
        arrival = self.state.paced.at
        self.state.read_pictures()
        late = self.state.overdue(now)
        if arrival > self.used and not late and self._prepared():
            self.flight.start_ns = self.transport.now()
            self.next, self.first, self.mode = arrival, now, "active"
            if self.tape is not None:
                self.tape.begin(self.flight.number, self.flight.start_ns, now, self.size, self.state.newest())
            if self._send(datagrams.BEGIN):
                self._act(now)
        elif now > self.next + START_S:
            missing = "state" if arrival <= self.used else "fresh picture" if late else "chunk of the policy"
            self._fail("late", f"no {missing} came within {START_S:g} s of the start{late and f': {late}'}")

    def _prepared(self) -> bool:
        """Whether the policy has its first command: one that runs elsewhere needs some time for it."""
        if self.book is None:
            return True
        prepared = self.book.policy.prepared(
            {**self.state.newest(), MISSION_TIME.name: np.zeros((), dtype=np.float32)})
        self.book.note(0, self.state.marks)
        return prepared

    def _active_step(self, now: float) -> None:
        """Act on a state as it arrives if a step is due then, else with the newest one when the window has passed."""
        fresh = self.state.paced.at > self.used
        if (fresh and self.state.paced.at >= self.next - self.window) or now >= self.next + self.window:
            self._act(now)
        else:
            self.state.read_pictures()  # now there is time for it
            if self.rehearsal.due(now):
                self._rehearse()

    def _rehearse(self) -> None:
        """The next step's work, done for nothing with the newest state: nothing goes on, and no error is ours."""
        seconds = np.asarray(self.flight.steps * self.period, dtype=np.float32)
        if isinstance(self.artifact, Artifact):
            with suppress(Exception):
                self.state.rehearse()
                self.artifact.rehearse({**self.state.newest(), MISSION_TIME.name: seconds})

    def _act(self, now: float) -> None:
        """One control step (and the missed ones before it, unsent: the policy counts time by its steps)."""
        signals = self.state.newest()
        missed = max(0, int((now - self.next + 0.5 * self.window) / self.period))
        command, steps = None, self.flight.steps + missed + 1
        if self.book is not None:  # it has no memory that would have to live through them
            self.flight.steps += missed
        try:
            if late := self.state.overdue(now):
                raise SignalError(late)
            while self.flight.steps < steps:
                signals[MISSION_TIME.name] = np.asarray(self.flight.steps * self.period, dtype=np.float32)
                command = self.artifact.act(signals)[self.name]
                self.flight.steps += 1
        except NoAction as none:  # nothing is proposed: where that goes on, our silence makes the guard stop
            command, self.starved = None, str(none)
            self.flight.steps, self.flight.starved = steps, self.flight.starved + 1
        except Exception as error:  # whatever a policy raises: the guard must hear of it
            kind = "" if isinstance(error, SignalError) else f"{type(error).__name__}: "
            reason = f"the policy failed: {kind}{error}"
            self._send(datagrams.FAIL, text=reason)
            if self.in_charge:
                self._tell(steps - 1, missed, now)
            return self._over(reason)
        if self.book is not None:
            self.book.note(steps - 1, self.state.marks)
        took = self.transport.monotonic() - now
        if command is None or self._send(datagrams.COMMAND, command):
            self._count(missed, command is not None)
            if self.in_charge:
                self._tell(steps - 1, missed, now)
            self._schedule(missed)
            self.rehearsal.plan(self.next - self.period, took)
            if self.in_charge and self.tape is not None:
                self.tape.add(steps - 1, self.next, command, signals)
            if self.flight.steps >= self.steps:
                self._send(datagrams.END, text=self.after)
                self._over("")

    def _count(self, missed: int, sent: bool) -> None:
        done, flight = self.transport.monotonic(), self.flight
        flight.missed += missed
        if not sent:
            return
        if self.state.paced.at > self.used:
            for kept in (flight.latency_s, self.latency_s):
                kept.append(done - self.state.paced.at)
        self.age_s.append(done - self.state.paced.at)

    def _schedule(self, missed: int) -> None:
        """The next step, a period later; its phase drifts towards the arrivals, so that states are used when new."""
        arrival = self.state.paced.at
        fresh = arrival > self.used and not missed
        error = float(np.clip(arrival - self.next, -self.window, self.window)) if fresh else 0.0
        self.used = arrival
        self.next += (missed + 1) * self.period + PHASE_GAIN * error

    # reports

    def _say(self, number: int, code: str, reason: str) -> None:
        """That mission ``number`` does not begin, or does not go on."""
        content = {"mode": self.mode, "flight": number, "code": code, "reason": reason}
        message = messages.record(self.event.type)(data=json.dumps(content))
        self.transport.publish(self.event, messages.encode(self.event.type, message))

    def _tell(self, step: int, missed: int, now: float) -> None:
        """What a step was made of that began ``now``: where chunks are played, at the time that its command is for; and
        the chunks that came with it."""
        number, at = self.flight.number, now if self.book is None else max(now, self.book.policy.now)
        data = np.array([number, step, missed, at - self.first, *self.state.marks])
        self.transport.publish(self.told, messages.encode(self.told.type, messages.array64(data)))
        for chunk in () if self.book is None else self.book.told(number, self.first):
            self.transport.publish(self.chunk, messages.encode(self.chunk.type, messages.array64(chunk.row())))

    def _diagnose(self, now: float) -> None:
        flight, late = self.flight, self.state.overdue(now)
        level = 2 if flight.reason else 1 if self.state.rejected or flight.missed or late else 0
        values = {
            "mode": self.mode, "flight": flight.number, "steps": flight.steps, "missed": flight.missed,
            "guard": self.guard.mode, "guard_reason": self.guard.reason,
            "state_age_ms": f"{1e3 * self.state.age(now):.1f}", "state_rejected": self.state.rejected,
            **{f"picture_age_ms {s.topic.topic}": f"{1e3 * self.state.picture_age(s, now):.0f}"
               for s, _ in self.state.cameras},
            "state_repeated": self.state.repeated, "state_rejection": self.state.last_rejection,
            "tape": "" if self.tape is None else self.tape.fault,
            **{f"latency_{k}_ms": v for k, v in percentiles(newest(flight.latency_s)).items()}, **self._chunks(),
        }
        message = messages.diagnostics(
            self.transport.now(), f"{self.transport.node}: {self.artifact.manifest.name}", self.robot.name, level,
            flight.reason or late or self.mode, values)
        self.transport.publish(self.report, messages.encode("diagnostic_msgs/msg/DiagnosticArray", message))

    def _chunks(self) -> dict[str, Any]:
        if not isinstance(self.artifact, ChunkedPolicy):
            return self.artifact.figures()  # of its reflex, where it has one
        return {"starved": self.flight.starved, "starved_why": self.starved, **self.artifact.figures()}

    def close(self) -> None:
        """Leave the lines."""
        self.link.close()
        if self.tape is not None and self.in_charge:
            self.tape.close(keep=self.done)
        if isinstance(self.artifact, ChunkedPolicy):
            self.artifact.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {
            "node": "policy_node", "artifact": self.artifact.manifest.name, "robot": self.robot.name,
            "interface": self.interface.name, "rate_hz": self.artifact.manifest.rate_hz, "mode": self.mode,
            "state_rejected": self.state.rejected, "state_rejection": self.state.last_rejection,
            "latency_ms": percentiles(list(self.latency_s)),
            "state_age_ms": percentiles(list(self.age_s)),
            **self._chunks(), "flights": [
                {"flight": f.number, "start_ns": f.start_ns, "steps": f.steps, "missed": f.missed, "reason": f.reason,
                 "latency_ms": f.latency_ms or percentiles(list(f.latency_s))} for f in self.flights],
        }


def load(path: Path, robot: RobotSpec, interface: Interface, trust: Path | None = None) -> Artifact:
    """The artifact, if it fits robot and interface, and its self-test passes; with ``trust``, the file of a public key,
    only one that it signed.
    """
    artifact = Artifact.load(path, robot, task_signals=task_signals(robot, interface), trust=trust)
    check_fits(artifact.manifest, robot, interface)
    if artifact.manifest.chunk is not None:
        raise ArtifactError(f"{path} gives chunks: run it in a worker_node, and say where to meet it (--worker FOLDER)")
    artifact.self_test()
    return artifact


def meet(
    path: Path, robot: RobotSpec, interface: Interface, folder: Path, clock: Callable[[], float],
    trust: Path | None = None,
) -> ChunkedPolicy:
    """The artifact, if it fits, as run by the worker that uses ``folder``, now or later: its network, which may be
    large, is loaded and tested there. ``trust``: see :func:`load`."""
    manifest = load_manifest(path, trust)
    check_fits(manifest, robot, interface)
    return ChunkedPolicy(manifest, SocketLine(folder, manifest), clock)


def make(args: argparse.Namespace, transport: Transport) -> PolicyNode:
    """The node from its command line."""
    robot = robot_of(args)
    interface = load_interface(robot, args.interface, args.signals)
    if args.awake and args.worker is not None:
        raise ValueError("--awake with --worker: there is nothing to rehearse, the worker runs the policy")
    if args.takeover and args.worker is not None:
        raise TakeoverError("--takeover with --worker: a policy that gives chunks cannot take over, a mission must begin "
                        "with it. End the controller in charge while the robot rests, then start this one")
    artifact = (load(args.artifact, robot, interface, args.trust) if args.worker is None else
                meet(args.artifact, robot, interface, args.worker, transport.monotonic, args.trust))
    path = link_path(args, transport)
    line = SocketController(path)
    node = PolicyNode(transport, artifact, robot, interface, line, after=args.after, autostart=args.start,
                      tape=tape_path(path), offer=artifact_offer.offer(args.artifact) if args.takeover else "", awake=args.awake)
    if args.peer_timeout > 0:
        require_peer(transport, node.state.endpoints[0], args.peer_timeout)
    return node


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("policy_node", "Run an artifact: newest state in, proposed command out, at the artifact's rate.")
    add_artifact(options)
    add_awake(options, "rehearse each step just before its turn, on a core that the guard's own --awake keeps awake")
    options.add_argument("--worker", type=Path, default=None,
                         help="folder of the worker_node that runs the artifact, which gives chunks")
    options.add_argument("--takeover", action="store_true",
                         help="relieve the controller in charge, in flight, too: exchange its artifact for this one")
    options.add_argument("--start", action="store_true",
                         help=f"start the mission by itself, {AUTOSTART_S:g} s after the guard is ready")
    options.add_argument("--after", default="stop", choices=("stop", "silence"),
                         help="after the mission: the robot's stop behaviour, or silence (default: %(default)s)")
    options.add_argument("--peer-timeout", type=float, default=10.0,
                         help="fail if no robot is on the bus after this many seconds; 0: wait for ever")
    return run(options, arguments, make, "policy.json")


if __name__ == "__main__":
    sys.exit(main())
