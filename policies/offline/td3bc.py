"""TD3+BC (Fujimoto and Gu 2021, arXiv 2106.06860).

TD3's critics and deterministic policy, with one term more: the policy stays near the data's actions. The critics'
scale is taken out, so that one weight suits all rewards.

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
from temporeal.policies.nets.bounded_actor import smoothed
from temporeal.policies.nets.ensembles import Quality
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend, held
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig, bounded_actor
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class TD3BCConfig(OfflineRLConfig):
    """Settings. Defaults are the paper's (table 3).

    Args:
        alpha: weight of the value against the distance to the data's action; 0: cloning.
        policy_noise: standard deviation of the noise on the target policy's action ...
        noise_clip: ... cut at this.
        policy_every: updates of the critics for one of the policy.
    """

    alpha: float = 2.5
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_every: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, alpha="[0, inf)", policy_noise="[0, inf)", noise_clip="[0, inf)", policy_every="[1, inf)")


class TD3BC:
    """One gradient step of the critics, and each second time of the policy."""

    figures = ("quality_loss", "policy_loss", "quality", "distance")

    def __init__(self, sizes: Mapping[str, int], config: TD3BCConfig, generator: torch.Generator) -> None:
        shape = (sizes["obs_dim"], sizes["action_dim"], config.hidden)
        self.config, self.generator, self.updates = config, generator, 0
        self.quality = Quality(*shape, name=config.activation, precision=config.precision)
        self.target = Quality(*shape, name=config.activation, precision=config.precision)
        self.actor, self.actor_target = bounded_actor(sizes, config), bounded_actor(sizes, config)
        self.adam = Adam(self.quality, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.averages = Average(self.quality, self.target), Average(self.actor, self.actor_target)
        self.modules = {"quality": self.quality, "target": self.target, "actor": self.actor,
                        "actor_target": self.actor_target}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """TD3's critics, then eq. 5 for the policy."""
        config = self.config
        with torch.no_grad():
            action = smoothed(self.actor_target(batch.next_obs), config.policy_noise, config.noise_clip, self.generator)
            next_value = self.target(batch.next_obs, action).amin(0)
            wanted = batch.reward + config.gamma * batch.mask * next_value
        quality_loss = (self.quality(batch.obs, batch.action) - wanted).square().mean(1).sum()
        descend(quality_loss, self.adam)
        self.updates += 1
        # figures are means over all updates
        found = (self.improve(batch) * config.policy_every if self.updates % config.policy_every == 0
                 else torch.zeros(3))
        return torch.cat([quality_loss.detach()[None], found])

    def improve(self, batch: Any) -> Tensor:
        """One step of the policy, and of all averages."""
        action = self.actor(batch.obs)
        with held(self.quality):
            quality = self.quality(batch.obs, action)[0]
        weight = self.config.alpha / quality.detach().abs().mean().clamp(min=1e-8)  # lambda of eq. 5
        distance = (action - batch.action).square().mean()
        loss = distance - weight * quality.mean()
        descend(loss, self.policy_adam)
        for average in self.averages:
            average.move(self.config.target_rate)
        return torch.stack([loss, quality.mean(), distance]).detach()


def train(data: Transitions, config: TD3BCConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, TD3BC, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, TD3BCConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, TD3BCConfig, bounded_actor, device)
