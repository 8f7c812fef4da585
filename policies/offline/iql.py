"""Implicit Q-learning (Kostrikov, Nair and Levine 2021, arXiv 2110.06169).

Never asks for the value of an action that the data do not hold: V(s) is an upper expectile of Q(s, a) over the data's
actions, Q is fitted to V of the next state, and the policy is the data's, weighted by the advantage.

B rows, O observation, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import BoundedActor
from temporeal.policies.nets.ensembles import Quality, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policy's loss (the authors' code)


@dataclass(frozen=True)
class IQLConfig(OfflineRLConfig):
    """Settings. Defaults are the paper's for locomotion; mazes take expectile 0.9 and temperature 10.

    Args:
        expectile: tau in (0.5, 1): 0.5 is the data's own value, 1 the best action in the data.
        temperature: beta: 0 clones the data, large takes the best action only.
        dropout: of the policy's hidden units; the paper has 0.1 on few demonstrations.
    """

    expectile: float = 0.7
    temperature: float = 3.0
    dropout: float = 0.0


class IQL:
    """One gradient step of V, Q and the policy."""

    figures = ("value_loss", "quality_loss", "policy_loss", "value", "advantage")

    def __init__(self, sizes: Mapping[str, int], config: IQLConfig, generator: torch.Generator) -> None:
        obs_dim, action_dim = sizes["obs_dim"], sizes["action_dim"]
        self.config, self.updates = config, 0
        self.value = Value(obs_dim, config.hidden, config.activation)
        self.quality = Quality(obs_dim, action_dim, config.hidden, name=config.activation)
        self.target = Quality(obs_dim, action_dim, config.hidden, name=config.activation).requires_grad_(False)
        self.actor = make_actor(sizes, config)
        self.adam = Adam(self.quality, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"value": self.value, "quality": self.quality, "target": self.target, "actor": self.actor}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """Equations 5, 6 and 7, each with the others' networks held fixed."""
        config = self.config
        with torch.no_grad():
            best = self.target(batch.obs, batch.action).amin(0)
            next_value = self.value(batch.next_obs)
            wanted = batch.reward + config.gamma * batch.mask * next_value
        value = self.value(batch.obs)
        advantage = best - value
        value_loss = expectile_loss(advantage, config.expectile)  # eq. 5
        quality_loss = (self.quality(batch.obs, batch.action) - wanted).square().mean(1).sum()  # eq. 6
        weight = (config.temperature * advantage.detach()).exp().clamp(max=LARGEST_WEIGHT)
        policy_loss = -(weight * self.actor.distribution(batch.obs).log_prob(batch.action)).mean()  # eq. 7
        self.policy_adam.set_rate(config.learning_rate * cosine(self.updates / config.updates))
        descend(value_loss + quality_loss + policy_loss, self.adam, self.policy_adam)
        self.average.move(config.target_rate)
        self.updates += 1
        return torch.stack([value_loss, quality_loss, policy_loss, value.mean(), advantage.mean()]).detach()


def expectile_loss(error: Tensor, tau: float) -> Tensor:
    """``|tau - 1(u < 0)| u^2`` of errors ``u`` [B], their mean."""
    return (torch.where(error > 0, tau, 1.0 - tau) * error.square()).mean()


def cosine(spent: float) -> float:
    """The policy's learning rate over the share of the updates that is ``spent``, from 1 to 0 (the authors' code)."""
    return 0.5 * (1.0 + cos(pi * min(spent, 1.0)))


def make_actor(sizes: Mapping[str, int], config: IQLConfig) -> BoundedActor:
    """The policy's network."""
    return BoundedActor(sizes["obs_dim"], sizes["action_dim"], config.hidden, name=config.activation,
                        dropout=config.dropout)


def train(data: Transitions, config: IQLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, IQL, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, IQLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, IQLConfig, make_actor, device)
