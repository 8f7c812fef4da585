"""A robot's model file as MuJoCo reads it, completed with what its spec says beyond the file.

    spec = read(load_robot("models/arm.urdf"))      # mujoco.MjSpec; compile() gives the model

Users' files (:mod:`robots.user`) may leave elements without names, have no actuators (a URDF never has) and no home.
Files of this project have all that and pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np

from robots.spec import RobotSpec

NAMED = ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "BODY")
TARGETS = {int(getattr(mujoco.mjtTrn, f"mjTRN_{name}")) for name in NAMED}
SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)  # joints of one degree of freedom: this and the next


def read(robot: RobotSpec) -> mujoco.MjSpec:
    """The robot's model with all names, servos and the key ``home`` that its spec counts on.

    Raises:
        FileNotFoundError: the model file does not exist.
        ValueError: MuJoCo refuses the file, or an actuator of the spec is neither in the model nor a joint's servo.
    """
    if robot.model is None or not Path(robot.model).exists():
        raise FileNotFoundError(f"robot {robot.name!r}: its model file {robot.model} does not exist")
    try:
        spec = mujoco.MjSpec.from_file(str(robot.model))
    except ValueError as error:
        raise ValueError(f"robot {robot.name!r}: MuJoCo refuses {robot.model}: {error}") from error
    if Path(robot.model).suffix.lower() == ".urdf":
        spec.compiler.fusestatic = False  # keep links behind fixed joints: tools and sensors have names there
    name_elements(spec)
    add_servos(spec, robot)
    add_home(spec, robot)
    return spec


def compiled(robot: RobotSpec) -> mujoco.MjModel:
    """The robot alone, compiled."""
    return compile_spec(read(robot), robot)


def compile_spec(spec: mujoco.MjSpec, robot: RobotSpec) -> mujoco.MjModel:
    """The compiled model; an error says which file."""
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot {robot.name!r}: MuJoCo refuses {robot.model}: {error}") from error


# ---------------------------------------------------------------- names


def name_elements(spec: mujoco.MjSpec) -> None:
    """Names for joints and actuators without one, by the rule of :mod:`robots.model_files`."""
    for index, joint in enumerate(joints_in_order(spec.worldbody)):
        joint.name = joint.name or f"joint{index}"
    taken = {actuator.name for actuator in spec.actuators}
    for index, actuator in enumerate(spec.actuators):
        if not actuator.name:
            target = actuator.target if int(actuator.trntype) in TARGETS else ""
            actuator.name = target if target and target not in taken else f"actuator{index}"
            taken.add(actuator.name)


def joints_in_order(body: mujoco.MjsBody) -> Iterator[mujoco.MjsJoint]:
    """Joints of ``body``, then of the bodies below: the order of the compiled model."""
    yield from body.joints
    for child in body.bodies:
        yield from joints_in_order(child)


# ---------------------------------------------------------------- servos and home


def add_servos(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """A position servo for each actuator that the spec names and the model lacks: on the joint of this name."""
    there = {actuator.name for actuator in spec.actuators}
    wanted = dict.fromkeys(name for names in robot.actuators.values() for name in names)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return
    joints = {joint.name for joint in joints_in_order(spec.worldbody)}
    gains = [robot.parameters[key].nominal for key in ("kp", "kd", "strength") if key in robot.parameters]
    for name, kp, kd, strength in zip(missing, *servo_gains(robot, missing, gains, joints)):
        limits = servo_range(robot, name)
        servo = spec.add_actuator(
            name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, ctrllimited=True, ctrlrange=limits,
            forcelimited=True, forcerange=(-strength, strength))
        servo.set_to_position(kp=kp, kv=kd)
    # a servo's damping is stiff: only implicit integration takes it at usual time steps
    if int(spec.option.integrator) == int(mujoco.mjtIntegrator.mjINT_EULER):
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def servo_gains(
    robot: RobotSpec, missing: list[str], gains: list[tuple[float, ...]], joints: set[str]
) -> list[tuple[float, ...]]:
    """kp, kd and strength of the servos ``missing``, checked."""
    unknown = [name for name in missing if name not in joints]
    if unknown:
        raise ValueError(f"robot {robot.name!r}: {robot.model} has neither an actuator nor a joint {unknown[0]!r}")
    if [len(values) for values in gains] != [len(missing)] * 3:
        raise ValueError(f"robot {robot.name!r}: the model lacks actuators for {', '.join(missing)}: its spec must "
                         "give kp, kd and strength of each")
    return gains


def servo_range(robot: RobotSpec, name: str) -> tuple[float, float]:
    """Limits of the setpoint of the servo ``name``: the widest of the commands that set it."""
    places = [(robot.commands[key], names.index(name)) for key, names in robot.actuators.items() if name in names]
    return min(spec.low[i] for spec, i in places), max(spec.high[i] for spec, i in places)


def add_home(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """The key ``home``, where the model has none or another: joints at the spec's home, servos holding them there."""
    if "joint_pos" not in robot.home or "joint_pos" not in robot.sources:
        return
    model = compile_spec(spec, robot)
    key = next((k for k in spec.keys if k.name == "home"), None)
    qpos = model.qpos0.copy() if key is None else model.key("home").qpos.copy()
    before = qpos.copy()
    addresses = [model.joint(name).qposadr[0] for name in robot.sources["joint_pos"].names]
    qpos[addresses] = robot.home["joint_pos"]
    if key is not None and np.allclose(qpos, before, rtol=0, atol=1e-9):
        return
    if key is not None:
        spec.delete(key)
    spec.add_key(name="home", qpos=qpos, ctrl=holding(model, qpos))


def holding(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Controls [nu] at which position servos on joints rest at ``qpos`` [nq]; zero for other actuators."""
    ctrl = np.zeros(model.nu)
    for i in range(model.nu):
        joint = model.actuator_trnid[i, 0]
        on_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT and model.jnt_type[joint] >= SLIDE
        if on_joint and model.actuator_biasprm[i, 1] < 0:
            ctrl[i] = model.actuator_gear[i, 0] * qpos[model.jnt_qposadr[joint]]
    limited = model.actuator_ctrllimited.astype(bool)
    ctrl[limited] = np.clip(ctrl[limited], *model.actuator_ctrlrange[limited].T)
    return ctrl
