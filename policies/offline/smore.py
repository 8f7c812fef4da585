"""SMORe: scores of goals by matching occupancies (Sikchi, Chitnis, Touati, Geramifard, Zhang and Niekum, ICLR 2024,
arXiv 2311.02013, section 3).

Any step of the data arrives somewhere: had that been the goal, it was right. Such steps with such goals are q(s, a, g);
all steps with any goals are rho(s, a, g). A policy of goals is one whose visits are q's. As in ReCOIL two mixtures are
matched, ``beta d + (1 - beta) rho`` and ``d_mix = beta q + (1 - beta) rho``, with no discriminator and no reward. The
dual under Pearson's chi-squared divergence, with V held fixed (equations are numbered here), is

    min_S  beta ((1 - gamma) E_{s, g, pi}[S] - E_q[S]) + E_{d_mix}[(gamma V(s', g) - S)^2] / 4.                     (1)

The score S(s, a, g) is no density and need not be one: it says how much an action matters for a goal. V is the
expectile of S over the actions of the data,

    min_V  E_{d_mix}[|tau - 1(S < V)| (S - V)^2],                                                                (2)

and the policy regresses the data's actions with weights exp(A (S - V)). Who arrived stays: the step that arrives is
repeated for ever, so that the scores of neighbours d steps from the goal differ by up to 2 gamma^d.

B rows, G numbers of a goal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.goals import GoalMix, GoalSpace
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.ensembles import Quality, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.offline.recoil import dual_loss
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import goal_batches, reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.goal_batches import GoalBatch, GoalConfig
from temporeal.policies.training.offline.reinforcement import bounded_actor
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policy's loss, as in implicit Q-learning


@dataclass(frozen=True)
class SMOReConfig(GoalConfig):
    """Settings.

    Args:
        current, future: shares of the goals of rho; far goals need many from the whole data, and none need be the state
            itself: q shows what it is to arrive.
        mixture: beta, the share of steps that arrive, in d_mix.
        expectile: tau: how optimistic V is about the data's actions (the authors' code has 0.8).
        temperature: A of the policy's weights; 0 clones (the authors' code has 3).
        policy_future: share of the policy's goals that come from later in the episode, the rest from the whole data;
            1, or 0.5 where episodes must be stitched.
    """

    current: float = 0.0
    future: float = 0.2
    mixture: float = 0.5
    expectile: float = 0.8
    temperature: float = 3.0
    policy_future: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, mixture="(0, 1)", expectile="(0, 1)", temperature="[0, inf)", policy_future="[0, 1]")


class SMORe:
    """One gradient step of V, S and the policy."""

    figures = ("value_loss", "score_loss", "policy_loss", "arriving_score", "other_score")

    def __init__(self, sizes: Mapping[str, int], config: SMOReConfig, space: GoalSpace) -> None:
        obs_dim, action_dim = sizes["obs_dim"], sizes["action_dim"]
        self.config, self.updates = config, 0
        self.value = Value(obs_dim, config.hidden, config.activation, layer_norm=True)
        self.score, self.target = (Quality(obs_dim, action_dim, config.hidden, name=config.activation,
                                           layer_norm=True) for _ in range(2))
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.score, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.score, self.target)
        self.modules = {"value": self.value, "score": self.score, "target": self.target, "actor": self.actor}
        self.optimizers = {"scores": self.adam, "policy": self.policy_adam}

    def update(self, batch: GoalBatch) -> Tensor:
        """Scores and their expectile, then the policy by its advantage."""
        value_loss, score_loss, arriving, other = self.score_losses(batch)
        policy_loss = self.policy_loss(batch)
        descend(value_loss + score_loss + policy_loss, self.adam, self.policy_adam)
        self.average.move(self.config.target_rate)
        return torch.stack((value_loss, score_loss, policy_loss, arriving, other)).detach()

    def score_losses(self, batch: GoalBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eq. 2 and eq. 1, and mean scores of steps of q and of rho."""
        config, goal = self.config, batch.value_goal
        chosen = torch.arange(len(goal)) < round(config.mixture * len(goal))  # rows of q: rows have no order
        goal = torch.where(chosen, batch.now + 1, goal)
        now, after = batch.view(batch.now, goal), batch.view(batch.now + 1, goal)
        with torch.no_grad():
            best = self.target(now, batch.action).amin(0)
            following = torch.where(goal == batch.now + 1, best, self.value(after))
            acted = self.actor(now)
        advantage = best - self.value(now)
        value_loss = (torch.where(advantage > 0, config.expectile, 1.0 - config.expectile) * advantage.square()).mean()
        score_loss = dual_loss(self.score(now, batch.action), self.score(now, acted), config.gamma * following,
                               chosen.float(), config.mixture * (1.0 - config.gamma)).sum()
        return value_loss, score_loss, best[chosen].mean(), best[~chosen].mean()

    def policy_loss(self, batch: GoalBatch) -> Tensor:
        """Regress the action, weighted by its score above what is expected there."""
        now = batch.view(batch.now, batch.policy_goal)
        with torch.no_grad():
            advantage = self.target(now, batch.action).amin(0) - self.value(now)
        weight = (self.config.temperature * advantage).exp().clamp(max=LARGEST_WEIGHT)
        loss: Tensor = -(weight * self.actor.distribution(now).log_prob(batch.action)).mean()
        return loss


def train(data: Transitions, config: SMOReConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    goals = GoalMix(0.0, config.policy_future).draw
    return goal_batches.learn(data, config, SMORe, out=out, seed=seed, policy_goals=goals, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, SMOReConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, SMOReConfig, bounded_actor, device)
