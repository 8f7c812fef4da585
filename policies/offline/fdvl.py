"""f-DVL: in-sample dual value learning (Sikchi, Zheng, Zhang and Niekum, ICLR 2024, arXiv 2302.08560).

Implicit Q-learning with another loss of V: the dual of offline reinforcement learning under an f-divergence gives an
implicit maximizer of Q over the data's actions, ``(1 - lambda) V + lambda f*(Q - V)``, whose slope is bounded where
extreme Q-learning's exponential explodes.

* ``tv`` (total variation): f*(d) = max(d, 0). V is the quantile of Q at level 1 - (1 - lambda) / lambda.
* ``chi2`` (Pearson): f*(d) = d + d^2 / 4 for d > 0, else 0.

B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.ensembles import Quality, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig, bounded_actor
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policy's loss, as in implicit Q-learning
CONJUGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "tv": lambda d: d.clamp(min=0.0),
    "chi2": lambda d: d.clamp(min=0.0) + 0.25 * d.clamp(min=0.0).square(),
}


@dataclass(frozen=True)
class FDVLConfig(OfflineRLConfig):
    """Settings.

    Args:
        divergence: "chi2" or "tv".
        forward: lambda in (0.5, 1): towards 1 V becomes the greatest Q of the data's actions.
        temperature: beta of the policy's weights exp(beta (Q - V)); 0 clones.
    """

    divergence: str = "chi2"
    forward: float = 0.7
    temperature: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self, divergence=tuple(CONJUGATES))
        require(self, temperature="[0, inf)")
        if not 0.5 < self.forward < 1.0:
            raise SettingsError(f"algo.forward lies between 0.5 and 1, got {self.forward}: below, V has no lower bound")


class FDVL:
    """One gradient step of V, Q and the policy."""

    figures = ("value_loss", "quality_loss", "policy_loss", "value", "advantage")

    def __init__(self, sizes: Mapping[str, int], config: FDVLConfig, generator: torch.Generator) -> None:
        obs_dim, action_dim = sizes["obs_dim"], sizes["action_dim"]
        self.config = config
        self.value = Value(obs_dim, config.hidden, config.activation)
        self.quality, self.target = (Quality(obs_dim, action_dim, config.hidden, name=config.activation)
                                     for _ in range(2))
        self.target.requires_grad_(False).load_state_dict(self.quality.state_dict())
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.quality, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"value": self.value, "quality": self.quality, "target": self.target, "actor": self.actor}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """V by the dual, Q by Bellman's equation with V, the policy by its advantage."""
        config = self.config
        with torch.no_grad():
            best = self.target(batch.obs, batch.action).amin(0)
            wanted = batch.reward + config.gamma * batch.mask * self.value(batch.next_obs)
        value = self.value(batch.obs)
        value_loss = implicit_maximum(best, value, config.forward, config.divergence)
        quality_loss = (self.quality(batch.obs, batch.action) - wanted).square().mean(1).sum()
        advantage = (best - value).detach()
        weight = (config.temperature * advantage).exp().clamp(max=LARGEST_WEIGHT)
        policy_loss = -(weight * self.actor.distribution(batch.obs).log_prob(batch.action)).mean()
        descend(value_loss + quality_loss + policy_loss, self.adam, self.policy_adam)
        self.average.move(config.target_rate)
        return torch.stack((value_loss, quality_loss, policy_loss, value.mean(), advantage.mean())).detach()


def implicit_maximum(quality: Tensor, value: Tensor, forward: float, divergence: str) -> Tensor:
    """``(1 - lambda) V + lambda f*(Q - V)``, its mean over rows."""
    return ((1.0 - forward) * value + forward * CONJUGATES[divergence](quality - value)).mean()


def train(data: Transitions, config: FDVLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, FDVL, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, FDVLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, FDVLConfig, bounded_actor, device)
