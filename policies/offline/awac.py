"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv 2006.09359).

The critics value the policy; the policy is the data's, weighted by the exponential of the advantage over its own
action. No constraint is fitted, so it goes on learning online.

B rows, O observation, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import BoundedActor
from temporeal.policies.nets.ensembles import Quality
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig, bounded_actor
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class AWACConfig(OfflineRLConfig):
    """Settings.

    Args:
        lagrange: lambda, the temperature of the advantage in the policy's weights.
        largest_weight: of a row, relative to the batch's mean.
    """

    lagrange: float = 1.0
    largest_weight: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, lagrange="(0, inf)", largest_weight="(0, inf)")


class AWAC:
    """One gradient step of the critics and of the policy."""

    figures = ("quality_loss", "policy_loss", "quality", "advantage")

    def __init__(self, sizes: Mapping[str, int], config: AWACConfig, generator: torch.Generator) -> None:
        shape = (sizes["obs_dim"], sizes["action_dim"], config.hidden)
        self.config, self.generator, self.updates = config, generator, 0
        self.quality = Quality(*shape, name=config.activation, precision=config.precision)
        self.target = Quality(*shape, name=config.activation, precision=config.precision)
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.quality, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"quality": self.quality, "target": self.target, "actor": self.actor}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """Algorithm 1, lines 6 to 10."""
        config, actor = self.config, self.actor
        with torch.no_grad():
            next_value = self.target(batch.next_obs, self.sampled(actor, batch.next_obs)).amin(0)
            wanted = batch.reward + config.gamma * batch.mask * next_value
        quality_loss = (self.quality(batch.obs, batch.action) - wanted).square().mean(1).sum()
        descend(quality_loss, self.adam)
        with torch.no_grad():
            quality = self.quality(batch.obs, batch.action).amin(0)
            advantage = quality - self.quality(batch.obs, self.sampled(actor, batch.obs)).amin(0)
            # divided by the batch's mean: an estimate of Z(s) of eq. 13 that is the same for all states
            weight = (torch.softmax(advantage / config.lagrange, 0) * len(advantage)).clamp(max=config.largest_weight)
        policy_loss = -(weight * actor.distribution(batch.obs).log_prob(batch.action)).mean()
        descend(policy_loss, self.policy_adam)
        self.average.move(config.target_rate)
        self.updates += 1
        return torch.stack([quality_loss, policy_loss, quality.mean(), advantage.mean()]).detach()

    def sampled(self, actor: BoundedActor, obs: Tensor) -> Tensor:
        """An action [B, A] of the policy for each row, within [-1, 1]."""
        policy = actor.distribution(obs)
        noise = torch.randn(policy.mean.shape, generator=self.generator)
        return policy.sample(noise).clamp(-1.0, 1.0)


def train(data: Transitions, config: AWACConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, AWAC, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, AWACConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, AWACConfig, bounded_actor, device)
