"""Actors of offline learners: their mean lies in (-1, 1), as the data's actions do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import Gaussian, mlp

LOG_STD = (-5.0, 2.0)  # Kostrikov et al. 2021, jaxrl: policy.py


class BoundedActor(nn.Module):
    """Observation [B, O] to the deterministic action ``tanh(net(obs))`` [B, A]; one spread for all states.

    ``dropout`` of the hidden units in training (Kostrikov et al. 2021 use 0.1 on few demonstrations).
    """

    hidden_dim = 0

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], *, name: str = "relu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.net = with_dropout(mlp(obs_dim, hidden, action_dim, name, 0.01), dropout)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        return torch.tanh(self.net(obs))

    def distribution(self, obs: Tensor) -> Gaussian:
        """The normal distribution around it."""
        return Gaussian(self(obs), self.log_std.clamp(*LOG_STD))


def with_dropout(net: nn.Sequential, rate: float) -> nn.Sequential:
    """``net`` with dropout after each activation."""
    if not rate:
        return net
    layers: list[nn.Module] = []
    for layer in net:
        layers += [layer] if isinstance(layer, nn.Linear) else [layer, nn.Dropout(rate)]
    return nn.Sequential(*layers)
