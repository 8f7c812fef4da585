"""What a rigid-body engine lacks for a quadrotor: rate loop, mixer, motor lag, thrust curve, drag. numpy only.

Independent of :mod:`temporeal.sim.physics.quadrotor.dynamics` on purpose: a test compares the two. Arrays are component
first, [k, N], so that one numpy call serves all N worlds. Only +, -, *, / and square roots touch the state, in one
fixed order, so a world's result does not depend on N. SI units, world ENU, body FLU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter, RobotSpec

GRAVITY = 9.81  # m/s^2
COMMANDS = ("motor_cmd", "ctbr_cmd")
PARAMETERS = {
    "mass": 1, "inertia": 3, "thrust_curve": 3, "torque_per_thrust": 1, "tau_up": 1, "tau_down": 1, "arm": 2,
    "drag": 3, "motor_gain": 4, "rate_gain": 3,
}  # fmt: skip
DISTURBANCES = {"wind_w": 3, "force_w": 3, "torque_b": 3, "command_delay": 1}
UNITS = {"wind_w": "m/s", "force_w": "N", "torque_b": "N m", "command_delay": "s"}
SIZES = PARAMETERS | DISTURBANCES
"""Parameter name -> components. Units in the robot's spec; wind m/s, force N, torque N m, delay s."""
POSITIVE = ("mass", "inertia", "torque_per_thrust", "tau_up", "tau_down", "arm", "motor_gain")

Coefficient = float | np.ndarray

YZX, ZXY = [1, 2, 0], [2, 0, 1]  # the cyclic axes of a cross product


@dataclass(frozen=True)
class Layout:
    """Where the rotors are and how they turn: signs [4, 1] of x, y and of the reaction about body z."""

    x: np.ndarray
    y: np.ndarray
    yaw: np.ndarray


@dataclass(frozen=True)
class Belief:
    """What the robot's own controller takes its parameters to be: the nominal ones, never the true ones."""

    inertia: np.ndarray  # [3, 1] kg m^2
    curve: tuple[float, float, float]  # N over normalized rotor speed
    reaction: float  # m
    arm: tuple[float, float]  # m
    layout: Layout

    @property
    def full_thrust(self) -> float:
        """Thrust of one rotor at full speed, N."""
        return sum(self.curve)


def belief(robot: RobotSpec, layout: Layout) -> Belief:
    """The nominal parameters of ``robot`` as its controller uses them."""
    nominal = {name: robot.parameters[name].nominal for name in ("inertia", "thrust_curve", "torque_per_thrust", "arm")}
    c0, c1, c2 = nominal["thrust_curve"]
    if c2 <= 0:
        raise ValueError(f"thrust_curve {(c0, c1, c2)} of {robot.name!r}: its quadratic coefficient must be > 0")
    arm_x, arm_y = nominal["arm"]
    return Belief(
        np.array(nominal["inertia"])[:, None], (c0, c1, c2), nominal["torque_per_thrust"][0], (arm_x, arm_y), layout
    )


def speed_for_thrust(thrust: np.ndarray, c0: Coefficient, c1: Coefficient, c2: Coefficient) -> np.ndarray:
    """Normalized rotor speed in [0, 1] at which the curve gives ``thrust`` [N]: the larger root."""
    root = np.sqrt(np.maximum(c1 * c1 + 4.0 * c2 * (thrust - c0), 0.0))
    speed: np.ndarray = np.clip((root - c1) / (2.0 * c2), 0.0, 1.0)
    return speed


def mix(thrust: np.ndarray, torque: np.ndarray, robot: Belief) -> np.ndarray:
    """Rotor thrusts [4, N] in newtons for a collective ``thrust`` [N] and a body ``torque`` [3, N].

    Where they do not fit between zero and full thrust, yaw gives way first, then the collective (lowered until the
    strongest rotor fits), then roll and pitch (clipped at zero thrust).
    """
    full, layout = robot.full_thrust, robot.layout
    share = np.clip(thrust, 0.0, 4.0 * full) / 4.0
    roll, pitch = torque[0] / (4.0 * robot.arm[1]), torque[1] / (4.0 * robot.arm[0])
    yaw = torque[2] / (4.0 * robot.reaction)
    lift: np.ndarray = share + layout.y * roll - layout.x * pitch  # torque = r x (0, 0, f) = (y f, -x f, 0)
    lift = np.clip(lift - np.maximum(lift.max(0) - full, 0.0), 0.0, full)
    above, below = full - lift, lift
    up = np.where(layout.yaw > 0, above, below).min(0)
    down = np.where(layout.yaw > 0, below, above).min(0)
    lift += layout.yaw * np.clip(yaw, -down, up)
    return lift


def rate_loop(command: np.ndarray, rates: np.ndarray, gain: np.ndarray, robot: Belief) -> np.ndarray:
    """Rotor speed setpoints [4, N] for ``command`` [4, N] (thrust N, body rates rad/s) at body ``rates`` [3, N].

    Proportional on the rate error (``gain`` [3, N] 1/s), the gyroscopic torque of the believed inertia cancelled.
    """
    inertia = robot.inertia
    gyroscopic = (inertia[ZXY] - inertia[YZX]) * rates[YZX] * rates[ZXY]
    torque = inertia * gain * (command[1:] - rates) + gyroscopic
    return speed_for_thrust(mix(command[0], torque, robot), *robot.curve)


def drag_force(quat: np.ndarray, velocity: np.ndarray, drag: np.ndarray) -> np.ndarray:
    """World force [3, N] of linear drag along the body axes.

    Args:
        quat: [4, N] wxyz, body to world, unit length.
        velocity: [3, N] m/s, world, relative to the air.
        drag: [3, N] N s/m, body axes.
    """
    w, x, y, z = quat
    xx, yy, zz = x * x, y * y, z * z
    xy, xz, yz, wx, wy, wz = x * y, x * z, y * z, w * x, w * y, w * z
    axes = (
        np.array([0.5 - yy - zz, xy + wz, xz - wy]),
        np.array([xy - wz, 0.5 - xx - zz, yz + wx]),
        np.array([xz + wy, yz - wx, 0.5 - xx - yy]),
    )  # the body axes in the world, each of length 1/2: that factor, squared, is made good once below
    force = np.zeros_like(velocity)
    for axis, coefficient in zip(axes, drag):
        along = axis * velocity
        force -= axis * (coefficient * (along[0] + along[1] + along[2]))
    return 4.0 * force


class Rotors:
    """Rotors, controller and air of N quadrotors whose rigid bodies another engine simulates.

    Per physics step, :meth:`advance` takes the body's pose and velocity and gives rotor thrusts and the world force;
    the torque disturbance is the parameter ``torque_b``.
    """

    def __init__(self, robot: RobotSpec, layout: Layout, num_worlds: int, command: str, dt: float) -> None:
        if command not in COMMANDS:
            raise UnknownName(f"robot {robot.name!r} takes no command {command!r} here; known: {', '.join(COMMANDS)}")
        if not 0.0 < dt <= 0.1:
            raise ValueError(f"dt is {dt} s; it must lie in (0, 0.1]")
        self.belief, self.command, self.dt, self.num_worlds = belief(robot, layout), command, dt, num_worlds
        nominal = {name: robot.parameters[name].nominal for name in PARAMETERS}
        self.nominal = {name: np.array(nominal.get(name, (0.0,) * size)) for name, size in SIZES.items()}
        self.params = {n: np.tile(value[:, None], num_worlds) for n, value in self.nominal.items()}  # each [size, N]
        self.speed = np.zeros((4, num_worlds))  # normalized
        self.current, self.previous = np.zeros((4, num_worlds)), np.zeros((4, num_worlds))
        self.refresh()

    def set_params(self, ids: np.ndarray, params: Mapping[str, np.ndarray]) -> None:
        """Set parameters of the worlds ``ids`` [K], [K, ...] each; all are checked before one is taken."""
        checked = {name: check_param(name, value, len(ids)) for name, value in params.items()}
        for name, value in checked.items():
            nominal = self.nominal[name]  # itself, where it came in as float32
            exact = np.where(value.astype(np.float32) == nominal.astype(np.float32), nominal, value)
            self.params[name][:, ids] = exact.T
        self.refresh()

    def refresh(self) -> None:
        """Recompute what follows from the parameters."""
        # setpoints hold over a step, so the lag is an exact exponential: this much of the error is left after half one
        self.left_up = np.exp(-0.5 * self.dt / self.params["tau_up"])
        self.left_down = np.exp(-0.5 * self.dt / self.params["tau_down"])
        self.longest_delay = float(self.params["command_delay"].max())

    def hover_speed(self, ids: np.ndarray) -> np.ndarray:
        """Rotor speed [4, K] at which each rotor carries a quarter of the weight by its own curve."""
        c0, c1, c2 = self.params["thrust_curve"][:, ids]
        quarter = 0.25 * GRAVITY * self.params["mass"][:, ids] / self.params["motor_gain"][:, ids]
        return speed_for_thrust(quarter, c0, c1, c2)

    def reset(self, ids: np.ndarray, speed: np.ndarray | None) -> None:
        """Rotors of the worlds ``ids`` at ``speed`` [K, 4], or at hover speed.

        The previous command becomes the one that keeps them so: their speeds, or the weight and no rotation.
        """
        self.speed[:, ids] = self.hover_speed(ids) if speed is None else np.clip(speed.T, 0.0, 1.0)
        if self.command == "motor_cmd":
            self.current[:, ids] = self.speed[:, ids]
        else:
            self.current[:, ids] = 0.0
            self.current[0, ids] = GRAVITY * self.params["mass"][0, ids]
        self.previous[:, ids] = self.current[:, ids]

    def take(self, command: np.ndarray) -> None:
        """Begin a control step with ``command`` [N, 4]."""
        self.previous, self.current = self.current, np.array(command.T, dtype=np.float64, order="C")

    def applied(self, time: float) -> np.ndarray:
        """The command [4, N] of the physics step that begins ``time`` [s] into the control step.

        The previous one for ``command_delay``; their time-weighted mean in the step in which the delay ends.
        """
        if time >= self.longest_delay:
            return self.current
        share = np.clip((self.params["command_delay"] - time) / self.dt, 0.0, 1.0)
        return self.current + share * (self.previous - self.current)

    def advance(self, quat: np.ndarray, velocity: np.ndarray, rates: np.ndarray, time: float) -> tuple[np.ndarray, ...]:
        """One physics step: (rotor thrusts [4, N] N, world force [3, N] N) to hold during it.

        Args:
            quat: [4, N] wxyz; velocity: [3, N] m/s world; rates: [3, N] rad/s body; time: s into the control step.
        """
        params = self.params
        command = self.applied(time)
        if self.command == "ctbr_cmd":
            setpoint = rate_loop(command, rates, params["rate_gain"], self.belief)
        else:
            setpoint = np.clip(command, 0.0, 1.0)
        left = np.where(setpoint > self.speed, self.left_up, self.left_down)
        # thrust of the speed in mid-step: second order in dt, like a mean over the step
        middle = setpoint + (self.speed - setpoint) * left
        self.speed = setpoint + (middle - setpoint) * left
        c0, c1, c2 = params["thrust_curve"]
        thrust = params["motor_gain"] * (c0 + middle * (c1 + middle * c2))
        return thrust, drag_force(quat, velocity - params["wind_w"], params["drag"]) + params["force_w"]


def check_param(name: str, value: np.ndarray, count: int) -> np.ndarray:
    """``value`` as float64 [K, size], or an error that names the parameter and the rule."""
    if name not in SIZES:
        raise UnknownName(f"unknown parameter {name!r}; known: {', '.join(SIZES)}")
    value = np.asarray(value, dtype=np.float64)
    expected = (count,) if SIZES[name] == 1 else (count, SIZES[name])
    if value.shape != expected:
        raise ValueError(f"parameter {name} has shape {value.shape}, expected {expected}")
    if not np.isfinite(value).all():
        raise ValueError(f"parameter {name} has a non-finite value")
    if name in POSITIVE and not (value > 0).all():
        raise ValueError(f"parameter {name} must be > 0, got {value.min()}")
    if name == "command_delay" and not (value >= 0).all():
        raise ValueError(f"parameter command_delay must be >= 0 s, got {value.min()}")
    return value.reshape(count, SIZES[name])


def flight_parameters(robot: RobotSpec) -> dict[str, Parameter]:
    """All that a backend can set of a quadrotor: its physical parameters, and disturbances, which are zero."""
    known = {name: robot.parameters[name] for name in PARAMETERS}
    for name, size in DISTURBANCES.items():
        zero = (0.0,) * size
        known[name] = Parameter(zero, zero, zero, UNITS[name], "a disturbance")
    return known
