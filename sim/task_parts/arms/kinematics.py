"""Kinematics of serial arms in torch: forward, Jacobian, and postures at which the tool has a pose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from temporeal.robots.motion.kinematics import serial_chain
from temporeal.robots.spec import RobotSpec
from temporeal.sim.rotations import quaternion, turn_between


class Chain(nn.Module):
    """Forward kinematics of an arm's tool: each joint turns about, or slides along, the z axis of its own frame.

    Args:
        fixed: [J + 1, 4, 4] m: the frame of joint i at position 0 in the frame of the joint before it (of the first in
            the base's), and at last the tool's in that of the last joint.
        slides: [J] which joints slide.
        columns: [J] where the joint stands among the robot's joints. Others do not move the tool. None: in this order.
        count: of the robot's joints. None: J.
    """

    def __init__(
        self, fixed: Tensor, slides: Sequence[bool], columns: Sequence[int] | None = None, count: int | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("fixed", fixed.float())
        self.fixed: Tensor
        self.slides = tuple(slides)
        self.columns = tuple(range(len(slides))) if columns is None else tuple(columns)
        self.count = len(self.columns) if count is None else count

    def forward(self, joints: Tensor) -> tuple[Tensor, Tensor]:
        """Tool position [K, 3] m and attitude [K, 4] wxyz in the base's frame, at joint positions [K, J] rad or m."""
        pose, _ = self.frames(joints)
        return pose[:, :3, 3], quaternion(pose[:, :3, :3])

    def frames(self, joints: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Pose [K, 4, 4] of the tool and of each joint's frame, whose z is its axis, in the base's frame."""
        found: list[Tensor] = []
        for i, (column, slides) in enumerate(zip(self.columns, self.slides)):
            before = found[-1] @ self.fixed[i] if found else self.fixed[0]
            found.append(before @ _motion(joints[:, column], slides))
        return found[-1] @ self.fixed[-1], found

    def jacobian(self, joints: Tensor) -> Tensor:
        """[K, 6, J]: velocity of the tool's centre (m/s) and its angular velocity (rad/s) per joint velocity, base."""
        tool, frames = self.frames(joints)
        still = torch.zeros_like(tool[:, :3, 3])
        columns = [torch.cat([still, still], -1)] * self.count
        for column, slides, frame in zip(self.columns, self.slides, frames):
            z, arm = frame[:, :3, 2], tool[:, :3, 3] - frame[:, :3, 3]
            columns[column] = torch.cat([z, still] if slides else [cross(z, arm), z], -1)
        return torch.stack(columns, -1)


def _motion(position: Tensor, slides: bool) -> Tensor:
    """The pose [K, 4, 4] of a joint's frame at ``position`` [K] in the same frame at 0."""
    zero, one = torch.zeros_like(position), torch.ones_like(position)
    if slides:
        rows = [one, zero, zero, zero, zero, one, zero, zero, zero, zero, one, position, zero, zero, zero, one]
    else:
        c, s = position.cos(), position.sin()
        rows = [c, -s, zero, zero, s, c, zero, zero, zero, zero, one, zero, zero, zero, zero, one]
    return torch.stack(rows, -1).reshape(-1, 4, 4)


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


def chain_of(robot: RobotSpec) -> Chain:
    """Kinematics of the tool of an arm, as its model has them."""
    serial = serial_chain(robot)
    turns = [_from_z(torch.tensor(axis)) for axis in serial.axes] + [torch.eye(4, dtype=torch.float64)]
    before = torch.eye(4, dtype=torch.float64)
    fixed = []
    for own, turn in zip(torch.tensor(serial.fixed), turns):
        fixed.append(before.T @ own @ turn)
        before = turn
    return Chain(torch.stack(fixed), [kind == "slide" for kind in serial.kinds], serial.columns,
                 len(robot.home["joint_pos"]))


def _from_z(axis: Tensor) -> Tensor:
    """A turn [4, 4] of the z axis to the unit vector ``axis`` [3]: none where it is there."""
    turn = torch.eye(4, dtype=torch.float64)
    if axis[2] > 1 - 1e-12:
        return turn
    aside = torch.eye(3, dtype=torch.float64)[int(axis.abs().argmin())]
    x = torch.linalg.cross(aside, axis)
    x = x / x.norm()
    turn[:3, :3] = torch.stack([x, torch.linalg.cross(axis, x), axis], -1)
    return turn


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
    chain: Chain, places: Tensor, quats: Tensor | None, start: Sequence[float],
    limits: tuple[Sequence[float], Sequence[float]], steps: int = 40,
) -> tuple[Tensor, Tensor]:
    """Joint positions [K, J] at which the tool is at ``places`` [K, 3] m with attitudes ``quats`` [K, 4], from
    ``start``. Without attitudes they are as they come, as of an arm of five joints.

    Damped least squares within ``limits``; the second result [K] says where the pose is met to 0.1 mm and 1 mrad.
    """
    low, high = (torch.as_tensor(x) for x in limits)
    joints = torch.tensor(start).expand(len(places), -1)
    rows = 3 if quats is None else 6
    damping = 1e-4 * torch.eye(rows)
    with one_thread():
        for _ in range(steps):
            away, turn = _astray(chain, joints, places, quats)
            jacobian = chain.jacobian(joints)[:, :rows]
            pull = solve(jacobian @ jacobian.transpose(1, 2) + damping, torch.cat([away, turn], -1)[:, :rows])
            joints = joints + (jacobian.transpose(1, 2) @ pull[:, :, None])[:, :, 0]
            joints = torch.minimum(torch.maximum(joints, low), high)
    away, turn = _astray(chain, joints, places, quats)
    return joints, (away.norm(dim=-1) < 1e-4) & (turn.norm(dim=-1) < 1e-3)


def _astray(chain: Chain, joints: Tensor, places: Tensor, quats: Tensor | None) -> tuple[Tensor, Tensor]:
    """The way [K, 3] m and the turn [K, 3] rad that the tool lacks to its pose."""
    pos, quat = chain(joints)
    return places - pos, torch.zeros_like(pos) if quats is None else turn_between(quat, quats)[0]
