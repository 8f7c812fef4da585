"""A study of Meta-World's MT10 from two 64x64 cameras and a sentence: one policy for ten tasks that nobody here wrote.

    python -m temporeal_benchmarks.vla.metaworld_study outputs/mt10                        all that is missing
    python -m temporeal_benchmarks.vla.metaworld_study outputs/mt10 --seeds 1 --arms many  some of it
    python -m temporeal_benchmarks.vla.metaworld_study outputs/small --tasks drawer-close-v3,button-press-topdown-v3 \\
        --seeds 1 --arms many --demonstrations 10 --updates 500 --episodes 16               a try, in minutes

``many``: one policy of all tasks, from 40 demonstrations a task by the library's scripted policies; execution is noisy,
labels are clean. ``few``: a new expert on the frozen encoder of ``many``, from 2 demonstrations a task. ``rl``: ``few``
and a residual of its chunks, by PPO on success, in worlds of all tasks at once. Judged by fresh episodes of each task;
goals that no body shows are inputs. What is done is not done again; cloning that was stopped goes on, tuning begins
anew.

One core, a seed, on a machine with other work: sets 12 minutes, many 33, few 5, rl 13, judging 3 an arm: 72 minutes.
A try of two tasks, 10 demonstrations and 500 updates took 140 s of one core and reached 16 of 16 fresh episodes of each
(not kept).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.sim.adapters.meta_world_sentences import MT10
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_least
from temporeal_benchmarks.vla.rl_study import run, whole

FEWEST, SEED, PART = 3, 9000, "metaworld-study"
ARMS = ("many", "few", "rl")
TARGETS = {"many": 0.85, "few": None, "rl": 0.85}
WORLD = ("task=metaworld", "task.settings.see=hand", "task.settings.steps=200",
         *(f"cameras.{name}={{width: 64, height: 64, kinds: [rgb]}}" for name in ("right", "front")))
READ = ("hand_pos_w", "hand_opening", "goal_pos_w", "instruction", "right_rgb", "front_rgb")
CLONED = (f"algo.signals=[{','.join(READ)}]", "algo.horizon=8", "algo.channels=[16,32,32,32]", "algo.pointers=2",
          "algo.evaluate_updates=0")
NOISE = {"push-v3": "0,0.1,0.2", "pick-place-v3": "0,0.1,0.2", "peg-insert-side-v3": "0,0.1,0.2"}
"""Standard deviations, one for each episode, where those of the others make experts drop what they hold."""
USUAL, LASTS = "0,0.3,0.5", 0.035  # s: 0.7 from one control step to the next
FAILS = {"peg-insert-side-v3": 2.0, "door-open-v3": 1.25}
"""How many times more episodes are generated, because the expert or the 200 steps fail: successes are kept."""
SPARE = 4  # episodes more, so that two demonstrations are there
TUNED = ("algo=residual", "algo.reward=sparse", "algo.spread=0.2", "num_worlds=40")


@dataclass(frozen=True)
class Size:
    """What a study costs. The default is the study; others are tries.

    Args:
        tasks: of the policy. demonstrations: of each task, of ``many``; few: of ``few``.
        updates: of ``many``. steps: control steps of ``rl``, of all tasks. episodes: fresh ones of each task that judge
            a policy.
    """

    tasks: tuple[str, ...] = MT10
    demonstrations: int = 40
    few: int = 2
    updates: int = 12_000
    steps: int = 400_000
    episodes: int = 52


def command(*words: str) -> None:
    """A command of temporeal that must succeed."""
    from temporeal.policies.cli.main import main

    if main(list(words)):
        raise RuntimeError(f"temporeal {' '.join(words)} failed")


def demonstrations(task: str, count: int, seed: int, out: Path) -> Path:
    """``count`` successful demonstrations of a task, or fewer where the expert fails more often than expected."""
    from temporeal.policies.data.curation.copying import originals, own_interface, write
    from temporeal.policies.data.curation.selection import successes
    from temporeal.policies.data.episodes.dataset import Dataset

    def make(folder: Path) -> None:
        command("data", "generate", *WORLD, f"task.settings.env={task}", "quality=noisy",
                f"noise={NOISE.get(task, USUAL)}", f"lasts={LASTS}", "tail=10",
                f"episodes={round(count * FAILS.get(task, 1.0)) + SPARE}", f"seed={seed}", f"out={folder}", "--json")

    def won(folder: Path) -> None:
        data = Dataset.open(whole(folder.with_name(f"{task}-{count}-{seed}-all"), make))
        write(folder, own_interface(data), originals(data, np.flatnonzero(successes(data) == 1)[:count]), "successes")

    return whole(out / "sets" / f"{task}-{count}-{seed}", won)


def one_set(size: Size, count: int, seed: int, out: Path) -> Path:
    """The demonstrations of all tasks."""
    folder = out / "sets" / f"all-{len(size.tasks)}-{count}-{seed}"
    sets = [str(demonstrations(task, count, seed, out)) for task in size.tasks]
    if len(sets) == 1:
        return Path(sets[0])
    return whole(folder, lambda part: command("data", "merge", *sets, "--out", str(part), "--json"))


def trained(arm: str, seed: int, size: Size, out: Path) -> Path:
    """The run of an arm."""
    runs = out / "runs" / str(seed)
    if arm == "many":
        dataset = one_set(size, size.demonstrations, seed, out)
        return run(["algo=vla", *CLONED, f"algo.updates={size.updates}", f"dataset={dataset}", f"seed={seed}"],
                   runs / arm)
    if arm == "few":
        encoder = trained("many", seed, size, out)
        dataset = one_set(size, size.few, seed + 100, out)
        return run(["algo=vla_few_shot", *CLONED, f"algo.policy={encoder}", f"dataset={dataset}", f"seed={seed}"],
                   runs / arm)
    folder, over = runs / arm, runs / f"{arm}.over"
    if not over.exists():  # the library's worlds cannot be saved, so a tuning that was stopped begins anew
        base, tasks = trained("few", seed, size, out), ",".join(size.tasks)
        shutil.rmtree(folder, ignore_errors=True)
        run([*TUNED, f"algo.policy={base}", *WORLD, f"task.settings.env='{tasks}'", f"algo.total_steps={size.steps}",
             f"seed={seed}"], folder)
        over.touch()
    return folder


def success(folder: Path, task: str, episodes: int, seed: int) -> dict[str, Any]:
    """Fresh episodes of ``task`` in which the goal is reached."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.settings.compose import override
    from temporeal.policies.runs.trained import load_trained

    found = load_trained(folder)
    settings = override(found.settings, [f"task.settings.env={task}"])
    share = evaluate_on(found, settings, settings["backend"]["name"],
                        EvaluationConfig(episodes, seed=SEED + seed)).evaluation.satisfied
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high}


def names(size: Size, seeds: int, arms: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Arm, task and seed of each trial: a seed after the other, what others are made of first."""
    for seed in range(1, seeds + 1):
        for arm in arms:
            for task in size.tasks:
                yield arm, task, seed


def study(out: Path, seeds: int = FEWEST, size: Size = Size(), arms: Sequence[str] = ARMS) -> None:
    """Make the trials that are missing."""
    import torch

    torch.set_num_threads(1)
    for arm, task, seed in names(size, seeds, arms):
        name = f"{arm}/{task}/{seed}"
        if name in studies.read(out):
            continue
        began = time.process_time()
        folder = trained(arm, seed, size, out)
        cost = time.process_time() - began  # 0 where an earlier trial's policy is judged
        found = {**success(folder, task, size.episodes, seed), "train_cpu_s": cost}
        print(name, json.dumps(studies.add(out, name, found)), flush=True)


def judged(trials: Mapping[str, studies.Trial], size: Size = Size()) -> list[Row]:
    """The share of success of each arm over its tasks, of the worst seed, and of each task over the seeds."""
    found = list[Row]()
    for arm in ARMS:
        mine = {name: each for name, each in trials.items() if name.startswith(f"{arm}/")}
        whole = [seed for seed in {name.rpartition("/")[2] for name in mine}
                 if all(f"{arm}/{task}/{seed}" in mine for task in size.tasks)]
        shares = [sum(share(mine[f"{arm}/{task}/{seed}"]) for task in size.tasks) / len(size.tasks) for seed in whole]
        row, target = f"vla.mt10.{arm}", TARGETS[arm]
        if not shares:
            found.append(studies.missing(row, "1", target, PART, "no seed", "vla"))
        elif len(shares) < FEWEST:
            found.append(Row(row, min(shares), "1", target, f"{len(shares)} of {FEWEST} seeds: not judged"))
        elif target is None:
            found.append(Row(row, min(shares), "1", peer=f"the worst of {len(shares)} seeds"))
        else:
            found.append(at_least(row, min(shares), "1", target, f"the worst of {len(shares)} seeds"))
        for task in size.tasks:
            own = [share(each) for name, each in mine.items() if name.split("/")[1] == task]
            if own:
                found.append(Row(f"{row}.{task}", sum(own) / len(own), "1", peer=f"{len(own)} seeds"))
    return found


def share(trial: studies.Trial) -> float:
    """Of successes."""
    return float(trial["successes"] / trial["trials"])


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}")
    parser.add_argument("--tasks", default=",".join(MT10))
    for name in ("demonstrations", "few", "updates", "steps", "episodes"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Size(), name))
    options = parser.parse_args(argv)
    size = Size(tuple(options.tasks.split(",")), options.demonstrations, options.few, options.updates, options.steps,
                options.episodes)
    study(options.out, options.seeds, size, options.arms.split(","))
    for row in judged(studies.read(options.out), size):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
