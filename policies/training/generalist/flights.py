"""Closed-loop flights of formulas, one in each world, by a policy that reads them as data.

The loop is the robot's: a planner makes a program of the formula, the policy's graph turns signals into commands, the
simulator moves. Each flight is judged by the exact robustness of the whole formula at time 0. N worlds, T samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from temporeal.sim.backend_factory import BackendConfig, make_backend
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rewards.follower import MISSION
from temporeal.sim.stl.distribution.drawing import Drawn, start_settings
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.stl.itineraries.planner import Guide, Judge, Plan, ways_of
from temporeal.sim.stl.itineraries.program import SIZE
from temporeal.sim.stl.itineraries.regions import Numbers
from temporeal.sim.stl.itineraries.search import Travel
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import Task
from temporeal.sim.task_parts.systems import system_of

Planner = Callable[[Drawn], Guide]
"""Who plans a formula."""


@dataclass(frozen=True)
class Flight:
    """One flight: its exact robustness at time 0, the chance that the planner gave it, the legs that were hit of those
    that there were, the signals."""

    robustness: float
    chance: float
    hits: int
    legs: int
    signals: Mapping[str, np.ndarray]


def start_states(formulas: Sequence[Drawn], world: World) -> dict[str, torch.Tensor]:
    """The states at the drawn starts, [N, ...] by name."""
    system = system_of(world.system)
    still = lambda _, count: torch.full((1, count), 0.5)  # noqa: E731
    states = [system.initial(still, start_settings(world, (*each.place, 0.0)[:3], each.heading)) for each in formulas]
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


@torch.no_grad()
def fly(
    task: Task, graph: PolicyGraph, formulas: Sequence[Drawn], world: World, plan: Planner, *, again: bool = True,
    backend: BackendConfig | None = None, options: Mapping[str, Any] | None = None,
) -> list[Flight]:
    """Fly each of ``formulas`` once, to its own horizon; ``again``: planning again on the way."""
    count = len(formulas)
    config = backend or BackendConfig(num_worlds=count, options=dict(options or {}))
    worlds = make_backend(task, config)
    ids, state = torch.arange(count), start_states(formulas, world)
    worlds.reset(ids, {name: value for name, value in state.items() if name != MISSION})
    guides = [plan(each) for each in formulas]
    planned = [begun(guide, (*each.place, 0.0)[:3]) for guide, each in zip(guides, formulas)]
    mission = torch.from_numpy(np.stack([np.zeros(SIZE, np.float32) if each is None else each.program
                                         for each in planned]))
    legs = [0 if each is None else len(each.itinerary.legs) for each in planned]
    names = [name for name in graph.signals if name != MISSION]
    read = [name for name in (world.signal, "base_quat_w") if name in worlds.signals()]
    known = torch.zeros(count)
    memory, longest = graph.initial_memory(count), max(each.horizon for each in formulas)
    traces = {name: [worlds.signals()[name].clone()] for name in read}
    for _ in range(longest):
        signals = {**{name: worlds.signals()[name] for name in names}, MISSION: mission}
        commands, memory = graph(signals, memory)
        worlds.step(commands[task.command], task.substeps)
        if again:
            plan_again(guides, worlds.signals()[world.signal], mission, memory, known)
        for name, trace in traces.items():
            trace.append(worlds.signals()[name].clone())
    whole = {name: torch.stack(trace).numpy() for name, trace in traces.items()}
    done = (memory["hit"] > 0).sum(-1).tolist()
    hits = [count + (0 if guide.begun is None else len(guide.begun.groups)) for count, guide in zip(done, guides)]
    out = []
    for k, each in enumerate(formulas):
        own = {name: value[: each.horizon + 1, k].astype(np.float64) for name, value in whole.items()}
        formula = parse(each.formula, loaded(world.robot).signals, each.constants)
        first = planned[k]
        out.append(Flight(float(robustness(formula, own, world.dt)[0]), 0.0 if first is None else first.chance, hits[k],
                          legs[k], own))
    return out


def guided(formula: Formula, world: World, travel: Travel, judge: Judge | None) -> Guide:
    """Who plans ``formula`` in ``world``; one without ways, whose flight fails, where it is none that can be flown."""
    try:
        ways = ways_of(formula, world.dt, world.signal)
    except FormulaError:
        ways = ()
    return Guide(ways, travel, judge)


def begun(guide: Guide, point: Sequence[float]) -> Plan | None:
    """The plan from ``point`` [3]; None where there is none, or none that a program has room for."""
    try:
        return guide.begin(_numbers(point))
    except FormulaError:
        return None


def plan_again(
    guides: Sequence[Guide], points: torch.Tensor, mission: torch.Tensor, memory: Mapping[str, torch.Tensor],
    known: torch.Tensor,
) -> None:
    """Plan the rest in the worlds in which a leg was hit since ``known`` [N] legs were: their programs and memory, in
    place."""
    count = (memory["hit"] > 0).sum(-1).float()
    for k in (count > known).nonzero()[:, 0].tolist():
        try:
            found = guides[k].again(_numbers(points[k].tolist()), int(memory["tick"][k]), memory["hit"][k].tolist())
        except FormulaError:  # no room for the rest: what is followed stays
            found = None
        if found is not None:
            mission[k] = torch.from_numpy(found.program)
            memory["hit"][k] = 0.0
            memory["held"][k] = 0.0
            count[k] = 0.0
    known.copy_(count)


def _numbers(point: Sequence[float]) -> Numbers:
    x, y, z = point
    return float(x), float(y), float(z)
