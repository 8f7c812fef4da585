"""A study of reinforcement learning: few-shot flow policies, improved by each learner and reward on equal steps.

    python -m temporeal_benchmarks.vla.rl_study outputs/rl_study                                all that is missing
    python -m temporeal_benchmarks.vla.rl_study outputs/rl_study --seeds 1 --only reach/state   some of it

A job is a policy that was cloned from few demonstrations, then tuned by one learner with one reward for as many control
steps as the others, and judged on fresh episodes that no choice was made by. ``base`` is not tuned; ``more`` is cloned
from four times the demonstrations; ``recap`` from the few and 200 trials of the base's own, told which went well
(RECAP; on fewer steps than the others, since all of its pictures are rendered); ``white`` is Flow-SDE with the settings
of pi_RL; ``progress`` pays by a model of progress that was learned from mixed episodes (``algo=vlac``). What is done is
not done again; a job that was stopped goes on from its checkpoint. From pictures, all seeds begin with one eye: a
grounding of all kinds of instructions, which stands in for a pretrained model (40 minutes of a core, once).
Of one core a tuning takes about 4 minutes on reach from states (5,400 control steps a second, measured), 12 on push
(estimated), 7 to 10 from pictures (700 to 1,000 control steps a second): 3 seeds of all are about 15 core-hours.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_least

FEWEST, EPISODES, SEED, TUNING_SEED = 3, 512, 7000, 100
"""Of fresh episodes, and of a tuning: with the demonstrations' own seed it would begin where they began."""
STEPS = {("reach", "state"): 1_000_000, ("push", "state"): 1_000_000, ("reach", "pictures"): 400_000,
         ("push", "pictures"): 400_000, ("pick", "pictures"): 400_000}
"""Control steps of a tuning, whoever tunes."""
TARGETS = {"reach": 0.95, "push": 0.9, "pick": 0.8}
ARMS = ("base", "more", "flow_sde+task", "residual+task", "flow_sde+sparse", "flow_sde+formula", "flow_sde+task+white",
        "flow_noise+task", "flow_grpo+sparse", "dsrl+task", "flow_sde+progress", "residual+sparse", "residual+formula",
        "residual+progress", "recap")
CLONES = {"base": "cloned-1", "more": "cloned-4", "recap": "recap"}
LEFT_OUT = (("state", "recap"), ("pictures", "flow_sde+progress"), ("pictures", "residual+progress"))
"""The label is a token of ``algo=vla`` alone, which these experts from states are not; these models of progress learn
from state."""
TRIED = 200  # episodes of the base's own
MIXED = {"reach": (240, 0.5), "push": (120, 0.47)}
"""Episodes that a model of progress learns from, and the severity of the medium third, which satisfies about half."""
WHITE = ("algo.late=0", "algo.smooth=0", "algo.noise=0.5", "algo.gamma=0.99", "algo.gae_lambda=0.95",
         "algo.target_kl=0.01")
SIGNALS = {"reach": "goal_quat_w", "push": "cube_pos_w,cube_quat_w"}
DEMONSTRATIONS = {("reach", "state"): 40, ("push", "state"): 24, ("reach", "pictures"): 20, ("push", "pictures"): 60,
                  ("pick", "pictures"): 60}
WORDS = {"reach": ("task=reach", "task.settings.constants.reach=0.03", "task.settings.constants.turn=0.3"),
         "push": ("task=push",)}
"""Reach within 3 cm and 0.3 rad: at 1 cm and 0.1 rad a policy of 40 demonstrations never succeeds, and nothing is to be
learned of success alone."""
CLONED = ("algo=flow", "algo.relative=joint_pos", "algo.updates=3000", "algo.context=64", "algo.hidden=[128,128]",
          "algo.evaluate_updates=0")
EYE_UPDATES = 8000
DEEP = "algo.channels=[16,32,32,32]"  # with three, what is pushed and held is told 2 to 4 cm worse (one trial)
EYE = ("algo=vla_grounding", "experiment=tabletop", "algo.frames=32768", f"algo.updates={EYE_UPDATES}",
       "algo.wander=[15,null]", DEEP, "seed=12")
WORLDS = 128  # of a tuning from pictures
FEW = ("algo=vla_few_shot", DEEP, "algo.relative=joint_pos", "algo.evaluate_updates=0")
REST = {"push": 16}
"""Windows that are learned of a demonstration's rest, where it is not all."""
NOISE = {"push": "0.3,0.6"}
"""Standard deviations of the noise of demonstrations, one for each episode, where it is not the usual 0.3. At 0.6 they
show how to go on after what a policy does wrong: it rises 5 cm before the place."""
SPREAD = {"push": 0.2, "pick": 0.2}
"""Of a residual's corrections at first, where it is not the usual: with 0.5, 4 of 100 episodes push while it explores.
"""


PLAYED = {("push", "pictures"): 4}
"""Control steps of a chunk that are played before the next, by a policy that is judged, where it is not 8, as in its
tuning. (A residual of seed 3, 256 episodes of other seeds: 225 with 8, 239 with 4, 225 with 2.)"""


@dataclass(frozen=True)
class Job:
    """One policy. ``sees``: state, or pictures (the tabletop). ``arm``: of :data:`ARMS`."""

    task: str
    sees: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Of the job in the file."""
        return f"{self.task}/{self.sees}/{self.arm}/{self.seed}"

    @property
    def kind(self) -> str:
        """Of the job, whatever its seed."""
        return self.name.rpartition("/")[0]


def jobs(seeds: int) -> Iterator[Job]:
    """All jobs of a seed before the next; the base before what is made of it."""
    for seed in range(1, seeds + 1):
        for task, sees in STEPS:
            for arm in ARMS:
                if (sees, arm) not in LEFT_OUT:
                    yield Job(task, sees, arm, seed)


def world(job: Job) -> list[str]:
    """The words that say which task it is."""
    if job.sees == "state":
        return list(WORDS[job.task])
    return ["experiment=tabletop", f"task.settings.kinds={job.task}"]


def begun(folder: Path) -> bool:
    """Whether a run's folder has a checkpoint."""
    return any((folder / "checkpoints").glob("*.pt"))


def run(words: Sequence[str], out: Path) -> Path:
    """Train as ``words`` say, to the end; a run that is there goes on."""
    from temporeal.policies.runs import training
    from temporeal.policies.runs.tuning_runs import bases as tuning

    there, settings = begun(out), tuning.settings_of([*words, f"out={out}"])
    training.train({**settings, "resume": there}, overwrite=not there, quiet=True)
    return out


def timed(words: Sequence[str], out: Path) -> tuple[Path, float | None]:
    """The same, and seconds of the processor; None where the run was there before: what it took then is not known."""
    there, began = begun(out), time.process_time()
    run(words, out)
    return out, None if there else time.process_time() - began


def generated(job: Job, out: Path, count: int, name: str, *words: str) -> Path:
    """A set of ``count`` episodes, as ``words`` say; the set of that ``name`` where it is there."""
    from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of

    def make(folder: Path) -> None:
        generate(request_of([*world(job), *words, f"episodes={count}", f"seed={job.seed}", f"out={folder}"]))

    return whole(out / "sets" / f"{job.task}-{job.sees}-{name}{count}-{job.seed}", make)


def whole(folder: Path, make: Callable[[Path], None]) -> Path:
    """The set ``folder``, as ``make(folder)`` makes it where it is not there; one that was stopped half-way is not
    taken for it."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}-part")
        shutil.rmtree(part, ignore_errors=True)
        make(part)
        part.rename(folder)
    return folder


def demonstrations(job: Job, out: Path, count: int) -> Path:
    """A set of noisy demonstrations."""
    return generated(job, out, count, "", "quality=noisy", *([f"noise={NOISE[job.task]}"] if job.task in NOISE else []))


def with_trials(job: Job, out: Path) -> Path:
    """The few demonstrations, and trials of the policy that was cloned from them, each with its verdict."""
    from temporeal.policies.cli.main import main

    few = demonstrations(job, out, DEMONSTRATIONS[job.task, job.sees])
    own = generated(job, out, TRIED, "tried-", f"expert={cloned(base_of(job), out)}", "quality=expert")

    def merge(folder: Path) -> None:
        if main(["data", "merge", str(few), str(own), "--out", str(folder)]):
            raise RuntimeError(f"{few} and {own} could not be merged")

    return whole(own.with_name(f"{own.name}-and-few"), merge)


def folder_of(job: Job, out: Path) -> Path:
    """Of the job's policy."""
    if job.arm in CLONES:
        return out / "runs" / job.task / job.sees / CLONES[job.arm] / str(job.seed)
    return out / "runs" / job.name


def base_of(job: Job) -> Job:
    """What its policy begins with."""
    return replace(job, arm="base")


def cloned(job: Job, out: Path) -> Path:
    """The policy that was cloned from the few demonstrations, from more, or from them and its own trials."""
    count, folder = DEMONSTRATIONS[job.task, job.sees] * (4 if job.arm == "more" else 1), folder_of(job, out)
    dataset = with_trials(job, out) if job.arm == "recap" else demonstrations(job, out, count)
    if job.sees == "state":
        own = "finger_pos," if job.task == "push" else ""
        read = f"algo.signals=[joint_pos,grip_pos_w,grip_quat_w,{own}goal_pos_w,{SIGNALS[job.task]}]"
        return run([*CLONED, read, f"dataset={dataset}", f"seed={job.seed}"], folder)
    rest = [f"algo.rest={REST[job.task]}"] if job.task in REST else []
    rest += ["algo.advantage=true"] if job.arm == "recap" else []
    return run([*FEW, *rest, f"algo.policy={eye(out)}", f"dataset={dataset}", f"seed={job.seed}"], folder)


def eye(out: Path) -> Path:
    """The grounding that all policies from pictures begin with. One that is done is not rendered again."""
    from temporeal.policies.training.checkpoint import file_of

    folder = out / "runs" / "eye"
    done = file_of(folder / "checkpoints", EYE_UPDATES, 0, 1).exists()
    return folder if done else run(EYE, folder)


def progress_of(job: Job, out: Path) -> Path:
    """A model of progress, from mixed episodes of the seed."""
    (count, severity), folder = MIXED[job.task], out / "runs" / job.task / "vlac" / str(job.seed)
    dataset = generated(job, out, count, "mixed-", "quality=mixed", f"severity={severity}")
    return run(["algo=vlac", f"dataset={dataset}", f"seed={job.seed}"], folder)


def tuned(job: Job, out: Path) -> Path:
    """The job's policy."""
    if job.arm in CLONES:
        return cloned(job, out)
    base, (algo, reward, *white) = cloned(base_of(job), out), job.arm.split("+")
    words = [f"algo={algo}", f"algo.reward={reward}", f"algo.policy={base}",
             f"algo.total_steps={STEPS[job.task, job.sees]}", f"seed={TUNING_SEED + job.seed}",
             *([f"num_worlds={WORLDS}"] if job.sees == "pictures" else []), *(WHITE if white else ()),
             *([f"algo.progress_model={progress_of(job, out)}"] if reward == "progress" else []),
             *([f"algo.spread={SPREAD[job.task]}"] if algo == "residual" and job.task in SPREAD else [])]
    return run(words, folder_of(job, out))


def done(job: Job, out: Path, episodes: int) -> dict[str, Any]:
    """Train and judge: the share of fresh episodes that satisfy the formula, with its interval, and processor time."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.trained import load_trained

    there, began = begun(folder_of(job, out)), time.process_time()
    found = load_trained(tuned(job, out))
    settings = played(job, found.settings)
    spent = None if there else time.process_time() - began  # what it took before it was stopped is not known
    share = evaluate_on(found, settings, settings["backend"]["name"],
                        EvaluationConfig(episodes, seed=SEED + job.seed)).evaluation.satisfied
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high,
            "train_cpu_s": spent}


def played(job: Job, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings by which the job's policy is judged."""
    steps = PLAYED.get((job.task, job.sees))
    return settings if steps is None else {**settings, "algo": {**settings["algo"], "execute": steps}}


def study(out: Path, seeds: int = FEWEST, episodes: int = EPISODES, only: str = "") -> None:
    """Do the jobs that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for job in jobs(seeds):
        if only in job.name and job.name not in studies.read(out):
            print(job.name, json.dumps(studies.add(out, job.name, done(job, out, episodes))), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """Shares of success over all seeds. The residual by the task's own reward has the target, on every seed."""
    found = list[Row]()
    for job in jobs(1):
        name, own = f"vla.rl.{job.kind.replace('/', '.')}", [each for name, each in trials.items()
                                                            if name.rpartition("/")[0] == job.kind]
        target = TARGETS[job.task] if job.arm == "residual+task" else None
        if not own:
            found.append(studies.missing(name, "1", target, "rl-study", "no seed", "vla"))
            continue
        shares = [each["successes"] / each["trials"] for each in own]
        mean, costs = sum(shares) / len(shares), [each["train_cpu_s"] for each in own]
        cost = "seconds not measured" if None in costs else f"{sum(costs) / len(costs):.0f} s of a core each"
        about = f"{len(own)} seeds, {min(shares):.3f} to {max(shares):.3f}; {cost}"
        if target is None or len(own) < FEWEST:
            found.append(Row(name, mean, "1", target, about))
        else:
            found.append(at_least(name, min(shares), "1", target, f"the worst of {about}"))
    return found


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--only", default="", help="part of the names of the jobs to do")
    options = parser.parse_args(argv)
    study(options.out, options.seeds, options.episodes, options.only)
    for row in judged(studies.read(options.out)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
