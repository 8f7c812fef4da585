"""A task's scene and starts for whoever simulates one robot with numpy: the simulated robot behind ROS 2 topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from robots.spec import RobotSpec
from sim.scene import Scene
from sim.task import load_task

Start = Callable[[np.random.Generator], dict[str, Any]]


def of_task(name: str, robot: RobotSpec, command: str | None = None) -> tuple[Scene, Start, str]:
    """Scene of task ``name``, what draws its starts (signals of the scene by name, from a generator), its command.

    Raises:
        ValueError: the task is another robot's, or its policies give another command than ``command`` (None: any).
    """
    task = load_task(name)
    if task.robot.name != robot.name:
        raise ValueError(f"task {name!r} is for the robot {task.robot.name!r}, not for {robot.name!r}")
    if command not in (None, task.command):
        raise ValueError(f"policies of task {name!r} give {task.command!r}, not {command!r}")

    def start(rng: np.random.Generator) -> dict[str, Any]:
        state = task.initial(lambda stream, count: torch.from_numpy(rng.random((1, count), dtype=np.float32)))
        return {key: value[0].numpy() for key, value in state.items() if key in task.scene.signals}

    return task.scene, start, task.command
