"""A policy that gives action chunks: raw signals in, the raw commands of the next H control steps out.

It is what is trained, checkpointed, evaluated and exported: normalization is inside. N robots, H steps, U numbers.
It is deterministic: where a sampler needs noise, the noise is a constant of the policy (:class:`Latent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import Interface
from temporeal.policies.training.chunks.windows import base
from temporeal.sim.stl.instructions.vocabulary import Vocabulary


class Latent(nn.Module):
    """The noise [H, U] that a sampler starts from: one draw, kept, so that a deployed policy is a function of what it
    measures, in PyTorch, in ONNX and on the robot. ``spread`` scales it; 0: zeros."""

    def __init__(self, steps: int, size: int, spread: float) -> None:
        super().__init__()
        self.register_buffer("value", spread * torch.randn(steps, size))
        self.value: Tensor

    def forward(self, context: Tensor) -> Tensor:
        """The same for each of N robots, [N, H, U]; ``context`` [N, ...]."""
        return self.value + 0.0 * context.flatten(1)[:, :1, None]  # zeros_like would be traced with the batch's size


class Decoder(nn.Module):
    """From a context, [N, C] or tokens [N, L, D], to a chunk [N, H, U] in [-1, 1]: what differs between the algorithms.

    Attributes:
        figures: names of what :meth:`loss` gives; the first one is minimized.
    """

    figures: tuple[str, ...] = ("loss",)

    def forward(self, context: Tensor) -> Tensor:
        """The chunk that is deployed."""
        raise NotImplementedError

    def loss(self, context: Tensor, chunk: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
        """Figures [F] of a batch. ``chunk`` [B, H, U] was demonstrated, as far as ``given`` [B, H] says; after an
        episode's last command it repeats it."""
        raise NotImplementedError


class Denoising(Decoder):
    """A decoder that denoises, with what distillation asks of a teacher: levels from noise to data.

    Attributes:
        net: x [N, H, U], a share [N] of the way to noise, and the context to [N, H, U].
        start: the noise that a deployed chunk begins with.
        steps: K, in which it is denoised.
    """

    net: nn.Module
    start: Latent
    steps: int

    def forward(self, context: Tensor) -> Tensor:
        """The chunk that the fixed noise is denoised to."""
        return self.denoised(self.start(context), context, self.steps)

    def grid(self, steps: int) -> Tensor:
        """Levels [steps + 1] from noise to data."""
        raise NotImplementedError

    def share(self, level: Tensor) -> Tensor:
        """Levels as ``net`` takes them: 1 is noise."""
        raise NotImplementedError

    def corrupt(self, chunk: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """The chunk [N, H, U] at ``level`` [N]."""
        raise NotImplementedError

    def clean(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The chunk that ``x`` at ``level`` [N] seems to come from."""
        raise NotImplementedError

    def move(self, x: Tensor, clean: Tensor, level: Tensor, to: Tensor) -> Tensor:
        """``x`` at level ``to`` [N], on the path from it to the ``clean`` chunk: a deterministic step."""
        raise NotImplementedError

    def skip(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Shares (a, b) [N]: at every level a x + b net is of the size of a chunk; at the last, (1, 0)."""
        raise NotImplementedError

    def denoised(self, x: Tensor, context: Tensor, steps: int) -> Tensor:
        """The chunk that the noise ``x`` becomes in that many steps."""
        grid = self.grid(steps)
        for here, there in zip(grid[:-1, None], grid[1:, None]):
            # one level [1] for all rows: what follows from it alone is a constant of the exported graph
            x = self.move(x, self.clean(x, here, context), here, there)
        return x


class Scale(nn.Module):
    """Chunks of commands [..., H, U] to [-1, 1] and back, row by row: later ones are further away."""

    def __init__(self, steps: int, size: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(steps, size))
        self.register_buffer("reach", torch.ones(steps, size))
        self.center: Tensor
        self.reach: Tensor

    def fit(self, low: Tensor, high: Tensor) -> None:
        """Take the range [H, U]."""
        self.center.copy_(0.5 * (low + high))
        self.reach.copy_(0.5 * (high - low))

    def forward(self, command: Tensor) -> Tensor:
        """Commands in [-1, 1]."""
        return (command - self.center) / self.reach

    def back(self, chunk: Tensor) -> Tensor:
        """Raw commands."""
        return self.center + self.reach * chunk


class ChunkPolicy(nn.Module):
    """Encoder, decoder and scale.

    Args:
        interface: the signals that it reads, its command and its rate.
        horizon: H.
        encoder: a module from signals to a context, as :class:`temporeal.policies.nets.encoders.SignalEncoder`.
        relative: name of a signal [J] that the command's first J components are relative to; "": none.
    """

    def __init__(
        self, interface: Interface, horizon: int, encoder: Any, decoder: Decoder, relative: str = ""
    ) -> None:
        super().__init__()
        self.interface, self.horizon, self.relative = interface, horizon, relative
        self.encoder, self.decoder = encoder, decoder
        self.scale = Scale(horizon, interface.action.size)
        for name in ("low", "high"):
            self.register_buffer(name, torch.tensor(getattr(interface.action, name)))
        self.low: Tensor
        self.high: Tensor

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that it reads."""
        return tuple(self.interface.signals)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words that it reads; None: it is told nothing."""
        found: Vocabulary | None = getattr(self.encoder, "vocabulary", None)
        return found

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """That of an encoder which remembers its first look; nothing else: how many control steps lie between two
        inferences is not known."""
        start = getattr(self.encoder, "initial_memory", None)
        return {} if start is None else dict(start(n))

    def remembering(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The signals with what is remembered among them, and the memory from here on."""
        return self.encoder.remembering(signals, memory) if memory else (signals, {})

    def chunk(self, command: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Raw commands [N, H, U] as the decoder learns them."""
        return self.scale(command - self.base(signals))

    def rows(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Raw commands [N, H, U], within the limits."""
        return self.commands(self.decoder(self.encoder(signals)), signals)

    def commands(self, chunk: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """The raw commands, within the limits, that a ``chunk`` [N, H, U] of the decoder stands for."""
        command = self.scale.back(chunk) + self.base(signals)
        return torch.minimum(torch.maximum(command, self.low), self.high)

    def base(self, signals: Mapping[str, Tensor]) -> Tensor:
        """What commands are relative to, [N, 1, U]; a zero where they are not."""
        return base(signals[self.relative], len(self.low))[:, None] if self.relative else self.low.new_zeros(())

    def forward(self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any]:
        """Commands by name, and the memory from here on."""
        seen, after = self.remembering(signals, memory)
        return {self.interface.action.name: self.rows(seen)}, after


def masked_mean(value: Tensor, given: Tensor) -> Tensor:
    """Mean [] of ``value`` [B, H, U] over the commands that were ``given`` [B, H]."""
    weight = given.to(value.dtype)[..., None]
    return (value * weight).sum() / (weight.sum() * value.shape[-1]).clamp(min=1.0)
