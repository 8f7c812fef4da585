"""Hierarchical implicit Q-learning (Park, Ghosh, Eysenbach and Levine, NeurIPS 2023, arXiv 2307.11949).

One value of goals, learned without actions, makes two policies: the high one chooses a sub-goal k steps ahead, the low
one acts towards it. Far goals have values whose differences between neighbours drown in noise; between states k steps
apart they do not, and the low policy never sees a far goal.

B rows, O observation with the goal in it, S the same without, D numbers of a sub-goal's representation, A action.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.goals import GoalMix, GoalSpace
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.ensembles import Ensemble
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import goal_batches, reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.goal_batches import GoalBatch, GoalConfig
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policies' losses (OGBench: impls/agents/hiql.py)


@dataclass(frozen=True)
class HIQLConfig(GoalConfig):
    """Settings. Defaults are OGBench's for mazes; manipulation takes ``subgoal_steps`` 10.

    Args:
        expectile: tau: how optimistic the value is about what the data reach.
        low_alpha, high_alpha: inverse temperatures of the policies; 0 clones.
        policy_future: share of the high policy's goals that come from later in the episode, the rest from the whole
            data; 1, or 0.5 where episodes must be stitched (OGBench).
        subgoal_steps: k.
        representation: D, numbers of a sub-goal, on a sphere of radius sqrt(D).
    """

    expectile: float = 0.7
    low_alpha: float = 3.0
    high_alpha: float = 3.0
    policy_future: float = 0.5
    subgoal_steps: int = 25
    representation: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, expectile="(0, 1)", low_alpha="[0, inf)", high_alpha="[0, inf)", policy_future="[0, 1]",
                subgoal_steps="[1, inf)", representation="[1, inf)")


class Representation(nn.Module):
    """phi([s; g]): observation with the goal in it [..., O] to [..., D] of length sqrt(D)."""

    def __init__(self, obs_dim: int, config: HIQLConfig) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, config.hidden, config.representation, name=config.activation, layer_norm=True)

    def forward(self, obs: Tensor) -> Tensor:
        """Representation [..., D]."""
        return on_sphere(self.net(obs)[0])


class GoalValue(nn.Module):
    """Two values V(s, phi([s; g])) [2, B] of observations with the goal in them [B, O]."""

    def __init__(self, obs_dim: int, state: Tensor, config: HIQLConfig) -> None:
        super().__init__()
        self.phi = Representation(obs_dim, config)
        self.net = Ensemble(2, len(state) + config.representation, config.hidden, 1, name=config.activation,
                            layer_norm=True)
        self.register_buffer("state", state)

    def forward(self, obs: Tensor) -> Tensor:
        """Values [2, B]."""
        return self.net(torch.cat((obs[..., self.state], self.phi(obs)), -1))[..., 0]


class HierarchicalActor(nn.Module):
    """Observation [B, O] to the action [B, A] of the low policy towards the sub-goal of the high one."""

    hidden_dim = 0

    def __init__(self, obs_dim: int, action_dim: int, state: Tensor, config: HIQLConfig) -> None:
        super().__init__()
        size = config.representation
        self.high = mlp(obs_dim, config.hidden, size, config.activation, 0.01)
        self.low = mlp(len(state) + size, config.hidden, action_dim, config.activation, 0.01)
        self.register_buffer("state", state)

    def towards(self, obs: Tensor, subgoal: Tensor) -> Tensor:
        """Low policy: action [B, A] towards the representation ``subgoal`` [B, D]."""
        return torch.tanh(self.low(torch.cat((obs[..., self.state], subgoal), -1)))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        return self.towards(obs, on_sphere(self.high(obs)))


class HIQL:
    """One gradient step of the value and of both policies."""

    figures = ("value_loss", "high_loss", "low_loss", "value", "advantage")

    def __init__(self, sizes: Mapping[str, int], config: HIQLConfig, space: GoalSpace) -> None:
        self.config = config
        state = state_of(sizes["obs_dim"], space.goal)
        self.value = GoalValue(sizes["obs_dim"], state, config)
        self.target = GoalValue(sizes["obs_dim"], state, config).requires_grad_(False)
        self.target.load_state_dict(self.value.state_dict())
        self.actor = HierarchicalActor(sizes["obs_dim"], sizes["action_dim"], state, config)
        self.adam = Adam(self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.value, self.target)
        self.modules = {"value": self.value, "target": self.target, "actor": self.actor}
        self.optimizers = {"value": self.adam, "policies": self.policy_adam}

    def update(self, batch: GoalBatch) -> Tensor:
        """The value, then both policies, each with the others' networks held fixed."""
        value_loss, value, advantage = implicit_value_loss(
            self.value, self.target, batch, self.config.gamma, self.config.expectile)
        high_loss = self.high_loss(batch)
        low_loss = self.low_loss(batch)
        descend(value_loss + high_loss + low_loss, self.adam, self.policy_adam)
        self.average.move(self.config.target_rate)
        return torch.stack((value_loss, high_loss, low_loss, value, advantage)).detach()

    def high_loss(self, batch: GoalBatch) -> Tensor:
        """Regress phi of the state k steps ahead, weighted by how much nearer to the goal it is."""
        ahead = batch.ahead(self.config.subgoal_steps, batch.policy_goal)
        now = batch.view(batch.now, batch.policy_goal)
        with torch.no_grad():
            closer = gain(self.value_of_goals, now, batch.view(ahead, batch.policy_goal))
            subgoal = self.value.phi(batch.view(batch.now, ahead))
        return weighted_square(self.actor.high(now) - subgoal, self.config.high_alpha * closer)

    def low_loss(self, batch: GoalBatch) -> Tensor:
        """Regress the action, weighted by how much nearer to the sub-goal its step led."""
        ahead = batch.ahead(self.config.subgoal_steps)
        now = batch.view(batch.now, ahead)
        with torch.no_grad():
            closer = gain(self.value, now, batch.view(batch.now + 1, ahead))
            subgoal = self.value.phi(now)
        return weighted_square(self.actor.towards(now, subgoal) - batch.action, self.config.low_alpha * closer)

    @property
    def value_of_goals(self) -> nn.Module:
        """The value that judges sub-goals."""
        return self.value


def implicit_value_loss(
    value: nn.Module, target: nn.Module, batch: GoalBatch, gamma: float, expectile: float, steps: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Action-free expectile regression: loss, mean value, mean advantage (-1 per step until the goal, then 0).

    Both members of ``value`` take the step's one advantage, that of the slow copy's mean, for their weights. ``steps``:
    of an option that counts as one step.
    """
    goal = batch.value_goal
    here, led_to = goal == batch.now, batch.ahead(steps, goal)
    now, after = batch.view(batch.now, goal), batch.view(led_to, goal)
    reward = here.float() - 1.0
    going_on = (~here & (led_to != goal)).float()  # V(g, g) = 0 also where g is a final state, in which no step begins
    with torch.no_grad():
        before, following = target(torch.cat((now, after))).chunk(2, -1)  # [2, B] each
        advantage = reward + gamma * going_on * following.amin(0) - before.mean(0)
        wanted = reward + gamma * going_on * following
    found = value(now)
    weight = torch.where(advantage >= 0, expectile, 1.0 - expectile)
    return (weight * (wanted - found).square()).mean(1).sum(), found.mean(), advantage.mean()


def gain(value: nn.Module, now: Tensor, after: Tensor) -> Tensor:
    """``V(after) - V(now)`` [B], of the two values' mean."""
    before, following = value(torch.cat((now, after))).mean(0).chunk(2)
    return following - before


def weighted_square(error: Tensor, log_weight: Tensor) -> Tensor:
    """Mean over rows of ``min(exp(log_weight), 100) |error|^2 / 2``: advantage-weighted regression, unit spread."""
    weight = log_weight.exp().clamp(max=LARGEST_WEIGHT)
    return 0.5 * (weight * error.square().sum(-1)).mean()


def on_sphere(x: Tensor) -> Tensor:
    """``x`` [..., D] with length sqrt(D)."""
    return x * (math.sqrt(x.shape[-1]) / x.norm(dim=-1, keepdim=True).clamp(min=1e-6))


def state_of(obs_dim: int, goal: Tensor) -> Tensor:
    """Indices [S] of the observation without the ``goal``."""
    asked = set(goal.tolist())
    return torch.tensor([i for i in range(obs_dim) if i not in asked])


def train(data: Transitions, config: HIQLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    goals = GoalMix(0.0, config.policy_future).draw
    return goal_batches.learn(data, config, HIQL, out=out, seed=seed, policy_goals=goals, **watched)


def make_actor(sizes: Mapping[str, int], config: HIQLConfig) -> HierarchicalActor:
    """The policies' networks; a checkpoint fills in which numbers are the state."""
    state = torch.arange(sizes["obs_dim"] - sizes["goal_dim"])
    return HierarchicalActor(sizes["obs_dim"], sizes["action_dim"], state, config)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, HIQLConfig]:
    """The policies in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, HIQLConfig, make_actor, device)
