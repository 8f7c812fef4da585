"""Controller, guard and a robot in fake time on the memory bus: the real nodes, faults of every kind, an oracle.

Between controller and guard is the real Unix socket; only time is not real. A trial is one mission into which a fault
comes at a random time; all of it follows from the trial's seed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import CHUNK_VERSION, GOLDEN, POLICY, ChunkSpec, Manifest
from temporeal.robots.motion.cartesian_servo import servo_of
from temporeal.robots.motion.kinematics import chain
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_benchmarks.deployment.command_oracle import Oracle
from temporeal_benchmarks.faults.stand_ins import CHUNK_STEPS, Actor, Brain, Later, Worker
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.sockets import SocketController, SocketGuard
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.simulated_robot import fault_injection
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, QoS

STATE_S = 0.01  # the robot says its state at 100 Hz
HEARTBEAT_S = 0.1  # of the operator's stop
INERTIA, FRICTION = 1.0, 2.0  # kg m^2, N m s/rad: of the stand-in's joints that take efforts
# ... of those that take positions: rad/s; share of the way in a state period, as kd / kp of 40 to 75 ms do it
FASTEST, FOLLOWS = 7.0, 0.15
ROLLS = (0, 4, 6)  # joints of an arm that turn it about itself: it does not come too near to itself by these
SETTLED_S = 0.6  # for the first state, the greeting and the first heartbeat


@dataclass(frozen=True)
class Kind:
    """What is flown: a command of a robot over one of its interfaces; ``chunks``: by a slow policy."""

    robot: str
    interface: str
    command: str
    rate_hz: float
    chunks: bool = False


KINDS = {
    "crazyflie": Kind("crazyflie", "crazyswarm2", "ctbr_cmd", 50.0),
    "crazyflie-chunks": Kind("crazyflie", "odometry", "ctbr_cmd", 50.0, chunks=True),
    "franka": Kind("franka", "franka_ros2", "joint_pos_cmd", 25.0),
    "franka-forward": Kind("franka", "forward_position", "joint_pos_cmd", 50.0),
    "franka-velocity": Kind("franka", "forward_velocity", "joint_vel_cmd", 50.0),
    "franka-effort": Kind("franka", "forward_effort", "joint_effort_cmd", 50.0),
    "franka-tool": Kind("franka", "moveit_servo", "tool_vel_cmd", 50.0),
    "leap_hand": Kind("leap_hand", "leap_hand_api", "joint_pos_cmd", 20.0),
    "allegro_hand": Kind("allegro_hand", "allegro_hand_ros2", "joint_pos_cmd", 20.0),
}


@cache
def described(kind: Kind) -> tuple[RobotSpec, Interface, Manifest]:
    """Robot, interface (its states at the rate of the stand-in) and the manifest of an artifact."""
    robot = load_robot(kind.robot)
    found = load_interface(robot, kind.interface)
    states = tuple(replace(state, rate_hz=1 / STATE_S) for state in found.states)
    read = [robot.signals[n] for n in ("base_pos_w", "joint_pos") if n in robot.signals and n in found.carried]
    chunk = {"chunk": ChunkSpec(CHUNK_STEPS, 1 / kind.rate_hz), "schema_version": CHUNK_VERSION} if kind.chunks else {}
    manifest = Manifest(
        name="bench", robot=kind.robot, signals=(read[0], MISSION_TIME), commands=(robot.command(kind.command),),
        rate_hz=kind.rate_hz, memory=(), formula=f"G[0,60] ({read[0].name}[0] < 1000)", constants={}, horizon_s=60.0,
        stop=next(iter(found.safety["commands"][kind.command]["stop"].values())), training={}, versions={}, seed=0,
        git_revision="bench", created="", files={POLICY: "", GOLDEN: ""}, **chunk)
    return robot, replace(found, states=states), manifest


class World:
    """One robot with its processes, and everything that may happen to them. ``seed``: of all that is random."""

    def __init__(self, kind: Kind, seed: Any, folder: Path) -> None:
        self.kind, self.bus, self.rng = kind, Bus(), np.random.default_rng(seed)
        self.robot, self.interface, self.manifest = described(kind)
        self.period = 1 / kind.rate_hz
        self.spec = self.robot.command(kind.command)
        self.own = MemoryTransport(self.bus, "peer", "/r")
        self.oracle = Oracle(self.robot, self.interface, kind.command, self.period)
        self.arm = "joint_pos" in self.robot.signals
        self.plan = self._plan()
        path = folder / f"{id(self):x}.sock"
        transport = MemoryTransport(self.bus, "guard_node", "/r")
        self.guard = GuardNode(transport, self.manifest, self.robot, self.interface, SocketGuard(path))
        self.line, self.path = Later(SocketController(path)), path
        other = MemoryTransport(self.bus, "policy_node", "/r")
        self.brain = Brain(self.manifest, self.wish)
        self.worker = Worker(other.monotonic, self.wish, self.period)
        policy: Any = ChunkedPolicy(self.manifest, self.worker, other.monotonic) if kind.chunks else self.brain
        self.policy = PolicyNode(other, policy, self.robot, self.interface, self.line)
        self.guarding, self.thinking = Actor(transport, self.guard), Actor(other, self.policy)
        self.thinking.woken = self.line.release
        self.brain.stall = self._stall
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.modes: list[tuple[float, str]] = []
        topic = self.interface.command(kind.command)
        self.topic, self.codec = topic, COMMAND_CODECS[topic.codec]
        self.own.subscribe("mission", "std_msgs/msg/Header", QoS(depth=100, latched=True), self._on_mode)
        self.own.subscribe(topic.topic, topic.type, QOS["deep"], self._on_command)
        self.own.subscribe("guard/event", "std_msgs/msg/String", QOS["deep"], lambda r: self.events.append((
            r.at, json.loads(messages.decode(r.type, r.data).data))))
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS["default"])) for s in self.interface.states]
        self.topics = {name: self.own.advertise(name, f"std_msgs/msg/{type}", QOS["default"]) for name, type in (
            ("mission/start", "UInt64"), ("mission/stop", "Empty"), ("mission/reset", "Empty"), ("estop", "Bool"),
            ("monitor/verdict", "String"))}
        self.target = self.place = np.array(self.robot.home["joint_pos"]) if self.arm else np.array([0.0, 0.0, 1.0])
        self.speed = np.zeros(self.place.size)
        self.drive = self.robot.drives.get(kind.command, "position")
        if self.drive != "position":
            self.target = np.zeros(self.spec.size)
        self.fault: fault_injection.Fault | None = None
        self.blocked: list[int] = []
        self.published: dict[str, np.ndarray] = {}  # the signals that it last published, true or not
        self.pushed: np.ndarray | float = 0.0  # rad in the next state period, from outside
        self.clock_off_ns, self.heart, self.estop = 0, True, False
        self.next_state, self.next_heart = 0.0, 0.0
        self.cycles, self.flight = 0, 0
        self.behind_at = np.inf
        self.every: Callable[[], None] = lambda: None  # what a fault does in each state period

    # ---- the policy's wishes

    def _plan(self) -> dict[str, Any]:
        rng = self.rng
        return {"wild": bool(rng.random() < 0.4), "seed": int(rng.integers(1 << 31)), "phase": rng.uniform(0.5, 2.0),
                "offset": np.zeros(self.spec.size)}

    def wish(self, t: float) -> np.ndarray:
        """What the policy wants [A] at mission time ``t``: a slow swing, or leaps."""
        plan = self.plan
        if not self.arm:
            return np.array([0.31, 0.0, 0.0, 0.0]) + 0.2 * np.sin(plan["phase"] * t) * np.array([0.1, 1.0, 1.0, 1.0])
        if self.drive != "position":
            return self._wished_rate(t)
        home = np.array(self.robot.home["joint_pos"])
        swing = 0.2 * np.sin(plan["phase"] * t + np.arange(home.size)) - 0.2 * np.sin(np.arange(home.size))
        if plan["wild"] and t > 0.8:
            leap = np.random.default_rng([plan["seed"], int(t / 0.3)])
            swing = leap.uniform(-0.3, 0.3, home.size)
        return np.clip(home + swing + plan["offset"], self.spec.low, self.spec.high)

    def _wished_rate(self, t: float) -> np.ndarray:
        """Speeds, or efforts with about these in their wake, that sway; some leap, and go on to an end of the range."""
        plan, turn = self.plan, np.sin(self.plan["phase"] * t + np.arange(self.spec.size))
        if plan["wild"] and t > 0.8:
            leap = np.random.default_rng([plan["seed"], int(t / 1.5)]).uniform(-30.0, 30.0, self.spec.size)
            leaps = np.isin(range(self.spec.size), (5,) if self.drive == "tool" else ROLLS)
            turn = np.where(leaps, leap, turn)
        unit = 0.1 * (FRICTION if self.drive == "effort" else 1.0)
        return np.clip(unit * turn * min(t, 1.0) + plan["offset"], self.spec.low, self.spec.high)

    def _stall(self, seconds: float) -> None:
        self.line.holding = True
        self.thinking.asleep = self.bus.seconds + seconds

    # ---- the robot

    def signals(self, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """What its sensors say, with noise."""
        noise, rng = self.interface.simulation["noise"], rng or self.rng
        out = {}
        for name, spec in self.robot.signals.items():
            error = max(float(noise.get(name, 0.0)), 1e-6) * rng.normal(size=spec.shape)
            if name in ("joint_pos", "base_pos_w"):
                out[name] = self.place[: spec.size] + error
            elif name in ("joint_vel", "base_vel_w"):
                out[name] = self.speed + error
            elif spec.unit == "wxyz":
                quat = np.array([1.0, 0.0, 0.0, 0.0]) + 0.003 * rng.normal(size=4)
                out[name] = quat / np.linalg.norm(quat)
            else:
                out[name] = error
        if "height" in out:
            out["height"] = out["base_pos_w"][2]
        return out

    def encode(self, signals: Mapping[str, np.ndarray], stamp: int = 0) -> dict[str, tuple[str, Any]]:
        """Type and message of every state topic."""
        return {s.topic: (s.type, STATE_CODECS[s.codec].encode(signals, stamp, ("world", "r"), s.options))
                for s, _ in self.states}

    def publish_state(self) -> None:
        """One state of the robot, which has moved on."""
        if self.arm:
            self._move()
        else:  # it sinks with less than its weight
            sinks = self.target is not self.place and self.target[0] < 0.3
            self.speed = np.array([0.0, 0.0, -min(0.6, self.place[2] / STATE_S) if sinks else 0.0])
            self.place = self.place + STATE_S * self.speed
        true = self.signals()
        sample = fault_injection.Sample(true, self.own.now() + self.clock_off_ns)
        if self.fault is not None:
            self.fault.remember(sample)
        for topic, endpoint in reversed(self.states):
            sent = sample if self.fault is None else self.fault.sample(topic.topic)
            if sent is None:
                continue
            self.published.update(sent.signals)
            message = STATE_CODECS[topic.codec].encode(sent.signals, sent.stamp, ("world", "r"), topic.options)
            if self.fault is not None:
                message = self.fault.message(topic.topic, message)
            data = messages.encode(topic.type, message)
            if self.oracle.servos is not None:
                self.oracle.servos.read(
                    topic, self.bus.seconds, data, self.fault is None or self.fault.name not in fault_injection.SIGNALS)
            self.own.publish(endpoint, data)
        below = self.guard.config.profile.unlock_below_m
        self.oracle.grounded = below is not None and bool(true["height"] < below)
        if self.arm:
            found = {"position": true["joint_pos"], "velocity": true["joint_vel"], "effort": np.zeros(self.spec.size),
                     "tool": self.tool_speed()}[self.drive]
            self.oracle.measured = found
            self._look_behind(found)

    def tool_speed(self) -> np.ndarray:
        """The velocity [3] of the tool, as the codec of the joints makes it."""
        return chain(self.robot.name)(self.place, self.speed)[2] if self.drive == "tool" else np.zeros(3)

    def _move(self) -> None:
        """The joints that are not blocked follow their command for a state period; others are where they are pushed."""
        free = np.array([i not in self.blocked for i in range(self.place.size)])
        self.speed = np.where(free, self._followed(self.target[: self.place.size]), self.pushed / STATE_S)
        self.place = self.place + STATE_S * self.speed

    def _followed(self, wanted: np.ndarray) -> np.ndarray:
        """Speeds [B] of joints that are free."""
        if self.drive == "position":
            return np.clip(FOLLOWS * (wanted - self.place) / STATE_S, -FASTEST, FASTEST)
        if self.drive == "tool":
            moved = servo_of(self.robot).step(self.place[None], self.target[None], STATE_S)[0]
            return np.asarray((moved - self.place) / STATE_S)
        if self.drive == "velocity":
            return wanted
        return np.asarray(self.speed + STATE_S * (wanted - FRICTION * self.speed) / INERTIA)

    def _look_behind(self, measured: np.ndarray) -> None:
        rule = self.guard.config.profile.tracking
        if rule is not None and self.oracle.trace and self.oracle.mode == "active":
            off = np.abs(self.oracle.trace[-1][1][: measured.size] - measured) > np.asarray(rule.error)
            self.behind_at = min(self.behind_at, self.bus.seconds) if off.any() else np.inf

    def start_fault(self, **options: Any) -> None:
        """A fault of :mod:`temporeal_bridge.simulated_robot.fault_injection` in what the robot says."""
        signals = self.signals(np.random.default_rng(0))  # a twin without the fault draws the same noise afterwards
        self.fault = fault_injection.make(options, self.bus.seconds, signals, self.encode)

    # ---- what is on the bus

    def _on_mode(self, received: Any) -> None:
        mode = messages.decode(received.type, received.data).frame_id.split()[0]
        self.modes.append((received.at, mode))
        self.oracle.set_mode(mode, received.at)

    def _on_command(self, received: Any) -> None:
        self.oracle.read(received.at, received.data)
        if self.oracle.trace:
            self.target = self.oracle.trace[-1][1]

    def publish(self, name: str, value: Any = None) -> None:
        """Say something on a topic of the operator's or the monitor's."""
        endpoint = self.topics[name]
        data = messages.empty() if value is None else messages.encode(
            endpoint.type, messages.record(endpoint.type)(data=value))
        self.own.publish(endpoint, data)

    def stranger(self, data: bytes) -> None:
        """A datagram of a stranger to the guard's socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            name = self.path.with_name(f"{self.path.name}.other")
            name.unlink(missing_ok=True)
            other.bind(str(name))
            other.sendto(data, str(self.path))

    def rival(self) -> None:
        """Somebody else publishes commands."""
        MemoryTransport(self.bus, "rival", "/r").advertise(self.topic.topic, self.topic.type, QOS["command"])

    # ---- time

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass: each node runs when a message has come or its deadline has."""
        end = self.bus.seconds + seconds
        while end - self.bus.seconds > 1e-9 and not until():
            now = self.bus.seconds
            if now >= self.next_state - 1e-9:
                self.next_state += STATE_S
                self.publish_state()
                self.every()
            if now >= self.next_heart - 1e-9:
                self.next_heart += HEARTBEAT_S
                if self.heart:
                    self.publish("estop", self.estop)
            soonest = min(self.next_state, self.next_heart, end)
            for actor in (self.thinking, self.guarding):
                soonest = min(soonest, self._turn(actor))
            self.own.wait(0.0)
            self.bus.advance(max(soonest - self.bus.seconds, 1e-6))

    def _turn(self, actor: Actor) -> float:
        """One round of a node's loop; when the next one is due."""
        if actor.asleep > self.bus.seconds:
            return actor.asleep
        if actor.asleep:
            actor.asleep = 0.0
            actor.woken()
        if actor is not self.guarding:  # which reads the bus itself
            actor.transport.wait(0.0)
        actor.node.step()
        self.cycles += actor is self.guarding
        return float(actor.node.deadline())

    def ready(self) -> bool:
        """Whether a mission can begin."""
        return self.guard.mode in ("ready", "finished") and self.policy.mode == "ready"

    def begin(self) -> None:
        """Start a mission and wait until it is under way."""
        self.flight += 1
        self.run(SETTLED_S)
        self.run(3.0, self.ready)
        self.publish("mission/start", self.flight)

    def close(self) -> None:
        """Leave the line."""
        self.guard.close()
        self.policy.close()
