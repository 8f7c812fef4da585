"""A base and the corrections of what it does, in the worlds of one environment: training and evaluation alike.

N worlds, K chosen ones, A action, U numbers of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from temporeal.policies.training.residual.base import Acted, FrozenBase, Mixing, Signals, conditioned, corrected
from temporeal.sim.types import Obs, TaskEnv


class CorrectedEnv(TaskEnv, Protocol):
    """The part of :class:`temporeal.sim.env.Env` that a corrected base takes."""

    command_override: Tensor | None
    column: dict[str, Tensor]

    def begin_next(self, obs: Obs, ids: Tensor) -> Obs:
        """Begin the next episodes of the worlds ``ids`` [K]: ``obs`` with their first observations."""


class Correction:
    """What the base does now, and what it becomes.

    Attributes:
        action: [N, A], the base's.
        command: [N, U] where it gives commands, else None.
        offset: [N, U], how far commands are beside the base's by earlier corrections.
    """

    def __init__(self, env: CorrectedEnv, base: FrozenBase) -> None:
        if base.action_dim != env.action_dim:
            raise ValueError(f"{base.title} gives {base.action_dim} numbers of an action, the worlds take "
                             f"{env.action_dim}")
        self.env, self.base, self.mixing = env, base, Mixing(env.task)
        size = env.task.robot.command(env.task.command).size
        self.action = torch.zeros(env.num_worlds, env.action_dim, device=env.device)
        self.command: Tensor | None = None
        self.offset = torch.zeros(env.num_worlds, size, device=env.device)

    def begin(self, ids: Tensor) -> None:
        """The worlds ``ids`` begin an episode."""
        self.base.begin(ids)
        self.offset[ids] = 0.0

    def look(self, obs: Obs, signals: Signals) -> None:
        """Have the base decide what it does now."""
        acted: Acted = self.base.act(obs, signals)
        self.command = acted.command
        if acted.anew is not None:
            self.offset = torch.where(acted.anew[:, None], 0.0, self.offset)
        if acted.action is not None:
            self.action = acted.action
        else:
            assert acted.command is not None
            self.action = self.mixing.stands_for(acted.command, self.offset, memory_of(self.env.column))

    def executed(self, u: Tensor, scale: float) -> Tensor:
        """The action [N, A] to step the worlds with; where the base gives commands they are told the command, too."""
        action = corrected(self.action, u, scale)
        if self.command is not None:
            memory = memory_of(self.env.column)
            self.offset = self.mixing.moved(self.action, action, self.offset, memory)
            self.env.command_override = self.mixing.command(self.command, self.offset).contiguous()
        return action

    def state_dict(self) -> dict[str, Any]:
        """All state but the worlds'."""
        return {"base": self.base.state_dict(), "action": self.action.clone(), "offset": self.offset.clone(),
                "command": None if self.command is None else self.command.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned. ValueError: it is of another base."""
        if set(state) != {"base", "action", "offset", "command"} or state["action"].shape != self.action.shape:
            raise ValueError("it holds no base, or one of other dimensions")
        self.base.load_state_dict(state["base"])
        self.action, self.offset = state["action"].clone(), state["offset"].clone()
        self.command = None if state["command"] is None else state["command"].clone()


def memory_of(column: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The observation map's memory [N, ...] in the ``column`` of an environment."""
    return {name.removeprefix("memory."): value for name, value in column.items() if name.startswith("memory.")}


Policy = Callable[[Tensor], Tensor]
"""What the residual makes of what it sees, [N, O + A] to u [N, A], deterministic."""


def correcting_act(
    env: CorrectedEnv, base: FrozenBase, policy: Policy | None, scale: float, condition: bool
) -> Callable[[Tensor], Tensor]:
    """A policy of one batch of episodes of ``env``, from the observation [N, O] to the executed action [N, A]. Without
    a ``policy``: the base."""
    now, begun = Correction(env, base), False

    @torch.no_grad()
    def act(obs: Tensor) -> Tensor:
        nonlocal begun
        if not begun:
            now.begin(torch.arange(env.num_worlds, device=env.device))
            begun = True
        images = getattr(env, "images", {})
        now.look(Obs(obs, obs, images), env.true_signals())
        u = torch.zeros_like(now.action) if policy is None else policy(conditioned(obs, now.action, condition))
        return now.executed(u, scale)

    return act
