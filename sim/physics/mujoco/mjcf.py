"""A scene as MuJoCo sees it: the compiled model, where each signal is read, what each parameter sets. numpy, no torch.

    model = build(Scene(load_robot("franka")), "joint_pos_cmd", dt=0.002)
    model.mj                       # mujoco.MjModel
    model.reads["grip_pos_w"]      # where the signal lies in the simulator's arrays

Shared by the backends over MuJoCo's C engine and over MuJoCo Warp, whose arrays have the same names and layouts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter, RobotSpec, Source
from temporeal.sim.physics.mujoco import robot_files
from temporeal.sim.scene import Object, Scene

Array = np.ndarray
Fields = Mapping[str, Array]

LONGEST_STEP = 0.1  # s: nothing that touches is simulated with more
SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)  # joints of one degree of freedom: this and the next
# MuJoCo's own defaults, written out (the defaults of a robot's file are for the robot), but for friction: two geoms rub
# with the larger of theirs, so that a floor with the least leaves it to what touches it, whatever that is set to
SLIPPERY = 1e-5  # mjMINMU: MuJoCo takes no less
FLOOR: dict[str, Any] = {
    "friction": (SLIPPERY,) * 3, "contype": 1, "conaffinity": 1, "condim": 3, "priority": 0, "solmix": 1.0,
    "solref": (0.02, 1.0), "solimp": (0.9, 0.95, 0.001, 0.5, 2.0), "margin": 0.0, "gap": 0.0, "group": 0,
    "rgba": (0.5, 0.5, 0.5, 1.0)}  # MuJoCo's sign for: the material's
GROUND = "floor"  # material and texture: a checkerboard of 25 cm, dark enough that full light does not whiten it
CHECKS: dict[str, Any] = {"builtin": mujoco.mjtBuiltin.mjBUILTIN_CHECKER, "rgb1": (0.36, 0.40, 0.44),
                          "rgb2": (0.27, 0.31, 0.35), "width": 128, "height": 128}
# With MuJoCo's head light (ambient 0.1, diffuse 0.4) a white surface that faces both is just white
SUN: dict[str, Any] = {"diffuse": (0.5, 0.5, 0.5), "specular": (0.1, 0.1, 0.1)}


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
        parameters: by name; ``setters`` write their values [K, count] into model fields.
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


INTEGRATORS = {
    "euler": mujoco.mjtIntegrator.mjINT_EULER, "rk4": mujoco.mjtIntegrator.mjINT_RK4,
    "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT, "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST}


def build(scene: Scene, command: str | None, dt: float, integrator: str = "auto") -> Model:
    """The compiled model of ``scene`` with physics step ``dt`` [s], whose actuators take ``command`` of the robot.

    Without a command it is to be looked at only. ``integrator``: of :data:`INTEGRATORS`; ``auto``: as the MJCF says.

    A diverging state stays as it is instead of being reset behind the caller's back.
    """
    if not 0.0 < dt <= LONGEST_STEP:  # false for NaN
        other = "; backend planar takes longer ones" if scene.robot.kind == "planar" else ""
        raise ValueError(f"MuJoCo, with robot {scene.robot.name!r}: dt is {dt} s; it must lie in (0, {LONGEST_STEP:g}]"
                         f"{other}")
    if integrator not in ("auto", *INTEGRATORS):
        raise ValueError(f"integrator is {integrator!r}; it must be one of auto, {', '.join(INTEGRATORS)}")
    spec = assemble(scene)
    if command is not None:
        drive(spec, scene.robot, command)
    spec.option.timestep = dt
    if integrator != "auto":
        spec.option.integrator = INTEGRATORS[integrator]
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    for name, source in scene.sources.items():
        add_sensors(spec, name, source)
    mj = compiled(spec, scene)
    reads = {name: read_of(mj, scene, name, source) for name, source in scene.sources.items()}
    stages = stages_of(mj, reads.values())
    acc = int(mujoco.mjtStage.mjSTAGE_ACC)
    stage = max((int(s) for s in stages if s < acc), default=int(mujoco.mjtStage.mjSTAGE_NONE))
    groups = (group_of_robot(mj, scene), *(group_of_object(mj, o) for o in scene.objects))
    groups += links(mj, scene, groups)
    qpos, ctrl = home(mj, scene.robot)
    driven = actuators_of(mj, scene.robot, command) if command is not None else np.zeros(0, int)
    if command is not None and scene.robot.drives.get(command) in ("velocity", "effort"):  # the key is of places
        ctrl[driven] = 0.0
    return Model(scene, mj, reads, writes_of(mj, scene, reads), stage, acc in stages, driven, qpos, ctrl, groups,
                 parameters(mj, groups, scene.robot), integrator)


# ---------------------------------------------------------------- assembly


def assemble(scene: Scene) -> mujoco.MjSpec:
    """The robot's MJCF or URDF with the objects, a floor and a light added."""
    spec = robot_files.read(scene.robot)
    place(spec, scene)
    if scene.floor and not any(g.type == mujoco.mjtGeom.mjGEOM_PLANE for g in spec.geoms):
        spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], **FLOOR,
                                material=ground(spec))
    if not spec.lights:
        spec.worldbody.add_light(name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 4],
                                 dir=[-0.3, 0.2, -1], castshadow=False, **SUN)
    for thing in scene.objects:
        attach(spec, thing)
    for key in list(spec.keys):  # made for the robot alone: see `home`
        spec.delete(key)
    for body in spec.bodies:  # MuJoCo refuses another centre of mass for a free body that it compiled as simple
        if hasattr(body, "simple"):  # since MuJoCo 3.11; before, such a body has no parameter "com"
            body.simple = False
    return spec


def ground(spec: mujoco.MjSpec) -> str:
    """The name of the floor's material; one of that name that the robot's file brings is taken as it is."""
    if spec.material(GROUND) is None:
        if spec.texture(GROUND) is None:
            spec.add_texture(name=GROUND, type=mujoco.mjtTexture.mjTEXTURE_2D, **CHECKS)
        material = spec.add_material(name=GROUND, texrepeat=[4, 4], texuniform=True, specular=0.1, shininess=0.1)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = GROUND
    return GROUND


def place(spec: mujoco.MjSpec, scene: Scene) -> None:
    """Move the robot's bodies that are fixed to the world to the scene's base pose."""
    if (scene.base_pos, scene.base_quat) == ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)):
        return
    turn = np.array(scene.base_quat)
    for body in spec.worldbody.bodies:
        if any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in body.joints):
            continue
        pos, quat = np.empty(3), np.empty(4)
        mujoco.mju_rotVecQuat(pos, body.pos, turn)
        mujoco.mju_mulQuat(quat, turn, body.quat)
        body.pos, body.quat = pos + np.array(scene.base_pos), quat


def attach(spec: mujoco.MjSpec, thing: Object) -> None:
    """Add an object at its place."""
    child = mujoco.MjSpec.from_string(thing.mjcf)
    bodies = [body.name for body in child.worldbody.bodies]
    if bodies != ["root"]:
        raise ValueError(f"object {thing.name!r}: its MJCF's world body holds one body called 'root', not {bodies}")
    frame = spec.worldbody.add_frame(pos=list(thing.pos), quat=list(thing.quat))
    spec.attach(child, prefix=f"{thing.name}.", frame=frame)


def compiled(spec: mujoco.MjSpec, scene: Scene) -> mujoco.MjModel:
    """The compiled model; an error says which scene."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spec.compile()
    except ValueError as error:
        objects = ", ".join(o.name for o in scene.objects) or "none"
        raise ValueError(f"robot {scene.robot.name!r} with objects {objects}: MuJoCo refuses the model: {error}"
                         ) from error


def home(mj: mujoco.MjModel, robot: RobotSpec) -> tuple[Array, Array]:
    """Home qpos and ctrl: keyframe ``home`` of the robot's own model, by the names of joints and actuators.

    Without a keyframe of that name, home is as the model is drawn, as in :mod:`temporeal.robots.user_robots`; where it
    has others, a warning says so.
    """
    qpos, ctrl = mj.qpos0.copy(), np.zeros(mj.nu)
    alone = robot_files.compiled(robot)
    names = [alone.key(i).name for i in range(alone.nkey)]
    if "home" not in names:
        if names:
            warnings.warn(f"robot {robot.name!r}: no keyframe of {robot.model} is called 'home' (they are: "
                          f"{', '.join(repr(n) for n in names)}), so home is as the model is drawn; call the one that "
                          "is meant 'home'", stacklevel=2)
        return qpos, ctrl
    key = names.index("home")
    for i in range(alone.njnt):
        joint = alone.joint(i)
        there = mj.joint(joint.name or i)  # one without a name has its number: the robot's come first
        size = JOINT_SIZE[int(alone.jnt_type[i])]
        qpos[there.qposadr[0] : there.qposadr[0] + size] = alone.key_qpos[key][joint.qposadr[0] :][:size]
    for i in range(alone.nu):
        ctrl[mj.actuator(alone.actuator(i).name or i).id] = alone.key_ctrl[key][i]
    return qpos, ctrl


JOINT_SIZE = {0: 7, 1: 4, 2: 1, 3: 1}  # mjtJoint: free, ball, slide, hinge


def drive(spec: mujoco.MjSpec, robot: RobotSpec, command: str) -> None:
    """Make of the position servos that ``command`` sets what the robot's ``drives`` says.

    A velocity servo integrates its setpoint (MuJoCo's ``intvelocity``), within the control range of the position servo.
    """
    kind = robot.drives.get(command, "position")
    if kind in ("position", "tool"):
        return
    limits = robot.command(command)
    for name, low, high in zip(robot.actuators[command], limits.low, limits.high):
        actuator = spec.actuator(name)
        if kind == "velocity":
            actuator.dyntype = mujoco.mjtDyn.mjDYN_INTEGRATOR
            actuator.actlimited, actuator.actrange = True, actuator.ctrlrange
        else:
            actuator.set_to_motor()
        actuator.ctrllimited, actuator.ctrlrange = True, (low, high)


# ---------------------------------------------------------------- signals

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
    for i, element in enumerate(names):
        label = f"{SENSOR}{name}.{i}"
        if what == "joint_torque":
            spec.add_sensor(name=label, type=kinds.mjSENS_JOINTACTFRC, objtype=mujoco.mjtObj.mjOBJ_JOINT,
                            objname=element)
        elif what == "contact_force":
            spec.add_sensor(name=label, type=kinds.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_BODY, objname=element,
                            intprm=NET_FORCE)
        elif what == "ang_vel_b":
            spec.add_sensor(name=label, type=kinds.mjSENS_GYRO, objtype=mujoco.mjtObj.mjOBJ_SITE,
                            objname=site_at(spec, element))
        else:
            spec.add_sensor(name=label, type=getattr(kinds, f"mjSENS_{FRAME[what]}"), objtype=frame_type(spec, element),
                            objname=element)


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


def as_slice(columns: Array) -> slice | Array:
    """Neighbouring columns as a slice, which needs no copy."""
    first = int(columns[0])
    return slice(first, first + len(columns)) if (np.diff(columns) == 1).all() else columns


def actuators_of(mj: mujoco.MjModel, robot: RobotSpec, command: str) -> Array:
    """Columns of ``ctrl`` that the components of ``command`` set, or the servo that it is for."""
    spec = robot.command(command)
    names = robot.actuators.get(command, ())
    if len(names) != spec.size and robot.drives.get(command) != "tool":
        raise ValueError(f"robot {robot.name!r}: command {command!r} has {spec.size} components, its actuators are "
                         f"{', '.join(names) or 'not named'}")
    return np.array([element(mj, "actuator", n).id for n in names])


# ---------------------------------------------------------------- parameters


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
        body = carrier(mj, source.names[0]) if source.what == "pos" else 0
        if body in groups[0].bodies and body not in found and f"{source.names[0]}." not in taken:
            found[body] = Group(f"{source.names[0]}.", nothing, nothing, nothing, nothing, body)
    return tuple(found.values())


def carrier(mj: mujoco.MjModel, name: str) -> int:
    """The body that is called ``name`` or has the site ``name``."""
    site = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, name)
    return int(mj.site_bodyid[site]) if site >= 0 else int(element(mj, "body", name).id)


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
    joints = robot_files.levers(mj, actuator)
    kind = mujoco.mjtTrn(mj.actuator_trntype[actuator])
    plain = kind != mujoco.mjtTrn.mjTRN_TENDON or all(lever == 1.0 for lever in joints.values())
    return bool(joints) and plain and bool(np.isin(mj.jnt_bodyid[list(joints)], bodies).all())


@dataclass(frozen=True)
class Quantity:
    """A kind of parameter: nominal values of a group (flat), and how values [K, count] are written for worlds ids [K].

    ``fields``: the model fields that it writes.
    """

    unit: str
    fields: tuple[str, ...]
    nominal: Callable[[mujoco.MjModel, Group], Array]
    write: Callable[[mujoco.MjModel, Group, Fields, Array, Mapping[str, Array]], None]
    positive: bool = False


def _rows(ids: Array) -> Array:
    return ids[:, None]


def _write_mass(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    """``inertia`` is meant at the nominal mass: a heavier body of the same shape has more of it."""
    mass, inertia = values["mass"], values["inertia"].reshape(len(ids), -1, 3)
    share = mass / np.where(mj.body_mass[g.bodies] > 0, mj.body_mass[g.bodies], 1.0)
    fields["body_mass"][_rows(ids), g.bodies] = mass
    fields["body_inertia"][_rows(ids), g.bodies] = inertia * share[:, :, None]


def _write_com(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["body_ipos"][_rows(ids), g.bodies] = values["com"].reshape(len(ids), -1, 3)


def _write_friction(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["geom_friction"][_rows(ids), g.geoms, 0] = values["friction"]


def _write_servo(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    """MuJoCo's position servo: force = kp ctrl - kp length - kd velocity."""
    fields["actuator_gainprm"][_rows(ids), g.actuators, 0] = values["kp"]
    fields["actuator_biasprm"][_rows(ids), g.actuators, 1] = -values["kp"]
    fields["actuator_biasprm"][_rows(ids), g.actuators, 2] = -values["kd"]


def _write_strength(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["actuator_forcerange"][_rows(ids), g.actuators, 0] = -values["strength"]
    fields["actuator_forcerange"][_rows(ids), g.actuators, 1] = values["strength"]


def _write_delay(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    # a hair less: a delay of whole steps, which float32 or the sum of the time may round, is not one step more
    fields["actuator_delay"][_rows(ids), g.actuators] = np.maximum(
        values["command_delay"] - 1e-4 * mj.opt.timestep, 0.0)


def _write_gravity(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
    fields["opt.gravity"][ids] = values["gravity_w"]


def _of_dofs(field: str, unit: str) -> Quantity:
    def write(mj: mujoco.MjModel, g: Group, fields: Fields, ids: Array, values: Mapping[str, Array]) -> None:
        fields[field][_rows(ids), g.dofs] = values[field.removeprefix("dof_")]

    return Quantity(unit, (field,), lambda mj, g: getattr(mj, field)[g.dofs], write)


def _servos(mj: mujoco.MjModel, g: Group) -> bool:
    fixed = mj.actuator_gaintype[g.actuators] == mujoco.mjtGain.mjGAIN_FIXED
    affine = mj.actuator_biastype[g.actuators] == mujoco.mjtBias.mjBIAS_AFFINE
    return bool(len(g.actuators) and (fixed & affine).all())


def _limited(mj: mujoco.MjModel, g: Group) -> bool:
    return bool(mj.actuator_forcelimited[g.actuators].all())


def _buffered(mj: mujoco.MjModel, g: Group) -> bool:
    return hasattr(mj, "actuator_history") and bool((mj.actuator_history[g.actuators, 0] > 0).all())  # MuJoCo 3.5


def _movable(mj: mujoco.MjModel, g: Group) -> bool:
    return not mj.body_simple[g.bodies].any()


NOTHING = np.zeros(0)
QUANTITIES: dict[str, Quantity] = {
    "mass": Quantity("kg", ("body_mass", "body_inertia"), lambda mj, g: mj.body_mass[g.bodies], _write_mass, True),
    "inertia": Quantity("kg m^2", ("body_mass", "body_inertia"), lambda mj, g: mj.body_inertia[g.bodies].ravel(),
                        _write_mass, True),
    "com": Quantity("m", ("body_ipos",), lambda mj, g: mj.body_ipos[g.bodies].ravel() if _movable(mj, g) else NOTHING,
                    _write_com),
    "friction": Quantity("1", ("geom_friction",), lambda mj, g: mj.geom_friction[g.geoms, 0], _write_friction),
    "damping": _of_dofs("dof_damping", "N m s/rad"),
    "armature": _of_dofs("dof_armature", "kg m^2"),
    "frictionloss": _of_dofs("dof_frictionloss", "N m"),
    "kp": Quantity("N m/rad", ("actuator_gainprm", "actuator_biasprm"),
                   lambda mj, g: mj.actuator_gainprm[g.actuators, 0] if _servos(mj, g) else NOTHING, _write_servo),
    "kd": Quantity("N m s/rad", ("actuator_gainprm", "actuator_biasprm"),
                   lambda mj, g: -mj.actuator_biasprm[g.actuators, 2] if _servos(mj, g) else NOTHING, _write_servo),
    "strength": Quantity(
        "N m", ("actuator_forcerange",),
        lambda mj, g: mj.actuator_forcerange[g.actuators, 1] if _limited(mj, g) else NOTHING,
        _write_strength, True),
    "command_delay": Quantity(
        "s", ("actuator_delay",),
        lambda mj, g: mj.actuator_delay[g.actuators][:1] if _buffered(mj, g) else NOTHING,
        _write_delay),
    "gravity_w": Quantity("m/s^2", ("opt.gravity",), lambda mj, g: mj.opt.gravity if not g.prefix else NOTHING,
                          _write_gravity),
}
WRENCH = {"force_w": "N", "torque_w": "N m"}  # on the root of a group, at its centre of mass, world frame
SIGNED = ("com", "gravity_w", *WRENCH)  # all others are not negative


def parameters(mj: mujoco.MjModel, groups: Iterable[Group], robot: RobotSpec) -> dict[str, Parameter]:
    """Everything that can be set per world, with nominal values; ranges of sources where the robot's spec has them."""
    found: dict[str, Parameter] = {}
    for g in groups:
        for name, quantity in QUANTITIES.items():
            values = tuple(float(x) for x in quantity.nominal(mj, g))
            if values:
                found[g.prefix + name] = published(robot, g, name, Parameter(values, values, values, quantity.unit,
                                                                            "the model's own value"))
                if name == "command_delay":
                    found[g.prefix + name] = replace(found[g.prefix + name], most=longest_delay(mj))
        if g.root is not None:
            zero = (0.0,) * 3
            found |= {g.prefix + n: Parameter(zero, zero, zero, unit, "a disturbance") for n, unit in WRENCH.items()}
    return found


def published(robot: RobotSpec, g: Group, name: str, plain: Parameter) -> Parameter:
    """The robot's own entry, if it has one of the same length and nominal values."""
    given = robot.parameters.get(name) if not g.prefix else None
    if given is None or len(given.nominal) != len(plain.nominal):
        return plain
    if not np.allclose(given.nominal, plain.nominal, rtol=1e-3, atol=1e-9):
        raise ValueError(f"robot {robot.name!r}: parameter {name!r} is {given.nominal} in its spec and "
                         f"{plain.nominal} in its model")
    return given


def check_values(model: Model, name: str, values: Array, count: int) -> Array:
    """Values [K, count] of one parameter, checked."""
    if name not in model.parameters:
        raise UnknownName(f"set_params: unknown parameter {name!r}; known: {', '.join(model.parameters)}")
    size = len(model.parameters[name].nominal)
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 1 and size == 1:
        values = values[:, None]
    if values.shape != (count, size):
        raise ValueError(f"set_params: {name} has shape {values.shape}, expected {(count, size)}")
    kind = name.rpartition(".")[2]
    if not np.isfinite(values).all():
        raise ValueError(f"set_params: {name} has a non-finite value")
    if kind not in SIGNED and len(values) and values.min() < 0:
        raise ValueError(f"set_params: {name} must be >= 0, got {values.min():g}")
    if kind in QUANTITIES and QUANTITIES[kind].positive:
        zero = (values == 0).any(0) & (np.array(model.parameters[name].nominal) > 0)
        if zero.any():
            raise ValueError(f"set_params: {name} must be > 0, got 0")
    if kind in ("mass", "inertia"):
        check_matter(name, values, np.array(model.parameters[name].nominal))
    nominal = np.array(model.parameters[name].nominal)
    values = np.where(values.astype(np.float32) == nominal.astype(np.float32), nominal, values)  # float32 came in
    most = model.parameters[name].most
    if len(values) and values.max() > most + 1e-9:
        raise ValueError(f"set_params: {name} is at most {most:g} s, the history that the model keeps; got "
                         f"{values.max():g}")
    return values


MOST = 1e6  # kg, kg m^2: what is heavier sinks into what carries it, and no state of it is ever seen to be bad
ROUNDING = 1e-5  # of a moment: what float32 and sums of it may be off


def check_matter(name: str, values: Array, nominal: Array) -> None:
    """Whether bodies of matter have the masses [K, B] or principal moments [K, 3 B] ``values``."""
    unit = QUANTITIES[name.rpartition(".")[2]].unit
    if (values > np.maximum(MOST, nominal)).any():
        raise ValueError(f"set_params: {name} is at most {MOST:g} {unit}, got {values.max():g}")
    if name.rpartition(".")[2] == "inertia":
        moments = np.sort(values.reshape(len(values), len(nominal) // 3, 3), -1)
        plain = np.sort(nominal.reshape(-1, 3), -1)
        slack = (1 + ROUNDING) * moments[..., :2].sum(-1) - moments[..., 2]
        wrong = (slack < 0) & (plain[:, :2].sum(-1) >= (1 - ROUNDING) * plain[:, 2])
        if wrong.any():
            told = ", ".join(f"{x:g}" for x in moments[tuple(np.argwhere(wrong)[0])])
            raise ValueError(f"set_params: {name} has the principal moments {told} {unit}, which no body of matter "
                             "has: each is at most the sum of the other two")


def longest_delay(mj: mujoco.MjModel) -> float:
    """Delay [s] that the histories of all actuators can hold."""
    return float(mj.actuator_history[:, 0].min() * mj.opt.timestep)


def write_params(
    model: Model, fields: Callable[[str], Array], ids: Array, values: Mapping[str, Array], changed: Iterable[str]
) -> set[str]:
    """Write the parameters ``changed`` of the worlds ``ids`` [K]; the names of the model fields written.

    Args:
        fields: gives the per-world array [N, ...] of a model field.
        values: [K, count] of every parameter.
    """
    written: set[str] = set()
    wanted = set(changed)
    for g in model.groups:
        mine = {n.removeprefix(g.prefix): v for n, v in values.items() if n.startswith(g.prefix)}
        writers = {}
        for name, quantity in QUANTITIES.items():
            if g.prefix + name in wanted:
                writers[quantity.write] = quantity
        for write, quantity in writers.items():
            write(model.mj, g, {f: fields(f) for f in quantity.fields}, ids, mine)
            written.update(quantity.fields)
    return written


# ---------------------------------------------------------------- state of a reset


def reset_rows(model: Model, state: Mapping[str, Array], count: int) -> tuple[Array, Array]:
    """qpos [K, nq] and qvel [K, nv] of ``state``: signals [K, ...] by name, home for what is left out."""
    unknown = [name for name in state if name not in model.writes]
    if unknown:
        raise UnknownName(f"reset: cannot set {', '.join(unknown)}; what can be set: {', '.join(model.writes)}")
    rows = {"qpos": np.tile(model.home_qpos, (count, 1)), "qvel": np.zeros((count, model.mj.nv))}
    for name, value in state.items():
        read, spec = model.writes[name], model.scene.signals[name]
        if value.shape != (count, *spec.shape):
            raise ValueError(f"reset: {name} has shape {value.shape}, expected {(count, *spec.shape)}")
        if not np.isfinite(value).all():
            raise ValueError(f"reset: {name} has a non-finite value")
        rows[read.field][:, read.columns] = unit_quaternion(name, value) if spec.unit == "wxyz" else value.reshape(
            count, spec.size)
    for read in (model.writes[name] for name in state):
        if read.attitude is not None:  # after the attitudes are in their places
            vector = rows["qvel"][:, read.columns]
            rows["qvel"][:, read.columns] = into_body(rows["qpos"][:, read.attitude], vector)
    return rows["qpos"], rows["qvel"]


def into_body(quat: Array, vector: Array) -> Array:
    """Vectors [K, 3] of the world in the frames of bodies with attitudes ``quat`` [K, 4] (wxyz, body to world)."""
    w, turn = quat[:, :1], -quat[:, 1:]
    twice = 2.0 * np.cross(turn, vector)
    out: Array = vector + w * twice + np.cross(turn, twice)
    return out


def unit_quaternion(name: str, value: Array) -> Array:
    """``value`` [K, 4] with length 1."""
    norm = np.linalg.norm(value, axis=-1, keepdims=True)
    if len(value) and norm.min() < 1e-3:
        raise ValueError(f"reset: {name} must have a norm near 1, got {norm.min():g}")
    return value / norm


def holding_ctrl(model: Model, qpos: Array) -> Array:
    """Controls [K, nu] under which position servos rest at ``qpos`` [K, nq]; home for the other actuators."""
    mj = model.mj
    out = np.tile(model.home_ctrl, (len(qpos), 1))
    for i in np.flatnonzero(mj.actuator_dyntype == mujoco.mjtDyn.mjDYN_NONE):
        length = robot_files.lengths(mj, i, qpos)
        if length is not None:
            out[:, i] = length
    limited = mj.actuator_ctrllimited.astype(bool)
    low, high = mj.actuator_ctrlrange.T
    out[:, limited] = np.clip(out[:, limited], low[limited], high[limited])
    return out


def holding_act(model: Model, qpos: Array) -> Array:
    """Activations [K, na] under which servos that integrate their setpoint rest at ``qpos`` [K, nq]; 0 for others."""
    mj = model.mj
    out = np.zeros((len(qpos), mj.na))
    for i in np.flatnonzero(mj.actuator_dyntype == mujoco.mjtDyn.mjDYN_INTEGRATOR):
        length = robot_files.lengths(mj, i, qpos)
        if length is not None:
            low, high = mj.actuator_actrange[i] if mj.actuator_actlimited[i] else (-np.inf, np.inf)
            out[:, mj.actuator_actadr[i]] = np.clip(length, low, high)
    return out


def fill_history(model: Model, history: Array, worlds: Array, ctrl: Array) -> None:
    """As if ``ctrl`` [K, nu] had been given for ever: the values in the delay buffers of the actuators.

    A buffer is [free number, cursor, times[n], values[n]] (MuJoCo: mj_initCtrlHistory).
    """
    mj = model.mj
    for i in np.flatnonzero(mj.actuator_history[:, 0] > 0):
        count, first = int(mj.actuator_history[i, 0]), int(mj.actuator_historyadr[i]) + 2
        history[worlds, first + count : first + 2 * count] = ctrl[:, i : i + 1]
