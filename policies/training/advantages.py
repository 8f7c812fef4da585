"""Advantage estimation: generalized advantages, and their standardization over processes."""

from __future__ import annotations

import torch
from torch import Tensor

from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training.ranks import Ranks


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, done: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Generalized advantage estimates [T, N].

    ``next_value`` [T, N] is the value of the true successor of each step: 0 where the episode terminated, that of the
    last state where it was truncated. ``done`` [T, N]: the next row belongs to another episode.
    """
    delta = reward + gamma * next_value - value
    carry = gamma * gae_lambda * (~done).to(value.dtype)
    advantage = torch.empty_like(delta)
    last = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        last = torch.addcmul(delta[t], carry[t], last, out=advantage[t])
    return advantage


def standardized(values: Tensor, ranks: Ranks) -> Tensor:
    """``values`` shifted and scaled to mean 0 and standard deviation 1 over all processes."""
    total = ranks.merged(moments(values.reshape(-1, 1)))
    return (values - total.mean.to(values.dtype)) / (total.var.sqrt() + 1e-8).to(values.dtype)
