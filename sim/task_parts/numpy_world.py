"""A task for a simulator of one robot in numpy, such as the simulated robot behind ROS 2 topics: its scene, its starts
and the signals that the task adds. Needs torch, in which tasks are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from temporeal.robots.signals import Schema
from temporeal.robots.spec import RobotSpec
from temporeal.sim.task import Constant, Task, load_task
from temporeal.sim.task_files import for_robot


class OneWorld:
    """One world of a task, as in its environment: :meth:`start` draws it, :meth:`added` continues from there.

    Attributes:
        scene: the robot among the task's objects.
        command: what the task's policies give.
        dt: control period, s.
        specs: signals that the task adds, such as a goal.
        steady: whether they stay as the start drew them.
        tellable: whether :meth:`tell` says what starts are for.
        looks: parameters of the pictures that the start drew, such as colours, [count] by name.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.scene, self.command, self.dt = task, task.scene, task.command, task.control_dt
        self.specs: Schema = task.extra.signals if task.extra is not None else {}
        self.steady = task.extra is None or isinstance(task.extra, Constant)
        self.initial, self.tellable = task.initial, hasattr(task.initial, "told")
        self.looks: dict[str, np.ndarray] = {}
        self.carry: dict[str, torch.Tensor] = {}
        self.rng = np.random.default_rng(0)

    def tell(self, sentence: str) -> None:
        """From the next start on the scene is one in which ``sentence`` can be done; ValueError where none is."""
        if not self.tellable:
            raise ValueError(f"task {self.task.name!r} takes no instruction, got {sentence!r}")
        self.initial = self.task.initial.told(sentence)

    def start(self, rng: np.random.Generator) -> dict[str, Any]:
        """A start by signal name, for the simulator, drawn by the task's own distribution."""
        drawn = self.initial(lambda stream, count: _uniform(rng, count))
        shown = self.task.appearance
        self.looks = {} if shown is None else {name: value[0].numpy() for name, value in shown(drawn).items()}
        extra = self.task.extra
        self.rng = rng
        self.carry = {} if extra is None else {
            name: drawn.get(name, torch.zeros(1, *shape)) for name, shape in extra.carry.items()}
        return {key: value[0].numpy() for key, value in drawn.items() if key in self.scene.signals}

    def added(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The task's signals of the next control step, given the simulator's true ones. Called once a step."""
        extra = self.task.extra
        if extra is None:
            return {}
        truth = {key: torch.from_numpy(np.array(value, dtype=np.float32)[None]) for key, value in signals.items()}
        found, self.carry = extra(truth, _uniform(self.rng, extra.chances), self.carry)
        return {key: value[0].numpy() for key, value in found.items()}


def _uniform(rng: np.random.Generator, count: int) -> torch.Tensor:
    return torch.from_numpy(rng.random((1, count), dtype=np.float32))


def of_task(
    name: str, robot: RobotSpec, command: str | None = None, settings: Mapping[str, Any] | None = None
) -> OneWorld:
    """A world of task ``name`` with its ``settings`` (see its ``make``).

    Raises:
        ValueError: the task is another robot's, or its policies give another command than ``command`` (None: any).
    """
    task = load_task(name, **for_robot(name, robot.name, settings or {}))
    if task.robot.name != robot.name:
        raise ValueError(f"task {name!r} is for the robot {task.robot.name!r}, not for {robot.name!r}")
    if command not in (None, task.command):
        raise ValueError(f"policies of task {name!r} give {task.command!r}, not {command!r}")
    return OneWorld(task)
