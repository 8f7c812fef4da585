"""Off-policy estimates of P(satisfied) against the truth: eight policies on each of three tasks, resumable.

    python -m temporeal_benchmarks.data.ope_study outputs/ope_study                          all that is missing
    python -m temporeal_benchmarks.data.ope_study outputs/ope_study --tasks reach --largest 1000

One core. Policies are learned on the mixed set of a task, with four budgets by two methods, so that there are bad and
good ones. Each line of ``cells.jsonl`` is a policy: its share of fresh episodes that satisfy the formula, and every
estimator's value and interval from the set. A study that was stopped goes on with the cells that are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal_benchmarks.data import offline_study
from temporeal_benchmarks.rows import Row

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.evaluate.ope.evaluator import Evaluator

TASKS = ("reach", "lift", "mission")
QUALITY = "mixed"
METHODS = (offline_study.CLONE, "recap")
BUDGETS = (250, 1000, 4000, 16_000)
JUDGED = 400  # fresh episodes that say the truth
ESTIMATORS = ("fqe", "model", "wpdis", "wdr")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Cell:
    """A policy: learned on ``task`` by ``method`` with ``updates``."""

    task: str
    method: str
    updates: int

    @property
    def name(self) -> str:
        """Of its line."""
        return f"{self.task}/{self.method}/{self.updates}"


def cells(tasks: Sequence[str], largest: int) -> Iterator[Cell]:
    """All policies with at most ``largest`` updates."""
    for task in tasks:
        yield from (Cell(task, method, updates) for method in METHODS for updates in BUDGETS if updates <= largest)


def judged(out: Path, cell: Cell, evaluators: dict[str, Evaluator]) -> dict[str, Any]:
    """Learn the policy, find the truth, estimate it."""
    from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig
    from temporeal.policies.evaluate.ope.judged_data import satisfied
    from temporeal.policies.runs import environments, offline
    from temporeal.policies.runs.learners import algorithm

    algo, own = offline_study.METHODS[cell.method]
    folder = offline_study.dataset_of(out, cell.task, QUALITY)
    settings = offline.settings_of([f"dataset={folder}", f"algo={algo}", "seed=1"])
    settings["algo"] = {**settings["algo"], **offline_study.SHARED, **own, "updates": cell.updates,
                        "checkpoint_seconds": 1e9}
    module, configuration = algorithm(settings)
    task = environments.make_task(settings)
    dataset = offline.open_dataset(folder)
    steps = offline.steps_of(dataset, task, configuration)
    with tempfile.TemporaryDirectory() as run:
        result = module.train(steps, configuration, out=Path(run), seed=1)
    evaluate = offline.evaluation_of(module, dataset, settings, task)
    assert evaluate is not None  # methods of the study have plain networks
    truth = evaluate(result.actor, result.normalizer, JUDGED)["success"]
    if cell.task not in evaluators:
        evaluators[cell.task] = Evaluator(satisfied(steps), OPEConfig(least=0.0, most=1.0))
    evaluator, found = evaluators[cell.task], dict[str, list[float]]()

    def policy(obs: Tensor) -> Tensor:
        return result.actor(result.normalizer(obs.flatten(0, -2))).clamp(-1.0, 1.0).unflatten(0, obs.shape[:-1])

    for name in ESTIMATORS:
        estimate = evaluator.estimate(policy, name)
        found[name] = [estimate.value, *estimate.interval(CONFIDENCE), estimate.effective]
    return {"cell": cell.name, "truth": truth, "data": evaluator.of_the_data().value, "estimates": found}


def study(out: Path, tasks: Sequence[str] = TASKS, largest: int = BUDGETS[-1]) -> None:
    """Judge what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    evaluators: dict[str, Evaluator] = {}
    there = offline_study.read(out)
    for cell in cells(tasks, largest):
        if cell.name not in there:
            line = json.dumps(judged(out, cell, evaluators))
            with (out / "cells.jsonl").open("a") as file:
                file.write(line + "\n")
            print(line, flush=True)


def rows_of(out: Path) -> list[Row]:
    """Rank correlation, coverage, error and SharpeRatio@4 by task and estimator, of what is there."""
    found, out_rows = list(offline_study.read(out).values()), list[Row]()
    for task in TASKS:
        mine = [cell for cell in found if cell["cell"].startswith(f"{task}/")]
        if len(mine) > 2:
            for name in ESTIMATORS:
                out_rows += _of_estimator(f"ope.{task}.{name}", mine, name)
    return out_rows


def _of_estimator(key: str, mine: Sequence[dict[str, Any]], name: str) -> list[Row]:
    from temporeal.policies.evaluate.ope.ranking import rank_correlation, sharpe_ratio_at_k

    truth = np.array([cell["truth"] for cell in mine])
    value, low, high = np.array([cell["estimates"][name][:3] for cell in mine]).T
    # the truth is itself a share of episodes: two of its standard deviations belong to the interval
    slack = 2.0 * np.sqrt(np.maximum(truth * (1 - truth), 1.0 / JUDGED) / JUDGED)
    policies = f"{len(mine)} policies"
    return [Row(f"{key}.rank_correlation", rank_correlation(value, truth), "1", peer=policies),
            Row(f"{key}.coverage", float(((low - slack <= truth) & (truth <= high + slack)).mean()), "1",
                peer=f"{policies}; stated {CONFIDENCE}"),
            Row(f"{key}.error", float(np.abs(value - truth).mean()), "1", peer=policies),
            Row(f"{key}.sharpe_ratio_at_4", sharpe_ratio_at_k(value, truth, mine[0]["data"], 4), "1", peer=policies)]


def main(argv: Sequence[str] | None = None) -> int:
    """Judge what is missing and print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--largest", type=int, default=BUDGETS[-1], help="budget of a policy, updates")
    options = parser.parse_args(argv)
    study(options.out, options.tasks.split(","), options.largest)
    for row in rows_of(options.out):
        print(f"{row.name} {row.value:.3f} ({row.peer})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
