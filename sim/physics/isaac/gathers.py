"""Where each signal of a scene comes from: rows of links and joints, and frames in links."""

from __future__ import annotations

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Source
from temporeal.sim.physics.isaac.plan import FREE, HINGE, Gather, Plan
from temporeal.sim.physics.isaac.rotations import times, turn
from temporeal.sim.physics.mujoco.model import Array, Model


def gathers(plan: Plan, model: Model) -> dict[str, Gather]:
    """Where each signal of the scene comes from; one that Isaac does not give is a ValueError."""
    return {name: _gather(plan, model, name, source) for name, source in model.scene.sources.items()}


def _gather(plan: Plan, model: Model, name: str, source: Source) -> Gather:
    shape, what = model.scene.signals[name].shape, source.what
    if what == "sensor":
        raise ValueError(f"signal {name!r} reads the model's sensors {', '.join(source.names)}; Isaac has none of them")
    if what.startswith("joint_"):
        known = [model.mj.joint(d.joint).name for d in plan.dofs]
        rows = tuple(_index(known, "joint", n) for n in source.names)
        return Gather(what, rows, shape, np.array([plan.dofs[i].ref for i in rows]))
    if what == "contact_force":
        return Gather(what, tuple(_whole(plan, model.mj, n) for n in source.names), shape)
    row, pos, quat = place(plan, model.mj, source.names[0])
    return Gather(what, (row,), shape, pos, quat)


def _index(known: list[str], kind: str, name: str) -> int:
    if name not in known:
        raise UnknownName(f"the model has no {kind} {name!r}; it has: {', '.join(known)}")
    return known.index(name)


def _whole(plan: Plan, mj: mujoco.MjModel, name: str) -> int:
    """The link of the body ``name``."""
    known = [mj.body(link.bodies[0]).name if link.bodies else "" for link in plan.links]
    if name not in known:
        raise UnknownName(f"Isaac has no link {name!r} whose contact force could be read; links: "
                          f"{', '.join(filter(None, known))}")
    return known.index(name)


def place(plan: Plan, mj: mujoco.MjModel, name: str) -> tuple[int, Array, Array]:
    """Link row (-1: the world) and frame in it of the free body, site or body ``name``."""
    body = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_BODY, name)
    site = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, name)
    pos, quat = np.zeros(3), np.array([1.0, 0, 0, 0])
    free = body >= 0 and mj.body_jntnum[body] and mj.jnt_type[mj.body_jntadr[body]] == FREE
    if site >= 0 and not free:
        body, pos, quat = int(mj.site_bodyid[site]), mj.site_pos[site].copy(), mj.site_quat[site].copy()
    if body < 0:
        raise UnknownName(f"the model has no site or body {name!r}")
    while body:
        for row, link in enumerate(plan.links):
            if link.bodies and link.bodies[0] == body:
                hinge = link.dof is not None and mj.jnt_type[link.dof.joint] == HINGE
                shift = mj.jnt_pos[link.dof.joint] if hinge else np.zeros(3)  # type: ignore[union-attr]
                return row, pos - shift, quat
        pos, quat = mj.body_pos[body] + turn(mj.body_quat[body], pos), times(mj.body_quat[body], quat)
        body = int(mj.body_parentid[body])
    return -1, pos, quat
