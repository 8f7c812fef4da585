"""What tasks need of a quadrotor: its weight and how much actions change thrust and rates, from its spec."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.maps import AffineAction
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY
from temporeal.sim.physics.quadrotor.rotor import PARAMETERS

RATES = "ctbr_cmd"  # collective thrust, N, and body rates, rad/s
OWN_SCALES: Mapping[str, tuple[float, float, float, float]] = {"crazyflie": (0.2, 5.0, 5.0, 2.0)}
"""N and rad/s at action 1 of robots for which they were chosen."""
THRUST = 0.64  # of the weight at action 1: as much lift less, or more, than hovering needs
RATE = 0.8  # of the greatest rates
SHARE_OF_LAG = 0.4  # of the motors' time constant: the longest physics step


def quadrotor(task: str, name: str) -> RobotSpec:
    """The quadrotor ``name`` for ``task``; a ValueError says what it lacks."""
    robot = load_robot(name)
    if robot.kind != "quadrotor":
        raise ValueError(f"task {task!r} is for quadrotors, and robot {name!r} is of kind {robot.kind!r}")
    if missing := [key for key in PARAMETERS if key not in robot.parameters]:
        raise ValueError(f"task {task!r}: robot {name!r} lacks the parameters {', '.join(missing)} of a quadrotor")
    if full_thrust(robot) < 1.2 * weight(robot):
        raise ValueError(f"robot {name!r}: its rotors lift {full_thrust(robot):.3g} N, less than 1.2 times its weight, "
                         f"{weight(robot):.3g} N: it could not fly missions; check mass and thrust_curve")
    return robot


def mass(robot: RobotSpec) -> float:
    """kg."""
    return robot.parameters["mass"].nominal[0]


def weight(robot: RobotSpec) -> float:
    """N."""
    return mass(robot) * GRAVITY


def full_thrust(robot: RobotSpec) -> float:
    """Thrust of four rotors at full speed, N."""
    return 4 * sum(robot.parameters["thrust_curve"].nominal)


def physics_steps(robot: RobotSpec, control_dt: float, usual: int) -> int:
    """Physics steps in a control step: ``usual``, or as many as the robot's motors are quicker than those of others."""
    lag = min(robot.parameters["tau_up"].low[0], robot.parameters["tau_down"].low[0])
    return max(usual, ceil(control_dt / (SHARE_OF_LAG * lag) - 1e-9))


def rates_action(robot: RobotSpec) -> AffineAction:
    """Actions of thrust and body rates about hovering."""
    high = robot.command(RATES).high
    scale = OWN_SCALES.get(robot.name) or (THRUST * weight(robot), *(RATE * rate for rate in high[1:]))
    return AffineAction(robot, RATES, center=(weight(robot), 0.0, 0.0, 0.0), scale=scale)
