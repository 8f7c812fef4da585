"""A policy with a reflex: two critics of the risk, the action that minimizes it, and the choice between both.

N worlds, O observation, A action, S = O + A + 1 state of the reflex.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError
from temporeal.robots.artifact.manifest import ENGAGED, HELD, PHASE, RISK, ReflexSpec
from temporeal.sim.maps import Memory, PolicyGraph


class Reflex(nn.Module):
    """Two critics of the risk, and the action that minimizes it."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int], activation: str, every: int) -> None:
        super().__init__()
        self.every = every
        self.normalizer = Normalizer(obs_dim)
        size = obs_dim + action_dim + 1
        self.critics = nn.ModuleList(mlp(size + action_dim, hidden, 1, activation, 0.1) for _ in range(2))
        self.actor = mlp(size, hidden, action_dim, activation, 0.01)

    def state(self, obs: Tensor, held: Tensor, phase: Tensor) -> Tensor:
        """The reflex' state [N, S]: the observation [N, O], the task's action [N, A], and the elapsed share of its hold
        time, at ``phase`` [N] steps."""
        return torch.cat([self.normalizer(obs), held, phase[:, None] / self.every], -1)

    def logits(self, state: Tensor, action: Tensor) -> Tensor:
        """Logits [2, N] of the risk of ``action`` [N, A], one row per critic."""
        seen = torch.cat([state, action], -1)
        return torch.stack([critic(seen)[:, 0] for critic in self.critics])

    def risk(self, state: Tensor, action: Tensor) -> Tensor:
        """Risk [N], 0 to 1: the larger of the two."""
        return torch.sigmoid(self.logits(state, action).amax(0))

    def forward(self, state: Tensor, held: Tensor) -> Tensor:
        """The reflex' action [N, A] in [-1, 1]: a change of the task's action.

        Untrained it is (98 % of) the task's action, which already flies; any other start would have to learn that
        first. It is squashed, not clipped: clipping has no gradient that leads back.
        """
        inner = 0.5 * torch.log((1.0 + 0.98 * held) / (1.0 - 0.98 * held))  # atanh, which the exporter does not know
        return torch.tanh(inner + self.actor(state))


class Choice(NamedTuple):
    """The choice of N robots at a step."""

    action: Tensor  # [N, A]
    engaged: Tensor  # [N] 1 where it is the reflex'
    risk: Tensor  # [N] of the task's action


def choose(spec: ReflexSpec, risk: Tensor, engaged: Tensor, held: Tensor, reflex: Tensor) -> Choice:
    """The ``reflex`` [N, A] from a ``risk`` [N] above the threshold until it falls to ``release``; else the task's
    action ``held`` [N, A]. ``engaged`` [N]: the reflex acted at the step before."""
    now = (risk > spec.threshold) | ((engaged > 0.5) & (risk > spec.release))
    return Choice(torch.where(now[:, None], reflex, held), now.to(risk.dtype), risk)


class ReflexGraph(PolicyGraph):
    """A policy with its reflex, between raw signals and raw commands.

    ``task``: the policy it protects. ``fresh``: whether the task network is evaluated at a step. None: by the phase of
    each robot; True and False are the two networks of an artifact, of which the runtime uses the one whose turn it is.
    """

    def __init__(
        self, task: PolicyGraph, reflex: Reflex, spec: ReflexSpec, fresh: bool | None = None
    ) -> None:
        super().__init__(task.observe, task.normalizer, task.actor, task.act)
        self.task, self.reflex, self.spec, self.fresh = task, reflex, spec, fresh
        own = {HELD: (task.act.action_dim,), PHASE: (), ENGAGED: (), RISK: ()}
        if both := set(own) & set(task.memory):
            raise SettingsError(f"the policy has memory of the reflex' names: {', '.join(sorted(both))}")
        self.shapes: dict[str, tuple[int, ...]] = {**task.carried, **own}

    @property
    def carried(self) -> dict[str, tuple[int, ...]]:
        """Carried state of the task network, and the reflex' own."""
        return self.shapes

    def at(self, fresh: bool) -> ReflexGraph:
        """The network of the steps at which the task network is evaluated, or of those between."""
        return ReflexGraph(self.task, self.reflex, self.spec, fresh)

    def decide(self, obs: Tensor, carried: Memory) -> tuple[Tensor, Memory]:
        """Action [N, A] for the raw observation [N, O], and the carried state."""
        wanted, phase = self.want(obs, carried)
        state = self.reflex.state(obs, wanted[HELD], phase)
        found = choose(self.spec, self.reflex.risk(state, wanted[HELD]), carried[ENGAGED], wanted[HELD],
                       self.reflex(state, wanted[HELD]))
        return found.action, {**wanted, PHASE: following(phase, self.spec.every), ENGAGED: found.engaged,
                              RISK: found.risk}

    def want(self, obs: Tensor, carried: Memory) -> tuple[Memory, Tensor]:
        """The task's action (``held`` [N, A]) with its network's carried state, and the phase [N] of this step."""
        before = {name: carried[name] for name in (*self.task.carried, HELD)}
        if self.fresh is False:
            return before, carried[PHASE]
        action, after = self.task.decide(obs, before)
        after = {**after, HELD: action.clamp(-1.0, 1.0)}
        if self.fresh or self.spec.every == 1:
            return after, 0.0 * carried[PHASE]
        due = carried[PHASE] < 0.5
        return {k: torch.where(due.reshape(-1, *[1] * (v.ndim - 1)), v, before[k]) for k, v in after.items()}, carried[
            PHASE]


def following(phase: Tensor, every: int) -> Tensor:
    """The phase [N] of the next step."""
    return torch.where(phase + 1.0 > every - 0.5, 0.0 * phase, phase + 1.0)
