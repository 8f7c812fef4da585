"""The action expert: velocity of a chunk [N, H, U] given its level and the context's tokens [N, L, D].

One token a control step, attention among them and to the context (a small form of pi0's expert, arXiv 2410.24164).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.policies.nets.denoisers import EMBEDDED, LEVEL, zeroed
from temporeal.policies.nets.transformer import Block, sinusoids


class Expert(nn.Module):
    """The velocity network of :class:`temporeal.policies.training.chunks.flow_matching.FlowMatching`.

    Args:
        shape: H, U.
        context: D of the context's tokens.
        width: of its own tokens.
    """

    def __init__(self, shape: tuple[int, int], context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        steps, size = shape
        self.level = nn.Sequential(nn.Linear(EMBEDDED, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.seen = nn.Linear(size, width), nn.Linear(context, width)
        self.place = nn.Parameter(0.02 * torch.randn(steps, width))
        self.blocks = nn.ModuleList(Block(width, heads, crossed=True) for _ in range(layers))
        self.adapt = nn.ModuleList(zeroed(nn.Linear(width, 2 * width)) for _ in range(layers))
        self.norm, self.last = nn.LayerNorm(width), zeroed(nn.Linear(width, size))

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The velocity [N, H, U] at ``level`` [N]."""
        told = self.level(sinusoids(LEVEL * level, EMBEDDED))[:, None]
        found, seen = self.first(x) + self.place, self.seen(context)
        for block, adapt in zip(self.blocks, self.adapt):
            scale, shift = adapt(told).chunk(2, -1)
            found = block((found + told) * (1.0 + scale) + shift, seen)
        velocity: Tensor = self.last(self.norm(found))
        return velocity
