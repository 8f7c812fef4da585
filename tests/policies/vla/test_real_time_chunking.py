"""A chunk that continues the one under way: weights by hand, frozen rows, and no jump where there are two ways."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.training.chunks.policy import Scale
from temporeal.policies.vla import samplers
from temporeal.policies.vla.real_time_chunking import continued, weights

H, SIDE, STD = 8, 0.8, 0.05


class TwoWays:
    """The exact velocity where half of the chunks pass on the left (.8, all rows) and half on the right (-.8)."""

    def __init__(self) -> None:
        self.steps, self.horizon, self.mask, self.scale = 8, H, torch.ones(1, dtype=torch.bool), Scale(H, 1)
        self.interface = Interface("point", {}, ActionSpec("velocity", (-2.0,), (2.0,)), 10.0)

    def encode(self, signals: Any) -> Tensor:
        return torch.zeros(len(signals["place_w"]), 1)

    def velocity(self, context: Tensor, x: Tensor, t: Tensor) -> Tensor:
        t = t[:, None, None]
        variance = (1 - t) ** 2 * STD**2 + t**2
        sides = torch.tensor([SIDE, -SIDE])[:, None, None, None]
        apart = x - (1 - t) * sides
        share = torch.softmax(-0.5 * (apart.square() / variance).sum((2, 3)), 0)[..., None, None]
        clean = (share * (sides + (1 - t) * STD**2 / variance * apart)).sum(0)
        return (x - clean) / t

    def chunk(self, command: Tensor, signals: Any) -> Tensor:
        return command

    commands = chunk


def test_weights_are_those_of_the_paper() -> None:
    found = weights(8, 2, 5)
    c = torch.tensor([3 / 4, 2 / 4, 1 / 4])
    assert torch.allclose(found, torch.cat([torch.ones(2), c * (c.exp() - 1) / (math.e - 1), torch.zeros(3)]))
    with pytest.raises(ValueError, match="cannot continue 3 rows after 4"):
        weights(8, 4, 3)


def test_frozen_rows_are_kept_and_the_next_ones_nearly_always_go_the_same_way() -> None:
    policy: Any = TwoWays()
    count, delay = 64, 2
    noise = torch.randn(count, H, 1, generator=torch.Generator().manual_seed(0))
    signals = {"place_w": torch.zeros(count, 2)}
    under_way = SIDE + 0.02 * torch.randn(count, 5, 1, generator=torch.Generator().manual_seed(1))
    plain = samplers.ode(policy, policy.encode(signals), noise)
    found = continued(policy, signals, under_way, delay, noise=noise)
    assert torch.equal(found[:, :delay], under_way[:, :delay])
    jump = (found[:, delay] - under_way[:, delay - 1]).abs()
    without = (plain[:, delay] - under_way[:, delay - 1]).abs()
    assert 0.3 < float((without > 1.0).float().mean()) < 0.7  # half of the fresh chunks go the other way
    assert float((jump > 1.0).float().mean()) < 0.05 and float(jump.median()) < 0.05
    assert float((found - SIDE).abs().amax((1, 2)).median()) < 0.1


def test_without_a_pull_it_is_the_plain_chunk() -> None:
    policy: Any = TwoWays()
    noise = torch.randn(5, H, 1, generator=torch.Generator().manual_seed(0))
    signals = {"place_w": torch.zeros(5, 2)}
    found = continued(policy, signals, torch.ones(5, 1, 1), 0, noise=noise, beta=0.0)
    assert torch.allclose(found, samplers.ode(policy, policy.encode(signals), noise), atol=1e-5)
