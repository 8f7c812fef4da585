"""O-DICE: distribution correction by orthogonal gradients (Mao et al., ICLR 2024, arXiv 2402.00348).

The value whose residuals ``e = r + gamma V(s') - V(s)`` give the ratio ``w(e)`` of the best policy's visits to the
data's. Its loss has two gradients: forward, of V(s), and backward, of V(s'). DICE descends their sum, in which one
undoes the other; others drop the backward one, and with it the constraint on states. O-DICE keeps of the backward
gradient what is orthogonal to the forward one.

B rows, P parameters of V.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.ensembles import Ensemble
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig, bounded_actor
from temporeal.policies.training.offline_learner import Result

LARGEST_WEIGHT = 100.0  # of a row in the policy's loss (the authors' code)


@dataclass(frozen=True)
class ODICEConfig(OfflineRLConfig):
    """Settings.

    Args:
        forward: lambda, weight of the residuals against that of the value itself; the greater, the more conservative:
            0.5 is the value of the data, above it the best of the data.
        backward: eta, weight of the projected backward gradient; 0 drops it, as semi-gradient methods do.
        scale: factor on rewards; residuals of a few units separate good steps from bad ones.
        values: networks of V, whose least is used; the authors have 2.
    """

    forward: float = 0.6
    backward: float = 1.0
    scale: float = 1.0
    values: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, forward="(0, 1)", backward="[0, inf)", scale="(0, inf)", values="[1, inf)")


class ODICE:
    """One gradient step of V and the policy."""

    figures = ("value_loss", "policy_loss", "value", "residual", "cosine")

    def __init__(self, sizes: Mapping[str, int], config: ODICEConfig, generator: torch.Generator) -> None:
        self.config = config
        self.value, self.target = (Ensemble(config.values, sizes["obs_dim"], config.hidden, 1, name=config.activation,
                                            layer_norm=True) for _ in range(2))
        self.target.requires_grad_(False).load_state_dict(self.value.state_dict())
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.value, self.target)
        self.modules = {"value": self.value, "target": self.target, "actor": self.actor}
        self.optimizers = {"value": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """The value by orthogonal gradients, the policy by weighted cloning."""
        config, reward = self.config, self.config.scale * batch.reward
        rows = torch.cat((batch.obs, batch.next_obs))
        value, after = self.value(rows)[..., 0].chunk(2, -1)  # [2, B] each
        with torch.no_grad():
            target, target_after = self.target(rows)[..., 0].chunk(2, -1)
        going_on = config.gamma * batch.mask
        forward = conjugate(reward + going_on * target_after - value).mean(1).sum()
        backward = conjugate(reward + going_on * after - target).mean(1).sum()
        linear = value.mean(1).sum()
        cosine = self.descend_orthogonally(linear, forward, backward)
        residual = (reward + going_on * target_after - value).detach().amin(0)
        policy_loss = self.clone(batch, residual)
        loss = (1.0 - config.forward) * linear + config.forward * forward
        return torch.stack((loss, policy_loss, value.mean(), residual.mean(), cosine)).detach()

    def descend_orthogonally(self, linear: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
        """One step along ``(1 - lambda) g_V + lambda (g_f + eta (g_b - (g_b g_f) / (g_f g_f) g_f))``. Returns
        the cosine of the forward and the backward gradient."""
        config, parameters = self.config, list(self.value.parameters())
        g_v, g_f, g_b = (torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
                         for loss in (linear, forward, backward))
        along = g_b @ g_f / (g_f @ g_f).clamp(min=1e-12)
        self.adam.gradient.copy_(
            (1.0 - config.forward) * g_v + config.forward * (g_f + config.backward * (g_b - along * g_f)))
        self.adam.step()
        self.average.move(config.target_rate)
        return along * g_f.norm() / g_b.norm().clamp(min=1e-12)

    def clone(self, batch: Any, residual: Tensor) -> Tensor:
        """Regress the data's action with weight ``max(e, 0)``: what the ratio ``w(e)`` keeps, whatever the scale."""
        weight = residual.clamp(0.0, LARGEST_WEIGHT)
        loss = -(weight * self.actor.distribution(batch.obs).log_prob(batch.action)).mean()
        descend(loss, self.policy_adam)
        return loss


def ratio(residual: Tensor) -> Tensor:
    """``w(e) = max(1 + e / 2, 0)``, the derivative of :func:`conjugate`: visits of the best policy to the data's."""
    return (1.0 + 0.5 * residual).clamp(min=0.0)


def conjugate(residual: Tensor) -> Tensor:
    """``f*(e) = max over w >= 0 of w e - (w - 1)^2``, the conjugate of the Pearson chi-squared divergence."""
    w = ratio(residual)
    return w * residual - (w - 1.0).square()


def train(data: Transitions, config: ODICEConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(data, config, ODICE, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, ODICEConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, ODICEConfig, bounded_actor, device)
