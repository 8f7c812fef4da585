"""Rotations in torch: matrices, quaternions (wxyz, scalar first), rotation vectors. Compiled with maps and exported."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor


def rotation(quat_wxyz: Tensor) -> Tensor:
    """Rotation matrix [..., 3, 3] body to world of a unit quaternion [..., 4] (scalar first)."""
    w, x, y, z = quat_wxyz.unbind(-1)
    rows = (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )
    return torch.stack(rows, -1).reshape(*quat_wxyz.shape[:-1], 3, 3)


def quaternion(matrix: Tensor) -> Tensor:
    """Unit quaternion [K, 4] wxyz of rotation matrices [K, 3, 3], its scalar part not negative."""
    m = matrix
    trace = m[:, 0, 0] + m[:, 1, 1] + m[:, 2, 2]
    # each of the four is exact where it is the largest: J. Stuelpnagel, SIAM Review 6(4), 1964
    four = torch.stack([
        torch.stack([1 + trace, m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]], -1),
        torch.stack([m[:, 2, 1] - m[:, 1, 2], 1 + 2 * m[:, 0, 0] - trace, m[:, 0, 1] + m[:, 1, 0],
                     m[:, 0, 2] + m[:, 2, 0]], -1),
        torch.stack([m[:, 0, 2] - m[:, 2, 0], m[:, 0, 1] + m[:, 1, 0], 1 + 2 * m[:, 1, 1] - trace,
                     m[:, 1, 2] + m[:, 2, 1]], -1),
        torch.stack([m[:, 1, 0] - m[:, 0, 1], m[:, 0, 2] + m[:, 2, 0], m[:, 1, 2] + m[:, 2, 1],
                     1 + 2 * m[:, 2, 2] - trace], -1)], 1)
    best = four.diagonal(dim1=1, dim2=2).argmax(-1)
    found = four[torch.arange(len(m), device=m.device), best]
    found = found / found.norm(dim=-1, keepdim=True)
    return torch.where(found[:, :1] < 0, -found, found)


def axes(quat_wxyz: Tensor) -> Tensor:
    """The first two axes [N, 6] of an attitude [N, 4]: continuous, unlike the quaternion (Zhou et al., CVPR 2019)."""
    return rotation(quat_wxyz)[..., :2].flatten(1)


def turn_between(quat: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Rotation vector [N, 3] (rad, world frame) that turns ``quat`` into ``goal``, [N, 4] each, and its angle [N]."""
    w, x, y, z = goal.unbind(-1)
    a, b, c, d = quat.unbind(-1)
    # goal * conjugate(quat)
    dw = w * a + x * b + y * c + z * d
    vector = torch.stack([x * a - w * b - y * d + z * c, y * a - w * c - z * b + x * d,
                          z * a - w * d - x * c + y * b], -1)
    size = vector.square().sum(-1).clamp(min=1e-12).sqrt()
    angle = 2 * torch.atan2(size, dw.abs())
    sign = torch.where(dw < 0, -torch.ones_like(dw), torch.ones_like(dw))
    return vector * (sign * angle / size)[:, None], angle


def product(a: Tensor, b: Tensor) -> Tensor:
    """Product [K, 4] of quaternions [K, 4] wxyz: first the rotation ``b``, then ``a``."""
    (w, x, y, z), (p, q, r, s) = a.unbind(-1), b.unbind(-1)
    return torch.stack([w * p - x * q - y * r - z * s, w * q + x * p + y * s - z * r,
                        w * r - x * s + y * p + z * q, w * s + x * r - y * q + z * p], -1)


def inverse(quat: Tensor) -> Tensor:
    """The opposite turn of unit quaternions [K, 4] wxyz."""
    return quat * torch.tensor([1.0, -1.0, -1.0, -1.0], device=quat.device)


def about_z(angle: Tensor) -> Tensor:
    """Quaternion [K, 4] of a turn by ``angle`` [K] rad about z."""
    half, zero = 0.5 * angle, torch.zeros_like(angle)
    return torch.stack([half.cos(), zero, zero, half.sin()], -1)


def pointing_down(angle: Tensor) -> Tensor:
    """Attitude [K, 4] of a tool that points down, its fingers along y, then turned by ``angle`` [K] about z."""
    half, zero = 0.5 * angle, torch.zeros_like(angle)
    return torch.stack([zero, half.cos(), half.sin(), zero], -1)


def tilted(u: Tensor, limit_rad: float) -> Tensor:
    """Quaternion [K, 4] tilted by at most ``limit_rad`` about a random horizontal axis, from uniform ``u`` [K, 3]."""
    axis = 2 * pi * u[:, 0]
    tilt, yaw = 0.5 * limit_rad * u[:, 1], pi * (u[:, 2] - 0.5)
    # yaw about z first, then the tilt about (cos axis, sin axis, 0): q = tilt * yaw
    return torch.stack([tilt.cos() * yaw.cos(), tilt.sin() * (axis.cos() * yaw.cos() + axis.sin() * yaw.sin()),
                        tilt.sin() * (axis.sin() * yaw.cos() - axis.cos() * yaw.sin()), tilt.cos() * yaw.sin()], -1)


def direction(x: Tensor, y: Tensor) -> Tensor:
    """Cosine and sine [K, 2] of the direction of the vectors (``x``, ``y``), [K] each; 0, 0 where they vanish."""
    return torch.stack([x, y], -1) / (x * x + y * y).clamp(min=1e-12).sqrt()[:, None]


def doubled(turn: Tensor) -> Tensor:
    """Cosine and sine [K, 2] of twice an angle, from its own.

    What looks the same after half a turn or a quarter is seen by the doubled or fourfold angle: it does not jump.
    """
    c, s = turn.unbind(-1)
    return torch.stack([c * c - s * s, 2 * c * s], -1)
