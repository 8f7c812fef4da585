"""What the pictures and the sentence say of the world in numbers: the places of what is named.

A head on the prefix's tokens, trained on places that simulators know. What it says goes to the expert beside what the
robot measures of itself. From tokens alone an expert of few demonstrations reads places badly: of 100 it stayed 3 cm
(median) beside places that a linear head read off the same tokens to 1 cm (a trial, one seed, not kept).

B samples, L tokens of D numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import count, vector
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.robots.signals import SignalSpec


class Places(nn.Module):
    """Signals that the prefix tells, as numbers.

    Args:
        specs: the signals.
        length, width: L and D of the prefix.
    """

    def __init__(self, specs: Sequence[SignalSpec], length: int, width: int) -> None:
        super().__init__()
        self.plain, self.length = tuple(specs), length
        self.normalizer = Normalizer(sum(map(count, specs)), limit=5.0)
        self.head = nn.Linear(length * width, len(self.normalizer.shift))

    def forward(self, tokens: Tensor) -> Tensor:
        """The numbers, normalized [B, F], by the first L of ``tokens`` [B, L and more, D]."""
        found: Tensor = self.head(tokens[:, : self.length].flatten(1))
        return found

    def loss(self, context: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Mean squared error [] of what the context [B, L and more, D] tells, normalized."""
        wrong: Tensor = self(context) - self.normalizer(vector(self.plain, signals))
        return wrong.square().mean()

    @torch.no_grad()
    def told(self, tokens: Tensor) -> Tensor:
        """The numbers [B, F] in the units of their signals."""
        found: Tensor = self(tokens)
        return found / self.normalizer.scale + self.normalizer.shift
