"""Goal-conditioned behaviour cloning, with temporal augmentation of goals (Ghugare et al. 2024, arXiv 2401.11237).

Supervised learning of "what did the data do on the way to this goal" cannot reach a goal that no single episode led
to. The augmentation stitches: for a goal g of an episode, another episode that came close to g is found, and a state
further along it becomes the goal instead. States are close if k-means puts them in one cluster.

B rows, N samples, G numbers of a goal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.goals import GoalMix, GoalSpace, Samples, samples_of
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import goal_batches, reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, descend
from temporeal.policies.training.offline.goal_batches import GoalBatch, GoalConfig
from temporeal.policies.training.offline.reinforcement import bounded_actor
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class GCBCConfig(GoalConfig):
    """Settings.

    Args:
        stitch: chance that a goal is replaced by a later one of another episode (the paper has 0.5); asked again after
            each replacement, so that more than two episodes are stitched. 0: plain cloning.
        clusters: of the states, by k-means.
        longest: replacements of one goal at most.
    """

    stitch: float = 0.5
    clusters: int = 64
    longest: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, stitch="[0, 1]", clusters="[1, inf)", longest="[0, inf)")


class GCBC:
    """One gradient step of the policy."""

    figures = ("policy_loss",)

    def __init__(self, sizes: Mapping[str, int], config: GCBCConfig, space: GoalSpace) -> None:
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.actor, rate=config.learning_rate)
        self.modules, self.optimizers = {"actor": self.actor}, {"policy": self.adam}

    def update(self, batch: GoalBatch) -> Tensor:
        """Maximum likelihood of the data's action, given the goal that was reached (or stitched) later."""
        policy = self.actor.distribution(batch.view(batch.now, batch.policy_goal))
        loss = -policy.log_prob(batch.action).mean()
        descend(loss, self.adam)
        return loss.detach()[None]


class Stitching:
    """Goals of the paper's algorithm 1. ``cluster`` [N] of each sample's goal."""

    def __init__(self, samples: Samples, cluster: Tensor, clusters: int, config: GCBCConfig) -> None:
        self.config, self.cluster = config, cluster
        self.order = torch.argsort(cluster, stable=True)  # samples, those of a cluster in a row
        counts = torch.bincount(cluster, minlength=clusters)
        self.first, self.counts = counts.cumsum(0) - counts, counts
        self.end = samples.of_step.new_empty(len(samples.obs))  # the last sample of each sample's episode
        self.end[samples.of_step], self.end[samples.end] = samples.end, samples.end

    def draw(self, samples: Samples, steps: Tensor, generator: torch.Generator) -> Tensor:
        """Goals [B]: from later in the episode, then from later in episodes that came by there."""
        goal = GoalMix(0.0, 1.0).draw(samples, steps, generator)
        stitched = torch.ones(len(steps), dtype=torch.bool)
        for _ in range(self.config.longest if self.config.stitch else 0):
            again, which, far = torch.rand(3, len(steps), generator=generator)
            stitched &= again < self.config.stitch
            near = self.cluster[goal]
            other = self.order[self.first[near] + (which * self.counts[near]).long()]
            later = other + (far * (self.end[other] - other + 1)).long().clamp(max=self.end[other] - other)
            goal = torch.where(stitched, later, goal)
        return goal


def k_means(points: Tensor, clusters: int, rounds: int = 20) -> Tensor:
    """Cluster [N] of each of the ``points`` [N, G] (Lloyd 1982), from evenly spaced ones; scaled to unit deviation."""
    points = (points - points.mean(0)) / points.std(0).clamp(min=1e-6)
    generator = torch.Generator().manual_seed(0)
    centres = points[torch.randperm(len(points), generator=generator)[:clusters]].clone()
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        counts = torch.bincount(nearest, minlength=len(centres))
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
    return torch.cdist(points, centres).argmin(1)


def train(data: Transitions, config: GCBCConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    samples = samples_of(data)
    cluster = k_means(goal_batches.space_of(data, config).reached(samples.obs), config.clusters)
    goals = Stitching(samples, cluster, config.clusters, config)
    return goal_batches.learn(data, config, GCBC, out=out, seed=seed, policy_goals=goals.draw, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, GCBCConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, GCBCConfig, bounded_actor, device)
