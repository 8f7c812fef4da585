"""ACT, Action Chunking with Transformers: a conditional variational auto-encoder of action chunks.

Zhao et al. 2023 (arXiv 2304.13705). Algorithm 1 (training), for a chunk a of H commands after an observation:

    encoder q(z | a, context): tokens [class, context, a_1 .. a_H] -> mean, log variance of z
    decoder p(a | z, context): a transformer encoder of [z, context], and H fixed positions that attend to it
    loss = | decoder(z, context) - a |_1 + beta KL(q || N(0, 1))       padded steps are left out

At test time z = 0. Algorithm 2 infers at each step and averages what the chunks say of it with weights exp(-m i), i = 0
the oldest: temporal ensembling, here the setting ``ensemble`` = m (0.01 in the paper) of a simulation. """

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Block, sinusoids
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import ChunkConfig, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder, masked_mean
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import SettingsError, require


@dataclass(frozen=True)
class ActConfig(ChunkConfig):
    """Settings of the learner. ``configs/algo/act.yaml`` has the same names.

    Args:
        width: numbers of a token.
        heads: of attention.
        layers: of the encoder of chunks, of that of observations, and of the decoder, each.
        latent: numbers of z.
        kl_weight: beta.
        tokens: that the context becomes.
    """

    updates: int = 3000
    batch: int = 64
    learning_rate: float = 1e-3
    width: int = 64
    heads: int = 4
    layers: int = 1
    latent: int = 16
    kl_weight: float = 10.0
    tokens: int = 4
    ensemble: float | None = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, width="[1, inf)", heads="[1, inf)", layers="[1, inf)", latent="[1, inf)", tokens="[1, inf)",
                kl_weight="[0, inf)")
        if self.width % self.heads:
            raise SettingsError(f"algo.width={self.width} is no multiple of algo.heads={self.heads}")
        if self.latent > self.context:
            raise SettingsError(f"algo.latent is at most algo.context, {self.context}, got {self.latent}")


class Act(Decoder):
    """The decoder of a chunk policy: ACT's encoder of chunks is used in training only."""

    figures = ("loss", "l1", "kl")

    def __init__(self, config: ActConfig, size: int) -> None:
        super().__init__()
        width, heads, layers = config.width, config.heads, range(config.layers)
        self.beta, self.latent, self.tokens = config.kl_weight, config.latent, (config.tokens, width)
        self.context = nn.Linear(config.context, config.tokens * width)
        # encoder of chunks
        self.klass = nn.Parameter(0.02 * torch.randn(1, width))
        self.seen, self.action = nn.Linear(config.context, width), nn.Linear(size, width)
        self.encoder = nn.ModuleList(Block(width, heads) for _ in layers)
        self.posterior = nn.Linear(width, 2 * config.latent)
        # decoder
        self.style = nn.Linear(config.latent, width)
        self.memory = nn.ModuleList(Block(width, heads) for _ in layers)
        self.decoder = nn.ModuleList(Block(width, heads, crossed=True) for _ in layers)
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, size)
        self.register_buffer("place", sinusoids(torch.arange(config.horizon + 2).float(), width))
        self.place: Tensor

    def forward(self, context: Tensor) -> Tensor:
        """The chunk [N, H, U] of z = 0."""
        return self.decode(context, 0.0 * context[:, : self.latent])

    def encode(self, context: Tensor, chunk: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance [N, Z] of q(z | a, context)."""
        klass = self.klass.expand(len(chunk), 1, -1)
        found = torch.cat([klass, self.seen(context)[:, None], self.action(chunk)], 1) + self.place
        for block in self.encoder:
            found = block(found)
        mean, log_var = self.posterior(found[:, 0]).chunk(2, -1)
        return mean, log_var

    def decode(self, context: Tensor, z: Tensor) -> Tensor:
        """The chunk [N, H, U] of style ``z`` [N, Z]."""
        tokens = self.context(context).unflatten(1, self.tokens)
        memory = torch.cat([self.style(z)[:, None], tokens], 1)
        for block in self.memory:
            memory = block(memory)
        found = self.place[2:] + 0.0 * memory[:, :1]  # zeros_like of it would be traced with the batch's size
        for block in self.decoder:
            found = block(found, memory)
        return self.last(self.norm(found))

    def loss(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """L1 error of the reconstruction, and the divergence of the posterior from N(0, 1)."""
        mean, log_var = self.encode(context, chunk)
        z = mean + torch.exp(0.5 * log_var) * torch.randn(mean.shape, generator=generator)
        error = masked_mean((self.decode(context, z) - chunk).abs(), given)
        apart = divergence(mean, log_var)
        return torch.stack([error + self.beta * apart, error, apart])


def divergence(mean: Tensor, log_var: Tensor) -> Tensor:
    """KL(N(mean, var) || N(0, 1)) [], summed over z and averaged over the batch."""
    return 0.5 * (mean.square() + log_var.exp() - 1.0 - log_var).sum(-1).mean()


def train(data: Source, config: ActConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learner.train(data, config, Act, out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learner.load(run, ActConfig, Act, device)[0]
