"""Trained graphs as methods: of one formula, or with missions as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.sim.maps import PolicyGraph
from temporeal_benchmarks.any_formula.flights import COMMANDS, Mission, Pilot, Signals

AT_ONCE = 1000
"""Formulas that one pilot takes, at most."""


class Told(NamedTuple):
    """What a graph is told of N missions: ``signals`` [N, ...], ``forecast`` [N]."""

    signals: Signals
    forecast: Tensor | None = None


def nothing(missions: Sequence[Mission], signals: Signals) -> Told:
    """Of a graph that knows its one formula."""
    return Told({})


@dataclass(frozen=True)
class Graph:
    """A graph from raw signals to raw commands, with its memory. ``tell``: what it is told of missions, once."""

    graph: PolicyGraph
    name: str
    gives: str = COMMANDS
    at_once: int = 1
    identity: Mapping[str, Any] = field(default_factory=dict)
    tell: Callable[[Sequence[Mission], Signals], Told] = nothing

    @torch.no_grad()
    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """The graph with an empty memory."""
        told, memory = self.tell(missions, signals), self.graph.initial_memory(len(missions))

        @torch.no_grad()
        def act(seen: Signals) -> Tensor:
            nonlocal memory
            read = {**seen, **told.signals}
            commands, memory = self.graph({name: read[name] for name in self.graph.signals}, memory)
            command: Tensor = commands[self.graph.act.command]
            return command

        return Pilot(act, told.forecast)
