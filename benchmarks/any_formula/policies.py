"""Where a policy for any formula plugs in.

A policy for any formula is a line in :data:`MAKERS`: by the algorithm of its run, ``maker(folder, world)`` gives an
object with ``begin(missions, signals)``, as :class:`temporeal_benchmarks.any_formula.flights.Method` says. What it
returns needs ``act(signals)`` and ``forecast``, and no type of this folder. One that is a graph which reads missions as
a signal is ``Graph(graph, "policy", at_once=1000, tell=plan)``, where ``plan(missions, signals)`` is what that signal
says of each, with a forecast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula import generalist
from temporeal_benchmarks.any_formula.flights import ACTIONS, Method, Mission, Pilot, Signals
from temporeal_benchmarks.any_formula.graphs import AT_ONCE

MAKERS: Mapping[str, Callable[[Path, World], Any]] = {"generalist": generalist.method}
"""By algorithm. ``maker(folder, world).begin(missions, signals)``; an ``at_once``, the formulas that one pilot takes at
most, and ``gives`` are taken where it has them, else 1000 and actions."""


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


def method_of(folder: Path, world: World) -> Method:
    """The policy for any formula whose run is ``folder``."""
    from temporeal.policies.runs.run_folders import load_run

    algo = load_run(folder)["algo"]["name"]
    if algo not in MAKERS:
        known = ", ".join(MAKERS) or "none yet"
        raise BadInput(f"{folder}: algo={algo} makes no policy for any formula; those that do: {known}")
    made = MAKERS[algo](folder, world)
    return Policy(made, "policy", getattr(made, "gives", ACTIONS), getattr(made, "at_once", AT_ONCE),
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
