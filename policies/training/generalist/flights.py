"""Closed-loop flights of formulas, one in each world, by a policy that reads them as data.

The loop is the robot's: a planner makes a program of the formula, the policy's graph turns signals into commands, the
simulator moves. Policy and planner are given what is measured; each flight is judged by the exact robustness of the
whole formula at time 0 on the true signals. N worlds, T control steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.training.generalist.worlds import FlownEnv, Make, Signals, arena
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rewards.follower import MISSION
from temporeal.sim.stl.distribution.drawing import Drawn, start_settings
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.stl.itineraries.guide import Guide
from temporeal.sim.stl.itineraries.planner import Judge, Plan, ways_of
from temporeal.sim.stl.itineraries.program import SIZE
from temporeal.sim.stl.itineraries.regions import Numbers
from temporeal.sim.stl.itineraries.search import Travel
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import Task
from temporeal.sim.task_parts.systems import system_of

Planner = Callable[[Drawn], Guide]
"""Who plans a formula."""


@dataclass(frozen=True)
class Flight:
    """One flight: its exact robustness at time 0, -inf where a signal was not finite, and the chance that the planner
    gave it."""

    robustness: float
    chance: float


def start_states(formulas: Sequence[Drawn], world: World) -> dict[str, torch.Tensor]:
    """The states at the drawn starts, [N, ...] by name."""
    system = system_of(world.system)
    still = lambda _, count: torch.full((1, count), 0.5)  # noqa: E731
    states = [system.initial(still, start_settings(world, (*each.place, 0.0)[:3], each.heading)) for each in formulas]
    return {name: torch.cat([state[name] for state in states]) for name in states[0] if name != MISSION}


@torch.no_grad()
def fly(
    make: Make, task: Task, graph: PolicyGraph, formulas: Sequence[Drawn], world: World, plan: Planner, *,
    again: bool = True, seed: int = 0,
) -> list[Flight]:
    """Fly each of ``formulas`` once, to its own horizon; ``again``: planning again on the way.

    ``make``: worlds of the robot of ``task``, whose conditions with ``seed`` those of the flights are.
    """
    names, longest = [name for name in graph.signals if name != MISSION], max(each.horizon for each in formulas)
    place = arena(task, names, longest + 1, start_states(formulas, world))
    env: FlownEnv = make(place, len(formulas), seed)
    observe: Any = place.observe
    seen = observe.read(env.reset().actor)
    crew = Crew(graph, [plan(each) for each in formulas], starts(env, formulas, world, seen), world.signal, again=again)
    nothing = torch.zeros(len(formulas), place.act.action_dim)

    def step(_: int) -> Signals:
        nonlocal seen
        env.command_override = crew.act(seen)
        found = env.step(nothing)
        seen = observe.read(found.obs.actor)
        return found.info

    parsed = [parse(each.formula, loaded(world.robot).signals, each.constants) for each in formulas]
    whole, finite = recorded(env, step, sorted({name for each in parsed for name in signals_in(each)}), longest)
    return [Flight(judged(formula, {name: x[:, k] for name, x in whole.items()}, each.horizon, world.dt)
                   if finite[k] else -inf, crew.chances[k]) for k, (formula, each) in enumerate(zip(parsed, formulas))]


def starts(env: FlownEnv, formulas: Sequence[Drawn], world: World, seen: Signals) -> list[list[float]]:
    """Where each robot is measured to be [N][3]: the place as it was drawn, which float32 signals round, and by how
    much the measured one is off the true one."""
    off = (seen[world.signal] - env.true_signals()[world.signal]).tolist()
    return [[a + b for a, b in zip((*each.place, 0.0), error)] for each, error in zip(formulas, off)]


def recorded(
    env: Any, step: Callable[[int], Signals], names: Sequence[str], steps: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The true signals ``names`` [T+1, N, ...] of ``steps`` control steps, and whether [N] all was finite.

    ``step``: makes control step k; what the environment ``env`` says of it.
    """
    trace = {name: [host(env.true_signals()[name])] for name in names}
    finite = np.ones(env.num_worlds, bool)
    for k in range(steps):
        info = step(k)
        finite &= host(info["finite"])
        for name, values in trace.items():
            values.append(host(info["signals"][name]))
    return {name: np.stack(values) for name, values in trace.items()}, finite


def judged(formula: Formula, signals: Mapping[str, np.ndarray], steps: int, dt: float) -> float:
    """The exact robustness at time 0 on ``signals`` [T+1, ...], of which those up to ``steps``, the horizon, count."""
    read = {name: np.asarray(signals[name][: steps + 1], np.float64) for name in signals_in(formula)}
    if any(len(values) <= steps for values in read.values()):
        raise ValueError(f"a formula looks {steps} samples ahead, and was not flown so far")
    value = float(robustness(formula, read, dt)[0])
    return value if isfinite(value) else -inf


def host(value: Tensor) -> np.ndarray:
    """A copy on the host."""
    return np.array(value.detach().cpu().numpy())


class Crew:
    """Who flies N formulas: the programs of their guides, followed by the policy's graph.

    Attributes:
        chances: of the first plans [N]; 0 where there is none, and nothing is followed.
    """

    def __init__(
        self, graph: PolicyGraph, guides: Sequence[Guide], points: Sequence[Sequence[float]], signal: str, *,
        again: bool = True,
    ) -> None:
        self.graph, self.guides, self.signal, self.again = graph, guides, signal, again
        planned = [begun(guide, point) for guide, point in zip(guides, points)]
        self.chances = [0.0 if each is None else each.chance for each in planned]
        self.programs = torch.from_numpy(np.stack([
            np.zeros(SIZE, np.float32) if each is None else each.program for each in planned]))
        self.memory = graph.initial_memory(len(guides))

    @torch.no_grad()
    def act(self, seen: Signals) -> Tensor:
        """The command [N, U] of the measured signals [N, ...] of now; what was hit is planned on from there."""
        if self.again:
            plan_again(self.guides, seen[self.signal], self.programs, self.memory)
        given = {**seen, MISSION: self.programs}
        commands, self.memory = self.graph({name: given[name] for name in self.graph.signals}, self.memory)
        command: Tensor = commands[self.graph.act.command]
        return command


def guided(formula: Formula, world: World, travel: Travel, judge: Judge | None) -> Guide:
    """Who plans ``formula`` in ``world``; one without ways, whose flight fails, where it is none that can be flown."""
    try:
        ways = ways_of(formula, world.dt, world.signal)
    except FormulaError:
        ways = ()
    return Guide(ways, travel, judge, world.dt, world.room)


def begun(guide: Guide, point: Sequence[float]) -> Plan | None:
    """The plan from ``point`` [3]; None where there is none, or none that a program has room for."""
    try:
        return guide.begin(_numbers(point))
    except FormulaError:
        return None


def plan_again(
    guides: Sequence[Guide], points: torch.Tensor, mission: torch.Tensor, memory: Mapping[str, torch.Tensor],
) -> None:
    """Plan the rest in the worlds in which a leg was hit or which are behind: programs and memory, in place."""
    ticks, hits, held = (memory[name].tolist() for name in ("tick", "hit", "held"))
    for k, point in enumerate(points.tolist()):
        found = guides[k].step(_numbers(point), int(ticks[k]), hits[k], held[k])
        if found is not None:
            mission[k] = torch.from_numpy(found.program)
            memory["hit"][k] = 0.0
            memory["held"][k] = 0.0


def _numbers(point: Sequence[float]) -> Numbers:
    x, y, z = point
    return float(x), float(y), float(z)
