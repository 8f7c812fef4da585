"""Concurrent imitation: the policy is also drawn to what was demonstrated, where that is better still.

B rows, A action.

    loss = w mean|Q(s, pi(s))| mean over demonstrated rows of [Q(s, a) > Q(s, pi(s))] |pi(s) - a|^2

The filter is that of Nair et al. 2018 (arXiv 1709.10089, eq. 5), the unit of the weight that of Fujimoto and Gu 2021
(TD3+BC, arXiv 2106.06860, eq. 5): the same weight serves rewards of any size. A handful of trajectories is enough to
begin with; what the policy does better than they did is not pulled back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.settings import OffPolicyConfig


def pull(action: Tensor, value: Tensor, batch: Batch, rated: Tensor, config: OffPolicyConfig) -> Tensor:
    """The derivative [B, A] of the loss by the policy's deterministic ``action`` [B, A].

    Args:
        value: of what the policy does [B], by the critics.
        rated: what each critic says of the actions in the batch [E, B].
    """
    assert batch.shown is not None
    told, pulled = batch.pair[:, -action.shape[1] :], batch.shown
    count = pulled.sum().clamp(min=1.0)
    if config.imitation_filter:
        pulled = pulled * (rated.mean(0) if config.policy_value == "mean" else rated.amin(0)).gt(value)
    weight = config.imitation * value.abs().mean() / count
    return torch.mul(action - told, (2.0 * weight * pulled)[:, None])
