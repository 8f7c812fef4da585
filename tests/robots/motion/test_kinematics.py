"""The tool of an arm from its joints: as MuJoCo has it from the arm's model."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from temporeal.robots.frames import from_matrix, from_rotation_vector, matrix
from temporeal.robots.motion.kinematics import KinematicsError, chain
from temporeal.robots.spec import load_robot

FRANKA = load_robot("franka")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(FRANKA.model))


def test_pose_and_velocity_are_those_of_the_site(model):
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    low, high = (np.array(end) for end in (FRANKA.command("joint_pos_cmd").low, FRANKA.command("joint_pos_cmd").high))
    joints = [model.joint(name) for name in FRANKA.sources["joint_pos"].names]
    site, jacobian = model.site("grip").id, np.zeros((3, model.nv))
    for _ in range(50):
        q, v = rng.uniform(low, high), rng.normal(size=7)
        for joint, angle, speed in zip(joints, q, v):
            data.qpos[joint.qposadr[0]], data.qvel[joint.dofadr[0]] = angle, speed
        mujoco.mj_forward(model, data)
        mujoco.mj_jacSite(model, data, jacobian, None, site)
        position, quat, velocity = chain("franka")(q, v)
        assert position == pytest.approx(data.site_xpos[site], abs=1e-12)
        assert matrix(quat) == pytest.approx(data.site_xmat[site].reshape(3, 3), abs=1e-12)
        assert velocity == pytest.approx(jacobian @ data.qvel, abs=1e-12)


def test_without_speeds_the_tool_rests():
    assert not chain("franka")(FRANKA.home["joint_pos"])[2].any()


def test_what_has_no_kinematics():
    with pytest.raises(KinematicsError, match="leap_hand/spec.py has no DENAVIT_HARTENBERG"):
        chain("leap_hand")
    with pytest.raises(KinematicsError, match="7 joints are needed"):
        chain("franka")(np.zeros(6))


@pytest.mark.parametrize("turn", [(0, 0, 0), (np.pi, 0, 0), (0, np.pi, 0), (0, 0, np.pi), (1.0, -2.0, 0.5)])
def test_quaternion_of_a_matrix(turn):
    quat = from_rotation_vector(np.array(turn, dtype=float))
    found = from_matrix(matrix(quat))
    assert found[0] >= 0 and np.linalg.norm(found) == pytest.approx(1.0)
    assert matrix(found) == pytest.approx(matrix(quat), abs=1e-12)
