"""A run of ``algo=generalist`` as a method: the robot's planner makes a program of each formula, the graph flies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula.flights import COMMANDS, Mission, Pilot, Signals
from temporeal_benchmarks.any_formula.graphs import AT_ONCE

if TYPE_CHECKING:
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.stl.itineraries.planner import Judge
    from temporeal.sim.stl.itineraries.search import Travel


@dataclass(frozen=True)
class Programmed:
    """A graph that follows programs. Missions are planned at their start, and their rest again at hits and on the way,
    by the ``judge`` that was learned with it, whose chances ``calibration`` corrects."""

    graph: PolicyGraph
    world: World
    travel: Travel
    judge: Judge
    calibration: Mapping[str, float]
    name: str = "policy"
    gives: str = COMMANDS
    at_once: int = AT_ONCE
    identity: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """Its crew, and what that forecasts: 0 where there is no itinerary."""
        from temporeal.policies.training.generalist.flights import Crew, guided
        from temporeal.sim.stl.itineraries.planner import reading

        guides = [guided(mission.formula, self.world, self.travel, self.judge) for mission in missions]
        crew = Crew(self.graph, guides, signals[self.world.signal].tolist(), self.world.signal)
        return Pilot(crew.act, torch.tensor([reading(chance, self.calibration) for chance in crew.chances]))


def method(folder: Path, world: World) -> Programmed:
    """The policy in ``folder``."""
    from temporeal.policies.any_formula.generalist import load_judge, load_policy
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.runs.run_folders import load_run
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task_parts.formula_bank import travel_of
    from temporeal.sim.task_parts.systems import system_of

    task: Any = make_task(load_run(folder))
    actor, normalizer, _ = load_policy(folder)
    judge, calibration = load_judge(folder, task)
    graph = PolicyGraph(task.observe, normalizer, actor, task.act).eval()
    return Programmed(graph, world, travel_of(world, system_of(world.system)), judge.of_arrays, calibration)
