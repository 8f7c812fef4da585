"""A second opinion on arms and hands: Pinocchio on a compiled MuJoCo model's numbers, and what every spec promises.

    model = mujoco.MjModel.from_xml_path(str(SPEC.model))
    check_kinematics(model, sites=("grip",))     # poses of bodies and sites, at random configurations
    check_dynamics(model)                        # mass matrix, gravity torques, Coriolis and centrifugal torques
    check_inertias(model)                        # each body's inertia is that of some distribution of mass
    check_spec(SPEC, model)                      # names resolve; limits, home and parameters agree

Pinocchio (from PyPI, ``pin``) shares no code with MuJoCo. :func:`pinocchio_model` hands it body poses, joint axes and
inertias; its recursive algorithms do the rest. Whether those numbers are the *published* ones is for each robot's own
test to say. The robot stands on a fixed base and has hinges and slides.
"""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
import pinocchio as pin
import pytest

from temporeal.robots.spec import RobotSpec

HINGE, SLIDE = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
ELEMENTS = {"joint_pos": "joint", "joint_vel": "joint", "joint_torque": "joint", "sensor": "sensor"}
PER_JOINT = {"damping": "dof_damping", "armature": "dof_armature", "frictionloss": "dof_frictionloss"}


def pinocchio_model(model: mujoco.MjModel) -> pin.Model:
    """``model`` as a Pinocchio model: a joint per hinge and slide in the same order, a frame per body and site."""
    out, parents = pin.Model(), {0: (0, pin.SE3.Identity())}
    out.gravity.linear = model.opt.gravity
    for body in range(1, model.nbody):
        joint, place = parents[model.body_parentid[body]]
        place = place * _placement(model.body_pos[body], model.body_quat[body])
        for index in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            anchor = pin.SE3(np.eye(3), model.jnt_pos[index])
            joint = out.addJoint(joint, _joint(model, index), place * anchor, model.joint(index).name)
            place = anchor.inverse()
        inertia = np.diag(model.body_inertia[body])
        local = pin.Inertia(model.body_mass[body], np.zeros(3), inertia)
        out.appendBodyToJoint(joint, local, place * _placement(model.body_ipos[body], model.body_iquat[body]))
        out.addFrame(pin.Frame(f"body {body}", joint, 0, place, pin.FrameType.OP_FRAME))
        parents[body] = joint, place
    for site in range(model.nsite):
        joint, place = parents[model.site_bodyid[site]]
        place = place * _placement(model.site_pos[site], model.site_quat[site])
        out.addFrame(pin.Frame(f"site {site}", joint, 0, place, pin.FrameType.OP_FRAME))
    assert (out.nq, out.nv) == (model.nq, model.nv)
    return out


def _placement(pos: np.ndarray, quat: np.ndarray) -> pin.SE3:
    return pin.SE3(pin.Quaternion(*quat).toRotationMatrix(), np.asarray(pos))


def _joint(model: mujoco.MjModel, index: int) -> pin.JointModel:
    kinds = {HINGE: pin.JointModelRevoluteUnaligned, SLIDE: pin.JointModelPrismaticUnaligned}
    kind = mujoco.mjtJoint(model.jnt_type[index])
    assert kind in kinds, f"joint {model.joint(index).name!r} is neither a hinge nor a slide"
    assert not model.qpos0[model.jnt_qposadr[index]], f"joint {model.joint(index).name!r} has a ref"
    return kinds[kind](model.jnt_axis[index])


def configurations(model: mujoco.MjModel, count: int, seed: int = 0) -> np.ndarray:
    """Random joint positions [count, nq], uniform within the joint ranges (±π where there is none)."""
    low, high = np.where(model.jnt_limited[:, None], model.jnt_range, (-np.pi, np.pi)).T
    return np.random.default_rng(seed).uniform(low, high, (count, model.nq))


def _samples(model: mujoco.MjModel, count: int, speed: float) -> Iterator[tuple[mujoco.MjData, np.ndarray, np.ndarray]]:
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    for q in configurations(model, count):
        data.qpos, data.qvel = q, rng.uniform(-speed, speed, model.nv)
        mujoco.mj_forward(model, data)
        yield data, q, data.qvel.copy()


def check_kinematics(model: mujoco.MjModel, sites: tuple[str, ...] = (), count: int = 100, atol: float = 1e-9) -> None:
    """Pose (m, rotation matrix) of every body and of ``sites`` at ``count`` random configurations."""
    peer = pinocchio_model(model)
    memory = peer.createData()
    frames = [(f"body {i}", "xpos", "xmat", i) for i in range(1, model.nbody)]
    frames += [(f"site {model.site(name).id}", "site_xpos", "site_xmat", model.site(name).id) for name in sites]
    for data, q, _ in _samples(model, count, 0.0):
        pin.framesForwardKinematics(peer, memory, q)
        for name, pos, mat, index in frames:
            pose = memory.oMf[peer.getFrameId(name)]
            np.testing.assert_allclose(getattr(data, pos)[index], pose.translation, rtol=0, atol=atol, err_msg=name)
            mine = getattr(data, mat)[index].reshape(3, 3)
            np.testing.assert_allclose(mine, pose.rotation, rtol=0, atol=atol, err_msg=name)


def check_dynamics(model: mujoco.MjModel, count: int = 100, rtol: float = 1e-9) -> None:
    """Mass matrix (without armature), gravity torques, and Coriolis and centrifugal torques, N m or N.

    ``rtol`` is of the largest component; joint speeds are within ±2 rad/s or m/s.
    """
    peer = pinocchio_model(model)
    memory = peer.createData()
    for data, q, v in _samples(model, count, 2.0):
        mass = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, mass)
        expected = np.triu(pin.crba(peer, memory, q))  # Pinocchio fills the upper triangle
        _near(np.triu(mass - np.diag(model.dof_armature)), expected, rtol, "mass matrix")
        gravity = pin.computeGeneralizedGravity(peer, memory, q)
        _near(data.qfrc_bias, pin.nonLinearEffects(peer, memory, q, v), rtol, "gravity, Coriolis and centrifugal")
        data.qvel[:] = 0
        mujoco.mj_forward(model, data)
        _near(data.qfrc_bias, gravity, rtol, "gravity")


def _near(mine: np.ndarray, expected: np.ndarray, rtol: float, what: str) -> None:
    assert np.abs(expected).max() > 0, what
    np.testing.assert_allclose(mine, expected, rtol=0, atol=rtol * np.abs(expected).max(), err_msg=what)


def check_inertias(model: mujoco.MjModel) -> None:
    """Masses and principal moments are positive, and no moment exceeds the sum of the other two."""
    for body in range(1, model.nbody):
        moments = np.sort(model.body_inertia[body])
        assert model.body_mass[body] > 0 and moments[0] > 0, model.body(body).name
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-9), model.body(body).name


def check_spec(spec: RobotSpec, model: mujoco.MjModel) -> None:
    """Sources and actuators name elements of ``model``; sizes, command limits, home and parameters agree with it."""
    check_names(spec, model)
    check_home(spec, model)
    for name, (values, size) in parameters(model).items():
        assert len(spec.parameters[name].nominal) == size, name
        assert spec.parameters[name].nominal == pytest.approx(values, rel=1e-12), name


def check_names(spec: RobotSpec, model: mujoco.MjModel) -> None:
    """Every signal has a source that the model has, every command actuators whose ranges are its limits."""
    assert set(spec.sources) == set(spec.signals) and set(spec.actuators) == set(spec.commands)
    for name, source in spec.sources.items():
        for element in source.names:
            if source.what in ELEMENTS:
                getattr(model, ELEMENTS[source.what])(element)  # KeyError, which lists the legal names
            else:
                assert _has(model, "site", element) or _has(model, "body", element), f"{name}: {element}"
        if source.what in ("joint_pos", "joint_vel", "joint_torque", "contact_force"):
            assert len(source.names) == spec.signals[name].size, name
    for name, actuators in spec.actuators.items():
        if name in spec.drives:  # no places: the model has servos for these
            assert len(actuators) == spec.commands[name].size or spec.drives[name] == "tool"
            continue
        ranges = np.array([model.actuator(actuator).ctrlrange for actuator in actuators])
        assert ranges.T == pytest.approx(np.array([spec.commands[name].low, spec.commands[name].high]), rel=1e-12), name


def _has(model: mujoco.MjModel, kind: str, name: str) -> bool:
    return mujoco.mj_name2id(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), name) >= 0


def check_home(spec: RobotSpec, model: mujoco.MjModel) -> None:
    """The key ``home`` is the spec's home, within the joint ranges, without a contact."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    low, high = model.jnt_range.T
    assert (~model.jnt_limited.astype(bool) | ((low <= data.qpos) & (data.qpos <= high))).all()
    for name, source in spec.sources.items():
        if source.what == "joint_pos" and name in spec.home:
            at_home = [data.joint(joint).qpos[0] for joint in source.names]
            assert spec.home[name] == pytest.approx(at_home, abs=1e-12), name
    assert data.ncon == 0


def parameters(model: mujoco.MjModel) -> dict[str, tuple[np.ndarray, int]]:
    """What the model says of the parameters that every arm and hand has, with their number.

    ``mass``: bodies but the world; ``damping``, ``armature``, ``frictionloss``: joints; ``kp``, ``kd``, ``strength``
    (largest force): actuators; each in the model's order.
    """
    values = {"mass": model.body_mass[1:], "kp": model.actuator_gainprm[:, 0], "kd": -model.actuator_biasprm[:, 2],
              "strength": model.actuator_forcerange[:, 1]}
    values |= {name: getattr(model, column) for name, column in PER_JOINT.items()}
    return {name: (np.array(value), len(value)) for name, value in values.items()}
