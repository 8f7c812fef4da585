"""Kinematics against MuJoCo and finite differences; postures."""

import pytest
import torch
from tests.sim.task_parts.arms.samples import generator, random_joints, same_attitude

from temporeal.robots.franka.spec import (
    HIGH,
    HOME,
    LOW,
)
from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.rotations import product, turn_between
from temporeal.sim.scene import Scene
from temporeal.sim.task_parts.arms.kinematics import chain_of, cross, one_thread, postures, solve

ROBOT = load_robot("franka")


def test_the_chain_is_the_model_that_mujoco_compiles():
    joints, chain = random_joints(64), chain_of(load_robot("franka"))
    backend = mujoco.make(Scene(ROBOT), 64, "arm_cmd", dt=0.002, device="cpu", seed=0, threads=1)
    backend.reset(torch.arange(64), {"joint_pos": joints})
    found = backend.signals()
    pos, quat = chain(joints)
    torch.testing.assert_close(pos, found["grip_pos_w"], atol=2e-6, rtol=0)
    same_attitude(quat, found["grip_quat_w"], 1e-6)
    backend.close()


def test_jacobian_is_the_derivative_of_the_pose():
    chain = chain_of(load_robot("franka")).double()
    joints, h = random_joints(8, 1).double(), 1e-6
    jacobian = chain.jacobian(joints)
    for i in range(7):
        ahead, behind = joints.clone(), joints.clone()
        ahead[:, i] += h
        behind[:, i] -= h
        (p, q), (a, b) = chain(ahead), chain(behind)
        torch.testing.assert_close(jacobian[:, :3, i], (p - a) / (2 * h), atol=1e-6, rtol=0)
        # for small turns the vector part of the quaternion is half the rotation vector
        between_them = product(q, b * torch.tensor([1.0, -1.0, -1.0, -1.0]))
        turn = 2 * between_them[:, 1:] * between_them[:, :1].sign() / (2 * h)
        torch.testing.assert_close(jacobian[:, 3:, i], turn, atol=1e-6, rtol=0)


def test_linear_systems_and_cross_products():
    a = torch.randn(16, 6, 9, generator=generator())
    matrix, right = a @ a.transpose(1, 2) + 0.1 * torch.eye(6), torch.randn(16, 6, generator=generator(1))
    torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right), atol=1e-4, rtol=1e-4)
    x, y = torch.randn(2, 16, 3, generator=generator(2))
    torch.testing.assert_close(cross(x, y), torch.linalg.cross(x, y))


def test_postures_meet_poses_that_can_be_reached_and_say_which():
    chain = chain_of(load_robot("franka"))
    pos, quat = chain(torch.tensor(HOME) + 0.4 * (2 * torch.rand(32, 7, generator=generator()) - 1))
    pos[-1] = torch.tensor([1.5, 0.0, 0.3])  # an arm's length too far
    before = torch.get_num_threads()
    joints, good = postures(chain, pos, quat, HOME, (LOW, HIGH))
    assert torch.get_num_threads() == before
    assert good[:-1].float().mean() > 0.9 and not good[-1]
    found, attitude = chain(joints[good])
    torch.testing.assert_close(found, pos[good], atol=1e-4, rtol=0)
    assert turn_between(attitude, quat[good])[1].max() < 1e-3
    assert (joints >= torch.tensor(LOW)).all() and (joints <= torch.tensor(HIGH)).all()


def test_threads_come_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), one_thread():
        assert torch.get_num_threads() == 1
        raise RuntimeError
    assert torch.get_num_threads() == before
