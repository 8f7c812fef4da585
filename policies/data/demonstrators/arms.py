"""Controllers by hand for the arm tasks: proportional, through the tasks' own actions, on true signals.

Each is made for one batch of episodes that begin together: ``expert = lift(task, worlds)`` remembers what it has done.
Its ``pace`` [N], above 0 and at most 1, is the share of its speed at which it moves at most: a slow one is late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.rotations import rotation, turn_between
from temporeal.sim.task import Task
from temporeal.sim.tasks import drawer as drawers
from temporeal.sim.tasks import peg as pegs
from temporeal.sim.tasks import push as pushes

Controller = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""True signals [N, ...] and the pace [N] to action [N, A] in [-1, 1]."""
GRIP_STEPS = 14  # control steps until the fingers have closed: half a second


def straightening(quat: Tensor) -> Tensor:
    """Rotation vector [N, 3] that brings the tool's z axis down, about."""
    down = torch.tensor([0.0, 0.0, -1.0]).expand(len(quat), 3)
    return torch.linalg.cross(rotation(quat)[:, :, 2], down)


def about_up(angle: Tensor) -> Tensor:
    """Rotation vector [N, 3] of a turn by ``angle`` [N] rad about the vertical."""
    return angle[:, None] * torch.tensor([0.0, 0.0, 1.0])


def up(height: Tensor) -> Tensor:
    """The way [N, 3] of ``height`` [N] m upwards."""
    return height[:, None] * torch.tensor([0.0, 0.0, 1.0])


def moves(task: Task, pace: Tensor, way: Tensor, turn: Tensor, gain: float, *gripper: Tensor) -> Tensor:
    """Actions that make ``gain`` of the way (m) and the turn (rad) in a step, slowed alike where that is faster than
    ``pace`` [N]. Near the goal a slow one is as exact as a fast one.

    An action of three numbers moves the tool alone; a last one of variable impedance is as stiff as can be.
    """
    act: Any = task.act
    wanted = gain * torch.cat([way, turn], -1)[:, : act.tool_dim] / act.scale
    wanted = wanted / (wanted.abs().max(-1, keepdim=True).values / pace[:, None]).clamp(min=1.0)
    stiff = [torch.ones_like(wanted[:, :1])] if act.stiffness is not None else []
    return torch.cat([wanted, *(g[:, None] for g in gripper), *stiff], -1)


def reach(task: Task, worlds: int) -> Controller:
    """Straight to the goal."""
    tool = task.robot.tool

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        way = s["goal_pos_w"] - s[f"{tool}_pos_w"]
        turn = torch.zeros_like(way)
        if "goal_quat_w" in s:
            turn, _ = turn_between(s[f"{tool}_quat_w"], s["goal_quat_w"])
        return moves(task, pace, way, turn, 0.4)

    return act


def lift(task: Task, worlds: int) -> Controller:
    """Above the cube, down, close, carry."""
    tool, closed = task.robot.tool, torch.zeros(worlds)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        way = s["cube_pos_w"] - s[f"{tool}_pos_w"]
        turn = straightening(s[f"{tool}_quat_w"]) - about_up(nearest_face(s["cube_quat_w"], s[f"{tool}_quat_w"]))
        off = way[:, :2].norm(dim=-1)
        there = (off < 0.01) & (way[:, 2].abs() < 0.008) & (turn.norm(dim=-1) < 0.15)
        closed.copy_(torch.where(there | (closed > 0), closed + 1, closed))
        over = torch.where((off < 0.012) & (turn.norm(dim=-1) < 0.1) | (closed > 0), 0.0, 0.08)
        carry, holding = s["goal_pos_w"] - s["cube_pos_w"], (closed > GRIP_STEPS)[:, None]
        way, turn = torch.where(holding, carry, way + up(over)), torch.where(holding, 0 * turn, turn)
        return moves(task, pace, way, turn, 0.25, torch.where(closed > 0, -1.0, 1.0))

    return act


def nearest_face(cube: Tensor, tool: Tensor) -> Tensor:
    """The smallest turn [N] rad of the ``tool`` that puts two faces of the ``cube`` between its fingers."""
    seen = rotation(cube).transpose(-1, -2) @ rotation(tool)
    face = torch.atan2(seen[:, 1, 0], seen[:, 0, 0])
    return 0.25 * torch.atan2((4 * face).sin(), (4 * face).cos())


def peg(
    task: Task, worlds: int, off: tuple[float, float] = (0.0, 0.0), pressed: bool = False
) -> Controller:
    """Over the hole, straighten and centre, then down slowly.

    ``off``: m, so far beside the hole's axis. ``pressed``: go down there, whatever is there.
    """
    objective: Any = task.objective

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        tip, _, turn = pegs.misfit(s, objective.square)
        way = s["hole_pos_w"] - s["peg_tip_w"]
        way = way + (rotation(s["hole_quat_w"]) @ torch.tensor([*off, 0.0]))
        turn = straightening(s["peg_quat_w"]) - about_up(pegs.least(turn))
        ready = (way[:, :2].norm(dim=-1) < 0.0015) & (turn.norm(dim=-1) < 0.02)
        height = torch.where((tip[:, 2] < -0.001) | (ready & pressed), -0.04, torch.where(ready, -0.01, 0.012))
        down = height - tip[:, 2]
        way[:, 2] = torch.where(tip[:, 2] > 0.02, down, down.clamp(-0.004, 0.02))
        return moves(task, pace, way, turn, 0.25)

    return act


def drawer(task: Task, worlds: int) -> Controller:
    """Above the handle, down, close, pull."""
    tool, closed = task.robot.tool, torch.zeros(worlds)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        _, _, turn = drawers.misfit(s, tool)
        way = s["handle_pos_w"] - s[f"{tool}_pos_w"]
        turn = straightening(s[f"{tool}_quat_w"]) - about_up(drawers.least(turn))
        off = way[:, :2].norm(dim=-1)
        there = (way[:, 2].abs() < 0.006) & (off < 0.01)
        closed.copy_(torch.where(there | (closed > 0), closed + 1, closed))
        over = torch.where((off < 0.008) & (turn.norm(dim=-1) < 0.08) | (closed > 0), 0.0, 0.07)
        pull = -0.04 * rotation(s["handle_quat_w"])[:, :, 0] * (s["drawer_pos"] < 0.18)[:, None]
        return moves(task, pace, torch.where((closed > 12)[:, None], pull, way + up(over)), turn, 0.25,
                     torch.where(closed > 0, -1.0, drawers.STRADDLE / 0.02 - 1))

    return act


def arm_track(task: Task, worlds: int) -> Controller:
    """To where the reference will be when the arm, a few control steps behind its targets, has come there."""
    observe: Any = task.observe
    tool, lag = task.robot.tool, 2.0 * task.control_dt

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        ahead = observe.reference(s["mission_time"] + lag + 0.1)
        speed = (observe.reference(s["mission_time"] + lag + 0.14) - ahead) / 0.04 * task.control_dt
        way = observe.reference(s["mission_time"] + lag) - s[f"{tool}_pos_w"]
        return moves(task, pace, 0.3 * way + speed, torch.zeros_like(way), 1.0)

    return act


AWAY, OVER = 0.045, 0.07  # m: behind a cube's push place before the tool goes down, and over the cube until then


def push(task: Task, worlds: int) -> Controller:
    """Over the place behind the cube, down, push along the way to the goal; up and anew where the cube slipped off."""
    tool, down = task.robot.tool, torch.zeros(worlds, dtype=torch.bool)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        cube, goal, place = s["cube_pos_w"], s["goal_pos_w"], s[f"{tool}_pos_w"]
        way = goal[:, :2] - cube[:, :2]
        left = way.norm(dim=-1, keepdim=True)
        ahead = way / left.clamp(min=1e-3)
        aside = torch.stack([-ahead[:, 1], ahead[:, 0]], -1)
        off = place[:, :2] - cube[:, :2]
        along, across = (off * ahead).sum(-1), (off * aside).sum(-1)
        over = cube[:, :2] - (pushes.BEHIND + AWAY) * ahead
        settled = (over - place[:, :2]).norm(dim=-1) < 0.015
        beside = (across.abs() > 0.02) & (left[:, 0] > 0.01) | (along > 0)
        down.copy_((down | settled) & ~beside)
        low = down & (place[:, 2] < cube[:, 2] + 0.012)
        # along the way, and back onto the line through cube and goal: off it the cube turns away
        onwards = left * ahead * (left > 0.004) - 1.5 * across[:, None] * aside
        flat = torch.where(low[:, None], onwards, torch.where(down[:, None], 0 * off, over - place[:, :2]))
        height = torch.where(down, cube[:, 2] - 0.002, cube[:, 2] + OVER) - place[:, 2]
        flat = torch.where((down | (height < 0.02))[:, None], flat, 0 * flat)
        turn = straightening(s[f"{tool}_quat_w"])
        return moves(task, pace, torch.cat([flat, height[:, None]], -1), turn, 0.2)

    return act
