"""ReBRAC (Tarasov et al. 2023, arXiv 2305.09836).

TD3+BC with what later work found to matter: LayerNorm in the critics, three hidden layers, and the distance to the
data's actions as a penalty of the policy *and* of the critics' targets, each with a weight of its own.

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
from temporeal.policies.training.offline.trajectories import next_actions
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class ReBRACConfig(OfflineRLConfig):
    """Settings. The paper chooses the two weights per dataset (tables 6 to 9); these lie in the middle of its grid.

    Args:
        actor_penalty: beta 1, of the squared distance to the data's action in the policy's loss.
        critic_penalty: beta 2, of that of the next action in the critics' targets.
        policy_noise: standard deviation of the noise on the target policy's action ...
        noise_clip: ... cut at this.
        policy_every: updates of the critics for one of the policy.
    """

    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (256, 256, 256)
    actor_penalty: float = 0.05
    critic_penalty: float = 0.01
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_every: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, actor_penalty="[0, inf)", critic_penalty="[0, inf)", policy_noise="[0, inf)",
                noise_clip="[0, inf)", policy_every="[1, inf)")


class ReBRAC:
    """One gradient step of the critics, and each second time of the policy."""

    figures = ("quality_loss", "policy_loss", "quality", "distance")

    def __init__(self, sizes: Mapping[str, int], config: ReBRACConfig, generator: torch.Generator) -> None:
        shape = (sizes["obs_dim"], sizes["action_dim"], config.hidden)
        self.config, self.generator, self.updates = config, generator, 0
        self.quality = Quality(*shape, name=config.activation, layer_norm=True)
        self.target = Quality(*shape, name=config.activation, layer_norm=True)
        self.actor, self.actor_target = bounded_actor(sizes, config), bounded_actor(sizes, config)
        self.adam = Adam(self.quality, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.averages = Average(self.quality, self.target), Average(self.actor, self.actor_target)
        self.modules = {"quality": self.quality, "target": self.target, "actor": self.actor,
                        "actor_target": self.actor_target}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """Equation 5 for the critics, equation 4 for the policy."""
        config = self.config
        with torch.no_grad():
            action = smoothed(self.actor_target(batch.next_obs), config.policy_noise, config.noise_clip, self.generator)
            apart = (action - batch.next_action).square().sum(-1) * batch.has_next
            next_value = self.target(batch.next_obs, action).amin(0) - config.critic_penalty * apart
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
            quality = self.quality(batch.obs, action).amin(0)
        scale = 1.0 / quality.detach().abs().mean().clamp(min=1e-8)
        distance = (action - batch.action).square().sum(-1).mean()
        loss = self.config.actor_penalty * distance - scale * quality.mean()
        descend(loss, self.policy_adam)
        for average in self.averages:
            average.move(self.config.target_rate)
        return torch.stack([loss, quality.mean(), distance]).detach()


def train(data: Transitions, config: ReBRACConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    action, there = next_actions(data)
    return reinforcement.learn(data, config, ReBRAC, out=out, seed=seed,
                               more={"next_action": action, "has_next": there}, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, ReBRACConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, ReBRACConfig, bounded_actor, device)
