"""The plan head: of the prefix alone, where target and place are in a picture, and where the tool will go.

A plan can be checked by the truth (:mod:`temporeal.policies.vla.plan.scores`). It does not reach the commands: what it
changes is what the prefix learns. N samples, L tokens of D numbers, B boxes, P waypoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.vla.config import TOLD
from temporeal.policies.vla.plan import scores
from temporeal.policies.vla.plan.truth import BOXES, PATH, SEEN

HIDDEN = 128
OVERLAP, CORNERS = 0.4, 1.0
"""Weights of 1 - GIoU and of the absolute error of corners: 2 and 5 in DETR (Carion et al. 2020, arXiv 2005.12872)."""


class Plans(NamedTuple):
    """Boxes [N, B, 4] as shares of the picture's height and width (first row, column, last row, column), and waypoints
    [N, P, 3] m in the world."""

    boxes: Tensor
    path: Tensor


class Plan(nn.Module):
    """Plans of prefixes.

    Args:
        length, width: L and D.
        points: P.
    """

    def __init__(self, length: int, width: int, points: int) -> None:
        super().__init__()
        self.length, self.points = length, points
        self.normalizer = Normalizer(3 * points, limit=5.0)
        self.net = nn.Sequential(nn.Linear(length * width, HIDDEN), nn.SiLU(),
                                 nn.Linear(HIDDEN, 4 * len(TOLD) + 3 * points))

    def raw(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [N, B, 4], and waypoints [N, 3 P], normalized, of the first L of ``tokens``."""
        boxes, path = self.net(tokens[:, : self.length].flatten(1)).split((4 * len(TOLD), 3 * self.points), 1)
        middle, size = torch.sigmoid(boxes.unflatten(1, (len(TOLD), 4))).chunk(2, -1)
        return torch.cat([middle - 0.5 * size, middle + 0.5 * size], -1), path

    def forward(self, tokens: Tensor) -> Plans:
        """The plans."""
        boxes, path = self.raw(tokens)
        return Plans(boxes, (path / self.normalizer.scale + self.normalizer.shift).unflatten(1, (self.points, 3)))

    def loss(self, tokens: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Of boxes in the picture GIoU and corners, of waypoints the squared error, normalized []."""
        boxes, path = self.raw(tokens)
        seen, wanted = signals[SEEN].float(), signals[BOXES]
        missed = OVERLAP * (1.0 - scores.giou(boxes, wanted)) + CORNERS * (boxes - wanted).abs().sum(-1)
        of_path = (path - self.normalizer(signals[PATH].flatten(1))).square().mean()
        found: Tensor = (missed * seen).sum() / seen.sum().clamp(min=1.0) + of_path
        return found
