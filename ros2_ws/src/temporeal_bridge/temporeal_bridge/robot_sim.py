"""A simulated robot in its own process: MuJoCo physics behind exactly the topics of the real one, in real time.

    python -m temporeal_bridge.robot_sim --robot crazyflie --namespace /cf1 --seed 3
    python -m temporeal_bridge.robot_sim --robot franka --artifact outputs/reach --signals reach.yaml
    python -m temporeal_bridge.robot_sim --robot crazyflie --hidden examples/gap_quadrotor.yaml

True state -> latency and noise -> the interface's state topics; command topics -> latency -> the driver (with its
reaction to missing or wrong setpoints) -> actuators with lag -> MuJoCo. What differs between robots is a plant
(:mod:`temporeal_bridge.simulated_robot.plants`). At the start and after a reset the robot is held in its start state
until the first command arrives; one under an autopilot stands there until it is armed and its motors push.

Topics of the simulation itself, in the robot's namespace:

- ``sim/reset`` (std_msgs/UInt64: seed of the next flight): in; ``sim/episode`` (std_msgs/UInt64, latched: that seed,
  once the robot is there): out;
- ``sim/fault`` (std_msgs/String: JSON, see :mod:`temporeal_bridge.simulated_robot.fault_injection`): in;
  ``sim/fault_active`` (std_msgs/String, latched: JSON with ``name`` of the present fault, or "", ``stamp_ns`` of the
  change, and ``error`` where the last request was refused): out;
- ``sim/instruction`` (std_msgs/String, latched: the sentence that the scene was made for): out, where the task takes
  instructions: the controller's ``policy/instruction`` is then heard, too, and a robot that is held gets a scene in
  which that can be done;
- ``sim/<object>`` (geometry_msgs/PoseStamped): true pose of each object of a task's scene that moves: out.

Cameras of the file ``--signals`` are rendered in another process
(:mod:`temporeal_bridge.simulated_robot.camera_exposures`), so that the state does not wait for pictures. Signals that a
task adds (a goal, drawn for each flight as in training) are published on the topics of ``--signals``, without that file
on those of :mod:`temporeal_bridge.simulated_robot.task_topics`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.registry import resolve
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.instruction.sentences import TOLD, message
from temporeal_bridge.interface.interface import Interface, InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import check_numbers
from temporeal_bridge.process.command_line import parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.recording import records
from temporeal_bridge.simulated_robot import fault_injection, task_topics
from temporeal_bridge.simulated_robot.camera_exposures import Looks, Shutter, open_shutter
from temporeal_bridge.simulated_robot.drivers import Refused
from temporeal_bridge.simulated_robot.hidden import biased, hidden_settings
from temporeal_bridge.simulated_robot.outputs import Outputs
from temporeal_bridge.simulated_robot.plants import Start, plant_of
from temporeal_bridge.simulated_robot.sensors import DelayLine, measured, with_height
from temporeal_bridge.simulated_robot.true_trajectory import RATE_HZ, TrueTrajectory
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, QoS, Received, Transport, qos_named

if TYPE_CHECKING:
    from temporeal.sim.scene import Scene
    from temporeal.sim.task_parts.numpy_world import OneWorld

MAX_CATCH_UP_S = 0.5  # a longer stall of this machine stops the simulated clock instead
TEXT, NUMBER = "std_msgs/msg/String", "std_msgs/msg/UInt64"


@dataclass(frozen=True)
class SimOptions:
    """What is simulated.

    Args:
        command: the one that the robot takes; None: the interface's first.
        seed: of the first flight.
        out: folder for true trajectories; None: they are not kept.
        settings: in place of those in ``simulation`` of ``ros.yaml``, and what a hidden robot has besides.
        scene: an arm or a hand among objects; None: alone. start: where flights start; None: near home.
        world: a task's, with its own scene, starts and added signals.
        eyes: makes the shutter of its cameras, of the plant's body and the world's looks; None: it has no cameras.
    """

    command: str | None = None
    seed: int = 0
    out: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    scene: Scene | None = None
    start: Start | None = None
    world: OneWorld | None = None
    eyes: Callable[[Any, Looks], Shutter | None] | None = None


class RobotSim:
    """One simulated robot on a transport."""

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, options: SimOptions | None = None
    ) -> None:
        options = options or SimOptions()
        self.transport, self.robot, self.interface, self.out = transport, robot, interface, options.out
        self.world, self.added = options.world, dict[str, np.ndarray]()
        scene, start = (options.scene, options.start) if self.world is None else (self.world.scene, self.world.start)
        self.command = options.command or next(iter(interface.commands))
        self.settings = {**interface.simulation, **options.settings}
        known = {} if scene is None else {**scene.signals, **({} if self.world is None else self.world.specs)}
        self.outputs = Outputs(transport, robot, interface, scene, known)
        fastest = self.outputs.fastest
        self.plant = plant_of(
            robot, interface, self.command, self.settings, period=1.0 / fastest, scene=scene, start=start)
        self.body, self.dt = self.plant.body, self.plant.dt
        self.shutter = None if options.eyes is None else options.eyes(self.body, self._looks())
        self.publish_every = round(1.0 / (fastest * self.dt))
        self.slow_every = max(round(fastest / RATE_HZ), 1)
        self.task_every = 0 if self.world is None else max(round(fastest * self.world.dt), 1)
        for number, read in enumerate(self.plant.topics):
            transport.subscribe(read.topic, read.type, qos_named(read.qos), partial(self._on_command, number=number))
        self.status: Endpoint | None = None
        if interface.autopilot is not None:  # latched; PX4's are also best effort (utilities.hpp), MAVROS's are not
            row = interface.autopilot.status
            self.status = transport.advertise(row.topic, row.type, QoS(qos_named(row.qos).reliable, 1, latched=True))
        self.episode = transport.advertise("sim/episode", NUMBER, QOS["latched"])
        transport.subscribe("sim/reset", NUMBER, QOS["default"], self._on_reset)
        self.fault_active = transport.advertise("sim/fault_active", TEXT, QOS["latched"])
        transport.subscribe("sim/fault", TEXT, QOS["default"], self._on_fault)
        self.sentence, self.dressed = "", transport.advertise("sim/instruction", TEXT, QOS["latched"])
        if self.world is not None and self.world.tellable:
            transport.subscribe(TOLD, TEXT, QOS["latched"], self._on_instruction)
        self.worst_lag = 0.0
        self.stalls = self.resets = self.rejected = self.faults = 0
        self.last_rejection = ""
        self.fault: fault_injection.Fault | None = None
        self.delay, self.truth, self.seed = DelayLine(self.settings["state_latency_s"]), TrueTrajectory(), options.seed
        self.reset(options.seed)

    # ---- commands and resets

    def _on_command(self, received: Received, number: int = 0) -> None:
        latency = float(self.settings["command_latency_s"])
        try:
            message = messages.decode(received.type, received.data)
            content = self.plant.read(message, self.transport.now() + fault_injection.nanoseconds(latency), number)
        except (Refused, CodecError, messages.MessageError) as error:
            self.rejected += 1
            self.last_rejection = f"{received.topic}: {error}"
            return
        if self.held:
            self._release(received.at)
        self.inbox.append((received.at - self.origin + latency, content))

    def _on_reset(self, received: Received) -> None:
        self.reset(int(messages.decode(received.type, received.data).data))

    def _on_instruction(self, received: Received) -> None:
        """A scene for the sentence: now if the robot is held, else from the next reset on."""
        assert self.world is not None
        sentence = records.read(TOLD, received)
        self.world.tell(sentence)
        new, self.sentence = sentence != self.sentence, sentence
        if new and self.held:
            self.reset(self.seed)

    def _looks(self) -> Looks:
        """What the present episode looks like; before the first one, of the names and sizes that all have."""
        if self.world is None:
            return {}
        if not self.world.looks:
            self.world.start(np.random.default_rng(0))
        return self.world.looks

    def reset(self, seed: int) -> None:
        """Put the robot into the start state of flight ``seed``, without faults, and hold it there."""
        self.save()
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.plant.reset(self.rng)
        self._switch(None)
        self.held, self.crashed = not self.plant.stands, ""
        self.origin, self.count = self.transport.monotonic(), 0
        self.inbox: deque[tuple[float, Any]] = deque()
        self.delay.restart()
        self.truth = TrueTrajectory()
        self.resets += 1
        if self.shutter is not None:
            self.shutter.looks = self._looks()
            self.shutter.reset()
        self._add()
        if self.sentence:
            self.transport.publish(self.dressed, message(self.sentence))
        self.outputs.publish_goals(self.true(), self.transport.now())
        self.transport.publish(self.episode, messages.encode(NUMBER, messages.record(NUMBER)(data=seed)))

    def _release(self, now: float) -> None:
        """Let go: the flight's time begins now, and the past is the held state."""
        self.held, self.origin, self.count = False, now, 0
        if self.shutter is not None:
            self.shutter.reset()
        self.delay.restart(self.true())

    # ---- faults

    def _on_fault(self, received: Received) -> None:
        try:
            self.set_fault(messages.decode(received.type, received.data).data)
        except (fault_injection.FaultError, InterfaceError) as error:
            self._announce_fault(str(error))

    def set_fault(self, text: str) -> None:
        """From now on the fault that the JSON ``text`` describes and no other; "" or ``{}``: none."""
        true = self.plant.signals()
        signals = with_height({name: np.asarray(true[name], dtype=float) for name in self.robot.signals})
        fault = fault_injection.parse(text or "{}", self.transport.monotonic(), signals, self.outputs.messages)
        self._switch(fault)
        self.faults += fault is not None

    def _switch(self, fault: fault_injection.Fault | None) -> None:
        self.plant.block(fault.options["joints"] if fault is not None and fault.name == "blocked" else ())
        self.fault = fault
        self._announce_fault()

    def _announce_fault(self, error: str = "") -> None:
        """Publish the present fault, for whoever measures how soon others notice it."""
        content = {"name": self.fault.name if self.fault else "", "stamp_ns": self.transport.now()}
        message = messages.record(TEXT)(data=json.dumps({**content, "error": error} if error else content))
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
            self._physics(self.count * self.dt)
            self.count += 1
        if self.task_every and not self.held and self._due(self.task_every):
            self._add()
        time, true = self.count * self.dt, self.true()
        seen = self.delay.push(time, true)
        stamp = self.transport.now()
        if self._due(self.slow_every) and not self.held:
            self.truth.append(stamp, true, self.plant.setpoint)
        shown = biased(self.robot, seen, self.settings.get("bias", {}))
        noisy = measured(self.robot, shown, self.settings["noise"], self.rng)
        self._publish(fault_injection.Sample(noisy, stamp))
        if self.shutter is not None:
            self.shutter.expose(time, self.origin + time, stamp)
        if self.status is not None:
            for _topic, type, message in self.plant.says(time, stamp):
                self.transport.publish(self.status, messages.encode(type, message))
        self.outputs.publish_task(true, stamp, self._due)

    def _due(self, every: int) -> bool:
        """Whether an output with ``every`` publishing periods between two messages is due in this one."""
        return (self.count // self.publish_every) % every == 0

    def _physics(self, time: float) -> None:
        """Commands that have arrived by ``time`` [s], then one physics step."""
        while self.inbox and self.inbox[0][0] <= time:
            at, content = self.inbox.popleft()
            self.plant.receive(content, at)
        if not self.held and not self.crashed:
            try:
                self.plant.step(time)
            except FloatingPointError as error:
                self.crashed = str(error)

    def _publish(self, sample: fault_injection.Sample) -> None:
        if self.fault is not None and self.transport.monotonic() >= self.fault.until:
            self._switch(None)
        if self.plant.dead:  # its driver publishes nothing; the fault goes on
            if self.fault is not None:
                self.fault.remember(sample)
            return
        self.outputs.publish(sample, self.fault, self._due)

    # ---- the task

    def true(self) -> dict[str, np.ndarray]:
        """The true signals, those of the task included."""
        return {**self.plant.signals(), **self.added}

    def _add(self) -> None:
        """The task's signals of the next control step."""
        if self.world is not None:
            self.added = self.world.added(self.plant.signals())

    # ---- what is kept

    def save(self) -> None:
        """Write the true trajectory of the flight that ends."""
        if self.out is not None:
            self.truth.write(self.out / f"truth_{self.seed}.npz")

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


def make(args: argparse.Namespace, transport: Transport) -> RobotSim:
    """The node from its command line."""
    robot = robot_of(args)
    world, command = None, args.command
    manifest = load_manifest(args.artifact) if args.artifact else None
    if manifest is not None:
        command = command or manifest.commands[0].name
    if args.task is not None:  # tasks need torch: imported only where one is asked for
        world = resolve("temporeal.sim.task_parts", "numpy_world").of_task(args.task, robot, command)
    elif manifest is not None and robot.kind != "quadrotor":
        world = task_topics.world_of(manifest, robot)
    start = None
    if manifest is not None and args.task is None and robot.kind == "quadrotor":  # simulated without a task's world
        start = task_topics.own_start(manifest, robot)
    extra = args.signals
    if extra is None and world is not None:
        extra = task_topics.content(world, {*world.scene.signals, *world.specs} if manifest is None else
                                    task_topics.needed(manifest, world))
    interface = load_interface(robot, args.interface, extra)
    check_numbers("--seed", args.seed)
    settings = {} if args.hidden is None else hidden_settings(args.hidden, robot, interface.simulation)
    settings |= {} if args.spread is None else {"spread": args.spread}
    return RobotSim(transport, robot, interface, SimOptions(
        command=command or (world.command if world is not None else None), seed=args.seed, out=args.out,
        settings=settings, start=start, world=world,
        eyes=lambda body, looks: open_shutter(
            interface, body, transport.resolve, bus_options(args, transport), looks)))


def bus_options(args: argparse.Namespace, transport: Transport) -> list[str]:
    """Options for a process beside this one: robot, bus and folder."""
    return ["--robot", args.robot, "--namespace", transport.namespace, "--transport", args.transport,
            *(["--interface", args.interface] if args.interface else []),
            *(["--domain", str(args.domain)] if args.domain is not None else []),
            *(["--loopback"] if args.loopback else []), *(["--out", str(args.out)] if args.out else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("robot_sim", "A simulated robot with the real one's topics, in real time.")
    options.add_argument("--command", default=None,
                         help="command that the robot takes (default: the task's, else the interface's first)")
    options.add_argument("--seed", type=int, default=0, help="seed of the first flight (default: %(default)s)")
    options.add_argument("--spread", type=float, default=None,
                         help="share 0..1 of the parameters' published ranges to draw from (default: ros.yaml)")
    options.add_argument("--hidden", type=Path, default=None, metavar="YAML",
                         help="how this robot differs from its spec (see temporeal_bridge.simulated_robot.hidden)")
    options.add_argument("--task", default=None,
                         help="task that gives the objects around the robot and its start states (arms and hands)")
    options.add_argument("--artifact", type=Path, default=None,
                         help="take this artifact's command, and simulate the task that it was trained on")
    return run(options, arguments, make, "robot_sim.json")


if __name__ == "__main__":
    sys.exit(main())
