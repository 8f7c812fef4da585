"""A study of planners on held-out formulas: gradient planning and CEM, with the time that a plan takes on one core.

    python -m temporeal_benchmarks.any_formula.planning_study outputs/try --robots linear --count 20 --only gradient

Times are of the processor, a formula by itself: ``plan`` from its text to the first command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from temporeal.sim.stl.distribution.settings import world
from temporeal_benchmarks.any_formula import sets
from temporeal_benchmarks.any_formula.planners import OF_ROBOT, PLANNERS, planner
from temporeal_benchmarks.any_formula.trials import flights_of, measure, share_row
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row

PART, CHUNK = "planning-study", 10
FAMILIES = ("validation", "unseen")
ROBOTS = ("linear", "unicycle")
"""Those of the study. Quadrotor and arm, which plan again on the way where a plan is not robust, are planned for where
they are named: for the arm a plan that is not found takes minutes. The ant has no model."""
COUNT: Mapping[str, int] = {"linear": 100, "unicycle": 100, "quadrotor": 20, "franka": 5}
"""The first of each family."""


def study(out: Path, robots: Sequence[str] = ROBOTS, count: int | None = None, only: str = "") -> None:
    """Make the trials that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for robot in robots:
        of = world(robot)
        for family in FAMILIES:
            formulas = sets.held_out(robot, family, count or COUNT[robot], out.parent / "sets")
            for name in PLANNERS:
                if only in f"{name}/{robot}/{family}":
                    method = planner(name, of)
                    measure(out, f"{name}/{robot}/{family}", method, formulas, of, CHUNK, first=method.shortest())


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """Share and time of each planner, without a target."""
    rows = list[Row]()
    for robot in OF_ROBOT:
        for family in FAMILIES:
            for name in PLANNERS:
                rows += rows_of(f"any_formula.{robot}.{family}.{name}", name, robot,
                                trials, f"{name}/{robot}/{family}")
    return rows


def rows_of(row: str, name: str, robot: str, trials: Mapping[str, studies.Trial], trial: str) -> list[Row]:
    """The share that is satisfied, and the median time of a plan; or what is missing."""
    flights = flights_of(trials, trial)
    if not flights:
        return [studies.missing(row, "1", None, PART, "not run", "any-formula")]
    every = OF_ROBOT[robot][1]
    how = f"planned again each {every} control steps" if every else "planned once"
    how = f"{how}, {planner(name, world(robot)).budget}"
    plans = [flight.decision_s for flight in flights if flight.decision_s is not None]
    whole = [(flight.decision_s or 0.0) + (flight.later_s or 0.0) for flight in flights]
    low, middle, high = np.quantile(plans, (0.05, 0.5, 0.95))
    return [share_row(row, flights, f"{how}; one rollout each of the first {len(flights)} formulas"),
            Row(f"{row}.plan", float(middle), "s", peer=f"median of the first plan, 5 % {low:.2g} s, 95 % {high:.2g} "
                f"s, processor time of one core; of all plans of a mission {np.median(whole):.2g} s")]


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--robots", nargs="+", choices=list(COUNT), default=list(ROBOTS))
    parser.add_argument("--count", type=int, default=None, help="formulas of each family")
    parser.add_argument("--only", default="", help="part of the names of the trials to make: gradient/linear/unseen")
    given = parser.parse_args(argv)
    study(given.out / PART, given.robots, given.count, given.only)
    for row in judged(studies.read(given.out / PART)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
