"""A simulated robot in its own process: MuJoCo physics behind exactly the topics of the real one, in real time.

    python -m temporeal_bridge.robot_sim --robot crazyflie --namespace /cf1 --seed 3
    python -m temporeal_bridge.robot_sim --robot franka --artifact outputs/reach --signals reach.yaml

True state -> latency and noise -> the interface's state topics; command topics -> latency -> the driver (what it does
when setpoints stop or are wrong) -> actuators with lag -> MuJoCo. What differs between robots is a plant
(:mod:`temporeal_bridge.simulated_robot.plants`). At the start and after a reset the robot is held in its start state
until the first command comes; one under an autopilot stands there until it is armed and its motors push.

Topics of the simulation itself, in the robot's namespace:

- ``sim/reset`` (std_msgs/UInt64: seed of the next flight) in, ``sim/episode`` (std_msgs/UInt64, latched: that seed,
  once the robot is there) out;
- ``sim/fault`` (std_msgs/String: JSON, see :mod:`temporeal_bridge.simulated_robot.fault_injection`) in,
``sim/fault_active`` (std_msgs/String,
  latched: JSON with ``name`` of the fault that is on, or "", ``stamp_ns`` of the change, and ``error`` where the last
  wish was refused) out;
- ``sim/<object>`` (geometry_msgs/PoseStamped) out: where each object of a task's scene that moves truly is.

Cameras of the file ``--signals`` are rendered in a process beside (:mod:`temporeal_bridge.simulated_robot.cameras`), so
that the state does not wait for pictures.

With a task, what it adds (a goal, drawn for each flight as in training) comes on the topics that ``--signals`` gives
it, without one on those of :mod:`temporeal_bridge.simulated_robot.task_topics`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.frames import from_rotation_vector, multiply
from temporeal.robots.registry import resolve
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface, InterfaceError, StateTopic
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import check_numbers
from temporeal_bridge.process.command_line import parser, robot_of
from temporeal_bridge.process.files import whole
from temporeal_bridge.process.node import run
from temporeal_bridge.simulated_robot import fault_injection, task_topics
from temporeal_bridge.simulated_robot.cameras import Shutter, open_shutter
from temporeal_bridge.simulated_robot.drivers import Refused
from temporeal_bridge.simulated_robot.plants import Start, plant_of
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, QoS, Received, Transport, qos_named

if TYPE_CHECKING:
    from temporeal.sim.scene import Scene
    from temporeal.sim.task_parts.numpy_world import OneWorld

MAX_CATCH_UP_S = 0.5  # a longer stall of this machine stops the simulated clock instead
SLOW_HZ = 100.0  # at most: what is kept of the true trajectory, and the poses of objects
KEPT_S = 600.0  # of the true trajectory, the last: an arm that stands for a day must not fill the memory
TEXT, NUMBER = "std_msgs/msg/String", "std_msgs/msg/UInt64"


class RobotSim:
    """One simulated robot on a transport.

    Args:
        command: the one that it listens to; None: the interface's first.
        settings: numbers instead of those in ``simulation`` of ``ros.yaml``.
        scene: an arm or a hand among objects; None: alone. start: where flights start; None: near home.
        world: a task's, with scene and starts and the signals that it adds.
        eyes: makes the shutter of its cameras, of the plant's body; None: it has no cameras.
    """

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, *, command: str | None = None,
        seed: int = 0, out: Path | None = None, settings: Mapping[str, Any] | None = None, scene: Scene | None = None,
        start: Start | None = None, world: OneWorld | None = None, eyes: Callable[[Any], Shutter | None] | None = None,
    ) -> None:
        self.transport, self.robot, self.interface, self.out = transport, robot, interface, out
        if world is not None:
            scene, start = world.scene, world.start
        self.world, self.added = world, dict[str, np.ndarray]()
        self.command = command or next(iter(interface.commands))
        self.settings = {**interface.simulation, **dict(settings or {})}
        states = [s for s in interface.states if set(STATE_CODECS[s.codec].signals(s.options)) <= set(robot.signals)]
        fastest = max(s.rate_hz for s in states)
        self.plant = plant_of(
            robot, interface, self.command, self.settings, period=1.0 / fastest, scene=scene, start=start)
        self.body, self.dt = self.plant.body, self.plant.dt
        self.shutter = None if eyes is None else eyes(self.body)
        self.publish_every = round(1.0 / (fastest * self.dt))
        self.outputs = [(s, transport.advertise(s.topic, s.type, QOS["default"]), round(fastest / s.rate_hz))
                        for s in states]
        known = {} if scene is None else {**scene.signals, **({} if world is None else world.specs)}
        self.tasks = [(row, transport.advertise(row.topic, row.type, QOS["default" if row.rate_hz else "latched"]),
                       max(round(fastest / row.rate_hz), 1) if row.rate_hz else 0)
                      for row in task_rows(interface, robot, scene, known)]
        self.slow_every = max(round(fastest / SLOW_HZ), 1)
        self.task_every = 0 if world is None else max(round(fastest * world.dt), 1)
        for read in self.plant.topics:
            transport.subscribe(read.topic, read.type, qos_named(read.qos), self._taker())
        self.status: Endpoint | None = None
        if interface.autopilot is not None:  # latched; PX4's are best effort beside (utilities.hpp), MAVROS's are not
            row = interface.autopilot.status
            self.status = transport.advertise(row.topic, row.type, QoS(qos_named(row.qos).reliable, 1, latched=True))
        self.episode = transport.advertise("sim/episode", NUMBER, QOS["latched"])
        transport.subscribe("sim/reset", NUMBER, QOS["default"], self._on_reset)
        self.fault_active = transport.advertise("sim/fault_active", TEXT, QOS["latched"])
        transport.subscribe("sim/fault", TEXT, QOS["default"], self._on_fault)
        self.worst_lag = 0.0
        self.stalls = self.resets = self.rejected = self.faults = 0
        self.last_rejection = ""
        self.fault: fault_injection.Fault | None = None
        self.reset(seed)

    def _taker(self) -> Any:
        latency = float(self.settings["command_latency_s"])

        def take(received: Received) -> None:
            try:
                message = messages.decode(received.type, received.data)
                content = self.plant.read(message, self.transport.now() + fault_injection.nanoseconds(latency))
            except (Refused, CodecError, messages.MessageError) as error:
                self.rejected += 1
                self.last_rejection = f"{received.topic}: {error}"
                return
            if self.held:
                self._release(received.at)
            self.inbox.append((received.at - self.origin + latency, content))

        return take

    def _on_reset(self, received: Received) -> None:
        self.reset(int(messages.decode(received.type, received.data).data))

    def reset(self, seed: int) -> None:
        """Put the robot into the start state of flight ``seed``, without faults, and hold it there."""
        self.save()
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.plant.reset(self.rng)
        self._switch(None)
        self.held, self.crashed = not self.plant.stands, ""
        self.origin, self.count = self.transport.monotonic(), 0
        self.inbox: deque[tuple[float, Any]] = deque()
        self.delay: deque[tuple[float, dict[str, np.ndarray]]] = deque()
        self.truth: deque[tuple[int, dict[str, np.ndarray], np.ndarray]] = deque(maxlen=round(KEPT_S * SLOW_HZ))
        self.resets += 1
        if self.shutter is not None:
            self.shutter.reset()
        self._add()
        self._publish_task(self.true(), self.transport.now(), steady=True)
        self.transport.publish(self.episode, messages.encode(NUMBER, messages.record(NUMBER)(data=seed)))

    def _release(self, now: float) -> None:
        """Let go: the flight's time begins now, and the past is the held state."""
        self.held, self.origin, self.count = False, now, 0
        if self.shutter is not None:
            self.shutter.reset()
        self.delay = deque([(-self.settings["state_latency_s"], self.true())])

    # ---- faults

    def _on_fault(self, received: Received) -> None:
        try:
            self.set_fault(messages.decode(received.type, received.data).data)
        except (fault_injection.FaultError, InterfaceError) as error:
            self._tell(str(error))

    def set_fault(self, text: str) -> None:
        """From now on the fault that the JSON ``text`` describes and no other; "" or ``{}``: none."""
        true = self.plant.signals()
        signals = with_height({name: np.asarray(true[name], dtype=float) for name in self.robot.signals})
        fault = fault_injection.parse(text or "{}", self.transport.monotonic(), signals, self._messages)
        self._switch(fault)
        self.faults += fault is not None

    def _switch(self, fault: fault_injection.Fault | None) -> None:
        self.plant.block(fault.options["joints"] if fault is not None and fault.name == "blocked" else ())
        self.fault = fault
        self._tell()

    def _tell(self, error: str = "") -> None:
        """Say what is on, for whoever measures how long others take to notice."""
        told = {"name": self.fault.name if self.fault else "", "stamp_ns": self.transport.now()}
        message = messages.record(TEXT)(data=json.dumps({**told, "error": error} if error else told))
        self.transport.publish(self.fault_active, messages.encode(TEXT, message))

    # ---- time

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`: the next time at which a state is published."""
        return self.origin + (self.count + self.publish_every) * self.dt

    def step(self) -> None:
        """Bring the simulation to the present, publishing on the way."""
        now = self.transport.monotonic()
        lag = now - self.deadline()
        self.worst_lag = max(self.worst_lag, lag)
        if lag > MAX_CATCH_UP_S:
            self.stalls += 1
            self.origin += lag
        if self.shutter is not None:
            self.shutter.check()
        while self.transport.monotonic() >= self.deadline():
            self._advance()

    def _advance(self) -> None:
        """One publishing period: physics (unless held), then the state that is as old as the latency says."""
        for _ in range(self.publish_every):
            time = self.count * self.dt
            while self.inbox and self.inbox[0][0] <= time:
                at, content = self.inbox.popleft()
                self.plant.receive(content, at)
            if not self.held and not self.crashed:
                self._physics(time)
            self.count += 1
        if self.task_every and not self.held and self._due(self.task_every):
            self._add()
        time, true = self.count * self.dt, self.true()
        self.delay.append((time, true))
        while len(self.delay) > 1 and self.delay[1][0] <= time - self.settings["state_latency_s"] + 1e-9:
            self.delay.popleft()
        stamp, slow = self.transport.now(), self._due(self.slow_every)
        if slow and not self.held:
            self.truth.append((stamp, true, self.plant.setpoint))
        self._publish(fault_injection.Sample(self.measure(self.delay[0][1]), stamp))
        if self.shutter is not None:
            self.shutter.expose(time, self.origin + time, stamp)
        if self.status is not None:
            for _topic, type, message in self.plant.says(time, stamp):
                self.transport.publish(self.status, messages.encode(type, message))
        self._publish_task(true, stamp)

    def _due(self, every: int) -> bool:
        """Whether what comes in every ``every``-th publishing period comes in this one."""
        return (self.count // self.publish_every) % every == 0

    def _physics(self, time: float) -> None:
        try:
            self.plant.step(time)
        except FloatingPointError as error:
            self.crashed = str(error)

    # ---- what others see

    def measure(self, true: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The true signals with the noise of the sensors and the estimator."""
        sizes = {name: 3 if spec.unit == "wxyz" else spec.size for name, spec in self.robot.signals.items()}
        drawn, first, out = self.rng.standard_normal(sum(sizes.values())), 0, {}
        for name, spec in self.robot.signals.items():
            value, std = np.asarray(true[name], dtype=float), float(self.settings["noise"].get(name, 0.0))
            error, first = std * drawn[first : first + sizes[name]], first + sizes[name]
            if std:
                turned = spec.unit == "wxyz"
                value = multiply(value, from_rotation_vector(error)) if turned else value + error.reshape(value.shape)
            out[name] = value
        return with_height(out)

    def _publish(self, sample: fault_injection.Sample) -> None:
        """The state topics that are due; the one that paces the controller last, so that the others are there when it
        comes. A fault has its say."""
        fault = self.fault
        if fault is not None and self.transport.monotonic() >= fault.until:
            self._switch(None)
            fault = None
        if fault is not None:
            fault.remember(sample)
        if self.plant.dead:
            return
        for topic, endpoint, every in reversed(self.outputs):
            told = None if not self._due(every) else sample if fault is None else fault.sample(topic.topic)
            if told is None:
                continue
            message = self._message(topic, told.signals, told.stamp)
            if fault is not None:
                message = fault.message(topic.topic, message)
            self.transport.publish(endpoint, messages.encode(topic.type, message))

    def _message(self, topic: StateTopic, signals: Mapping[str, np.ndarray], stamp: int) -> Any:
        frames = ("world", self.transport.namespace.strip("/") or self.robot.name)
        return STATE_CODECS[topic.codec].encode(signals, stamp, frames, topic.options)

    def _messages(self, signals: Mapping[str, np.ndarray]) -> dict[str, tuple[str, Any]]:
        """Type and message of every state topic."""
        return {topic.topic: (topic.type, self._message(topic, signals, 0)) for topic, _, _ in self.outputs}

    # ---- what a task adds

    def true(self) -> dict[str, np.ndarray]:
        """The true signals, the task's among them."""
        return {**self.plant.signals(), **self.added}

    def _add(self) -> None:
        """The task's signals of the next control step."""
        if self.world is not None:
            self.added = self.world.added(self.plant.signals())

    def _publish_task(self, true: Mapping[str, np.ndarray], stamp: int, steady: bool = False) -> None:
        """The task's topics that are due, or those that are said once in a flight (``steady``). True, in time."""
        for row, endpoint, every in self.tasks:
            if (every == 0) if steady else (every > 0 and self._due(every)):
                self.transport.publish(endpoint, messages.encode(row.type, self._message(row, true, stamp)))

    # ---- what is kept

    def save(self) -> None:
        """Write the true trajectory of the flight that ends: stamps [T] ns, signals [T, ...], setpoints [T, U]."""
        truth = getattr(self, "truth", [])
        if self.out is None or not truth:
            return
        arrays: dict[str, Any] = {name: np.stack([row[1][name] for row in truth]) for name in truth[0][1]}
        arrays["stamp_ns"] = np.array([row[0] for row in truth])
        arrays["command"] = np.stack([row[2] for row in truth])
        with whole(self.out / f"truth_{self.seed}.npz") as part:
            np.savez(part, **arrays)

    def close(self) -> None:
        """Keep the trajectory of the last flight."""
        if self.shutter is not None:
            self.shutter.close()
        self.save()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "robot_sim", "robot": self.robot.name, "interface": self.interface.name,
                "command": self.command, "resets": self.resets, "rejected": self.rejected,
                "last_rejection": self.last_rejection, "faults": self.faults, "crashed": self.crashed,
                "exposures_lost": 0 if self.shutter is None else self.shutter.lost, "stalls": self.stalls,
                "worst_lag_ms": 1e3 * self.worst_lag}


def with_height(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The height of what flies is its position's z: one measurement, not two."""
    return {**signals, "height": signals["base_pos_w"][2]} if "height" in signals else signals


def task_rows(
    interface: Interface, robot: RobotSpec, scene: Scene | None, known: Collection[str]
) -> list[StateTopic]:
    """The interface's topics of ``known`` signals that the robot has not, and of each object's pose."""
    own = [row for row in interface.states
           if (carried := set(STATE_CODECS[row.codec].signals(row.options))) <= set(known)
           and not carried & set(robot.signals)]
    poses = [task_topics.pose_row(scene, o.name, o.signals) for o in scene.objects] if scene is not None else []
    there = {row.topic for row in own}
    return own + [StateTopic(**row) for row in poses if row and row["topic"] not in there]


def make(args: argparse.Namespace, transport: Transport) -> RobotSim:
    """The node from its command line."""
    robot = robot_of(args)
    settings = {} if args.spread is None else {"spread": args.spread}
    world, command = None, args.command
    manifest = load_manifest(args.artifact) if args.artifact else None
    if manifest is not None:
        command = command or manifest.commands[0].name
    if args.task is not None:  # tasks are written with torch: imported by whoever asks for one
        world = resolve("temporeal.sim.task_parts", "numpy_world").of_task(args.task, robot, command)
    elif manifest is not None and robot.kind != "quadrotor":
        world = task_topics.world_of(manifest, robot)
    start = None
    if manifest is not None and args.task is None and robot.kind == "quadrotor":  # those fly alone
        start = task_topics.own_start(manifest, robot)
    extra = args.signals
    if extra is None and world is not None:
        extra = task_topics.content(world, {*world.scene.signals, *world.specs} if manifest is None else
                                    task_topics.needed(manifest, world))
    interface = load_interface(robot, args.interface, extra)
    check_numbers("--seed", args.seed)
    return RobotSim(
        transport, robot, interface, seed=args.seed, out=args.out, settings=settings,
        command=command or (world.command if world is not None else None), start=start, world=world,
        eyes=lambda body: open_shutter(interface, body, transport.resolve, bus_words(args, transport)))


def bus_words(args: argparse.Namespace, transport: Transport) -> list[str]:
    """What a process beside this one is told of robot, bus and folder."""
    return ["--robot", args.robot, "--namespace", transport.namespace, "--transport", args.transport,
            *(["--interface", args.interface] if args.interface else []),
            *(["--domain", str(args.domain)] if args.domain is not None else []),
            *(["--loopback"] if args.loopback else []), *(["--out", str(args.out)] if args.out else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("robot_sim", "A simulated robot with the real one's topics, in real time.")
    options.add_argument("--command", default=None,
                         help="command that it listens to (default: the task's, else the interface's first)")
    options.add_argument("--seed", type=int, default=0, help="seed of the first flight (default: %(default)s)")
    options.add_argument("--spread", type=float, default=None,
                         help="share 0..1 of the parameters' published ranges to draw from (default: ros.yaml)")
    options.add_argument("--task", default=None,
                         help="task whose objects stand around the robot and whose starts are drawn (arms and hands)")
    options.add_argument("--artifact", type=Path, default=None,
                         help="listen to this one's command, and simulate the task that it was trained on")
    return run(options, arguments, make, "robot_sim.json")


if __name__ == "__main__":
    sys.exit(main())
