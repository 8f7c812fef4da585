"""RECAP: reinforcement learning by supervised learning on advantage labels (Physical Intelligence 2025, "pi*0.6",
arXiv 2511.14759). No robot model is public; this is the method on states.

First the value: a distribution over the return that the data's own policy goes on to earn (eq. 1). Then each step gets
a label, positive where its advantage is among the largest (eq. 3). Then the policy is cloned, conditioned on the label;
deployed, it is asked for the positive one. No value is maximized, nothing is extrapolated.

B rows, K bins, O observation, A action, M steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import Gaussian
from temporeal.policies.nets.bounded_actor import BoundedActor
from temporeal.policies.nets.ensembles import Ensemble
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline.trajectories import ahead, returns_to_go
from temporeal.policies.training.offline.transition_batches import normalizer_of
from temporeal.policies.training.offline_learner import Result

ROWS = 1 << 16  # that go through the value's network at once
NARROWEST = 1e-3  # of the greatest return: the support of returns that are all the same


@dataclass(frozen=True)
class RECAPConfig(OfflineRLConfig):
    """Settings.

    Args:
        value_share: of the updates that fit the value; the rest clone.
        bins: K, of the value's distribution (the paper has 201).
        lookahead: N, steps until the value stands for the rest of the return; 0: to the episode's end.
        positive: share of the steps that are labelled positive (the paper: 0.3, later 0.4).
        label_dropout: share of the rows whose label is hidden, so that the policy is unconditional, too.
        guidance: 1: the policy given the positive label; more: further away from the unconditional one (eq. 4).
    """

    value_share: float = 0.3
    bins: int = 201
    lookahead: int = 50
    positive: float = 0.3
    label_dropout: float = 0.3
    guidance: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, value_share="(0, 1)", bins="[2, inf)", lookahead="[0, inf)", positive="(0, 1)",
                label_dropout="[0, 1)", guidance="[0, inf)")


class LabelledActor(nn.Module):
    """A policy that is told the label: 1 positive, -1 negative, 0 hidden. ``forward`` asks for the positive one."""

    hidden_dim = 0

    def __init__(self, sizes: Mapping[str, int], hidden: Sequence[int], name: str, guidance: float) -> None:
        super().__init__()
        self.guidance = guidance
        self.policy = BoundedActor(sizes["obs_dim"] + 1, sizes["action_dim"], hidden, name=name)

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        positive = self.policy(with_label(obs, torch.ones_like(obs[..., 0])))
        if self.guidance == 1.0:
            return positive
        hidden = self.policy(with_label(obs, torch.zeros_like(obs[..., 0])))
        return (hidden + self.guidance * (positive - hidden)).clamp(-1.0, 1.0)

    def distribution(self, obs: Tensor, label: Tensor) -> Gaussian:
        """Of the actions given ``label`` [B]."""
        return self.policy.distribution(with_label(obs, label))


def with_label(obs: Tensor, label: Tensor) -> Tensor:
    """``obs`` [B, O] and ``label`` [B] beside each other."""
    return torch.cat([obs, label[..., None]], -1)


class RECAP:
    """One gradient step of the value, or later of the policy."""

    figures = ("value_loss", "policy_loss", "positive")

    def __init__(
        self, sizes: Mapping[str, int], config: RECAPConfig, generator: torch.Generator, data: Transitions
    ) -> None:
        self.config, self.generator, self.data, self.updates = config, generator, data, 0
        self.value_updates = max(1, round(config.value_share * config.updates))
        self.earned = returns_to_go(data, config.gamma)
        self.support = support_of(self.earned, config.bins)
        self.value = Ensemble(1, sizes["obs_dim"], config.hidden, config.bins, name=config.activation)
        self.actor = make_actor(sizes, config)
        self.adam = Adam(self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.modules = {"value": self.value, "actor": self.actor}
        self.optimizers = {"value": self.adam, "policy": self.policy_adam}
        self.label: Tensor | None = None

    def update(self, batch: Any) -> Tensor:
        """A step of the phase that it is."""
        self.updates += 1
        nothing = torch.zeros(())
        if self.updates <= self.value_updates:
            return torch.stack([self.fit(batch), nothing, nothing])
        if self.label is None:
            self.label = self.labels()
        return torch.stack([nothing, *self.clone(batch, self.label)])

    def fit(self, batch: Any) -> Tensor:
        """One step of the value: cross-entropy with the return, spread over its two nearest bins (eq. 1)."""
        log_chance = torch.log_softmax(self.value(batch.obs)[0], -1)
        loss = -(two_hot(self.earned[batch.rows], self.support) * log_chance).sum(-1).mean()
        descend(loss, self.adam)
        return loss.detach()

    def clone(self, batch: Any, label: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the policy: the action's likelihood given its label (eq. 4)."""
        given = label[batch.rows]
        shown = torch.rand(len(given), generator=self.generator) >= self.config.label_dropout
        policy = self.actor.distribution(batch.obs, given * shown)
        loss = -policy.log_prob(batch.action).mean()
        descend(loss, self.policy_adam)
        return loss.detach(), (given > 0).float().mean()

    @torch.no_grad()
    def labels(self) -> Tensor:
        """1 or -1 for each step [M]: whether its advantage is among the largest (eq. 3)."""
        advantage = self.advantages()
        bound = advantage.sort().values[min(round((1.0 - self.config.positive) * len(advantage)), len(advantage) - 1)]
        return torch.where(advantage >= bound, 1.0, -1.0)

    @torch.no_grad()
    def advantages(self) -> Tensor:
        """The return over N steps, with the value for the rest, minus the value [M]."""
        normalizer = normalizer_of(self.data, self.config.normalize_observations)
        value = torch.cat([(torch.softmax(self.value(normalizer(part))[0], -1) * self.support).sum(-1)
                           for part in self.data.obs.split(ROWS)])
        wanted, count = self.earned, self.config.lookahead
        if count:
            rows, later = torch.arange(self.data.steps), ahead(self.data, count)
            goes_on = later == rows + count
            rest = self.config.gamma ** count * (value[later] - self.earned[later])
            wanted = wanted + torch.where(goes_on, rest, torch.zeros(()))
        return wanted - value


def support_of(earned: Tensor, bins: int) -> Tensor:
    """Evenly spaced points [K] from the least to the greatest return; apart in float32 even where all returns are the
    same."""
    least, most = float(earned.min()), float(earned.max())
    return torch.linspace(least, least + max(most - least, NARROWEST * max(1.0, abs(most))), bins)


def two_hot(value: Tensor, support: Tensor) -> Tensor:
    """Chances [B, K] of the two points of ``support`` [K] (evenly spaced) around ``value`` [B], with its mean."""
    place = ((value - support[0]) / (support[1] - support[0])).clamp(0.0, len(support) - 1.0)
    below = place.floor().clamp(max=len(support) - 2.0)
    found = torch.zeros(len(value), len(support))
    found.scatter_(1, below.long()[:, None], (1.0 - (place - below))[:, None])
    return found.scatter_(1, below.long()[:, None] + 1, (place - below)[:, None])


def make_actor(sizes: Mapping[str, int], config: RECAPConfig) -> LabelledActor:
    """The policy's network."""
    return LabelledActor(sizes, config.hidden, config.activation, config.guidance)


def train(data: Transitions, config: RECAPConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, partial(RECAP, data=data), out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, RECAPConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, RECAPConfig, make_actor, device)
