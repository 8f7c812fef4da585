"""Controllers written by hand for the arm tasks: proportional, through the tasks' own actions. They prove feasibility.

    act = lift_expert(task, worlds)
    step = env.step(act(env.true_signals()))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from temporeal.sim.rotations import rotation, turn_between
from temporeal.sim.task import Task
from temporeal.sim.tasks import drawer, peg

Expert = Callable[[Mapping[str, Tensor]], Tensor]


def straightening(quat: Tensor) -> Tensor:
    """Rotation vector [N, 3] that brings the tool's z axis down, about."""
    down = torch.tensor([0.0, 0.0, -1.0]).expand(len(quat), 3)
    return torch.linalg.cross(rotation(quat)[:, :, 2], down)


def about_up(angle: Tensor) -> Tensor:
    """Rotation vector [N, 3] of a turn about the vertical."""
    return angle[:, None] * torch.tensor([0.0, 0.0, 1.0])


def moves(task: Task, way: Tensor, turn: Tensor, gain: float, *gripper: Tensor) -> Tensor:
    """Actions that make ``gain`` of the way (m) and the turn (rad) in a step, slowed alike where that is too fast."""
    wanted = gain * torch.cat([way, turn], -1) / task.act.scale
    wanted = wanted / wanted.abs().max(-1, keepdim=True).values.clamp(min=1.0)
    return torch.cat([wanted, *(g[:, None] for g in gripper)], -1)


def reach_expert(task: Task, worlds: int) -> Expert:
    """Straight to the goal."""
    def act(s: Mapping[str, Tensor]) -> Tensor:
        turn, _ = turn_between(s["grip_quat_w"], s["goal_quat_w"])
        return moves(task, s["goal_pos_w"] - s["grip_pos_w"], turn, 0.4)

    return act


def lift_expert(task: Task, worlds: int) -> Expert:
    """Above the cube, down, close, carry."""
    closed = torch.zeros(worlds)

    def act(s: Mapping[str, Tensor]) -> Tensor:
        way = s["cube_pos_w"] - s["grip_pos_w"]
        # the nearest turn that puts two faces of the cube between the fingers
        seen = rotation(s["cube_quat_w"]).transpose(-1, -2) @ rotation(s["grip_quat_w"])
        face = torch.atan2(seen[:, 1, 0], seen[:, 0, 0])
        face = 0.25 * torch.atan2((4 * face).sin(), (4 * face).cos())
        turn = straightening(s["grip_quat_w"]) - about_up(face)
        off = way[:, :2].norm(dim=-1)
        there = (off < 0.01) & (way[:, 2].abs() < 0.008) & (turn.norm(dim=-1) < 0.15)
        closed.copy_(torch.where(there | (closed > 0), closed + 1, closed))
        over = torch.where((off < 0.012) & (turn.norm(dim=-1) < 0.1) | (closed > 0), 0.0, 0.08)
        way = way + torch.stack([torch.zeros(worlds), torch.zeros(worlds), over], -1)
        carry = s["goal_pos_w"] - s["cube_pos_w"]
        holding = (closed > 14)[:, None]  # the gripper takes half a second to close
        return moves(task, torch.where(holding, carry, way), torch.where(holding, 0 * turn, turn), 0.25,
                     torch.where(closed > 0, -1.0, 1.0))

    return act


def peg_expert(task: Task, worlds: int, off: tuple[float, float] = (0.0, 0.0), pressed: bool = False) -> Expert:
    """Over the hole, straighten and centre, then down slowly.

    ``off``: m, so far beside the hole's axis. ``pressed``: go down there, whatever is there.
    """
    square = task.objective.square

    def act(s: Mapping[str, Tensor]) -> Tensor:
        tip, _, turn = peg.misfit(s, square)
        way = s["hole_pos_w"] - s["peg_tip_w"]
        way = way + (rotation(s["hole_quat_w"]) @ torch.tensor([*off, 0.0]))
        turn = straightening(s["peg_quat_w"]) - about_up(peg.least(turn))
        ready = (way[:, :2].norm(dim=-1) < 0.0015) & (turn.norm(dim=-1) < 0.02)
        height = torch.where((tip[:, 2] < -0.001) | (ready & pressed), -0.04, torch.where(ready, -0.01, 0.012))
        down = height - tip[:, 2]
        way[:, 2] = torch.where(tip[:, 2] > 0.02, down, down.clamp(-0.004, 0.02))
        return moves(task, way, turn, 0.25)

    return act


def drawer_expert(task: Task, worlds: int) -> Expert:
    """Above the handle, down, close, pull."""
    closed = torch.zeros(worlds)

    def act(s: Mapping[str, Tensor]) -> Tensor:
        _, _, turn = drawer.misfit(s)
        way = s["handle_pos_w"] - s["grip_pos_w"]
        turn = straightening(s["grip_quat_w"]) - about_up(drawer.least(turn))
        off = way[:, :2].norm(dim=-1)
        there = (way[:, 2].abs() < 0.006) & (off < 0.01)
        closed.copy_(torch.where(there | (closed > 0), closed + 1, closed))
        over = torch.where((off < 0.008) & (turn.norm(dim=-1) < 0.08) | (closed > 0), 0.0, 0.07)
        way = way + torch.stack([torch.zeros(worlds), torch.zeros(worlds), over], -1)
        pull = -0.04 * rotation(s["handle_quat_w"])[:, :, 0] * (s["drawer_pos"] < 0.18)[:, None]
        return moves(task, torch.where((closed > 12)[:, None], pull, way), turn, 0.25,
                     torch.where(closed > 0, -1.0, drawer.STRADDLE / 0.02 - 1))

    return act


EXPERTS = {"reach": reach_expert, "lift": lift_expert, "peg": peg_expert, "drawer": drawer_expert}
