"""K networks of one shape, each with rows of its own, computed together: each layer is one batched product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import activation


class Members(nn.Module):
    """K multilayer perceptrons: inputs [K, B, I] (or [B, I], the same for all) to outputs [K, B, outputs].

    Orthogonal weights as in :func:`temporeal.policies.nets.actor.linear`, each member its own.
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, *, name: str = "relu",
        last_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.members, self.activation = members, activation(name)
        widths = (inputs, *hidden, outputs)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, (before, after) in enumerate(itertools.pairwise(widths)):
            gain = last_gain if i == len(hidden) else math.sqrt(2.0)
            weights = [nn.init.orthogonal_(torch.empty(after, before), gain).T for _ in range(members)]
            self.weights.append(nn.Parameter(torch.stack(weights).contiguous()))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, after)))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [K, B, outputs]."""
        if x.ndim == 2:
            x = x.expand(self.members, *x.shape)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias, x, weight)
            if i < len(self.weights) - 1:
                x = self.activation(x)
        return x
