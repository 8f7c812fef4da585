"""Transformer blocks for action chunks. N chunks, L tokens, D numbers a token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(position: Tensor, width: int) -> Tensor:
    """Sines and cosines [..., width] of ``position`` [...] at geometric frequencies (Vaswani et al. 2017, 3.5)."""
    half = width // 2
    rate = torch.exp(-math.log(1e4) / max(half - 1, 1) * torch.arange(half, device=position.device))
    angle = position[..., None] * rate
    return torch.cat([angle.sin(), angle.cos()], -1)


class Attention(nn.Module):
    """Multi-head attention of tokens [N, L, D] to ``memory`` [N, M, D]; written out, so that every exporter has it.

    Args:
        heads: of attention.
        any_length: an exported graph takes any L and M; else those that it was traced with.
    """

    def __init__(self, width: int, heads: int, any_length: bool = False) -> None:
        super().__init__()
        self.any_length = any_length
        if width % heads:
            raise ValueError(f"width {width} is no multiple of the number of heads, {heads}")
        self.heads, self.size = heads, width // heads
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, memory: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Attended [N, L, D]. ``hidden``: added to the logits, [L, M] or [N, 1, 1, M], -1e4 where nothing is seen."""
        key, value = self.split(self.both(memory), 2 * self.heads).chunk(2, 1)
        query = self.split(self.query(tokens), self.heads)
        logits = query @ key.transpose(2, 3) / math.sqrt(self.size)
        share = torch.softmax(logits if hidden is None else logits + hidden, -1)
        found = (share @ value).transpose(1, 2)
        return self.out(found.reshape(-1, self.length(found), self.heads * self.size))

    def split(self, tokens: Tensor, heads: int) -> Tensor:
        """[N, L, heads * size] as [N, heads, L, size]."""
        return tokens.reshape(-1, self.length(tokens), heads, self.size).transpose(1, 2)

    def length(self, tokens: Tensor) -> int:
        """L. It is a number of the exported graph, where it may be: asked for at each inference, it costs a robot more
        than the products of few tokens."""
        return tokens.shape[1] if self.any_length else int(tokens.shape[1])


class Block(nn.Module):
    """Pre-norm block: attention to themselves, to a memory where ``crossed``, and a feed-forward layer."""

    def __init__(self, width: int, heads: int, crossed: bool = False) -> None:
        super().__init__()
        self.first, self.own = nn.LayerNorm(width), Attention(width, heads)
        self.second, self.cross = (nn.LayerNorm(width), Attention(width, heads)) if crossed else (None, None)
        self.last = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, memory: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        """The tokens [N, L, D] after the block. ``hidden``: of the attention to themselves."""
        seen = self.first(tokens)
        tokens = tokens + self.own(seen, seen, hidden)
        if self.cross is not None and self.second is not None:
            assert memory is not None
            tokens = tokens + self.cross(self.second(tokens), memory)
        return tokens + self.feed(self.last(tokens))

    def follow(self, token: Tensor, past: Tensor | None, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The next ``token`` [N, 1, D] after the block, crossed, and what later ones attend to [N, L + 1, D]; ``past``
        [N, L, D]: what this one does, besides itself."""
        assert self.cross is not None and self.second is not None
        seen = self.first(token)
        past = seen if past is None else torch.cat([past, seen], 1)
        token = token + self.own(seen, past)
        token = token + self.cross(self.second(token), memory)
        return token + self.feed(self.last(token)), past
