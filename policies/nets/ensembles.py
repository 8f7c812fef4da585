"""Feed-forward networks of an ensemble, computed together: one batched product per layer. E members, B rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import activation


class Ensemble(nn.Module):
    """E networks of one shape: rows [B, I], or [E, B, I] for each member its own, to [E, B, outputs].

    Args:
        last_gain: of the last layer's orthogonal weights; the others have sqrt(2).
        layer_norm: after each hidden product, before its activation (Ba et al. 2016).
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, *, name: str = "relu",
        last_gain: float = 1.0, layer_norm: bool = False,
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        gains = [math.sqrt(2.0)] * len(hidden) + [last_gain]
        self.members = members
        self.weights = nn.ParameterList(
            [_orthogonal(members, *sizes, gain) for *sizes, gain in zip(widths, widths[1:], gains)])
        self.biases = nn.ParameterList([torch.zeros(members, 1, width) for width in widths[1:]])
        self.scales = nn.ParameterList([torch.ones(members, 1, width) for width in hidden] if layer_norm else [])
        self.shifts = nn.ParameterList([torch.zeros(members, 1, width) for width in hidden] if layer_norm else [])
        self.activation = activation(name)

    def forward(self, rows: Tensor) -> Tensor:
        """Outputs [E, B, outputs] of ``rows``."""
        x = rows if rows.ndim == 3 else rows.expand(self.members, *rows.shape)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                if len(self.scales):
                    x = nn.functional.layer_norm(x, x.shape[-1:]) * self.scales[layer] + self.shifts[layer]
                x = self.activation(x)
        return x


class Value(nn.Module):
    """V(s): rows [B, O] to [B]."""

    def __init__(self, obs_dim: int, hidden: Sequence[int], name: str = "relu", layer_norm: bool = False) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, hidden, 1, name=name, layer_norm=layer_norm)

    def forward(self, obs: Tensor) -> Tensor:
        """Values [B]."""
        return self.net(obs)[0, :, 0]


class Quality(nn.Module):
    """Q(s, a) of an ensemble of E: rows [B, O] and [B, A] to [E, B]."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], *, members: int = 2, name: str = "relu",
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.net = Ensemble(members, obs_dim + action_dim, hidden, 1, name=name, layer_norm=layer_norm)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values [E, B]."""
        return self.net(torch.cat([obs, action], -1))[..., 0]


def _orthogonal(members: int, inputs: int, outputs: int, gain: float) -> Tensor:
    weight = torch.empty(members, inputs, outputs)
    for each in weight:
        nn.init.orthogonal_(each, gain)
    return weight
