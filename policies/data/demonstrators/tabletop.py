"""Controllers by hand for the tabletop suite, one for each kind of instruction.

A controller goes through phases; a world's phase goes on where what it waits for is so. All read the true signals
``target_pos_w`` and ``place_pos_w``, whatever they are of. Lengths are of things before an arm that reaches a metre;
before a smaller one the signals are enlarged, and the ways made smaller again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from temporeal.policies.data.demonstrators.arms import Controller, about_up, moves, straightening
from temporeal.sim.rotations import rotation
from temporeal.sim.stl.instructions.formulas import CONSTANTS
from temporeal.sim.tabletop.objective import BEHIND, OVER, Objective, asked
from temporeal.sim.tabletop.objects import BAR, HALF, gap_of
from temporeal.sim.task import Task
from temporeal.sim.task_parts.arms.actions import ToolAction

LENGTHS = ("target_pos_w", "place_pos_w", "drawer_pos", "button_pos")
GAIN = 0.3  # of what is left of the way, in a control step
OPEN, CLOSED = 1.0, -1.0
DESCENT = 0.025  # m: of the way down that is seen at most, before pushing: faster targets run ahead of an arm that is
# folded, close to its base, and its tool sticks to the table (a UR5e's did in 6 of 64 episodes)
LOW = 0.03  # m: height at which a tool pushes
AJAR, TURN = -0.25, 0.3  # the gripper while it pushes: 3 cm; rad, of the hand's turn that is seen at most
GRIP_STEPS = 10  # control steps until fingers have closed, or opened: half a second
ABOVE, CARRY = 0.09, 0.13  # m: over what is taken; height at which it is carried, over where it is put
AWAY, CLEARS = 0.035, 0.09  # m: behind what is pushed until the tool is down; height at which it passes over things


def tabletop(task: Task, worlds: int) -> Controller:
    """What each world's instruction asks for."""
    objective = cast(Objective, task.objective)
    acts = {kind: KINDS[kind](task, worlds) for kind in objective.formulas}

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        s = {**s, **{name: s[name] / objective.size for name in (*LENGTHS, f"{task.robot.tool}_pos_w")}}
        return sum((asked(s, kind)[:, None] * one(s, pace) for kind, one in acts.items()),
                   torch.zeros(worlds, task.act.action_dim))

    return act


class Phases:
    """The phase [N] that worlds are in, and for how many steps [N]."""

    def __init__(self, worlds: int) -> None:
        self.now, self.since = torch.zeros(worlds, dtype=torch.long), torch.zeros(worlds)

    def go_on(self, done: Sequence[Tensor]) -> None:
        """To the next phase where that of now is ``done`` ([N] bool of each; the last one stays)."""
        over = self.choose([*done, torch.zeros_like(self.now, dtype=torch.bool)])
        self.now, self.since = self.now + over.long(), torch.where(over, 0.0, self.since + 1.0)

    def choose(self, values: Sequence[Tensor]) -> Tensor:
        """That of ``values`` [N, ...] that belongs to each world's phase."""
        stacked = torch.stack(list(values), 1)
        return stacked[torch.arange(len(self.now)), self.now]


def places(at: Tensor, height: Tensor | float) -> Tensor:
    """``at`` [N, 3] m, at another height."""
    return torch.cat([at[:, :2], torch.as_tensor(height).expand(len(at))[:, None].clone()], -1)


def raised(at: Tensor, by: float) -> Tensor:
    """``at`` [N, 3] m, higher by ``by`` m."""
    return at + torch.tensor([0.0, 0.0, by])


def flat(way: Tensor) -> Tensor:
    """The length [N] of a way along the table."""
    return torch.hypot(way[:, 0], way[:, 1])


def to(
    task: Task, s: Mapping[str, Tensor], pace: Tensor, goal: Tensor, grip: Tensor, about: Tensor | None = None
) -> Tensor:
    """The action that brings the tool to ``goal`` [N, 3] m pointing down, to be turned by ``about`` [N] rad about
    the vertical, with the gripper, where there is one, at ``grip`` [N]."""
    tool, objective, act = task.robot.tool, cast(Objective, task.objective), cast(ToolAction, task.act)
    way, turn = objective.size * (goal - s[f"{tool}_pos_w"]), straightening(s[f"{tool}_quat_w"])
    turn = turn if about is None else turn + about_up(about)
    return moves(task, pace, way, turn, GAIN, *([grip] if act.gripper else []))


def across(quat: Tensor, ahead: Tensor) -> Tensor:
    """The least turn [N] rad about the vertical that lays the fingers of a hand that points down across ``ahead``
    [N, 2]: its x axis, along it or against it."""
    x = rotation(quat)[:, :2, 0]
    sine, cosine = x[:, 0] * ahead[:, 1] - x[:, 1] * ahead[:, 0], (x * ahead).sum(-1)
    return 0.5 * torch.atan2(2 * sine * cosine, cosine.square() - sine.square())


def closed(worlds: int) -> Tensor:
    """The gripper closed in all worlds [N]."""
    return torch.full((worlds,), CLOSED)


def reach(task: Task, worlds: int) -> Controller:
    """Straight to a hand's breadth over the target."""
    return lambda s, pace: to(task, s, pace, raised(s["target_pos_w"], OVER - 0.005), closed(worlds))


def press(task: Task, worlds: int) -> Controller:
    """Over the button, down, up again."""
    tool, phases = task.robot.tool, Phases(worlds)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        top, place = s["target_pos_w"], s[f"{tool}_pos_w"]
        phases.go_on([flat(top - place) < 0.01, s["button_pos"] > CONSTANTS["pressed"] + 0.003])
        goal = phases.choose([raised(top, 0.05), raised(top, -0.03), raised(top, 0.06)])
        return to(task, s, pace, goal, closed(worlds))

    return act


def open_(task: Task, worlds: int) -> Controller:
    """Over the gap behind the handle, down, and pull with a finger."""
    tool, phases = task.robot.tool, Phases(worlds)
    cabinet = next(thing for thing in task.scene.objects if thing.name == "cabinet")
    inwards = rotation(torch.tensor([cabinet.quat]))[0, :, 0]
    behind = (BAR + gap_of(cast(Objective, task.objective).size) / 2 - 0.006) * inwards

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        gap, place = s["target_pos_w"] + behind, s[f"{tool}_pos_w"]
        phases.go_on([flat(gap - place) < 0.008, place[:, 2] < gap[:, 2] - 0.005])
        pulled = s["drawer_pos"] > CONSTANTS["opening"] + 0.015
        ahead = torch.where(pulled, 0.0, -0.06)[:, None] * inwards
        low = places(gap, gap[:, 2] - 0.012)
        return to(task, s, pace, phases.choose([raised(gap, 0.06), low, places(place + ahead, low[:, 2])]),
                  closed(worlds))

    return act


def push(task: Task, worlds: int) -> Controller:
    """Over the place behind the target, down, along the way to its place; up and anew where it slipped off.

    A hand that turns lays its fingers across the way, a little open, so that round things and corners lie between them;
    when it is there it opens as it rises, and what stuck between them stays.
    """
    tool, action = task.robot.tool, cast(ToolAction, task.act)
    wide = bool(action.gripper) and action.tool_dim == 6
    down, there = (torch.zeros(worlds, dtype=torch.bool) for _ in range(2))

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        target, place = s["target_pos_w"], s[f"{tool}_pos_w"]
        way = (s["place_pos_w"] - target)[:, :2]
        left = way.norm(dim=-1, keepdim=True)
        ahead = way / left.clamp(min=1e-3)
        aside = torch.stack([-ahead[:, 1], ahead[:, 0]], -1)
        off = place[:, :2] - target[:, :2]
        along, beside = (off * ahead).sum(-1), (off * aside).sum(-1)
        over = target[:, :2] - (BEHIND + AWAY) * ahead
        settled = (over - place[:, :2]).norm(dim=-1) < 0.015
        there.copy_((left[:, 0] < 0.012) | (there & (left[:, 0] < 0.03)))
        slipped = (beside.abs() > 0.025) | (along > 0)
        down.copy_((down | settled) & ~slipped & ~there)
        low = down & ((place[:, 2] - LOW).abs() < 0.015)
        onwards = 0.7 * left * ahead - 1.5 * beside[:, None] * aside
        sideways = torch.where(low[:, None], onwards, torch.where(down[:, None], 0 * off, over - place[:, :2]))
        height = (torch.where(down, LOW, CLEARS) - place[:, 2]).clamp(min=-DESCENT)
        sideways = torch.where(((down | (height < 0.03)) & ~there)[:, None], sideways, 0 * sideways)
        goal = place + torch.cat([sideways, height[:, None]], -1)
        if not wide:
            return to(task, s, pace, goal, closed(worlds))
        about = torch.where(there, 0.0, across(s[f"{tool}_quat_w"], ahead)).clamp(-TURN, TURN)
        return to(task, s, pace, goal, torch.where(there, OPEN, AJAR), about)

    return act


def taking(s: Mapping[str, Tensor], tool: str, phases: Phases) -> list[Tensor]:
    """What ends the phases of taking the target: over it, down, closed."""
    way = s["target_pos_w"] - s[f"{tool}_pos_w"]
    return [(flat(way) < 0.012) & (way[:, 2] > -ABOVE - 0.03), (way[:, 2].abs() < 0.008) & (flat(way) < 0.012),
            phases.since >= GRIP_STEPS]


def pick(task: Task, worlds: int) -> Controller:
    """Over the target, down, close, up."""
    tool, phases = task.robot.tool, Phases(worlds)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        target, place = s["target_pos_w"], s[f"{tool}_pos_w"]
        phases.go_on(taking(s, tool, phases))
        goal = phases.choose([raised(target, ABOVE), target, target, places(place, CONSTANTS["raised"] + 0.04)])
        return to(task, s, pace, goal, grip_of(phases, OPEN, OPEN, CLOSED, CLOSED))

    return act


def put(task: Task, worlds: int, height: Callable[[Tensor], Tensor]) -> Controller:
    """Take the target, carry it over its place, down, let go, up. ``height``: of the target's middle there [N] m."""
    tool, phases = task.robot.tool, Phases(worlds)

    def act(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        target, place = s["target_pos_w"], s[f"{tool}_pos_w"]
        there = places(s["place_pos_w"], height(s["place_pos_w"]))
        held, over = place - target, raised(there, CARRY)  # how the target hangs between the fingers
        left = there - target
        phases.go_on([*taking(s, tool, phases), target[:, 2] > over[:, 2] - 0.03, flat(left) < 0.008,
                      left[:, 2] > -0.006, phases.since >= GRIP_STEPS])
        goal = phases.choose([raised(target, ABOVE), target, target, places(place, over[:, 2]), over + held,
                              there + held, place, places(place, there[:, 2] + CARRY)])
        return to(task, s, pace, goal, grip_of(phases, OPEN, OPEN, *(CLOSED,) * 4, OPEN, OPEN))

    return act


def grip_of(phases: Phases, *grips: float) -> Tensor:
    """The gripper [N] by phase."""
    return torch.tensor(grips)[phases.now]


def place(task: Task, worlds: int) -> Controller:
    """On the table."""
    return put(task, worlds, lambda at: torch.full_like(at[:, 2], HALF + 0.003))


def stack(task: Task, worlds: int) -> Controller:
    """On what lies there."""
    return put(task, worlds, lambda at: at[:, 2] + CONSTANTS["level"] + 0.003)


KINDS: Mapping[str, Callable[[Task, int], Controller]] = {
    "reach": reach, "push": push, "pick": pick, "place": place, "stack": stack, "open": open_, "press": press}
