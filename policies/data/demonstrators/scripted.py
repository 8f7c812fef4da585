"""Which experts there are, by task, and the sentence that a person would say to ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np

from temporeal.policies.data.demonstrators.arms import Controller
from temporeal.sim.adapters.vocabularies import vocabulary_of
from temporeal.sim.task import Task

HERE = "temporeal.policies.data.demonstrators"
EXPERTS: Mapping[str, tuple[str, str]] = {
    "reach": (f"{HERE}.arms", "reach"), "lift": (f"{HERE}.arms", "lift"), "push": (f"{HERE}.arms", "push"),
    "peg": (f"{HERE}.arms", "peg"), "drawer": (f"{HERE}.arms", "drawer"), "arm_track": (f"{HERE}.arms", "arm_track"),
    "joint_target": (f"{HERE}.joints", "to_goal"), "hold": (f"{HERE}.joints", "to_goal"),
    "hover": (f"{HERE}.quadrotors", "hover"), "waypoints": (f"{HERE}.quadrotors", "waypoints"),
    "track": (f"{HERE}.quadrotors", "track"), "tabletop": (f"{HERE}.tabletop", "tabletop"),
    "metaworld": ("temporeal.sim.adapters.meta_world", "expert"),
    "ogbench": ("temporeal.sim.adapters.ogbench", "expert")}
"""Module and function by task: ``function(task, worlds) -> Controller``."""

SENTENCES: Mapping[str, str] = {
    "reach": "bring the gripper to the goal", "lift": "lift the cube to the goal",
    "push": "push the cube to the goal", "peg": "put the peg into the hole", "drawer": "open the drawer",
    "arm_track": "follow the figure eight with the tool", "joint_target": "bring the joints to their goal",
    "hold": "keep the joints where they are", "hover": "hover at home",
    "waypoints": "fly to A, then to B, then stay at C", "track": "fly the figure eight",
    "tabletop": "do what the instruction of the episode says"}


def scripted(task: Task) -> Callable[[int], Controller]:
    """``make(worlds) -> Controller`` of the expert for ``task``, to be made anew for each batch of episodes."""
    if task.name not in EXPERTS:
        raise ValueError(f"task {task.name!r} has no expert by hand: name a trained one, expert=outputs/train/RUN; by "
                         f"hand there are those of {', '.join(EXPERTS)}")
    module, function = EXPERTS[task.name]
    make = getattr(import_module(module), function)
    return lambda worlds: make(task, worlds)


def said(task: Task, instruction: np.ndarray | None, worlds: int) -> list[str]:
    """The sentence of each episode: the one whose word numbers [N, L] are its signal ``instruction``, else the task's
    (:func:`sentence`)."""
    if instruction is None:
        return [sentence(task)] * worlds
    words = vocabulary_of(task.name)
    return [words.decode(row) for row in np.asarray(instruction).astype(np.int32)]


def sentence(task: Task) -> str:
    """The instruction in words: the task's own (``instruction``), else of :data:`SENTENCES`, else its name."""
    return str(getattr(task.scene, "instruction", "") or SENTENCES.get(task.name, task.name.replace("_", " ")))
