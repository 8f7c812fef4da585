"""A frozen base in the worlds of a residual: what it must offer, and what a residual makes of what it does.

    executed = clip(clip(base) + scale * clip(u, -1, 1))

in units of the action, after Ankile et al. 2024 (ResiP, arXiv 2407.16677) and Johannink et al. 2019 (arXiv 1812.03201).
A base that gives commands (one that plays chunks, an artifact) is executed as it commands, moved by as much as the
action map moves between the two actions: so scale 0 is the base, bit for bit, whatever the action map loses.

Where actions move a target (:class:`temporeal.sim.maps.StepAction`), corrections of a commanding base are gathered: its
rows of absolute targets would undo each at once. They begin anew where the base looks at the world anew.

N worlds, K chosen ones, A action, U numbers of a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from temporeal.sim.task_parts.arms.actions import EffortAction, RateAction

if TYPE_CHECKING:
    from temporeal.sim.maps import ActionMap, Memory, ObserveMap
    from temporeal.sim.task import Task
    from temporeal.sim.types import Obs

Signals = Mapping[str, Tensor]


class Acted(NamedTuple):
    """What a base does now.

    Args:
        action: [N, A]; None: the one that stands for its command.
        command: [N, U], where it gives commands itself.
        anew: [N] bool, whether that command follows from a new look at the world; None: nowhere.
    """

    action: Tensor | None
    command: Tensor | None = None
    anew: Tensor | None = None


class FrozenBase(Protocol):
    """A policy that does not learn, in N worlds whose episodes end at different times.

    Attributes:
        action_dim: A.
        title: what it is, for messages.
    """

    action_dim: int
    title: str

    def begin(self, ids: Tensor) -> None:
        """The worlds ``ids`` [K] begin an episode: what it remembers of them is as at the start."""

    def act(self, obs: Obs, signals: Signals) -> Acted:
        """What it does now, once in each control step. ``obs`` [N, O], the true ``signals`` [N, ...]."""

    def after(self, obs: Obs, signals: Signals) -> Tensor | None:
        """The action [N, A] that would follow in ``obs``, which episodes ended in, for critics that look beyond the
        end; None where it does not know it. It remembers nothing of it."""

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def corrected(base: Tensor, u: Tensor, scale: float | Tensor) -> Tensor:
    """The action [N, A] that is executed, of the base's and the residual's ``u`` [N, A]."""
    return (base.clamp(-1.0, 1.0) + scale * u.clamp(-1.0, 1.0)).clamp(-1.0, 1.0)


def conditioned(obs: Tensor, base: Tensor, condition: bool) -> Tensor:
    """What the residual sees: the observation [N, O], and the base's action [N, A] behind it."""
    return torch.cat([obs, base.clamp(-1.0, 1.0)], -1) if condition else obs


class Mixing:
    """How commands are corrected, of one task: functions of tensors, in worlds and in the graph of an artifact.

    Attributes:
        gathers: [U] 1 where the action map moves a target, so that corrections add up; else 0.
    """

    def __init__(self, task: Task) -> None:
        limits = task.robot.command(task.command)
        self.act, self.record = task.act, cast("ObserveMap", task.observe).record
        self.low, self.high = torch.tensor(limits.low), torch.tensor(limits.high)
        self.gathers = gathered(task.act, len(limits.low))

    def mapped(self, action: Tensor, memory: Memory) -> Tensor:
        """The command [N, U] of an action [N, A]. ``memory``: the observation map's, before that action."""
        after: Memory = {**memory, **self.record(memory, action)}
        return self.act(action, after)

    def stands_for(self, command: Tensor, offset: Tensor, memory: Memory) -> Tensor:
        """The action [N, A] of a base's ``command`` [N, U], with what was corrected before it, in [-1, 1]."""
        return self.act.inverse(command + offset, memory).clamp(-1.0, 1.0)

    def moved(self, base: Tensor, executed: Tensor, offset: Tensor, memory: Memory) -> Tensor:
        """How far the command is to be beside the base's, [N, U], for the ``executed`` action and the ``base``'s [N,
        A]; ``offset`` [N, U] was so before."""
        step = self.mapped(executed, memory) - self.mapped(base.clamp(-1.0, 1.0), memory)
        return self.gathers.to(step.device) * offset + step

    def command(self, base: Tensor, offset: Tensor) -> Tensor:
        """The ``base``'s command [N, U] with its ``offset`` [N, U], within the limits. What is not moved is the base's
        own, wherever that is."""
        low, high = self.low.to(base.device), self.high.to(base.device)
        return torch.where(offset == 0.0, base, torch.minimum(torch.maximum(base + offset, low), high))


def gathered(act: ActionMap, size: int) -> Tensor:
    """1 where the map moves a target that stays, [U]."""
    found = torch.zeros(size)
    if "target" in getattr(act, "memory", {}) and not isinstance(act, (RateAction, EffortAction)):
        found[: getattr(act, "joints", size)] = 1.0  # a gripper is commanded where it is to be
    return found
