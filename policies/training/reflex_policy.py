"""A policy with a reflex: two critics of the risk, the action that makes it small, and which of both acts.

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
    """Two critics of the risk, and the action that makes it small."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int], activation: str, every: int) -> None:
        super().__init__()
        self.every = every
        self.normalizer = Normalizer(obs_dim)
        size = obs_dim + action_dim + 1
        self.critics = nn.ModuleList(mlp(size + action_dim, hidden, 1, activation, 0.1) for _ in range(2))
        self.actor = mlp(size, hidden, action_dim, activation, 0.01)

    def state(self, obs: Tensor, held: Tensor, phase: Tensor) -> Tensor:
        """What all that follows depends on [N, S]: the observation [N, O], what the task wants [N, A], and the share
        of the time that it is held for that has passed, of ``phase`` [N] steps."""
        return torch.cat([self.normalizer(obs), held, phase[:, None] / self.every], -1)

    def logits(self, state: Tensor, action: Tensor) -> Tensor:
        """Of the risk of ``action`` [N, A] as each critic sees it: [2, N]."""
        seen = torch.cat([state, action], -1)
        return torch.stack([critic(seen)[:, 0] for critic in self.critics])

    def risk(self, state: Tensor, action: Tensor) -> Tensor:
        """Risk [N], 0 to 1: the larger of the two."""
        return torch.sigmoid(self.logits(state, action).amax(0))

    def forward(self, state: Tensor, held: Tensor) -> Tensor:
        """The reflex' action [N, A] in [-1, 1]: the task's, changed. Before it has learned anything it is the task's
        (98 % of it), which knows how to fly; anything else would have to learn that first. Squashed and not clipped:
        behind a clip there is no slope that leads back."""
        inner = 0.5 * torch.log((1.0 + 0.98 * held) / (1.0 - 0.98 * held))  # atanh, which the exporter does not know
        return torch.tanh(inner + self.actor(state))


class Choice(NamedTuple):
    """What N robots do at a step."""

    action: Tensor  # [N, A]
    engaged: Tensor  # [N] 1 where it is the reflex'
    risk: Tensor  # [N] of the task's action


def choose(spec: ReflexSpec, risk: Tensor, engaged: Tensor, held: Tensor, reflex: Tensor) -> Choice:
    """The task's action ``held`` [N, A], or the ``reflex`` [N, A]: from a ``risk`` [N] above the threshold on, until
    it is not above ``release``. ``engaged`` [N]: whether it was in charge at the step before."""
    now = (risk > spec.threshold) | ((engaged > 0.5) & (risk > spec.release))
    return Choice(torch.where(now[:, None], reflex, held), now.to(risk.dtype), risk)


class ReflexGraph(PolicyGraph):
    """A policy with its reflex, between raw signals and raw commands.

    ``task``: the policy that gets it. ``fresh``: whether the task network is asked at a step: None, as the phase of
    each robot says; True and False are the two networks of an artifact, of which the runtime takes the one whose turn
    it is.
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
        """Of the task network, and the reflex' own."""
        return self.shapes

    def at(self, fresh: bool) -> ReflexGraph:
        """The network of the steps at which the task network is asked, or of those between."""
        return ReflexGraph(self.task, self.reflex, self.spec, fresh)

    def decide(self, obs: Tensor, carried: Memory) -> tuple[Tensor, Memory]:
        """Action [N, A] for the raw observation [N, O], and what is carried to the next step."""
        wanted, phase = self.want(obs, carried)
        state = self.reflex.state(obs, wanted[HELD], phase)
        found = choose(self.spec, self.reflex.risk(state, wanted[HELD]), carried[ENGAGED], wanted[HELD],
                       self.reflex(state, wanted[HELD]))
        return found.action, {**wanted, PHASE: following(phase, self.spec.every), ENGAGED: found.engaged,
                              RISK: found.risk}

    def want(self, obs: Tensor, carried: Memory) -> tuple[Memory, Tensor]:
        """What the task wants (``held`` [N, A]) with what its network carries, and the phase [N] of this step."""
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
