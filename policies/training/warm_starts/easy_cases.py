"""A generalist that stays as it is on easy cases, and specialists that act where they are surely better.

R2SE (Liu et al. 2025, arXiv 2506.09800) refines a generalist by specialists of its hard cases, and asks the uncertainty
of an ensemble which of them may act: what was easy is not touched. Here an ensemble of K judges learns, of each policy,
how likely an episode fails from an observation on; m_i and s_i are the mean and the deviation over the ensemble:

    a specialist i acts where   m_i + w s_i + margin < m_0 - w s_0,   of several the one with the least m_i + w s_i

Elsewhere the action is the generalist's, bit for bit. N worlds, O observation, A action, M policies, 0 of which is the
generalist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.members import Members
from temporeal.policies.nets.normalizer import Normalizer


class Judges(nn.Module):
    """Ensemble of K networks: an observation [N, O] to the chance [K, N, M] that an episode fails under each policy."""

    def __init__(self, obs_dim: int, policies: int, members: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_dim, limit=5.0)
        self.net = Members(members, obs_dim, hidden, policies, name="silu")

    def logits(self, obs: Tensor) -> Tensor:
        """[K, N, M]; ``obs`` [N, O], or [K, N, O] of its own for each."""
        found: Tensor = self.net(self.normalizer(obs))
        return found

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation [N, M] of the chance to fail."""
        chance = self.logits(obs).sigmoid()
        mean = chance.mean(0)
        return mean, (chance - mean).square().mean(0).sqrt()


class OnePolicy(nn.Module):
    """A feed-forward actor with the normalizer that it was trained with: raw observations to actions."""

    def __init__(self, normalizer: Normalizer, actor: nn.Module) -> None:
        super().__init__()
        self.normalizer, self.actor = normalizer, actor

    def forward(self, obs: Tensor) -> Tensor:
        """[N, A]."""
        found: Tensor = self.actor(self.normalizer(obs))
        return found


class Switch(nn.Module):
    """Who acts, by the judges: an actor of raw observations.

    Args:
        policies: the generalist first.
        width: w. margin: by which a specialist must be better.
    """

    hidden_dim = 0

    def __init__(self, policies: Sequence[OnePolicy], judges: Judges, width: float, margin: float) -> None:
        super().__init__()
        self.policies, self.judges = nn.ModuleList(policies), judges
        self.width, self.margin = width, margin

    def forward(self, obs: Tensor) -> Tensor:
        """The action [N, A]."""
        generalist, *specialists = self.policies
        rows = obs.reshape(-1, obs.shape[-1])
        action: Tensor = generalist(rows)
        mean, spread = self.judges(rows)
        least = mean[:, 0] - self.width * spread[:, 0] - self.margin
        for i, policy in enumerate(specialists, 1):
            most = mean[:, i] + self.width * spread[:, i]
            action = torch.where((most < least)[:, None], policy(rows), action)
            least = torch.minimum(most, least)
        return action.reshape(*obs.shape[:-1], -1)

    @torch.no_grad()
    def who(self, obs: Tensor) -> Tensor:
        """Who acts, int64 [N]: 0 the generalist."""
        judged: tuple[Tensor, Tensor] = self.judges(obs)
        mean, spread = judged
        most = mean + self.width * spread
        most[:, 0] = mean[:, 0] - self.width * spread[:, 0] - self.margin
        return most.argmin(1)


def untouched(size: int) -> Normalizer:
    """A normalizer that changes nothing: each policy has its own."""
    return Normalizer(size, limit=math.inf)


def judged_loss(judges: Judges, obs: Tensor, who: Tensor, failed: Tensor) -> Tensor:
    """Cross entropy [] of what was flown, each row by the policy that flew it: ``obs`` [K, B, O], ``who`` and
    ``failed`` [K, B]; each judge has rows of its own."""
    found = judges.logits(obs).gather(-1, who[..., None])[..., 0]
    return nn.functional.binary_cross_entropy_with_logits(found, failed)
