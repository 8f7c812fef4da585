"""What 8-bit products cost in success: a policy's artifact in 32 and in 8 bits on the same fresh episodes, one by one.

    python -m temporeal_benchmarks.vla.int8 RUN [RUN ...] --out FOLDER      of runs that are there

The policies are those of ``rl_study``'s first seed, reach from pictures (algo=vla_few_shot, 0.7 million parameters, the
size ``vla`` of ``benchmarks/vla/inference.py``; ``vla_small``, whose products are 1.5 times as fast in 8 bits, is
another one): the few-shot policy as it was cloned, and with the residual that PPO learned. They are trained where the
study's folder does not have them: 20 minutes of a core for the eye, 10 for each policy. Judged are the artifacts, by
ONNX Runtime, as a robot's worker runs them: a minute and a half of a core for each at 512 episodes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np

from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.trained import load_trained
from temporeal_benchmarks.rows import Row, at_most
from temporeal_benchmarks.vla import rl_study

MOST = 2.0  # target: points of success
EPISODES, FEW, SEED = 512, 32, 8000
ARMS = ("base", "residual+task")
WIDE = 1.96  # standard errors of a 95 % interval


def rows(quick: bool, out: Path) -> list[Row]:
    """The losses of the study's policies. Quick: of the cloned one alone, on few episodes."""
    found = list[Row]()
    for arm in ARMS[: 1 if quick else len(ARMS)]:
        run = rl_study.tuned(rl_study.Job("reach", "pictures", arm, 1), out / "study")
        found.append(loss(arm.partition("+")[0], run, out / arm, FEW if quick else EPISODES))
    return found


def loss(name: str, run: Path, out: Path, episodes: int) -> Row:
    """What the policy of ``run`` loses in 8 bits, points of success."""
    whole, small = (done(run, out / kind, kind == "int8", episodes) for kind in ("float32", "int8"))
    lost, gained = int((whole & ~small).sum()), int((small & ~whole).sum())
    points, error = 100 * (lost - gained) / episodes, 100 * error_of(lost, gained, episodes)
    about = (f"{whole.sum()} of {episodes} in 32 bits, {small.sum()} in 8: {lost} lost, {gained} gained; "
             f"95 % [{points - WIDE * error:.1f}, {points + WIDE * error:.1f}]")
    return at_most(f"vla.int8.{name}.loss", points, "points", MOST, about)


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
    for run in options.runs:
        print(loss(run.parent.name, run, options.out / run.parent.name, options.episodes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
