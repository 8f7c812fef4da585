"""A scene as MuJoCo sees it: the robot's model file, objects, floor, light and sensors, compiled. numpy, no torch.

    model = build(Scene(load_robot("franka")), "joint_pos_cmd", dt=0.002)
    model.mj                       # mujoco.MjModel
    model.reads["grip_pos_w"]      # where the signal lies in the simulator's arrays

Shared by the backends over MuJoCo's C engine and over MuJoCo Warp, whose arrays have the same names and layouts.
"""

from __future__ import annotations

import warnings
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.mujoco import robot_files
from temporeal.sim.physics.mujoco.groups import group_of_object, group_of_robot, links
from temporeal.sim.physics.mujoco.model import JOINT_SIZE, Array, Model, element
from temporeal.sim.physics.mujoco.parameters import parameters
from temporeal.sim.physics.mujoco.signals import add_sensors, read_of, stages_of, writes_of
from temporeal.sim.scene import Object, Scene

LONGEST_STEP = 0.1  # s: contacts cannot be simulated with longer ones
# MuJoCo's own defaults, written out because the defaults of a robot's file are for the robot. Except friction: of two
# geoms the larger acts, so a floor with the least leaves it to what touches it
SLIPPERY = 1e-5  # mjMINMU: MuJoCo takes no less
FLOOR: dict[str, Any] = {
    "friction": (SLIPPERY,) * 3, "contype": 1, "conaffinity": 1, "condim": 3, "priority": 0, "solmix": 1.0,
    "solref": (0.02, 1.0), "solimp": (0.9, 0.95, 0.001, 0.5, 2.0), "margin": 0.0, "gap": 0.0, "group": 0,
    "rgba": (0.5, 0.5, 0.5, 1.0)}  # MuJoCo's code for: as the material
SEEN_ONLY = 1 << 30  # contype of what nothing touches: a bit that no shape asks for
GROUND = "floor"  # material and texture: a checkerboard of 25 cm, dark enough that full light does not whiten it
CHECKS: dict[str, Any] = {"builtin": mujoco.mjtBuiltin.mjBUILTIN_CHECKER, "rgb1": (0.36, 0.40, 0.44),
                          "rgb2": (0.27, 0.31, 0.35), "width": 128, "height": 128}
# With MuJoCo's head light (ambient 0.1, diffuse 0.4) a white surface that faces both is just white
SUN: dict[str, Any] = {"diffuse": (0.5, 0.5, 0.5), "specular": (0.1, 0.1, 0.1)}
INTEGRATORS = {
    "euler": mujoco.mjtIntegrator.mjINT_EULER, "rk4": mujoco.mjtIntegrator.mjINT_RK4,
    "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT, "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST}


def build(scene: Scene, command: str | None, dt: float, integrator: str = "auto") -> Model:
    """The compiled model of ``scene`` with physics step ``dt`` [s], whose actuators take ``command`` of the robot.

    Without a command the model is for rendering only. ``integrator``: of :data:`INTEGRATORS`; ``auto``: that of the
    MJCF. MuJoCo's automatic reset of diverging states is off.
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
    if command is not None and scene.robot.drives.get(command) in ("velocity", "effort"):  # the key holds positions
        ctrl[driven] = 0.0
    return Model(scene, mj, reads, writes_of(mj, scene, reads), stage, acc in stages, driven, qpos, ctrl, groups,
                 parameters(mj, groups, scene.robot), integrator)


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
    if spec.compiler.discardvisual:  # a URDF's looks are dropped; those of objects stay
        for geom in child.geoms:
            geom.contype = geom.contype or (0 if geom.conaffinity else SEEN_ONLY)
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


def drive(spec: mujoco.MjSpec, robot: RobotSpec, command: str) -> None:
    """Turn the position servos that ``command`` sets into the kind of drive that the robot declares for it.

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


def actuators_of(mj: mujoco.MjModel, robot: RobotSpec, command: str) -> Array:
    """Columns of ``ctrl`` that the components of ``command`` set, or the servo that it is for."""
    spec = robot.command(command)
    names = robot.actuators.get(command, ())
    if len(names) != spec.size and robot.drives.get(command) != "tool":
        raise ValueError(f"robot {robot.name!r}: command {command!r} has {spec.size} components, its actuators are "
                         f"{', '.join(names) or 'not named'}")
    return np.array([element(mj, "actuator", n).id for n in names])
