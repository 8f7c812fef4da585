"""Density of the policy that made a dataset, where nobody wrote it down: a mixture of Gaussians, cloned.

B batch, C components, A action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import mlp


@dataclass(frozen=True)
class BehaviourConfig:
    """Settings of the fit.

    Args:
        components: of the mixture; one for a policy with Gaussian noise.
        least_std: of a component, in units of actions: narrower ones make ratios that nobody can average.
        held_out: share of the episodes that decide when the fit stops.
    """

    components: int = 3
    hidden: tuple[int, ...] = (128, 128)
    updates: int = 2000
    batch: int = 256
    learning_rate: float = 1e-3
    least_std: float = 0.05
    held_out: float = 0.1


class MixtureDensity(nn.Module):
    """log density [B] of actions [B, A] given observations [B, O]; C diagonal Gaussians with weights."""

    def __init__(self, obs: Tensor, action_dim: int, config: BehaviourConfig) -> None:
        super().__init__()
        self.shape = (config.components, action_dim)
        self.net = mlp(obs.shape[1], config.hidden, config.components * (1 + 2 * action_dim), "silu", 0.1)
        self.least = math.log(config.least_std)
        deviation, mean = torch.std_mean(obs, 0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(deviation > 1e-6, 1.0 / deviation.clamp(min=1e-6), 1.0))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Log density [B]."""
        components, size = self.shape
        weight, rest = self.net((obs - self.mean) * self.scale).split((components, 2 * components * size), -1)
        centre, raw = rest.unflatten(-1, (2, components, size)).unbind(-3)
        log_std = self.least + nn.functional.softplus(raw - self.least - 1.0)
        apart = (action[..., None, :] - centre) * torch.exp(-log_std)
        each = (-0.5 * apart.square() - log_std - 0.5 * math.log(2.0 * math.pi)).sum(-1)
        return torch.logsumexp(each + weight.log_softmax(-1), -1)


def clone(data: Transitions, config: BehaviourConfig, seed: int = 0) -> MixtureDensity:
    """The mixture of greatest likelihood; of the fits on the way, the one that held-out episodes find likeliest."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = MixtureDensity(data.obs, data.action.shape[1], config)
    episodes = len(data.starts) - 1
    order = torch.randperm(episodes, generator=generator)
    out = torch.zeros(episodes, dtype=torch.bool)
    out[order[:int(config.held_out * episodes)]] = True
    held = out[data.episode].nonzero().flatten()
    learnt = (~out[data.episode]).nonzero().flatten()
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    best, kept = -math.inf, {k: v.clone() for k, v in model.state_dict().items()}
    for update in range(config.updates):
        chosen = learnt[torch.randint(len(learnt), (config.batch,), generator=generator)]
        loss = -model(data.obs[chosen], data.action[chosen]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if len(held) and (update + 1) % 100 == 0:
            with torch.no_grad():
                found = float(model(data.obs[held], data.action[held]).mean())
            if found > best:
                best, kept = found, {k: v.clone() for k, v in model.state_dict().items()}
    if len(held):
        model.load_state_dict(kept)
    return model


def gaussian_log_density(mean: Tensor, std: float, action: Tensor) -> Tensor:
    """Log density [B] of ``action`` [B, A] under the policy ``mean`` [B, A] with noise ``std``.

    A deterministic policy has no density: noise of this width is given to it (Kallus and Zhou 2018); its estimate is
    that of the noisy policy.
    """
    return (-0.5 * ((action - mean) / std).square() - math.log(std) - 0.5 * math.log(2.0 * math.pi)).sum(-1)
