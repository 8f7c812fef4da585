"""A robot's model file as MuJoCo reads it, completed from the robot's spec.

    spec = read(load_robot("models/arm.urdf"))      # mujoco.MjSpec; compile() gives the model

Users' files (:mod:`temporeal.robots.user_robots`) may leave elements unnamed and may lack actuators (a URDF has none)
and a home. Files of this project pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np

from temporeal.robots.model_files import Content, fresh, read_model
from temporeal.robots.spec import RobotSpec, shipped
from temporeal.sim.physics.mujoco.mesh_files import parsed

NAMED = ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "BODY")
TARGETS = {int(getattr(mujoco.mjtTrn, f"mjTRN_{name}")) for name in NAMED}
FRAMES = ("pos", "quat", "lin_vel", "ang_vel", "ang_vel_b")  # sources that are a body's or a site's
HIDDEN = 5  # a group that is not drawn
SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)  # joints of one degree of freedom: this and the next


def read(robot: RobotSpec) -> mujoco.MjSpec:
    """The robot's model with the names, servos, changes and the key ``home`` that its spec refers to.

    Raises:
        FileNotFoundError: the model file does not exist.
        ValueError: MuJoCo refuses the file, or an actuator of the spec is neither in the model nor a joint's servo.
    """
    if robot.model is None or not Path(robot.model).exists():
        raise FileNotFoundError(f"robot {robot.name!r}: its model file {robot.model} does not exist")
    try:
        spec = parsed(robot, Path(robot.model))
    except ValueError as error:
        raise ValueError(f"robot {robot.name!r}: MuJoCo refuses {robot.model}: {error}") from error
    if Path(robot.model).suffix.lower() == ".urdf":
        spec.compiler.fusestatic = False  # keep links behind fixed joints: tools and sensors have names there
        name_root(spec, robot)
    name_elements(spec)
    add_servos(spec, robot)
    change(spec, robot)
    add_home(spec, robot)
    return spec


def compiled(robot: RobotSpec) -> mujoco.MjModel:
    """The robot alone, compiled; a user's file is compared with what was read from it without MuJoCo.

    Raises:
        ValueError: as :func:`read`, or spec and model disagree on a name or a range.
    """
    model = compile_spec(read(robot), robot)
    if robot.name not in shipped() and robot.model is not None:
        compare(read_model(robot.model), model)
    return model


def compile_spec(spec: mujoco.MjSpec, robot: RobotSpec) -> mujoco.MjModel:
    """The compiled model; an error says which file."""
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot {robot.name!r}: MuJoCo refuses {robot.model}: {error}") from error


# ---------------------------------------------------------------- spec against model


def compare(content: Content, model: mujoco.MjModel) -> None:
    """Check that names, kinds and ranges read without MuJoCo are those of the model."""
    joints = [model.joint(i).name for i in range(model.njnt)]
    mine = [joint.name for joint in content.joints]
    if joints != mine:
        raise content.fail("joints", f"read as {', '.join(mine)}; MuJoCo compiles {', '.join(joints)}{ADVICE}")
    for joint in content.joints:
        index = model.joint(joint.name).id
        kind = ("free", "ball", "slide", "hinge")[model.jnt_type[index]]
        limits = tuple(model.jnt_range[index]) if model.jnt_limited[index] else (-np.inf, np.inf)
        if kind != joint.kind or not np.allclose(limits, (joint.low, joint.high), rtol=1e-9, atol=1e-9):
            raise content.fail(f'<joint name="{joint.name}">', f"read as {joint.kind} from {joint.low:g} to "
                               f"{joint.high:g}; MuJoCo compiles {kind} from {limits[0]:g} to {limits[1]:g}{ADVICE}")
    names = [model.actuator(i).name for i in range(min(len(content.actuators), model.nu))]
    if names != [actuator.name for actuator in content.actuators]:
        raise content.fail("actuators", f"read as {', '.join(a.name for a in content.actuators)}; MuJoCo compiles "
                           f"{', '.join(names)}{ADVICE}")
    for actuator in content.actuators:
        theirs = model.actuator(actuator.name)
        limits = theirs.ctrlrange if np.all(theirs.ctrllimited) else (-np.inf, np.inf)
        if np.shape(limits) != (2,) or not np.allclose(limits, (actuator.low, actuator.high), rtol=1e-9, atol=1e-9):
            raise content.fail(f'<{actuator.tag} name="{actuator.name}">', f"its controls are read as {actuator.low:g} "
                               f"to {actuator.high:g}; MuJoCo compiles {np.array(limits).tolist()}{ADVICE}")


ADVICE = ": save the model once as MuJoCo sees it (mujoco.MjSpec.from_file, to_xml) and use the result"


# ---------------------------------------------------------------- names


def name_elements(spec: mujoco.MjSpec) -> None:
    """Names for elements without one, by the rules of :mod:`temporeal.robots.model_files`."""
    joints, bodies = list(joints_in_order(spec.worldbody)), {body.name for body in spec.bodies}
    taken = {joint.name for joint in joints}
    for index, joint in enumerate(joints):
        joint.name = joint.name or fresh("joint", index, taken)
        taken.add(joint.name)
        if joint.type == mujoco.mjtJoint.mjJNT_FREE and not joint.parent.name:
            joint.parent.name = "base" if "base" not in bodies else fresh("base", 1, bodies)
            bodies.add(joint.parent.name)
    taken = {actuator.name for actuator in spec.actuators}
    for index, actuator in enumerate(spec.actuators):
        if not actuator.name:
            target = actuator.target if int(actuator.trntype) in TARGETS else ""
            actuator.name = target if target and target not in taken else fresh("actuator", index, taken)
            taken.add(actuator.name)


def joints_in_order(body: mujoco.MjsBody) -> Iterator[mujoco.MjsJoint]:
    """Joints of ``body``, then of the bodies below: the order of the compiled model."""
    yield from body.joints
    for child in body.bodies:
        yield from joints_in_order(child)


def name_root(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """A site for a URDF's root link where a signal reads it: MuJoCo makes that link part of the world."""
    read = {source.names[0] for source in robot.sources.values() if source.what in FRAMES}
    for name in sorted(read):
        if spec.body(name) is None and spec.site(name) is None:
            spec.worldbody.add_site(name=name, group=HIDDEN)


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


def change(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Apply the changes of joints, delays and contacts in the robot's YAML."""
    for key, values in robot.changes.joints.items():
        for name, value in values.items():
            setattr(spec.joint(name), key, [value, 0.0, 0.0] if key == "damping" else value)
    for name, steps in robot.changes.history.items():
        actuator = spec.actuator(name)
        actuator.nsample = max(actuator.nsample, steps)
    for pair in robot.changes.exclude:
        first, second = (name if spec.body(name) is not None else root_link(robot, name) for name in pair)
        spec.add_exclude(bodyname1=first, bodyname2=second)


def root_link(robot: RobotSpec, name: str) -> str:
    """MuJoCo makes a URDF's root link part of the world."""
    if Path(str(robot.model)).suffix.lower() == ".urdf":
        return "world"
    raise ValueError(f"robot {robot.name!r}: exclude: {robot.model} has no body {name!r}")


def add_home(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """The key ``home``, where the model has none or another: joints at the spec's home, servos holding them there."""
    if "joint_pos" not in robot.home or "joint_pos" not in robot.sources:
        return
    model = compile_spec(spec, robot)
    if model.nu != len(spec.actuators):
        raise ValueError(f"robot {robot.name!r}: {robot.model}: {len(spec.actuators)} actuators take {model.nu} "
                         "controls; each must take one: <pid> and <orientation> take several, <position> is a servo")
    key = next((k for k in spec.keys if k.name == "home"), None)
    qpos = model.qpos0.copy() if key is None else model.key("home").qpos.copy()
    before = qpos.copy()
    for signal in ("finger_pos", "joint_pos"):
        if signal in robot.home:
            qpos[[model.joint(name).qposadr[0] for name in robot.sources[signal].names]] = robot.home[signal]
    follow(model, qpos)
    if key is not None and np.allclose(qpos, before, rtol=0, atol=1e-9):
        return
    if key is not None:
        spec.delete(key)
    spec.add_key(name="home", qpos=qpos, ctrl=holding(model, qpos))


def follow(model: mujoco.MjModel, qpos: np.ndarray) -> None:
    """Put joints that an equality ties to another where that one puts them, chains included; in place."""
    active = (model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & model.eq_active0.astype(bool)
    for _ in range(int(active.sum())):
        for i in np.flatnonzero(active)[::-1]:  # of several for one joint the first counts
            mine, leader = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
            way = qpos[model.jnt_qposadr[leader]] - model.qpos0[model.jnt_qposadr[leader]] if leader >= 0 else 0.0
            at = model.jnt_qposadr[mine]
            qpos[at] = model.qpos0[at] + np.polynomial.polynomial.polyval(way, model.eq_data[i, :5])


def levers(model: mujoco.MjModel, actuator: int) -> dict[int, float]:
    """Joint -> lever of the actuator on it; empty unless it is on a joint or on a fixed tendon."""
    kind, target = mujoco.mjtTrn(model.actuator_trntype[actuator]), int(model.actuator_trnid[actuator, 0])
    gear = float(model.actuator_gear[actuator, 0])
    if kind in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT):
        return {target: gear}
    if kind != mujoco.mjtTrn.mjTRN_TENDON:
        return {}
    wraps = range(model.tendon_adr[target], model.tendon_adr[target] + model.tendon_num[target])
    if any(mujoco.mjtWrap(model.wrap_type[w]) != mujoco.mjtWrap.mjWRAP_JOINT for w in wraps):
        return {}
    return {int(model.wrap_objid[w]): gear * float(model.wrap_prm[w]) for w in wraps}


def lengths(model: mujoco.MjModel, actuator: int, qpos: np.ndarray) -> np.ndarray | None:
    """What a position servo on hinges or slides controls, [...] at ``qpos`` [..., nq]; None for other actuators."""
    found = levers(model, actuator)
    affine = mujoco.mjtBias(model.actuator_biastype[actuator]) == mujoco.mjtBias.mjBIAS_AFFINE
    if not (found and affine and model.actuator_biasprm[actuator, 1] < 0
            and all(model.jnt_type[joint] >= SLIDE for joint in found)):
        return None
    return np.asarray(sum(lever * qpos[..., model.jnt_qposadr[joint]] for joint, lever in found.items()))


def holding(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Controls [nu] at which position servos rest at ``qpos`` [nq]; zero for other actuators."""
    ctrl = np.zeros(model.nu)
    for i in range(model.nu):
        length = lengths(model, i, qpos)
        if length is not None:
            ctrl[i] = length
    limited = model.actuator_ctrllimited.astype(bool)
    ctrl[limited] = np.clip(ctrl[limited], *model.actuator_ctrlrange[limited].T)
    return ctrl
