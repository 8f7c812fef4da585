"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905), with what has made it fast since.

    Q_e(s, a) <- r + gamma (min over a subset of Q'_e (s', a') - alpha log pi(a' | s'))     a' ~ pi(s')        eq. 5
    pi        <- max E[Q(s, a) - alpha log pi(a | s)]                                                          eq. 10
    alpha     <- so that the entropy is what is asked for, where the policy acts                               eq. 17

An ensemble of critics with layer norm, the least of a random subset in the targets (Chen et al. 2021, REDQ), many
updates per step, n-step returns (of the rewards alone: the entropies in between are left out), and demonstrations in
half of each batch: with these it is RLPD (Ball et al. 2023, arXiv 2302.02948; ``algo=rlpd``).

B rows, O / C observation of actor / critics, A action. Derivatives are written out: autograd takes as long as the
products, for networks of this size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import LOG_STD, Ramped, SquashedActor, squashed
from temporeal.policies.nets.ensembles import Scratch
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.nets.seeing_policy import behind_eyes
from temporeal.policies.training.errors import require
from temporeal.policies.training.off_policy import checkpoints, learner
from temporeal.policies.training.off_policy.critics import Critics, Sizes
from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.imitation import pull
from temporeal.policies.training.off_policy.learner import Evaluate, Result
from temporeal.policies.training.off_policy.settings import OffPolicyConfig
from temporeal.policies.training.off_policy.sight import Sight
from temporeal.policies.training.offline.flat_parameters import Adam
from temporeal.sim.types import VecEnv

SEES = True  # whether cameras may be given


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Settings. ``configs/algo/sac.yaml`` has the same names, ``rlpd.yaml`` those of RLPD.

    Args:
        temperature: alpha: of the entropy at first; 0: none, and it stays so. It is in units of a step's
            reward: at 0.1, a nat is worth as much as a reward of 0.1.
        entropy: that is asked for, per number of the action, in nats, where the policy acts: of what is demonstrated
            nothing is asked (:func:`where_it_acts`). alpha is learned so that it is there. None: alpha stays.
        temperature_rate: of Adam, for alpha.
        backup_entropy: whether values count the entropy of later actions.
    """

    temperature: float = 0.1
    entropy: float | None = -1.0
    temperature_rate: float = 3e-4
    backup_entropy: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, temperature="[0, inf)", temperature_rate="(0, inf)")


class SAC:
    """An :class:`temporeal.policies.training.off_policy.learner.Algorithm`."""

    figures = ("critic_loss", "value", "policy_value", "entropy", "temperature")

    def __init__(self, sizes: Sizes, config: SACConfig, generator: torch.Generator) -> None:
        self.config, self.generator, self.sizes, self.updates = config, generator, sizes, 0
        self.critics = Critics(sizes, config, generator)
        self.policy, self.temperature = make_policy(sizes, config), Temperature(config.temperature)
        self.actor = behind_eyes(self.policy, sizes.pictures, config.keypoints)
        self.sight = Sight.of(self.actor, config, generator)
        self.policy_adam = Adam(self.policy, rate=config.policy_rate)
        self.temperature_adam = Adam(self.temperature, rate=config.temperature_rate)
        self.reach = self.policy.reach if isinstance(self.policy, Ramped) else torch.ones(())
        self.scratch, self.error = Scratch(), torch.zeros(0)
        self.modules = {"quality": self.critics.quality, "target": self.critics.target, "actor": self.actor,
                        "temperature": self.temperature}
        self.optimizers = {"critics": self.critics.adam, "policy": self.policy_adam,
                           "temperature": self.temperature_adam, **Sight.optimizers(self.sight)}

    def explore(self, obs: Tensor) -> Tensor:
        """An action of the policy [N, A]."""
        return self.policy.sample(obs, self.noise(len(obs)))[0]

    def noise(self, rows: int) -> Tensor:
        """Standard normal [rows, A]."""
        return torch.randn(rows, self.sizes.action_dim, generator=self.generator)

    def ended(self, worlds: Tensor) -> None:
        """Nothing goes on from one step to the next."""

    @torch.no_grad()
    def update(self, batch: Batch) -> Tensor:
        """One step of the critics and, each so many times, of the policy and the temperature."""
        if self.sight is not None:
            batch = self.sight.shown(batch)
        wanted = self.wanted(batch)
        value = self.critics.fit(batch.pair, wanted, batch.weight)
        if self.sight is not None:
            self.sight.learn(self.critics.by_found)
        self.error = (value - wanted).abs().mean(0)
        self.updates += 1
        found = [(value - wanted).square().mean(), value.mean()]
        every = self.config.policy_every
        if self.updates % every or self.updates <= self.config.critic_first:
            return torch.stack([*found, *found[1].new_zeros(3)])
        improved = self.improve(batch, value)
        return torch.stack([*found, *(figure * every for figure in improved)])  # means over all updates

    def wanted(self, batch: Batch) -> Tensor:
        """What the critics are to say [B] (eq. 5)."""
        outputs = self.policy.net.ahead(batch.next_obs, self.scratch)[0]
        action, log_prob = squashed(outputs, self.noise(len(outputs)))
        value = self.critics.least(torch.cat([batch.next_critic, self.reach * action], -1))
        if self.config.backup_entropy:
            value -= self.temperature() * log_prob
        return self.critics.bounded(batch.reward + batch.discount * value)

    def improve(self, batch: Batch, rated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the policy (eq. 10) and of the temperature (eq. 17). Returns what the policy climbed, its
        entropy and the temperature. ``rated`` [E, B]: what the critics say of the batch's actions."""
        temperature, noise, found = self.temperature(), self.noise(len(batch.obs)), list[Tensor]()

        def slope(outputs: Tensor) -> Tensor:
            action, log_prob = squashed(outputs, noise)
            value, by_action = self.critics.slope(torch.cat([batch.critic, self.reach * action], -1))
            found.extend([value.mean(), where_it_acts(-log_prob, batch)])
            loss = by_outputs(outputs, noise, action, self.reach * by_action, temperature)
            if self.config.imitation:
                likely = torch.tanh(outputs[:, : action.shape[1]])
                drawn = self.reach * pull(self.reach * likely, value, batch, rated, self.config)
                loss[:, : action.shape[1]] += (1.0 - likely.square()) * drawn
            return loss

        self.policy.net.there_and_back(batch.obs, slope, self.scratch)
        self.policy_adam.step()
        value, entropy = found
        cool(self.temperature_adam, self.config, entropy, self.sizes.action_dim)
        return value, entropy, temperature


def where_it_acts(entropy: Tensor, batch: Batch) -> Tensor:
    """The mean [] of the rows' ``entropy`` [B] where the policy itself came; of all where nothing is from replay.

    What is demonstrated has no part in it: there the policy is sure of a few trajectories, and a mean over both would
    be met by acting at random everywhere else.
    """
    if batch.shown is None or bool(batch.shown.all()):
        return entropy.mean()
    own = 1.0 - batch.shown
    return (entropy * own).sum() / own.sum()


def cool(adam: Adam, config: SACConfig, entropy: Tensor, actions: int) -> None:
    """One step of the temperature (eq. 17) that ``adam`` moves, where it is learned; of ``actions`` numbers."""
    if config.entropy is not None and config.temperature:
        adam.gradient.copy_(entropy - config.entropy * actions)
        adam.step()


def by_outputs(outputs: Tensor, noise: Tensor, action: Tensor, by_action: Tensor, temperature: Tensor) -> Tensor:
    """The derivative [B, 2A] of mean(alpha log pi - Q) by the actor's ``outputs``; ``by_action`` [B, A]: of Q.

    With u = mean + std * noise and a = tanh(u), the derivative of log pi by u is 2 a (its normal part does not depend
    on the mean), by log std beside that -1.
    """
    log_std = outputs.chunk(2, -1)[1]
    rows, inside = len(outputs), (log_std > LOG_STD[0]) & (log_std < LOG_STD[1])
    by_raw = (2.0 * temperature * action - by_action * (1.0 - action.square())) / rows
    by_log_std = by_raw * noise * log_std.clamp(*LOG_STD).exp() - temperature / rows
    return torch.cat([by_raw, by_log_std * inside], -1)


class Temperature(nn.Module):
    """alpha, by its logarithm."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(first) if first else -math.inf))

    def forward(self) -> Tensor:
        """alpha []."""
        return self.log.exp()


def make_policy(sizes: Sizes, config: SACConfig) -> SquashedActor | Ramped:
    """The policy's network, which reads what eyes found beside the observation."""
    actor = SquashedActor(sizes.obs_dim + sizes.found, sizes.action_dim, config.hidden, precision=config.precision)
    return Ramped(actor) if config.ramp_steps else actor


def make_actor(sizes: Sizes, config: SACConfig) -> nn.Module:
    """What is deployed: the policy, behind eyes where there are pictures."""
    return behind_eyes(make_policy(sizes, config), sizes.pictures, config.keypoints)


def train(
    env: VecEnv, config: SACConfig, *, out: Path, seed: int = 0, demonstrations: Transitions | None = None,
    evaluate: Evaluate | None = None, **watched: Any,
) -> Result:
    """Learn in the worlds of ``env``; for the rest see :func:`temporeal.policies.training.off_policy.learner.learn`."""
    return learner.learn(env, config, SAC, out=out, seed=seed, demonstrations=demonstrations, evaluate=evaluate,
                         **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, SACConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return checkpoints.load_policy(path, SACConfig, make_actor, device)
