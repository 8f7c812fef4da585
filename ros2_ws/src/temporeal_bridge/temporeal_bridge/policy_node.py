"""The controller: newest state in, command of the artifact out, at the artifact's rate. It proposes; the guard sends.

    python -m temporeal_bridge.policy_node --artifact outputs/demo/artifact --namespace /cf1

Modes: ``waiting`` (no state yet) -> ``ready`` -> ``starting`` (from ``mission/start``, until a state arrives) ->
``active`` -> ``ready``. Where an autopilot must be armed first, the guard says so: that start is void, and after
``arming`` another one follows. Mission time zero is the time of the first control step. Proposals go over a local
socket (:mod:`temporeal_bridge.link`) to the guard (:mod:`temporeal_bridge.guard_node`), which publishes on ``mission``
what becomes of them, and stops the robot when this node fails.

With ``--takeover`` this node replaces the controller in charge, in flight (mode ``succeeding``;
:mod:`temporeal_bridge.controller.takeover`). The one that is relieved ends with exit status 0, a successor that is
refused with 2.

Topics, in the robot's namespace:

- ``mission/start`` (std_msgs/UInt64: number of the flight): in;
- ``mission/instruction`` (std_msgs/String: a sentence or a formula, for the next missions): in; ``policy/instruction``
  (std_msgs/String, latched, JSON: what is in force; of a formula its forecast and itinerary): out; of policies that
  take instructions (:mod:`temporeal_bridge.controller.instructed`);
- ``policy/forecast`` (std_msgs/String, 2 Hz, JSON: flight, t, forecast, hits, legs: P(satisfied) by now), of policies
  that take formulas: out;
- ``policy/step`` (std_msgs/Float64MultiArray: flight, step, missed steps before it, time since the first one [s], then
  for each state topic the :func:`~temporeal_bridge.interface.state_input.mark` of the message behind it), after every
  step, for :mod:`temporeal_bridge.replay.replay`: out;
- ``policy/chunk`` (std_msgs/Float64MultiArray, :class:`~temporeal_bridge.mission.ChunkRecord`: chunks as they are
  used), where a worker runs the policy: out;
- ``policy/event`` (std_msgs/String, JSON: mode, flight, code, reason: why a mission does not begin or go on, where the
  guard cannot know): out;
- ``/diagnostics`` (diagnostic_msgs/DiagnosticArray, 1 Hz): out.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.manifest import identity
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalError
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.controller.announcements import Announcements
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, NoAction
from temporeal_bridge.controller.figures import FlightFigures
from temporeal_bridge.controller.instructed import Instructed
from temporeal_bridge.controller.loading import connect_worker, load_artifact
from temporeal_bridge.controller.step_log import StepLog, step_log_path
from temporeal_bridge.controller.step_schedule import StepSchedule
from temporeal_bridge.controller.stepped_policy import SteppedPolicy
from temporeal_bridge.controller.takeover import CATCH_UP_S, Successor, TakeoverError
from temporeal_bridge.instruction.sentences import is_told
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.artifact_offer import offer
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import ControllerEnd
from temporeal_bridge.link.sockets import SocketController
from temporeal_bridge.mission import AGES, FLIGHTS, GREATEST, mission_status, newest, percentiles
from temporeal_bridge.process.command_line import add_artifact, add_awake, link_path, parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.process.rehearsal import Rehearsal
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, require_peer

AFTER_HORIZON_S = 0.1  # the formula is decided by the sample at its horizon: fly a little longer
DIAGNOSTICS_S = 1.0
HELLO_S = 0.25  # interval between greetings to the guard, outside missions
START_S = 2.0  # for the first state after a start
AUTOSTART_S = 3.0  # from the guard's readiness: monitor and recorder, started beside, must see the mission begin


@dataclass(frozen=True)
class Options:
    """How a controller flies.

    Args:
        after: after the mission: ``"stop"``: the robot's stop action, or ``"silence"``.
        autostart: start the first mission without ``mission/start``.
        step_log: file for a successor; None: this controller can have none.
        offer: what a successor shows the guard (:func:`temporeal_bridge.link.artifact_offer.offer`); empty: this
            controller is none.
        awake: rehearse steps (:class:`temporeal_bridge.process.rehearsal.Rehearsal`).
        instruction: the first sentence, or formula, that the policy is told; empty: it waits for one.
        require: least P(satisfied) of a formula; others are refused.
    """

    after: str = "stop"
    autostart: bool = False
    step_log: Path | None = None
    offer: str = ""
    awake: bool = False
    instruction: str = ""
    require: float = 0.0

    def __post_init__(self) -> None:
        if self.after not in ("stop", "silence"):
            raise ValueError(f"after is {self.after!r}; legal: stop, silence")
        if not 0 <= self.require <= 1:
            raise ValueError(f"require is a probability from 0 to 1, got {self.require:g}")


class PolicyNode:
    """One artifact for one robot."""

    def __init__(
        self, transport: Transport, artifact: Artifact | ChunkedPolicy, robot: RobotSpec, interface: Interface,
        link: ControllerEnd, options: Options | None = None,
    ) -> None:
        options = options or Options()
        manifest = artifact.manifest
        self.transport, self.robot, self.interface, self.link = transport, robot, interface, link
        self.mode = "waiting"
        reads = [signal.name for signal in manifest.signals]
        self.state = StateInput(transport, robot, interface, wanted=reads, pictures=reads)
        self.told = Instructed(
            transport, artifact, robot, interface, options.instruction,
            changeable=lambda: "" if self.mode in ("waiting", "ready") else self.mode,
            refuse=lambda why: self.announcements.event(self.mode, -1, "instruction", why),
            state=lambda: self.state.newest() if self.state.complete else None, require=options.require)
        self.policy = SteppedPolicy(artifact, self.told)
        self.after, self.autostart = options.after, options.autostart
        self.identity, self.period = identity(manifest), 1.0 / manifest.rate_hz
        self.schedule = StepSchedule(self.period, 1.0 / interface.states[0].rate_hz)
        self.rehearsal = Rehearsal(self.period, options.awake and isinstance(artifact, Artifact))
        self.announcements = Announcements(transport, self.policy.chunks is not None, manifest.formulas is not None)
        transport.subscribe("mission/start", "std_msgs/msg/UInt64", QOS["default"], self._on_start)
        self.flight, self.flights = FlightFigures(-1), deque[FlightFigures](maxlen=FLIGHTS)
        self.step_log = None if options.step_log is None else StepLog(options.step_log)
        self.done = False
        self.successor = None
        if options.offer:
            self.successor = successor_of(artifact, options, transport.monotonic, lambda: self.state.paced.at)
            self.mode = "succeeding"
            transport.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], self._on_mission)
        self.in_charge = self.successor is None
        self.latency_s, self.age_s = deque[float](maxlen=AGES), deque[float](maxlen=AGES)
        self.guard = Answer("missing")
        self.first = 0.0  # when the first control step was made
        self.ready_since = inf
        self.next_hello = transport.monotonic()
        self.next_report = self.next_hello + DIAGNOSTICS_S

    # modes

    def _on_start(self, received: Received) -> None:
        """Refused starts are answered by an event. A successor leaves starts to the controller in charge, and one that
        is relieved to its successor."""
        if not self.in_charge or self.done:
            return
        try:
            number = int(messages.decode(received.type, received.data).data)
        except messages.MessageError as error:
            return self._drop(-1, f"the message on mission/start is no number of a mission: {error}")
        self._look_ready()
        if number > GREATEST:
            self._drop(-1, f"the number of a mission is 0 to 2^53, got {number}")
        elif self.mode == "ready" and self.told.refused:
            self._drop(number, f"mission {number} is not started: the last instruction was not taken, give another one")
        elif self.mode == "ready":
            self.begin(number)
        elif self.mode == "waiting":
            self._drop(number, f"mission {number} is not started: the controller is waiting for "
                               f"{', '.join((*self.state.missing, *self.told.missing))}, which brought nothing yet")
        else:
            self._drop(number, f"mission {number} is not started: the controller is {self.mode}, in mission "
                               f"{self.flight.number}")

    def _drop(self, number: int, reason: str) -> None:
        self.announcements.event(self.mode, number, "dropped", reason)

    def _on_mission(self, received: Received) -> None:
        if self.successor is not None:
            self.successor.mission = mission_status(received) or self.successor.mission

    def begin(self, number: int) -> None:
        """Start a mission: its time zero is the next control step."""
        if why := self.told.begin():
            self.autostart = False
            return self._drop(number, f"mission {number} is not started: {why}")
        self.policy.artifact.reset()
        if self.flights:
            self.flights[-1].close()
        self.flight = FlightFigures(number, instruction=self.told.text, planned=self.told.figures())
        self.flights.append(self.flight)
        self.mode, self.autostart = "starting", False
        self.schedule.restart(self.transport.monotonic())

    def _over(self, reason: str) -> None:
        if not self.in_charge:
            raise TakeoverError(reason or "the mission was over before this controller was in charge")
        self.flight.reason = self.flight.reason or reason
        self.mode = "ready"
        self.next_hello = self.transport.monotonic()

    def _fail(self, code: str, reason: str) -> None:
        """The mission is over, and the guard does not know why."""
        if self.in_charge:
            self.announcements.event(
                self.mode, self.flight.number, code, f"mission {self.flight.number} is over: {reason}")
        self._over(reason)

    def _on_answer(self, answer: Answer) -> None:
        """The guard's answer. One about another mission than this one concerns the past."""
        if self.successor is not None and not self.in_charge:
            return self._on_answer_to_successor(answer, self.successor)
        if answer.mode == "relieved":
            self.flight.reason = answer.reason if self.mode == "active" else self.flight.reason
            self.mode, self.done = "relieved", True
            return
        ours = (answer.flight, answer.stamp_ns) == (self.flight.number, self.flight.start_ns)
        if self.mode != "active" or ours:
            self.guard = answer
        if self.mode == "arming" and not ours:  # answers from before the mission came before
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

    def _on_answer_to_successor(self, answer: Answer, successor: Successor) -> None:
        """The guard refuses the successor, lets it propose, or puts it in charge."""
        if answer.mode == "refused":
            raise TakeoverError(f"the guard refuses the takeover: {answer.reason}")
        if answer.mode == "blending":
            successor.catch_up(inf)
            self.first, self.schedule.next, self.schedule.used = successor.first, successor.due, successor.used
            self.mode, successor.asked = "active", False
            return
        self.in_charge, self.guard, self.next_hello = True, answer, self.transport.monotonic()
        if self.mode == "succeeding":  # there was no mission: it waits for one like any other
            self.mode = "waiting"
        elif self.step_log is not None and successor.head is not None:
            self.step_log.go_on(successor.head)

    def _send(self, kind: int, values: Any = (), text: str = "") -> bool:
        """Send to the guard; without one the mission is over."""
        taken = self.link.send(Proposal(
            kind, self.flight.number, self.flight.steps - 1, self.flight.start_ns, self.state.paced.at,
            self.transport.monotonic(), values, text, oldest=self.state.since))
        if not taken:
            self.guard = Answer("missing")
            if self.mode in ("active", "arming"):
                self._fail("guard",
                           "no guard takes the proposals: is guard_node running, in this namespace and domain?")
        return taken

    # the loop

    def wait(self, timeout_s: float) -> None:
        """See :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        self.rehearsal.wait(self.transport, timeout_s)

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        if self.mode == "starting":  # asleep until a state wakes it: polling at real-time priority starves others
            return min(self.schedule.next + START_S, self.next_report)
        if self.mode == "active":
            return min(self.schedule.deadline, self.next_report, self.rehearsal.at)
        if self.mode == "succeeding":
            return self.transport.monotonic() + CATCH_UP_S
        return min(self.next_hello, self.next_report)

    def step(self) -> None:
        """See :class:`temporeal_bridge.process.node.Node`."""
        for answer in self.link.receive():
            self._on_answer(answer)
        now = self.transport.monotonic()
        if self.mode == "active":
            self._active_step(now)
        elif self.mode == "starting":
            self._start_step(now)
        elif self.mode == "succeeding" and self.successor is not None:
            self._succeed(self.successor)
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
        self.ready_since = min(self.ready_since, now) if self.guard.mode == "ready" else inf
        due = self.autostart and not self.told.refused and now >= self.ready_since + AUTOSTART_S
        if due and self.mode == "ready":
            self.begin(0)

    def _look_ready(self) -> None:
        if self.mode == "waiting" and self.state.complete and not self.told.missing:
            self.told.look()
            self.mode = "ready"

    def _succeed(self, successor: Successor) -> None:
        """Prepare for the present mission, if there is one, then ask the guard."""
        complete = self.state.complete
        if self.flight is not successor.follow(complete) and successor.flight.number >= 0:
            self.flight = successor.flight
            self.flights.append(self.flight)
        if successor.prepared(complete):
            successor.asked = True
            if not self._send(datagrams.TAKEOVER, text=successor.offer):
                raise TakeoverError("no guard takes the offer: is guard_node running, in this namespace and domain?")

    def _start_step(self, now: float) -> None:
        arrival = self.state.paced.at
        self.state.read_pictures()
        late = self.state.overdue(now)
        prepared = arrival > self.schedule.used and not late and self.policy.prepared(
            self.state.newest(), self.state.marks)
        if prepared:
            self.flight.start_ns = self.transport.now()
            self.schedule.next, self.first, self.mode = arrival, now, "active"
            if self.step_log is not None:
                self.step_log.begin(
                    self.flight.number, self.flight.start_ns, now, self.policy.size, self.state.newest())
            if self._send(datagrams.BEGIN):
                self._act(now)
        elif now > self.schedule.next + START_S:
            missing = "state" if arrival <= self.schedule.used else "fresh picture" if late else "chunk of the policy"
            self._fail("late", f"no {missing} came within {START_S:g} s of the start{late and f': {late}'}")

    def _active_step(self, now: float) -> None:
        if self.schedule.due(now, self.state.paced.at):
            self._act(now)
        else:
            self.state.read_pictures()  # now there is time for it
            if self.rehearsal.due(now):
                self._rehearse()
            elif self.in_charge and (said := self.told.forecast(now, self.state.newest)):
                self.announcements.forecast({"flight": self.flight.number, "t": now - self.first, **said})

    def _rehearse(self) -> None:
        """The next step's work on the newest state, without effect; errors are ignored."""
        with suppress(Exception):
            self.state.rehearse()
            self.policy.rehearse(self.state.newest(), self.flight.steps)

    def _act(self, now: float) -> None:
        """One control step (and the missed ones before it, unsent: the policy counts time by its steps)."""
        signals, missed = self.state.newest(), self.schedule.missed(now)
        command, steps = None, self.flight.steps + missed + 1
        try:
            if late := self.state.overdue(now):
                raise SignalError(late)
            command = self.policy.infer(signals, self.flight, steps)
        except NoAction as none:  # nothing is proposed: where that goes on, our silence makes the guard stop
            self.flight.steps, self.flight.starved, self.flight.starved_why = steps, self.flight.starved + 1, str(none)
        except Exception as error:  # any exception of a policy: the guard must know
            kind = "" if isinstance(error, SignalError) else f"{type(error).__name__}: "
            reason = f"the policy failed: {kind}{error}"
            self._send(datagrams.FAIL, text=reason)
            self._announce(steps - 1, missed, now)
            return self._over(reason)
        self.policy.note(steps - 1, self.state.marks)
        took = self.transport.monotonic() - now
        if command is None or self._send(datagrams.COMMAND, command):
            self._count(missed, command is not None)
            self._announce(steps - 1, missed, now)
            self.schedule.advance(missed, self.state.paced.at)
            self.rehearsal.plan(self.schedule.next - self.period, took)
            if self.in_charge and self.step_log is not None:
                self.step_log.add(steps - 1, self.schedule.next, command, signals)
            self.told.advance(signals)
            if self.flight.steps >= round((self.told.horizon_s + AFTER_HORIZON_S) / self.period) + 1:
                self._send(datagrams.END, text=self.after)
                self._over("")

    def _count(self, missed: int, sent: bool) -> None:
        self.flight.missed += missed
        if not sent:
            return
        age = self.transport.monotonic() - self.state.paced.at
        self.flight.first_s = self.flight.first_s or age
        if self.state.paced.at > self.schedule.used:
            self.flight.latency_s.append(age)
            self.latency_s.append(age)
        self.age_s.append(age)

    # reports

    def _announce(self, step: int, missed: int, now: float) -> None:
        """Publish a step that began ``now``, and the chunks that came with it. A successor that is not in charge
        publishes nothing."""
        if not self.in_charge:
            return
        at = self.policy.time_of(now) - self.first
        self.announcements.step(self.flight.number, step, missed, at, self.state.marks)
        for record in self.policy.records(self.flight.number, self.first):
            self.announcements.chunk(record)

    def _diagnose(self, now: float) -> None:
        flight, late = self.flight, self.state.overdue(now)
        level = 2 if flight.reason else 1 if self.state.rejected or flight.missed or late else 0
        self.announcements.diagnostics(
            self.policy.artifact.manifest.name, self.robot.name, level, flight.reason or late or self.mode, {
                "mode": self.mode, "flight": flight.number, "steps": flight.steps, "missed": flight.missed,
                "guard": self.guard.mode, "guard_reason": self.guard.reason,
                "state_age_ms": f"{1e3 * self.state.age(now):.1f}", "state_rejected": self.state.rejected,
                **{f"picture_age_ms {s.topic.topic}": f"{1e3 * self.state.picture_age(s, now):.0f}"
                   for s, _ in self.state.cameras},
                "state_repeated": self.state.repeated, "state_rejection": self.state.last_rejection,
                "step_log": "" if self.step_log is None else self.step_log.fault,
                **{f"latency_{k}_ms": v for k, v in percentiles(newest(flight.latency_s)).items()},
                **self.policy.figures(flight)})

    def close(self) -> None:
        """Leave the links."""
        self.link.close()
        if self.step_log is not None and self.in_charge:
            self.step_log.close(keep=self.done)
        self.policy.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {
            "node": "policy_node", "artifact": self.policy.artifact.manifest.name, "robot": self.robot.name,
            "interface": self.interface.name, "rate_hz": self.policy.artifact.manifest.rate_hz, "mode": self.mode,
            "state_rejected": self.state.rejected, "state_rejection": self.state.last_rejection,
            "latency_ms": percentiles(list(self.latency_s)),
            "state_age_ms": percentiles(list(self.age_s)),
            **self.policy.figures(self.flight), "flights": [flight.summary() for flight in self.flights]}


def successor_of(
    artifact: Artifact | ChunkedPolicy, options: Options, clock: Callable[[], float], arrival: Callable[[], float]
) -> Successor:
    """The part of a controller that prepares it for a takeover."""
    if options.step_log is None or not isinstance(artifact, Artifact):
        raise ValueError("a successor needs a step log, and a policy that gives one command at a time")
    return Successor(artifact, options.step_log, options.offer, clock, arrival)


def make(args: argparse.Namespace, transport: Transport) -> PolicyNode:
    """The node from its command line."""
    robot = robot_of(args)
    interface = load_interface(robot, args.interface, args.signals)
    if args.awake and args.worker is not None:
        raise ValueError("--awake with --worker: there is nothing to rehearse, the worker runs the policy")
    if args.takeover and args.worker is not None:
        raise TakeoverError("--takeover with --worker: a policy that gives chunks cannot take over, a mission must "
                            "begin with it. End the controller in charge while the robot rests, then start this one")
    artifact = (load_artifact(args.artifact, robot, interface, args.trust) if args.worker is None else
                connect_worker(args.artifact, robot, interface, args.worker, transport.monotonic, args.trust))
    if args.takeover and is_told(artifact.manifest):
        raise TakeoverError("--takeover with a policy that takes instructions: a mission must begin with it")
    path = link_path(args, transport)
    options = Options(args.after, args.start, step_log_path(path), offer(args.artifact) if args.takeover else "",
                      args.awake, args.instruction, args.require)
    node = PolicyNode(transport, artifact, robot, interface, SocketController(path), options)
    if args.peer_timeout > 0:
        require_peer(transport, node.state.endpoints[0], args.peer_timeout)
    return node


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("policy_node", "Run an artifact: newest state in, proposed command out, at the artifact's rate.")
    add_artifact(options)
    add_awake(options, "rehearse each step just before its turn, on a core kept awake by the guard's own --awake")
    options.add_argument("--worker", type=Path, default=None,
                         help="folder of the worker_node that runs the artifact, for policies that give chunks")
    options.add_argument("--takeover", action="store_true",
                         help="replace the controller in charge and its artifact, also in flight")
    options.add_argument("--start", action="store_true",
                         help=f"start a mission {AUTOSTART_S:g} s after the guard is ready")
    options.add_argument("--instruction", default="", metavar="SENTENCE",
                         help="what the policy is told, or the formula that it flies, until mission/instruction says "
                              "something else")
    options.add_argument("--require", type=float, default=0.0, metavar="P",
                         help="refuse formulas with a lower forecast of P(satisfied)")
    options.add_argument("--after", default="stop", choices=("stop", "silence"),
                         help="after the mission: the robot's stop action, or silence (default: %(default)s)")
    options.add_argument("--peer-timeout", type=float, default=10.0,
                         help="fail if no robot is on the bus after this many seconds; 0: wait for ever")
    return run(options, arguments, make, "policy.json")


if __name__ == "__main__":
    sys.exit(main())
