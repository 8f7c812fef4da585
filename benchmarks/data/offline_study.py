"""Offline reinforcement learning against cloning on medium and mixed sets: six tasks, three seeds, resumable.

    python -m temporeal_benchmarks.data.offline_study outputs/offline_study              all that is missing
    python -m temporeal_benchmarks.data.offline_study outputs/offline_study --tasks reach --seeds 1 --updates 5000

One core. Sets are generated once; a trial is a training and its evaluation on fresh episodes. A study that was stopped
goes on with the trials that are missing. The method that is compared with cloning is the same for all
sets (:data:`METHOD`); the others are shown beside it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.data.sets import QUALITIES, TASKS, made
from temporeal_benchmarks.rows import Row, at_least

UPDATES, SEEDS, JUDGED = 8000, 3, 200
FEWER = 100  # episodes of Meta-World's judgement: a simulator steps one world after another
CLONE, METHOD = "cloning", "iql"
SHARED: Mapping[str, Any] = {"hidden": [128, 128], "learning_rate": 1e-3, "evaluate_updates": 0, "report_updates": 500}
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    CLONE: ("iql", {"temperature": 0.0}),  # the same policy and the same steps, without the advantage's weight
    "iql": ("iql", {"weighting": "return", "temperature": 1.0}),
    "recap": ("recap", {"weighting": "return"})}
HISTORY = {"reach": False, "lift": False}
"""Where the policy is not shown its last actions, whatever learns: cloning would repeat them. The mission's policies
need them, to know what the rotors are about to do; Meta-World's are shown none."""
TARGET = 0.2  # of the share of satisfied episodes
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided, by the number of seeds


@dataclass(frozen=True)
class Cell:
    """A training and its evaluation."""

    task: str
    quality: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Of its line."""
        return f"{self.task}/{self.quality}/{self.method}/{self.seed}"


def cells(tasks: Sequence[str], methods: Sequence[str], seeds: int) -> Iterator[Cell]:
    """All cells, a whole seed after the other: what is there when the time is over is complete."""
    for seed in range(1, seeds + 1):
        for task in tasks:
            for quality in QUALITIES:
                yield from (Cell(task, quality, method, seed) for method in methods)


def learned(out: Path, cell: Cell, updates: int) -> dict[str, Any]:
    """Train and judge a cell."""
    from temporeal.policies.data import memoryless
    from temporeal.policies.runs import environments, offline
    from temporeal.policies.runs.learners import algorithm

    algo, own = METHODS[cell.method]
    folder = made(f"{cell.task}-{cell.quality}", out / "sets")
    settings = offline.settings_of([f"dataset={folder}", f"algo={algo}", f"seed={cell.seed}"])
    settings["algo"] = {**settings["algo"], **SHARED, **own, "updates": updates, "checkpoint_seconds": 1e9,
                        "history": HISTORY.get(cell.task, True)}
    module, configuration = algorithm(settings)
    task = memoryless.shown(environments.make_task(settings), configuration.history)
    data = offline.open_dataset(folder)
    steps = offline.steps_of(data, task, configuration)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as run:
        result = module.train(steps, configuration, out=Path(run), seed=cell.seed)
    seconds = time.process_time() - began
    judge = offline.evaluation_of(module, data, settings, task)
    assert judge is not None
    found = judge(result.actor, result.normalizer, FEWER if task.name == "metaworld" else JUDGED)
    share = [record.success for record in data.records if record.success is not None]
    return {"updates": updates, "cpu_seconds": seconds, "data": mean(map(float, share)), **found}


def study(
    out: Path, tasks: Sequence[str] = tuple(TASKS), methods: Sequence[str] = tuple(METHODS), seeds: int = SEEDS,
    updates: int = UPDATES,
) -> None:
    """Learn what is missing."""
    for cell in cells(tasks, methods, seeds):
        if cell.name not in studies.read(out):
            found = studies.add(out, cell.name, learned(out, cell, updates))
            print(f"{cell.name}: satisfied {found['success']:.3f} (data {found['data']:.3f}), "
                  f"{found['cpu_seconds']:.0f} s", flush=True)


def gains(found: Mapping[str, studies.Trial], task: str, quality: str, method: str) -> list[float]:
    """Share satisfied above cloning's, by seed."""
    seeds = range(1, SEEDS + 1)
    pairs = [(found.get(Cell(task, quality, method, s).name), found.get(Cell(task, quality, CLONE, s).name))
             for s in seeds]
    return [a["success"] - b["success"] for a, b in pairs if a is not None and b is not None]


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The gain over cloning of each set, with its 95 % interval over seeds."""
    return [row for task in TASKS for quality in QUALITIES for row in of_set(trials, task, quality)]


def of_set(trials: Mapping[str, studies.Trial], task: str, quality: str) -> list[Row]:
    """Rows of one set."""
    name = f"data.offline.{task}.{quality}"
    own = gains(trials, task, quality, METHOD)
    if len(own) < SEEDS:
        return [studies.missing(f"{name}.gain", "1", TARGET, "offline-study", f"{len(own)} of {SEEDS} seeds")]
    shares = "; ".join(f"{method} {share_of(trials, task, quality, method):.3f}" for method in METHODS
                       if gains(trials, task, quality, method))
    half = T_95[len(own)] * stdev(own) / len(own) ** 0.5
    return [at_least(f"{name}.gain", mean(own), "1", TARGET, f"satisfied: {shares}; {METHOD} less {CLONE}"),
            Row(f"{name}.gain.low", mean(own) - half, "1", peer="95 % interval over seeds (Student's t)"),
            Row(f"{name}.gain.high", mean(own) + half, "1", peer="95 % interval over seeds (Student's t)")]


def share_of(trials: Mapping[str, studies.Trial], task: str, quality: str, method: str) -> float:
    """The share of fresh episodes that a method's policies satisfy, over the seeds that are there."""
    names = (Cell(task, quality, method, seed).name for seed in range(1, SEEDS + 1))
    return float(mean(trials[name]["success"] for name in names if name in trials))


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("out", type=Path)
    p.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    p.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    p.add_argument("--seeds", type=int, default=SEEDS)
    p.add_argument("--updates", type=int, default=UPDATES)
    given = p.parse_args(argv)
    study(given.out, given.tasks, given.methods, given.seeds, given.updates)


if __name__ == "__main__":
    main()
