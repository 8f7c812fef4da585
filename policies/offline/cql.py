"""Conservative Q-learning (Kumar et al. 2020, arXiv 2006.04779), and calibrated: Cal-QL (Nakamoto et al. 2023,
arXiv 2303.05479).

Soft actor-critic (Haarnoja et al. 2018) whose critics are pushed down where the policy, or chance, would act, and up at
the data's actions: the values of actions that nobody tried stay below the truth. Cal-QL pushes no value below what the
data's own episodes returned, so that learning can go on online.

B rows, S sampled actions, E critics, O observation, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import SquashedActor
from temporeal.policies.nets.ensembles import Quality
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend, held
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline.trajectories import returns_to_go
from temporeal.policies.training.offline_learner import Result

LOG_HALF = -0.6931471805599453


@dataclass(frozen=True)
class CQLConfig(OfflineRLConfig):
    """Settings.

    Args:
        conservatism: alpha of equation 4: weight of the push; 0 is soft actor-critic on the data.
        samples: S, actions of each kind for the integral over actions: of chance, of the policy, of its next ones.
        policy_rate: learning rate of the policy and of the temperature.
        calibrated: Cal-QL.
        entropy: that the temperature holds, per action component, in nats; the temperature begins at 1.
        temperature: of the entropy; None: learned.
    """

    conservatism: float = 5.0
    samples: int = 10
    policy_rate: float = 1e-4
    calibrated: bool = False
    entropy: float = -1.0
    temperature: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, conservatism="[0, inf)", samples="[1, inf)", policy_rate="(0, inf)", temperature="[0, inf)")


class CQL:
    """One gradient step of the critics, the policy and the temperature."""

    figures = ("quality_loss", "conservative_loss", "policy_loss", "quality", "temperature")

    def __init__(self, sizes: Mapping[str, int], config: CQLConfig, generator: torch.Generator) -> None:
        shape = (sizes["obs_dim"], sizes["action_dim"], config.hidden)
        self.config, self.generator, self.updates, self.actions = config, generator, 0, sizes["action_dim"]
        self.quality = Quality(*shape, name=config.activation, precision=config.precision)
        self.target = Quality(*shape, name=config.activation, precision=config.precision)
        self.actor, self.log_temperature = make_actor(sizes, config), Scalar()
        self.adam = Adam(self.quality, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.policy_rate)
        self.temperature_adam = Adam(self.log_temperature, rate=config.policy_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"quality": self.quality, "target": self.target, "actor": self.actor,
                        "log_temperature": self.log_temperature}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam, "temperature": self.temperature_adam}

    def update(self, batch: Any) -> Tensor:
        """Soft actor-critic's steps, with equation 4's push in the critics' loss."""
        config = self.config
        temperature = self.temperature()
        policy_loss, entropy = self.improve(batch, temperature)
        with torch.no_grad():
            action, log_prob = self.sampled(batch.next_obs)
            next_value = self.target(batch.next_obs, action).amin(0) - temperature * log_prob
            wanted = batch.reward + config.gamma * batch.mask * next_value
        quality = self.quality(batch.obs, batch.action)
        quality_loss = (quality - wanted).square().mean(1).sum()
        push = (self.integral(batch) - quality).mean(1).sum() if config.conservatism else quality_loss.new_zeros(())
        descend(quality_loss + config.conservatism * push, self.adam)
        if config.temperature is None:
            wish = self.log_temperature() * (entropy - config.entropy * self.actions)
            descend(wish, self.temperature_adam)
        self.average.move(config.target_rate)
        self.updates += 1
        return torch.stack([quality_loss, push, policy_loss, quality.mean(), temperature]).detach()

    def improve(self, batch: Any, temperature: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the policy. Returns its loss and its entropy."""
        action, log_prob = self.sampled(batch.obs)
        with held(self.quality):
            loss = (temperature * log_prob - self.quality(batch.obs, action).amin(0)).mean()
        descend(loss, self.policy_adam)
        return loss, -log_prob.mean().detach()

    def integral(self, batch: Any) -> Tensor:
        """log of the integral over actions of exp(Q(s, a)) [E, B], by importance sampling (appendix F)."""
        count, rows = self.config.samples, len(batch.obs)
        chance = torch.rand(count, rows, self.actions, generator=self.generator) * 2.0 - 1.0
        with torch.no_grad():
            now, log_now = self.sampled(batch.obs, count)
            then, log_then = self.sampled(batch.next_obs, count)
        actions = torch.cat([chance, now, then])  # [3 S, B, A]
        obs = batch.obs.expand(len(actions), *batch.obs.shape)
        value = self.quality(obs.flatten(0, 1), actions.flatten(0, 1)).unflatten(1, (len(actions), rows))
        if self.config.calibrated:  # eq. 4 of Cal-QL: not below what the data's policy earned
            value = torch.cat([value[:, :count], torch.maximum(value[:, count:], batch.earned)], 1)
        density = torch.cat([torch.full((count, rows), LOG_HALF * self.actions), log_now, log_then])
        return torch.logsumexp(value - density, 1) - torch.tensor(float(len(actions))).log()

    def sampled(self, obs: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
        """An action of the policy for each row [B, A], or ``count`` [S, B, A], and their log-densities."""
        shape = (len(obs), self.actions) if count is None else (count, len(obs), self.actions)
        return self.actor.sample(obs, torch.randn(shape, generator=self.generator))

    def temperature(self) -> Tensor:
        """Of the entropy, []."""
        if self.config.temperature is not None:
            return torch.tensor(self.config.temperature)
        return self.log_temperature().detach().exp()


class Scalar(nn.Module):
    """One number, 0 at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        """The number, []."""
        return self.value


def make_actor(sizes: Mapping[str, int], config: CQLConfig) -> SquashedActor:
    """The policy's network."""
    return SquashedActor(sizes["obs_dim"], sizes["action_dim"], config.hidden, name=config.activation)


def train(data: Transitions, config: CQLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    more = {"earned": returns_to_go(data, config.gamma)} if config.calibrated else None
    return reinforcement.learn(data, config, CQL, out=out, seed=seed, more=more, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, CQLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, CQLConfig, make_actor, device)
