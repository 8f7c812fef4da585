"""Controller, guard and a robot in fake time on the memory bus: the real nodes, faults of every kind, an oracle.

Between controller and guard is the real Unix socket; only time is not real. A trial is one mission into which a fault
comes at a random time; all of it follows from the trial's seed.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import CHUNK_VERSION, GOLDEN, POLICY, ChunkSpec, Manifest
from temporeal.robots.motion.cartesian_servo import servo_of
from temporeal.robots.motion.kinematics import chain
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_benchmarks.deployment.command_oracle import Oracle
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.guard.safety import APART_RAD, APART_S, FINGERS_RAD
from temporeal_bridge.guard_node import LOOK_S, TICK_S, GuardNode
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.sockets import SocketController, SocketGuard
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.simulated_robot import fault_injection
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, QoS

STATE_S = 0.01  # the robot says its state at 100 Hz
HEARTBEAT_S = 0.1  # of the operator's stop
CHUNK_STEPS = 20
INERTIA, FRICTION = 1.0, 2.0  # kg m^2, N m s/rad: of the stand-in's joints that take efforts
# ... of those that are told where to be: rad/s; share of the way in a state period, as kd / kp of 40 to 75 ms do it
FASTEST, FOLLOWS = 7.0, 0.15
ROLLS = (0, 4, 6)  # joints of an arm that turn it about itself: it does not come too near to itself by these
PUSHED = 2  # joint that is pushed: half a rad to either side of its home are in its range
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


class Brain:
    """Stands for an artifact: ``wish`` of the mission's time, and what goes wrong with it.

    Attributes:
        broken: "", "nan", "shape", "huge", "exception", "slow", "hang".
        stall: called with the seconds that a slow step takes.
    """

    def __init__(self, manifest: Manifest, wish: Callable[[float], np.ndarray]) -> None:
        self.manifest, self.wish, self.broken = manifest, wish, ""
        self.name, self.period = manifest.commands[0].name, 1 / manifest.rate_hz
        self.stall: Callable[[float], None] = lambda seconds: None

    def reset(self) -> None:
        """A new mission."""

    def figures(self) -> dict[str, Any]:
        """It has no reflex."""
        return {}

    def act(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The command; see :class:`temporeal.robots.artifact.runtime.Artifact`."""
        command = self.wish(float(signals["mission_time"])).astype(np.float32)
        if self.broken == "nan":
            command = np.where(np.arange(command.size) == 1, np.nan, command)
        elif self.broken == "shape":
            command = command[:-1]
        elif self.broken == "huge":
            command = 1e6 * np.sign(command + 1e-3)
        elif self.broken == "exception":
            raise RuntimeError("the network is gone")
        elif self.broken in ("slow", "hang"):
            self.stall(10 * self.period if self.broken == "slow" else 1e9)
        return {self.name: command}


class Worker:
    """Stands for the process of a slow policy: answers ``latency`` [s] after it was asked."""

    def __init__(self, clock: Callable[[], float], wish: Callable[[float], np.ndarray], dt: float) -> None:
        self.clock, self.wish, self.dt, self.latency, self.alive = clock, wish, dt, 0.07, True
        self.waiting: list[tuple[float, Reply]] = []
        self.last: list[Reply] = []
        self.broken = ""

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """See :class:`temporeal_bridge.controller.mailbox.WorkerLine`."""
        t = float(signals["mission_time"])
        rows = np.stack([self.wish(t + self.dt * k) for k in range(CHUNK_STEPS)]).astype(np.float32)
        self.waiting.append((at + self.latency, Reply(at, self.latency, rows)))

    def take(self) -> list[Reply]:
        """See :class:`temporeal_bridge.controller.mailbox.WorkerLine`."""
        now = self.clock()
        due = [reply for at, reply in self.waiting if at <= now and self.alive]
        self.waiting = [pair for pair in self.waiting if pair[0] > now]
        old, self.last = self.last, (self.last + due)[-3:]
        if self.broken == "duplicate":
            return due + due + old
        if self.broken == "reordered":
            return due + old if due else []
        return due

    def close(self) -> None:
        """Nothing to end."""


class Later:
    """The controller's end of the line: what is sent while it computes leaves when that is done."""

    def __init__(self, end: SocketController) -> None:
        self.end, self.held, self.holding = end, list[Proposal](), False

    def send(self, proposal: Proposal) -> bool:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        if self.holding:
            self.held.append(proposal)
            return True
        return self.end.send(proposal)

    def release(self) -> None:
        """What was held back goes out."""
        self.holding = False
        for proposal in self.held:
            self.end.send(proposal)
        self.held.clear()

    def receive(self) -> list[datagrams.Answer]:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        return self.end.receive()

    def close(self) -> None:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        self.end.close()


@dataclass(eq=False)
class Actor:
    """A node that may be stopped until ``asleep`` [s]."""

    transport: MemoryTransport
    node: Any
    asleep: float = 0.0
    woken: Callable[[], None] = field(default=lambda: None)


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
        self.tell_topics = {name: self.own.advertise(name, f"std_msgs/msg/{type}", QOS["default"]) for name, type in (
            ("mission/start", "UInt64"), ("mission/stop", "Empty"), ("mission/reset", "Empty"), ("estop", "Bool"),
            ("monitor/verdict", "String"))}
        self.target = self.place = np.array(self.robot.home["joint_pos"]) if self.arm else np.array([0.0, 0.0, 1.0])
        self.speed = np.zeros(self.place.size)
        self.drive = self.robot.drives.get(kind.command, "position")
        if self.drive != "position":
            self.target = np.zeros(self.spec.size)
        self.fault: fault_injection.Fault | None = None
        self.blocked: list[int] = []
        self.said: dict[str, np.ndarray] = {}  # the last signals that it has told, whatever is so
        self.pushed: np.ndarray | float = 0.0  # rad in the next state period, by somebody else
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

    def publish(self) -> None:
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
            told = sample if self.fault is None else self.fault.sample(topic.topic)
            if told is None:
                continue
            self.said.update(told.signals)
            message = STATE_CODECS[topic.codec].encode(told.signals, told.stamp, ("world", "r"), topic.options)
            if self.fault is not None:
                message = self.fault.message(topic.topic, message)
            data = messages.encode(topic.type, message)
            if self.oracle.servos is not None:
                self.oracle.servos.read(
                    topic, self.bus.seconds, data, self.fault is None or self.fault.name not in fault_injection.SIGNALS)
            self.own.publish(endpoint, data)
        below = self.guard.profile.unlock_below_m
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
        rule = self.guard.profile.tracking
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
        self.oracle.says(mode, received.at)

    def _on_command(self, received: Any) -> None:
        self.oracle.read(received.at, received.data)
        if self.oracle.trace:
            self.target = self.oracle.trace[-1][1]

    def tell(self, name: str, value: Any = None) -> None:
        """Say something on a topic of the operator's or the monitor's."""
        endpoint = self.tell_topics[name]
        data = messages.empty() if value is None else messages.encode(
            endpoint.type, messages.record(endpoint.type)(data=value))
        self.own.publish(endpoint, data)

    def stranger(self, data: bytes) -> None:
        """A datagram of somebody else to the guard's socket."""
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
                self.publish()
                self.every()
            if now >= self.next_heart - 1e-9:
                self.next_heart += HEARTBEAT_S
                if self.heart:
                    self.tell("estop", self.estop)
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
        if actor is not self.guarding:  # which looks at the bus itself, when it thinks fit
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
        self.tell("mission/start", self.flight)

    def close(self) -> None:
        """Leave the line."""
        self.guard.close()
        self.policy.close()


# ---------------------------------------------------------------- faults, and what each must lead to

GOES_ON, ANY = "goes on", "any"


@dataclass(frozen=True)
class Case:
    """A fault and what must follow.

    Args:
        strike: makes it happen, at a random time of a mission.
        code: of the stop that must follow; GOES_ON: none; ANY: none, or one of some code, with commands within limits.
        within: s from the fault to the stop at most (function of the world; from ``world.behind_at`` where blocked).
        kinds: those of :data:`KINDS` that it fits.
        before: makes it happen before the mission begins.
        promise: who promises what.
    """

    strike: Callable[[World], None]
    code: str
    within: Callable[[World], float] = lambda world: 0.0
    kinds: tuple[str, ...] = tuple(KINDS)
    before: bool = False
    twin: bool = False  # commands must be those of the same mission without the fault, in every bit
    promise: str = ""
    also: tuple[str, ...] = ()


PLAIN = tuple(name for name in KINDS if name != "crazyflie-chunks")
ARMS = ("franka", "franka-forward", "franka-velocity", "franka-effort", "franka-tool")
FELT = ("franka", "franka-forward", "franka-velocity")  # an arm that takes efforts may not move for its own reasons
JOINTS = (*ARMS, "leap_hand", "allegro_hand")
MEASURED = (*FELT, "franka-tool", "leap_hand", "allegro_hand")  # compare a first command with what is measured
FROZEN = ("crazyflie", "crazyflie-chunks", *ARMS, "leap_hand")
SEEN_S = STATE_S + TICK_S  # a state comes, and the guard looks
LIES_S = 0.5  # for a velocity that is not how the joints move, which must have moved first; chosen
SERVO = "MoveIt Servo halts 100 ms after the last command"


def stale_s(world: World) -> float:
    """A state that does not come is missed after this time."""
    return world.guard.profile.stale_after_s + TICK_S


def silent_s(world: World) -> float:
    """A controller that says nothing is missed after this time; its last proposal is a period old at most."""
    return world.period + world.guard.profile.silent_after_s + TICK_S


def first_signal(world: World) -> str:
    """Of which a jump is watched."""
    return next(iter(world.guard.profile.jump or {"joint_pos": 0}))


def broken(how: str) -> Callable[[World], None]:
    """The policy breaks."""
    return lambda world: setattr(world.brain, "broken", how)


def state(**options: Any) -> Callable[[World], None]:
    """A fault in what the robot says; a ``signal`` "" is the one whose jumps are watched."""
    def strike(world: World) -> None:
        named = {"signal": first_signal(world)} if options.get("signal") == "" else {}
        world.start_fault(**{**options, **named})

    return strike


def clock(seconds: float, robot: bool) -> Callable[[World], None]:
    """A clock is set: the robot's, or that of everybody."""
    def strike(world: World) -> None:
        if robot:
            world.clock_off_ns += round(seconds * 1e9)
        else:
            world.bus.epoch_ns += round(seconds * 1e9)

    return strike


def flapping(world: World) -> None:
    """The operator's stop is set and let go, again and again."""
    def flip() -> None:
        world.estop = not world.estop
        world.tell("estop", world.estop)

    flip()
    world.every = flip


def estop(world: World) -> None:
    """The operator's stop is set."""
    world.estop = True
    world.tell("estop", True)


def garbage(world: World) -> None:
    """Datagrams of nonsense, and commands of somebody else, on the line."""
    junk = np.random.default_rng(1)

    def send() -> None:
        now, command = world.bus.seconds, np.full(world.spec.size, 9.9)
        world.stranger(junk.bytes(int(junk.integers(0, 200))))
        world.stranger(datagrams.pack(Proposal(datagrams.COMMAND, world.flight, 1 << 40, 0, now, now, command)))
        world.stranger(datagrams.pack(Proposal(datagrams.HELLO, text="somebody else")))

    world.every = send


def replaced(world: World) -> None:
    """The controller is gone, and another one is there at once: it says hello and proposes."""
    world.thinking.asleep = 1e9
    garbage(world)


def burst(world: World) -> None:
    """The guard does not run for some periods; what was proposed meanwhile waits for it."""
    world.guarding.asleep = world.bus.seconds + float(world.rng.uniform(1.0, 6.0)) * world.period


def blocked(world: World) -> None:
    """A joint does not move any more, and the policy wants it to."""
    joint, more = (ROLLS[0], 1.5) if world.drive == "velocity" else (1, 0.9)  # others would lead it too near to itself
    world.blocked = [joint]
    world.plan["wild"] = False
    world.plan["offset"] = more * np.eye(world.spec.size)[joint]


def pushed(world: World) -> None:
    """A joint is pushed away by half a rad, faster than any command may move, and kept there."""
    joint, way = PUSHED, [0.05, 0.1, 0.1, 0.1, 0.1, 0.05]
    world.blocked = [joint]

    def push() -> None:
        world.pushed = -(way.pop() if way else 0.0) * np.eye(world.place.size)[joint]

    world.every = push


def stopped_and_pushed(world: World) -> None:
    """The operator stops it, and then somebody pushes."""
    world.tell("mission/stop")
    pushed(world)


def lying_when_pushed(world: World) -> None:
    """The same, of one whose velocities are in degrees from then on."""
    stopped_and_pushed(world)
    world.start_fault(name="jump", signal="joint_vel", scale=57.3)


def moved_unseen(world: World) -> None:
    """A joint is moved by half a rad, and its velocity says nothing of it."""
    pushed(world)
    world.start_fault(name="jump", signal="joint_vel", scale=0.0)


def far(world: World) -> None:
    """The policy begins far from where the robot is."""
    world.plan["offset"] = np.full(world.spec.size, 0.9)


def sleeping(world: World) -> None:
    """The controller does not run any more."""
    world.thinking.asleep = 1e9


def late_chunks(world: World) -> None:
    """The worker becomes too slow for its chunks' length."""
    world.worker.latency = 1.5 * CHUNK_STEPS * world.period


def chunks_end_s(world: World) -> float:
    """A whole chunk may be left to fly, and one more that was asked for."""
    return 2 * CHUNK_STEPS * world.period + silent_s(world)


CASES: dict[str, Case] = {
    "state stopped": Case(state(name="stopped"), "stale", stale_s, promise=SERVO),
    "state late by 0.3 s": Case(state(name="delayed", by_s=0.3), "stale", stale_s, promise=SERVO),
    "state lost, 3 of 10": Case(
        state(name="lost", share=0.3), GOES_ON, kinds=tuple(kind for kind in KINDS if kind != "franka-effort")),
    "state repeated, old stamps": Case(state(name="repeated"), "stale", lambda w: stale_s(w) + STATE_S, promise=SERVO),
    "state frozen, fresh stamps": Case(
        state(name="frozen"), "frozen", lambda w: w.guard.profile.frozen.after_s + SEEN_S + STATE_S, FROZEN),
    "state frozen, no rule": Case(state(name="frozen"), ANY, kinds=("allegro_hand",), also=("speeds",)),
    "state old by 2 s": Case(state(name="stamped", by_s=-2.0), "stamps", lambda w: SEEN_S),
    "state of the future": Case(state(name="stamped", by_s=2.0), "stamps", lambda w: SEEN_S),
    "clock step of the robot": Case(clock(5.0, True), "stamps", lambda w: SEEN_S),
    "clock step of all, on": Case(clock(3600.0, False), GOES_ON),
    "clock step of all, back": Case(clock(-3600.0, False), GOES_ON),
    "joint missing": Case(state(name="missing"), "stale", stale_s, JOINTS, promise=SERVO),
    "joints permuted": Case(state(name="permuted"), GOES_ON, kinds=JOINTS, twin=True),
    "joint too many": Case(state(name="extra"), GOES_ON, kinds=JOINTS, twin=True),
    "state NaN": Case(state(name="nan", signal="", index=0), "stale", stale_s, promise=SERVO),
    "state of wrong length": Case(
        state(name="wrong_length"), "stale", stale_s, (*JOINTS, "crazyflie"), promise=SERVO),
    "unit jump of the velocity": Case(
        state(name="jump", signal="joint_vel", scale=57.3), "speeds", lambda w: LIES_S,
        ("franka", "franka-effort", "franka-tool", "allegro_hand"), also=("jump", "collision")),
    "velocity that is always 0": Case(
        moved_unseen, "speeds", lambda w: LIES_S, ("franka", "franka-effort", "franka-tool", "allegro_hand"),
        also=("jump",)),
    "unit jump of the velocity, stopped and pushed": Case(
        lying_when_pushed, "operator", lambda w: TICK_S, kinds=("allegro_hand",)),
    "unit jump": Case(state(name="jump", signal="", scale=57.3, by=1.5), "jump", lambda w: SEEN_S),
    "policy NaN": Case(broken("nan"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy of wrong shape": Case(broken("shape"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy huge": Case(broken("huge"), ANY, kinds=PLAIN),
    "policy raises": Case(broken("exception"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy 10 times slower": Case(
        broken("slow"), "silent", silent_s, PLAIN, promise="Crazyflie levels after 500 ms, " + SERVO),
    "policy hangs": Case(broken("hang"), "silent", silent_s, PLAIN, promise="Crazyflie levels after 500 ms, " + SERVO),
    "controller stopped": Case(sleeping, "silent", silent_s, promise="Crazyflie levels after 500 ms, " + SERVO),
    "controller replaced": Case(replaced, "silent", silent_s),
    "line: nonsense and strangers": Case(garbage, GOES_ON, twin=True),
    "guard late by some periods": Case(burst, ANY),
    "chunk late": Case(late_chunks, "silent", chunks_end_s, ("crazyflie-chunks",)),
    "chunk twice": Case(lambda w: setattr(w.worker, "broken", "duplicate"), GOES_ON, kinds=("crazyflie-chunks",)),
    "chunks reordered": Case(lambda w: setattr(w.worker, "broken", "reordered"), GOES_ON, kinds=("crazyflie-chunks",)),
    "chunks exhausted": Case(
        lambda w: setattr(w.worker, "alive", False), "silent", chunks_end_s, ("crazyflie-chunks",)),
    "second publisher": Case(World.rival, "publisher", lambda w: LOOK_S + TICK_S,
                             promise="unitree_rl_lab looks once, at the start"),
    "operator: stop": Case(lambda w: w.tell("mission/stop"), "operator", lambda w: TICK_S),
    "operator: stop set": Case(estop, "operator", lambda w: TICK_S),
    "operator: stop flaps": Case(flapping, "operator", lambda w: TICK_S),
    "operator: stop lost": Case(lambda w: setattr(w, "heart", False), "operator",
                                lambda w: w.guard.profile.estop.heartbeat_s + TICK_S),
    "start far from the pose": Case(far, "start", lambda w: 2 * w.period + SEEN_S, MEASURED, before=True),
    "joint blocked": Case(blocked, "tracking", lambda w: w.guard.profile.tracking.after_s + SEEN_S, FELT),
    "joint blocked, no rule": Case(blocked, ANY, kinds=("leap_hand", "allegro_hand", "franka-effort", "franka-tool")),
    "world pushes a finger": Case(pushed, GOES_ON, kinds=("allegro_hand",)),
    "world pushes a finger that was stopped": Case(
        stopped_and_pushed, "operator", lambda w: TICK_S, kinds=("allegro_hand",)),
}


@dataclass(frozen=True)
class Result:
    """What a trial gave. ``reaction``, ``required``: s, None where the mission goes on; ``wrong``: all that was."""

    kind: str
    case: str
    seed: int
    reaction: float | None
    required: float | None
    cycles: int
    commands: int
    points: int
    outside: int
    closest: float
    wrong: tuple[str, ...]


def trial(kind: str, case: str, seed: int, folder: Path) -> Result:
    """One mission with one fault; all that is random follows from ``seed``."""
    rule = CASES[case]
    world, reaction, required, wrong = flown(kind, case, seed, folder, rule.strike)
    if rule.twin:
        twin = flown(kind, case, seed, folder, lambda world: None)[0]
        a, b = world.oracle.trace, twin.oracle.trace
        if len(a) != len(b) or any(s != t or not np.array_equal(x, y) for (s, x), (t, y) in zip(a, b)):
            wrong.append("its commands are not those of the same mission without the fault")
    oracle = world.oracle
    return Result(kind, case, seed, reaction, required, world.cycles, oracle.commands, oracle.points, oracle.outside,
                  oracle.closest, (*oracle.wrong, *wrong))


def flown(
    kind: str, case: str, seed: int, folder: Path, strike: Callable[[World], None]
) -> tuple[World, float | None, float | None, list[str]]:
    """The world after the mission, its reaction, the required one [s], and what was wrong."""
    rule, wrong = CASES[case], list[str]()
    world = World(KINDS[kind], [seed, sorted(CASES).index(case), sorted(KINDS).index(kind)], folder)
    rng = np.random.default_rng([seed, 7])
    try:
        if rule.before:
            strike(world)
        world.begin()
        world.run(1.0, lambda: world.oracle.mode not in ("ready", "waiting", ""))
        if not rule.before:
            world.run(float(rng.uniform(0.1, 2.5)))
        before = [event for event in world.events if event[1]["code"]]
        if not rule.before and (before or world.oracle.mode != "active"):
            wrong.append(f"before the fault: mode {world.oracle.mode}, {before}")
            return world, None, None, wrong
        struck = next((at for at, mode in world.modes if mode == "active"), 0.0) if rule.before else world.bus.seconds
        if not rule.before:
            strike(world)
        limit = None if rule.code in (GOES_ON, ANY) else rule.within(world)
        world.run(1.0 if limit is None else (5.0 if rule.code == "tracking" else limit + 0.1), lambda: stopped(world))
        reaction = judge(world, rule, struck, limit, wrong)
        world.run(float(rng.uniform(0.3, 1.5)))  # the stop action is read, too
        if rng.random() < 0.3:  # an order to go on, fault or not: nothing may move that must not
            world.tell("mission/reset")
            world.tell("mission/start", 99)
            world.run(0.5)
        return world, reaction, limit, wrong
    finally:
        world.close()


def stopped(world: World) -> bool:
    """Whether the guard has told of a stop."""
    return any(event["code"] for _, event in world.events)


def judge(world: World, rule: Case, struck: float, limit: float | None, wrong: list[str]) -> float | None:
    """The time to the stop [s]; adds what was wrong with it."""
    told = next(((at, event) for at, event in world.events if event["code"]), None)
    if limit is None:
        if rule.code == GOES_ON and (told or world.oracle.mode != "active"):
            wrong.append(f"it should have gone on: mode {world.oracle.mode}, {told}")
        elif told and rule.also and not (told[1]["code"] in rule.also and leads_away(world, told[0] - struck)):
            wrong.append(f"it should have gone on, or stopped by one of {', '.join(rule.also)}: {told}")
        return None
    if told is None:
        wrong.append(f"no stop within {limit:.3f} s, {rule.code!r} was due")
        return None
    at, event = told
    reaction = at - (min(world.behind_at, at) if rule.code == "tracking" else struck)
    sooner = (rule.code, event["code"]) == ("frozen", "speeds") and leads_away(world, reaction)
    if event["code"] not in (rule.code, *rule.also) and not sooner:
        wrong.append(f"stopped by {event['code']!r} ({event['reason']}), {rule.code!r} was due")
    elif reaction > limit + 1e-4:
        wrong.append(f"stopped after {reaction:.4f} s, {limit:.4f} s is allowed")
    action = world.guard.profile.action(event["code"])
    if world.guard.flight.action != action:
        wrong.append(f"the stop action is {world.guard.flight.action!r}, {action!r} was due")
    return reaction


def leads_away(world: World, seconds: float) -> bool:
    """Whether a velocity that is frozen with its place, for so long, is seen not to be how that changes: a fast joint's
    is, before it is frozen for long enough. A fifth is left for what place and velocity were apart before."""
    speed = max((float(np.max(np.abs(world.said[rule.rate]))) for rule in world.guard.profile.moving
                 if rule.unit == "rad"), default=0.0)
    far = APART_RAD if world.guard.profile.effort is None else FINGERS_RAD
    return speed * APART_S * (1 - np.exp(-seconds / APART_S)) > 0.8 * far


def all_pairs() -> list[tuple[str, str]]:
    """Every kind with every case that fits it."""
    return [(kind, case) for case, rule in CASES.items() for kind in rule.kinds]


def fuzz(seeds: Callable[[int], bool], first: int, done: Callable[[Result], None]) -> None:
    """Rounds of one trial of each pair, seeds ``first`` and on, as long as ``seeds(round)`` says so."""
    with tempfile.TemporaryDirectory(prefix="temporeal-") as folder:
        number = 0
        while seeds(number):
            for kind, case in all_pairs():
                done(trial(kind, case, first + number, Path(folder)))
            number += 1
