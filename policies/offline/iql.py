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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import HALF_LOG_2PI
from temporeal.policies.nets.bounded_actor import LOG_STD
from temporeal.policies.nets.ensembles import Quality, Scratch, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig, bounded_actor
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policy's loss (the authors' code)


@dataclass(frozen=True)
class IQLConfig(OfflineRLConfig):
    """Settings. Defaults are the paper's for locomotion; mazes take expectile 0.9 and temperature 10.

    Args:
        expectile: tau in (0.5, 1): 0.5 is the data's own value, 1 the best action in the data.
        temperature: beta: 0 clones the data, large takes the best action only.
    """

    expectile: float = 0.7
    temperature: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, expectile="(0, 1)", temperature="[0, inf)")
        if self.activation != "relu":
            raise SettingsError(f"algo.activation={self.activation}: the derivatives of algo=iql are those of relu")


class IQL:
    """One gradient step of V, Q and the policy."""

    figures = ("value_loss", "quality_loss", "policy_loss", "value", "advantage")

    def __init__(self, sizes: Mapping[str, int], config: IQLConfig, generator: torch.Generator) -> None:
        obs_dim, action_dim = sizes["obs_dim"], sizes["action_dim"]
        self.config, self.updates, self.scratch = config, 0, Scratch()
        self.value = Value(obs_dim, config.hidden, precision=config.precision)
        self.quality = Quality(obs_dim, action_dim, config.hidden, precision=config.precision)
        self.target = Quality(obs_dim, action_dim, config.hidden, precision=config.precision)
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.quality, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"value": self.value, "quality": self.quality, "target": self.target, "actor": self.actor}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """Equations 5, 6 and 7, each with the others' networks held fixed: :func:`losses`, and their derivatives by
        the networks' outputs, written out. Autograd would take as long for these few rows as the networks."""
        with torch.no_grad():
            found = self.differentiate(batch)
            self.policy_adam.set_rate(self.config.learning_rate * cosine(self.updates / self.config.updates))
            self.adam.step()
            self.policy_adam.step()
            self.average.move(self.config.target_rate)
            self.updates += 1
            return torch.stack([*losses(found, self.config), found.value.mean(), found.advantage.mean()])

    def differentiate(self, batch: Any) -> Outputs:
        """All networks' outputs for a batch. The parameters' gradients become the derivatives of :func:`losses`.
        One network after the other is run and differentiated, in the same memory."""
        config, rows, tau = self.config, len(batch.reward), self.config.expectile
        pairs = torch.cat([batch.obs, batch.action], -1)
        best = self.target.net.ahead(pairs, self.scratch)[..., 0].amin(0)
        after = self.value.net.ahead(batch.next_obs, self.scratch)[0, :, 0]
        wanted = batch.reward + config.gamma * batch.mask * after

        def by_value(value: Tensor) -> Tensor:
            u = best[:, None] - value
            return torch.where(u > 0, tau, 1.0 - tau) * u * (-2.0 / rows)

        value = self.value.net.there_and_back(batch.obs, by_value, self.scratch)[0, :, 0]
        quality = self.quality.net.there_and_back(
            pairs, lambda found: (found - wanted[:, None]) * (2.0 / rows), self.scratch)[..., 0]
        advantage = best - value
        weight = (config.temperature * advantage).exp_().clamp_(max=LARGEST_WEIGHT)
        log_std = self.actor.log_std.data.clamp(*LOG_STD)
        share, spread, action = (weight / rows)[:, None], torch.exp(-log_std), batch.action

        def by_raw(raw: Tensor) -> Tensor:
            mean = torch.tanh(raw)
            found: Tensor = -share * (action - mean) * spread.square() * (1.0 - mean.square())
            return found

        mean = torch.tanh(self.actor.net.there_and_back(batch.obs, by_raw, self.scratch)[0])
        noise = (action - mean) * spread
        inside = (log_std > LOG_STD[0]) & (log_std < LOG_STD[1])
        assert self.actor.log_std.grad is not None  # a part of the optimizer's vector
        self.actor.log_std.grad.copy_((share * (1.0 - noise.square())).sum(0) * inside)
        return Outputs(value, quality, wanted, advantage, weight, log_std, noise)


class Outputs(NamedTuple):
    """What the networks say of a batch: V [B], Q [E, B] and its target [B], the advantage and its weight [B], the log
    of the policy's spread [A], and how far the data's action is from its mean, in units of the spread [B, A]."""

    value: Tensor
    quality: Tensor
    wanted: Tensor
    advantage: Tensor
    weight: Tensor
    log_std: Tensor
    noise: Tensor


def losses(found: Outputs, config: IQLConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Equations 5 (an expectile: ``|tau - 1(u < 0)| u^2``), 6 (of both critics) and 7."""
    u = found.advantage
    value = (torch.where(u > 0, config.expectile, 1.0 - config.expectile) * u.square()).mean()
    quality = (found.quality - found.wanted).square().mean(1).sum()
    log_prob = -(0.5 * found.noise.square() + found.log_std + HALF_LOG_2PI).sum(-1)
    return value, quality, -(found.weight * log_prob).mean()


def cosine(spent: float) -> float:
    """The policy's learning rate over the share of the updates that is ``spent``, from 1 to 0 (the authors' code)."""
    return 0.5 * (1.0 + cos(pi * min(spent, 1.0)))


def train(data: Transitions, config: IQLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, IQL, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, IQLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, IQLConfig, bounded_actor, device)
