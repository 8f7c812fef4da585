"""Hilbert representations, HILP (Park, Kreiman and Levine, ICML 2024, arXiv 2402.15567): goals without a reward.

A map phi into a space where distance is the number of steps between states: V(s, g) = -|phi(s) - phi(g)|, learned as a
value of goals. Skills are directions in it: a policy is told a direction z and rewarded for moving along it,
<phi(s') - phi(s), z>. Asked for a goal, it is told the direction to it: nothing more is learned (zero-shot).

B rows, O observation with the goal in it, S the same without, G numbers of a goal, D of phi, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.goals import GoalSpace
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.ensembles import Ensemble, Quality, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.offline.hiql import implicit_value_loss, state_of, weighted_square
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline import goal_batches, reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.goal_batches import GoalBatch, GoalConfig
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class HILPConfig(GoalConfig):
    """Settings.

    Args:
        expectile: of the goals' value.
        dimensions: D (the authors have 32 to 50).
        skill_expectile: of the skills' value.
        temperature: of the skill policy's weights; 0 clones.
        towards: share of skills that point to states of the data; the rest are random directions.
    """

    expectile: float = 0.7
    dimensions: int = 32
    skill_expectile: float = 0.7
    temperature: float = 3.0
    towards: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, expectile="(0, 1)", skill_expectile="(0, 1)", dimensions="[1, inf)", temperature="[0, inf)",
                towards="[0, 1]")
        if self.relative:
            raise SettingsError("algo.relative=true: algo=hilp maps goals and states by one function, and needs the "
                                "goal itself in the observation")


class HilbertValue(nn.Module):
    """Two values V(s, g) = -|phi(s) - phi(g)| [2, B] of observations with the goal in them [B, O]."""

    def __init__(self, goal: Tensor, achieved: Tensor, config: HILPConfig) -> None:
        super().__init__()
        self.net = Ensemble(2, len(goal), config.hidden, config.dimensions, name=config.activation, layer_norm=True)
        self.register_buffer("goal", goal)
        self.register_buffer("achieved", achieved)

    def forward(self, obs: Tensor) -> Tensor:
        """Values [2, B]."""
        here, there = self.net(torch.cat((obs[..., self.achieved], obs[..., self.goal]))).chunk(2, 1)
        return -(here - there).square().sum(-1).clamp(min=1e-6).sqrt()

    def way(self, obs: Tensor) -> Tensor:
        """phi(g) - phi(s) [B, D], of the first of both."""
        here, there = self.net(torch.cat((obs[..., self.achieved], obs[..., self.goal])))[0].chunk(2)
        return there - here


class SkillActor(nn.Module):
    """Observation [B, O] to the action [B, A] of the skill that leads to its goal."""

    hidden_dim = 0

    def __init__(self, sizes: Mapping[str, int], config: HILPConfig, space: GoalSpace) -> None:
        super().__init__()
        state = state_of(sizes["obs_dim"], space.goal)
        self.map = HilbertValue(space.goal, space.achieved, config).requires_grad_(False)  # a slow copy of the value's
        self.net = mlp(len(state) + config.dimensions, config.hidden, sizes["action_dim"], config.activation, 0.01)
        self.register_buffer("state", state)

    def skilled(self, obs: Tensor, skill: Tensor) -> Tensor:
        """Action [B, A] along ``skill`` [B, D]."""
        return torch.tanh(self.net(torch.cat((obs[..., self.state], skill), -1)))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        return self.skilled(obs, unit(self.map.way(obs)))


class HILP:
    """One gradient step of the map, the skills' values and the skill policy."""

    figures = ("map_loss", "value_loss", "quality_loss", "policy_loss", "distance")

    def __init__(self, sizes: Mapping[str, int], config: HILPConfig, space: GoalSpace) -> None:
        self.config, self.updates = config, 0
        self.actor = SkillActor(sizes, config, space)
        inputs = len(self.actor.state) + config.dimensions
        self.map = HilbertValue(space.goal, space.achieved, config)
        self.value = Value(inputs, config.hidden, config.activation)
        self.quality, self.target = (Quality(inputs, sizes["action_dim"], config.hidden, name=config.activation)
                                     for _ in range(2))
        self.map_adam = Adam(self.map, rate=config.learning_rate)
        self.adam = Adam(self.quality, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor.net, rate=config.learning_rate)
        self.map_average = Average(self.map, self.actor.map)
        self.average = Average(self.quality, self.target)
        self.modules = {"map": self.map, "value": self.value, "quality": self.quality, "target": self.target,
                        "actor": self.actor}
        self.optimizers = {"map": self.map_adam, "critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: GoalBatch) -> Tensor:
        """The map as a value of goals, then implicit Q-learning of skills."""
        config = self.config
        map_loss, value, _ = implicit_value_loss(self.map, self.actor.map, batch, config.gamma, config.expectile)
        descend(map_loss, self.map_adam)
        self.map_average.move(config.target_rate)
        losses = self.skill_losses(batch)
        descend(sum(losses[1:], losses[0]), self.adam, self.policy_adam)
        self.average.move(config.target_rate)
        return torch.stack((map_loss, *losses, -value)).detach()

    def skill_losses(self, batch: GoalBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Of V, Q and the policy, given random skills and skills that point to states of the data."""
        config = self.config
        goal = batch.view(batch.now, batch.value_goal)
        with torch.no_grad():
            moved = self.actor.map.way(batch.view(batch.now, batch.now + 1))
            away = self.actor.map.way(goal)
            towards = torch.rand(len(away), 1) < config.towards
            skill = unit(torch.where(towards, away, torch.randn_like(away)))
            reward = (moved * skill).sum(-1)
            now, after = (torch.cat((obs[..., self.actor.state], skill), -1)
                          for obs in (goal, batch.view(batch.now + 1, batch.value_goal)))
            best = self.target(now, batch.action).amin(0)
            wanted = reward + config.gamma * self.value(after)
        value = self.value(now)
        over = best - value
        tau = torch.where(over > 0, config.skill_expectile, 1.0 - config.skill_expectile)
        value_loss = (tau * over.square()).mean()
        quality_loss = (self.quality(now, batch.action) - wanted).square().mean(1).sum()
        away_from = self.actor.skilled(goal, skill) - batch.action
        policy_loss = weighted_square(away_from, config.temperature * over.detach())
        return value_loss, quality_loss, policy_loss


def unit(x: Tensor) -> Tensor:
    """``x`` [B, D] with length 1."""
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)


def train(data: Transitions, config: HILPConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return goal_batches.learn(data, config, HILP, out=out, seed=seed, **watched)


def make_actor(sizes: Mapping[str, int], config: HILPConfig) -> SkillActor:
    """The policy's networks; a checkpoint fills in which numbers are the goal."""
    goal = torch.arange(sizes["obs_dim"] - sizes["goal_dim"], sizes["obs_dim"])
    return SkillActor(sizes, config, GoalSpace(goal, torch.arange(sizes["goal_dim"])))


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, HILPConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, HILPConfig, make_actor, device)
