"""Record what the observation map is given: an artifact under evaluation reads the measured signals itself.

    env = make_env(with_recorder(task), num_worlds=1000)
    obs = env.reset()
    measured(env)["base_pos_w"]         # [1000, 3] as the sensors gave it: noise, bias and delay included

The signals are kept in the memory of the observation map, which environments carry from step to step whether or not
their maps are compiled. """

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

if TYPE_CHECKING:
    import numpy as np

    from temporeal.sim.env import Env
    from temporeal.sim.maps import Memory, ObserveMap
    from temporeal.sim.task import Task

PREFIX = "measured."  # of the names of the memory that holds the signals


class MeasurementRecorder(nn.Module):
    """The observation map ``observe``, with its input signals kept in memory. ``shapes``: of the recorded signals."""

    def __init__(self, observe: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.inner = observe
        inner = self.map
        self.signals, self.obs_dim = tuple(shapes), inner.obs_dim
        self.memory = {**inner.memory, **{f"{PREFIX}{name}": shape for name, shape in shapes.items()}}

    @property
    def map(self) -> ObserveMap:
        """The map whose input is recorded."""
        return cast("ObserveMap", self.inner)

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """The observation, and the memory with the signals that it was made of."""
        obs, after = self.map(signals, own(memory))
        return obs, {**after, **{f"{PREFIX}{name}": signals[name] for name in self.signals}}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered."""
        return {**memory, **self.map.record(own(memory), action)}


def own(memory: Memory) -> Memory:
    """The memory of the inner map."""
    return {name: value for name, value in memory.items() if not name.startswith(PREFIX)}


def with_recorder(task: Task, also: Iterable[str] = ()) -> Task:
    """``task`` whose environments record what is measured, for :func:`measured`.

    ``also``: signals of the task that an artifact reads and the task's own observation map does not.
    """
    observe: Any = task.observe
    names = dict.fromkeys((*observe.signals, *(name for name in also if name in task.schema)))
    return replace(task, observe=MeasurementRecorder(task.observe, {name: task.schema[name].shape for name in names}))


def measured(env: Env) -> dict[str, np.ndarray]:
    """The signals [N, ...] that the newest observations were made of; ``env`` is of a :func:`with_recorder` task."""
    return {name: env.column[f"memory.{PREFIX}{name}"].cpu().numpy() for name in env.task.observe.signals}
