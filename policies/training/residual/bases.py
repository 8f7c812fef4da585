"""The bases there are: the network of a run, chunks that are played row by row, an artifact's graph, a controller by
hand.

N worlds, K chosen ones, O observation, A action, H rows of a chunk, U numbers of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.training.residual.base import Acted, Signals

if TYPE_CHECKING:
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.maps import Memory, PolicyGraph
    from temporeal.sim.types import Obs


class GraphBase:
    """The network of a policy that reads the worlds' observation; what it carries from step to step is state."""

    def __init__(self, graph: PolicyGraph, worlds: int, action_dim: int, title: str) -> None:
        self.graph, self.action_dim, self.title = graph.eval().requires_grad_(False), action_dim, title
        self.carried: Memory = {name: torch.zeros(worlds, *shape) for name, shape in graph.carried.items()}

    def begin(self, ids: Tensor) -> None:
        """It carries nothing."""
        for value in self.carried.values():
            value[ids] = 0.0

    @torch.no_grad()
    def decided(self, obs: Obs) -> tuple[Tensor, Memory]:
        """The action, and what it would carry on."""
        if hasattr(self.graph, "see"):
            return cast("Any", self.graph).see(obs.actor, obs.images), {}
        return self.graph.decide(obs.actor, self.carried)

    def act(self, obs: Obs, signals: Signals) -> Acted:
        """Of the observation."""
        action, self.carried = self.decided(obs)
        return Acted(action)

    def after(self, obs: Obs, signals: Signals) -> Tensor | None:
        """The same, and it carries nothing on."""
        return self.decided(obs)[0]

    def state_dict(self) -> dict[str, Any]:
        """What is carried."""
        return {name: value.clone() for name, value in self.carried.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        require_same_parts(self.title, state, self.carried)
        self.carried = {name: value.clone() for name, value in state.items()}


Rows = Callable[[Tensor], Tensor]
"""Of the worlds ``ids`` [K]: the commands [K, H, U] of their next control steps, by what is measured in them now."""


class ChunkBase:
    """Chunks, of which ``execute`` rows are played before the next one is inferred, in each world by itself."""

    def __init__(self, rows: Rows, execute: int, horizon: int, worlds: int, size: int, action_dim: int, title: str
                 ) -> None:
        if not 1 <= execute <= horizon:
            raise ValueError(f"base.execute is from 1 to {horizon}, the control steps of a chunk of {title}, got "
                             f"{execute}")
        self.rows, self.execute, self.action_dim, self.title = rows, execute, action_dim, title
        self.chunk = torch.zeros(worlds, horizon, size)
        self.age = torch.full((worlds,), execute)  # rows of its chunk that a world has played
        self.each = torch.arange(worlds)

    def begin(self, ids: Tensor) -> None:
        """The next chunk is due."""
        self.age[ids] = self.execute

    @torch.no_grad()
    def act(self, obs: Obs, signals: Signals) -> Acted:
        """The next row."""
        due = self.age >= self.execute
        ids = due.nonzero()[:, 0]
        if len(ids):
            self.chunk[ids] = self.rows(ids)
            self.age[ids] = 0
        command = self.chunk[self.each, self.age]
        self.age += 1
        return Acted(None, command, due)

    def after(self, obs: Obs, signals: Signals) -> Tensor | None:
        """Unknown: worlds that ended show their next episode."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The chunk under way."""
        return {"chunk": self.chunk.clone(), "age": self.age.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        require_same_parts(self.title, state, {"chunk": self.chunk, "age": self.age})
        self.chunk, self.age = state["chunk"].clone(), state["age"].clone()


Measured = Callable[[], Mapping[str, np.ndarray]]
"""The signals [N, *shape] that an artifact reads, as they are measured now."""


class ArtifactBase:
    """An artifact's own graph, which gives single commands; its memory is state."""

    def __init__(self, artifact: Artifact, measured: Measured, worlds: int, action_dim: int, title: str) -> None:
        self.artifact, self.measured, self.action_dim, self.title = artifact, measured, action_dim, title
        self.command = artifact.manifest.commands[0].name
        self.memory = {name: np.array(value) for name, value in artifact.initial_memory(worlds).items()}

    def begin(self, ids: Tensor) -> None:
        """Its memory is that of a mission's start."""
        start, rows = self.artifact.initial_memory(1), ids.cpu().numpy()
        for name, value in self.memory.items():
            value[rows] = start[name]

    def act(self, obs: Obs, signals: Signals) -> Acted:
        """Its command. It goes by what it remembers, so corrections are never in it."""
        commands, memory = self.artifact.act_batch(dict(self.measured()), self.memory)
        self.memory = {name: np.array(value) for name, value in memory.items()}
        command = torch.as_tensor(commands[self.command])
        return Acted(None, command.reshape(len(command), -1))

    def after(self, obs: Obs, signals: Signals) -> Tensor | None:
        """Unknown: worlds that ended show their next episode."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Its memory."""
        return {name: torch.from_numpy(value.copy()) for name, value in self.memory.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        require_same_parts(self.title, state, self.memory)
        self.memory = {name: value.numpy().copy() for name, value in state.items()}


def require_same_parts(title: str, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """A ValueError names the parts of a base's ``state`` that differ in shape from its ``own``."""
    shapes = [{name: tuple(value.shape) for name, value in held.items()} for held in (state, own)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the state of the base is of {shapes[0]}, {title} has {shapes[1]}")
