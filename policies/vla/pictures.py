"""A picture and a sentence to tokens: convolutions that the sentence conditions, keypoints, and patches where wanted.

The sentence scales and shifts the features (FiLM: Perez et al. 2018, arXiv 1709.07871) and asks for them: the logits of
a keypoint's map are products of features with a query that the sentence makes. Keypoints are expected places (spatial
softmax: Levine et al. 2016). Without the queries, places of what is named are not learned from few thousand frames.
The first Q keypoints may be *pointers*: where they look is told as numbers, and grounding teaches it by the pixels of
named places.

N pictures, D numbers of a token and of the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.vla.frozen.lite0 import FrozenStem

STRIDE = 4  # pixels of the feature map's cell: 64 x 64 pictures have 16 x 16 cells
POINTED = 3  # numbers of a pointer: row and column, from -1 (first cell) to 1 (last), and the root mean square spread


class Look(NamedTuple):
    """What an eye makes of pictures."""

    tokens: Tensor  # [N, T, D]
    pointed: Tensor  # [N, Q * POINTED]
    logits: Tensor  # [N, Q, cells]: of where the pointers look, cell by cell from the upper left corner, row by row


class Film(nn.Module):
    """A convolution whose features the sentence scales and shifts."""

    def __init__(self, inputs: int, outputs: int, told: int) -> None:
        super().__init__()
        self.conv, self.told = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Linear(told, 2 * outputs)

    def forward(self, maps: Tensor, told: Tensor) -> Tensor:
        """Feature maps after the activation."""
        scale, shift = self.told(told)[..., None, None].chunk(2, 1)
        return nn.functional.relu(self.conv(maps) * (1.0 + scale) + shift)


class Eye(nn.Module):
    """One camera's pictures uint8 [N, H, W, colours] to ``tokens`` tokens, and ``patches`` x ``patches`` more.

    Args:
        shape: H, W, colours.
        channels: of the convolutions: the first two halve the picture, the others are conditioned by the sentence.
        keypoints: K.
        pointers: Q.
        net: frozen, in place of the first two convolutions; None: these are learned.
    """

    def __init__(
        self, shape: Sequence[int], channels: Sequence[int], keypoints: int, tokens: int, patches: int, width: int,
        pointers: int = 0, net: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.pointers = pointers
        rows, columns, colours = shape
        one, two, *rest = channels
        self.stem: nn.Module = FrozenStem(shape, two, net) if net is not None else nn.Sequential(
            nn.Conv2d(colours, one, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(one, two, 3, stride=2, padding=1), nn.ReLU())
        self.films = nn.ModuleList(Film(a, b, width) for a, b in zip((two, *rest), rest))
        last = rest[-1]
        self.maps, self.query = nn.Conv2d(last, keypoints, 1), nn.Linear(width, keypoints * last)
        places = [torch.linspace(-1.0, 1.0, -(-size // STRIDE)) for size in (rows, columns)]
        self.register_buffer("grid", torch.stack(torch.meshgrid(*places, indexing="ij"), -1).flatten(0, 1))
        self.grid: Tensor
        self.tokens, self.width = tokens, width
        self.summary = nn.Linear(2 * keypoints + last, tokens * width)
        self.patches = nn.Sequential(nn.AdaptiveAvgPool2d(patches), nn.Conv2d(last, width, 1)) if patches else None

    def forward(self, picture: Tensor, told: Tensor) -> Look:
        """What is seen, given the sentence ``told`` [N, D]."""
        frozen = isinstance(self.stem, FrozenStem)
        found = self.stem(picture if frozen else picture.float().permute(0, 3, 1, 2) / 127.5 - 1.0)
        for film in self.films:
            found = film(found, told)
        flat = found.flatten(2)
        size = (flat.square().mean(1, keepdim=True) + 1e-3).sqrt()  # of a cell's features: a query finds a direction
        asked = self.query(told).reshape(-1, self.maps.out_channels, self.maps.in_channels) @ (flat / size)
        logits = asked + self.maps(found).flatten(2)
        shares = torch.softmax(logits, -1)
        keypoints = shares @ self.grid  # [N, K, 2]
        summary = self.summary(torch.cat([keypoints.flatten(1), flat.mean(2)], -1))
        tokens = summary.unflatten(1, (self.tokens, self.width))
        if self.patches is not None:
            tokens = torch.cat([tokens, self.patches(found).flatten(2).transpose(1, 2)], 1)
        return Look(tokens, self.pointed(shares[:, :self.pointers], keypoints[:, :self.pointers]),
                    logits[:, :self.pointers])

    def pointed(self, shares: Tensor, at: Tensor) -> Tensor:
        """Where pointers look [N, Q * POINTED]: their places ``at`` [N, Q, 2], and how far spread around them are the
        ``shares`` [N, Q, cells] of what they look at: a pointer that finds nothing looks everywhere."""
        square = shares @ self.grid.square().sum(1, keepdim=True) - at.square().sum(2, keepdim=True)
        return torch.cat([at, square.clamp(min=1e-6).sqrt()], 2).flatten(1)
