"""The forecast: P(satisfied) of a formula before it is flown, calibrated on formulas that were not trained on.

The judge's chance of an itinerary takes its legs as independent. How often formulas of the validation family with such
chances are satisfied, by the exact robustness, corrects it: a logistic function of its log-odds (Platt, 1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.policies.training.generalist.flights import Flight, Planner, fly, guided
from temporeal.policies.training.generalist.judge import Judge
from temporeal.policies.training.generalist.worlds import Make
from temporeal.policies.training.ppo_checkpoint import read_last
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rewards.follower import Follower
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import World, family
from temporeal.sim.stl.itineraries.guide import Guide
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Task
from temporeal.sim.task_parts.formula_bank import travel_of
from temporeal.sim.task_parts.systems import system_of

FAMILY, SEED = "validation", 1_000_003
"""Of formulas that calibrate: no seed of an evaluation is near."""


def planner(world: World, judge: Judge | None) -> Planner:
    """Plans drawn formulas as the robot does."""
    travel = travel_of(world, system_of(world.system))

    def guide(found: Drawn) -> Guide:
        formula = parse(found.formula, loaded(world.robot).signals, found.constants)
        return guided(formula, world, travel, None if judge is None else judge.of_arrays)

    return guide


def drawn(world: World, count: int, seed: int = SEED, name: str = FAMILY) -> list[Drawn]:
    """Formulas of a family."""
    return [draw(world, family(name), seed, index) for index in range(count)]


def calibrated(make: Make, task: Task, graph: PolicyGraph, world: World, judge: Judge, count: int) -> tuple[
        dict[str, float], list[Flight]]:
    """The correction of the judge's chances, from ``count`` flights, and these. What has no chance is not corrected.

    ``make``: worlds under the conditions that the forecast is to hold in.
    """
    flights = fly(make, task, graph, drawn(world, count), world, planner(world, judge))
    known = [each for each in flights if each.chance > 0]
    return platt([each.chance for each in known], [each.robustness > 0 for each in known]), flights


def in_conditions(run: Path) -> bool:
    """Whether the forecast of ``run`` was calibrated under the randomization of its training, which drew something."""
    return bool((read_last(run)["companion"] or {}).get("randomized", False))


def platt(chances: Sequence[float], satisfied: Sequence[bool], steps: int = 50) -> dict[str, float]:
    """Slope and offset of the log-odds by maximum likelihood, with Platt's targets (shrunk by Laplace's rule) and at
    least 0 for the slope, by Newton's method; a normal prior about no correction keeps what nothing tells finite."""
    p = np.clip(np.asarray(chances, float), 1e-6, 1 - 1e-6)
    x = np.stack([np.log(p / (1 - p)), np.ones_like(p)], 1)
    yes = float(np.sum(satisfied))
    no = len(p) - yes
    y = np.where(np.asarray(satisfied), (yes + 1.0) / (yes + 2.0), 1.0 / (no + 2.0))
    found = np.array([1.0, 0.0])
    for _ in range(steps):
        q = 1.0 / (1.0 + np.exp(-np.clip(x @ found, -50.0, 50.0)))
        slope = x.T @ (y - q) - (found - [1.0, 0.0])
        curve = (x * (q * (1 - q))[:, None]).T @ x + np.eye(2)
        found = found + np.clip(np.linalg.solve(curve, slope), -1.0, 1.0)
    return {"slope": float(max(found[0], 0.0)), "offset": float(found[1])}


def calibration_error(forecasts: Any, satisfied: Any, bins: int = 10) -> float:
    """Of ``forecasts`` [N] and whether each came true [N]: the mean over equally wide bins, by how many are in each, of
    |mean forecast - share satisfied| (Guo et al., ICML 2017, arXiv 1706.04599, eq. 3)."""
    said, done = np.asarray(forecasts, float), np.asarray(satisfied, float)
    off = np.bincount(np.minimum((said * bins).astype(int), bins - 1), said - done, bins)
    return float(np.abs(off).sum() / len(said))


def judge_of(task: Task) -> Judge:
    """A judge for the task's observation, with new weights."""
    observe: Any = task.observe
    return Judge(Follower(observe.follower.slack, observe.follower.margin), observe.unit)


def deterministic(actor: Any, normalizer: Any) -> Any:
    """The deterministic action of observations."""
    @torch.no_grad()
    def act(obs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = actor(normalizer(obs))
        return found.clamp(-1.0, 1.0)

    return act
