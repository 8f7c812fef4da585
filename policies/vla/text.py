"""A sentence, as word numbers, to one vector. N sentences, L words, D numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Block
from temporeal.sim.stl.instructions.vocabulary import Vocabulary


class Sentence(nn.Module):
    """Learned words and places, attention among the words, and the mean of those that are there. A sentence without
    words is a vector of zeros.
    """

    def __init__(self, vocabulary: Vocabulary, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.words = nn.Embedding(len(vocabulary.words) + 1, width, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(vocabulary.length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    @torch.no_grad()
    def silence(self, shown: Tensor) -> None:
        """Make nothing of the words that are not among the word numbers ``shown`` [M, L]: training would leave them as
        they were drawn, and an unseen word would speak at random. The rest of a sentence then speaks for it."""
        used = torch.zeros(len(self.words.weight), dtype=torch.bool)
        used[shown.long().unique()] = True
        self.words.weight[~used] = 0.0

    def forward(self, tokens: Tensor) -> Tensor:
        """The vectors [N, D] of word numbers [N, L], 0 where there is no word."""
        there = (tokens > 0).float()
        found = self.words(tokens.long()) + self.place
        hidden = (there - 1.0)[:, None, None] * 1e4  # no -inf: a sentence without words would be NaN
        for block in self.blocks:
            found = block(found, hidden=hidden)
        read: Tensor = self.norm(found) * there[..., None]
        return read.sum(1) / there.sum(1, keepdim=True).clamp(min=1.0)
