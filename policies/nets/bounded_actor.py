"""Actors of offline learners: their mean lies in (-1, 1), as the data's actions do."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI, Gaussian
from temporeal.policies.nets.ensembles import Ensemble

LOG_2 = log(2.0)
INIT_STD = 0.3  # of a range of 2; begun at 1, as in the code cited below, thousands of updates do nothing but narrow it
LOG_STD = (-5.0, 2.0)  # Kostrikov et al. 2021, jaxrl: policy.py


class BoundedActor(nn.Module):
    """Observation [B, O] to the deterministic action ``tanh(net(obs))`` [B, A]; one spread for all states."""

    hidden_dim = 0

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], *, name: str = "relu", precision: str = "float32"
    ) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, hidden, action_dim, name=name, last_gain=0.01, precision=precision)
        self.log_std = nn.Parameter(torch.full((action_dim,), log(INIT_STD)))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        return torch.tanh(self.net(obs)[0])

    def distribution(self, obs: Tensor) -> Gaussian:
        """The normal distribution around it."""
        return Gaussian(self(obs), self.log_std.clamp(*LOG_STD))


class SquashedActor(nn.Module):
    """Observation [B, O] to a normal distribution squashed by tanh (Haarnoja et al. 2018, appendix C), whose spread
    depends on the state; the deterministic action is ``tanh(mean)``."""

    hidden_dim = 0

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], *, name: str = "relu", precision: str = "float32"
    ) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, hidden, 2 * action_dim, name=name, last_gain=0.01, precision=precision)

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        return torch.tanh(self.net(obs)[0].chunk(2, -1)[0])

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [..., B, A] of standard normal ``noise`` [..., B, A], and their log-densities [..., B]."""
        return squashed(self.net(obs)[0], noise)


class Ramped(nn.Module):
    """An actor of which a share is done: its action times ``reach`` [], which a learner sets."""

    hidden_dim = 0

    def __init__(self, own: BoundedActor | SquashedActor) -> None:
        super().__init__()
        self.own = own
        self.register_buffer("reach", torch.ones(()))
        self.reach: Tensor

    @property
    def net(self) -> Ensemble:
        """The actor's."""
        return self.own.net

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        found: Tensor = self.own(obs)
        return self.reach * found

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`SquashedActor.sample`; log-densities are those of the whole action."""
        action, log_prob = cast("SquashedActor", self.own).sample(obs, noise)
        return self.reach * action, log_prob


def squashed(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [..., B, A] of a network's ``outputs`` [B, 2A], means beside logarithms of spreads, and standard normal
    ``noise`` [..., B, A]; and their log-densities [..., B]."""
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD)
    raw = mean + log_std.exp() * noise
    normal = -(0.5 * noise.square() + log_std + HALF_LOG_2PI).sum(-1)
    # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not underflow
    stretch = 2.0 * (LOG_2 - raw - nn.functional.softplus(-2.0 * raw)).sum(-1)
    return torch.tanh(raw), normal - stretch


def smoothed(action: Tensor, deviation: float, limit: float, generator: torch.Generator) -> Tensor:
    """``action`` [B, A] with noise that is cut at ``limit``, within [-1, 1] (Fujimoto et al. 2018, section 5.3)."""
    noise = torch.randn(action.shape, generator=generator).mul_(deviation).clamp_(-limit, limit)
    return (action + noise).clamp_(-1.0, 1.0)
