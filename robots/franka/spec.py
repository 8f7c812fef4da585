"""Franka Research 3 (FR3) with the Franka Hand: seven joints and a parallel gripper. Every number with its source.

- [U] frankaemika/franka_description, 14c5d63 and b299b39: ``robots/fr3``, ``robots/fer``, ``end_effectors/franka_hand``
  (Apache-2.0). FER is the arm formerly called Panda
- [C] Franka's FCI documentation, "Robot and interface specifications", limits for Franka Research 3
- [M] MuJoCo Menagerie, ``franka_fr3``: armature, damping and friction identified in torque control (2025-04-25)
- [P] MuJoCo Menagerie, ``franka_emika_panda``
- [D] Drake, ``manipulation/models/franka_description``: "reflected inertia provided by Franka for the FR-3 robots"
- [G] C. Gaz et al., "Dynamic Identification of the Franka Emika Panda Robot With Retrieval of Feasible Parameters Using
  Penalty-Based Optimization", RA-L 2019: joint friction, half of the sigmoid's height
- [E] libfranka, ``examples_common.cpp``, ``setDefaultBehavior``: the internal joint stiffness
- [H] Franka Hand, data sheet: 70 N continuous, 140 N for a short time, 50 mm/s per finger, 0.7 kg

Order of what has several components (a test keeps it):

- joints: ``fr3_joint1`` .. ``fr3_joint7``, ``fr3_finger_joint1`` (left), ``fr3_finger_joint2`` (right):
  ``damping`` (N m s/rad, N s/m), ``armature`` (kg m^2, kg), ``frictionloss`` (N m, N)
- bodies: ``fr3_link0`` .. ``fr3_link7``, ``fr3_hand``, ``fr3_leftfinger``, ``fr3_rightfinger``: ``mass``
- actuators: ``fr3_joint1`` .. ``fr3_joint7``, ``fr3_gripper``: ``kp`` (N m/rad, N/m), ``kd`` (N m s/rad, N s/m),
  ``strength`` (N m, N). The gripper's force is that of both fingers together.

Link 7's least principal moment of inertia is 5.6e-7 kg m^2 as published [U], a radius of gyration of 0.9 mm: valid, but
no solid of that size has it, so do not read a shape out of it.

``strength`` bounds the servo (``forcerange``). Servo and gravity compensation together stay within the torque limits
above, whatever ``strength`` is (the joints' ``actuatorfrcrange``).
"""

from __future__ import annotations

from math import pi
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Gripper, MotionLimits, Parameter, RobotSpec, Source
from temporeal.robots.symmetry import Mirror, Symmetry

HERE = Path(__file__).parent

JOINTS = tuple(f"fr3_joint{i}" for i in range(1, 8))
FINGERS = ("fr3_finger_joint1", "fr3_finger_joint2")
GRIPPER = "fr3_gripper"
OPEN = 0.04  # m, stroke of one finger [U]

LOW = (-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159)  # rad [U]
HIGH = (2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159)
SPEED = (2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26)  # rad/s [U]
ACCELERATION = (10.0,) * 7  # rad/s^2 [C]
JERK = (5000.0,) * 7  # rad/s^3 [C]
# rad/s; rad/s^2; rad: towards the ends of its range the robot accepts a speed of at most
# sqrt(ENVELOPE (end - position)) - OFFSET ([C], and libfranka, rate_limiting.h)
OFFSET = (0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35)
ENVELOPE = (12.0, 5.17, 7.0, 8.0, 34.0, 11.0, 34.0)
END_LOW = (-2.7501, -1.7918, -2.9065, -3.0481, -2.8101, 0.54092, -3.0196)
END_HIGH = (2.7501, 1.7918, 2.9065, -0.1458, 2.8101, 4.5205, 3.0196)
TORQUE = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)  # N m [U]
TORQUE_RATE = (1000.0,) * 7  # N m/s [C]
# m/s, rad/s: chosen, as fast as the tasks' actions (sim/tasks/reach.py); below the 1.7 and 2.5 of the older arm
# (libfranka, rate_limiting.h)
TOOL_LINEAR, TOOL_ROTATIONAL = 0.6, 2.0
TOOL_ACCELERATIONS = (2.0,) * 3 + (8.0,) * 3  # m/s^2, rad/s^2: chosen; joints then keep motion(0.6), mostly
TOOL_SPEEDS = (TOOL_LINEAR,) * 3 + (TOOL_ROTATIONAL,) * 3
GRIP_FORCE, FINGER_SPEED = 70.0, 0.05  # N per finger, m/s [H]

HOME = (0.0, -pi / 4, 0.0, -3 * pi / 4, 0.0, pi / 2, pi / 4)  # the pose that libfranka's examples start from

# modified (Craig) Denavit-Hartenberg parameters [U]: a (m), d (m), alpha (rad) of joints 1 to 7 and of the flange
DENAVIT_HARTENBERG = (
    (0.0, 0.333, 0.0), (0.0, 0.0, -pi / 2), (0.0, 0.316, pi / 2), (0.0825, 0.0, pi / 2), (-0.0825, 0.384, -pi / 2),
    (0.0, 0.0, pi / 2), (0.088, 0.0, pi / 2), (0.0, 0.107, 0.0))  # fmt: skip
# x, y, z m, turn about z rad of the point between the fingertips in the flange's frame: site `grip` [U]
TOOL = (0.0, 0.0, 0.1034, -pi / 4)

MASS = (2.3966, 2.9274653454, 2.9355370338, 2.2449013699, 2.6155955791, 2.3271207594, 1.8170376524, 0.6271432862)
MASS_FER = (2.3966, 2.7907, 2.542, 2.2513, 2.2037, 2.2855, 1.353, 0.35973)
HAND = (0.6544, 0.0291, 0.0291)  # hand, fingers [U]
KP = (3000.0, 3000.0, 3000.0, 2500.0, 2500.0, 2000.0, 2000.0)
KD = (96.0, 148.0, 121.0, 109.0, 34.0, 31.0, 25.0)


def motion(share: float = 1.0) -> MotionLimits:
    """Limits of setpoints: ``share`` of the speeds and accelerations that the robot accepts.

    Braking is gentler than the robot's envelope allows and ends before its ends, so that whoever brakes so stays
    inside: sqrt(2 b (r - m)) <= sqrt(k r) - c for every room r, if 2 b < k and m = c^2 / (k - 2 b).
    """
    brake = tuple(min(share * a, 0.4 * k) for a, k in zip(ACCELERATION, ENVELOPE))
    margin = [c * c / (k - 2 * b) for c, k, b in zip(OFFSET, ENVELOPE, brake)]
    return MotionLimits(
        speed=tuple(share * v for v in SPEED), acceleration=tuple(share * a for a in ACCELERATION), brake=brake,
        low=tuple(end + m for end, m in zip(END_LOW, margin)), high=tuple(end - m for end, m in zip(END_HIGH, margin)),
        jerk=JERK, effort=TORQUE)


def limit(name: str, values: tuple[float, ...]) -> dict[str, tuple[float, float]]:
    """Symmetric limits of one quantity of the seven joints, called ``fr3_joint1_<name>`` and so on."""
    return {f"{joint}_{name}": (-value, value) for joint, value in zip(JOINTS, values)}


def negative(values: tuple[float, ...]) -> tuple[float, ...]:
    """The other end of symmetric limits."""
    return tuple(-value for value in values)


PARAMETERS = {
    # [P] takes the masses of [G], which fit the torques but not the links one by one (link 2: 0.647 kg): not a range
    "mass": Parameter(
        (*MASS, *HAND), (*map(min, MASS, MASS_FER), 0.6544, 0.015, 0.015),
        (*map(max, MASS, MASS_FER), 0.73, 0.0291, 0.0291), "kg",
        "[U] FR3; range: [U] FR3 and FER, hand and fingers with the older values of [U]"),
    "damping": Parameter(
        (0.21,) * 7 + (GRIP_FORCE / FINGER_SPEED,) * 2, (0.003,) * 7 + (GRIP_FORCE / 0.2,) * 2,
        (1.0,) * 7 + (GRIP_FORCE / FINGER_SPEED,) * 2, "N m s/rad",
        "[M]; low [U], high [P]; fingers: full force at 0.05 m/s [H], low: at the 0.2 m/s of [U]"),
    "armature": Parameter(
        (0.195,) * 4 + (0.074,) * 3 + (2.8,) * 2, (0.1,) * 4 + (0.074,) * 3 + (1.4,) * 2,
        (0.605721456, 0.605721456, 0.462474144, 0.462474144, 0.205544064, 0.205544064, 0.205544064, 14.0, 14.0),
        "kg m^2", "[M]; low [P], high [D]; fingers assumed: motor time constants of 1, 2 and 10 ms"),
    "frictionloss": Parameter(
        (1.137, 1.137, 1.137, 1.137, 0.763, 0.44, 0.248, 0.0, 0.0), (0.2,) * 5 + (0.151505, 0.2, 0.0, 0.0),
        (1.137, 1.137, 1.137, 1.137, 0.763, 0.44, 0.282445, 0.0, 0.0), "N m",
        "[M]; low: the lesser of [U] and [G], joint 7 high [G]; fingers: within their force limit"),
    "kp": Parameter(
        (*KP, 40000.0), (3000.0, 3000.0, 3000.0, 2500.0, 2000.0, 2000.0, 2000.0, 20000.0),
        (4500.0, 4500.0, 3500.0, 3500.0, 2500.0, 2000.0, 2000.0, 80000.0), "N m/rad",
        "[E]; range: [E] and [M]; gripper assumed: full force from 3.5 mm of error on (7 and 1.75 mm)"),
    "kd": Parameter(
        (*KD, 0.0), (*(0.7 * kd for kd in KD), 0.0), (*(kp / 10 for kp in KP), 0.0), "N m s/rad",
        "critical damping at home, 2 sqrt(kp M_ii); low assumed: damping ratio 0.7; high: kp/10, the ratio of [M]"),
    "strength": Parameter(
        (*TORQUE, 2 * GRIP_FORCE), (*(0.9 * torque for torque in TORQUE), 60.0), (*TORQUE, 4 * GRIP_FORCE), "N m",
        "[U], [H]; low assumed: 90 %, gripper 30 N per finger (the least that grasps get); high: short time [H]"),
}

# Reflected in y = 0: joints that turn about the vertical or the reach change their sign, those that bend (2, 4, 6) do
# not. The hand is mounted at -pi/4 about the flange, so that joint 7 is mirrored about pi/4; fingers change places.
SIGNS = (-1, 1, -1, 1, -1, 1, -1)
TURNED = (0.0,) * 6 + (pi / 2,)
SYMMETRY = Symmetry({
    "joint_pos": Mirror(SIGNS, offset=TURNED), "joint_vel": Mirror(SIGNS), "joint_torque": Mirror(SIGNS),
    "finger_pos": Mirror((1, 1), (1, 0)), "joint_pos_cmd": Mirror(SIGNS, offset=TURNED),
    "arm_cmd": Mirror((*SIGNS, 1), offset=(*TURNED, 0.0)), "joint_vel_cmd": Mirror(SIGNS),
    "joint_effort_cmd": Mirror(SIGNS), "tool_vel_cmd": Mirror((1, -1, 1, -1, 1, -1))},
    note="the links' centres of mass are a little off the plane: mirrored setpoints move the tool within 1 mm of the "
         "mirrored path (MuJoCo), with torques that differ by up to 2 N m; joint 7 below -1.445 rad has no image")

SPEC = RobotSpec(
    name="franka",
    kind="arm",
    signals=schema(
        SignalSpec("joint_pos", (7,), "rad", rate_hz=1000),
        SignalSpec("joint_vel", (7,), "rad/s", rate_hz=1000),
        # gravity compensation included, as the real arm's link-side sensors have it
        SignalSpec("joint_torque", (7,), "N m", rate_hz=1000),
        SignalSpec("finger_pos", (2,), "m", rate_hz=30),
        SignalSpec("grip_pos_w", (3,), "m", "w", rate_hz=1000),
        SignalSpec("grip_quat_w", (4,), "wxyz", "w", rate_hz=1000),
        SignalSpec("grip_vel_w", (3,), "m/s", "w", rate_hz=1000),
    ),
    commands={
        # setpoints of the joint servos
        "joint_pos_cmd": CommandSpec("joint_pos_cmd", (7,), "rad", low=LOW, high=HIGH),
        # the same and the opening of one finger, 0 (closed) to 0.04 m; mixed units, so the unit names both
        "arm_cmd": CommandSpec("arm_cmd", (8,), "rad,m", low=(*LOW, 0.0), high=(*HIGH, OPEN)),
        # speeds of the joints' setpoints, and efforts of the motors: gravity is compensated by the robot
        "joint_vel_cmd": CommandSpec("joint_vel_cmd", (7,), "rad/s", low=negative(SPEED), high=SPEED),
        "joint_effort_cmd": CommandSpec("joint_effort_cmd", (7,), "N m", low=negative(TORQUE), high=TORQUE),
        # of the point between the fingertips and about it, in the base's frame: for a Cartesian servo
        # (robots/motion/cartesian_servo.py)
        "tool_vel_cmd": CommandSpec("tool_vel_cmd", (6,), "m/s,rad/s", low=negative(TOOL_SPEEDS), high=TOOL_SPEEDS),
    },
    limits={
        **limit("vel", SPEED), **limit("acc", ACCELERATION), **limit("jerk", JERK), **limit("torque", TORQUE),
        **limit("torque_rate", TORQUE_RATE), "finger_vel": (-FINGER_SPEED, FINGER_SPEED),
        "grip_force": (0.0, GRIP_FORCE)},
    home={
        "joint_pos": HOME, "joint_vel": (0.0,) * 7, "finger_pos": (OPEN, OPEN)},
    parameters=PARAMETERS,
    model=HERE / "model.xml",
    ros=HERE / "ros.yaml",
    sources={
        "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
        "joint_torque": Source("joint_torque", JOINTS), "finger_pos": Source("joint_pos", FINGERS),
        "grip_pos_w": Source("pos", ("grip",)), "grip_quat_w": Source("quat", ("grip",)),
        "grip_vel_w": Source("lin_vel", ("grip",))},
    actuators={
        "joint_pos_cmd": JOINTS, "arm_cmd": (*JOINTS, GRIPPER), "joint_vel_cmd": JOINTS, "joint_effort_cmd": JOINTS,
        "tool_vel_cmd": JOINTS},
    drives={"joint_vel_cmd": "velocity", "joint_effort_cmd": "effort", "tool_vel_cmd": "tool"},
    tool="grip",
    motion=motion(),
    gripper=Gripper("arm_cmd", FINGERS, ("fr3_leftfinger", "fr3_rightfinger"), open=OPEN, closed=0.0),
    control_hz=25.0,
    symmetry=SYMMETRY,
)  # fmt: skip
