"""The controller: newest state in, command of the artifact out, at the artifact's rate.

    python -m temporeal_bridge.policy_node --artifact outputs/demo/artifact --namespace /cf1

Modes: ``waiting`` (no state yet) -> ``ready`` -> ``active`` (from ``mission/start``) -> ``stopping`` (the robot's stop
behaviour: after the mission, or because of a latched reason) -> ``finished`` (silent). A new start begins a new
mission; mission time zero is the stamp of the first command, published on ``mission``.

Topics, in the robot's namespace:

- ``mission/start`` (std_msgs/UInt64: number of the flight), ``mission/stop`` (std_msgs/Empty): in;
- ``mission`` (std_msgs/Header, latched: stamp = mission time zero, frame_id = "<mode> <flight>"): out;
- ``/diagnostics`` (diagnostic_msgs/DiagnosticArray, 1 Hz): out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from policies.export.runtime import Artifact
from robots import shield
from robots.motion import Bounds, Motion
from robots.signals import SignalError, SignalSpec
from robots.spec import RobotSpec, load_robot
from temporeal_bridge import codecs, messages
from temporeal_bridge.interface import Interface, load_interface
from temporeal_bridge.node import parser, run
from temporeal_bridge.state import StateInput
from temporeal_bridge.transport import QOS, Received, Transport, qos_named, require_peer

MISSION_TIME = SignalSpec("mission_time", (), "s")
GRAVITY = 9.81  # m/s^2
AFTER_HORIZON_S = 0.1  # the formula is decided by the sample at its horizon: fly a little longer
PHASE_GAIN = 0.05  # share of the phase error between control steps and arriving states that each step corrects
DIAGNOSTICS_S = 1.0
START_S = 2.0  # for the first state after a start
AUTOSTART_S = 3.0  # from the first state: monitor and recorder, started beside this node, must see the mission begin


@dataclass
class Flight:
    """Figures of one mission."""

    number: int
    start_ns: int = 0
    steps: int = 0
    missed: int = 0  # control periods without a control step of their own
    clamped: int = 0
    reason: str = ""
    latency_s: list[float] = field(default_factory=list)
    age_s: list[float] = field(default_factory=list)


@dataclass
class Stopping:
    """A stop behaviour under way: since when [s, monotonic], and when its next command is due."""

    since: float
    due: float


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the maximum in milliseconds; None where nothing was measured."""
    if not seconds:
        return {"p50": None, "p99": None, "max": None}
    p50, p99, top = np.percentile(seconds, [50, 99, 100]) * 1e3
    return {"p50": float(p50), "p99": float(p99), "max": float(top)}


class PolicyNode:
    """One artifact flying one robot."""

    def __init__(
        self, transport: Transport, artifact: Artifact, robot: RobotSpec, interface: Interface, *,
        after: str = "stop", autostart: bool = False,
    ) -> None:
        if after not in ("stop", "silence"):
            raise ValueError(f"after is {after!r}; legal: stop, silence")
        if len(artifact.manifest.commands) != 1:
            given = [command.name for command in artifact.manifest.commands]
            raise ValueError(f"one command is expected, the artifact gives {given}")
        self.transport, self.artifact, self.robot, self.interface = transport, artifact, robot, interface
        self.after, self.autostart = after, autostart
        self.spec = robot.command(artifact.manifest.commands[0].name)
        topic = interface.command(self.spec.name)
        self.topic, self.codec = topic, codecs.COMMANDS[topic.codec]
        self.period = 1.0 / artifact.manifest.rate_hz
        self.steps = round((artifact.manifest.horizon_s + AFTER_HORIZON_S) * artifact.manifest.rate_hz) + 1
        state_period = 1.0 / interface.states[0].rate_hz
        self.window = 0.5 * state_period if state_period <= self.period + 1e-9 else 0.0
        self.state = StateInput(transport, robot, interface)
        self.command = transport.advertise(topic.topic, topic.type, qos_named(topic.qos))
        self.mission = transport.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
        self.report = transport.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
        transport.subscribe("mission/start", "std_msgs/msg/UInt64", QOS["default"], self._on_start)
        transport.subscribe("mission/stop", "std_msgs/msg/Empty", QOS["default"], self._on_stop)
        self.mode, self.flight, self.flights = "waiting", Flight(-1), list[Flight]()
        self.next = self.used = 0.0  # when the next control step is due; arrival of the state last acted on
        self.limits = Bounds(self.spec.low, self.spec.high, self.period)
        self.last: Motion | None = None
        self.stopping = Stopping(0.0, 0.0)
        self.unlocked = False
        self.next_report = transport.monotonic() + DIAGNOSTICS_S
        self._say()

    # mode changes

    def _say(self, mode: str | None = None, reason: str = "") -> None:
        self.mode = mode or self.mode
        self.flight.reason = self.flight.reason or reason
        header = messages.header(self.flight.start_ns, f"{self.mode} {self.flight.number}")
        self.transport.publish(self.mission, messages.encode("std_msgs/msg/Header", header))

    def _on_start(self, received: Received) -> None:
        if self.mode in ("ready", "finished"):
            self.begin(int(messages.decode(received.type, received.data).data))

    def _on_stop(self, received: Received) -> None:
        if self.mode == "active":
            self.stop("stopped by the operator")

    def begin(self, number: int) -> None:
        """Start a mission: its time zero is the next control step."""
        self.artifact.reset()
        self.flight = Flight(number)
        self.flights.append(self.flight)
        self.last, self.mode = None, "starting"
        self.next = self.transport.monotonic()
        self.used = self.next  # only a state that arrives from now on starts the mission
        if not self.transport.active:
            self.stop("the node is not active: ros2 lifecycle set configures and activates it")

    def stop(self, reason: str) -> None:
        """End the mission for ``reason`` (empty: it is over) with the stop behaviour. Latched until the next start."""
        now = self.transport.monotonic()
        quiet = self.after == "silence" and not reason
        self.stopping = Stopping(now, now)
        self._say("finished" if quiet else "stopping", reason)
        if not quiet:
            self._stop_step(now)

    # the loop

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.node.Node`."""
        if self.mode == "starting":  # asleep until a state wakes it: a busy wait at real-time priority starves others
            return min(self.next + START_S, self.next_report)
        if self.mode == "active":
            return min(self.next + self.window, self.next_report)
        return min(self.stopping.due, self.next_report) if self.mode == "stopping" else self.next_report

    def step(self) -> None:
        """See :class:`temporeal_bridge.node.Node`."""
        now = self.transport.monotonic()
        if self.mode == "waiting" and self.state.complete:
            self._say("ready")
            self.next = now + AUTOSTART_S
        elif self.mode == "ready":
            self._unlock()
            if self.autostart and self.transport.active and now >= self.next:
                self.begin(0)
        elif self.mode == "starting":
            self._start_step(now)
        elif self.mode == "active":
            self._active_step(now)
        elif self.mode == "stopping" and now >= self.stopping.due:
            self._stop_step(now)
        if now >= self.next_report:
            self.next_report = now + DIAGNOSTICS_S
            self._diagnose(now)

    def _unlock(self) -> None:
        """One zero setpoint on the ground: the Crazyflie keeps its thrust locked until it has seen one."""
        height = float(self.state.newest().get("height", np.inf))
        below = height < self.interface.safety["unlock_below_m"]
        if not self.unlocked and below and self.transport.active and self.transport.matched(self.command):
            self.unlocked = True
            self._send(np.zeros(self.spec.shape))

    def _start_step(self, now: float) -> None:
        arrival = self.state.paced.at
        if arrival > self.used and self.transport.active:
            self.flight.start_ns = self.transport.now()
            self.next = arrival
            self._say("active")
            self._act(now)
        elif now > self.next + START_S:
            silent = f"no state came within {START_S:g} s of the start"
            self.stop(silent if self.transport.active else "the node is not active")

    def _active_step(self, now: float) -> None:
        """Act on a state as it arrives if a step is due then, else with the newest one when the window has passed."""
        fresh = self.state.paced.at > self.used
        if (fresh and self.state.paced.at >= self.next - self.window) or now >= self.next + self.window:
            self._act(now)

    def _act(self, now: float) -> None:
        """One control step (and the missed ones before it, unsent: the policy counts time by its steps)."""
        if not self.transport.active:
            return self.stop("deactivated")
        reason = self._refusal(now)
        if reason:
            return self.stop(reason)
        signals = self.state.newest()
        missed = max(0, int((now - self.next + 0.5 * self.window) / self.period))
        try:
            for _ in range(missed + 1):
                signals["mission_time"] = np.asarray(self.flight.steps * self.period, dtype=np.float32)
                proposed = self.artifact.act(signals)[self.spec.name]
                self.flight.steps += 1
        except SignalError as error:
            return self.stop(f"the policy failed: {error}")
        verdict, self.last = shield.guard(self.spec, proposed, self.limits, self.last)
        if verdict.command is None:
            return self.stop(verdict.reason)
        self._send(verdict.command)
        self._count(missed, bool(verdict.reason))
        self._schedule(missed)
        if self.flight.steps >= self.steps:
            self.stop("")

    def _refusal(self, now: float) -> str:
        safety = self.interface.safety
        reason = shield.stale(self.state.age(now), safety["stale_after_s"])
        fence = safety["geofence"]
        return reason or shield.outside(self.state.newest()["base_pos_w"], fence["low"], fence["high"])

    def _count(self, missed: int, clamped: bool) -> None:
        """Latency from the state's arrival in this process to the command's departure, where the state was new."""
        done, flight = self.transport.monotonic(), self.flight
        if self.state.paced.at > self.used:
            flight.latency_s.append(done - self.state.paced.at)
        flight.age_s.append(done - self.state.paced.at)
        flight.missed += missed
        flight.clamped += clamped

    def _schedule(self, missed: int) -> None:
        """The next step, a period later; its phase drifts towards the arrivals, so that states are used when new."""
        arrival = self.state.paced.at
        fresh = arrival > self.used and not missed
        error = float(np.clip(arrival - self.next, -self.window, self.window)) if fresh else 0.0
        self.used = arrival
        self.next += (missed + 1) * self.period + PHASE_GAIN * error

    def _stop_step(self, now: float) -> None:
        """One command of the stop behaviour, or silence when it has ended."""
        level, elapsed = self.interface.safety["level"], now - self.stopping.since
        fresh = not shield.stale(self.state.age(now), self.interface.safety["stale_after_s"])
        signals = self.state.newest()
        landed = fresh and float(signals["height"]) < level["landed_m"]
        limit = level["max_s"] if fresh else level["blind_s"]
        can = self.interface.safety["stop"] == "level" and self.spec.name == "ctbr_cmd" and self.transport.active
        if not can or landed or elapsed > limit:
            if can and (landed or fresh):
                self._send(np.zeros(self.spec.shape))
            return self._say("finished")
        hover = self.robot.parameters["mass"].nominal[0] * GRAVITY
        self._send(shield.level_and_descend(signals["base_quat_w"] if fresh else None, hover, level))
        self.stopping.due = now + self.period

    def _send(self, command: np.ndarray) -> None:
        inside = shield.clamp(self.spec, command).command
        message = self.codec.encode(np.asarray(inside), self.topic.options)
        self.transport.publish(self.command, messages.encode(self.topic.type, message))

    # reports

    def _diagnose(self, now: float) -> None:
        flight = self.flight
        level = 2 if flight.reason else 1 if self.state.rejected or flight.missed else 0
        values = {
            "mode": self.mode, "flight": flight.number, "steps": flight.steps, "missed": flight.missed,
            "clamped": flight.clamped, "state_age_ms": f"{1e3 * self.state.age(now):.1f}",
            "state_rejected": self.state.rejected, "state_rejection": self.state.last_rejection,
            **{f"latency_{k}_ms": v for k, v in percentiles(flight.latency_s[-500:]).items()},
        }
        message = messages.diagnostics(
            self.transport.now(), f"{self.transport.node}: {self.artifact.manifest.name}", self.robot.name, level,
            flight.reason or self.mode, values)
        self.transport.publish(self.report, messages.encode("diagnostic_msgs/msg/DiagnosticArray", message))

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.node.Node`."""
        return {
            "node": "policy_node", "artifact": self.artifact.manifest.name, "robot": self.robot.name,
            "interface": self.interface.name, "rate_hz": self.artifact.manifest.rate_hz, "mode": self.mode,
            "state_rejected": self.state.rejected, "state_rejection": self.state.last_rejection,
            "latency_ms": percentiles([x for f in self.flights for x in f.latency_s]),
            "state_age_ms": percentiles([x for f in self.flights for x in f.age_s]),
            "flights": [
                {"flight": f.number, "start_ns": f.start_ns, "steps": f.steps, "missed": f.missed, "clamped": f.clamped,
                 "reason": f.reason, "latency_ms": percentiles(f.latency_s)} for f in self.flights],
        }


def load(path: Path, robot: RobotSpec) -> Artifact:
    """The artifact, if it is this robot's and its self-test passes."""
    artifact = Artifact.load(path, robot, task_signals={MISSION_TIME.name: MISSION_TIME})
    artifact.self_test()
    return artifact


def make(args: argparse.Namespace, transport: Transport) -> PolicyNode:
    """The node from its command line."""
    robot = load_robot(args.robot)
    artifact = load(args.artifact, robot)
    node = PolicyNode(transport, artifact, robot, load_interface(robot, args.interface), after=args.after,
                      autostart=args.start)
    if args.peer_timeout > 0:
        require_peer(transport, node.state.endpoints[0], args.peer_timeout)
    return node


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("policy_node", "Fly an artifact: newest state in, command out, at the artifact's rate.")
    options.add_argument("--artifact", type=Path, required=True, help="folder that `temporeal export` wrote")
    options.add_argument("--start", action="store_true",
                         help=f"start the mission by itself, {AUTOSTART_S:g} s after the first state")
    options.add_argument("--after", default="stop", choices=("stop", "silence"),
                         help="after the mission: the robot's stop behaviour, or silence (default: %(default)s)")
    options.add_argument("--peer-timeout", type=float, default=10.0,
                         help="fail if no robot is on the bus after this many seconds; 0: wait for ever")
    return run(options, arguments, make, "policy.json")


if __name__ == "__main__":
    sys.exit(main())
