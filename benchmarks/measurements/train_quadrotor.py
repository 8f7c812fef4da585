"""``temporeal bench train-quadrotor``: how long until a quadrotor hovers, for each learner, from process start."""

from __future__ import annotations

import argparse
import copy
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from temporeal_benchmarks.processes import Run, run_module
from temporeal_benchmarks.rows import Row, at_least, at_most

if TYPE_CHECKING:
    from torch import Tensor

HELP = (
    "time to learn the hover task of Learning to Fly in Seconds (L2F) to what its own 300,001 steps reach (mean "
    "episode length 468 of 500), each seed in a fresh process: analytic policy gradient, and PPO; judged on fresh "
    "episodes of another simulator than the gradient learner's. Peer: L2F itself, where TEMPOREAL_L2F_BINARY is "
    "the path of its training program"
)

THRESHOLD = 468  # control steps of 500: what L2F's own run reached
SECONDS = 5.0  # target from process start, two cores
MEMORY = 1.5e9  # B, target
SEEDS = (1, 2, 3)
JUDGE_SEED = 1_000_003  # of the fresh episodes
HISTORY = 32  # past actions in the observation, as in L2F
APG = "temporeal.policies.algos.apg"
EVERY = 10  # updates of the gradient learner between snapshots
PPO_SECONDS = 60.0
PPO_EVERY = 2.0  # s between snapshots
# few rows per step, short windows, and an entropy bonus that keeps the policy wide enough to move fast
PPO_SETTINGS: dict[str, Any] = {
    "rollout_steps": 16, "minibatches": 4, "epochs": 3, "gae_lambda": 0.9, "entropy_coef": 0.005, "desired_kl": 0.02,
    "final_kl": 0.2, "max_learning_rate": 3e-3, "init_std": 0.4,
    "threads": 1,  # two have too little to do on 2048 rows
}  # fmt: skip
L2F_NOTE = "L2F not measured: TEMPOREAL_L2F_BINARY does not name its training program"


class Snapshot(NamedTuple):
    """The policy at one moment of training."""

    seconds: float  # since the process was started
    policy: Callable[[Tensor], Tensor]  # observation [N, O] -> action [N, 4]


class Trial(NamedTuple):
    """One training in its own process."""

    wall: float  # s, from its start to its exit
    cpu: float  # s, of all its threads
    memory: float  # B, peak
    reached: float | None  # s to the first snapshot at or above the threshold
    length: float  # mean episode length of the final policy


def run(quick: bool, *, out: Path | None = None) -> list[Row]:
    """Train with every seed, one process after the other."""
    seeds, episodes = (SEEDS[:1], 256) if quick else (SEEDS, 1024)
    with tempfile.TemporaryDirectory() as folder:
        run_module(APG, ["--updates", "1", "--out", f"{folder}/warm.npz"])  # fills numba's cache
        gradient = [apg_trial(seed, Path(folder), episodes) for seed in seeds]
        ppo = [ppo_trial(seed, Path(folder), episodes, 10.0 if quick else PPO_SECONDS) for seed in seeds]
    peer = _l2f()
    rows = [row for seed, trial in zip(seeds, gradient) for row in _apg_rows(seed, trial, peer)]
    rows.append(at_most("apg.seconds.median", median(t.wall for t in gradient), "s", SECONDS, peer))
    for seed, trial in zip(seeds, ppo):
        rows += _ppo_rows(seed, trial)
    return rows


def _apg_rows(seed: int, trial: Trial, peer: str) -> list[Row]:
    name = f"apg.seed{seed}"
    return [
        Row(f"{name}.seconds", trial.wall, "s", SECONDS, peer, trial.wall <= SECONDS and trial.length >= THRESHOLD),
        Row(f"{name}.cpu_seconds", trial.cpu, "s"),
        at_least(f"{name}.episode_length", trial.length, "steps of 500", THRESHOLD, "L2F 468"),
        _reached(name, trial),
        at_most(f"{name}.peak_memory", trial.memory, "B", MEMORY),
    ]


def _ppo_rows(seed: int, trial: Trial) -> list[Row]:
    name = f"ppo.seed{seed}"
    return [
        _reached(name, trial),
        Row(f"{name}.cpu_seconds", trial.cpu, "s"),
        Row(f"{name}.episode_length", trial.length, "steps of 500"),
        at_most(f"{name}.peak_memory", trial.memory, "B", MEMORY),
    ]


def _reached(name: str, trial: Trial) -> Row:
    """The time to the threshold."""
    why = "not reached" if trial.reached is None else None
    return Row(f"{name}.seconds_to_threshold", trial.reached, "s", None, why)


# --- trials: a process each, so that the time includes the interpreter, imports and loading of compiled code ---


def apg_trial(seed: int, folder: Path, episodes: int) -> Trial:
    """Analytic policy gradient, its default settings."""
    import numpy as np

    from temporeal.policies.algos.apg import Actor
    from temporeal.policies.training.apg.networks import Mlp

    out = folder / f"apg{seed}.npz"
    run = run_module(APG, ["--seed", str(seed), "--every", str(EVERY), "--out", str(out)])
    with np.load(out, allow_pickle=False) as data:
        sizes = [int(s) for s in data["sizes"]]
        snapshots = [
            Snapshot(float(when) - run.began, Actor(Mlp.of(sizes, flat)).to_actor())
            for when, flat in zip(data["snapshot_time"], data["snapshot_flat"])
        ]
        final = Actor(Mlp.of(sizes, data["flat"])).to_actor()
    return _trial(run, snapshots, final, episodes)


def ppo_trial(seed: int, folder: Path, episodes: int, seconds: float) -> Trial:
    """PPO for ``seconds`` on the task with the reward L2F begins with."""
    import torch

    out = folder / f"ppo{seed}"
    run = run_module(__name__, ["--seed", str(seed), "--seconds", str(seconds), "--out", str(out)])
    saved = torch.load(out / "snapshots.pt", weights_only=False)  # written by the process just started
    snapshots = [Snapshot(when - run.began, torch.nn.Sequential(*modules)) for when, modules in saved]
    return _trial(run, snapshots, snapshots[-1].policy, episodes)


def _trial(run: Run, snapshots: Sequence[Snapshot], final: Callable[[Tensor], Tensor], episodes: int) -> Trial:
    reached = next((s.seconds for s in snapshots if episode_length(s.policy, episodes) >= THRESHOLD), None)
    return Trial(run.wall, run.cpu, run.memory, reached, episode_length(final, episodes))


def episode_length(policy: Callable[[Tensor], Tensor], episodes: int) -> float:
    """Mean length of fresh episodes [control steps, at most 500] under the deterministic ``policy``."""
    import torch

    from temporeal.sim.physics.quadrotor.fused import TARGET, FusedHover

    env = FusedHover(episodes, seed=JUDGE_SEED, task=TARGET, history=HISTORY)
    obs = env.reset().actor
    length, flying = torch.zeros(episodes), torch.ones(episodes, dtype=torch.bool)
    with torch.no_grad():
        for _ in range(TARGET.episode_steps):
            step = env.step(policy(obs))
            length += flying
            flying &= ~(step.terminated | step.truncated)
            obs = step.obs.actor
    return float(length.mean())


def _l2f() -> str:
    """Time of L2F's own training program in this run, where there is one."""
    binary = os.environ.get("TEMPOREAL_L2F_BINARY")
    if not binary:
        return L2F_NOTE
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([binary], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"L2F, same run: {time.perf_counter() - began:.1f} s wall, {after.ru_utime - before.ru_utime:.1f} s CPU"


# --- the process of a PPO trial ---


def main(argv: Sequence[str] | None = None) -> int:
    """Train PPO for some seconds, keep the policy about once a second."""
    p = argparse.ArgumentParser(f"python -m {__name__}")
    p.add_argument("--seed", type=int, required=True)
    p.add_argument("--seconds", type=float, required=True)
    p.add_argument("--out", type=Path, required=True)
    options = p.parse_args(argv)

    import torch

    from temporeal.policies.algos import ppo
    from temporeal.policies.training import ppo_state
    from temporeal.policies.training.ppo_state import Learner
    from temporeal.sim.physics.quadrotor.fused import TRAINING, FusedHover

    snapshots: list[tuple[float, tuple[torch.nn.Module, ...]]] = []

    def keep(learner: Learner) -> None:
        if not snapshots or time.time() - snapshots[-1][0] >= PPO_EVERY:
            snapshots.append((time.time(), copy.deepcopy((learner.normalizer, learner.actor))))

    # with the reward that L2F begins with: that of its evaluation is negative early on, and leaving the box pays
    env = FusedHover(512, seed=options.seed, task=TRAINING, history=HISTORY)
    settings = ppo_state.PPOConfig(max_seconds=options.seconds, total_steps=10**9, **PPO_SETTINGS)
    result = ppo.train(env, settings, out=options.out, seed=options.seed, on_iteration=keep)
    snapshots.append((time.time(), (result.normalizer, result.actor)))
    torch.save(snapshots, options.out / "snapshots.pt")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
