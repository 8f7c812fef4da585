"""Bitcraze Crazyflie 2.x: a 30 g quadrotor. Every number with its source.

Published sources disagree. The nominal values are those of one complete identified model,
*drone-models* 0.1.0, ``cf2x_L250`` (MIT); ``low``/``high`` span all sources below and are the
randomization range:

- [DM] drone-models 0.1.0, cf2x_L250 (identified; mass 31.9 g with decks and markers)
- [F]  J. Foerster, "System Identification of the Crazyflie 2.0 Nano Quadrocopter", ETH Zurich, 2015
- [L]  B. Landry, MIT 2015, as used by MuJoCo Menagerie's ``bitcraze_crazyflie_2``
- [G]  gym-pybullet-drones, ``cf2x.urdf`` (also the numbers of *Learning to Fly in Seconds*)
- [R]  rl-tools l2f 2.0.18, its Crazyflie
- [C]  Crazyswarm, mass and arm length
- [U]  motor lag fitted to public on-board logs (arplaboratory/data-driven-system-identification, MIT)

Frames: world ENU with z up, body FLU. Rotors are numbered as on the Crazyflie:
M1 front right, M2 rear right, M3 rear left, M4 front left; M1 and M3 turn counter-clockwise seen from above,
so their reaction torque on the body is clockwise (-z).
"""

from __future__ import annotations

from math import pi
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec
from temporeal.robots.symmetry import SAME, Mirror, Symmetry

HERE = Path(__file__).parent

GRAVITY = 9.81  # m/s^2
ROTOR_SIGN_X = (1.0, -1.0, -1.0, 1.0)  # of the rotor's x in the body frame, M1..M4
ROTOR_SIGN_Y = (-1.0, -1.0, 1.0, 1.0)
ROTOR_SIGN_YAW = (-1.0, 1.0, -1.0, 1.0)  # reaction torque about +z per unit of thrust

# [DM] thrust = -5.38e-7 rpm + 2.458e-10 rpm^2 reaches its 0.12 N limit at 23,216 rpm. Curves here are over the
# *normalized* rotor speed n = rpm / MAX_RPM, as thrust = c0 + c1 n + c2 n^2 in newtons.
MAX_RPM = 23216.0
THRUST_C1 = -5.38e-7 * MAX_RPM
THRUST_C2 = 2.458e-10 * MAX_RPM**2
MAX_THRUST = 4 * 0.12  # N, all rotors [DM]
MAX_COMMANDED = MAX_THRUST * 60000 / 65535  # N: the firmware's attitude and rate setpoints end at 60000 of 65535

PARAMETERS = {
    "mass": Parameter((0.0319,), (0.027,), (0.034,), "kg", "[DM]; low [G], high [C]"),
    "inertia": Parameter(
        (16.8e-6, 16.8e-6, 29.8e-6), (9.4166e-6, 9.6441e-6, 17.4595e-6), (23.951e-6, 23.951e-6, 32.347e-6),
        "kg m^2", "[DM]; low [R], high [L]"),
    "thrust_curve": Parameter(
        (0.0, THRUST_C1, THRUST_C2), (0.0, THRUST_C1, THRUST_C2), (0.0, THRUST_C1, THRUST_C2),
        "N", "[DM]; spread between sources through motor_gain"),
    "torque_per_thrust": Parameter((0.0068,), (0.004665,), (0.0068,), "m", "[DM] at full speed; low [R]; [F] 0.005965"),
    "tau_up": Parameter((1 / 7.3556,), (0.055,), (0.15,), "s", "[DM] rise 7.3556 1/s; low [U], high L2F paper code"),
    "tau_down": Parameter(
        (0.12,), (0.055,), (0.249,), "s", "[DM] quadratic fall linearized at hover; low [U], high [R]"),
    "arm": Parameter(
        (0.03253, 0.03253), (0.028, 0.028), (0.03253, 0.03253), "m", "[DM]; low [G], [R]: x, y of a rotor"),
    "drag": Parameter(
        (0.0147, 0.0147, 0.0128), (0.0, 0.0, 0.0), (0.0147, 0.0147, 0.0128), "N s/m", "[DM]; low: none [R]"),
    "motor_gain": Parameter(
        (1.0,) * 4, (0.85,) * 4, (1.15,) * 4, "1", "spread of full thrust: 0.35 N [L] to 0.60 N [G], battery"),
    # proportional gain of the inner rate loop. With the motor lag tau the loop's damping is 1 / (2 sqrt(gain tau)):
    # 0.39 nominal, 0.29 at the worst corner, so the range covers responses from sluggish to ringing
    "rate_gain": Parameter((12.0, 12.0, 5.0), (8.0, 8.0, 3.0), (20.0, 20.0, 8.0), "1/s",
                           "inner rate loop, chosen here so that the response spans sluggish to ringing"),
}

# reflected in y = 0 right and left rotors change places, which turn in opposite directions
SYMMETRY = Symmetry({
    "height": SAME, "motor_cmd": Mirror((1, 1, 1, 1), (3, 2, 1, 0)), "ctbr_cmd": Mirror((1, -1, 1, -1))})

SPEC = RobotSpec(
    name="crazyflie",
    kind="quadrotor",
    signals=schema(
        SignalSpec("base_pos_w", (3,), "m", "w", rate_hz=100),
        SignalSpec("base_quat_w", (4,), "wxyz", "w", rate_hz=100),
        SignalSpec("base_vel_w", (3,), "m/s", "w", rate_hz=100),
        SignalSpec("base_ang_vel_b", (3,), "rad/s", "b", rate_hz=100),
        SignalSpec("height", (), "m", "w", rate_hz=100),
    ),
    commands={
        # normalized rotor speed setpoint, M1..M4 (no ROS 2 topic takes it: firmware or simulation only)
        "motor_cmd": CommandSpec("motor_cmd", (4,), "1", "b", low=(0.0,) * 4, high=(1.0,) * 4),
        # collective thrust [N] and body rates [rad/s]; mixed units, so the unit names both
        "ctbr_cmd": CommandSpec(
            "ctbr_cmd", (4,), "N,rad/s", "b",
            low=(0.0, -2 * pi, -2 * pi, -pi), high=(MAX_COMMANDED, 2 * pi, 2 * pi, pi)),
    },
    limits={"tilt_rad": (0.0, pi), "speed_m_s": (0.0, 10.0), "height_m": (0.0, 10.0)},
    home={
        "base_pos_w": (0.0, 0.0, 1.0), "base_quat_w": (1.0, 0.0, 0.0, 0.0),
        "base_vel_w": (0.0, 0.0, 0.0), "base_ang_vel_b": (0.0, 0.0, 0.0), "height": (1.0,),
    },
    parameters=PARAMETERS,
    model=HERE / "model.xml",
    ros=HERE / "ros.yaml",
    control_hz=100.0,
    symmetry=SYMMETRY,
)

L2F_MAX_RPM = 21702.0
L2F_PARAMETERS = {
    # The complete nominal set of *Learning to Fly in Seconds* (public code arplaboratory/learning-to-fly, from [G]),
    # for comparisons with it: over its own normalized rotor speed, no drag. rate_gain is ours, it has no rate loop.
    "mass": (0.027,),
    "inertia": (3.85e-6, 3.85e-6, 5.9675e-6),
    "thrust_curve": (0.0, 0.0, 3.16e-10 * L2F_MAX_RPM**2),
    "torque_per_thrust": (0.005964552,),
    "tau_up": (0.15,),
    "tau_down": (0.15,),
    "arm": (0.028, 0.028),
    "drag": (0.0, 0.0, 0.0),
    "motor_gain": (1.0, 1.0, 1.0, 1.0),
    "rate_gain": PARAMETERS["rate_gain"].nominal,
}
