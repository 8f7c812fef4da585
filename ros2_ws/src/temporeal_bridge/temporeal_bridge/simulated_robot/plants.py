"""The plant behind a simulated robot's topics: driver and physics, one class for each kind of machine.

Topics, clocks, noise and latency are the same for all robots and belong to :mod:`temporeal_bridge.robot_sim`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.px4 import OFFBOARD, Output
from temporeal_bridge.interface.interface import CommandTopic, Interface, InterfaceError, Topic
from temporeal_bridge.simulated_robot.drivers import Driver, Firmware, Parted, Refused, driver_of
from temporeal_bridge.simulated_robot.hidden import altered
from temporeal_bridge.simulated_robot.mobile_base import MobileBase
from temporeal_bridge.simulated_robot.px4_commander import LANDED_M, Px4Commander

if TYPE_CHECKING:
    from temporeal.sim.scene import Scene

FLIGHT_DT = 0.002  # physics step of a quadrotor, s
GRAVITY = 9.81  # m/s^2
STUCK = 1e6  # N m s/rad, damping of a blocked joint: 0.1 mrad/s at 100 N m; implicit integration keeps it stable

State = Mapping[str, Any]
Start = Callable[[np.random.Generator], State]
"""Draws the initial state of a flight, by signal name."""


class Plant(Protocol):
    """A simulated machine with its driver.

    Attributes:
        dt: physics step, s.
        body: the simulated body: MuJoCo's ``model`` and ``data``, ``reset``, ``signals``.
        joints: names of the joints that :meth:`block` can block.
        topics: topics that it reads, the command's first.
        stands: whether it stays in its initial state until its motors run; else until a command comes.
    """

    dt: float
    body: Any
    joints: tuple[str, ...]
    topics: tuple[CommandTopic | Topic, ...]
    stands: bool

    @property
    def setpoint(self) -> np.ndarray:
        """The driver's setpoint [U] for the actuators, in the units of the command."""

    @property
    def dead(self) -> bool:
        """Whether the driver's process has ended: the state is not published."""

    def reset(self, rng: np.random.Generator) -> None:
        """Begin a flight: parameters and state drawn from ``rng``, the driver as after its launch."""

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """The content, for :meth:`receive`, of a message on topic ``number`` that arrives at ``now_ns``; or Refused."""

    def receive(self, content: Any, at: float) -> None:
        """Give the driver the content of a message at ``at`` [s] of the flight."""

    def step(self, time: float) -> None:
        """Physics from ``time`` [s] to ``time + dt``; a FloatingPointError if it diverges."""

    def says(self, time: float, stamp_ns: int) -> list[Output]:
        """Messages to publish now beside the state."""

    def signals(self) -> dict[str, np.ndarray]:
        """True signals, float32."""

    def block(self, joints: Sequence[str]) -> None:
        """Block these joints from now on, and no others."""


class Quadrotor:
    """A quadrotor: firmware with a watchdog, rate loop, rotors with lag, rigid body, by the spec's parameters.

    ``start``: distribution of initial states; None: ``simulation.start`` of ``ros.yaml``.
    """

    joints: tuple[str, ...] = ()
    dead = stands = False

    def __init__(
        self, robot: RobotSpec, interface: Interface, command: str, settings: Mapping[str, Any],
        start: Start | None = None,
    ) -> None:
        from temporeal.sim.physics.mujoco.quadrotor_model import Robot

        self.robot, self.command, self.settings = robot, command, settings
        self.start = start or (lambda rng: draw_start(robot, rng, settings["start"]))
        topic = interface.command(command)
        self.topics: tuple[CommandTopic | Topic, ...] = (topic,)
        self.codec, self.options = COMMAND_CODECS[topic.codec], topic.options
        self.dt, self.body = FLIGHT_DT, Robot(robot, command, FLIGHT_DT)
        self.nominal = self.body.params()

    def reset(self, rng: np.random.Generator) -> None:
        """See :class:`Plant`."""
        self.place(rng)
        self.firmware = Firmware(self.command, self.settings["watchdog"])

    def place(self, rng: np.random.Generator) -> None:
        """Draw the parameters and the initial state of a flight."""
        drawn = draw_parameters(self.robot, rng, float(self.settings["spread"]))
        self.body.set_params(altered(drawn, self.nominal, self.settings))
        self.body.reset(self.start(rng))

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """See :class:`Plant`."""
        command = self.codec.decode(message, self.options)
        if command.shape != (4,) or not np.isfinite(command).all():
            raise Refused(f"{self.command} is 4 finite numbers, got {command.tolist()}")
        return command

    def receive(self, content: Any, at: float) -> None:
        """See :class:`Plant`."""
        self.firmware.receive(content, at)

    @property
    def setpoint(self) -> np.ndarray:
        """The last command, before the firmware."""
        return self.firmware.last

    def step(self, time: float) -> None:
        """See :class:`Plant`."""
        if self.firmware.at == -np.inf:  # no command yet: keep holding the robot
            self.firmware.hold(self.neutral(), time)
        self.body.step(self.firmware.output(time, self.body.signals()["base_quat_w"]), 1)

    def neutral(self) -> np.ndarray:
        """The command that holds a level robot in place."""
        if self.command == "ctbr_cmd":
            return np.array([self.body.params()["mass"] * GRAVITY, 0.0, 0.0, 0.0])
        return np.asarray(self.body.signals()["rotor_speed"], dtype=float)

    def says(self, time: float, stamp_ns: int) -> list[Output]:
        """See :class:`Plant`."""
        return []

    def signals(self) -> dict[str, np.ndarray]:
        """See :class:`Plant`."""
        return self.body.signals()

    def block(self, joints: Sequence[str]) -> None:
        """See :class:`Plant`."""
        if joints:
            raise InterfaceError(f"robot {self.robot.name!r} has no joints to block, got {list(joints)}")


class UnderAutopilot(Quadrotor):
    """The same vehicle with PX4 as its firmware. It is held in its initial state, which may be in the air as with all
    interfaces, until its motors give thrust.

    If the autopilot takes no orders over these topics, a simulated pilot switches the mode and arms when possible.
    """

    stands = True

    def __init__(
        self, robot: RobotSpec, interface: Interface, command: str, settings: Mapping[str, Any],
        start: Start | None = None,
    ) -> None:
        super().__init__(robot, interface, command, settings, start)
        assert interface.autopilot is not None  # what chose this class
        topic, self.autopilot = interface.command(command), interface.autopilot
        orders = self.autopilot.orders
        self.topic, self.topics = topic, (topic, *topic.also, *([] if orders is None else [orders]))
        self.pilot = orders is None
        self.landed_m = float((interface.safety.get("level") or {}).get("landed_m", LANDED_M))

    def reset(self, rng: np.random.Generator) -> None:
        """See :class:`Plant`."""
        self.place(rng)
        self.px4, self.off = Px4Commander(
            self.autopilot, self.topic, self.neutral(), landed_m=self.landed_m), False

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """See :class:`Plant`. The commander checks setpoints."""
        return message.__msgtype__, message

    def receive(self, content: Any, at: float) -> None:
        """See :class:`Plant`."""
        kind, message = content
        self.px4.receive(kind, message, at)

    @property
    def setpoint(self) -> np.ndarray:
        """The last setpoint, before the commander."""
        return np.zeros(4) if self.px4.setpoint is None else self.px4.setpoint

    def step(self, time: float) -> None:
        """See :class:`Plant`."""
        command = self.px4.output(time, self.body.signals())
        pushes = command is not None and bool((command[:1] if self.command == "ctbr_cmd" else command).any())
        self.off = self.off or pushes
        if self.off:
            self.body.step(np.zeros(4) if command is None else command, 1)

    def says(self, time: float, stamp_ns: int) -> list[Output]:
        """See :class:`Plant`."""
        if self.pilot and not self.off and not self.px4.armed and self.px4.streamed(time):
            self.px4.pilot(time, mode=OFFBOARD, arm=True)
        return self.px4.status(time, stamp_ns)


class Articulated:
    """An arm or a hand: its driver, and its MuJoCo model with the servos, gains, delay and gravity compensation of
    training.

    Args:
        period: s between two published states; a multiple of the physics step, which is at most the model's own.
        scene: the robot among objects; None: alone on a floor.
        start: distribution of initial states; None: home, with each joint off by up to ``simulation.start.joint_rad``.
    """

    def __init__(
        self, robot: RobotSpec, interface: Interface, command: str, settings: Mapping[str, Any], *, period: float,
        scene: Scene | None = None, start: Start | None = None,
    ) -> None:
        from temporeal.sim.physics.mujoco.single_world import World, file_dt

        self.robot, self.settings, self.topic = robot, settings, interface.command(command)
        self.topics: tuple[CommandTopic | Topic, ...] = self.topic.parts
        self.dt = period / ceil(period / file_dt(robot) - 1e-9)
        self.body = World(scene or robot, command, self.dt)
        self.nominal = self.body.params()
        self.start = start or self.near_home
        self.joints = tuple(n for s in robot.sources.values() if s.what == "joint_pos" for n in s.names)

    stands = False

    def says(self, time: float, stamp_ns: int) -> list[Output]:
        """See :class:`Plant`."""
        return []

    def near_home(self, rng: np.random.Generator) -> State:
        """Home with uniform noise on the joints, within their range."""
        most = float(self.settings["start"]["joint_rad"])
        home = np.array(self.robot.home["joint_pos"])
        low, high = self.body.joint_range(self.robot.sources["joint_pos"].names)
        return {"joint_pos": np.clip(home + most * rng.uniform(-1, 1, home.shape), low, high)}

    def reset(self, rng: np.random.Generator) -> None:
        """See :class:`Plant`."""
        drawn = draw_parameters(self.robot, rng, float(self.settings["spread"]))
        # a robot with effort commands has no servos and none of their gains
        has = {**self.nominal, **{name: v for name, v in drawn.items() if name in self.nominal}}
        self.body.set_params(altered(has, self.nominal, self.settings))
        self.drawn, self.limp = self.body.params(), False
        self.body.reset(self.start(rng))
        self.setpoint: np.ndarray = self.body.holding()
        drivers = [(topic, driver_of(
            topic, topic.part(self.setpoint), robot=self.robot, moving_end=bool(self.settings.get("moving_end")),
            servo_lag_s=float(self.settings.get("servo_lag_s", 0.1)))) for topic in self.topic.parts]
        self.driver: Driver | Parted = drivers[0][1] if len(drivers) == 1 else Parted(drivers, self.setpoint)

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """See :class:`Plant`."""
        if isinstance(self.driver, Parted):
            return self.driver.read(message, now_ns, number)
        return self.driver.read(message, now_ns)

    def receive(self, content: Any, at: float) -> None:
        """See :class:`Plant`."""
        self.driver.receive(content, at)

    @property
    def dead(self) -> bool:
        """See :class:`Plant`."""
        return self.driver.dead

    def step(self, time: float) -> None:
        """See :class:`Plant`. A setpoint that is not finite ends the flight."""
        wanted = self.driver.output(time)
        if wanted is not None:
            self.setpoint = wanted
        if not np.isfinite(self.setpoint).all():
            raise FloatingPointError(f"the driver passed on a setpoint that is not finite: {self.setpoint.tolist()}")
        if self.driver.dead and not self.limp:  # motors off
            self.body.set_params({name: np.zeros_like(self.drawn[name]) for name in ("kp", "kd")})
            self.limp = True
        self.body.step(self.setpoint)

    def signals(self) -> dict[str, np.ndarray]:
        """See :class:`Plant`."""
        return self.body.signals()

    def block(self, joints: Sequence[str]) -> None:
        """See :class:`Plant`."""
        if unknown := sorted(set(joints) - set(self.joints)):
            raise InterfaceError(f"robot {self.robot.name!r} has no joints {unknown}; it has: {', '.join(self.joints)}")
        damping = self.drawn["damping"].copy()
        damping[self.body.damping_columns(joints)] = STUCK
        self.body.set_params({"damping": damping})


def plant_of(
    robot: RobotSpec, interface: Interface, command: str, settings: Mapping[str, Any], *, period: float,
    scene: Scene | None = None, start: Start | None = None,
) -> Plant:
    """The plant of ``robot``; arguments as for :class:`Articulated`."""
    if robot.kind == "quadrotor":
        if scene is not None:
            raise InterfaceError(f"robot {robot.name!r} is a quadrotor: it is simulated alone, without a task's scene")
        if interface.autopilot is not None:
            return UnderAutopilot(robot, interface, command, settings, start)
        return Quadrotor(robot, interface, command, settings, start)
    if robot.kind == "mobile_base":
        spread = float(settings["spread"])
        return MobileBase(robot, interface, command, settings, start,
                          lambda rng: altered(draw_parameters(robot, rng, spread), {}, settings))
    if command not in robot.actuators or "joint_pos" not in robot.sources:
        raise InterfaceError(
            f"robot {robot.name!r} of kind {robot.kind!r} cannot be simulated behind topics: legal are a quadrotor, a "
            f"mobile base, and a robot with the signal joint_pos whose spec names the actuators of {command!r}")
    return Articulated(robot, interface, command, settings, period=period, scene=scene, start=start)


def draw_start(robot: RobotSpec, rng: np.random.Generator, start: Mapping[str, float]) -> dict[str, np.ndarray]:
    """A quadrotor's initial state near home: uniform position, velocity and rates, tilted about a random axis; with
    ``ground_m``, level and at rest with its origin at that height."""
    axis = rng.standard_normal(3)
    turn = rng.uniform(0.0, start["tilt_rad"]) * axis / np.linalg.norm(axis)
    home = np.array(robot.home["base_pos_w"])
    if start.get("ground_m") is not None:
        home[2] = start["ground_m"]
        return {"base_pos_w": home + start["position_m"] * np.append(rng.uniform(-1, 1, 2), 0.0)}
    return {
        "base_pos_w": home + start["position_m"] * rng.uniform(-1, 1, 3),
        "base_quat_w": from_rotation_vector(turn),
        "base_vel_w": start["speed_m_s"] * rng.uniform(-1, 1, 3),
        "base_ang_vel_b": start["rate_rad_s"] * rng.uniform(-1, 1, 3),
    }


def draw_parameters(robot: RobotSpec, rng: np.random.Generator, spread: float) -> dict[str, np.ndarray]:
    """Physical parameters, uniform in ``spread`` (0 to 1) of each range around its nominal value."""
    if not 0.0 <= spread <= 1.0:
        raise InterfaceError(f"spread is a share from 0 to 1, got {spread}")
    out = {}
    for name, p in robot.parameters.items():
        nominal, low, high = (np.array(v) for v in (p.nominal, p.low, p.high))
        drawn = rng.uniform(nominal + spread * (low - nominal), nominal + spread * (high - nominal))
        out[name] = drawn[0] if len(drawn) == 1 else drawn
    return out
