"""The ant: a quadruped with eight hinges that exists in simulation only. Every number with its source.

- [S] J. Schulman, P. Moritz, S. Levine, M. Jordan, P. Abbeel, "High-Dimensional Continuous Control Using Generalized
  Advantage Estimation", ICLR 2016: the robot and its task
- [G] Gymnasium, Ant-v5: its documentation and ``ant.xml``: torso a sphere of 0.25 m; limbs of radius 0.08 m that reach
  0.2, 0.2 and 0.4 m along both horizontal axes; density 5 kg/m^3; armature 1 kg m^2, damping 1 N m s/rad; hips within
  ±30 degrees, ankles 30 to 70 degrees down; torques of ±150 N m; friction 1; RK4 with steps of 10 ms

Nobody has measured an ant, so all ranges are chosen here: half to twice a property of a joint, 20 % of a mass.

Order of joints, actuators and command: front left, back left, back right, front right; in each hip, ankle. These are
[G]'s ``hip_1``, ``ankle_1`` .. ``hip_4``, ``ankle_4``, whose action begins with the fourth leg: see
:data:`GYMNASIUM_ACTION`. Bodies: torso, then thigh and shin of each leg. Body frame: x forward, y left, z up.
"""

from __future__ import annotations

from math import pi, sqrt
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec, Source

HERE = Path(__file__).parent

LEGS = ("front_left", "back_left", "back_right", "front_right")
JOINTS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "ankle"))

GYMNASIUM_ACTION = (6, 7, 0, 1, 2, 3, 4, 5)
"""The components of our command in the order of Gymnasium's action."""

DENSITY, TORSO, LIMB = 5.0, 0.25, 0.08  # kg/m^3, radii in m [G]
GEAR = 150.0  # N m at a command of 1 [G]
BEND, LEAST, MOST = pi / 6, pi / 6, 7 * pi / 18  # rad: hips to both sides, ankles [G]
HEIGHT = 0.56  # m: the feet just touch the floor; [G] 0.55, 6 mm inside it
ANKLE = (1.0, -1.0, -1.0, 1.0)  # rad [G]: down is positive in front and negative behind


def _capsule(reach: float) -> float:
    """Mass, kg, of a limb that reaches ``reach`` m along both horizontal axes."""
    return DENSITY * pi * LIMB**2 * (reach * sqrt(2) + LIMB * 4 / 3)


# kg [G]: the torso with four shoulders; thigh and shin of each leg
MASS = (DENSITY * pi * TORSO**3 * 4 / 3 + 4 * _capsule(0.2), *(_capsule(0.2), _capsule(0.4)) * 4)


def _chosen(nominal: float, low: float, high: float, count: int, unit: str, source: str = "[G]; spread chosen here"
            ) -> Parameter:  # fmt: skip
    """One number for ``count`` joints or shapes."""
    return Parameter((nominal,) * count, (low,) * count, (high,) * count, unit, source)


PARAMETERS = {
    "mass": Parameter(MASS, tuple(0.8 * m for m in MASS), tuple(1.2 * m for m in MASS), "kg",
                      "[G]: density times volume; spread chosen here"),
    "friction": _chosen(1.0, 0.5, 1.5, 13, "1"),
    "command_delay": _chosen(0.0, 0.0, 0.04, 1, "s", "high chosen here"),
    "damping": _chosen(1.0, 0.5, 2.0, 8, "N m s/rad"),
    "armature": _chosen(1.0, 0.5, 2.0, 8, "kg m^2"),
    "frictionloss": _chosen(0.0, 0.0, 1.0, 8, "N m"),
}

SPEC = RobotSpec(
    name="ant",
    kind="quadruped",
    signals=schema(
        SignalSpec("base_pos_w", (3,), "m", "w"), SignalSpec("base_quat_w", (4,), "wxyz", "w"),
        SignalSpec("base_vel_w", (3,), "m/s", "w"), SignalSpec("base_ang_vel_b", (3,), "rad/s", "b"),
        SignalSpec("joint_pos", (8,), "rad"), SignalSpec("joint_vel", (8,), "rad/s")),
    # share of the full torque
    commands={"torque_cmd": CommandSpec("torque_cmd", (8,), "1", low=(-1.0,) * 8, high=(1.0,) * 8)},
    limits={
        "joint_torque": (-GEAR, GEAR),  # N m
        **{f"{leg}_hip_pos": (-BEND, BEND) for leg in LEGS},  # rad
        **{f"{leg}_ankle_pos": (LEAST, MOST) if down > 0 else (-MOST, -LEAST) for leg, down in zip(LEGS, ANKLE)}},
    home={
        "base_pos_w": (0.0, 0.0, HEIGHT), "base_quat_w": (1.0, 0.0, 0.0, 0.0), "base_vel_w": (0.0,) * 3,
        "base_ang_vel_b": (0.0,) * 3, "joint_pos": tuple(q for down in ANKLE for q in (0.0, down)),
        "joint_vel": (0.0,) * 8},
    parameters=PARAMETERS,
    model=HERE / "model.xml",
    sources={
        "base_pos_w": Source("pos", ("torso",)), "base_quat_w": Source("quat", ("torso",)),
        "base_vel_w": Source("lin_vel", ("torso",)), "base_ang_vel_b": Source("ang_vel_b", ("torso",)),
        "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS)},
    actuators={"torque_cmd": JOINTS},
    control_hz=20.0,
)  # fmt: skip
