"""A study of imitation: flow and diffusion policies on lift and push from 100 demonstrations, and one-step heads.

    python -m temporeal_benchmarks.data.imitation_study outputs/imitation_study            all that is missing
    python -m temporeal_benchmarks.data.imitation_study outputs/imitation_study --seeds 1 --only lift/state

Each job makes its set of demonstrations (an expert by hand; noise is executed and what the expert gave is stored),
trains, and is judged on fresh episodes by the task's formula. What is done is not done again; a job that was
interrupted goes on from its checkpoint. One core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.data.sets import folder_of, made
from temporeal_benchmarks.rows import Row, at_least, at_most

EPISODES = 200
LEAST, POINTS, FEWEST = {"state": 0.9, "pictures": 0.8}, 0.03, 3  # targets; what a one-step head may lose; seeds
SEED = 7000  # of the first evaluation: no demonstration has one as large
ROBOT = ("joint_pos", "grip_pos_w", "grip_quat_w", "goal_pos_w")
OWN = {"lift": ("finger_pos",), "push": ()}
CUBE, SEEN = ("cube_pos_w", "cube_quat_w"), ("front_rgb", "wrist_rgb")
UPDATES = {"state": 8000, "pictures": 8000}
SEEING = ("algo.auxiliary=[cube_pos_w]", "algo.keypoints=24", "algo.batch=32", "algo.shift=0")
"""Where pictures tell the place of a thing, moving them at random hides it."""
DISTILLED = ("algo.updates=2500", "algo.fixed=1.0", "algo.learning_rate=1e-3")
"""Of a one-step head: only the noise that is deployed (with half of it: 84 of 200 in a trial, the teacher 176)."""
DENOISED = {("push", "flow"): ["algo.denoise_steps=2", "algo.spread=0.0"],
            ("push", "diffusion"): ["algo.denoise_steps=4", "algo.spread=0.0"]}
"""Few steps from no noise stay near the mean of what was demonstrated: better on push in a trial, not on lift."""
ENSEMBLE = {"lift": 0.1, "push": None}
"""How chunks are played (``algo.ensemble``; None: 8 steps of each), as a trial with other starts found better: where a
cube is pushed, averaging over chunks of the past comes too late."""


@dataclass(frozen=True)
class Job:
    """One policy. ``sees``: state or pictures. ``algo``: flow, diffusion, or consistency (of the diffusion policy)."""

    task: str
    sees: str
    algo: str
    seed: int

    @property
    def name(self) -> str:
        """Of the job in the file."""
        return f"{self.task}/{self.sees}/{self.algo}/{self.seed}"

    @property
    def kind(self) -> str:
        """Of the job, whatever its seed."""
        return self.name.rpartition("/")[0]

    @property
    def set(self) -> str:
        """Of its demonstrations (:mod:`temporeal_benchmarks.data.sets`)."""
        return f"{self.task}-{self.sees}"


def jobs(seeds: int) -> Iterator[Job]:
    """All jobs, teachers before their students; all of a seed before the next."""
    for seed in range(1, seeds + 1):
        for task in ("lift", "push"):
            for algo in ("flow", "diffusion", "consistency"):
                yield Job(task, "state", algo, seed)
            yield Job(task, "pictures", "flow", seed)


def words_of(job: Job, out: Path) -> list[str]:
    """What ``temporeal train`` is told."""
    dataset = folder_of(job.set, out / "sets", job.seed)
    found = ["algo.evaluate_updates=0", f"algo={job.algo}", f"dataset={dataset}", f"seed={job.seed}",
             f"out={out / 'runs' / job.name}"]
    if job.algo == "consistency":
        teacher = out / "runs" / replace(job, algo="diffusion").name
        return [*found, *DISTILLED, f"algo.policy={teacher}"]
    seen = [*ROBOT, *OWN[job.task], *(CUBE if job.sees == "state" else SEEN)]
    found += [*DENOISED.get((job.task, job.algo), []), f"algo.updates={UPDATES[job.sees]}",
              "algo.relative=joint_pos", f"algo.signals=[{','.join(seen)}]"]
    return found if job.sees == "state" else [*found, *SEEING]


def trained(job: Job, out: Path) -> Path:
    """The job's run, trained to its end."""
    from temporeal.policies.runs import offline, training

    made(job.set, out / "sets", job.seed)
    words, run = words_of(job, out), out / "runs" / job.name
    begun = any((run / "checkpoints").glob("*.pt"))
    training.train({**offline.settings_of(words), "resume": begun}, overwrite=not begun, quiet=True)
    return run


def done(job: Job, out: Path, episodes: int) -> dict[str, Any]:
    """Train and judge: the share of fresh episodes that satisfy the formula, with its interval, and processor time."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.trained import load_trained

    times = [time.process_time()]
    run = load_trained(trained(job, out))
    times.append(time.process_time())
    settings = {**run.settings, "algo": {**run.settings["algo"], "ensemble": ENSEMBLE[job.task]}}
    config = EvaluationConfig(episodes, seed=SEED + job.seed)
    share = evaluate_on(run, settings, settings["backend"]["name"], config).evaluation.satisfied
    times.append(time.process_time())
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high,
            "train_cpu_s": times[1] - times[0], "judge_cpu_s": times[2] - times[1]}


def study(out: Path, seeds: int = FEWEST, episodes: int = EPISODES, only: str = "") -> None:
    """Do the jobs that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for job in jobs(seeds):
        if only in job.name and job.name not in studies.read(out):
            print(job.name, json.dumps(studies.add(out, job.name, done(job, out, episodes))), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """Success shares over all seeds, and what the one-step head loses. Those of too few seeds are not judged."""
    shares, found = pooled(trials), list[Row]()
    for job in jobs(1):
        name = f"data.imitation.{job.task}.{job.sees}.{job.algo}"
        share, taught = shares.get(job.kind), shares.get(replace(job, algo="diffusion").kind)
        if share is None or taught is None and job.algo == "consistency":
            found.append(studies.missing(f"{name}.success", "1", LEAST[job.sees], "imitation-study", "no seed"))
            continue
        how = f"{share.trials} fresh episodes of {share.seeds} seeds, {share.low:.3f} to {share.high:.3f}"
        row = at_least(f"{name}.success", share.value, "1", LEAST[job.sees], f"{how}; 100 demonstrations")
        if job.algo == "consistency" and taught is not None:
            row = at_most(f"{name}.loss", taught.value - share.value, "1", POINTS,
                          f"{how}: {share.value:.3f}, its teacher {taught.value:.3f}")
        found.append(row if share.seeds >= FEWEST else replace(row, ok=None))
    return found


@dataclass(frozen=True)
class Share:
    """Of episodes that satisfy, over seeds: the mean, and the least and the most of a seed."""

    value: float
    trials: int
    seeds: int
    low: float
    high: float


def pooled(trials: Mapping[str, studies.Trial]) -> dict[str, Share]:
    """Shares by task/sees/algo."""
    by_kind: dict[str, list[studies.Trial]] = {}
    for name, trial in trials.items():
        by_kind.setdefault(name.rpartition("/")[0], []).append(trial)
    found = {}
    for kind, of in by_kind.items():
        shares, count = [one["successes"] / one["trials"] for one in of], sum(one["trials"] for one in of)
        found[kind] = Share(sum(one["successes"] for one in of) / count, count, len(of), min(shares), max(shares))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Imitation: success shares of flow and diffusion policies.")
    parser.add_argument("out", type=Path, help="folder of sets, runs and trials")
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--only", default="", help="part of the jobs' names, as lift/state")
    options = parser.parse_args(arguments)
    study(options.out, options.seeds, options.episodes, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
