"""A run of ``algo=generalist`` as a method: the robot's planner makes a program of each formula, the graph flies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula.flights import Mission, Signals
from temporeal_benchmarks.any_formula.graphs import AT_ONCE, Graph, Told

if TYPE_CHECKING:
    from temporeal.sim.stl.itineraries.planner import Guide


def method(folder: Path, world: World) -> Graph:
    """The policy in ``folder``. Missions are planned at their start, and their rest again when a leg is hit, by the
    judge that was learned with it."""
    from temporeal.policies.any_formula.generalist import load_judge, load_policy
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.runs.run_folders import load_run
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task_parts.formula_bank import travel_of
    from temporeal.sim.task_parts.systems import system_of

    task: Any = make_task(load_run(folder))
    actor, normalizer, _ = load_policy(folder)
    judge, calibration = load_judge(folder, task)
    planner = Planner(world, travel_of(world, system_of(world.system)), judge.of_arrays, calibration)
    graph = PolicyGraph(task.observe, normalizer, actor, task.act).eval()
    return Graph(graph, "policy", at_once=AT_ONCE, tell=planner.tell)


class Planner:
    """Programs of missions, and how likely they are to be satisfied."""

    def __init__(self, world: World, travel: Any, judge: Any, calibration: Any) -> None:
        self.world, self.travel, self.judge, self.calibration = world, travel, judge, calibration

    def tell(self, missions: Sequence[Mission], signals: Signals) -> Told:
        """The programs [N, SIZE] as the signal that the graph reads, and the forecasts [N]."""
        from temporeal.policies.training.generalist.flights import guided, plan_again
        from temporeal.sim.rewards.follower import MISSION

        points = signals[self.world.signal].tolist()
        guides = [guided(mission.formula, self.world, self.travel, self.judge) for mission in missions]
        planned = [self.planned(guide, point) for guide, point in zip(guides, points)]
        programs = torch.from_numpy(np.stack([program for program, _ in planned]))
        known = torch.zeros(len(missions))

        def again(seen: Signals, memory: Mapping[str, torch.Tensor]) -> None:
            plan_again(guides, seen[self.world.signal], programs, memory, known)

        return Told({MISSION: programs}, torch.tensor([chance for _, chance in planned]), again)

    def planned(self, guide: Guide, point: Sequence[float]) -> tuple[Any, float]:
        """The program [SIZE] from ``point`` [3], and the forecast: nothing to do and 0 where there is no itinerary."""
        from temporeal.policies.training.generalist.flights import begun
        from temporeal.sim.rewards.follower import SIZE
        from temporeal.sim.stl.itineraries.planner import reading

        best = begun(guide, point)
        if best is None:
            return np.zeros(SIZE, np.float32), 0.0
        return best.program, reading(best.chance, self.calibration)
