"""A study of RLPD: an arm lifts a cube after 30,000 control steps and 20 demonstrations, three seeds.

    temporeal bench residual --parts rlpd-study

Demonstrations are the expert's by hand. Each seed has its own, learns with ``SETTINGS`` and is judged by 512 fresh
episodes of the deterministic policy, whatever came on the way. What is done is not done again; a training that was
stopped goes on. No seed was measured with these settings to its end: by a try of 7,000 steps at two updates a step
(5.2 ms an update) a seed takes about 13 minutes of a core.

Settings, and what they are for. A step pays 0.01 to 0.06 until the cube is grasped, so that little entropy may be worth
much: a small temperature at first, and values of rewards alone (as HIL-SERL has it, rail-berkeley/hil-serl 5d02aed).
The reward once per subgoal comes at a moment that the observation does not tell: in tries with it the critics' error
stayed at 0.26, without it at 0.02, and the formula is judged without it all the same. The policy is drawn to what was
demonstrated wherever that is: after some thousand steps it comes to the cube and closes its fingers, if too early.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_least
from temporeal_benchmarks.vla.rl_study import run

PART, SEEDS, EPISODES = "rlpd-study", (1, 2, 3), 512
FRESH = 7000  # seed of the episodes that judge, beside the trial's own
STEPS, DEMONSTRATIONS, TARGET = 30_000, 20, 0.95
SETTINGS = ("algo=rlpd", f"algo.total_steps={STEPS}", "algo.updates_per_step=4.0", "algo.policy_every=2",
            "algo.critics=4", "algo.gamma=0.97", "algo.temperature=0.005", "algo.entropy=-1.0",
            "algo.backup_entropy=false", "algo.imitation=0.5", "algo.imitation_filter=false",
            "task.settings.reward.hit=0", "algo.evaluate_steps=5000", "algo.threads=1")
NAME = "residual.rlpd.lift"


def study(out: Path) -> None:
    """Make the trials that are missing."""
    for seed in SEEDS:
        if f"lift-{seed}" not in studies.read(out):
            studies.add(out, f"lift-{seed}", trial(seed, out))


def trial(seed: int, out: Path) -> studies.Trial:
    """Fresh episodes that satisfy the formula, with the Wilson interval of their share, and what it took."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.trained import load_trained

    began = time.process_time()
    folder = run((f"dataset={demonstrations(seed, out)}", *SETTINGS, f"seed={seed}"), out / "runs" / str(seed))
    seconds, found = time.process_time() - began, load_trained(folder)
    share = evaluate_on(found, found.settings, found.settings["backend"]["name"],
                        EvaluationConfig(EPISODES, seed=FRESH + seed)).evaluation.satisfied
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high,
            "train_cpu_s": seconds}


def demonstrations(seed: int, out: Path) -> Path:
    """A set of the expert's episodes."""
    from temporeal.policies.cli.main import main

    folder = out / "sets" / str(seed)
    words = ["data", "generate", "task=lift", "quality=expert", f"episodes={DEMONSTRATIONS}", f"seed={seed}",
             f"out={folder}", "--json"]
    if not (folder / "meta" / "info.json").exists() and main(words):
        raise RuntimeError(f"temporeal {' '.join(words)} failed")
    return folder


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The worst seed."""
    found = [trials[f"lift-{seed}"] for seed in SEEDS if f"lift-{seed}" in trials]
    if len(found) < len(SEEDS):
        return [studies.missing(NAME, "1", TARGET, PART, f"{len(found)} of {len(SEEDS)} seeds", "residual")]
    said = ", ".join(f"{trial['successes']} of {trial['trials']} [{trial['low']:.3f}, {trial['high']:.3f}]"
                     for trial in found)
    return [at_least(NAME, min(trial["successes"] / trial["trials"] for trial in found), "1", TARGET,
                     f"the worst of {len(SEEDS)} seeds: {said}; {STEPS:,} steps, {DEMONSTRATIONS} demonstrations; "
                     f"{max(trial['train_cpu_s'] for trial in found):.0f} s of a core at most")]
