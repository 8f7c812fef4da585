"""Rewards of recorded steps by a task's objective, as the environment would have given them. S samples, N episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.sim.task import Objective

StepRewards = Callable[[Mapping[str, Tensor], Tensor], tuple[Tensor, Tensor]]
"""``rewards(signals [S, N, ...], actions [S, N, A])``: reward [S, N] of the step that begins at a sample, and whether
[S, N] it ends the task."""


def by(objective: Objective) -> StepRewards:
    """Rewards of ``objective``, run over padded episodes; a :class:`DataError` names a signal that it misses."""

    @torch.no_grad()
    def rewards(signals: Mapping[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor]:
        samples, count = actions.shape[:2]
        carry = {name: torch.zeros(count, *shape) for name, shape in objective.carry.items()}
        reward, over = torch.zeros(samples, count), torch.zeros(samples, count, dtype=torch.bool)
        try:
            carry = {**carry, **objective.start(_at(signals, 0), carry)}
            for k in range(1, samples):
                reward[k - 1], over[k - 1], after = objective.step(_at(signals, k), actions[k - 1], carry)
                carry = {**carry, **after}
        except KeyError as error:
            raise DataError(f"the reward reads the signal {error.args[0]!r}, which the dataset has not; it has: "
                            f"{', '.join(signals)}") from error
        return reward, over

    return rewards


def _at(signals: Mapping[str, Tensor], k: int) -> dict[str, Tensor]:
    return {name: values[k] for name, values in signals.items()}
