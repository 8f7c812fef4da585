"""A sentence to one vector by a frozen sentence encoder and a learned projection.

Cosines of sentence encoders put opposites ("open the drawer", "close the drawer") nearer to each other than paraphrases
are (measured: .91 against .80), so what is told is learned: of the vector, less the mean of the sentences of training.
N sentences, L words, E numbers of the frozen vector, D of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.vla.frozen.minilm import MiniLM
from temporeal.sim.stl.instructions.vocabulary import Vocabulary

REMEMBERED = 1 << 15  # sentences: 50 MB of vectors


class FrozenSentence(nn.Module):
    """The same to the others as :class:`temporeal.policies.vla.text.Sentence`."""

    def __init__(self, vocabulary: Vocabulary, width: int, net: MiniLM) -> None:
        super().__init__()
        self.vocabulary, self.net = vocabulary, net
        self.normalizer = Normalizer(net.size, limit=5.0)
        self.project = nn.Sequential(
            nn.Linear(net.size, width), nn.SiLU(), nn.Linear(width, width), nn.LayerNorm(width))
        self.remembered: dict[tuple[int, ...], Tensor] = {}
        self.fixed: Tensor | None = None

    @torch.no_grad()
    def silence(self, shown: Tensor) -> None:
        """Take the statistics of the sentences ``shown`` [M, L], each counted once. No word is silent here: what they
        mean was learned elsewhere."""
        self.normalizer.update(moments(self.vectors(shown.unique(dim=0))))

    def fix(self, words: Tensor) -> None:
        """Take every sentence for that of ``words`` [L] from now on: an exported graph then has its vector alone."""
        self.fixed = self.vectors(words[None])

    def vectors(self, words: Tensor) -> Tensor:
        """The frozen vectors [N, E]; each sentence is encoded once, alone, so that what stands beside it changes
        nothing. In an exported graph all are encoded, each time."""
        if self.fixed is not None:
            return self.fixed.to(words.device) + 0.0 * words[:, :1]
        with torch.no_grad():
            if torch.jit.is_tracing():
                found: Tensor = self.net(words)
                return found
            keys = [tuple(row) for row in words.tolist()]
            if len(self.remembered) + len(set(keys)) > REMEMBERED:
                self.remembered.clear()
            for row, key in enumerate(keys):
                if key not in self.remembered:
                    self.remembered[key] = self.net(words[row : row + 1])[0].cpu()
            return torch.stack([self.remembered[key] for key in keys]).to(words.device)

    def forward(self, tokens: Tensor) -> Tensor:
        """The vectors [N, D] of word numbers [N, L], 0 where there is no word; without words: zeros."""
        said = (tokens > 0).any(1, keepdim=True).float()
        found: Tensor = self.project(self.normalizer(self.vectors(tokens)))
        return found * said
