"""An actor whose action is distributed as a mixture of Gaussians: it can hold two ways to do a thing apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI, mlp

LEAST_LOG_STD, MOST_LOG_STD = -5.0, 1.0  # of actions in [-1, 1]


@dataclass(frozen=True)
class Mixture:
    """K components over actions: ``logits`` [..., K], ``mean`` and ``log_std`` [..., K, A]."""

    logits: Tensor
    mean: Tensor
    log_std: Tensor

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density [...] of ``action`` [..., A]."""
        noise = (action[..., None, :] - self.mean) * torch.exp(-self.log_std)
        each = -0.5 * noise.square().sum(-1) - self.log_std.sum(-1) - HALF_LOG_2PI * action.shape[-1]
        return torch.logsumexp(torch.log_softmax(self.logits, -1) + each, -1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """An action [..., A]: of one component, chosen by the weights."""
        chances = torch.softmax(self.logits, -1)
        chosen = torch.multinomial(chances.flatten(0, -2), 1, generator=generator).view(*self.logits.shape[:-1], 1, 1)
        mean, log_std = (part.gather(-2, chosen.expand(*chosen.shape[:-1], part.shape[-1]))[..., 0, :]
                         for part in (self.mean, self.log_std))
        return mean + log_std.exp() * torch.randn(mean.shape, generator=generator)

    def likeliest(self) -> Tensor:
        """Mean [..., A] of the component with the largest weight."""
        best = self.logits.argmax(-1)[..., None, None].expand(*self.logits.shape[:-1], 1, self.mean.shape[-1])
        return self.mean.gather(-2, best)[..., 0, :]


class MixtureActor(nn.Module):
    """Observation [..., O] to a :class:`Mixture`; deterministic: the mean of its likeliest component."""

    hidden_dim = 0

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int], name: str, components: int) -> None:
        super().__init__()
        self.sizes = components, action_dim
        self.net = mlp(obs_dim, hidden, components * (1 + 2 * action_dim), name, 1.0)

    def distribution(self, obs: Tensor) -> Mixture:
        """Of actions at ``obs``."""
        components, size = self.sizes
        logits, mean, log_std = self.net(obs).split([components, components * size, components * size], -1)
        log_std = LEAST_LOG_STD + (MOST_LOG_STD - LEAST_LOG_STD) * torch.sigmoid(log_std)
        return Mixture(logits, mean.unflatten(-1, (components, size)), log_std.unflatten(-1, (components, size)))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [..., A]."""
        return self.distribution(obs).likeliest()
