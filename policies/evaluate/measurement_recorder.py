"""What the observation map was given, for those who ask: an artifact that is judged reads the measured signals itself.

    env = make_env(witnessed(task), num_worlds=1000)
    obs = env.reset()
    measured(env)["base_pos_w"]         # [1000, 3] as sensors gave it: noise, bias and delay included

They are kept as memory of the observation map, which environments carry from step to step whether their maps are
compiled or not.
"""

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

KEPT = "measured."  # begins the names of the memory in which signals are kept


class Witness(nn.Module):
    """The observation map ``observe`` that keeps what it is given. ``shapes``: of the signals that are kept."""

    def __init__(self, observe: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.inner = observe
        inner = self.map
        self.signals, self.obs_dim = tuple(shapes), inner.obs_dim
        self.memory = {**inner.memory, **{f"{KEPT}{name}": shape for name, shape in shapes.items()}}

    @property
    def map(self) -> ObserveMap:
        """The map that is witnessed."""
        return cast("ObserveMap", self.inner)

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """The observation, and the memory with the signals that it was made of."""
        obs, after = self.map(signals, own(memory))
        return obs, {**after, **{f"{KEPT}{name}": signals[name] for name in self.signals}}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered."""
        return {**memory, **self.map.record(own(memory), action)}


def own(memory: Memory) -> Memory:
    """The memory of the map that is witnessed."""
    return {name: value for name, value in memory.items() if not name.startswith(KEPT)}


def witnessed(task: Task, also: Iterable[str] = ()) -> Task:
    """``task`` whose environments keep what was measured: for :func:`measured`. ``also``: signals of the task that its
    own observation map does not read, and an artifact does."""
    observe: Any = task.observe
    names = dict.fromkeys((*observe.signals, *(name for name in also if name in task.schema)))
    return replace(task, observe=Witness(task.observe, {name: task.schema[name].shape for name in names}))


def measured(env: Env) -> dict[str, np.ndarray]:
    """The signals [N, ...] of which the newest observations were made. ``env`` is of a :func:`witnessed` task."""
    return {name: env.column[f"memory.{KEPT}{name}"].cpu().numpy() for name in env.task.observe.signals}
