"""A flying guard on the memory bus, and a robot that sinks by its commands: what several tests of the guard share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import identity
from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.crazyflie import decode_legacy_rates
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.safety.fallback_actions import OFF_S
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import InProcessController, linked
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
TWIST, HEADER, TEXT, BOOL = (
    "geometry_msgs/msg/Twist", "std_msgs/msg/Header", "std_msgs/msg/String", "std_msgs/msg/Bool")
HOVER = np.array([0.3, 0.0, 0.0, 0.0])
LOW = 0.03  # m, below landed_m
PERIOD = 0.02


class World:
    """A guard with a controller and a robot that do as they are told, every 10 ms."""

    def __init__(self, lockstep: Any, artifact: Path, **safety: Any) -> None:
        self.lockstep, self.manifest = lockstep, load_manifest(artifact)
        found = load_interface(ROBOT, "odometry")
        self.interface = replace(found, safety={**found.safety, **safety})
        self.own = MemoryTransport(lockstep.bus, "peer", "/cf1")
        ends = linked()
        self.controller: InProcessController = ends[0]
        transport = MemoryTransport(lockstep.bus, "guard_node", "/cf1")
        self.guard: GuardNode = lockstep.add(
            transport, GuardNode(transport, self.manifest, ROBOT, self.interface, ends[1]))
        self.commands: list[tuple[float, np.ndarray]] = []
        self.modes: list[str] = []
        self.events: list[dict[str, Any]] = []
        command, state = self.interface.command("ctbr_cmd"), self.interface.states[0]
        self.own.subscribe(command.topic, TWIST, QOS["deep"], lambda r: self.commands.append((
            r.at, decode_legacy_rates(messages.decode(TWIST, r.data), command.options))))
        self.own.subscribe("mission", HEADER, QOS["latched"], lambda r: self.modes.append(
            messages.decode(HEADER, r.data).frame_id))
        self.own.subscribe("guard/event", TEXT, QOS["deep"], lambda r: self.events.append(
            json.loads(messages.decode(TEXT, r.data).data)))
        self.states = self.own.advertise(state.topic, state.type, QOS["default"])
        empty = "std_msgs/msg/Empty"
        self.topics = {name: self.own.advertise(name, type, QOS["default"]) for name, type in (
            ("mission/stop", empty), ("mission/reset", empty), ("estop", BOOL), ("monitor/verdict", TEXT))}
        self.rng, self.height = np.random.default_rng(0), 1.0
        self.flight = self.step = -1
        self.began = 0

    # the robot

    def state(self) -> dict[str, np.ndarray]:
        position = np.array([0.0, 0.0, self.height]) + 0.01 * self.rng.normal(size=3)
        return {"base_pos_w": position, "base_quat_w": from_rotation_vector(0.02 * self.rng.normal(size=3)),
                "base_vel_w": 0.1 * self.rng.normal(size=3), "base_ang_vel_b": 0.1 * self.rng.normal(size=3),
                "height": position[2]}

    def publish(self, signals: dict[str, np.ndarray] | None = None, late_s: float = 0.0) -> None:
        topic = self.interface.states[0]
        stamp = self.own.now() - round(late_s * 1e9)
        message = STATE_CODECS[topic.codec].encode(signals or self.state(), stamp, ("world", "cf1"), topic.options)
        self.own.publish(self.states, messages.encode(topic.type, message))

    # the controller

    def hello(self, digest: str | None = None) -> None:
        self.controller.send(Proposal(datagrams.HELLO, text=identity(self.manifest) if digest is None else digest))

    def begin(self, flight: int = 1) -> None:
        self.flight, self.step, self.began = flight, -1, self.own.now()
        self.controller.send(Proposal(datagrams.BEGIN, flight, -1, self.began))

    def propose(self, command: Any = HOVER, **changes: Any) -> None:
        self.step += 1
        now = self.own.monotonic()
        made = Proposal(datagrams.COMMAND, self.flight, self.step, self.began, now, now, np.asarray(command, float))
        self.controller.send(made._replace(**changes))

    # time

    def fly(self, seconds: float, command: Any = HOVER, states: bool = True, **changes: Any) -> None:
        """Let time pass with states every 10 ms, and commands every 20 ms unless ``command`` is None."""
        for k in range(round(seconds / 0.01)):
            if states:
                self.publish()
            if command is not None and k % 2 == 0:
                self.propose(command, **changes)
            self.pause()

    def pause(self, seconds: float = 0.01) -> None:
        self.lockstep.run(seconds)
        self.own.wait(0.0)

    def tell(self, topic: str, value: Any = None) -> None:
        kind = self.topics[topic].type
        data = messages.empty() if value is None else messages.encode(kind, messages.record(kind)(data=value))
        self.own.publish(self.topics[topic], data)

    @property
    def mode(self) -> str:
        return self.modes[-1].split()[0]

    @property
    def code(self) -> str:
        return self.guard.flight.code


def ready(lockstep: Any, artifact: Path, **safety: Any) -> World:
    world = World(lockstep, artifact, **safety)
    world.hello()
    world.fly(0.1, None)
    assert world.mode == "ready"
    return world


def come_down(world: World) -> None:
    """As a stopped robot does, at 0.3 m/s, and until the zeros after that are over."""
    while world.height > LOW:
        world.height = max(world.height - 0.03, LOW)
        world.fly(0.1, None)
    world.fly(1.0 + OFF_S, None)


def times_after(world: World, start: float) -> list[float]:
    """When commands that are not the controller's went out, s after ``start``."""
    return [at - start for at, command in world.commands if at > start and not np.allclose(command, HOVER, atol=1e-3)]


class Sinking:
    """The vertical motion of the robot under the last command [N], 10 ms late, for :meth:`World.publish`.

    ``says``: the vertical speed [m/s] that it tells, from the true one and the time [s].
    """

    def __init__(
        self, world: World, height: float, speed: float, strength: float = 1.0,
        says: Callable[[float, float], float] = lambda speed, t: speed,
    ) -> None:
        self.world, self.height, self.speed, self.strength, self.says = world, height, speed, strength, says
        self.fastest, self.highest = 0.0, height
        self.mass = ROBOT.parameters["mass"].nominal[0]

    def fall(self, seconds: float, **changes: Any) -> None:
        """Until the stop action has ended, for so many seconds at most."""
        for k in range(round(seconds / 0.01)):
            thrust = self.world.commands[-1][1][0] if self.world.commands else 0.0
            if thrust:  # else it stands, or was cut in the air: there it is looked at
                self.speed += 0.01 * (self.strength * thrust / self.mass - 9.81)
                self.height += 0.01 * self.speed
            if self.height < 0.0:  # the floor
                self.height, self.speed = 0.0, max(self.speed, 0.0)
            self.fastest, self.highest = max(self.fastest, -self.speed), max(self.highest, self.height)
            noise = 1e-3 * self.world.rng.normal(size=3)
            position = np.array([0.0, 0.0, self.height]) + noise
            velocity = np.array([0.0, 0.0, self.says(self.speed, 0.01 * k)]) + noise
            state = {**self.world.state(), "base_quat_w": from_rotation_vector(noise), "base_pos_w": position,
                     "base_vel_w": velocity, "height": position[2], **changes}
            self.world.publish(state)
            self.world.pause()
            if self.world.mode == "stopped":
                return
