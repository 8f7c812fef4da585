"""Fitted Q evaluation (Le, Voloshin and Yue, ICML 2019) with an ensemble on resampled episodes (Hao et al., ICML 2021).

Regress ``Q(s, a)`` on ``r + gamma m Q'(s', pi(s'))``, Q' a slow copy, until it is the value of pi, which has no
noise here; the estimate is the mean of ``Q(s_0, pi(s_0))`` over initial states. Needs no density of the policy that
made the data.

K members, B batch, O observation, A action, M steps, E episodes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.importance import padded
from temporeal.policies.evaluate.ope.judged_data import returns_to_go
from temporeal.policies.evaluate.ope.members import Resamples
from temporeal.policies.nets.members import Members

PAIRS, NOISE_SEED = 4, 0  # of antithetic actions of each state, for V
Policy = Callable[[Tensor], Tensor]
"""Observation [..., O] to the action [..., A]."""


@dataclass(frozen=True)
class FQEConfig:
    """Settings of the fit.

    Args:
        members: K, each on its own resample of the episodes.
        updates: Adam steps.
        batch: steps per update and member.
        hidden: layers of Q.
        warm_up: updates of these that regress Q on what the data earned from there on. What is left to learn is where
            the policies differ: values need not wander back through a whole episode.
        target_rate: how far Q' moves to Q at each update.
        discount: gamma; 1 where each episode ends by itself.
        least, most: bounds of a return, to which targets are clipped; 0 and 1 for P(satisfied).
    """

    members: int = 8
    updates: int = 3000
    warm_up: int = 500
    batch: int = 256
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    target_rate: float = 0.05
    discount: float = 1.0
    least: float = -math.inf
    most: float = math.inf


class FittedQ(nn.Module):
    """K Q functions of normalized observations: [B, O] and [B, A] (or [K, B, ...]) to [K, B]."""

    def __init__(self, data: Transitions, config: FQEConfig) -> None:
        super().__init__()
        inputs = data.obs.shape[1] + data.action.shape[1]
        self.net = Members(config.members, inputs, config.hidden, 1, name="silu")
        deviation, mean = torch.std_mean(data.obs, 0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(deviation > 1e-6, 1.0 / deviation.clamp(min=1e-6), 1.0))
        self.register_buffer("unit", data.reward.new_tensor(max(float(data.reward.abs().max()), 1e-6)))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values [K, B]."""
        return self.net(torch.cat(((obs - self.mean) * self.scale, action), -1))[..., 0] * self.unit


@dataclass(frozen=True)
class Fitted:
    """A fitted ensemble and what it was fitted on."""

    q: FittedQ
    policy: Policy
    data: Transitions
    resamples: Resamples
    least: float = -math.inf
    most: float = math.inf

    @torch.no_grad()
    def estimate(self) -> Estimate:
        """Value at the initial states of the episodes; the interval is that of the spread over members."""
        first = self.data.obs[self.data.starts[:-1]]
        values = self.q(first, self.policy(first)).clamp(self.least, self.most)
        draws = self.resamples.averages(values)
        return Estimate(float(draws.mean()), values.mean(0).double().numpy(), draws, float(len(first)),
                        independent=True)

    @torch.no_grad()
    def tables(self, std: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Q of the data's actions and V of its states, the members' mean, as padded tables [E, T].

        V is the mean of Q over the actions of the policy with Gaussian noise ``std``, whose ratios importance sampling
        has: doubly robust estimates are unbiased only where Q and V are of the same density. Q itself is that of the
        policy without noise, for its targets have ``pi(s')``; any Q will do as a control variate.
        """
        starts = self.data.starts.numpy()
        q = self.q(self.data.obs, self.data.action).mean(0)
        mean, generator = self.policy(self.data.obs), torch.Generator().manual_seed(NOISE_SEED)
        noise = std * torch.randn(PAIRS, *mean.shape, generator=generator)
        v = torch.stack([self.q(self.data.obs, mean + each).mean(0) for each in (*noise, *-noise)]).mean(0)
        return padded(q.numpy(), starts), padded(v.numpy(), starts)


def fit(data: Transitions, policy: Policy, config: FQEConfig, seed: int = 0) -> Fitted:
    """Fit Q of the deterministic ``policy`` to ``data``; one seed makes the fits of several policies comparable."""
    torch.manual_seed(seed)
    q, resamples = FittedQ(data, config), Resamples(data, config.members, seed)
    slow = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.updates, 0.05 * config.learning_rate)
    with torch.no_grad():
        next_action = policy(data.next_obs)
    earned = torch.from_numpy(returns_to_go(data, config.discount)).float()
    for update in range(config.updates):
        chosen = resamples.draw(config.batch)
        with torch.no_grad():
            after = slow(data.next_obs[chosen], next_action[chosen]).clamp(config.least, config.most)
            target = data.reward[chosen] + config.discount * data.mask[chosen] * after
            target = earned[chosen] if update < config.warm_up else target
        loss = (q(data.obs[chosen], data.action[chosen]) - target).square().mean(1).sum()  # each member its own
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            rate = 1.0 if update < config.warm_up else config.target_rate
            torch._foreach_lerp_(list(slow.parameters()), list(q.parameters()), rate)
    return Fitted(q, policy, data, resamples, config.least, config.most)
