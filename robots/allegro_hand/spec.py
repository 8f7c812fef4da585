"""Wonik Allegro Hand v4 (right): 16 joints, three fingers and a thumb. Every number with its source.

- [W] allegro_hand_ros_v4 (Wonik Robotics, SimLab): ``allegro_hand_description_right.xacro`` (joint frames, limits,
  boxes, masses), ``AllegroHandDrv.cpp`` (torque to PWM, its limits, joint order, 3 ms period), ``gains_pd.yaml``,
  ``allegro_node_pd.cpp`` (home pose)
- [H] HORA (H. Qi et al., "In-Hand Object Rotation via Rapid Motor Adaptation", CoRL 2022), ``allegro_hand_hora.py``:
  kp 3, kd 0.1, 0.5 N m, armature, joint friction; Isaac Lab has the same gains and torque
- [M] MuJoCo Menagerie, ``wonik_allegro/right_hand.xml``: the same frames, limits and boxes
- [L] robots/leap_hand: fingertips and joints of the same kind, where nobody published a number for this hand

Not followed: the inertias of [W], which are about corners of the boxes while its centres of mass lie on the joints
(here each mass fills its box evenly), the passive damping of [W] (3 to 10 N m s/rad with 5 to 12 N m of friction,
against motors of less than 0.6 N m) and kp 10, damping 1 of [M], three times as stiff and ten times as slow as [W];
contact of the palm's box with the thumb's second link, which would push at its rim in one of twelve random postures, by
1.8 mm at most: the real palm is lower there.

Frames, in model.xml: hand x along the fingers, y from index to ring, z out of the palm. Positive angles close the hand.

Joint order: finger by finger (index, middle, ring, thumb), in each along the chain. It is the order of the driver's
vectors and of ``joint_states``, ``joint_cmd`` in ROS [W], with the same signs and zeros.

Motor: the driver takes torques, as PWM: all of 1200 units are called 1 N m, and each joint has its PWM limit. A PD
controller on the computer, with a period of 3 ms, makes them of positions; gains are divided by the same 1200. PWM is
a voltage, so the back-EMF takes torque off in proportion to the speed: that is in ``damping``. ``joint_torque`` is what
the controller commands: this hand measures no torque.
"""

from __future__ import annotations

from math import radians
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import ASSUMED, Parameter, RobotSpec, Source, cautious_motion

HERE = Path(__file__).parent

FINGERS = ("index", "middle", "ring")
JOINTS = (*(f"{finger}_{joint}" for finger in FINGERS for joint in ("rot", "mcp", "pip", "dip")),
          "thumb_cmc", "thumb_axl", "thumb_mcp", "thumb_ipl")
TIPS = (*FINGERS, "thumb")

LOW = (-0.47, -0.196, -0.174, -0.227) * 3 + (0.263, -0.105, -0.189, -0.162)  # rad [W], its safety margin taken off
HIGH = (0.47, 1.61, 1.709, 1.618) * 3 + (1.396, 1.163, 1.644, 1.719)

HOME_DEGREES = (0, -10, 45, 45, 0, -10, 45, 45, 5, -5, 50, 45, 60, 25, 15, 45)  # [W]
HOME = tuple(radians(angle) for angle in HOME_DEGREES)

PWM_PER_NEWTON_METRE = 1200.0  # [W]
# N m [W]: the driver's PWM limits
STRENGTH = tuple(x / PWM_PER_NEWTON_METRE for x in (375.0, 675.0, 450.0, 285.0) * 3 + (525.0, 405.0, 270.0, 270.0))
SPEED = 7.0  # rad/s [W]
BACK_EMF = 1.0 / SPEED  # N m s/rad: 1 N m at standstill and full PWM, none at this speed
KP = (4000.0 / PWM_PER_NEWTON_METRE,) * 16  # N m/rad [W]
KD = tuple(x / PWM_PER_NEWTON_METRE for x in (150.0, 200.0, 150.0, 150.0) * 3 + (300.0, 200.0, 200.0, 150.0))

# kg [W]: palm; base, proximal, medial, distal with fingertip of each finger, and of the thumb
MASS = (0.4154, *(0.0119, 0.065, 0.0355, 0.0264) * 3, 0.0176, 0.0119, 0.038, 0.0556)

SHAPES = 1 + 4 * 5  # shapes that touch: palm, fingers, thumb
TIP_SHAPES = (5, 10, 15, 20)


def _friction(link: float, tip: float) -> tuple[float, ...]:
    """Sliding friction of the shapes that touch."""
    return tuple(tip if i in TIP_SHAPES else link for i in range(SHAPES))


def _same(nominal: float, low: float, high: float, unit: str, source: str) -> Parameter:
    """One number for each of the 16 joints."""
    return Parameter((nominal,) * 16, (low,) * 16, (high,) * 16, unit, source)


def _scaled(values: tuple[float, ...], low: float, high: float, unit: str, source: str) -> Parameter:
    """``values``, with a range of ``low`` to ``high`` times as much."""
    return Parameter(values, tuple(low * x for x in values), tuple(high * x for x in values), unit, source)


PARAMETERS = {
    "mass": _scaled(MASS, 0.9, 1.1, "kg", "[W]; spread chosen here: 10 % for screws and cables"),
    "friction": Parameter(_friction(0.2, 0.7), _friction(0.2, 0.5), _friction(0.5, 0.8), "1", "[L]"),
    "command_delay": Parameter((0.0,), (0.0,), (0.04,), "s", "high chosen here: two control steps at 50 Hz"),
    "damping": _same(0.07, 0.0, BACK_EMF, "N m s/rad", "chosen here: half of [W]'s torque over speed; low [H]"),
    "armature": _same(0.001, 0.0005, 0.002, "kg m^2", "[H]; spread chosen here: half and twice"),
    "frictionloss": _same(0.01, 0.001, 0.05, "N m", "[H]; spread [L]"),
    "kp": _scaled(KP, 0.8, 1.2, "N m/rad", "[W], within it [H]; spread chosen here: torque per PWM, warm or cold"),
    "kd": Parameter(KD, tuple(min(0.1, 0.8 * x) for x in KD), tuple(1.2 * x for x in KD), "N m s/rad",
                    "[W]; low [H], high chosen here as for kp"),
    "strength": Parameter(STRENGTH, tuple(0.8 * x for x in STRENGTH), tuple(max(0.5, x) for x in STRENGTH), "N m",
                          "[W]; low chosen here as for kp, high [H]"),
}

SPEC = RobotSpec(
    name="allegro_hand",
    kind="hand",
    signals=schema(
        SignalSpec("joint_pos", (16,), "rad", rate_hz=333),
        SignalSpec("joint_vel", (16,), "rad/s", rate_hz=333),  # from positions, in the driver
        SignalSpec("joint_torque", (16,), "N m", rate_hz=333),
        *(SignalSpec(f"{tip}_tip_w", (3,), "m", "w", rate_hz=333) for tip in TIPS),  # by forward kinematics
    ),
    commands={"joint_pos_cmd": CommandSpec("joint_pos_cmd", (16,), "rad", low=LOW, high=HIGH)},
    limits={
        "joint_vel": (-SPEED, SPEED),  # rad/s
        **{f"{joint}_torque": (-most, most) for joint, most in zip(JOINTS, STRENGTH)}},
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
    motion=cautious_motion((SPEED,) * 16, LOW, HIGH, STRENGTH),
    control_hz=20.0,
    defaults=ASSUMED,
)
