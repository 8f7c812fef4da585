"""What arm tasks share: kinematics of a chain in torch, and how poses look to a policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

import torch
from torch import Tensor, nn

from robots.franka.spec import DENAVIT_HARTENBERG
from robots.spec import RobotSpec
from sim.maps import Limited, Memory, begin, rotation


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


FRANKA_TOOL = (0.0, 0.0, 0.1034, -pi / 4)  # centre between the fingertips in the flange's frame: its model.xml
DAMPING = 0.05  # of the least squares, m and rad: near a singularity a joint moves slowly instead of wildly


class ToolAction(Limited):
    """Actions move the tool: six numbers are a step of its centre (m) and a turn (rad, rotation vector), base frame.

    Differential kinematics on the targets of the joints (damped least squares: Nakamura and Hanafusa, J. Dyn. Sys.,
    1986) gives the joints' steps; what does not move the tool draws them towards ``home``. No joint's target moves
    faster than its ``step``: if one would, all are slowed alike, so that the direction stays. A seventh number, where
    the command has a gripper behind the joints, is its opening: -1 closed, 1 open.

    Args:
        chain: the arm's kinematics. ``home``: [J] rad.
        reach: step of the tool at action 1, m. ``turn``: the same, rad.
        step: [J] rad, greatest step of each joint.
    """

    def __init__(
        self, robot: RobotSpec, command: str, chain: Chain, home: Sequence[float], *, reach: float, turn: float,
        step: Sequence[float], pull: float = 0.02,
    ) -> None:
        super().__init__(robot, command)
        self.chain, self.joints, self.pull = chain, len(home), pull
        self.gripper = len(self.low) - self.joints
        self.action_dim = 6 + self.gripper
        for name, value in (("home", home), ("step", step), ("scale", [reach] * 3 + [turn] * 3)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.home: Tensor
        self.step: Tensor
        self.scale: Tensor
        self.memory = {"target": (len(self.low),), "begun": ()}

    def follow(self, measured: Tensor, memory: Memory) -> Memory:
        """The memory of this sample: at an episode's first one the target is ``measured`` [N, U]."""
        return begin(self, measured, memory)

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the target moved by ``action`` [N, A]."""
        action, target = action.clamp(-1.0, 1.0), memory["target"][:, : self.joints]
        jacobian = self.chain.jacobian(target)
        rest = self.pull * (self.home - target)
        wanted = self.scale * action[:, :6] - (jacobian @ rest[:, :, None])[:, :, 0]
        square = jacobian @ jacobian.transpose(1, 2) + DAMPING**2 * torch.eye(6, device=action.device)
        moved = rest + (jacobian.transpose(1, 2) @ solve(square, wanted)[:, :, None])[:, :, 0]
        moved = moved / (moved.abs() / self.step).max(-1).values.clamp(min=1.0)[:, None]
        low, high = self.low[self.joints :], self.high[self.joints :]
        opening = 0.5 * (low + high) + 0.5 * (high - low) * action[:, 6:]
        return {**memory, "target": self.limit(torch.cat([target + moved, opening], -1))}

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, U]: the target, moved already."""
        return memory["target"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, A] that moves the target of ``memory`` to ``command`` [N, U]."""
        target = memory["target"][:, : self.joints]
        moved = (self.chain.jacobian(target) @ (command[:, : self.joints] - target)[:, :, None])[:, :, 0]
        low, high = self.low[self.joints :], self.high[self.joints :]
        opening = (command[:, self.joints :] - 0.5 * (low + high)) / (0.5 * (high - low))
        return torch.cat([moved / self.scale, opening], -1)


def franka_chain() -> Chain:
    """Kinematics of the Franka arm to the point between its fingertips."""
    return Chain(DENAVIT_HARTENBERG, FRANKA_TOOL)


def postures(
    chain: Chain, places: Tensor, quats: Tensor, start: Sequence[float],
    limits: tuple[Sequence[float], Sequence[float]], steps: int = 100,
) -> tuple[Tensor, Tensor]:
    """Joint angles [K, J] at which the tool is at ``places`` [K, 3] m with attitudes ``quats`` [K, 4], from ``start``.

    Damped least squares within ``limits``; the second result [K] says where the pose is met to 0.1 mm and 1 mrad.
    """
    low, high = (torch.tensor(x) for x in limits)
    joints = torch.tensor(start).expand(len(places), -1)
    for _ in range(steps):
        pos, quat = chain(joints)
        turn, angle = turn_between(quat, quats)
        error = torch.cat([places - pos, turn], -1)
        jacobian = chain.jacobian(joints)
        square = jacobian @ jacobian.transpose(1, 2) + 1e-4 * torch.eye(6)
        joints = joints + (jacobian.transpose(1, 2) @ torch.linalg.solve(square, error)[:, :, None])[:, :, 0]
        joints = torch.minimum(torch.maximum(joints, low), high)
    pos, quat = chain(joints)
    _, angle = turn_between(quat, quats)
    return joints, ((places - pos).norm(dim=-1) < 1e-4) & (angle < 1e-3)
