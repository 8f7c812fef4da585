"""A simulated mobile base: it rolls on the plane as its last Twist says, a little late.

    x' = v_x cos(yaw) - v_y sin(yaw),   y' = v_x sin(yaw) + v_y cos(yaw),   yaw' = w

The kinematics of wheels that do not slip (G. Campion, G. Bastin, B. d'Andrea-Novel, T-RA 1996); without a sideways
component those of a unicycle. Speeds follow the command by first order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import atan2, cos, sin
from typing import Any

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.base_velocity import AXES
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.px4 import Output
from temporeal_bridge.interface.interface import CommandTopic, Interface, InterfaceError, Topic
from temporeal_bridge.simulated_robot.drivers import Refused

DT = 0.005  # s
LAG_S = 0.1  # time constant of the wheels' speed control. Chosen
TIMEOUT_S = 0.5  # cmd_vel_timeout, diff_drive_controller's default: then it brakes
GAINS = {"x": "speed_gain", "y": "speed_gain", "yaw": "turn_gain"}
"""Parameters of the spec, where it has them: the speed that it reaches per commanded speed."""


class Plane:
    """Pose and speeds of the base: x, y m, yaw rad, and forward, left, turn (m/s, rad/s)."""

    def __init__(self, robot: RobotSpec) -> None:
        self.robot = robot
        self.reset({})

    def reset(self, state: Mapping[str, Any]) -> None:
        """At ``state``, home for what is left out."""
        home = {**self.robot.home, **state}
        w, _, _, z = (float(v) for v in home.get("base_quat_w", (1.0, 0.0, 0.0, 0.0)))
        self.pose = np.array([*home["base_pos_w"][:2], 2.0 * atan2(z, w)], dtype=float)
        self.height, self.speeds = float(home["base_pos_w"][2]), np.zeros(3)

    def step(self, wanted: np.ndarray, dt: float) -> None:
        """Speeds approach ``wanted`` [3]; then the base moves."""
        self.speeds += (wanted - self.speeds) * min(dt / LAG_S, 1.0)
        forward, left, turn = self.speeds
        yaw = self.pose[2] + 0.5 * dt * turn
        self.pose += dt * np.array([forward * cos(yaw) - left * sin(yaw), forward * sin(yaw) + left * cos(yaw), turn])

    def signals(self) -> dict[str, np.ndarray]:
        """The true signals, float32."""
        (x, y, yaw), (forward, left, turn) = self.pose, self.speeds
        values = {
            "base_pos_w": (x, y, self.height), "base_quat_w": (cos(0.5 * yaw), 0.0, 0.0, sin(0.5 * yaw)),
            "base_vel_w": (forward * cos(yaw) - left * sin(yaw), forward * sin(yaw) + left * cos(yaw), 0.0),
            "base_ang_vel_b": (0.0, 0.0, turn), "height": self.height}
        return {name: np.array(value, dtype=np.float32) for name, value in values.items()
                if name in self.robot.signals}


class MobileBase:
    """A base behind its topics: see :class:`temporeal_bridge.simulated_robot.plants.Plant`."""

    joints: tuple[str, ...] = ()
    dead = stands = False

    def __init__(
        self, robot: RobotSpec, interface: Interface, command: str, settings: Mapping[str, Any],
        start: Callable[[np.random.Generator], Mapping[str, Any]] | None = None,
        draw: Callable[[np.random.Generator], Mapping[str, np.ndarray]] = lambda rng: {},
    ) -> None:
        self.robot, self.command, self.settings, self.draw = robot, command, settings, draw
        topic = interface.command(command)
        if unknown := sorted(set(robot.signals) - set(Plane(robot).signals())):
            raise InterfaceError(f"robot {robot.name!r}: a simulated base has no signals {unknown}")
        if "axes" not in topic.options:
            raise InterfaceError(f"{topic.topic}: a simulated base takes the codecs base_twist and base_twist_stamped, "
                                 f"not {topic.codec}")
        self.topics: tuple[CommandTopic | Topic, ...] = (topic,)
        self.codec, self.options, self.axes = COMMAND_CODECS[topic.codec], topic.options, topic.options["axes"]
        self.dt, self.body = DT, Plane(robot)
        self.start = start or self.near_home
        self.setpoint, self.heard = np.zeros(len(self.axes)), -np.inf

    def near_home(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """Home, off by up to ``simulation.start.position_m`` in x and y."""
        most = float(self.settings["start"]["position_m"])
        x, y, z = self.robot.home["base_pos_w"]
        return {"base_pos_w": (x + most * rng.uniform(-1, 1), y + most * rng.uniform(-1, 1), z)}

    def reset(self, rng: np.random.Generator) -> None:
        """See the protocol."""
        drawn = self.draw(rng)
        self.gains = np.array([float(np.reshape(drawn.get(GAINS[axis], 1.0), -1)[0]) for axis in self.axes])
        self.body.reset(self.start(rng))
        self.setpoint, self.heard = np.zeros(len(self.axes)), -np.inf

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """See the protocol."""
        assert self.codec.decode is not None  # what the interface has checked
        command = self.codec.decode(message, self.options)
        if not np.isfinite(command).all():
            raise Refused(f"{self.command} is finite numbers, got {command.tolist()}")
        return command

    def receive(self, content: Any, at: float) -> None:
        """See the protocol."""
        self.setpoint, self.heard = content, at

    def step(self, time: float) -> None:
        """See the protocol."""
        wanted = np.zeros(6)
        if time - self.heard <= TIMEOUT_S:
            wanted[[AXES[axis] for axis in self.axes]] = self.gains * self.setpoint
        self.body.step(wanted[[0, 1, 5]], self.dt)

    def says(self, time: float, stamp_ns: int) -> list[Output]:
        """See the protocol."""
        return []

    def signals(self) -> dict[str, np.ndarray]:
        """See the protocol."""
        return self.body.signals()

    def block(self, joints: Sequence[str]) -> None:
        """See the protocol."""
        if joints:
            raise InterfaceError(f"robot {self.robot.name!r} has no joints to block, got {list(joints)}")
