"""A compiled scene: the model, where each signal is read, what each parameter acts on. numpy, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter
from temporeal.sim.scene import Scene

Array = np.ndarray
Fields = Mapping[str, Array]


@dataclass(frozen=True)
class Read:
    """A signal is ``data[field][:, columns]``, or the length of these three numbers each (``norm``), as ``shape``."""

    field: str  # qpos, qvel or sensordata
    columns: slice | Array
    shape: tuple[int, ...]
    norm: bool = False
    attitude: slice | None = None
    """To write: the qpos of the quaternion by which a vector in the world's frame turns into the body's."""


@dataclass(frozen=True)
class Group:
    """What parameters of one name prefix act on: ids in the compiled model."""

    prefix: str  # "" for the robot, "cube." for an object, "grip." for a link
    bodies: Array
    geoms: Array  # those that touch
    dofs: Array  # of hinges and slides
    actuators: Array
    root: int | None  # body that a wrench acts on: it is free to move, or a link of a robot that is fixed to the world


@dataclass(frozen=True)
class Model:
    """A compiled scene.

    Args:
        reads: by signal. ``writes``: qpos and qvel columns, by signal that a reset may set.
        stage: the last stage of MuJoCo's pipeline that the signals need at the new state (mjtStage).
        forces: whether a signal is a force, which belongs to the last step made.
        ctrl: columns of ``ctrl`` that the command sets; the others stay at ``home_ctrl``.
        parameters: by name; :func:`temporeal.sim.physics.mujoco.parameters.write_params` writes their values.
    """

    scene: Scene
    mj: mujoco.MjModel
    reads: Mapping[str, Read]
    writes: Mapping[str, Read]
    stage: int
    forces: bool
    ctrl: Array
    home_qpos: Array
    home_ctrl: Array
    groups: tuple[Group, ...]
    parameters: Mapping[str, Parameter]
    integrator: str  # as it was asked for


JOINT_SIZE = {0: 7, 1: 4, 2: 1, 3: 1}  # mjtJoint: free, ball, slide, hinge


def free_joint(mj: mujoco.MjModel, body: str | int) -> int | None:
    """The free joint of a body (its name or number), if it has one."""
    if isinstance(body, str):
        body = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_BODY, body)
    if body < 0 or not mj.body_jntnum[body]:
        return None
    joint = int(mj.body_jntadr[body])
    return joint if mj.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE else None


def element(mj: mujoco.MjModel, kind: str, name: str) -> Any:
    """The model's element ``name``; an unknown name lists the known ones."""
    try:
        return getattr(mj, kind)(name)
    except KeyError:
        count = {"joint": mj.njnt, "actuator": mj.nu, "sensor": mj.nsensor, "body": mj.nbody}[kind]
        known = ", ".join(n for n in (getattr(mj, kind)(i).name for i in range(count)) if n)
        raise UnknownName(f"the model has no {kind} {name!r}; it has: {known}") from None


def body_of(mj: mujoco.MjModel, name: str) -> int:
    """The body that is called ``name`` or has the site ``name``."""
    site = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, name)
    return int(mj.site_bodyid[site]) if site >= 0 else int(element(mj, "body", name).id)
