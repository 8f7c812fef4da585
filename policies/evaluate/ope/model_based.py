"""Model-based evaluation: learn the dynamics, roll the policy out in them from the data's initial states.

An ensemble on resampled episodes predicts (change of observation, reward, end) from (observation, action). Each
member rolls out alone from the initial states of its episodes, so that their spread is the error of the estimate.
Rollouts stay within the range of the data, where alone the models mean anything.

K members, B batch, O observation, E episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.members import Resamples
from temporeal.policies.nets.members import Members

Policy = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the models and their rollouts.

    Args:
        members: K.
        horizon: steps of a rollout; None: as many as the longest episode has.
        starts: initial states per member at most.
        least, most: bounds of a return, to which that of each rollout is clipped.
    """

    members: int = 5
    updates: int = 3000
    batch: int = 256
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    discount: float = 1.0
    horizon: int | None = None
    starts: int = 256
    least: float = float("-inf")
    most: float = float("inf")


class Dynamics(nn.Module):
    """K models of the next observation, the reward and the probability of an end."""

    def __init__(self, data: Transitions, config: ModelConfig) -> None:
        super().__init__()
        size = data.obs.shape[1]
        self.net = Members(config.members, size + data.action.shape[1], config.hidden, size + 2, name="silu")
        deviation, mean = torch.std_mean(data.obs, 0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(deviation > 1e-6, 1.0 / deviation.clamp(min=1e-6), 1.0))
        self.register_buffer("step", (data.next_obs - data.obs).std(0).clamp(min=1e-6))
        self.register_buffer("unit", data.reward.std().clamp(min=1e-6))
        low, high = torch.minimum(data.obs, data.next_obs).amin(0), torch.maximum(data.obs, data.next_obs).amax(0)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Change of the observation [K, B, O] in units of ``step``, reward [K, B] in units of ``unit``, logit of an
        end [K, B]."""
        out = self.net(torch.cat(((obs - self.mean) * self.scale, action), -1))
        return out[..., :-2], out[..., -2], out[..., -1]

    def advance(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next observation [K, B, O], reward [K, B], probability of going on [K, B]."""
        change, reward, end = self(obs, action)
        after = torch.minimum(torch.maximum(obs + change * self.step, self.low), self.high)
        return after, reward * self.unit, torch.sigmoid(-end)


def fit(data: Transitions, config: ModelConfig, seed: int = 0) -> tuple[Dynamics, Resamples]:
    """Least squares for observation and reward, likelihood for the end."""
    torch.manual_seed(seed)
    model, resamples = Dynamics(data, config), Resamples(data, config.members, seed)
    change = (data.next_obs - data.obs) / model.step
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.updates, 0.05 * config.learning_rate)
    for _ in range(config.updates):
        chosen = resamples.draw(config.batch)
        moved, reward, end = model(data.obs[chosen], data.action[chosen])
        loss = (moved - change[chosen]).square().mean((1, 2)) \
            + (reward - data.reward[chosen] / model.unit).square().mean(1) \
            + nn.functional.binary_cross_entropy_with_logits(end, 1.0 - data.mask[chosen], reduction="none").mean(1)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        schedule.step()
    return model, resamples


@torch.no_grad()
def evaluate(
    model: Dynamics, resamples: Resamples, data: Transitions, policy: Policy, config: ModelConfig, seed: int = 0
) -> Estimate:
    """Value of ``policy`` by rollouts in the models."""
    lengths = data.starts.diff()
    horizon = int(lengths.max()) if config.horizon is None else config.horizon
    generator = torch.Generator().manual_seed(seed)
    weights = resamples.counts.float()
    chosen = torch.multinomial(weights, min(config.starts, weights.shape[1]), True, generator=generator)
    obs = data.obs[data.starts[:-1]][chosen]  # [K, B, O]
    value, alive = torch.zeros(obs.shape[:2]), torch.ones(obs.shape[:2])
    for step in range(horizon):
        obs, reward, going_on = model.advance(obs, policy(obs))
        value += config.discount ** step * alive * reward
        alive *= going_on
    draws = value.clamp(config.least, config.most).mean(1).double().numpy()
    shares = np.full(len(lengths), draws.mean())  # rollouts belong to no episode of the data
    return Estimate(float(draws.mean()), shares, draws, float(len(lengths)), independent=True)
