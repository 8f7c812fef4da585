"""The demonstrators by hand for the arm tasks (:mod:`temporeal.policies.data.demonstrators.arms`), at full pace. They
prove feasibility.

    act = EXPERTS["lift"](task, worlds)
    step = env.step(act(env.true_signals()))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.data.demonstrators import arms
from temporeal.policies.data.demonstrators.arms import about_up
from temporeal.sim.task import Task

Expert = Callable[[Mapping[str, Tensor]], Tensor]


def at_full_pace(make: Callable[..., arms.Controller], task: Task, worlds: int, *how: Any, **named: Any) -> Expert:
    act = make(task, worlds, *how, **named)
    return lambda signals: act(signals, torch.ones(worlds))


def moves(task: Task, way: Tensor, turn: Tensor, gain: float, *gripper: Tensor) -> Tensor:
    return arms.moves(task, torch.ones(len(way)), way, turn, gain, *gripper)


EXPERTS = {name: partial(at_full_pace, getattr(arms, name)) for name in ("reach", "lift", "push", "peg", "drawer")}
peg_expert = EXPERTS["peg"]

__all__ = ["EXPERTS", "about_up", "moves", "peg_expert"]
