"""Off-policy estimates of P(satisfied) against the truth: eight policies on each of three tasks, resumable.

    python -m temporeal_benchmarks.data.ope_study outputs/ope_study                          all that is missing
    python -m temporeal_benchmarks.data.ope_study outputs/ope_study --tasks reach --estimators model,fqe

One core. Policies are learned on the set that judges them, with four budgets by two methods, so that there are bad and
good ones. Each trial is a policy: its share of fresh episodes that satisfy the formula, the share of the data's states
where it leaves the data, and every estimator's value and interval from the set. Fitted Q evaluation learns anew for
each policy, which takes longer than all the rest: it is asked where ``--estimators`` says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.gate import gate, share_of
from temporeal_benchmarks.data import offline_study, studies
from temporeal_benchmarks.data.sets import made
from temporeal_benchmarks.rows import Row

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.evaluate.ope.evaluator import Evaluator, Policy

SETS = {"reach": "reach-mixed", "lift": "lift-medium", "push": "push-medium"}
METHODS = (offline_study.CLONE, "iql")
BUDGETS = (30, 125, 500, 2000)
SHARED = {"hidden": [256, 256], "learning_rate": 1e-3, "evaluate_updates": 0}
HISTORY = {**offline_study.HISTORY, "push": True}
JUDGED = 200  # fresh episodes that say the truth
ESTIMATORS = ("model",)
CONFIDENCE = 0.95
MEMBERS = 3  # of fitted Q evaluation
POLICIES = 8  # of a task whose rows are measured


@dataclass(frozen=True)
class Cell:
    """A policy: learned on ``task`` by ``method`` with ``updates``."""

    task: str
    method: str
    updates: int

    @property
    def name(self) -> str:
        """Of its trial."""
        return f"{self.task}/{self.method}/{self.updates}"


def cells(tasks: Sequence[str]) -> Iterator[Cell]:
    """All policies."""
    for task in tasks:
        yield from (Cell(task, method, updates) for method in METHODS for updates in BUDGETS)


def compared(out: Path, cell: Cell, estimators: Sequence[str], evaluators: dict[str, Evaluator]) -> dict[str, Any]:
    """Learn the policy, find the truth, estimate it."""
    from temporeal.policies.data import memoryless
    from temporeal.policies.runs import environments, offline
    from temporeal.policies.runs.learners import algorithm

    algo, own = offline_study.METHODS[cell.method]
    folder = made(SETS[cell.task], out / "sets")
    settings = offline.settings_of([f"dataset={folder}", f"algo={algo}", "seed=1"])
    settings["algo"] = {**settings["algo"], **SHARED, **own, "updates": cell.updates,
                        "checkpoint_seconds": 1e9, "history": HISTORY[cell.task],
                        "report_updates": min(cell.updates, 500)}
    module, configuration = algorithm(settings)
    task = memoryless.shown(environments.make_task(settings), configuration.history)
    dataset = offline.open_dataset(folder)
    steps = offline.steps_of(dataset, task, configuration)
    with tempfile.TemporaryDirectory() as run:
        result = module.train(steps, configuration, out=Path(run), seed=1)
    judge = offline.evaluation_of(module, dataset, settings, task)
    assert judge is not None  # methods of the study have plain networks
    if cell.task not in evaluators:
        evaluators[cell.task] = evaluator_of(dataset, steps, task)

    def policy(obs: Tensor) -> Tensor:
        actions: Tensor = result.actor(result.normalizer(obs.flatten(0, -2)))
        return actions.detach().clamp(-1.0, 1.0).unflatten(0, obs.shape[:-1])

    return {"truth": judge(result.actor, result.normalizer, JUDGED)["success"],
            **estimated(evaluators[cell.task], policy, estimators)}


def evaluator_of(dataset: Any, steps: Any, task: Any) -> Evaluator:
    """Of a set, with the task's formula."""
    from temporeal.policies.data.curation.robustness import table_of
    from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig
    from temporeal.policies.evaluate.ope.fitted import FQEConfig
    from temporeal.policies.evaluate.ope.formula_on_steps import on_steps
    from temporeal.policies.evaluate.ope.judged_data import satisfied
    from temporeal.sim.stl.language.conventions import RTAMT

    formula = on_steps(task.formula, RTAMT, table_of(dataset), steps)
    return Evaluator(satisfied(steps), OPEConfig(least=0.0, most=1.0, fqe=FQEConfig(members=MEMBERS)), formula=formula)


def estimated(evaluator: Evaluator, policy: Policy, estimators: Sequence[str]) -> dict[str, Any]:
    """What a trial says of a policy beside the truth."""
    found, gated = {}, {}
    for name in estimators:
        estimate = evaluator.estimate(policy, name)
        found[name] = [estimate.value, *estimate.interval(CONFIDENCE), estimate.effective]
        gated[name] = [estimate.below, estimate.above, *estimate.draws.tolist()]
    return {"data": evaluator.of_the_data().value, "outside": evaluator.outside(policy), "estimates": found,
            "gated": gated}


def study(out: Path, tasks: Sequence[str] = tuple(SETS), estimators: Sequence[str] = ESTIMATORS) -> None:
    """Judge what is missing."""
    evaluators: dict[str, Evaluator] = {}
    for cell in cells(tasks):
        if cell.name not in studies.read(out):
            print(studies.add(out, cell.name, compared(out, cell, estimators, evaluators)), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """Rank correlation, coverage, error and SharpeRatio@4 and gated updates by task and estimator."""
    return [row for task in SETS for row in of_task(task, [t for n, t in trials.items() if n.startswith(f"{task}/")])]


def of_task(task: str, mine: Sequence[studies.Trial]) -> list[Row]:
    """Rows of one task."""
    if len(mine) < POLICIES:
        return [studies.missing(f"data.ope.{task}.model.rank_correlation", "1", "reported", "ope-study",
                                f"{len(mine)} of {POLICIES} policies")]
    names = dict.fromkeys(name for trial in mine for name in trial["estimates"])
    return [row for name in names
            for row in of_estimator(f"data.ope.{task}.{name}", [t for t in mine if name in t["estimates"]], name)]


def of_estimator(key: str, mine: Sequence[studies.Trial], name: str) -> list[Row]:
    """Rows of one estimator; the truth is itself a share of episodes, and two of its deviations belong to the
    interval."""
    from temporeal.policies.evaluate.ope.ranking import rank_correlation, sharpe_ratio_at_k

    truth = np.array([trial["truth"] for trial in mine])
    value, low, high = np.array([trial["estimates"][name][:3] for trial in mine]).T
    slack = 2.0 * np.sqrt(np.maximum(truth * (1 - truth), 1.0 / JUDGED) / JUDGED)
    width = np.minimum(high, 1.0) - np.maximum(low, 0.0)
    policies = f"{len(mine)} policies"
    return [Row(f"{key}.rank_correlation", rank_correlation(value, truth), "1", peer=policies),
            Row(f"{key}.coverage", float(((low - slack <= truth) & (truth <= high + slack)).mean()), "1",
                peer=f"{policies}; stated {CONFIDENCE}"),
            Row(f"{key}.width", float(width.mean()), "1", peer="of the intervals, mean"),
            Row(f"{key}.error", float(np.abs(value - truth).mean()), "1", peer=policies),
            Row(f"{key}.overestimated", float((value - truth).max()), "1", peer="the worst one"),
            Row(f"{key}.sharpe_ratio_at_4", sharpe_ratio_at_k(value, truth, mine[0]["data"], 4), "1", peer=policies),
            *([gate_row(key, mine, name)] if all("gated" in trial for trial in mine) else [])]


def gate_row(key: str, mine: Sequence[studies.Trial], name: str) -> Row:
    """Each policy as the successor of each other: how many that are worse the gate lets through."""
    pairs = [(a, b) for a in mine for b in mine if a is not b]
    confidence = share_of(CONFIDENCE, len(pairs))
    accepted = [a["truth"] - b["truth"] for a, b in pairs
                if gate(kept_estimate(a, name), kept_estimate(b, name), confidence).accepted]
    better = sum(a["truth"] > b["truth"] for a, b in pairs)
    return Row(f"{key}.gate.accepted_and_worse", float(sum(change < 0 for change in accepted)), "1",
               peer=f"{len(accepted)} of {len(pairs)} updates accepted, {better} are better; confidence {CONFIDENCE} "
               "of all together")


def kept_estimate(trial: studies.Trial, name: str) -> Estimate:
    """The estimate of a trial, as the gate reads it."""
    below, above, *draws = trial["gated"][name]
    value, effective = trial["estimates"][name][0], trial["estimates"][name][3]
    return Estimate(value, np.full(len(draws), value), np.array(draws), effective, True, below, above)


def main(argv: Sequence[str] | None = None) -> int:
    """Judge what is missing and print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", default=",".join(SETS))
    parser.add_argument("--estimators", default=",".join(ESTIMATORS))
    options = parser.parse_args(argv)
    study(options.out, options.tasks.split(","), options.estimators.split(","))
    for row in judged(studies.read(options.out)):
        print(f"{row.name} {row.value} ({row.peer})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
