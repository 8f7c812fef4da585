"""What 8-bit products cost in success: a policy's artifact in 32 and in 8 bits on the same fresh episodes, one by one.

    python -m temporeal_benchmarks.vla.int8_study RUN [RUN ...] --out FOLDER      of runs that are there

The policies are those of ``rl_study``'s first seed, reach from pictures (algo=vla_few_shot, 0.7 million parameters, the
size ``vla`` of ``benchmarks/vla/inference.py``; ``vla_small``, whose products are 1.5 times as fast in 8 bits, is
another one): the few-shot policy as it was cloned, and with the residual that PPO learned. They are trained where the
study's folder does not have them: 20 minutes of a core for the eye, 10 for each policy. Judged are the artifacts, by
ONNX Runtime, as a robot's worker runs them: a minute and a half of a core for each at 512 episodes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.run_folders import CONFIG
from temporeal.policies.runs.trained import load_trained
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, at_most
from temporeal_benchmarks.vla import rl_study

MOST = 2.0  # target: points of success
EPISODES, SEED = 512, 8000
ARMS = ("base", "residual+task")
WIDE = 1.96  # standard errors of a 95 % interval


def study(out: Path) -> None:
    """The trials that are missing."""
    for arm in ARMS:
        if arm not in studies.read(out):
            run = rl_study.tuned(rl_study.Job("reach", "pictures", arm, 1), out)
            studies.add(out, arm, counted(run, out / "artifacts", EPISODES))


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The loss of each policy."""
    return [loss(arm, trials[arm]) if arm in trials else studies.missing(
        name_of(arm), "points", MOST, "int8-study", "it is not there", "vla") for arm in ARMS]


def name_of(policy: str) -> str:
    """The row of a policy."""
    return f"vla.int8.{policy.partition('+')[0]}.loss"


def counted(run: Path, out: Path, episodes: int) -> dict[str, int]:
    """How many of the same episodes the policy of ``run`` satisfies in 32 bits and in 8, and where they differ. Its
    artifacts are in ``out``."""
    folder = out / key_of(run)
    whole, small = (done(run, folder / kind, kind == "int8", episodes) for kind in ("float32", "int8"))
    return {"episodes": episodes, "float32": int(whole.sum()), "int8": int(small.sum()),
            "lost": int((whole & ~small).sum()), "gained": int((small & ~whole).sum())}


def key_of(run: Path) -> str:
    """The folder's name with a hash of what was learned and how: artifacts of other weights are none of this run's."""
    found, files = hashlib.sha256(), sorted((run / "checkpoints").glob("*.pt"))
    if not files:
        raise BadInput(f"{run} holds no checkpoint: it is not the folder of a run")
    for file in (*files, run / CONFIG):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return f"{run.resolve().name}-{found.hexdigest()[:12]}"


def loss(policy: str, found: Mapping[str, Any]) -> Row:
    """What a policy loses in 8 bits, points of success."""
    episodes, lost, gained = found["episodes"], found["lost"], found["gained"]
    points, error = 100 * (lost - gained) / episodes, 100 * error_of(lost, gained, episodes)
    about = (f"{found['float32']} of {episodes} in 32 bits, {found['int8']} in 8: {lost} lost, {gained} gained; "
             f"95 % [{points - WIDE * error:.1f}, {points + WIDE * error:.1f}]")
    return at_most(name_of(policy), points, "points", MOST, about)


def error_of(lost: int, gained: int, episodes: int) -> float:
    """The standard error of a difference of two shares of the same episodes, of which so many differ."""
    return sqrt(max(lost + gained - (lost - gained) ** 2 / episodes, 0.0)) / episodes


def done(run: Path, folder: Path, int8: bool, episodes: int) -> np.ndarray:
    """Which episodes [E] the artifact of ``run`` satisfies; it is written to ``folder``, unless it is there."""
    if not (folder / "manifest.json").exists():
        export_run(run, folder, int8=int8)
    found = load_trained(folder)
    asked = EvaluationConfig(episodes, seed=SEED)
    judged = evaluate_on(found, found.settings, found.settings["backend"]["name"], asked)
    return np.asarray(judged.evaluation.episodes.satisfied)


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    options = parser.parse_args(argv)
    try:
        keys = list(map(key_of, options.runs))
    except BadInput as error:
        parser.error(str(error))
    for key, run in zip(keys, options.runs):
        print(loss(key, counted(run, options.out, options.episodes)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
