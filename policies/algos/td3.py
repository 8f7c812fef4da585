"""Twin delayed deterministic policy gradients (Fujimoto, van Hoof and Meger 2018, arXiv 1802.09477), with an ensemble.

    Q_e(s, a) <- r + gamma min over a subset of Q'_e (s', pi'(s') + noise)         sections 4.2 and 5.3
    pi        <- max Q(s, pi(s)), each so many updates                             section 5.2

Critics, n-step returns, the update-to-data ratio and demonstrations are as in :mod:`temporeal.policies.algos.sac`.

B rows, O / C observation of actor / critics, A action.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import BoundedActor, Ramped, smoothed
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
from temporeal.policies.training.offline.flat_parameters import Adam, Average
from temporeal.sim.types import VecEnv

SEES = True  # whether cameras may be given


@dataclass(frozen=True)
class TD3Config(OffPolicyConfig):
    """Settings. ``configs/algo/td3.yaml`` has the same names.

    Args:
        exploration: standard deviation of the noise on actions that are tried.
        restraint: weight of its action's squared length, in the mean, which the policy pays beside what the critics
            say. A residual stays with its base where nothing is gained: near a value of 1 slopes are noise, which Adam
            makes as large as any other.
        policy_noise: of the noise on the target policy's action ...
        noise_clip: ... cut at this.
    """

    policy_every: int = 2
    exploration: float = 0.1
    restraint: float = 0.0
    policy_noise: float = 0.2
    noise_clip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, exploration="[0, inf)", restraint="[0, inf)", policy_noise="[0, inf)", noise_clip="[0, inf)")


class TD3:
    """An :class:`temporeal.policies.training.off_policy.learner.Algorithm`."""

    figures = ("critic_loss", "value", "policy_value")

    def __init__(self, sizes: Sizes, config: TD3Config, generator: torch.Generator) -> None:
        self.config, self.generator, self.updates = config, generator, 0
        self.critics = Critics(sizes, config, generator)
        self.policy, self.actor_target = make_policy(sizes, config), make_policy(sizes, config)
        self.actor = behind_eyes(self.policy, sizes.pictures, config.keypoints)
        self.sight = Sight.of(self.actor, config, generator)
        self.policy_adam = Adam(self.policy, rate=config.policy_rate)
        self.average = Average(self.policy, self.actor_target)
        self.reach = self.policy.reach if isinstance(self.policy, Ramped) else torch.ones(())
        self.scratch, self.error = Scratch(), torch.zeros(0)
        self.modules = {"quality": self.critics.quality, "target": self.critics.target, "actor": self.actor,
                        "actor_target": self.actor_target}
        self.optimizers = {"critics": self.critics.adam, "policy": self.policy_adam, **Sight.optimizers(self.sight)}

    def explore(self, obs: Tensor) -> Tensor:
        """The policy's action with noise [N, A]."""
        return smoothed(self.policy(obs), self.config.exploration, torch.inf, self.generator)

    def ended(self, worlds: Tensor) -> None:
        """Nothing goes on from one step to the next."""

    @torch.no_grad()
    def update(self, batch: Batch) -> Tensor:
        """One step of the critics and, each so many times, of the policy."""
        config = self.config
        if self.sight is not None:
            batch = self.sight.shown(batch)
        outputs = self.actor_target.net.ahead(batch.next_obs, self.scratch)[0]
        action = smoothed(self.reach * torch.tanh(outputs), config.policy_noise, config.noise_clip, self.generator)
        wanted = self.critics.bounded(
            batch.reward + batch.discount * self.critics.least(torch.cat([batch.next_critic, action], -1)))
        value = self.critics.fit(batch.pair, wanted, batch.weight)
        if self.sight is not None:
            self.sight.learn(self.critics.by_found)
        self.error = (value - wanted).abs().mean(0)
        self.updates += 1
        due = self.updates % config.policy_every == 0 and self.updates > config.critic_first
        climbed = self.improve(batch, value) * config.policy_every if due else value.new_zeros(())  # means over all
        return torch.stack([(value - wanted).square().mean(), value.mean(), climbed])

    def improve(self, batch: Batch, rated: Tensor) -> Tensor:
        """One step of the policy and of its average. Returns what it climbed. ``rated`` [E, B]: the batch's actions."""
        found = list[Tensor]()

        def slope(outputs: Tensor) -> Tensor:
            whole = torch.tanh(outputs)
            action = self.reach * whole
            value, by_action = self.critics.slope(torch.cat([batch.critic, action], -1))
            found.append(value.mean())
            loss = (2.0 * self.config.restraint * action - by_action) / len(action)
            if self.config.imitation:
                loss += pull(action, value, batch, rated, self.config)
            return loss * (self.reach * (1.0 - whole.square()))

        self.policy.net.there_and_back(batch.obs, slope, self.scratch)
        self.policy_adam.step()
        self.average.move(self.config.target_rate)
        return found[0]


def make_policy(sizes: Sizes, config: TD3Config) -> BoundedActor | Ramped:
    """The policy's network, which reads what eyes found beside the observation."""
    actor = BoundedActor(sizes.obs_dim + sizes.found, sizes.action_dim, config.hidden, precision=config.precision)
    return Ramped(actor) if config.ramp_steps else actor


def make_actor(sizes: Sizes, config: TD3Config) -> nn.Module:
    """What is deployed: the policy, behind eyes where there are pictures."""
    return behind_eyes(make_policy(sizes, config), sizes.pictures, config.keypoints)


def train(
    env: VecEnv, config: TD3Config, *, out: Path, seed: int = 0, demonstrations: Transitions | None = None,
    evaluate: Evaluate | None = None, **watched: Any,
) -> Result:
    """Learn in the worlds of ``env``; for the rest see :func:`temporeal.policies.training.off_policy.learner.learn`."""
    return learner.learn(env, config, TD3, out=out, seed=seed, demonstrations=demonstrations, evaluate=evaluate,
                         **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, TD3Config]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return checkpoints.load_policy(path, TD3Config, make_actor, device)
