"""A frozen base in the worlds of a residual: what it must offer, and what a residual makes of what it does.

    executed = clip(clip(base) + scale * clip(u, -1, 1))

in units of the action, after Ankile et al. 2024 (ResiP, arXiv 2407.16677) and Johannink et al. 2019 (arXiv 1812.03201).
A base that gives commands (one that plays chunks, an artifact) is executed as it commands, moved by as much as the
action map moves between the two actions: so scale 0 is the base, bit for bit, whatever the action map loses.

N worlds, K chosen ones, A action, U numbers of a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from temporeal.sim.maps import Memory
    from temporeal.sim.task import Task
    from temporeal.sim.types import Obs

Signals = Mapping[str, Tensor]


class Acted(NamedTuple):
    """What a base does now: its action [N, A], and the command [N, U] itself where it gives commands."""

    action: Tensor
    command: Tensor | None = None


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

    def after(self, obs: Obs, signals: Signals) -> Tensor:
        """The action [N, A] that would follow in ``obs``, which episodes ended in; for critics that look beyond the
        end. It remembers nothing of it."""

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def corrected(base: Tensor, u: Tensor, scale: float | Tensor) -> Tensor:
    """The action [N, A] that is executed, of the base's and the residual's ``u`` [N, A]."""
    return (base.clamp(-1.0, 1.0) + scale * u.clamp(-1.0, 1.0)).clamp(-1.0, 1.0)


def command_of(task: Task, acted: Acted, action: Tensor, memory: Memory) -> Tensor | None:
    """The command [N, U] of the executed ``action`` [N, A] where the base gives commands; else None: the action map
    knows it. ``memory``: the observation map's, without this step's action."""
    if acted.command is None:
        return None
    moved = mapped(task, action, memory) - mapped(task, acted.action.clamp(-1.0, 1.0), memory)
    command, limits = acted.command + moved, task.robot.command(task.command)
    low, high = command.new_tensor(limits.low), command.new_tensor(limits.high)
    # a base's own command may be beyond: that is sent as it was
    return torch.where(moved == 0.0, acted.command, torch.minimum(torch.maximum(command, low), high)).contiguous()


def mapped(task: Task, action: Tensor, memory: Memory) -> Tensor:
    """The command [N, U] of an action [N, A]."""
    after: Memory = {**memory, **task.observe.record(memory, action)}  # type: ignore[operator]
    return task.act(action, after)


def conditioned(obs: Tensor, base: Tensor, condition: bool) -> Tensor:
    """What the residual sees: the observation [N, O], and the base's action [N, A] behind it."""
    return torch.cat([obs, base.clamp(-1.0, 1.0)], -1) if condition else obs
