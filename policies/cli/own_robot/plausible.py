"""Numbers that a model may have and hardly a machine has: degrees for radians, millimetres for metres, lost masses."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

import mujoco

from temporeal.policies.cli.own_robot.dynamics import Physics
from temporeal.robots.spec import RobotSpec

TURNS = 8.0  # of a joint's range that no cable stands. Chosen; continuous joints have 2
SPEED = 50.0  # rad/s: a hobby servo without load makes 10, small hands' motors 30. Chosen
SIZE_M = (0.02, 20.0)  # of a robot from end to end. Chosen
MASS_KG = (0.01, 20_000.0)  # of all that moves. Chosen


def doubts(robot: RobotSpec, physics: Physics) -> Iterator[str]:
    """What is hardly meant, in words: of the ``robot``'s joints, and of its compiled model."""
    motion, names = robot.motion, robot.sources["joint_pos"].names
    for name, low, high, speed in zip(names, motion.low, motion.high, motion.speed) if motion is not None else ():
        if mujoco.mjtJoint(physics.model.joint(name).type[0]) != mujoco.mjtJoint.mjJNT_HINGE:
            continue
        if high - low > TURNS * 2 * pi:
            yield f"{name}: a range of {low:g} to {high:g} rad is {(high - low) / (2 * pi):.0f} turns: degrees?"
        if speed > SPEED:
            yield f"{name}: {speed:g} rad/s is {speed / (2 * pi):.0f} turns a second: degrees?"
    size, mass = float(physics.model.stat.extent), float(physics.model.body_mass.sum())
    if not SIZE_M[0] <= size <= SIZE_M[1]:
        yield f"the model is {size:.3g} m large: a model is in metres, not in millimetres"
    if not MASS_KG[0] <= mass <= MASS_KG[1]:
        yield f"all links together weigh {mass:.3g} kg: each needs its <inertial>, in kg"
