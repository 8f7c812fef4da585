"""Signals to one context vector: normalized numbers, and keypoints of pictures. N samples, C numbers of context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn

from temporeal.policies.nets.normalizer import Normalizer
from temporeal.robots.signals import SignalSpec
from temporeal.sim.rotations import axes

CHANNELS = (16, 32)  # of a picture's first convolutions, each of stride 2


def is_picture(spec: SignalSpec) -> bool:
    """Whether a signal is a picture: uint8 [H, W, colours]."""
    return spec.dtype == "uint8" and len(spec.shape) == 3


def is_words(spec: SignalSpec) -> bool:
    """Whether a signal is a sentence: word numbers [L] (:mod:`temporeal.sim.stl.instructions.vocabulary`)."""
    return spec.unit == "token"


def numbers(spec: SignalSpec, value: Tensor) -> Tensor:
    """What a network is shown of a signal [N, *shape] that is no picture: flat, attitudes as their first two axes."""
    value = axes_by_products(value) if spec.unit == "wxyz" else value.float()
    return value.flatten(1) if value.dim() > 1 else value[:, None]


def axes_by_products(quat: Tensor) -> Tensor:
    """:func:`temporeal.sim.rotations.axes` [N, ..., 6] of [N, ..., 4], as one product of matrices: a fifth of the
    nodes in an exported graph, each of which costs a robot a microsecond or two."""
    products = (quat[..., :, None] * quat[..., None, :]).reshape(-1, *quat.shape[1:-1], 16)
    return products @ WEIGHTS.to(quat) + CONSTANT.to(quat)


def quadratic() -> tuple[Tensor, Tensor]:
    """``axes(q)`` as ``W (q q^T) + c``: W [16, 6], found where one or two numbers of q are 1, and c [6]."""
    basis, constant = torch.eye(4), axes(torch.zeros(1, 4))[0]
    pairs = (basis[:, None] + basis[None]).reshape(16, 4)
    alone = axes(basis) - constant
    both = (axes(pairs) - constant).reshape(4, 4, 6)
    return (0.5 * (both - alone[:, None] - alone[None])).reshape(16, 6), constant


WEIGHTS, CONSTANT = quadratic()


def count(spec: SignalSpec) -> int:
    """How many :func:`numbers` a signal has."""
    return prod(spec.shape[:-1]) * 6 if spec.unit == "wxyz" else spec.size


def vector(specs: Sequence[SignalSpec], signals: Mapping[str, Tensor]) -> Tensor:
    """The :func:`numbers` [N, F] of all ``specs``, at least one, not normalized."""
    return torch.cat([numbers(spec, signals[spec.name]) for spec in specs], -1)


class Keypoints(nn.Module):
    """A picture uint8 [N, H, W, colours] to the places [N, 2 K] of K features: convolutions and a spatial softmax, the
    expected place of each feature map in [-1, 1] (Levine et al. 2016, End-to-End Training of Visuomotor Policies)."""

    def __init__(self, shape: Sequence[int], keypoints: int) -> None:
        super().__init__()
        rows, columns, colours = shape
        one, two = CHANNELS
        self.net = nn.Sequential(
            nn.Conv2d(colours, one, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(one, two, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(two, two, 3, padding=1), nn.ReLU(),
            nn.Conv2d(two, keypoints, 3, padding=1))
        places = [torch.linspace(-1.0, 1.0, -(-size // 4)) for size in (rows, columns)]
        self.register_buffer("grid", torch.stack(torch.meshgrid(*places, indexing="ij"), -1).flatten(0, 1))
        self.grid: Tensor

    def forward(self, picture: Tensor) -> Tensor:
        """Rows and columns of the keypoints."""
        maps = self.net(picture.float().permute(0, 3, 1, 2) / 127.5 - 1.0)
        return (torch.softmax(maps.flatten(2), -1) @ self.grid).flatten(1)


class SignalEncoder(nn.Module):
    """Raw signals, by name [N, *shape], to a context [N, width]. ``normalizer`` has the statistics of the numbers,
    ``plain``; ``size``: of a context."""

    def __init__(self, specs: Sequence[SignalSpec], width: int, keypoints: int) -> None:
        super().__init__()
        self.pictures = tuple(spec for spec in specs if is_picture(spec))
        self.plain = tuple(spec for spec in specs if not is_picture(spec))
        self.normalizer = Normalizer(sum(count(spec) for spec in self.plain), limit=5.0)
        self.eyes = nn.ModuleDict({spec.name: Keypoints(spec.shape, keypoints) for spec in self.pictures})
        self.size = width
        inputs = len(self.normalizer.shift) + 2 * keypoints * len(self.pictures)
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The context."""
        told = [self.normalizer(vector(self.plain, signals))] if self.plain else []
        seen = [self.eyes[spec.name](signals[spec.name]) for spec in self.pictures]
        return self.net(torch.cat([*told, *seen], -1))


def random_shift(pictures: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """``pictures`` [N, H, W, colours], each moved by up to ``pixels`` in both directions; the border is repeated
    (Kostrikov et al. 2020, DrQ)."""
    return shifted(pictures, torch.randint(-pixels, pixels + 1, (2, len(pictures), 1), generator=generator))


def shifted(pictures: Tensor, move: Tensor) -> Tensor:
    """``pictures`` [N, H, W, colours], each moved by ``move`` [2, N, 1], pixels up and left; the border is repeated."""
    n, rows, columns = pictures.shape[:3]
    place = pictures.device
    y = (torch.arange(rows, device=place) + move[0]).clamp(0, rows - 1)
    x = (torch.arange(columns, device=place) + move[1]).clamp(0, columns - 1)
    return pictures[torch.arange(n, device=place)[:, None, None], y[:, :, None], x[:, None, :]]
