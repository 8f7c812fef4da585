"""Base and residual as one graph between raw signals and raw commands: what is exported, and a base of others.

N robots, O observation, A action, H rows of a chunk, U numbers of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import SeeingActor
from temporeal.policies.nets.seeing_graph import SeeingGraph
from temporeal.policies.nets.seeing_policy import SeeingPolicy
from temporeal.policies.training.residual.base import Mixing, conditioned, corrected
from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory, PolicyGraph
from temporeal.sim.task import Task

SEEING = (SeeingActor, SeeingPolicy)
OWN = "base_"
"""Before the names of what a base carries from step to step."""


class Residual(nn.Module):
    """What is learned: network and normalizer, and how it corrects."""

    def __init__(self, normalizer: nn.Module, actor: nn.Module, scale: float, condition: bool) -> None:
        super().__init__()
        self.normalizer, self.actor, self.scale, self.condition = normalizer, actor, scale, condition

    def u(self, obs: Tensor, base: Tensor, pictures: Mapping[str, Tensor], hidden: Memory) -> tuple[Tensor, Memory]:
        """The correction [N, A] before its scale, and its next hidden state."""
        return self.of_seen(conditioned(obs, base, self.condition), pictures, hidden)

    def of_seen(self, seen: Tensor, pictures: Mapping[str, Tensor], hidden: Memory) -> tuple[Tensor, Memory]:
        """The same of what is seen, [N, O + A]."""
        seen = self.normalizer(seen)
        if isinstance(self.actor, SEEING):
            return self.actor(seen, pictures), {}
        if getattr(self.actor, "hidden_dim", 0):
            u, after = self.actor(seen, hidden["hidden"])
            return u, {"hidden": after}
        return self.actor(seen), {}


class ResidualGraph(PolicyGraph):
    """A base that reads the same observation, and its residual."""

    def __init__(self, base: PolicyGraph, residual: Residual) -> None:
        super().__init__(base.observe, residual.normalizer, residual.actor, base.act)
        self.base, self.residual = base, residual

    @property
    def carried(self) -> dict[str, tuple[int, ...]]:
        """What both carry."""
        return {**{f"{OWN}{name}": shape for name, shape in self.base.carried.items()}, **super().carried}

    def decide(self, obs: Tensor, carried: Memory) -> tuple[Tensor, Memory]:
        """The corrected action [N, A], and what is carried on."""
        base, kept = self.base.decide(obs, {name: carried[f"{OWN}{name}"] for name in self.base.carried})
        u, hidden = self.residual.u(obs, base, {}, carried)
        return (corrected(base, u, self.residual.scale),
                {**{f"{OWN}{name}": value for name, value in kept.items()}, **hidden})


class SeeingResidualGraph(SeeingGraph):
    """The same, where one of both or both read pictures."""

    def __init__(self, base: PolicyGraph, residual: Residual) -> None:
        seeing = residual.actor if isinstance(residual.actor, SEEING) else cast("Any", base).actor
        super().__init__(base.observe, residual.normalizer, seeing, base.act)
        self.base, self.residual = base, residual
        self.pictures = {**getattr(base, "pictures", {}), **getattr(residual.actor, "pictures", {})}
        if len(base.carried) or getattr(residual.actor, "hidden_dim", 0):
            raise ValueError("a base or a residual that remembers, and one that reads pictures: not both")

    def see(self, obs: Tensor, pictures: Mapping[str, Tensor]) -> Tensor:
        """The corrected action [N, A]."""
        base = (cast("Any", self.base).see(obs, pictures) if hasattr(self.base, "see")
                else self.base.decide(obs, {})[0])
        return corrected(base, self.residual.u(obs, base, pictures, {})[0], self.residual.scale)


def residual_graph(base: PolicyGraph, residual: Residual) -> PolicyGraph:
    """``base`` with its ``residual``."""
    sees = hasattr(base, "see") or isinstance(residual.actor, SEEING)
    return (SeeingResidualGraph if sees else ResidualGraph)(base, residual).eval()


class Rows(NamedTuple):
    """Where a base's commands come from.

    Args:
        of: raw signals to the commands [N, H, U] of the next control steps.
        signals: that it reads. ``shape``: H, U. ``execute``: rows that are played.
        anew: whether they follow from a look at the world alone, so that earlier corrections are in them.
    """

    of: Callable[[Mapping[str, Tensor]], Tensor]
    signals: tuple[str, ...]
    shape: tuple[int, int]
    execute: int
    anew: bool = True


class ResidualCommandGraph(nn.Module):
    """A base that gives commands, and the residual of each control step. The chunk under way is memory: ``base_chunk``
    [N, H, U], ``base_age`` [N] rows of it that were played. The graph infers a chunk at each step, and uses those due.
    """

    def __init__(self, base: Rows, task: Task, residual: Residual) -> None:
        super().__init__()
        self.base, self.observe, self.residual = base, task.observe, residual
        self.map, self.mixing, self.command = cast("Any", task.observe), Mixing(task), task.command
        self.size = base.shape[1]
        self.hidden_dim = int(getattr(residual.actor, "hidden_dim", 0))
        eyes = getattr(residual.actor, "pictures", {})
        self.picture_specs = {name: SignalSpec(name, shape, dtype="uint8") for name, shape in eyes.items()}

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that base and residual read."""
        return tuple(dict.fromkeys((*self.base.signals, *self.map.signals, *self.picture_specs)))

    @property
    def own(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the memory that is not the observation map's."""
        return {"base_chunk": self.base.shape, "base_age": (), "base_offset": (self.size,),
                **({"hidden": (self.hidden_dim,)} if self.hidden_dim else {})}

    def initial_memory(self, n: int) -> Memory:
        """Of ``n`` robots at mission start: a chunk is due."""
        shapes = {**self.map.memory, **self.own}
        found = {name: torch.zeros(n, *shape) for name, shape in shapes.items()}
        return {**found, "base_age": torch.full((n,), float(self.base.execute))}

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[dict[str, Tensor], Memory]:
        """Commands ``{name: [N, U]}`` and the next memory."""
        obs, seen = self.map(signals, {name: memory[name] for name in self.map.memory})
        due = memory["base_age"] >= self.base.execute
        chunk = torch.where(due[:, None, None], self.base.of(signals), memory["base_chunk"])
        age = torch.where(due, 0.0, memory["base_age"])
        offset = torch.where(due[:, None], 0.0, memory["base_offset"]) if self.base.anew else memory["base_offset"]
        row = age[:, None, None].expand(-1, 1, self.size).long()
        command = chunk.gather(1, row)[:, 0]
        base = self.mixing.stands_for(command, offset, seen)
        u, hidden = self.residual.u(obs, base, signals, memory)
        executed = corrected(base, u, self.residual.scale)
        offset = self.mixing.moved(base, executed, offset, seen)
        own = {"base_chunk": chunk, "base_age": age + 1.0, "base_offset": offset, **hidden}
        after = {**seen, **self.map.record(seen, executed), **own}
        return {self.command: self.mixing.command(command, offset)}, after
