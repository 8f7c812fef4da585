"""Episodes of tasks that are formulas, judged to their end.

Training gives up on an episode as soon as its schedule is late or broken: nothing more is learned from it. The formula
may still be satisfied in another way, above all by a policy that chooses schedules of its own. So it is not cut short
where it is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from temporeal.sim.task import Objective, Task


class Lasting:
    """The objective ``inner``, which ends no episode."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.memory, self.privileged_dim = inner, inner.memory, inner.privileged_dim

    def start(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """Memory after the sample at time 0."""
        return self.inner.start(signals, memory)

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, memory: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [N], terminated [N] (never), next memory."""
        reward, ended, after = self.inner.step(signals, action, memory)
        return reward, ended & ~ended, after

    def privileged(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """What the critic sees besides, [N, P]."""
        return self.inner.privileged(signals, memory)

    def success(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """Whether the objective calls the episode a success, [N] bool."""
        return self.inner.success(signals, memory)


def lasting(task: Task) -> Task:
    """``task`` as it is judged: where it is a formula and nothing else, to the end of its episodes: an end by
    the clock, which is none by the task."""
    return replace(task, objective=Lasting(task.objective), finite=False) if task.finite else task
