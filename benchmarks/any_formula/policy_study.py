"""A study of one policy per robot for any formula: three seeds of each on held-out formulas, one rollout each.

    python -m temporeal_benchmarks.any_formula.policy_study outputs/try --robots linear --seeds 1 --count 50 --run RUN

Policies are the runs ``runs/<robot>/<seed>`` in the folder of the study, and are trained where they are not there and
:data:`WORDS` says how. A hundred formulas are also flown each by itself, for the time of decisions. The formulas that
TGPO was trained on one by one are compared where ``tgpo-study`` lies beside this study.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporeal.sim.stl.distribution.settings import world
from temporeal_benchmarks.any_formula import policy_rows, sets
from temporeal_benchmarks.any_formula.policies import Alone, method_of
from temporeal_benchmarks.any_formula.policy_rows import TIMED
from temporeal_benchmarks.any_formula.targets import SEEDS
from temporeal_benchmarks.any_formula.trials import measure
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row

PART, CHUNK, FEW = "policy-study", 250, 10
SECONDS = {"linear": 1500, "unicycle": 1200, "quadrotor": 3600, "franka": 3600}
"""Of a core, for the training of each robot."""
FASTER = ("algo.gamma=0.997", "algo.gae_lambda=0.97", "algo.truncate_after=150")
"""Of robots that act at 25 Hz and more: the same times in more steps."""
OWN: Mapping[str, tuple[str, ...]] = {"quadrotor": FASTER, "franka": FASTER, "ant": FASTER}
WORDS: Mapping[str, tuple[str, ...]] = {robot: (
    f"task=any_formula/{robot}", "algo=generalist", "processes=1", "algo.threads=1", "algo.clock=cpu",
    "algo.total_steps=1000000000", f"algo.max_seconds={seconds}", *OWN.get(robot, ())) for robot, seconds in
    SECONDS.items()}
"""By robot, what ``temporeal train`` is told."""


def study(
    out: Path, robots: Sequence[str] = sets.ROBOTS, seeds: Sequence[int] = SEEDS, count: int | None = None,
    run: Path | None = None,
) -> None:
    """Make the trials that are missing. ``count``: formulas of each family at most; ``run``: in place of the seeds'."""
    import torch

    torch.set_num_threads(1)
    for seed in seeds:
        for robot in robots:
            folder = run or trained(out, robot, seed)
            if folder is None:
                print(f"no policy for {robot}, seed {seed}: none in {out / 'runs' / robot / str(seed)}", flush=True)
                continue
            fly_all(out, robot, seed, folder, count)
    compare(out, robots)


def trained(out: Path, robot: str, seed: int) -> Path | None:
    """The run of a policy, trained where it is not there; None where nobody knows how."""
    from temporeal.policies.training.ppo_checkpoint import read_last
    from temporeal_benchmarks.vla.rl_study import begun, timed

    folder, trial = out / "runs" / robot / str(seed), f"training/{robot}/{seed}"
    if robot not in WORDS:
        return folder if begun(folder) else None
    if trial not in studies.read(out):
        timed([*WORDS[robot], f"seed={seed}"], folder)
        # algo.clock=cpu: of all parts of a training that was resumed
        studies.add(out, trial, {"cpu_s": read_last(folder)["seconds"]})
    return folder


def fly_all(out: Path, robot: str, seed: int, folder: Path, count: int | None) -> None:
    """All families, and some formulas by themselves."""
    of = world(robot)
    method = method_of(folder, of)
    for family in sets.families_of(robot):
        whole = sets.COUNT[family]
        formulas = sets.held_out(robot, family, min(count or whole, whole), out.parent / "sets")
        measure(out, f"policy/{robot}/{family}/{seed}", method, formulas, of, CHUNK)
        if family == "validation":
            alone = Alone(method)
            measure(out, f"alone/{robot}/{seed}", alone, formulas[:TIMED], of, FEW, first=alone)


def compare(out: Path, robots: Sequence[str]) -> None:
    """Take over what became of TGPO on single formulas."""
    from temporeal_benchmarks.any_formula import tgpo_study

    for robot in robots:
        found = tgpo_study.outcomes(studies.read(out.parent / tgpo_study.PART), robot)
        trial = f"tgpo/{robot}"
        if found and studies.read(out).get(trial, {}).get("outcomes") != found:
            studies.add(out, trial, {"outcomes": found})


def fly_typed(out: Path) -> None:
    """Twenty typed missions of the quadrotor's first seed over the nodes, in real time, once."""
    from temporeal_benchmarks.any_formula import typed_missions

    trial, run = policy_rows.TYPED_TRIAL, out / "runs" / "quadrotor" / "1"
    if run.is_dir() and trial not in studies.read(out):
        studies.add(out, trial, typed_missions.of_run(run, out / "typed"))


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """A row for each target, and for each other family."""
    return policy_rows.rows_of(trials)


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--robots", nargs="+", choices=sets.ROBOTS, default=list(sets.ROBOTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--count", type=int, default=None, help="formulas of each family, at most")
    parser.add_argument("--run", type=Path, default=None, help="of one robot and seed: its policy")
    parser.add_argument("--typed", action="store_true", help="fly the typed missions over the nodes, too (real time)")
    given = parser.parse_args(argv)
    if given.run is not None and (len(given.robots), len(given.seeds)) != (1, 1):
        parser.error("--run is the policy of one robot and one seed: say --robots R --seeds N")
    study(given.out / PART, given.robots, given.seeds, given.count, given.run)
    if given.typed:
        fly_typed(given.out / PART)
    for row in judged(studies.read(given.out / PART)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
