"""Networks that denoise an action chunk: x [N, H, U], noise level [N] and context [N, C] to [N, H, U].

Three of the field, all conditioned by the level and the context:

- ``mlp``: residual layers over the flat chunk (Hansen-Estruch et al. 2023, IDQL): the cheapest on a CPU.
- ``unet``: the 1-D convolutional U-Net with FiLM of Diffusion Policy (arXiv 2303.04137, 3.1).
- ``transformer``: one token a step, adaptive layer norm (Peebles and Xie 2023, DiT).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Block, sinusoids

LEVEL = 1000.0  # a level in [0, 1] is spread over the sinusoids as the 1000 steps of DDPM are
EMBEDDED = 64  # numbers that say the level


class Condition(nn.Module):
    """Noise level [N] and context [N, C] as one vector [N, width]."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.level = nn.Sequential(nn.Linear(EMBEDDED, width), nn.SiLU(), nn.Linear(width, width))
        self.context = nn.Linear(context, width)

    def forward(self, level: Tensor, context: Tensor) -> Tensor:
        """Their sum after an activation."""
        return nn.functional.silu(self.level(sinusoids(LEVEL * level, EMBEDDED)) + self.context(context))


class Mlp(nn.Module):
    """Residual layers over the flat chunk."""

    def __init__(self, steps: int, size: int, context: int, widths: Sequence[int]) -> None:
        super().__init__()
        width = widths[0]
        self.steps, self.size = steps, size
        self.condition, self.first = Condition(context, width), nn.Linear(steps * size, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, each), nn.SiLU(), nn.Linear(each, width))
            for each in widths)
        self.last = zeroed(nn.Linear(width, steps * size))

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The network's output [N, H, U]."""
        given, found = self.condition(level, context), self.first(x.flatten(1))
        for layer in self.layers:
            found = found + layer(torch.cat([found, given], -1))
        return self.last(found).view(-1, self.steps, self.size)


class Residual(nn.Module):
    """Two convolutions over time with FiLM between them: channels [N, C, L]."""

    def __init__(self, inputs: int, outputs: int, condition: int, kernel: int = 3) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2), nn.GroupNorm(8, outputs))
        self.two = nn.Sequential(nn.Conv1d(outputs, outputs, kernel, padding=kernel // 2), nn.GroupNorm(8, outputs))
        self.film = nn.Linear(condition, 2 * outputs)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Channels after the block."""
        scale, shift = self.film(condition)[..., None].chunk(2, 1)
        found = nn.functional.silu(self.one(x)) * (1.0 + scale) + shift
        return nn.functional.silu(self.two(found)) + self.skip(x)


class Unet(nn.Module):
    """Down and up in time: each level halves the steps. H must be a multiple of 2^(levels - 1)."""

    def __init__(self, steps: int, size: int, context: int, widths: Sequence[int]) -> None:
        super().__init__()
        told = widths[-1]
        self.condition = Condition(context, told)
        pairs = list(zip((size, *widths[:-1]), widths))
        self.down = nn.ModuleList(Residual(a, b, told) for a, b in pairs)
        self.halve = nn.ModuleList(nn.Conv1d(b, b, 3, stride=2, padding=1) for b in widths[:-1])
        self.middle = Residual(told, told, told)
        self.up = nn.ModuleList(Residual(a + b, a, told) for a, b in zip(widths[:-1], (*widths[1:-1], told)))
        self.last = zeroed(nn.Conv1d(widths[0], size, 1))

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The network's output [N, H, U]."""
        told, found, kept = self.condition(level, context), x.transpose(1, 2), []
        for i, block in enumerate(self.down):
            found = block(found, told)
            if i < len(self.halve):
                kept.append(found)
                found = self.halve[i](found)
        found = self.middle(found, told)
        for i in reversed(range(len(self.up))):
            found = torch.nn.functional.interpolate(found, scale_factor=2.0, mode="nearest")
            found = self.up[i](torch.cat([kept[i], found], 1), told)
        return self.last(found).transpose(1, 2)


class Transformer(nn.Module):
    """One token a step; the condition scales, shifts and gates each block."""

    def __init__(self, steps: int, size: int, context: int, widths: Sequence[int]) -> None:
        super().__init__()
        width = widths[0]
        self.condition, self.first = Condition(context, width), nn.Linear(size, width)
        self.place = nn.Parameter(0.02 * torch.randn(steps, width))
        self.blocks = nn.ModuleList(Block(width, HEADS) for _ in widths)
        self.adapt = nn.ModuleList(zeroed(nn.Linear(width, 3 * width)) for _ in widths)
        self.norm, self.last = nn.LayerNorm(width), zeroed(nn.Linear(width, size))

    def forward(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """The network's output [N, H, U]."""
        told = self.condition(level, context)
        found = self.first(x) + self.place + told[:, None]
        for block, adapt in zip(self.blocks, self.adapt):
            scale, shift, gate = adapt(told)[:, None].chunk(3, -1)
            found = found + (1.0 + gate) * (block(found * (1.0 + scale) + shift) - found)
        return self.last(self.norm(found))


HEADS = 4
DENOISERS: dict[str, Callable[[int, int, int, Sequence[int]], nn.Module]] = {
    "mlp": Mlp, "unet": Unet, "transformer": Transformer}


def zeroed(layer: nn.Module) -> nn.Module:
    """A last layer that gives zeros at first."""
    for value in layer.parameters():
        nn.init.zeros_(value)
    return layer


def check_denoiser(kind: str, steps: int, widths: Sequence[int]) -> None:
    """Refuse a network that there is not, and sizes that it cannot have."""
    if kind not in DENOISERS:
        raise ValueError(f"network is {kind!r}; legal: {', '.join(DENOISERS)}")
    if not widths:
        raise ValueError("hidden: a network has one layer at least")
    if kind == "transformer" and (set(widths) != {widths[0]} or widths[0] % HEADS):
        raise ValueError(f"a transformer has layers of one width, a multiple of {HEADS}; got {list(widths)}")
    if kind == "unet" and (steps % 2 ** (len(widths) - 1) or any(width % 8 for width in widths)):
        raise ValueError(f"a U-Net of widths {list(widths)} needs widths that are multiples of 8 and a horizon "
                         f"that is one of {2 ** (len(widths) - 1)}; got {steps}")


def make_denoiser(kind: str, steps: int, size: int, context: int, widths: Sequence[int]) -> nn.Module:
    """The denoiser ``kind`` for chunks [``steps``, ``size``]; ``widths`` of its layers."""
    check_denoiser(kind, steps, widths)
    return DENOISERS[kind](steps, size, context, widths)
