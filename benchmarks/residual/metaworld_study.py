"""A study of residuals: Meta-World's scripted policies from state, made perfect by PPO and by TD3 from replay.

    python -m temporeal_benchmarks.residual.metaworld_study outputs/residual                   all that is missing
    python -m temporeal_benchmarks.residual.metaworld_study outputs/residual --seeds 1 --only soccer  some of it

A job is a task, a learner (``algo=resip``: PPO, ``algo=resfit``: TD3) and a seed. The residual is of the presets in
``configs/algo``; the reward is 1 at success, which ends an episode, or a training's after 200 control steps. On the way
the deterministic policy is judged on 100 starts of its own, the first time before the first update (the base's share).
In the end its best is judged on 1,000 fresh starts, over the library's 500 control steps, beside the base from the same
starts: ``fixed`` by the residual and ``broken``. What is done is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_least, at_most

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from temporeal.policies.training.residual.worlds import ResidualEnv

PART, FEWEST = "metaworld-study", 3
TASKS = {"peg": "peg-insert-side-v3", "peg-hard": "peg-hard", "soccer": "soccer-v3"}
WORLDS = {"resip": 32, "resfit": 8}
STEPS = {"resip": 300_000, "resfit": 40_000}  # targets: at most so many control steps
TOTAL = {"resip": 294_912, "resfit": 40_000}  # of a training: whole iterations, and so many between evaluations
TRAINED, WATCHED, JUDGED = 200, 200, 500  # control steps of an episode in training, on the way, in the end
STARTS, WATCHES, EACH = 1000, 100, 20  # fresh starts in the end and on the way; worlds that play them
EVERY = {"resip": 24_576, "resfit": 5_000}  # control steps between evaluations on the way
SCALE = 0.3
SHARE, SECONDS, BROKEN = 0.98, 300.0, 0.01  # targets: of the starts, of one core, of the base's successes
FRESH, ON_THE_WAY = 7_000_000, 5_000_000  # seeds of starts, beside the job's


@dataclass(frozen=True)
class Job:
    """One training."""

    task: str
    learner: str
    seed: int

    @property
    def name(self) -> str:
        """Of the job in the file."""
        return f"{self.task}/{self.learner}/{self.seed}"


def jobs(seeds: int) -> Iterator[Job]:
    """All jobs of a seed before the next."""
    for seed in range(1, seeds + 1):
        for task in TASKS:
            for learner in STEPS:
                yield Job(task, learner, seed)


def worlds(task: str, count: int, seed: int, steps: int) -> ResidualEnv:
    """Worlds with the scripted policy in them."""
    from temporeal.policies.training.residual.controllers import ControllerBase
    from temporeal.policies.training.residual.worlds import ResidualEnv
    from temporeal.sim.adapters.meta_world import expert
    from temporeal.sim.env import make_env
    from temporeal.sim.task import load_task

    made = load_task("metaworld", env=TASKS[task], reward="success", see="motion", steps=steps)
    env = make_env(made, num_worlds=count, seed=seed)
    base = ControllerBase(partial(expert, made), count, env.action_dim, "the scripted policy")
    return ResidualEnv(env, base, SCALE, end_at_success=True)


def played(env: ResidualEnv, starts: int, actor: nn.Module | None, normalizer: nn.Module | None) -> np.ndarray:
    """Which of ``starts`` episodes succeed, bool [W, starts / W] in W worlds: the same starts whoever acts.

    ``actor``: None: the base alone.
    """
    import numpy as np
    import torch

    each = starts // env.num_worlds
    won, count = np.zeros((env.num_worlds, each), dtype=bool), np.zeros(env.num_worlds, dtype=int)
    env.env.reseed(env.env.seed)
    obs, still = env.reset(), torch.zeros(env.num_worlds, env.action_dim)
    with torch.no_grad():
        while count.min() < each:
            step = env.step(still if actor is None or normalizer is None else actor(normalizer(obs.actor)))
            for world in (step.terminated | step.truncated).nonzero()[:, 0].tolist():
                if count[world] < each:
                    won[world, count[world]] = bool(step.info["success"][world] > 0.5)
                    count[world] += 1
            obs = step.obs
    return won


@dataclass
class Trained:
    """What a training gives. ``seen``: control steps and share of each evaluation on the way."""

    actor: nn.Module
    normalizer: nn.Module
    steps: int
    base_steps: int
    seen: list[tuple[int, float]]


def train(job: Job, out: Path, words: Sequence[str] = ()) -> Trained:
    """The job's policy. ``words``: settings other than the preset's."""
    from temporeal.policies.runs.learners import algorithm
    from temporeal.policies.runs.offline import settings_of

    module, config = algorithm(settings_of([
        "task=metaworld", f"algo={job.learner}", f"algo.total_steps={TOTAL[job.learner]}", *words]))
    env = worlds(job.task, WORLDS[job.learner], job.seed, TRAINED)
    watch = worlds(job.task, EACH, ON_THE_WAY + job.seed, WATCHED)

    def judge(actor: nn.Module, normalizer: nn.Module) -> float:
        return float(played(watch, WATCHES, actor, normalizer).mean())

    return {"resip": by_ppo, "resfit": by_replay}[job.learner](module, config, env, judge, job, out)


def by_ppo(module: Any, config: Any, env: ResidualEnv, judge: Any, job: Job, out: Path) -> Trained:
    """PPO; its best policy by the evaluations."""
    from temporeal.policies.nets.actor import begin_at_zero, make_actor
    from temporeal.policies.nets.normalizer import Normalizer
    from temporeal.policies.training.residual.schedule_best import KeepBest

    best = KeepBest(judge, EVERY["resip"])
    still = make_actor(env.obs_dim, env.action_dim, config.actor_hidden)
    begin_at_zero(still)
    best.note(still, Normalizer(env.obs_dim), 0)
    found = module.train(env, config, out=out, seed=job.seed, on_iteration=best)
    best.put_back(found.actor, found.normalizer)
    return Trained(found.actor, found.normalizer, int(found.history[-1]["steps"]), 0, best.seen)


def by_replay(module: Any, config: Any, env: ResidualEnv, judge: Any, job: Job, out: Path) -> Trained:
    """TD3; the learner keeps its best policy."""
    config, taken = replace(config, evaluate_steps=EVERY["resfit"], evaluate_episodes=WATCHES), list[int]()
    found = module.train(
        env, config, out=out, seed=job.seed, on_iteration=lambda learner: taken.append(learner.base_steps),
        evaluate=lambda actor, normalizer, _: {"success": judge(actor, normalizer)})
    seen = [(0, found.history[0]["first_evaluated_success"]),
            *((int(row["steps"]), row["evaluated_success"]) for row in found.history if "evaluated_success" in row)]
    return Trained(found.actor, found.normalizer, int(found.history[-1]["steps"]), taken[-1], seen)


def done(job: Job, out: Path, words: Sequence[str] = (), starts: int = STARTS) -> dict[str, Any]:
    """Train and judge. ``train_cpu_s``: with what is judged on the way, without what is in the end."""
    from temporeal.policies.evaluate.pairs import paired
    from temporeal.policies.evaluate.statistics import proportion

    began = time.process_time()
    found = train(job, out / "runs" / job.name, words)
    seconds = time.process_time() - began
    fresh = worlds(job.task, EACH, FRESH + job.seed, JUDGED)
    base = played(fresh, starts, None, None).ravel()
    policy = played(fresh, starts, found.actor, found.normalizer).ravel()
    share, pairs = proportion(policy), paired(policy, base)
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high,
            "base": int(base.sum()), "fixed": pairs.fixed, "broken": pairs.broken, "steps": found.steps,
            "base_steps": found.base_steps, "train_cpu_s": seconds, "seen": found.seen}


def study(out: Path, seeds: int = FEWEST, only: str = "", words: Sequence[str] = (), starts: int = STARTS) -> None:
    """Do the jobs that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for job in jobs(seeds):
        if only in job.name and job.name not in studies.read(out):
            print(job.name, json.dumps(studies.add(out, job.name, done(job, out, words, starts))), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The worst seed of each task and learner, for each target."""
    found = list[Row]()
    for task in TASKS:
        for learner in STEPS:
            own = [trials[name] for seed in range(1, FEWEST + 1) if (name := f"{task}/{learner}/{seed}") in trials]
            found += rows_of(f"residual.metaworld.{task}.{learner}", learner, own)
    return found


def rows_of(name: str, learner: str, own: Sequence[studies.Trial]) -> list[Row]:
    """The rows of one task and learner. ``dip``: of the lowest evaluation on the way below the first, the base's."""
    targets: dict[str, tuple[str, float, Callable[..., Row]]] = {
        "": ("1", SHARE, at_least), ".broken": ("1", BROKEN, at_most), ".dip": ("1", 0.0, at_most),
        ".steps": ("1", float(STEPS[learner]), at_most), ".seconds": ("s", SECONDS, at_most)}
    if len(own) < FEWEST:
        return [studies.missing(f"{name}{part}", unit, target, PART, f"{len(own)} of {FEWEST} seeds", "residual")
                for part, (unit, target, _) in targets.items()]
    counts = ", ".join(f"{each['base']} to {each['successes']} of {each['trials']} [{each['low']:.3f}, "
                       f"{each['high']:.3f}], fixed {each['fixed']}, broken {each['broken']}" for each in own)
    worst = {
        "": (min(each["successes"] / each["trials"] for each in own), f"the worst of {len(own)} seeds: {counts}"),
        ".broken": (max(each["broken"] / each["base"] for each in own), "of the base's successes, the worst seed"),
        ".dip": (max(each["seen"][0][1] - min(share for _, share in each["seen"]) for each in own),
                 f"the worst seed; {WATCHES} starts each, of {WATCHED} steps"),
        ".steps": (max(each["steps"] for each in own), f"and {max(each['base_steps'] for each in own):,} of the base "
                                                       "alone at first"),
        ".seconds": (max(each["train_cpu_s"] for each in own), "of the processor, one core, evaluations included")}
    return [make(f"{name}{part}", worst[part][0], unit, target, worst[part][1])
            for part, (unit, target, make) in targets.items()]


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--only", default="", help="part of the names of the jobs to do")
    parser.add_argument("--starts", type=int, default=STARTS, help="fresh starts that judge in the end")
    parser.add_argument("--words", nargs="*", default=[], help="settings other than the preset's, for tries: "
                        "algo.policy_rate=1e-4")
    options = parser.parse_args(argv)
    study(options.out, options.seeds, options.only, options.words, options.starts)
    for row in judged(studies.read(options.out)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
