"""A study of learned bases: policies from pictures that half succeed, made perfect by PPO and by TD3 from replay.

    python -m temporeal_benchmarks.residual.learned_study outputs/learned                          all that is missing
    python -m temporeal_benchmarks.residual.learned_study outputs/learned --seeds 1 --only peg/  some of it

A job is a task, ``base`` or a learner (``resip``: PPO, ``resfit``: TD3), and a seed. The base is a flow policy of
chunks from 64x64 pictures and what the robot knows of itself, cloned from the first number of demonstrations of the
task's ladder with which it succeeds in at least ``LOW`` of 100 starts that judge nothing else. The residual corrects
each control step, paid 1 at success, which ends the episode, and nothing else.

What the residual sees: the task's own observation, which in simulation is the true state of robot and objects, and the
base's action. Pictures reach it through the base alone (``--words base.pictures=true`` shows them to it as well). So
what is learned is a teacher, as ResiP's is: for a robot that only sees it is distilled (docs/how-to/residual.md).

Base and residual are judged from the same fresh starts: ``fixed`` and ``broken``. Steps of ``resfit`` are with those of
the base's own episodes, at most. What is done is not done again; a training that was stopped goes on, but for
Meta-World's, whose worlds cannot be saved: it begins anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.residual.learned_tasks import TASKS
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured
from temporeal_benchmarks.vla.metaworld_study import command
from temporeal_benchmarks.vla.rl_study import run, timed

PART, FEWEST, EPISODES, TRIED = "learned-study", 3, 512, 100
FRESH, ON_THE_WAY = 7_000_000, 5_000_000  # seeds of starts that judge, and that the base is chosen by
LOW, HIGH = 0.4, 0.7  # of its starts a base succeeds in
SHARE, SECONDS, STEPS_MOST, PART_OF_PPO = 0.95, 2400.0, 100_000, 0.2  # targets; 20 minutes of two cores
STEPS = {"resip": 300_000, "resfit": 40_000}  # control steps of a training
BASE_EPISODES = 100  # of the base alone, which ``resfit`` begins with
LEARNERS: Mapping[str, tuple[str, ...]] = {
    "resip": ("algo=resip",),
    "resfit": ("algo=resfit", f"algo.base_episodes={BASE_EPISODES}", "algo.evaluate_steps=10000",
               "algo.evaluate_episodes=48")}
"""Evaluations on the way infer of pictures, too: fewer than the preset's."""


@dataclass(frozen=True)
class Job:
    """One policy."""

    task: str
    what: str
    seed: int

    @property
    def name(self) -> str:
        """Of the job in the file."""
        return f"{self.task}/{self.what}/{self.seed}"


@dataclass(frozen=True)
class Try:
    """What differs in a try.

    Args:
        episodes: fresh ones that judge; tried: those that the base is chosen by.
        ladder: numbers of demonstrations, instead of the task's.
        base, words: further settings of the base's and of the residual's training.
    """

    episodes: int = EPISODES
    tried: int = TRIED
    ladder: tuple[int, ...] = ()
    base: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def jobs(seeds: int) -> Iterator[Job]:
    """All jobs of a seed before the next; the base before what corrects it."""
    for seed in range(1, seeds + 1):
        for task in TASKS:
            for what in ("base", *LEARNERS):
                yield Job(task, what, seed)


def demonstrations(job: Job, count: int, out: Path) -> Path:
    """Successful demonstrations of about ``count`` episodes."""
    kept, world = out / "sets" / f"{job.task}-{count}-{job.seed}", TASKS[job.task]
    if not (kept / "meta" / "info.json").exists():
        all_of = kept.with_name(f"{kept.name}-all")
        for folder in (all_of, kept):
            shutil.rmtree(folder, ignore_errors=True)
        command("data", "generate", *world.words, *world.shown, *world.demonstrated, "quality=noisy",
                f"episodes={count}", f"seed={job.seed}", f"out={all_of}", "--json")
        command("data", "filter", str(all_of), "--success", "yes", "--out", str(kept), "--json")
    return kept


def cloned(job: Job, count: int, out: Path, how: Try) -> Path:
    """The base of so many demonstrations."""
    world = TASKS[job.task]
    return run([*world.cloned, "algo.evaluate_updates=0", *how.base, f"dataset={demonstrations(job, count, out)}",
                f"seed={job.seed}"], out / "runs" / job.task / "base" / f"{job.seed}-{count}")


def base(job: Job, out: Path, how: Try) -> dict[str, Any]:
    """The first base of the ladder that succeeds often enough, else its last, and the shares of all on the way.
    Seconds are of the processor, None where it was stopped before."""
    began, shares = time.process_time(), dict[str, float]()
    stopped = any((out / "runs" / job.task / "base").glob(f"{job.seed}-*"))
    for count in how.ladder or TASKS[job.task].ladder:
        found = shown(cloned(job, count, out, how), how.tried, ON_THE_WAY + job.seed)
        shares[str(count)] = found["successes"] / found["trials"]
        if shares[str(count)] >= LOW:
            break
    return {"demonstrations": count, "shares": shares,
            "train_cpu_s": None if stopped else time.process_time() - began}


def shown(folder: Path, episodes: int, seed: int) -> dict[str, Any]:
    """Fresh episodes of a run that succeed; of one that corrects a base, beside the base's."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.trained import load_trained

    found = load_trained(folder)
    done = evaluate_on(found, found.settings, found.settings["backend"]["name"], EvaluationConfig(episodes, seed=seed))
    share, pairs = done.evaluation.satisfied, done.pairs
    beside = {} if pairs is None else {"base": pairs.both + pairs.broken, "fixed": pairs.fixed, "broken": pairs.broken}
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high, **beside}


def corrected(job: Job, out: Path, how: Try) -> dict[str, Any]:
    """Train the residual of the seed's base. Seconds are of the processor, for the residual alone; None where it was
    stopped on the way: what it took before is not known."""
    from temporeal.policies.runs.run_folders import load_run

    count = done(replace(job, what="base"), out, how)["demonstrations"]
    policy, world = cloned(job, count, out, how), TASKS[job.task]
    folder = out / "runs" / job.name
    over = folder.with_name(f"{folder.name}.over")
    words = [*world.words, *world.seen, f"base.policy={policy}", "base.reward=sparse", *LEARNERS[job.what],
             f"algo.total_steps={STEPS[job.what]}", *world.trained[job.what], *how.words, f"seed={job.seed}"]
    seconds = None
    if not over.exists():
        if not world.resumes:
            shutil.rmtree(folder, ignore_errors=True)
        seconds = timed(words, folder)[1]
        over.touch()
    algo = load_run(folder)["algo"]
    steps = algo["total_steps"] + algo.get("base_episodes", 0) * world.steps
    return {**shown(folder, how.episodes, FRESH + job.seed), "steps": steps, "train_cpu_s": seconds}


def done(job: Job, out: Path, how: Try) -> studies.Trial:
    """The job's trial; made, if it is not there."""
    there = studies.read(out).get(job.name)
    if there is not None:
        return there
    found = base(job, out, how) if job.what == "base" else corrected(job, out, how)
    trial = studies.add(out, job.name, found)
    print(job.name, json.dumps(trial), flush=True)
    return trial


def study(out: Path, seeds: int = FEWEST, only: str = "", how: Try = Try()) -> None:
    """Do the jobs that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for job in jobs(seeds):
        if only in job.name:
            done(job, out, how)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The worst seed of each task, for each target."""
    found = list[Row]()
    for task in TASKS:
        name = f"residual.learned.{task}"
        own = {what: [trials[each] for seed in range(1, FEWEST + 1) if (each := f"{task}/{what}/{seed}") in trials]
               for what in ("base", *LEARNERS)}
        found.append(row_of_base(f"{name}.base", own["base"]))
        for learner in LEARNERS:
            found += rows_of(f"{name}.{learner}", own[learner])
        found += rows_of_steps(f"{name}.resfit", own)
    return found


def row_of_base(name: str, own: Sequence[studies.Trial]) -> Row:
    """Whether all bases half succeed."""
    target = f"{LOW:g} to {HIGH:g}"
    if len(own) < FEWEST:
        return studies.missing(name, "1", target, PART, f"{len(own)} of {FEWEST} seeds", "residual")
    shares = [each["shares"][str(each["demonstrations"])] for each in own]
    said = ", ".join(f"{share:.3f} of {each['demonstrations']} demonstrations" for share, each in zip(shares, own))
    return Row(name, min(shares), "1", target, f"the worst of {len(own)} seeds: {said}",
               all(LOW <= share <= HIGH for share in shares))


def rows_of(name: str, own: Sequence[studies.Trial]) -> list[Row]:
    """Success and cost of one learner."""
    if len(own) < FEWEST:
        there = f"{len(own)} of {FEWEST} seeds"
        return [studies.missing(name, "1", SHARE, PART, there, "residual"),
                studies.missing(f"{name}.seconds", "s", SECONDS, PART, there, "residual")]
    counts = ", ".join(f"{each['base']} to {each['successes']} of {each['trials']} [{each['low']:.3f}, "
                       f"{each['high']:.3f}], fixed {each['fixed']}, broken {each['broken']}" for each in own)
    return [at_least(name, min(each["successes"] / each["trials"] for each in own), "1", SHARE,
                     f"the worst of {len(own)} seeds: {counts}"),
            row_of_seconds(f"{name}.seconds", [each["train_cpu_s"] for each in own])]


def row_of_seconds(name: str, own: Sequence[float | None]) -> Row:
    """What the slowest training took, where none was stopped on the way."""
    known = [seconds for seconds in own if seconds is not None]
    if len(known) < len(own):
        return not_measured(name, "s", SECONDS, f"{len(own) - len(known)} of {len(own)} trainings were stopped on the "
                            "way, and what they took before is not known")
    return at_most(name, max(known), "s", SECONDS,
                   "of the processor, one core, evaluations on the way included: 20 minutes of two cores")


def rows_of_steps(name: str, own: Mapping[str, Sequence[studies.Trial]]) -> list[Row]:
    """Control steps of the off-policy learner, alone and beside PPO's."""
    if min(len(own[learner]) for learner in LEARNERS) < FEWEST:
        there = f"{min(len(own[learner]) for learner in LEARNERS)} of {FEWEST} seeds of both learners"
        return [studies.missing(f"{name}.steps", "1", STEPS_MOST, PART, there, "residual"),
                studies.missing(f"{name}.part", "1", PART_OF_PPO, PART, there, "residual")]
    most = max(each["steps"] for each in own["resfit"])
    part = max(few["steps"] / many["steps"] for few, many in zip(own["resfit"], own["resip"]))
    return [at_most(f"{name}.steps", most, "1", STEPS_MOST, "those of the base's own episodes included, at most"),
            at_most(f"{name}.part", part, "1", PART_OF_PPO, "of PPO's steps")]


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--only", default="", help="part of the names of the jobs to do")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh ones that judge")
    parser.add_argument("--tried", type=int, default=TRIED, help="those that a base is chosen by")
    parser.add_argument("--ladder", type=int, nargs="*", default=[], help="numbers of demonstrations, for tries")
    parser.add_argument("--base", nargs="*", default=[], help="other settings of the base, for tries: algo.updates=200")
    parser.add_argument("--words", nargs="*", default=[], help="other settings of the residual, for tries")
    options = parser.parse_args(argv)
    how = Try(options.episodes, options.tried, tuple(options.ladder), tuple(options.base), tuple(options.words))
    study(options.out, options.seeds, options.only, how)
    for row in judged(studies.read(options.out)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
