"""Which member of an ensemble flies in which world: another one in each episode, or all of them, averaged."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.physics.quadrotor.layout import BLOCK

DRAWN, MEAN = "drawn", "mean"
CHOICES = (DRAWN, MEAN)


class Members:
    """Of N worlds. ``member`` [N] flies there, in the world's episode number ``episode`` [N]; ``shares`` [B, M, BLOCK]
    is what the kernels read.

    A member is drawn by (seed, world, episode), as all random numbers are.
    """

    def __init__(self, choice: str, members: int, worlds: int, seed: int) -> None:
        self.count, self.seed, self.drawn = members, seed, choice == DRAWN
        self.shares = torch.full((-(-worlds // BLOCK), members, BLOCK), 1.0 / members)
        self.member = torch.zeros(worlds, dtype=torch.int64)
        self.episode = torch.zeros(worlds, dtype=torch.int64)

    def draw(self, ids: Tensor) -> None:
        """New episodes begin in the worlds ``ids`` [K]."""
        self.episode[ids] += 1
        if self.drawn:
            share = uniform(self.seed, ids, self.episode[ids], stream("residual_dynamics"), 1)[:, 0]
            self.member[ids] = (share * self.count).long().clamp(max=self.count - 1)
            self.spread(ids)

    def spread(self, ids: Tensor) -> None:
        """Write the shares of the worlds ``ids`` [K]."""
        if self.drawn:
            self.shares[ids // BLOCK, :, ids % BLOCK] = torch.nn.functional.one_hot(
                self.member[ids], self.count).float()

    def state(self) -> dict[str, Tensor]:
        """What a bit-exact continuation needs."""
        return {"residual.member": self.member.clone(), "residual.episode": self.episode.clone()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        self.member.copy_(state["residual.member"])
        self.episode.copy_(state["residual.episode"])
        self.spread(torch.arange(len(self.member)))
