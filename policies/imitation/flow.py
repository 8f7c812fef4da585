"""Flow matching: a policy that moves noise to an action chunk along a learned velocity.

Lipman et al. 2023 (arXiv 2210.02747), with straight paths as Liu et al. 2022 (rectified flow) and as in pi0 (arXiv
2410.24164, whose time runs the other way). Level t = 1 is noise n, t = 0 the chunk a:

    x_t = (1 - t) a + t n                          what is between them
    loss = E | v(x_t, t, context) - (n - a) |^2     its minimizer is the mean velocity through x_t
    x_s = x_t - (t - s) v(x_t, t, context)          Euler steps from t = 1 down to 0, K of them

A chunk is deployed from one fixed noise (:class:`temporeal.policies.training.chunks.policy.Latent`): the same
measurement has the same chunk. Commands are scaled to [-1, 1]. """

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.nets.denoisers import make_denoiser
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.learner import ChunkConfig, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy, Denoising, Latent
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import SettingsError


@dataclass(frozen=True)
class FlowConfig(ChunkConfig):
    """Settings of the learner. ``configs/algo/flow.yaml`` has the same names.

    Args:
        network: mlp, unet or transformer (:mod:`temporeal.policies.nets.denoisers`).
        hidden: widths of its layers.
        denoise_steps: K, evaluations of the network for a chunk.
        beta: levels of training are drawn from Beta(beta, 1), as in pi0: above 1, more of them are near the noise.
        spread: of the fixed noise that a deployed chunk starts from: 1 as in training; one draw for all states leans
            all chunks to one side, so little of it is used: enough to choose between ways that are alike.
    """

    network: str = "mlp"
    hidden: Sequence[int] = (256, 256, 256)
    denoise_steps: int = 5
    beta: float = 1.5
    spread: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("denoise_steps", "beta"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"algo.{name} must be positive, got {getattr(self, name)}")


class Flow(Denoising):
    """The decoder: velocity network and sampler."""

    def __init__(self, config: FlowConfig, size: int) -> None:
        super().__init__()
        self.net = make_denoiser(config.network, config.horizon, size, config.context, config.hidden)
        self.start = Latent(config.horizon, size, config.spread)
        self.steps, self.beta = config.denoise_steps, config.beta

    def loss(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """Squared error of the velocity at random levels."""
        noise = torch.randn(chunk.shape, generator=generator)
        level = self.levels(len(chunk), generator)
        velocity = self.net(self.corrupt(chunk, noise, level), level, context)
        return (velocity - (noise - chunk)).square().mean()[None]

    def levels(self, count: int, generator: torch.Generator) -> Tensor:
        """Levels [count] of training: Beta(beta, 1) by its inverse distribution function, kept off 0."""
        return 0.999 * torch.rand(count, generator=generator) ** (1.0 / self.beta) + 0.001

    def grid(self, steps: int) -> Tensor:
        """Levels [steps + 1] from noise to data."""
        return torch.linspace(1.0, 0.0, steps + 1)

    def share(self, level: Tensor) -> Tensor:
        """The level."""
        return level

    def corrupt(self, chunk: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """x_t [N, H, U] at ``level`` [N]."""
        t = level[:, None, None]
        return (1.0 - t) * chunk + t * noise

    def clean(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """Where the velocity at ``x`` leads to at t = 0."""
        return x - level[:, None, None] * self.net(x, level, context)

    def move(self, x: Tensor, clean: Tensor, level: Tensor, to: Tensor) -> Tensor:
        """An Euler step: ``x`` at level ``to`` [N], on the line through it and the ``clean`` chunk."""
        return clean + (to / level)[:, None, None] * (x - clean)

    def skip(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Of the clean chunk: x - t v."""
        return torch.ones_like(level), -level


def train(data: Source, config: FlowConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learner.train(data, config, Flow, out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learner.load(run, FlowConfig, Flow, device)[0]


def untrained(state: Mapping[str, Any], about: Mapping[str, Any]) -> ChunkPolicy:
    """A policy with new weights, of the shape that a student's checkpoint ``state`` states of its teacher."""
    config, interface = FlowConfig(**learner.tupled(about["config"])), learner.interface_of(about["interface"])
    learner.hold(state, config, interface)
    return learner.make_policy(interface, config, Flow)
