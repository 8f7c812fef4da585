"""Tasks that are formulas, judged over their full horizon.

Training ends an episode as soon as its schedule is late or broken. The formula may still be satisfied in another way,
above all by a policy that chooses its own schedules, so an evaluation never cuts an episode short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from temporeal.sim.task import Objective, Task

Carry = Mapping[str, Tensor]


class FullHorizon:
    """The objective ``inner``, which ends no episode."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.carry, self.privileged_dim = inner, inner.carry, inner.privileged_dim

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self.inner.start(signals, carry)

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (never), next carry."""
        reward, ended, after = self.inner.step(signals, action, carry)
        return reward, ended & ~ended, after

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The critic's additional inputs, [N, P]."""
        return self.inner.privileged(signals, carry)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether the objective calls the episode a success, [N] bool."""
        return self.inner.success(signals, carry)


def to_full_horizon(task: Task) -> Task:
    """``task`` for evaluation: one that is only a formula never terminates; its episodes end by the clock."""
    return replace(task, objective=FullHorizon(task.objective), finite=False) if task.finite else task
