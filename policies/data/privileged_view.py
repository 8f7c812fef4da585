"""What critics are shown of a dataset: the policy's observation, and what the task tells critics alone. S samples, N
episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.episodes.layout import is_picture
from temporeal.policies.data.views import Padded, TaskView

if TYPE_CHECKING:
    from temporeal.sim.task import Task


@dataclass(frozen=True)
class PrivilegedView:
    """Observations that begin with those of the policy.

    Args:
        names: signals that are read: all of the dataset but pictures.
    """

    view: TaskView
    names: tuple[str, ...]

    def check(self, interface: Interface) -> None:
        """As of the policy's view."""
        self.view.check(interface)

    @torch.no_grad()
    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Observations [S, N, O + P] and actions [S, N, A]."""
        objective = self.view.task.objective
        obs, given = self.view(episodes, action)
        carry = {name: torch.zeros(obs.shape[1], *shape) for name, shape in objective.carry.items()}
        told = list[Tensor]()
        try:
            for k in range(len(obs)):
                signals = {name: values[k] for name, values in episodes.signals.items()}
                after = objective.step(signals, given[k - 1], carry)[2] if k else objective.start(signals, carry)
                carry = {**carry, **after}
                told.append(objective.privileged(signals, carry))
        except KeyError as error:
            raise DataError(f"what critics are told reads the signal {error.args[0]!r}, which the dataset has not "
                            "(algo.privileged=false: they see what the policy sees)") from error
        return torch.cat([obs, torch.stack(told)], -1), given

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """Unknown."""
        return ()


def critic_view(task: Task, interface: Interface, privileged: bool) -> TaskView | PrivilegedView:
    """What critics of ``task`` are shown of a dataset of ``interface``."""
    if not (privileged and task.objective.privileged_dim):
        return TaskView(task)
    return PrivilegedView(TaskView(task), tuple(name for name, of in interface.signals.items() if not is_picture(of)))
