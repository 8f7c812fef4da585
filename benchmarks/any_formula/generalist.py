"""A run of ``algo=generalist`` as a method: the robot's planner makes a program of each formula, the graph flies it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula.flights import Mission, Signals
from temporeal_benchmarks.any_formula.graphs import AT_ONCE, Graph, Told


def method(folder: Path, world: World) -> Graph:
    """The policy in ``folder``. Each mission is planned once, at its start, by the judge that was learned with it."""
    from temporeal.policies.algos.generalist import load_judge, load_policy
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
        from temporeal.sim.rewards.follower import MISSION

        points = signals[self.world.signal].tolist()
        planned = [self.planned(mission, point) for mission, point in zip(missions, points)]
        programs = torch.from_numpy(np.stack([program for program, _ in planned]))
        return Told({MISSION: programs}, torch.tensor([chance for _, chance in planned]))

    def planned(self, mission: Mission, point: Sequence[float]) -> tuple[Any, float]:
        """The program [SIZE] of one mission from ``point`` [3], and the forecast: nothing to do and 0 where the planner
        finds no itinerary."""
        from temporeal.sim.rewards.follower import SIZE
        from temporeal.sim.stl.itineraries.planner import plan, reading, ways_of
        from temporeal.sim.stl.language.errors import FormulaError

        try:
            x, y, z = point
            best = plan(ways_of(mission.formula, self.world.dt), (x, y, z), self.travel, self.judge)
        except FormulaError:
            best = None
        if best is None:
            return np.zeros(SIZE, np.float32), 0.0
        return best.program, reading(best.chance, self.calibration)
