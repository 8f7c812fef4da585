"""Policies that act in an environment, made from trained graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from temporeal.sim.maps import Memory, PolicyGraph


Act = Callable[[Tensor], Tensor]
"""Observation [N, O] to action [N, A], deterministic. A recurrent one carries its own state: see `graph_policy`."""


def graph_policy(graph: PolicyGraph) -> Act:
    """The network of ``graph`` on the environment's observations; carried state starts empty.

    The environment itself runs the observation and action maps, so only the network is used here.
    """
    carried: Memory = {}

    def start(n: int, device: torch.device | str = "cpu") -> Memory:
        return {name: torch.zeros(n, *shape, device=device) for name, shape in graph.carried.items()}

    def act(obs: Tensor) -> Tensor:
        nonlocal carried
        action, carried = graph.decide(obs, carried or start(len(obs), obs.device))
        return action

    # what it carries from step to step, for a golden trace
    setattr(act, CARRIED, lambda n: carried or start(n))
    return act


CARRIED = "carried"
