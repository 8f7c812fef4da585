"""Trained policies as methods: a graph with or without missions as data, and where a policy for any formula plugs in.

A policy for any formula is a line in :data:`MAKERS`: by the algorithm of its run, ``maker(folder, world)`` gives an
object with ``begin(missions, signals)``, as :class:`temporeal_benchmarks.any_formula.flights.Method` says. What it
returns needs ``act(signals)`` and ``forecast``, and no type of this folder. One that is a graph which reads missions as
a signal is ``Graph(graph, "policy", at_once=1000, tell=plan)``, where ``plan(missions, signals)`` is what that signal
says of each, with a forecast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.policies.runs.errors import BadInput
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula.flights import COMMANDS, Method, Mission, Pilot, Signals

MAKERS: Mapping[str, Callable[[Path, World], Any]] = {}
"""By algorithm. ``maker(folder, world).begin(missions, signals)``; an ``at_once``, the formulas that one pilot takes at
most, and ``gives`` are taken where it has them, else 1000 and actions."""
AT_ONCE = 1000


@dataclass(frozen=True)
class Policy:
    """A policy for any formula, from what a maker gave."""

    made: Any
    name: str
    gives: str
    at_once: int
    identity: Mapping[str, Any]

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """What the policy begins."""
        found = self.made.begin(missions, signals)
        return Pilot(found.act, found.forecast)


class Told(NamedTuple):
    """What a graph is told of N missions: ``signals`` [N, ...] that do not change in flight, ``forecast`` [N]."""

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


def method_of(folder: Path, world: World) -> Method:
    """The policy for any formula whose run is ``folder``."""
    from temporeal.policies.runs.run_folders import load_run

    algo = load_run(folder)["algo"]["name"]
    if algo not in MAKERS:
        known = ", ".join(MAKERS) or "none yet"
        raise BadInput(f"{folder}: algo={algo} makes no policy for any formula; those that do: {known}")
    made = MAKERS[algo](folder, world)
    return Policy(made, "policy", getattr(made, "gives", "actions"), getattr(made, "at_once", AT_ONCE),
                  {"algo": algo, "weights": weights(folder)})


def weights(folder: Path) -> str:
    """The digest of the last checkpoint."""
    from temporeal.policies.training import checkpoint

    return hashlib.sha256(checkpoint.latest(folder / "checkpoints", 0, 1).read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Alone:
    """Another method, begun for each formula by itself, so that its decisions are timed."""

    of: Method
    at_once: int = 1

    @property
    def name(self) -> str:
        """The other's."""
        return self.of.name

    @property
    def gives(self) -> str:
        """The other's."""
        return self.of.gives

    @property
    def identity(self) -> Mapping[str, Any]:
        """The other's."""
        return self.of.identity

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """The other's pilot."""
        return self.of.begin(missions, signals)
