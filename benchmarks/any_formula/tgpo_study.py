"""A study of TGPO on single held-out formulas: one training each, at its training time, then one rollout.

    python -m temporeal_benchmarks.any_formula.tgpo_study outputs/try --robots linear --count 1 --seconds 30

Half of the formulas are the first of ``validation``, half the first of ``unseen``. A training takes as long as in
``temporeal bench stl-tasks``: 150 s of a core in the plane, 720 s for the quadrotor, 360 s for the arm, 1200 s for the
ant, hence 14 core-hours for twenty of each. A formula that TGPO refuses counts as not satisfied.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.evaluate.suite.catalog import SYSTEMS
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.distribution.drawing import Drawn, task_settings
from temporeal.sim.stl.distribution.settings import World, world
from temporeal_benchmarks.any_formula import sets
from temporeal_benchmarks.any_formula.flights import Flight, fly
from temporeal_benchmarks.any_formula.graphs import Graph
from temporeal_benchmarks.any_formula.targets import TRAINED
from temporeal_benchmarks.any_formula.trials import packed, said, share
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row

PART = "tgpo-study"
FAMILIES = ("validation", "unseen")
SEED = 1


def study(
    out: Path, robots: Sequence[str] = sets.ROBOTS, count: int = TRAINED, seconds: float | None = None
) -> None:
    """Make the trials that are missing. ``count``: formulas of each robot; ``seconds``: of each training, else those of
    the suite."""
    import torch

    torch.set_num_threads(1)
    for robot in robots:
        of, budget = world(robot), seconds or SYSTEMS[robot].budget_s
        for place, family in enumerate(FAMILIES):
            mine = (count + 1 - place) // len(FAMILIES)  # of an odd number the first family has one more
            for found in sets.held_out(robot, family, mine, out.parent / "sets") if mine else []:
                name, identity = f"{robot}/{family}/{found.index:04d}", sets.digest([found])
                there = studies.read(out).get(name)
                if there is None or (there["formula"], there["budget_s"]) != (identity, budget):
                    added = studies.add(out, name, {"formula": identity, "budget_s": budget,
                                                    **trial(found, of, out / "runs" / name, budget)})
                    print(name, added["outcome"], added["flight"], flush=True)


def trial(found: Drawn, of: World, run: Path, budget_s: float) -> dict[str, Any]:
    """Train on one formula and fly it."""
    import time

    began = time.process_time()
    try:
        graph = trained(found, of, run, budget_s)
    except (BadInput, ValueError) as error:
        return {"outcome": f"refused: {error}", "flight": None, "cpu_s": time.process_time() - began}
    cpu_s = time.process_time() - began
    (flight,) = fly(Graph(graph, "tgpo"), [found], of)
    return {"outcome": "satisfied" if flight.satisfied else "not satisfied", "flight": packed(flight), "cpu_s": cpu_s}


def trained(found: Drawn, of: World, run: Path, budget_s: float) -> Any:
    """The policy of one formula as its run, which goes on where it was stopped, deploys it."""
    from temporeal.policies.runs import environments, training
    from temporeal.policies.runs.tuning_runs.graphs import load_graph
    from temporeal_benchmarks.vla.rl_study import begun

    settings, there = settings_of(found, of, run, budget_s), begun(run)
    training.train({**settings, "resume": there}, overwrite=not there, quiet=True)
    return load_graph(settings, run, environments.make_task(settings))


def settings_of(found: Drawn, of: World, run: Path, budget_s: float) -> dict[str, Any]:
    """Those of TGPO in ``temporeal bench stl-tasks``, with the drawn formula and its start."""
    from temporeal.policies.runs.settings.compose import compose

    words = (*SYSTEMS[of.system].words, "algo=tgpo", "threads=1", "algo.threads=1", "algo.clock=cpu",
             f"algo.max_seconds={budget_s}", f"algo.total_steps={10**12}", f"task=stl/{of.system}_reach",
             f"seed={SEED}", f"out={run}")
    settings = compose(list(words))
    return {**settings, "task": {**settings["task"], "settings": task_settings(found, of)}}


def outcomes(trials: Mapping[str, studies.Trial], robot: str) -> list[list[Any]]:
    """Of each formula that TGPO was trained on: family, index, whether it was satisfied."""
    found = []
    for name, each in sorted(trials.items()):
        of, family, index = name.split("/")
        if of == robot:
            found.append([family, int(index), each["outcome"] == "satisfied"])
    return found


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The share of each robot, without a target."""
    return [row_of(robot, trials) for robot in sets.ROBOTS]


def row_of(robot: str, trials: Mapping[str, studies.Trial]) -> Row:
    """The row of one robot."""
    name, own = f"any_formula.{robot}.tgpo", [t for key, t in sorted(trials.items()) if key.startswith(f"{robot}/")]
    if not own:
        return studies.missing(name, "1", None, PART, "not run", "any-formula")
    flights = [Flight(0, float("-inf")) if t["flight"] is None else Flight(*t["flight"]) for t in own]
    found, refused = share(flights), sum(t["flight"] is None for t in own)
    return Row(name, found.estimate, "1", peer=f"{said(found)}, each trained for {own[0]['budget_s']:g} s of a core"
               f"{f', {refused} refused' if refused else ''}; of {TRAINED} asked for")


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--robots", nargs="+", choices=sets.ROBOTS, default=list(sets.ROBOTS))
    parser.add_argument("--count", type=int, default=TRAINED, help="formulas of each robot (%(default)s)")
    parser.add_argument("--seconds", type=float, default=None, help="processor time of each training")
    given = parser.parse_args(argv)
    study(given.out / PART, given.robots, given.count, given.seconds)
    for row in judged(studies.read(given.out / PART)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
