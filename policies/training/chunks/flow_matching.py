"""The decoder of flow matching: noise moves to an action chunk along a learned velocity, on straight paths.

Lipman et al. 2023 (arXiv 2210.02747), with straight paths as Liu et al. 2022 (rectified flow) and as in pi0 (arXiv
2410.24164, whose time runs the other way). Level t = 1 is noise n, t = 0 the chunk a:

    x_t = (1 - t) a + t n                          what is between them
    loss = E | v(x_t, t, context) - (n - a) |^2     its minimizer is the mean velocity through x_t
    x_s = x_t - (t - s) v(x_t, t, context)          Euler steps from t = 1 down to 0, K of them
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.policies.training.chunks.policy import Denoising, Latent


class FlowMatching(Denoising):
    """Velocity network and sampler.

    Args:
        net: the velocity: x [N, H, U], t [N] and the context to [N, H, U].
        shape: H, U.
        steps: K, evaluations of the network for a chunk.
        beta: levels of training are drawn from Beta(beta, 1), as in pi0: above 1, more of them are near the noise.
        spread: of the fixed noise that a deployed chunk starts from.
    """

    def __init__(self, net: nn.Module, shape: tuple[int, int], steps: int, beta: float, spread: float) -> None:
        super().__init__()
        self.net = net
        self.start = Latent(*shape, spread)
        self.steps, self.beta = steps, beta

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
