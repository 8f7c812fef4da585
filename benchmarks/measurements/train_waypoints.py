"""``temporeal bench train-waypoints``: how often the demo's training ends with a policy that is good enough."""

from __future__ import annotations

import tempfile
from pathlib import Path

from temporeal_benchmarks.processes import Run, run_module
from temporeal_benchmarks.rows import Row, at_least, at_most

HELP = (
    "the demo's training of the mission waypoints with every seed, from process start, judged with the deterministic "
    "policy on fresh randomized episodes in our simulator and in MuJoCo: P(satisfied) of each with its Clopper-Pearson "
    "interval, the least of them, time and memory"
)

SEEDS = (1, 2, 3)
EPISODES = {"quadrotor": 1000, "mujoco": 500}
REQUIRED = {"quadrotor": 0.98, "mujoco": 0.95}
SECONDS = 180.0  # target from process start, two cores
MEMORY = 1.5e9  # B, target


def run(quick: bool, *, out: Path | None = None) -> list[Row]:
    """Train and judge, one seed after the other."""
    rows: list[Row] = []
    shares: dict[str, list[float]] = {name: [] for name in EPISODES}
    for seed in SEEDS[:1] if quick else SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            trained = train(seed, Path(folder) / "run", quick)
            rows += trained_rows(seed, trained)
            for name, episodes in EPISODES.items():
                found = judged(seed, Path(folder) / "run", name, episodes)
                rows += found
                shares[name] += [row.value for row in found[:1] if row.value is not None]
    return rows + [at_least(f"{name}.p_satisfied.least", min(found), "1", REQUIRED[name], f"seeds: {len(found)}")
                   for name, found in shares.items()]


def train(seed: int, out: Path, quick: bool) -> Run:
    """``temporeal train experiment=demo``."""
    words = ["train", "experiment=demo", f"seed={seed}", f"out={out}", *(["algo.max_seconds=20"] if quick else [])]
    return run_module("temporeal.policies.cli.main", words, quiet=True)


def trained_rows(seed: int, trained: Run) -> list[Row]:
    """What a training took."""
    name = f"seed{seed}"
    return [at_most(f"{name}.seconds", trained.wall, "s", SECONDS),
            at_most(f"{name}.peak_memory", trained.memory, "B", MEMORY)]


def judged(seed: int, folder: Path, backend: str, episodes: int) -> list[Row]:
    """P(satisfied) as the demo judges it, and the ends of its interval."""
    from temporeal.policies.cli.verbs.demo import judge
    from temporeal.policies.runs import environments, run_folders, trained

    settings = run_folders.load_run(folder)
    graph = trained.load_graph(settings, folder, environments.make_task(settings))
    p = judge(settings, graph, backend, episodes, quiet=True).evaluation.satisfied
    name = f"seed{seed}.{backend}.p_satisfied"
    return [at_least(name, p.estimate, "1", REQUIRED[backend], f"{episodes} episodes"),
            Row(f"{name}.low", p.low), Row(f"{name}.high", p.high)]
