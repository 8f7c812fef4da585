"""A policy behind eyes of its own: what learners whose critics teach the eyes deploy. N worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import eyes_of, looked


class Eyes(nn.Module):
    """Pictures, uint8 [N, H, W, 3] by name, to the places [N, F] of ``keypoints`` features in each.

    Attributes:
        pictures: their shapes (H, W, 3) by name; ``size``: F.
    """

    def __init__(self, pictures: Mapping[str, Sequence[int]], keypoints: int) -> None:
        super().__init__()
        self.pictures = {name: tuple(map(int, shape)) for name, shape in pictures.items()}
        self.each, self.size = eyes_of(self.pictures, keypoints), places(self.pictures, keypoints)

    def forward(self, pictures: Mapping[str, Tensor]) -> Tensor:
        """The places [N, F]."""
        return looked(self.each, pictures)


class SeeingPolicy(nn.Module):
    """Observation [N, O] and pictures to the deterministic action [N, A] of a ``policy`` [N, O + F] to [N, A]."""

    hidden_dim = 0

    def __init__(self, eyes: Eyes, policy: nn.Module) -> None:
        super().__init__()
        self.eyes, self.policy, self.pictures = eyes, policy, eyes.pictures

    @property
    def net(self) -> nn.Module:
        """The policy's."""
        return cast("nn.Module", self.policy.net)

    def forward(self, obs: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """Deterministic action [N, A]."""
        return cast("Tensor", self.policy(torch.cat([obs, self.eyes(pictures)], -1)))


def behind_eyes(policy: nn.Module, pictures: Mapping[str, Sequence[int]], keypoints: int) -> nn.Module:
    """``policy`` behind eyes of its own for ``pictures``, if there are some."""
    return SeeingPolicy(Eyes(pictures, keypoints), policy) if pictures else policy


def places(pictures: Mapping[str, Sequence[int]], keypoints: int) -> int:
    """F: rows and columns of the keypoints of all ``pictures``."""
    return 2 * keypoints * len(pictures)
