"""A chunk as words of its own: cosine coefficients in bins, written one after the other (a small form of FAST).

Pertsch et al. 2025 (arXiv 2501.09747): the discrete cosine transform over the H steps makes few numbers of a chunk, low
frequencies first; each is rounded to one of V bins. There a text compressor follows; here none does, so that all chunks
have T = C U tokens: C coefficients of each of the U numbers of a command. N chunks, L tokens of context.

    c_k = sqrt(2 / H) w_k  sum_h a_h cos(pi (h + 1/2) k / H),  w_0 = sqrt(1/2), else 1      orthonormal (DCT-II)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Block
from temporeal.policies.training.chunks.policy import Decoder


def cosines(steps: int, count: int) -> Tensor:
    """The first ``count`` rows of the orthonormal transform [C, H]."""
    k, h = torch.arange(count, dtype=torch.float64)[:, None], torch.arange(steps, dtype=torch.float64)
    found = math.sqrt(2.0 / steps) * torch.cos(math.pi * (h + 0.5) * k / steps)
    found[0] *= math.sqrt(0.5)
    return found.float()


class Bins(nn.Module):
    """Chunks [N, H, U] to tokens [N, T] and back. ``reach`` [C, U]: the largest coefficients that have bins."""

    def __init__(self, shape: tuple[int, int], coefficients: int, bins: int) -> None:
        super().__init__()
        steps, size = shape
        self.bins, self.count = bins, coefficients * size
        self.register_buffer("basis", cosines(steps, coefficients))
        self.register_buffer("reach", math.sqrt(steps) * torch.ones(coefficients, size))
        self.basis: Tensor
        self.reach: Tensor

    def coefficients(self, chunk: Tensor) -> Tensor:
        """[N, C, U]."""
        return self.basis @ chunk

    def fit(self, chunks: Tensor) -> None:
        """Take the largest coefficients of ``chunks`` [M, H, U]."""
        self.reach.copy_(self.coefficients(chunks).abs().amax(0).clamp(min=1e-3))

    def forward(self, chunk: Tensor) -> Tensor:
        """The tokens int64 [N, T] nearest to a chunk, low frequencies first."""
        share = (self.coefficients(chunk) / self.reach).clamp(-1.0, 1.0)
        return ((share + 1.0) * (0.5 * (self.bins - 1))).round().long().flatten(1)

    def back(self, tokens: Tensor) -> Tensor:
        """The chunk [N, H, U] that ``tokens`` [N, T] write."""
        share = tokens.unflatten(1, self.reach.shape).to(self.reach.dtype) * (2.0 / (self.bins - 1)) - 1.0
        chunk: Tensor = self.basis.T @ (share * self.reach)
        return chunk


class Writer(Decoder):
    """A decoder that writes tokens, each given the context and those before it.

    Args:
        shape: H, U.
        context: D of the context's tokens.
        width: of its own.
    """

    figures = ("loss", "accuracy")

    def __init__(
        self, shape: tuple[int, int], coefficients: int, bins: int, context: int, width: int, heads: int, layers: int
    ) -> None:
        super().__init__()
        self.code = Bins(shape, coefficients, bins)
        self.word, self.seen = nn.Embedding(bins + 1, width), nn.Linear(context, width)
        self.place = nn.Parameter(0.02 * torch.randn(self.code.count, width))
        self.blocks = nn.ModuleList(Block(width, heads, crossed=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, bins)
        later = torch.triu(torch.full((self.code.count, self.code.count), -1e4), 1)
        self.register_buffer("later", later, persistent=False)
        self.later: Tensor

    def first(self, context: Tensor) -> Tensor:
        """The word [N, 1] before the first token: one beyond the bins."""
        return (0.0 * context.flatten(1)[:, :1]).long() + self.code.bins

    def all_logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of each of ``tokens`` [N, k], k <= T, given those before it: [N, k, V]."""
        before = torch.cat([self.first(context), tokens[:, :-1]], 1)
        return self.said(context, before)

    def logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of the next token [N, V] after ``tokens`` [N, k]."""
        return self.said(context, torch.cat([self.first(context), tokens], 1))[:, -1]

    def said(self, context: Tensor, before: Tensor) -> Tensor:
        """Logits [N, k, V] after each of the words ``before`` [N, k]."""
        count = before.shape[1]
        found, seen = self.word(before) + self.place[:count], self.seen(context)
        for block in self.blocks:
            found = block(found, seen, self.later[:count, :count])
        logits: Tensor = self.head(self.norm(found))
        return logits

    def forward(self, context: Tensor) -> Tensor:
        """The chunk of the likeliest tokens, one after the other."""
        return self.code.back(self.greedy(context))

    def greedy(self, context: Tensor) -> Tensor:
        """The likeliest next token [N, T] each time. What blocks have seen is kept: a token costs one pass of one."""
        seen, word, tokens = self.seen(context), self.first(context), list[Tensor]()
        past: list[Tensor | None] = [None for _ in self.blocks]
        for place in self.place:
            found = self.word(word) + place
            for i, block in enumerate(cast("Iterable[Block]", self.blocks)):
                found, past[i] = block.follow(found, past[i], seen)
            word = self.head(self.norm(found)).argmax(-1)
            tokens.append(word)
        return torch.cat(tokens, 1)

    def loss(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the demonstrated tokens, and the share that is the likeliest one."""
        tokens = self.code(chunk)
        logits = self.all_logits(context, tokens)
        right = (logits.detach().argmax(-1) == tokens).float().mean()
        return torch.stack([nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()), right])
