"""A vision-language-action policy that writes chunks as tokens, as RT-2 and FAST do (arXiv 2307.15818, 2501.09747).

The encoder is that of algo=vla. The decoder is a language model of actions: cosine coefficients of the chunk in bins
(:mod:`temporeal.policies.vla.tokens`), each token given the context and those before it, trained by cross-entropy. A
deployed chunk is that of the likeliest tokens. """

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from temporeal.policies.training.chunks.learner import Cloning, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source, Windows
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.vla import learning
from temporeal.policies.vla.config import VlaConfig
from temporeal.policies.vla.tokens import Writer

AT_ONCE = 4096  # windows whose coefficients are computed together


@dataclass(frozen=True)
class TokenVlaConfig(VlaConfig):
    """Settings of the learner. ``configs/algo/vla_tokens.yaml`` has the same names.

    Args:
        coefficients: C, of each number of a command; at most the horizon, which is exact but for the bins.
        bins: V.
        width: numbers of a token of the decoder.
        layers: of the decoder.
    """

    coefficients: int = 4
    bins: int = 128
    width: int = 96
    layers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, coefficients="[1, inf)", width="[1, inf)", layers="[1, inf)", bins="[2, inf)")
        if self.coefficients > self.horizon:
            raise SettingsError(f"algo.coefficients is at most algo.horizon={self.horizon}, got {self.coefficients}")
        if self.width % self.heads:
            raise SettingsError(f"algo.width={self.width} is no multiple of algo.heads={self.heads}")


def writer(config: TokenVlaConfig, size: int) -> Writer:
    """The decoder."""
    return Writer((config.horizon, size), config.coefficients, config.bins, config.context, config.width, config.heads,
                  config.layers)


def fit(algorithm: Cloning, seen: Windows) -> None:
    """Take the bins' reach from the windows."""
    found = []
    for which in torch.arange(len(seen.at)).split(AT_ONCE):
        numbers = {name: value[seen.at[which]] for name, value in seen.numbers.items()}
        steps = torch.minimum(seen.at[which, None] + torch.arange(seen.horizon), seen.last[which, None])
        found.append(algorithm.policy.chunk(seen.command[steps], numbers))
    for policy in (algorithm.policy, algorithm.actor):
        policy.decoder.code.fit(torch.cat(found))


def train(data: Source, config: TokenVlaConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learning.train(data, config, writer, "vla_tokens", fit, out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learning.load(run, TokenVlaConfig, writer, device)[0]
