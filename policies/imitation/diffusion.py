"""Diffusion Policy: a policy that denoises an action chunk.

Chi et al. 2023 (arXiv 2303.04137): DDPM training (Ho et al. 2020), DDIM sampling (Song et al. 2021), the network
predicts the noise. Levels k = 1 .. T; abar_k is the product of 1 - beta up to k (squared cosine schedule, Nichol and
Dhariwal 2021, eq. 17):

    x_k = sqrt(abar_k) a + sqrt(1 - abar_k) n                            DDPM, eq. 4
    loss = E | eps(x_k, k, context) - n |^2                              DDPM, eq. 14
    a' = (x_k - sqrt(1 - abar_k) eps) / sqrt(abar_k), held in [-1, 1]
    x_j = sqrt(abar_j) a' + sqrt(1 - abar_j) eps', j < k                 DDIM, eq. 12 with eta = 0

with eps' the noise that a', once held, leaves in x_k. K of the T levels are used for a chunk, from one fixed noise
(:class:`temporeal.policies.training.chunks.policy.Latent`): the same measurement has the same chunk. """

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.nets.denoisers import check_denoiser, make_denoiser
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import ChunkConfig, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy, Denoising, Latent
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import SettingsError, require

FIRST = 0.95
"""Of the levels, where sampling begins: abar is 0.6 % there. At the last one a' would be a rounding over 5e-4; the
authors' sampler, too, begins at 0.9."""


@dataclass(frozen=True)
class DiffusionConfig(ChunkConfig):
    """Settings of the learner. ``configs/algo/diffusion.yaml`` has the same names.

    Args:
        network: mlp, unet or transformer (:mod:`temporeal.policies.nets.denoisers`).
        hidden: widths of its layers.
        train_steps: T, levels of noise.
        denoise_steps: K, evaluations of the network for a chunk.
        spread: of the fixed noise that a deployed chunk starts from: 1 as in training; one draw for all states leans
            all chunks to one side, so little of it is used: enough to choose between ways that are alike.
    """

    network: str = "mlp"
    hidden: Sequence[int] = (256, 256, 256)
    train_steps: int = 100
    denoise_steps: int = 16
    spread: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, hidden="[1, inf)", spread="[0, inf)")
        check_denoiser(self.network, self.horizon, self.hidden)
        if not 1 <= self.denoise_steps <= self.train_steps:
            raise SettingsError(f"algo.denoise_steps is from 1 to train_steps, {self.train_steps}; got "
                                f"{self.denoise_steps}")


class Diffusion(Denoising):
    """The decoder: noise network and sampler. ``kept`` [T + 1]: abar of each level, 1 at level 0."""

    def __init__(self, config: DiffusionConfig, size: int) -> None:
        super().__init__()
        self.net = make_denoiser(config.network, config.horizon, size, config.context, config.hidden)
        self.start = Latent(config.horizon, size, config.spread)
        self.levels, self.steps = config.train_steps, config.denoise_steps
        self.register_buffer("kept", squared_cosine(config.train_steps))
        self.kept: Tensor

    def loss(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """Squared error of the noise at random levels."""
        noise = torch.randn(chunk.shape, generator=generator)
        level = torch.randint(1, self.levels + 1, (len(chunk),), generator=generator)
        found = self.net(self.corrupt(chunk, noise, level), self.share(level), context)
        return (found - noise).square().mean()[None]

    def grid(self, steps: int) -> Tensor:
        """Levels [steps + 1] from noise to data, evenly apart."""
        return torch.linspace(FIRST * self.levels, 0, steps + 1).round().long()

    def share(self, level: Tensor) -> Tensor:
        """Of all levels."""
        return level / self.levels

    def corrupt(self, chunk: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """The chunk [N, H, U] at ``level`` [N]."""
        kept = self.kept[level][:, None, None]
        return kept.sqrt() * chunk + (1.0 - kept).sqrt() * noise

    def clean(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The chunk, held in [-1, 1], that ``x`` at ``level`` [N] seems to come from."""
        kept = self.kept[level][:, None, None]
        noise = self.net(x, self.share(level), context)
        return ((x - (1.0 - kept).sqrt() * noise) / kept.sqrt()).clamp(-1.0, 1.0)

    def move(self, x: Tensor, clean: Tensor, level: Tensor, to: Tensor) -> Tensor:
        """``x`` at level ``to`` [N], with the noise that the ``clean`` chunk leaves in it."""
        return ddim(x, clean, self.kept[level][:, None, None], self.kept[to][:, None, None])

    def skip(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Of the velocity of Salimans and Ho 2022: a = sqrt(abar) x - sqrt(1 - abar) v, well scaled at every level."""
        kept = self.kept[level]
        return kept.sqrt(), -(1.0 - kept).sqrt()


def ddim(x: Tensor, clean: Tensor, kept: Tensor, kept_next: Tensor) -> Tensor:
    """The deterministic step of DDIM (eq. 12, eta = 0) between levels of which abar is ``kept`` and ``kept_next``."""
    noise = (x - kept.sqrt() * clean) / (1.0 - kept).sqrt()
    return kept_next.sqrt() * clean + (1.0 - kept_next).sqrt() * noise


def squared_cosine(steps: int) -> Tensor:
    """abar [steps + 1] of levels 0 to ``steps``, with beta of at most .999."""
    def level(k: int) -> float:
        return math.cos((k / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1.0 - level(k + 1) / level(k), 0.999) for k in range(steps)]
    return torch.cat([torch.ones(1), torch.cumprod(1.0 - torch.tensor(betas, dtype=torch.float64), 0).float()])


def train(data: Source, config: DiffusionConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learner.train(data, config, Diffusion, out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learner.load(run, DiffusionConfig, Diffusion, device)[0]


def untrained(state: Mapping[str, Any], about: Mapping[str, Any]) -> ChunkPolicy:
    """A policy with new weights, of the shape that a student's checkpoint ``state`` states of its teacher."""
    config, interface = DiffusionConfig(**learner.tupled(about["config"])), learner.interface_of(about["interface"])
    learner.hold(state, config, interface)
    return learner.make_policy(interface, config, Diffusion)
