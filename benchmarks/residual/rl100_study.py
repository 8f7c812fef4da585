"""A study of RL-100's pipeline: what each of its stages reaches on an arm's tasks from states, three seeds.

    temporeal bench residual --parts rl100-study

A trial is one pipeline from noisy demonstrations by hand: imitation, two gated offline iterations with recorded
episodes between, an online phase, one step. Each stage is judged on the same fresh episodes, which nothing was chosen
by. What is done is not done again; a pipeline that was stopped goes on in its stage. No seed was measured when this was
written, nor how long one takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_least

PART, SEEDS, EPISODES = "rl100-study", (1, 2, 3), 512
DEMONSTRATIONS = {"reach": 40, "push": 24}
TARGETS = {"reach": 0.95, "push": 0.9}
"""Of the last stage, on every seed: those of the study of tuning by reinforcement."""
WORDS = {"reach": ("task=reach", "task.settings.constants.reach=0.03", "task.settings.constants.turn=0.3"),
         "push": ("task=push",)}
STAGES = ("algo.stages.imitation={updates: 3000, relative: joint_pos, context: 64, hidden: [128, 128]}",
          "algo.stages.online={total_steps: 1000000, reward: task}")


def study(out: Path) -> None:
    """Make the trials that are missing."""
    for seed in SEEDS:
        for task in WORDS:
            if f"{task}-{seed}" not in studies.read(out):
                studies.add(out, f"{task}-{seed}", trial(task, seed, out))


def trial(task: str, seed: int, out: Path) -> studies.Trial:
    """What each stage reached, and the processor time of all."""
    from temporeal.policies.runs import training
    from temporeal.policies.runs.tuning_runs import bases as tuning

    began, folder = time.process_time(), out / "runs" / task / str(seed)
    words = ("algo=rl100", f"dataset={demonstrations(task, seed, out)}", f"algo.episodes={EPISODES}", *STAGES,
             f"seed={seed}", f"out={folder}")
    begun = (folder / "config.yaml").exists()
    training.train({**tuning.settings_of([*words]), "resume": begun or None}, overwrite=not begun, quiet=True)
    stages = json.loads((folder / "stages.json").read_text())["done"]
    return {"stages": {stage["name"]: {key: stage[key] for key in ("success", "low", "high", "accepted", "refused")
                                       if key in stage} for stage in stages},
            "episodes": EPISODES, "train_cpu_s": time.process_time() - began}


def demonstrations(task: str, seed: int, out: Path) -> Path:
    """A set of noisy demonstrations."""
    from temporeal.policies.cli.main import main

    folder = out / "sets" / task / str(seed)
    words = ["data", "generate", *WORDS[task], "quality=noisy", f"episodes={DEMONSTRATIONS[task]}", f"seed={seed}",
             f"out={folder}", "--json"]
    if not (folder / "meta" / "info.json").exists() and main(words):
        raise RuntimeError(f"temporeal {' '.join(words)} failed")
    return folder


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """A row for each task: the last stage on the worst of the seeds, and what the imitation reached."""
    found = list[Row]()
    for task, target in TARGETS.items():
        name, own = f"residual.rl100.{task}", [trials[key] for seed in SEEDS if (key := f"{task}-{seed}") in trials]
        if len(own) < len(SEEDS):
            found.append(studies.missing(name, "1", target, PART, f"{len(own)} of {len(SEEDS)} seeds", "residual"))
            continue
        last = [list(each["stages"].values())[-1]["success"] for each in own]
        first = [each["stages"]["imitation"]["success"] for each in own]
        cost = sum(each["train_cpu_s"] for each in own) / len(own)
        found.append(at_least(name, min(last), "1", target, f"the worst of {len(own)} seeds; imitation "
                              f"{min(first):.3f} to {max(first):.3f}; {cost:.0f} s of a core each"))
    return found
