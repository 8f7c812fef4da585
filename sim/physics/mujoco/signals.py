"""Signals of a scene in MuJoCo: the sensors they need, and where each is read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Source
from temporeal.sim.physics.mujoco.model import Array, Read, element, free_joint
from temporeal.sim.scene import Scene

SENSOR = "signal."
FRAME = {"pos": "FRAMEPOS", "quat": "FRAMEQUAT", "lin_vel": "FRAMELINVEL", "ang_vel": "FRAMEANGVEL"}
FREE = {"pos": ("qpos", 0, 3), "quat": ("qpos", 3, 4), "lin_vel": ("qvel", 0, 3), "ang_vel_b": ("qvel", 3, 3)}
NET_FORCE = (1 << 1, 3, 1)  # of a contact sensor: the force, summed over all contacts, once


def add_sensors(spec: mujoco.MjSpec, name: str, source: Source) -> None:
    """Sensors for a signal that is not part of the state."""
    what, names = source.what, source.names
    if what in ("joint_pos", "joint_vel", "sensor") or (what in FREE and is_free(spec, names[0])):
        return
    kinds = mujoco.mjtSensor
    for i, target in enumerate(names):
        label = f"{SENSOR}{name}.{i}"
        if what == "joint_torque":
            spec.add_sensor(name=label, type=kinds.mjSENS_JOINTACTFRC, objtype=mujoco.mjtObj.mjOBJ_JOINT,
                            objname=target)
        elif what == "contact_force":
            spec.add_sensor(name=label, type=kinds.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_BODY, objname=target,
                            intprm=NET_FORCE)
        elif what == "ang_vel_b":
            spec.add_sensor(name=label, type=kinds.mjSENS_GYRO, objtype=mujoco.mjtObj.mjOBJ_SITE,
                            objname=site_at(spec, target))
        else:
            spec.add_sensor(name=label, type=getattr(kinds, f"mjSENS_{FRAME[what]}"), objtype=frame_type(spec, target),
                            objname=target)


def is_free(spec: mujoco.MjSpec, name: str) -> bool:
    """Whether ``name`` is a body with a free joint."""
    body = spec.body(name)
    return body is not None and any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in body.joints)


def frame_type(spec: mujoco.MjSpec, name: str) -> mujoco.mjtObj:
    """Whether ``name`` is a site or a body's frame."""
    if spec.site(name) is not None:
        return mujoco.mjtObj.mjOBJ_SITE
    if spec.body(name) is None:
        known = [x.name for x in (*spec.sites, *spec.bodies) if x.name]
        raise UnknownName(f"the model has no site or body {name!r}; it has: {', '.join(known)}")
    return mujoco.mjtObj.mjOBJ_XBODY


def site_at(spec: mujoco.MjSpec, name: str) -> str:
    """A site with the frame of the body or site ``name``."""
    if frame_type(spec, name) == mujoco.mjtObj.mjOBJ_SITE:
        return name
    label = f"{SENSOR}{name}"
    if spec.site(label) is None:
        spec.body(name).add_site(name=label)
    return label


def read_of(mj: mujoco.MjModel, scene: Scene, name: str, source: Source) -> Read:
    """Where the signal ``name`` lies."""
    shape = scene.signals[name].shape
    what, names = source.what, source.names
    if what in ("joint_pos", "joint_vel"):
        joints = [element(mj, "joint", n) for n in names]
        columns = np.array([j.qposadr[0] if what == "joint_pos" else j.dofadr[0] for j in joints])
        read = Read("qpos" if what == "joint_pos" else "qvel", columns, shape)
    elif what in FREE and free_joint(mj, names[0]) is not None:
        joint = mj.joint(free_joint(mj, names[0]))
        field, first, size = FREE[what]
        first += (joint.qposadr if field == "qpos" else joint.dofadr)[0]
        read = Read(field, np.arange(first, first + size), shape)
    else:
        wanted = names if what == "sensor" else [f"{SENSOR}{name}.{i}" for i in range(len(names))]
        sensors = [element(mj, "sensor", n) for n in wanted]
        columns = np.concatenate([np.arange(s.adr[0], s.adr[0] + s.dim[0]) for s in sensors])
        read = Read("sensordata", columns, shape, norm=what == "contact_force")
    size = len(read.columns) // 3 if read.norm else len(read.columns)
    if size != scene.signals[name].size:
        raise ValueError(f"signal {name!r} has shape {shape}, but {what} of {', '.join(names)} gives {size} numbers")
    return replace(read, columns=as_slice(read.columns))


def writes_of(mj: mujoco.MjModel, scene: Scene, reads: Mapping[str, Read]) -> dict[str, Read]:
    """Where a reset writes signals: those that are part of the state, and angular velocities of free bodies."""
    writes = {name: read for name, read in reads.items() if read.field != "sensordata"}
    for name, source in scene.sources.items():
        joint = free_joint(mj, source.names[0]) if source.what == "ang_vel" else None
        if joint is not None:  # qvel has it in the body's frame
            dof, first = int(mj.jnt_dofadr[joint]) + 3, int(mj.jnt_qposadr[joint]) + 3
            writes[name] = Read("qvel", slice(dof, dof + 3), (3,), attitude=slice(first, first + 4))
    return writes


def stages_of(mj: mujoco.MjModel, reads: Iterable[Read]) -> set[int]:
    """The stages of MuJoCo's pipeline that compute the sensors which are read."""
    numbers = np.arange(mj.nsensordata)
    read = np.unique(np.concatenate([numbers[:0], *(numbers[r.columns] for r in reads if r.field == "sensordata")]))
    return {int(mj.sensor_needstage[i]) for i in range(mj.nsensor)
            if np.isin(np.arange(mj.sensor_adr[i], mj.sensor_adr[i] + mj.sensor_dim[i]), read).any()}


def as_slice(columns: Array) -> slice | Array:
    """Neighbouring columns as a slice, which needs no copy."""
    first = int(columns[0])
    return slice(first, first + len(columns)) if (np.diff(columns) == 1).all() else columns
