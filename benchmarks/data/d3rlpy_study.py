"""Returns of IQL, TD3+BC and CQL against d3rlpy 2.8.0 on the same sets, with equal steps; resumable.

    python -m temporeal_benchmarks.data.d3rlpy_study outputs/d3rlpy_study --seeds 1 --updates 5000

Both learn from the same transitions with the hyper-parameters that both call default, and are judged on the same fresh
episodes by the reward that the task trains with.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.data.offline_speed import write
from temporeal_benchmarks.data.sets import made
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.rows import Row

if TYPE_CHECKING:
    from temporeal.policies.data.transitions import Transitions

ALGORITHMS = ("iql", "td3bc", "cql")
TASKS = ("reach", "lift", "mission")
UPDATES, SEEDS, JUDGED = 5000, 3, 100
TOLERANCE = 0.05  # of the spread between the data's return and the better of both: what counts as not worse


def cells(tasks: Sequence[str], algorithms: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Task, algorithm and seed of each comparison."""
    for seed in range(1, seeds + 1):
        for task in tasks:
            yield from ((task, algo, seed) for algo in algorithms)


def compared(out: Path, task: str, algo: str, seed: int, updates: int) -> dict[str, Any]:
    """Train both and judge both."""
    from temporeal.policies.runs import environments, offline
    from temporeal.policies.runs.learners import algorithm

    folder = made(f"{task}-medium", out / "sets")
    settings = offline.settings_of([f"dataset={folder}", f"algo={algo}", f"seed={seed}"])
    settings["algo"] |= {"updates": updates, "evaluate_updates": 0, "report_updates": 500}
    module, configuration = algorithm(settings)
    task_seen = environments.make_task(settings)
    data = offline.steps_of(offline.open_dataset(folder), task_seen, configuration)
    with tempfile.TemporaryDirectory() as run:
        result = module.train(data, configuration, out=Path(run), seed=seed)
        ours = returned(settings, lambda obs: result.actor(result.normalizer(obs)))
        theirs = of_peer(data, Path(run) / "steps.npz", algo, seed, updates, settings)
    earned = torch.zeros(len(data.starts) - 1).index_add_(0, data.episode, data.reward)
    return {"updates": updates, "ours": ours, "d3rlpy": theirs, "data": float(earned.mean())}


def of_peer(data: Transitions, file: Path, algo: str, seed: int, updates: int, settings: Mapping[str, Any]) -> float:
    """Mean return of d3rlpy's policy."""
    write(data, file)
    with Peer("d3rlpy") as peer:
        peer.ask("begin", algo=algo, data=str(file), batch=256, seed=seed, normalize=True)
        peer.ask("update", count=updates)
        return returned(settings, lambda obs: torch.tensor(peer.ask("act", obs=obs.tolist()), dtype=torch.float32))


@torch.no_grad()
def returned(settings: Mapping[str, Any], policy: Callable[[Tensor], Tensor]) -> float:
    """Mean return of fresh episodes, one in each world."""
    from temporeal.policies.evaluate.judging import EVALUATION_SEED
    from temporeal.policies.runs import environments

    env = environments.make_env(settings, num_worlds=JUDGED, seed=settings["seed"] + EVALUATION_SEED)
    obs, alive, total = env.reset().actor, torch.ones(JUDGED), torch.zeros(JUDGED)
    for _ in range(env.task.steps):
        step = env.step(policy(obs).clamp(-1.0, 1.0))
        total += alive * step.reward
        alive *= 1.0 - (step.terminated | step.truncated).float()
        obs = step.obs.actor
    return float(total.mean())


def study(
    out: Path, tasks: Sequence[str] = TASKS, algorithms: Sequence[str] = ALGORITHMS, seeds: int = SEEDS,
    updates: int = UPDATES,
) -> None:
    """Compare what is missing."""
    for task, algo, seed in cells(tasks, algorithms, seeds):
        name = f"{task}/{algo}/{seed}"
        if name not in studies.read(out):
            print(studies.add(out, name, compared(out, task, algo, seed, updates)), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """Our return beside d3rlpy's, by task and algorithm."""
    return [of_algorithm(trials, task, algo) for task in TASKS for algo in ALGORITHMS]


def of_algorithm(trials: Mapping[str, studies.Trial], task: str, algo: str) -> Row:
    """The row of a task and an algorithm."""
    name = f"data.returns.{task}.{algo}"
    there = [trials[f"{task}/{algo}/{s}"] for s in range(1, SEEDS + 1) if f"{task}/{algo}/{s}" in trials]
    if len(there) < SEEDS:
        return studies.missing(name, "1", "not worse", "d3rlpy-study", f"{len(there)} of {SEEDS} seeds")
    ours, theirs, data = (mean(row[key] for row in there) for key in ("ours", "d3rlpy", "data"))
    worst = theirs - TOLERANCE * max(abs(max(ours, theirs) - data), 1e-9)
    return Row(name, ours, "return", f">= {worst:.3g}", f"d3rlpy {theirs:.3f}; the data {data:.3f}", ours >= worst)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("out", type=Path)
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    p.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    p.add_argument("--seeds", type=int, default=SEEDS)
    p.add_argument("--updates", type=int, default=UPDATES)
    given = p.parse_args(argv)
    study(given.out, given.tasks, given.algorithms, given.seeds, given.updates)


if __name__ == "__main__":
    main()
