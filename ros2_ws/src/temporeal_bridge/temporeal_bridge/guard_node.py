"""The guard: the only process that commands the robot. It forwards fresh commands within limits, and stops the robot.

    python -m temporeal_bridge.guard_node --artifact outputs/demo/artifact --namespace /cf1

The controller (:mod:`temporeal_bridge.policy_node`) proposes over a local socket (:mod:`temporeal_bridge.link`); it may
hang, crash, or propose nonsense. The guard reads the artifact's manifest and the robot's ``ros.yaml``, never the
network; it is small, and waits for nobody. This module connects its parts (:mod:`temporeal_bridge.guard`) to topics and
time:

- Requirements and stop actions are defined in :mod:`~temporeal_bridge.guard.safety`.
- What is checked: :mod:`~temporeal_bridge.guard.checks`.
- What is done about it: :mod:`~temporeal_bridge.guard.mode_machine` by :mod:`~temporeal_bridge.guard.decisions`, with
  :mod:`~temporeal_bridge.guard.stop_actions`.
- What is sent: :mod:`~temporeal_bridge.guard.command_forwarder`, :mod:`~temporeal_bridge.guard.command_output`.
- Who announces it: :mod:`~temporeal_bridge.guard.announcements`, :mod:`~temporeal_bridge.guard.diagnostics`.

Topics, in the robot's namespace:

- ``mission/stop``, ``mission/reset`` (std_msgs/Empty), ``estop`` (std_msgs/Bool), ``monitor/verdict``: in. A second
  stop, 2 s later, lets down the motors of a quadrotor that levels.
- ``mission`` (std_msgs/Header, latched: stamp = mission time zero, frame_id = "<mode> <flight>"): out.
- ``guard/command`` (std_msgs/Float64MultiArray: :class:`~temporeal_bridge.mission.CommandRecord`), after every command:
  out.
- ``guard/event`` (std_msgs/String, JSON: mode, flight, t [s] since the mission began, code, reason): out.
- ``guard/swap`` (std_msgs/Float64MultiArray: flight, step, weight w, then two commands a and b: (1 - w) a + w b was
  asked for), during an artifact swap (:mod:`temporeal_bridge.guard.artifact_swap`): out.
- ``guard/artifact`` (std_msgs/String, latched, JSON: name, identity, robot, command, interface, rate_hz, manifest, the
  folder that it was read from, and remapped topics): what a recording is of, out.
- ``/diagnostics`` (diagnostic_msgs/DiagnosticArray, 1 Hz): out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.announcements import Announcements
from temporeal_bridge.guard.checks.competing_publishers import PublisherChecks
from temporeal_bridge.guard.checks.controller_session import ControllerSession
from temporeal_bridge.guard.checks.safety_checks import SafetyChecks
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.checks.stop_button import BOOL, TOPIC, StopButton
from temporeal_bridge.guard.command_forwarder import CommandForwarder, newest
from temporeal_bridge.guard.command_output import CommandOutput
from temporeal_bridge.guard.command_stream import CommandStream
from temporeal_bridge.guard.config import guard_config
from temporeal_bridge.guard.decisions import COMMANDED, pause_reason
from temporeal_bridge.guard.diagnostics import INTERVAL_S, Input, diagnostics
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.mode_machine import ModeMachine
from temporeal_bridge.guard.monitor_verdict import monitor_verdict
from temporeal_bridge.guard.px4 import Offboard
from temporeal_bridge.guard.safety.reasons import NOTHING
from temporeal_bridge.guard.stop_actions.active_stop import ActiveStop
from temporeal_bridge.guard.stop_actions.airborne import Airborne
from temporeal_bridge.guard.swap_requests import SwapRequests
from temporeal_bridge.interface.interface import ARM, Interface, armed_by, rows_of
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.ends import GuardEnd
from temporeal_bridge.link.sockets import SocketGuard
from temporeal_bridge.mission import END_REQUESTED, IDLE, MOVING, check_fits, percentiles
from temporeal_bridge.process.command_line import add_artifact, add_awake, link_path, parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.process.rehearsal import REHEARSED_S, Rehearsal
from temporeal_bridge.process.scheduling import AHEAD
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, qos_named

TICK_S = 0.005  # longest interval between looks at the bus while the robot is commanded
IDLE_S = 0.02  # the same otherwise
HELD_UP = 2.0  # of these ticks without a turn of the loop: the guard was held up. Chosen
RESCUE_S = 26.0  # longest last stop action of a guard that failed: a quadrotor sinks slowly
ONCE = ("best_effort",)  # for a reset: its repetition could clear a reason that came since
STOPS = ("best_effort", "default")  # a stop is heard from every publisher, and again from a reliable one: no harm


@dataclass(frozen=True)
class GuardOptions:
    """Options of a guard process.

    Args:
        folder: that the artifact was read from.
        trust: public key that must have signed a successor's manifest; None: no signature is needed.
        awake: see :class:`temporeal_bridge.process.rehearsal.Rehearsal`.
    """

    folder: Path | None = None
    trust: Path | None = None
    awake: bool = False


class GuardNode:
    """One robot, guarded. See :class:`temporeal_bridge.process.node.Node`."""

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, link: GuardEnd,
        options: GuardOptions = GuardOptions(),
    ) -> None:
        self.transport, self.link, self.config = transport, link, guard_config(manifest, robot, interface)
        config, autopilot = self.config, interface.autopilot
        self.rehearsal = Rehearsal(config.period, options.awake, REHEARSED_S)
        self.unreadable = 0  # messages
        self.end_requested = False  # whether the process shall end
        self.monitor = StateMonitor(config.profile, [state.rate_hz for state in interface.states])
        self.state = StateInput(
            transport, robot, interface, listener=self._on_state, wanted=config.profile.decoded())
        self.offboard = None if autopilot is None else Offboard(autopilot, config.topic, config.spec.shape)
        self.stream = CommandStream(config, self.monitor, Airborne(config, self.monitor))
        self.output = CommandOutput(
            transport, self.stream, Announcements(transport), self.offboard, lambda: self.state.marks)
        self.button = StopButton(config.profile.estop, self._subscribe_latched)
        topics = (*(row.topic for row in rows_of(config.topic)), *interface.rivals_of(config.spec.name))
        publishers = PublisherChecks(topics, transport.publishers, transport.resolve, self.button)
        self.checks = SafetyChecks(
            self.monitor, publishers, ControllerSession(), lambda: transport.active, self.offboard)
        self.active_stop = ActiveStop(config, self.monitor)
        self.swaps = SwapRequests(
            config, manifest, link, lambda code, reason: self.modes.announce(code, reason), options.trust)
        self.forwarder = CommandForwarder(self.checks, self.output, self.swaps, self.active_stop)
        self.modes = ModeMachine(
            self.checks, self.output, self.swaps, self.active_stop, link, transport.monotonic)
        self._subscribe()
        publishers.look(transport.monotonic(), commanded=False, active=False)  # takes milliseconds: not in flight
        self.next_report = transport.monotonic() + INTERVAL_S
        self.modes.introduce(options.folder)
        self.modes.set_mode("waiting")

    def _subscribe(self) -> None:
        """Subscribe to what others say, beside the state."""
        autopilot, empty = self.config.interface.autopilot, "std_msgs/msg/Empty"
        if autopilot is not None:
            status = autopilot.status
            self.transport.subscribe(status.topic, status.type, qos_named(status.qos), self._on_autopilot)
        for topic, type, callback, ways in (
                (TOPIC, BOOL, self._on_button, STOPS), ("mission/stop", empty, self._on_stop, STOPS),
                ("mission/reset", empty, self._on_reset, ONCE),
                ("monitor/verdict", "std_msgs/msg/String", self._on_verdict, ("default",))):
            for way in ways:
                self.transport.subscribe(topic, type, QOS[way], callback)

    def _subscribe_latched(self) -> None:
        self.transport.subscribe(TOPIC, BOOL, QOS["latched"], self._on_button)

    @property
    def mode(self) -> str:
        """See :class:`temporeal_bridge.guard.mode_machine.ModeMachine`."""
        return self.modes.mode

    @property
    def flight(self) -> Flight:
        """The mission, or the last one."""
        return self.modes.flight

    # ---- what comes in

    def _on_state(self, topic: int, stamp: int, signals: dict[str, np.ndarray]) -> None:
        self.monitor.take(topic, stamp, signals, self.transport.monotonic(), self.transport.now())

    def _on_autopilot(self, received: Received) -> None:
        message = self._read(received)
        if self.offboard is not None and message is not None:
            self.offboard.on_status(message, received.at)

    def _read(self, received: Received) -> Any:
        """The message; None if these bytes are none, which is counted."""
        try:
            return messages.decode(received.type, received.data)
        except messages.MessageError:
            self.unreadable += 1
            return None

    def _on_stop(self, received: Received) -> None:
        orders, now = self.modes.orders, self.transport.monotonic()
        orders.stop_heard = now
        self.modes.stop("operator", "stopped by the operator")
        self.modes.order_down(orders.repeated(now))

    def _on_button(self, received: Received) -> None:
        """The stop button. A message that cannot be read counts as pressed: it is no permission to go on."""
        message = self._read(received)
        self.button.hear(message is None or bool(message.data), received.at)
        if self.button.set:
            orders, now = self.modes.orders, self.transport.monotonic()
            orders.stop_heard = now
            self.modes.stop("operator", "the operator's stop is set")
            self.modes.order_down(orders.pressed(now))

    def _on_reset(self, received: Received) -> None:
        self.modes.reset()

    def _on_verdict(self, received: Received) -> None:
        message, modes = self._read(received), self.modes
        try:
            verdict = None if message is None else monitor_verdict(
                message.data, modes.flight, self.swaps.manifest, self.swaps.identity)
        except (ValueError, AttributeError, RecursionError):  # no JSON, no object, or one without end
            self.unreadable += 1
            return
        if verdict is None or modes.mode != "active":
            return
        if verdict.at_risk:
            modes.announce("at_risk", f"robustness ends at {verdict.upper} at most")
        if verdict.violated and self.config.profile.violated == "stop":
            modes.stop("violated", f"the formula is violated: {verdict.told or self.swaps.manifest.formula}")
        elif verdict.violated:
            modes.announce("violated", "the formula is violated")

    def _hear(self, p: Proposal, now: float) -> None:
        """One datagram of a controller."""
        modes, flight = self.modes, self.modes.flight
        if p.successor:
            complete = self.swaps.hear(p, now, modes.situation())
            if complete is not None:
                modes.take_over(complete)
        elif p.kind == datagrams.HELLO:
            self.checks.controller.greet(p.text, self.swaps.identity, now)
            modes.answer()
        elif p.kind == datagrams.BEGIN:
            modes.begin(p, now)
        elif modes.mode != "active" or p.flight != flight.number:
            modes.disown(p)
        elif p.kind == datagrams.COMMAND and p.stamp_ns != flight.start_ns:
            modes.disown(p)
        elif p.kind == datagrams.COMMAND:
            self._forward(p, now)
        elif p.kind == datagrams.END:
            modes.end(p.text)
        elif p.kind == datagrams.FAIL:
            modes.stop("policy", p.text)

    def _forward(self, p: Proposal, now: float) -> None:
        """Send the command that a proposal makes, or stop for it."""
        flight, swaps = self.modes.flight, self.swaps
        before = flight.sent
        reason = self.forwarder.forward(p, flight, now)
        if reason != NOTHING:
            return self.modes.stop(*reason)
        if flight.sent > before:
            self.rehearsal.plan(p.seen, self.stream.sent_at - now)
            if swaps.swap is not None and swaps.swap.done:
                self.modes.take_over(swaps.swap)

    # ---- the loop

    def wait(self, timeout_s: float) -> None:
        """Sleep until the controller speaks, for at most ``timeout_s``."""
        self.link.wait(timeout_s)

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        now = self.transport.monotonic()
        tick = min(TICK_S, self.config.period) if self.modes.mode in COMMANDED else IDLE_S
        return min(now + tick, self.modes.due, self.next_report, self.checks.publishers.next_at, self.rehearsal.at)

    def step(self) -> None:
        """See :class:`temporeal_bridge.process.node.Node`.

        In flight a proposal is handled before the bus is read, because it is on the way from state to command; but not
        where the state limits what may be sent, nor after this process did not run for a while: its state has grown old
        then, and newer ones wait."""
        now, modes = self.transport.monotonic(), self.modes
        paused, modes.stepped = now - modes.stepped, now
        stood = pause_reason(paused, self.config.profile.silent_after_s) if modes.mode == "active" else NOTHING
        reads_first = (
            stood != NOTHING or modes.mode != "active" or self.config.needs_state or paused > HELD_UP * TICK_S)
        if reads_first:
            self.transport.wait(0.0)
        if stood != NOTHING:  # a stop begins with the newest state
            modes.stop(*stood)
        proposals, dropped = newest(self.link.receive())
        modes.flight.dropped += dropped
        for proposal in proposals:
            self._hear(proposal, self.transport.monotonic())
        if not reads_first:
            self.transport.wait(0.0)
        now = self.transport.monotonic()
        self._act(now)
        self._look_and_report(now)

    def _act(self, now: float) -> None:
        """What is due in each mode."""
        modes = self.modes
        if modes.mode == "active":
            reason = self.forwarder.check(modes.flight, now)
            if reason != NOTHING:
                modes.stop(*reason)
        elif modes.mode in IDLE:
            modes.idle(now)
        elif modes.mode == "arming":
            modes.arm(now)
        if modes.mode not in MOVING:
            modes.forget(now)
        if modes.mode in ("stopping", "holding"):
            modes.continue_stop(now)

    def _look_and_report(self, now: float) -> None:
        """What is due at intervals."""
        publishers = self.checks.publishers
        if now >= publishers.next_at:
            publishers.look(now, self.modes.mode in COMMANDED, self.transport.active)
        if now >= self.next_report:
            self.next_report = now + INTERVAL_S
            received = Input(self.state.rejected, self.state.last_rejection, self.link.malformed, self.unreadable)
            self.output.announcements.diagnostics(
                self.swaps.manifest.name, self.config.robot.name, *diagnostics(self.modes, received, now))
        now = self.transport.monotonic()
        if self.rehearsal.due(now):
            self._rehearse(now)

    def _rehearse(self, now: float) -> None:
        """A dry run of the next command with the last one: nothing is sent, and errors do not count."""
        if self.modes.mode == "active" and self.stream.motion is not None:
            with suppress(Exception):
                if self.config.needs_state:  # the state is read before the proposal
                    self.state.rehearse()
                self.forwarder.rehearse(self.modes.flight, now, self.transport.now())

    # ---- the end

    def may_end(self) -> bool:
        """The process shall end: the robot is stopped first. Whether it is."""
        modes = self.modes
        if not self.end_requested and (modes.mode not in IDLE or modes.grip() is not None):
            self.end_requested = True
            modes.stop("operator", END_REQUESTED)
        if modes.mode in MOVING:
            return False
        modes.release()
        return True

    def rescue(self, error: Exception) -> None:
        """The guard failed: the stop action, with as little around it as possible, before the process ends. A robot
        that holds its last command for ever is left at rest."""
        modes, looked, turns = self.modes, self.transport.monotonic(), round(RESCUE_S / TICK_S)
        end = looked + RESCUE_S
        with suppress(Exception):
            modes.stop("guard", f"the guard failed: {type(error).__name__}: {error}")
        while modes.mode in MOVING and (now := self.transport.monotonic()) < end and turns:
            turns -= now <= looked  # the clock may be what failed; nor does time pass when a message wakes us
            looked = now
            with suppress(Exception):
                if modes.mode == "active":
                    modes.begin_stop(self.config.profile.action("guard"))
                self.transport.wait(max(min(modes.due - self.transport.monotonic(), TICK_S), 0.0))
            with suppress(Exception):
                now = self.transport.monotonic()
                if self.checks.autopilot(now):
                    modes.set_mode("stopped")
                elif now >= modes.due:
                    modes.stop_step(now)
        with suppress(Exception):
            modes.release()

    def close(self) -> None:
        """Close the link."""
        self.link.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {
            "node": "guard_node", "artifact": self.swaps.manifest.name, "robot": self.config.robot.name,
            "mode": self.modes.mode, "command": self.config.topic.topic, "state_rejected": self.state.rejected,
            "state_rejection": self.state.last_rejection, "malformed": self.link.malformed,
            "latency_ms": percentiles(list(self.forwarder.latency_s)),
            "flights": [flight.summary() for flight in self.modes.flights]}


def make(args: argparse.Namespace, transport: Transport) -> GuardNode:
    """The node from its command line."""
    robot = robot_of(args)
    manifest, interface = load_manifest(args.artifact, args.trust), load_interface(
        robot, args.interface, args.signals)
    if args.arm is not None:
        interface = armed_by(interface, args.arm)
    check_fits(manifest, robot, interface)
    return GuardNode(transport, manifest, robot, interface, SocketGuard(link_path(args, transport)),
                     GuardOptions(args.artifact, args.trust, args.awake))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("guard_node", "The only process that commands the robot: fresh commands within limits, or a stop.")
    add_artifact(options)
    add_awake(options, "never let that core sleep, and rehearse each step just before its turn")
    options.add_argument("--arm", default=None, choices=ARM,
                         help="who arms the autopilot, instead of what ros.yaml says: the pilot, or we when asked")
    return run(options, arguments, make, "guard.json", ahead=AHEAD, wakes=True)


if __name__ == "__main__":
    sys.exit(main())
