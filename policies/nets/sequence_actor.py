"""An actor that decides on several actions at once, and again after some of them. N worlds, O observation, A action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.ensembles import Ensemble


class SequenceActor(nn.Module):
    """Observation [N, O] to J actions, each a normal distribution squashed by tanh (``net``: their means beside the
    logarithms of their spreads, action by action [N, J 2A]). Deployed it looks once in ``every`` control steps, and
    plays the actions that it then decided on: those to come, and how many were played, are its ``hidden`` state
    [N, 1 + J A].
    """

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], length: int, every: int, precision: str = "float32"
    ) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, hidden, length * 2 * action_dim, name="relu", last_gain=0.01,
                            precision=precision)
        self.action_dim, self.length, self.every = action_dim, length, every
        self.hidden_dim = 1 + length * action_dim

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Deterministic action [N, A] and the next hidden state."""
        return self.played(self.decided(obs), hidden)

    def decided(self, obs: Tensor) -> Tensor:
        """The deterministic actions [N, J A] that an observation leads to."""
        outputs = self.net(obs)[0].unflatten(-1, (self.length, 2 * self.action_dim))
        return torch.tanh(outputs[..., : self.action_dim]).flatten(-2)

    def played(self, fresh: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The action [N, A] to play and the next hidden state; ``fresh`` [N, J A]: what would be decided now."""
        age = hidden[:, :1]
        actions = torch.where(age > 0.5, hidden[:, 1:], fresh)
        rest = nn.functional.pad(actions[:, self.action_dim :], (0, self.action_dim))
        after = torch.where(age + 1.5 > self.every, 0.0, age + 1.0)
        return actions[:, : self.action_dim], torch.cat([after, rest], -1)


class Remembering(nn.Module):
    """A :class:`SequenceActor` that looks once in ``every`` steps and keeps its own hidden state: for N worlds that all
    begin with the first call."""

    def __init__(self, actor: SequenceActor, every: int) -> None:
        super().__init__()
        self.actor, self.every, self.hidden, self.time = actor, every, torch.zeros(0), 0

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [N, A]."""
        if not self.time:
            self.hidden = obs.new_zeros(len(obs), self.actor.hidden_dim)
        if not self.time % self.every:
            self.hidden = torch.cat([torch.zeros_like(self.hidden[:, :1]), self.actor.decided(obs)], -1)
        self.time += 1
        first, size = 1 + (self.time - 1) % self.every * self.actor.action_dim, self.actor.action_dim
        return self.hidden[:, first : first + size]
