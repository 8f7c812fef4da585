"""Controllers by hand for tasks whose goal is a posture of all joints: joint_target, hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.data.demonstrators.arms import Controller
from temporeal.sim.task import Task

GAIN = 0.3  # share of the way made in a control step


def to_goal(task: Task, worlds: int) -> Controller:
    """Each joint straight to its goal."""
    act: Any = task.act

    def controller(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        wanted: Tensor = GAIN * (s["goal_joint_pos"] - s["joint_pos"]) / act.limiter.longest
        return torch.minimum(torch.maximum(wanted, -pace[:, None]), pace[:, None])

    return controller
