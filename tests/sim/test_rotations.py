"""Rotations: there and back, compositions, and what looks the same."""

from math import pi

import torch
from tests.sim.task_parts.arms.samples import random_quats, same_attitude

from temporeal.sim.rotations import about_z, axes, pointing_down, product, quaternion, rotation, turn_between
from temporeal.sim.task_parts.arms.kinematics import cross


def test_quaternions_of_matrices_and_back():
    half_turns = torch.tensor([[0.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0.6, 0.8, 0], [1, 0, 0, 0]])
    quats = torch.cat([random_quats(200), half_turns])
    found = quaternion(rotation(quats))
    same_attitude(found, quats, 1e-6)
    assert (found[:, 0] >= 0).all()
    x, y = axes(quats).reshape(-1, 3, 2).unbind(-1)
    torch.testing.assert_close(torch.stack([x, y, cross(x, y)], -1), rotation(quats), atol=1e-6, rtol=0)


def test_the_turn_between_two_attitudes_leads_from_one_to_the_other():
    a, b = random_quats(200, 3), random_quats(200, 4)
    vector, angle = turn_between(a, b)
    torch.testing.assert_close(vector.norm(dim=-1), angle, atol=1e-5, rtol=0)
    assert (angle <= pi + 1e-6).all()
    turn = torch.cat([(angle / 2).cos()[:, None], (angle / 2).sin()[:, None] * vector / angle[:, None]], -1)
    same_attitude(product(turn, a), b, 1e-5)
    for signs in ((-1, 1), (1, -1)):  # a quaternion and its negative are one attitude
        torch.testing.assert_close(turn_between(signs[0] * a, signs[1] * b)[1], angle, atol=1e-5, rtol=0)
    vector, angle = turn_between(a, a)
    assert angle.max() < 1e-3 and torch.isfinite(vector).all()


def test_products_and_turns_about_the_vertical():
    a, b = random_quats(50, 5), random_quats(50, 6)
    torch.testing.assert_close(rotation(product(a, b)), rotation(a) @ rotation(b), atol=1e-5, rtol=0)
    angle = torch.tensor([0.0, 0.3, -1.2, pi])
    frame = rotation(pointing_down(angle))
    torch.testing.assert_close(frame[:, :, 2], torch.tensor([0.0, 0, -1]).expand(4, 3), atol=1e-6, rtol=0)
    turned = rotation(about_z(angle)) @ torch.tensor([0.0, -1, 0])  # at angle 0 the fingers move along -y
    torch.testing.assert_close(frame[:, :, 1], turned, atol=1e-6, rtol=0)
