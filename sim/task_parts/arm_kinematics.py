"""Kinematics of serial arms in torch: forward, Jacobian, and postures at which the tool has a pose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import cos, sin

import torch
from torch import Tensor, nn

from temporeal.robots.franka.spec import DENAVIT_HARTENBERG, TOOL
from temporeal.sim.rotations import quaternion, turn_between


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
        pose, _ = self.frames(joints)
        return pose[:, :3, 3], quaternion(pose[:, :3, :3])

    def frames(self, joints: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Pose [K, 4, 4] of the tool and of each joint's frame, whose z is its axis, in the base's frame."""
        found: list[Tensor] = []
        for i in range(joints.shape[1]):
            c, s = joints[:, i].cos(), joints[:, i].sin()
            zero, one = torch.zeros_like(c), torch.ones_like(c)
            turn = torch.stack([c, -s, zero, zero, s, c, zero, zero, zero, zero, one, zero, zero, zero, zero, one], -1)
            before = found[-1] @ self.fixed[i] if found else self.fixed[0]
            found.append(before @ turn.reshape(-1, 4, 4))
        return found[-1] @ self.fixed[-1], found

    def jacobian(self, joints: Tensor) -> Tensor:
        """[K, 6, J]: velocity of the tool's centre (m/s) and its angular velocity (rad/s) per joint velocity, base."""
        tool, frames = self.frames(joints)
        columns = []
        for frame in frames:
            z, arm = frame[:, :3, 2], tool[:, :3, 3] - frame[:, :3, 3]
            columns.append(torch.cat([cross(z, arm), z], -1))
        return torch.stack(columns, -1)


def _shift(a: float, d: float, alpha: float) -> Tensor:
    """Frame i - 1 to frame i at joint angle 0: rotation by ``alpha`` about x, ``a`` along x, ``d`` along the new z."""
    c, s = cos(alpha), sin(alpha)
    return torch.tensor([[1, 0, 0, a], [0, c, -s, -s * d], [0, s, c, c * d], [0, 0, 0, 1]], dtype=torch.float64)


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product [K, 3] of two vectors [K, 3]."""
    (x, y, z), (u, v, w) = a.unbind(-1), b.unbind(-1)
    return torch.stack([y * w - z * v, z * u - x * w, x * v - y * u], -1)


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """x [K, n] of ``matrix`` x = ``right``, for symmetric positive definite matrices [K, n, n]: Gauss and Jordan.

    Written out because it is compiled with the environment's other maps and traced into the artifact.
    """
    rows, n = torch.cat([matrix, right[:, :, None]], -1), matrix.shape[-1]
    for k in range(n):
        pivot = rows[:, k : k + 1] / rows[:, k : k + 1, k : k + 1]
        others = rows - rows[:, :, k : k + 1] * pivot
        rows = torch.cat([others[:, :k], pivot, others[:, k + 1 :]], 1)
    return rows[:, :, n]


def franka_chain() -> Chain:
    """Kinematics of the Franka arm to the point between its fingertips."""
    return Chain(DENAVIT_HARTENBERG, TOOL)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: where others keep the cores busy, its threads wait for each other in each small product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def postures(
    chain: Chain, places: Tensor, quats: Tensor, start: Sequence[float],
    limits: tuple[Sequence[float], Sequence[float]], steps: int = 40,
) -> tuple[Tensor, Tensor]:
    """Joint angles [K, J] at which the tool is at ``places`` [K, 3] m with attitudes ``quats`` [K, 4], from ``start``.

    Damped least squares within ``limits``; the second result [K] says where the pose is met to 0.1 mm and 1 mrad.
    """
    low, high = (torch.tensor(x) for x in limits)
    joints = torch.tensor(start).expand(len(places), -1)
    damping = 1e-4 * torch.eye(6)
    with one_thread():
        for _ in range(steps):
            pos, quat = chain(joints)
            error = torch.cat([places - pos, turn_between(quat, quats)[0]], -1)
            jacobian = chain.jacobian(joints)
            pull = solve(jacobian @ jacobian.transpose(1, 2) + damping, error)
            joints = joints + (jacobian.transpose(1, 2) @ pull[:, :, None])[:, :, 0]
            joints = torch.minimum(torch.maximum(joints, low), high)
    pos, quat = chain(joints)
    _, angle = turn_between(quat, quats)
    return joints, ((places - pos).norm(dim=-1) < 1e-4) & (angle < 1e-3)
