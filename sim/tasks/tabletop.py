"""Tabletop: an arm does what a sentence asks for, among things that other sentences ask for. A Franka by default.

Reach, push, pick, place, stack, open, press: what these mean is :mod:`temporeal.sim.stl.instructions`, where every
instruction is a formula. Each episode draws an instruction, a wording and a scene of two cubes, a ball and a cylinder
in colours, a tray and a plate, two zones, a drawer and a button. Actions move the tool and open or close the gripper
(:class:`temporeal.sim.task_parts.arms.actions.ToolAction`), at 20 Hz.

The observation map tells where target and place are: policies that see pictures and read the sentence take the signals
``front_rgb``, ``wrist_rgb`` and ``instruction`` instead (docs/how-to/tabletop.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.stl.instructions import formulas
from temporeal.sim.stl.instructions.grammar import KINDS
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.tabletop.objective import (
    FINGERED,
    TAKEN,
    KindTrackers,
    Objective,
    Reward,
    asked,
    kinds_in,
    way_to_begin,
)
from temporeal.sim.tabletop.objects import scene_of, size_of
from temporeal.sim.tabletop.scenes import Start, appearance, choices, ready
from temporeal.sim.tabletop.signals import Asked
from temporeal.sim.task import Task, task_schema, weights
from temporeal.sim.task_parts.arms.arm import JOINTS, Arm, arm, arm_action, grasping_arm
from temporeal.sim.task_parts.arms.observations import ArmObserve

CONSTANTS: dict[str, Any] = formulas.constants()
POSITIVE = tuple(CONSTANTS)
TOOL_SPEED, TOOL_TURN = 0.4, 1.5  # m/s, rad/s at action 1
LEASH = 0.1  # rad: without it targets ran 0.5 rad past a drawer that was open, and 3 rad past what was stuck

READS = ("kind", "target_pos_w", "place_pos_w", "drawer_pos", "button_pos")
SIZE = 3 + 3 + 3 + len(KINDS) + 2


def seen(signals: Mapping[str, Tensor], tool: str = "grip", size: float = 1.0) -> Tensor:
    """What a policy from states sees of the task [N, SIZE]: the ways to the target, to where to begin, and the
    target's to its place; the kind; how far drawer and button are."""
    target = signals["target_pos_w"]
    kind = torch.stack([asked(signals, k) for k in KINDS], -1)
    ways = [5 * (target - signals[f"{tool}_pos_w"]), 5 * way_to_begin(signals, tool, size),
            5 * (signals["place_pos_w"] - target)]
    return torch.cat([*ways, kind, 10 * signals["drawer_pos"][:, None], 50 * signals["button_pos"][:, None]], -1)


def make(
    *, robot: str = "franka", kinds: str = "all", split: str = "train", constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.05, substeps: int = 16, episode_s: float | None = None,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm with a tool. ``reach``, ``push`` and ``press`` are for any; ``open`` hooks a finger behind a
            handle, and ``pick``, ``place`` and ``stack`` take fingers that slide, and six joints. Before an arm that is
            smaller than a metre all lengths are smaller, those of the formula too.
        kinds: what is asked for, as in ``reach+push``; ``all``: every kind.
        split: ``train``; ``held_out_combinations``: colours, shapes and places together that training never gives;
            ``held_out_wordings``: instructions of training in wordings that it never has.
        episode_s: s; None: what the longest kind takes.
    """
    named = kinds_in(kinds)
    of, command = handling_arm(robot, named)
    tool, size, scene, extra = of.robot.tool, size_of(of), scene_of(of), Asked()
    constants = {**{name: size * length for name, length in CONSTANTS.items()}, **dict(constants or {})}
    act = arm_action(of, command, control_dt, of.motion(TOOL_SPEED, TOOL_TURN, leash=LEASH), ready(of))
    names, text = task_schema(scene, extra), formulas.suite_text(named, tool)
    own = {kind: parse(formulas.kind_text(kind, tool), names, constants) for kind in named}
    return Task(
        name="tabletop", scene=scene, command=command, control_dt=control_dt, substeps=substeps,
        episode_s=formulas.horizon_s(named) if episode_s is None else episode_s,
        formula=parse(text, names, constants), formula_text=text, constants=constants,
        observe=ArmObserve(of, act, READS, partial(seen, tool=tool, size=size), SIZE, ready(of)), act=act,
        objective=Objective(KindTrackers(own, control_dt), weights(Reward, reward), act.action_dim, tool, size),
        initial=Start(of, choices(named, split)), extra=extra, stop="hold", appearance=appearance)


def handling_arm(robot: str, kinds: Sequence[str]) -> tuple[Arm, str]:
    """The arm and the command that it takes; ValueError where it lacks what one of ``kinds`` needs."""
    of = arm("tabletop", robot)
    gripper, fingers = of.robot.gripper, [kind for kind in kinds if kind in FINGERED]
    if gripper is None and fingers:
        raise ValueError(f"task 'tabletop': kinds {', '.join(fingers)} need fingers, and robot {robot!r} names no "
                         f"gripper: {without(FINGERED)}, or say gripper: in its spec.yaml")
    if set(kinds) & set(TAKEN):
        try:
            grasping_arm("tabletop", robot)
        except ValueError as error:
            raise ValueError(f"{error}; {without(TAKEN)} take nothing between the fingers") from error
    return of, JOINTS if gripper is None else gripper.command


def without(refused: Sequence[str]) -> str:
    """The setting of all kinds but those that are ``refused``."""
    return f"task.settings.kinds={'+'.join(kind for kind in KINDS if kind not in refused)}"
