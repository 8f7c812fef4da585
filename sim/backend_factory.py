"""Backends by name: which there are, which suits a robot, and how one is made for a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, cast

from temporeal.robots.registry import UnknownName, names, resolve
from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.tool_servo import commanded
from temporeal.sim.task import Task
from temporeal.sim.types import Backend

AUTO = "auto"
OF_KIND = {"quadrotor": "quadrotor", "planar": "planar"}
"""Backend by kind of robot, where one of our own simulates it."""


@dataclass(frozen=True)
class BackendConfig:
    """Which backend simulates a task, and where.

    Args:
        name: a module of ``sim/backends``; ``auto``: :func:`backend_for` the task's robot.
        num_worlds: simulated at once. ``threads``: of the CPU; 0: as many as there are cores.
        options: what the backend's own ``make`` takes besides.
    """

    name: str = AUTO
    num_worlds: int = 1024
    device: str = "cpu"
    threads: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def backend_names() -> list[str]:
    """The backends: the modules of ``sim/backends``, found without importing them."""
    return names("temporeal.sim.backends")


def backend_for(robot: RobotSpec) -> str:
    """The backend that simulates ``robot`` where none is named: our own, or MuJoCo."""
    return OF_KIND.get(robot.kind, "mujoco")


def make_backend(task: Task, config: BackendConfig, seed: int = 0) -> Backend:
    """The worlds of ``task``."""
    if not isinstance(config.num_worlds, Integral) or config.num_worlds < 1:
        raise ValueError(f"num_worlds is a whole number from 1, got {config.num_worlds!r}")
    if (make := getattr(task.scene, "make_worlds", None)) is not None:  # of another library, which simulates it itself
        if config.name != AUTO:
            raise ValueError(f"task {task.name!r} is simulated by the library that it is from: take backend=auto, got "
                             f"backend={config.name}")
        return cast(Backend, make(config.num_worlds, task.command, dt=task.control_dt, seed=seed))
    name = backend_for(task.robot) if config.name == AUTO else config.name
    if name not in backend_names():
        raise UnknownName(f"no backend {name!r}; known: {', '.join(backend_names())}")
    return commanded(resolve("temporeal.sim.backends", name).make(
        task.scene, config.num_worlds, task.command, dt=task.control_dt / task.substeps, device=config.device,
        seed=seed, threads=config.threads, **config.options))
