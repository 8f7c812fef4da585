"""Policies that act in an environment, made from trained graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from temporeal.sim.maps import Memory, PolicyGraph


Act = Callable[[Tensor], Tensor]
"""Observation [N, O] to action [N, A], deterministic. A recurrent one carries its own state: see `graph_policy`."""


def graph_policy(graph: PolicyGraph, env: Any = None) -> Act:
    """The network of ``graph`` on the environment's observations; carried state starts empty.

    The environment itself runs the observation and action maps, so only the network is used here. A graph that reads
    pictures takes the newest of ``env``, which must then be given.
    """
    carried: Memory = {}
    seeing: Any = graph if hasattr(graph, "pictures") else None
    if seeing is not None:
        check_pictures(seeing, env)

    def start(n: int, device: torch.device | str = "cpu") -> Memory:
        return {name: torch.zeros(n, *shape, device=device) for name, shape in graph.carried.items()}

    def act(obs: Tensor) -> Tensor:
        nonlocal carried
        if seeing is not None:
            found: Tensor = seeing.see(obs, env.images)
            return found
        action, carried = graph.decide(obs, carried or start(len(obs), obs.device))
        return action

    # what it carries from step to step, for a golden trace
    setattr(act, CARRIED, lambda n: carried or start(n))
    return act


CARRIED = "carried"


def check_pictures(graph: Any, env: Any) -> None:
    """A ValueError where the cameras of ``env`` do not give the pictures that ``graph`` reads, in their sizes."""
    found = {} if env is None or env.pictures is None else env.pictures.rig.signals
    for name, shape in graph.pictures.items():
        if name not in found:
            raise ValueError(f"the policy reads pictures {name}, which no camera gives; cameras give: "
                             f"{', '.join(found) or 'nothing'} (cameras=...)")
        if tuple(found[name]) != tuple(shape):
            raise ValueError(f"the policy reads pictures {name} of {list(shape)} (rows, columns, colours), the camera "
                             f"gives {list(found[name])}")
