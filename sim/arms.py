"""What arm tasks share: kinematics of a chain in torch, and how poses look to a policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, sin

import torch
from torch import Tensor, nn

from sim.maps import rotation


class Chain(nn.Module):
    """Forward kinematics of a serial arm by modified (Craig) Denavit-Hartenberg parameters.

    Args:
        rows: (a m, d m, alpha rad) of each joint, and of the flange, which does not turn.
        tool: (x, y, z, turn about z rad) of the tool centre point in the flange's frame.
    """

    def __init__(self, rows: Sequence[tuple[float, float, float]], tool: tuple[float, float, float, float]) -> None:
        super().__init__()
        fixed = torch.stack([_shift(a, d, alpha) for a, d, alpha in rows])
        x, y, z, turn = tool
        end = torch.eye(4, dtype=torch.float64)
        end[:2, :2] = torch.tensor([[cos(turn), -sin(turn)], [sin(turn), cos(turn)]])
        end[:3, 3] = torch.tensor([x, y, z])
        fixed[-1] = fixed[-1] @ end
        self.register_buffer("fixed", fixed.float())
        self.fixed: Tensor

    def forward(self, joints: Tensor) -> tuple[Tensor, Tensor]:
        """Tool position [K, 3] m and attitude [K, 4] wxyz in the base's frame, at joint angles [K, J] rad."""
        pose = self.fixed[0].expand(len(joints), 4, 4)
        for i in range(joints.shape[1]):
            c, s = joints[:, i].cos(), joints[:, i].sin()
            zero, one = torch.zeros_like(c), torch.ones_like(c)
            turn = torch.stack([c, -s, zero, zero, s, c, zero, zero, zero, zero, one, zero, zero, zero, zero, one], -1)
            pose = pose @ turn.reshape(-1, 4, 4) @ self.fixed[i + 1]
        return pose[:, :3, 3], quaternion(pose[:, :3, :3])


def _shift(a: float, d: float, alpha: float) -> Tensor:
    """Frame i - 1 to frame i at joint angle 0: rotation by ``alpha`` about x, ``a`` along x, ``d`` along the new z."""
    c, s = cos(alpha), sin(alpha)
    return torch.tensor([[1, 0, 0, a], [0, c, -s, -s * d], [0, s, c, c * d], [0, 0, 0, 1]], dtype=torch.float64)


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


def turned(quat: Tensor, axis: Tensor, angle: Tensor) -> Tensor:
    """``quat`` [N, 4] turned by ``angle`` [N] rad about the unit vector ``axis`` [N, 3], world frame."""
    half = 0.5 * angle
    a, (b, c, d) = half.cos(), (half.sin()[:, None] * axis).unbind(-1)
    w, x, y, z = quat.unbind(-1)
    return torch.stack([a * w - b * x - c * y - d * z, a * x + b * w + c * z - d * y,
                        a * y - b * z + c * w + d * x, a * z + b * y - c * x + d * w], -1)
