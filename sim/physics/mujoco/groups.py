"""The bodies, geoms, joints and actuators that parameters of one name prefix act on."""

from __future__ import annotations

import mujoco
import numpy as np

from temporeal.sim.physics.mujoco.model import Array, Group, body_of, element, free_joint
from temporeal.sim.physics.mujoco.robot_files import SLIDE, levers
from temporeal.sim.scene import Object, Scene


def group_of_robot(mj: mujoco.MjModel, scene: Scene) -> Group:
    """All that is neither the world's nor an object's."""
    mine = np.ones(mj.nbody, bool)
    mine[0] = False
    for thing in scene.objects:
        mine[subtree(mj, f"{thing.name}.root")] = False
    return group(mj, "", np.flatnonzero(mine))


def group_of_object(mj: mujoco.MjModel, thing: Object) -> Group:
    """All bodies below the object's root."""
    return group(mj, f"{thing.name}.", subtree(mj, f"{thing.name}.root"))


def links(mj: mujoco.MjModel, scene: Scene, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The links that carry a frame of the robot whose position is a signal, where the robot is fixed to the world.

    They are called as the frame (``grip.``), take a wrench and have no other parameters; of several frames on one link
    the first counts. An object of the same name takes it.
    """
    if groups[0].root is not None:
        return ()
    found: dict[int, Group] = {}
    nothing, taken = np.zeros(0, int), {g.prefix for g in groups}
    for source in scene.robot.sources.values():
        body = body_of(mj, source.names[0]) if source.what == "pos" else 0
        if body in groups[0].bodies and body not in found and f"{source.names[0]}." not in taken:
            found[body] = Group(f"{source.names[0]}.", nothing, nothing, nothing, nothing, body)
    return tuple(found.values())


def subtree(mj: mujoco.MjModel, root: str) -> Array:
    """Ids of the body ``root`` and of all below it."""
    inside = np.zeros(mj.nbody, bool)
    inside[element(mj, "body", root).id] = True
    for i in range(1, mj.nbody):  # parents come first
        inside[i] |= inside[mj.body_parentid[i]]
    return np.flatnonzero(inside)


def group(mj: mujoco.MjModel, prefix: str, bodies: Array) -> Group:
    """The group of ``bodies``."""
    touching = (mj.geom_contype | mj.geom_conaffinity) != 0
    geoms = np.flatnonzero(np.isin(mj.geom_bodyid, bodies) & touching)
    joint_type = mj.jnt_type[mj.dof_jntid] if mj.nv else np.zeros(0, int)
    dofs = np.flatnonzero(np.isin(mj.dof_bodyid, bodies) & (joint_type >= SLIDE))
    actuators = np.array([i for i in range(mj.nu) if on_joints(mj, i, bodies)], dtype=int)
    free = [b for b in bodies if free_joint(mj, int(b)) is not None] if len(bodies) else []
    return Group(prefix, bodies, geoms, dofs, actuators, int(free[0]) if free else None)


def on_joints(mj: mujoco.MjModel, actuator: int, bodies: Array) -> bool:
    """Whether the actuator's numbers are those of joints of ``bodies``: it drives one, or the sum of several angles.

    Others act on sites, or on tendons with levers of their own.
    """
    joints = levers(mj, actuator)
    kind = mujoco.mjtTrn(mj.actuator_trntype[actuator])
    plain = kind != mujoco.mjtTrn.mjTRN_TENDON or all(lever == 1.0 for lever in joints.values())
    return bool(joints) and plain and bool(np.isin(mj.jnt_bodyid[list(joints)], bodies).all())
