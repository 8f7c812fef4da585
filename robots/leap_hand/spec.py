"""LEAP Hand (right): 16 servos, three fingers and a thumb. Every number with its source.

Published sources disagree where nobody measured: the nominal values are those under which policies were carried over
to the real hand, ``low``/``high`` span all sources below and are the randomization range:

- [L] K. Shaw, A. Agarwal, D. Pathak, "LEAP Hand", RSS 2023 (arXiv 2309.06440), and its LEAP_Hand_API: motor ids, zero
  pose, joint limits, gains, current limits (300 mA lite, 550 mA full)
- [S] LEAP_Hand_Sim, ``robot.urdf`` and ``LeapHandRot.yaml``, by the authors of [L]: joint frames, masses, kp 3, kd 0.1
- [M] MuJoCo Menagerie, ``leap_hand/right_hand.xml``: centres of mass and inertias, servo gains, friction
- [P] MuJoCo Playground, ``leap_rh_mjx.xml``: damping, armature, joint friction, torque limit, friction of the
  fingertips and of the rest
- [D] Robotis e-manual, Dynamixel XC330-M288-T: 23 g, 20 x 34 x 26 mm, 288.35:1, 0.93 N m and 1.80 A at stall (so
  0.517 N m/A), 81 rev/min without load, all at 5 V
- [I] public identification of the joints of one hand, in_hand_rotation_mjlab: armature, joint friction, torque;
  friction of the fingertips

Three numbers of these sources are not followed:

- thumb limits: [L] and [S] agree; [M] gives the limits of ``thumb_axl`` and ``thumb_mcp`` to other joints
- the thumb's first motor: [M] moved its shape by 15 mm along the motor but left the centre of mass; here it is inside
- [I]'s stiffness: its factors ended at or near their upper bound

Frames, in model.xml: hand x along the fingers, y from index to ring, z out of the palm. Positive angles close the hand.

Joint order: finger by finger (index, middle, ring, thumb), in each along the chain. It differs from the motors' ids
in the first two joints of a finger: see :data:`MOTOR_IDS`. A motor's angle is the joint's plus pi.

Motor: current-based position control. The current limit bounds the torque. Below 0.6 A the 5 V supply can drive that
current up to 5.6 rad/s and more of 8.48 rad/s (the back-EMF leaves 1 - speed / 8.48 of the stall current of 1.80 A),
so the model has a torque limit and no speed-dependent one; the bound is in ``limits``.
"""

from __future__ import annotations

from math import pi
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import ASSUMED, Parameter, RobotSpec, Source, cautious_motion

HERE = Path(__file__).parent

FINGERS = ("index", "middle", "ring")
JOINTS = (*(f"{finger}_{joint}" for finger in FINGERS for joint in ("mcp", "rot", "pip", "dip")),
          "thumb_cmc", "thumb_axl", "thumb_mcp", "thumb_ipl")
TIPS = (*FINGERS, "thumb")

MOTOR_IDS = (1, 0, 2, 3, 5, 4, 6, 7, 9, 8, 10, 11, 12, 13, 14, 15)
"""Dynamixel id of each joint [L]: the driver's vectors are in the order of ids, side-to-side joint first."""

MOTOR_ZERO = pi
"""rad [L]: the driver's angle of every motor where the joint's is zero (hand flat and open). Same sign."""

LOW = (-0.314, -1.047, -0.506, -0.366) * 3 + (-0.349, -0.47, -1.2, -1.34)  # rad [L], [S]
HIGH = (2.23, 1.047, 1.885, 2.042) * 3 + (2.094, 2.443, 1.9, 1.88)

HOME = (0.3, 0.0, 0.7, 0.3) * 3 + (1.1, 0.4, 0.4, 0.4)
"""rad: an open cup, chosen here by dropping a 7 cm cube on it from many places."""

TORQUE_PER_AMPERE = 0.93 / 1.80  # N m/A [D]
NO_LOAD_SPEED = 81 * 2 * pi / 60  # rad/s [D]
STRENGTH = 0.2196  # N m [P]: 0.6 A at 0.366 N m/A; amid the two current limits of [L] at [D]'s constant

# kg [S], [M]: palm; base, proximal, medial, distal of each finger; base, bracket, proximal, distal of the thumb
MASS = (0.237, *(0.044, 0.032, 0.037, 0.016) * 3, 0.032, 0.003, 0.038, 0.049)

SHAPES = 3 + 3 * 5 + 7  # shapes that touch: palm, fingers, thumb
TIP_SHAPES = (7, 12, 17, 24)


def _friction(printed: float, tip: float) -> tuple[float, ...]:
    """Sliding friction of the shapes that touch."""
    return tuple(tip if i in TIP_SHAPES else printed for i in range(SHAPES))


def _same(nominal: float, low: float, high: float, unit: str, source: str) -> Parameter:
    """One number for each of the 16 joints or servos."""
    return Parameter((nominal,) * 16, (low,) * 16, (high,) * 16, unit, source)


PARAMETERS = {
    "mass": Parameter(MASS, tuple(0.9 * m for m in MASS), tuple(1.1 * m for m in MASS), "kg",
                      "[S], [M]; spread chosen here: 10 % for the filling of printed parts, screws, cables"),
    "friction": Parameter(_friction(0.2, 0.7), _friction(0.2, 0.5), _friction(0.5, 0.8), "1",
                          "[P]: printed parts 0.2, tips 0.7; low [M]; high: tips [I], printed parts chosen here"),
    "command_delay": Parameter((0.0,), (0.0,), (0.04,), "s", "high chosen here: two control steps at 50 Hz"),
    "damping": _same(0.03, 0.0, 0.1, "N m s/rad", "[M]; low: none [S], high: [P] 0.2 for joint and servo, less kd"),
    "armature": _same(0.00149376, 0.00085, 0.0021, "kg m^2", "[P]; low, high: [I]. [D]'s gear, 1.8e-8 kg m^2 rotor"),
    "frictionloss": _same(0.02, 0.001, 0.064, "N m", "[P]; low [M], high [I]"),
    "kp": _same(3.0, 2.1, 4.0, "N m/rad", "[S], [M], [P]; low: [L]'s gain 800 in [D]'s units; high chosen here"),
    "kd": _same(0.1, 0.01, 0.2, "N m s/rad", "[S]; low [M], high: [P]'s damping, which holds the servo's"),
    "strength": _same(STRENGTH, 0.3 * TORQUE_PER_AMPERE, 0.55 * TORQUE_PER_AMPERE, "N m",
                      "[P]; low 300 mA, high 550 mA [L] times 0.517 N m/A [D]"),
}

SPEC = RobotSpec(
    name="leap_hand",
    kind="hand",
    signals=schema(
        # [L]: the bus gives one quantity of all joints at 90 Hz, all three at 30 Hz
        SignalSpec("joint_pos", (16,), "rad", rate_hz=90),
        SignalSpec("joint_vel", (16,), "rad/s", rate_hz=30),
        SignalSpec("joint_torque", (16,), "N m", rate_hz=30),  # from the measured current
        *(SignalSpec(f"{tip}_tip_w", (3,), "m", "w", rate_hz=90) for tip in TIPS),  # by forward kinematics
    ),
    commands={"joint_pos_cmd": CommandSpec("joint_pos_cmd", (16,), "rad", low=LOW, high=HIGH)},
    limits={"joint_vel": (-NO_LOAD_SPEED, NO_LOAD_SPEED), "joint_torque": (-STRENGTH, STRENGTH)},  # rad/s, N m
    home={"joint_pos": HOME, "joint_vel": (0.0,) * 16},
    parameters=PARAMETERS,
    model=HERE / "model.xml",
    ros=HERE / "ros.yaml",
    sources={
        "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
        "joint_torque": Source("joint_torque", JOINTS),
        **{f"{tip}_tip_w": Source("pos", (f"{tip}_tip",)) for tip in TIPS},
    },
    actuators={"joint_pos_cmd": JOINTS},
    motion=cautious_motion((NO_LOAD_SPEED,) * 16, LOW, HIGH, (STRENGTH,) * 16),
    control_hz=20.0,
    defaults=ASSUMED,
)
