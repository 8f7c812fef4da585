"""Drives of joints: their values from the model's fields, and their targets from controls."""

from __future__ import annotations

import mujoco
import numpy as np

from temporeal.sim.physics.isaac.plan import Dof, Plan
from temporeal.sim.physics.mujoco.model import Array, Fields

UNLIMITED = 1e4  # N m or N: an actuator without a force limit
FASTEST = 1e3  # rad/s or m/s: a joint whose speed nothing bounds
DRIVE = ("stiffness", "damping", "effort", "velocity", "armature", "friction")


def drives(plan: Plan, fields: Fields) -> dict[str, Array]:
    """Drive values [K, D] of K worlds by :data:`DRIVE`, from per-world model fields [K, ...] (mjModel's names).

    Damping of the joint itself is added to the servo's. MuJoCo bounds only the servo's force, PhysX the sum: so the
    speed at which the joint's own damping takes all the force is given as the joint's greatest.
    """
    mj, count = plan.model.mj, len(fields["dof_damping"])
    out = {name: np.zeros((count, len(plan.dofs))) for name in DRIVE}
    for i, dof in enumerate(plan.dofs):
        v, a = int(mj.jnt_dofadr[dof.joint]), dof.actuator
        passive = fields["dof_damping"][:, v]
        bias = fields["actuator_biasprm"][:, a] if a >= 0 else np.zeros((count, 3))
        lever = dof.lever * dof.travel
        out["stiffness"][:, i] = -lever * bias[:, 1] if a >= 0 else mj.jnt_stiffness[dof.joint]
        out["damping"][:, i] = passive - lever * bias[:, 2]
        out["effort"][:, i] = effort = _effort(mj, dof, fields)
        with np.errstate(divide="ignore"):
            bound = np.where(passive > 0, effort / passive, FASTEST) if a >= 0 else FASTEST
        out["velocity"][:, i] = np.minimum(bound, FASTEST)
        out["armature"][:, i] = fields["dof_armature"][:, v]
        out["friction"][:, i] = fields["dof_frictionloss"][:, v]
    return out


def _effort(mj: mujoco.MjModel, dof: Dof, fields: Fields) -> Array:
    out = np.full(len(fields["dof_damping"]), UNLIMITED)
    if dof.actuator >= 0 and mj.actuator_forcelimited[dof.actuator]:
        out = abs(dof.lever) * fields["actuator_forcerange"][:, dof.actuator, 1]
    if dof.actuator >= 0 and mj.jnt_actfrclimited[dof.joint]:
        out = np.minimum(out, mj.jnt_actfrcrange[dof.joint, 1])
    return np.asarray(out)


def targets(plan: Plan, fields: Fields, ctrl: Array) -> tuple[Array, Array]:
    """Position targets and feed-forward efforts [K, D] of controls ``ctrl`` [K, nu]."""
    mj = plan.model.mj
    limited = mj.actuator_ctrllimited.astype(bool)
    low, high = mj.actuator_ctrlrange.T
    ctrl = np.where(limited, np.clip(ctrl, low, high), ctrl)
    position, effort = np.zeros((len(ctrl), len(plan.dofs))), np.zeros((len(ctrl), len(plan.dofs)))
    bound = fields["actuator_forcerange"]
    for i, dof in enumerate(plan.dofs):
        a = dof.actuator
        if a < 0:
            position[:, i] = mj.qpos_spring[mj.jnt_qposadr[dof.joint]] - dof.ref
            continue
        force = fields["actuator_gainprm"][:, a, 0] * ctrl[:, a]
        if dof.servo:
            stiff = -fields["actuator_biasprm"][:, a, 1] * dof.travel
            position[:, i] = np.divide(force, stiff, out=np.zeros(len(ctrl)), where=stiff != 0) - dof.ref
        else:
            if mj.actuator_forcelimited[a]:
                force = np.clip(force, bound[:, a, 0], bound[:, a, 1])
            effort[:, i] = dof.lever * force
    return position, effort
