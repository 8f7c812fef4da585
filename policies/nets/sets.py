"""Actors and critics that read a set: numbers, then elements of which any may be left out or exchanged (deep sets).

    value = net(numbers, max over elements and 0, sum over elements of phi(element, numbers))

(Zaheer et al., "Deep Sets", arXiv 1703.06114, with the context of DeepLTL, arXiv 2410.04631.) An element whose numbers
are all 0 is absent. What the network computes does not depend on their order, nor on how many are absent.

B rows, O observation, T elements of W numbers each at the observation's end, A actions, H width of phi.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.layers import activation, linear, mlp

PHI = 32
"""H."""


class SetNet(nn.Module):
    """Observations [..., O] to outputs [..., n].

    Args:
        elements: T and W.
    """

    def __init__(
        self, obs_dim: int, elements: tuple[int, int], outputs: int, hidden: Sequence[int], name: str, last_gain: float,
    ) -> None:
        super().__init__()
        self.count, self.width = elements
        self.numbers = obs_dim - self.count * self.width
        self.of_element = linear(self.width, PHI, math.sqrt(2.0))
        self.of_numbers = linear(self.numbers, PHI, math.sqrt(2.0))
        self.first, self.second = activation(name), activation(name)
        self.phi = linear(PHI, PHI, math.sqrt(2.0))
        self.net = mlp(self.numbers + 2 * PHI, hidden, outputs, name, last_gain)

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs [..., n]."""
        numbers, elements = obs[..., : self.numbers], obs[..., self.numbers :].unflatten(-1, (self.count, self.width))
        there = (elements.abs().sum(-1, keepdim=True) > 0).to(obs.dtype)
        found = self.first(self.of_element(elements) + self.of_numbers(numbers)[..., None, :])
        found = self.second(self.phi(found)) * there
        pooled = torch.cat([found.amax(-2).clamp(min=0.0), found.sum(-2) * 0.25], -1)  # as if one were always absent
        return self.net(torch.cat([numbers, pooled], -1))


class SetActor(nn.Module):
    """Observation [..., O] to the deterministic action [..., A]."""

    hidden_dim = 0

    def __init__(
        self, obs_dim: int, elements: tuple[int, int], action_dim: int, hidden: Sequence[int], name: str,
        init_std: float,
    ) -> None:
        super().__init__()
        self.elements = elements
        self.sets = SetNet(obs_dim, elements, action_dim, hidden, name, 0.01)
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(init_std)))

    @property
    def net(self) -> nn.Sequential:
        """The layers after the set."""
        return self.sets.net

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [..., A]: the mean."""
        return self.sets(obs)


class SetCritic(nn.Module):
    """Observation [..., C] to the value [...]."""

    def __init__(self, critic_dim: int, elements: tuple[int, int], hidden: Sequence[int], name: str) -> None:
        super().__init__()
        self.sets = SetNet(critic_dim, elements, 1, hidden, name, 1.0)

    def forward(self, obs: Tensor) -> Tensor:
        """Value [...] of ``obs`` [..., C]."""
        return self.sets(obs)[..., 0]


def widths(obs_dim: int, elements: tuple[int, int] | None) -> int:
    """Numbers that the layers behind a set read."""
    return obs_dim if elements is None else obs_dim - elements[0] * elements[1] + 2 * PHI
