"""Shadow Dexterous Hand E, right, with motors (E3M5): 24 joints, 20 motors. Every number with its source.

- [U] shadow-robot/sr_common (efa7d38, 2023, BSD-3), ``sr_description/hand/xacro``: joint frames, masses, inertias,
  speeds, efforts; ``doc/HandInertia.md``: which boxes and cylinders the inertias are of
- [S] the same, ``sr_description/mujoco_models``: gains of Shadow's own simulation (``rh_trajectory_controller.yaml``),
  armature, damping, joint friction (``shared_options.xml``, ``sr_hand_e_model.xml``)
- [T] shadow-robot/sr_dexterous_hand_documentation (b5e9491, 2024), ``docs/user_guide``: ranges
  (``md_ranges.rst``), loopback tendons (``md_finger.rst``), rates and topics (``sd_command_line.rst``)
- [C] shadow-robot/sr_core (af2f341, 2023), ``srh_joint_position_controller.cpp``, ``joint_0_transmission.cpp``: what
  the motor of two joints makes of their commands, and what it measures of them
- [G] openai/gym (0c08523; these assets Apache-2.0), ``gym/envs/robotics/assets/hand/{robot,shared}.xml``: capsules and
  boxes, force limits, gains, armature
- [M] MuJoCo Menagerie (0498058, Apache-2.0), ``shadow_hand/right_hand.xml``: the width of fingers, gains, force limits,
  damping, armature, friction
- [L] robots/leap_hand: friction, where nobody published it for this hand

Not followed: the efforts of [U], which allow WRJ1 30 N m and are above all other sources; the link between joints 1 and
2 of [G], which makes them move alike: [T] says only that joint 1 does not pass joint 2.

Frames, in model.xml: hand x along the fingers, y from the first to the little finger, z out of the palm. Signs are the
driver's: J3, J2, J1 close, spreading the fingers is negative J4.

Names are Shadow's without the prefix ``rh_``: first, middle, ring, little finger and thumb, joints counted from the
tip. Joint order: wrist, then finger by finger along the chain. It is not the driver's, which is read by name.

Motors: 20, in the joints' order, with J0 in the place of joints 2 and 1 of a finger. One motor pulls both, on one
tendon: it controls J0, the *sum* of their angles, from 0 to 180 degrees [C], and nothing commands them one by one. So
``actuator_pos_cmd`` has 20 components, ``joint_pos`` 24, and ``actuator_pos`` the 20 that the motors control. The
driver measures both joints' angles, but of their speeds only the sum, half of which it gives each [C]: ``joint_vel`` is
not on its topic.
"""

from __future__ import annotations

from math import radians
from pathlib import Path

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import ASSUMED, Parameter, RobotSpec, Source, cautious_motion

HERE = Path(__file__).parent

FINGERS = ("FF", "MF", "RF", "LF")
TIPS = ("index", "middle", "ring", "little", "thumb")
WRIST, THUMB = ("WRJ2", "WRJ1"), tuple(f"THJ{i}" for i in (5, 4, 3, 2, 1))


def _fingers(*numbers: int) -> tuple[str, ...]:
    """These joints of every finger, and the one that the little finger has in the palm."""
    return tuple(f"{f}J{i}" for f in FINGERS for i in ((5,) if f == "LF" else ()) + numbers)


JOINTS = (*WRIST, *_fingers(4, 3, 2, 1), *THUMB)
MOTORS = (*WRIST, *_fingers(4, 3, 0), *THUMB)

COUPLED = {f"{f}J0": (f"{f}J2", f"{f}J1") for f in FINGERS}
"""The joints whose angles add up to what a motor controls [C]; every other motor has the joint of its own name."""

_FINGER = {"J4": (-20, 20), "J3": (-15, 90), "J2": (0, 90), "J1": (0, 90), "J0": (0, 180)}
DEGREES = {  # [T]; WRJ2 to -30 in [U]
    "WRJ2": (-28, 10), "WRJ1": (-40, 28), "LFJ5": (0, 45), "THJ5": (-60, 60), "THJ4": (0, 70), "THJ3": (-12, 12),
    "THJ2": (-40, 40), "THJ1": (-15, 90), **{f + joint: ends for f in FINGERS for joint, ends in _FINGER.items()}}
LOW = tuple(radians(DEGREES[motor][0]) for motor in MOTORS)
HIGH = tuple(radians(DEGREES[motor][1]) for motor in MOTORS)

SPEED = tuple(4.0 if motor in ("THJ5", "THJ4", "THJ3", "THJ1") else 2.0 for motor in MOTORS)
"""rad/s [U], of the motors' angles. J0: that of one joint, so that neither goes faster when the other is blocked."""

JOINT_SPEED = tuple(dict(zip(MOTORS, SPEED)).get(joint, 2.0) for joint in JOINTS)
"""rad/s, of the joints."""

_HOME = {"LFJ5": 0.1, "THJ5": 0.1, "THJ4": 0.8, "THJ2": 0.2, "THJ1": 0.3,
         **{f + joint: angle for f in FINGERS for joint, angle in (("J3", 0.4), ("J2", 0.4), ("J1", 0.2))}}
HOME = tuple(_HOME.get(joint, 0.0) for joint in JOINTS)
"""rad: half closed, the thumb across, chosen here."""


def actuator_angles(joints: tuple[float, ...]) -> tuple[float, ...]:
    """What the motors control, [20] rad in the order of :data:`MOTORS`, of the joints' angles [24] rad."""
    angle = dict(zip(JOINTS, joints, strict=True))
    return tuple(sum(angle[joint] for joint in COUPLED.get(motor, (motor,))) for motor in MOTORS)


def _ends(end: int) -> tuple[float, ...]:
    """The lower (0) or upper (1) ends of the joints' ranges, rad."""
    return tuple(radians(DEGREES[joint][end]) for joint in JOINTS)


def _motors(wrist: tuple[float, float], finger: float, thumb: tuple[float, ...], j0: float | None = None
            ) -> tuple[float, ...]:
    """One number for each motor: WRJ2 and WRJ1, the fingers', J0's where it is another, THJ5 to THJ1."""
    own = {**dict(zip(WRIST, wrist)), **dict(zip(THUMB, thumb, strict=True))}
    return tuple(own.get(m, finger if j0 is None or m not in COUPLED else j0) for m in MOTORS)


def _joints(wrist: float, finger: float, thumb: float) -> tuple[float, ...]:
    """One number for each joint."""
    return tuple({"WR": wrist, "TH": thumb}.get(joint[:2], finger) for joint in JOINTS)


STRENGTH = _motors((4.785, 2.175), 0.9, (2.3722, 1.45, 0.99, 0.99, 0.81), 0.7245)  # N m [G]
STRONGEST = _motors((10.0, 5.0), 1.0, (3.0, 2.0, 1.0, 1.0, 1.0))  # N m [M]
KP = _motors((8.0, 10.0), 4.0, (4.0,) * 5)  # N m/rad [S]
KD = _motors((0.1, 0.1), 0.1, (0.2,) * 5)  # N m s/rad [S]

# kg [U]: forearm, wrist, palm; knuckle, proximal, middle, distal with tip; the little finger's metacarpal before them;
# thumb's base, proximal, hub, middle, distal with tip
_LINKS = (0.008, 0.03, 0.017, 0.013)
MASS = (3.0, 0.1, 0.3, *_LINKS * 3, 0.03, *_LINKS, 0.01, 0.04, 0.005, 0.02, 0.017)

SHAPES = 2 + 2 + 3 * 3 + 4 + 3  # shapes that touch: forearm, wrist, palm, fingers, thumb
TIP_SHAPES = (6, 9, 12, 16, 19)


def _friction(link: float, tip: float) -> tuple[float, ...]:
    """Sliding friction of the shapes that touch."""
    return tuple(tip if i in TIP_SHAPES else link for i in range(SHAPES))


PARAMETERS = {
    "mass": Parameter(MASS, tuple(0.9 * m for m in MASS), tuple(1.1 * m for m in MASS), "kg",
                      "[U]; spread chosen here: 10 % for screws and cables"),
    "friction": Parameter(_friction(0.2, 0.7), _friction(0.2, 0.5), _friction(1.0, 1.0), "1", "[L]; high [G], [M]"),
    "command_delay": Parameter((0.0,), (0.0,), (0.04,), "s", "high chosen here: two control steps at 50 Hz"),
    "damping": Parameter(_joints(0.5, 0.05, 0.05), _joints(0.1, 0.05, 0.05), _joints(1.0, 0.1, 0.2), "N m s/rad",
                         "[M]; low: wrist [U]; high: wrist [S], others [U]"),
    "armature": Parameter(_joints(0.005, 0.001, 0.001), (0.0002,) * 24, (0.005,) * 24, "kg m^2",
                          "[G]; low [M], high [S]"),
    "frictionloss": Parameter((0.01,) * 24, (0.001,) * 24, (0.1,) * 24, "N m", "[M]; low [G], high [S]"),
    "kp": Parameter(KP, _motors((5.0, 5.0), 1.0, (1.0,) * 5, 0.5), tuple(1.2 * x for x in KP), "N m/rad",
                    "[S]; low [G], J0's [M]; high chosen here: 20 % above"),
    "kd": Parameter(KD, (0.0,) * 20, tuple(1.2 * x for x in KD), "N m s/rad", "[S]; low [G], [M]; high as for kp"),
    "strength": Parameter(STRENGTH, tuple(0.8 * x for x in STRENGTH), STRONGEST, "N m",
                          "[G]; low chosen here: 20 % below, high [M]"),
}

SPEC = RobotSpec(
    name="shadow_hand",
    kind="hand",
    signals=schema(
        SignalSpec("joint_pos", (24,), "rad", rate_hz=125),
        SignalSpec("joint_vel", (24,), "rad/s", rate_hz=125),
        SignalSpec("actuator_pos", (20,), "rad", rate_hz=125),
        *(SignalSpec(f"{tip}_tip_w", (3,), "m", "w", rate_hz=125) for tip in TIPS),  # by forward kinematics
    ),
    commands={"actuator_pos_cmd": CommandSpec("actuator_pos_cmd", (20,), "rad", low=LOW, high=HIGH)},
    limits={f"{joint}_vel": (-top, top) for joint, top in zip(JOINTS, JOINT_SPEED)},  # rad/s
    home={"joint_pos": HOME, "joint_vel": (0.0,) * 24, "actuator_pos": actuator_angles(HOME)},
    parameters=PARAMETERS,
    model=HERE / "model.xml",
    ros=HERE / "ros.yaml",
    sources={
        "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
        "actuator_pos": Source("sensor", tuple(f"{motor}_pos" for motor in MOTORS)),
        **{f"{tip}_tip_w": Source("pos", (f"{tip}_tip",)) for tip in TIPS},
    },
    actuators={"actuator_pos_cmd": MOTORS},
    motion=cautious_motion(JOINT_SPEED, _ends(0), _ends(1)),
    control_hz=20.0,
    defaults=ASSUMED,
)
