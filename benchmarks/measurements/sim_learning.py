"""``temporeal bench sim-learning``: how well and how fast arm and hand tasks are learnt, from process start."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.cli.console import complain
from temporeal_benchmarks.code_digest import code_digest
from temporeal_benchmarks.machine import machine, short_revision
from temporeal_benchmarks.processes import run_module
from temporeal_benchmarks.results import as_json, study_document
from temporeal_benchmarks.rows import Row, at_least, at_most

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.rollout import Rollout

HELP = (
    "the experiments reach, lift and cube_rotate with seeds 1, 2 and 3, each `temporeal train experiment=NAME seed=S` "
    "in processes of its own, wall time from process start; the deterministic policy judged on 1000 fresh episodes of "
    "another seed, shares with Clopper-Pearson intervals, and the learning curve. Takes hours: finished trainings are "
    "kept in outputs/bench/sim-learning, with study.json of them all, and are not repeated while the code is the same"
)

FOLDER = Path("outputs/bench/sim-learning")
STUDY = "study.json"
SEEDS = (1, 2, 3)
EPISODES = 1000
CURVE = 100  # points of a learning curve, at most
CODE = ("robots", "sim", "policies/algos", "policies/training", "policies/nets", "policies/runs", "configs")
"""What a trained policy depends on, but for what is other tasks' and other algorithms' own."""
OTHERS = ("apg", "cem", "milp", "npc", "reflex", "tgpo")  # algorithms that the learner here does not need
FIGURES = ("p_satisfied", "within_1cm", "rate", "dropped")
QUICK_SECONDS, QUICK_EPISODES = 5.0, 64


@dataclass(frozen=True)
class Experiment:
    """One experiment and what it must reach; ``target`` is of the row ``judged``."""

    name: str
    judged: str
    unit: str
    target: float | None
    seconds: float | None  # of wall time
    note: str = ""


EXPERIMENTS = (
    Experiment("reach", "within_1cm", "1", 0.99, 300.0),
    Experiment("lift", "p_satisfied", "1", 0.95, 1800.0),
    Experiment("cube_rotate", "rate", "rad/s", None, None, "on a CPU the curve reached is reported; on a GPU 1 rad/s"),
)


def run(quick: bool, *, out: Path = FOLDER) -> list[Row]:
    """Train and judge what is not done yet, then all rows. ``quick``: one seed of reach, for seconds, kept nowhere."""
    if quick:
        with tempfile.TemporaryDirectory() as folder:
            words = [f"algo.max_seconds={QUICK_SECONDS}"]
            return rows_of(EXPERIMENTS[0], [trial(EXPERIMENTS[0], 1, Path(folder), QUICK_EPISODES, words)])
    rows: list[Row] = []
    done: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS:
        trials = [trial(experiment, seed, out, EPISODES) for seed in SEEDS]
        done += trials
        rows += rows_of(experiment, trials)
        write_study(out, done, rows)
    return rows


# ---------------------------------------------------------------- a training


def trial(
    experiment: Experiment, seed: int, study: Path, episodes: int, words: Sequence[str] = ()
) -> dict[str, Any]:
    """One training and its judgement, from the study if it is there and still holds."""
    from temporeal.robots.atomic_files import write_whole

    file, title = study / f"{experiment.name}-{seed}.json", f"{experiment.name}, seed {seed}"
    settings = [f"experiment={experiment.name}", f"seed={seed}", *words]
    code = code_of(experiment.name)
    known = kept(file, settings, episodes, code)
    if known is not None:
        complain(f"  {title}: done, {file}")
        return known
    complain(f"  {title}: training")
    out = study / f"{experiment.name}-{seed}"
    # a training that was cut off is made anew: its wall time must be of one piece
    arguments = ["train", *settings, f"out={out}", "--overwrite"]
    revision = short_revision()
    trained = run_module("temporeal.policies.cli.main", arguments, quiet=True)
    complain(f"  {title}: trained in {trained.wall:.0f} s, judging {episodes} episodes")
    figures = {
        "experiment": experiment.name, "seed": seed, "command": f"temporeal train {shlex.join(settings)}",
        "settings": settings, "revision": revision, "code": code, "machine": machine(),
        "wall_s": trained.wall, "cpu_s": trained.cpu, "peak_memory_B": trained.memory, **judged(out, episodes),
        "curve": curve(out)}
    write_whole(file, as_json(figures).encode())
    return figures


def kept(file: Path, settings: Sequence[str], episodes: int, code: str) -> dict[str, Any] | None:
    """The trial in ``file``, if it was made with these settings, as many episodes and this ``code``."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    same = (found.get("settings"), found.get("episodes"), found.get("code")) == ([*settings], episodes, code)
    return found if same else None


def judged(folder: Path, episodes: int) -> dict[str, Any]:
    """Figures of the run's deterministic policy on fresh episodes, of a seed that training never uses."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.judging import EVALUATION_SEED
    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.runs import environments, run_folders, trained
    from temporeal.policies.training.acting import graph_policy

    settings = run_folders.load_run(folder)
    task = environments.make_task(settings)
    graph = trained.load_graph(settings, folder, task)
    seed = settings["seed"] + EVALUATION_SEED
    env = environments.make_env(settings, task=task, num_worlds=episodes, seed=seed)
    found = rollout(env, graph_policy(graph))
    return {"episodes": episodes, "evaluation_seed": seed, "task": task.name, "formula": task.formula_text,
            **figures_of(task.name, evaluate(found, task.formula), found)}


def figures_of(task: str, evaluation: Evaluation, found: Rollout) -> dict[str, Any]:
    """P(satisfied) of the formula and what the task is asked for besides, each share as [estimate, low, high]."""
    p = evaluation.satisfied
    out: dict[str, Any] = {"p_satisfied": [p.estimate, p.low, p.high], "non_finite": evaluation.non_finite}
    if task == "reach":
        away = np.linalg.norm(found.signals["grip_pos_w"][-1] - found.signals["goal_pos_w"][-1], axis=-1)
        out["within_1cm"] = share(found.finite & ~found.terminated & (away < 0.01))
        out["distance_m"] = {"median": float(np.median(away)), "p99": float(np.quantile(away, 0.99))}
    if task == "cube_rotate":
        seconds = found.dt * (found.lengths - 1)
        rate = found.signals["spin"][-1] / np.maximum(seconds, found.dt)
        out["rate"] = [float(np.mean(rate)), *(float(q) for q in np.quantile(rate, (0.05, 0.95)))]
        out["dropped"] = share(found.terminated)
    return out


def share(flags: np.ndarray) -> list[float]:
    """Share of the episodes [E] and its 95 % interval."""
    from temporeal.sim.stl.analysis.binomial import clopper_pearson

    return [float(flags.mean()), *clopper_pearson(int(flags.sum()), len(flags))]


def curve(folder: Path) -> list[dict[str, float]]:
    """What the episodes of training did over its time: exploring, with the run's own starts. At most CURVE points."""
    from temporeal.policies.runs import run_folders
    from temporeal.policies.training import checkpoint

    processes = run_folders.load_run(folder)["processes"]
    history = checkpoint.load(checkpoint.latest(folder / run_folders.CHECKPOINTS, 0, processes))["history"]
    places = np.unique(np.linspace(0, len(history) - 1, min(CURVE, len(history))).round().astype(int))
    names = ("seconds", "steps", "success", "return", "length")
    return [{name: round(float(history[i][name]), 4) for name in names if name in history[i]} for i in places]


# ---------------------------------------------------------------- rows and the study


def rows_of(experiment: Experiment, trials: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows of each seed, and the worst of the seeds, which is judged as well."""
    rows = []
    for found in trials:
        name = f"{experiment.name}.seed{found['seed']}"
        seconds = Row(f"{name}.seconds", found["wall_s"], "s") if experiment.seconds is None else at_most(
            f"{name}.seconds", found["wall_s"], "s", experiment.seconds)
        rows += [seconds, Row(f"{name}.cpu_seconds", found["cpu_s"], "s"),
                 Row(f"{name}.peak_memory", found["peak_memory_B"], "B")]
        rows += [figure_row(experiment, name, key, found[key]) for key in FIGURES if key in found]
    worst, name = min(found[experiment.judged][0] for found in trials), f"{experiment.name}.{experiment.judged}.least"
    return [*rows, judged_row(experiment, name, worst, experiment.note or f"seeds: {len(trials)}")]


def judged_row(experiment: Experiment, name: str, value: float, peer: str) -> Row:
    """A figure of the kind that the experiment is judged by."""
    if experiment.target is None:
        return Row(name, value, experiment.unit, None, peer)
    return at_least(name, value, experiment.unit, experiment.target, peer)


def figure_row(experiment: Experiment, name: str, key: str, values: Sequence[float]) -> Row:
    """An estimate with its interval (of a rate: the 5 % and 95 % quantiles of episodes)."""
    value, low, high = values
    name, peer = f"{name}.{key}", f"[{low:.3f}, {high:.3f}]"
    if key == experiment.judged:
        return judged_row(experiment, name, value, peer)
    return Row(name, value, "rad/s" if key == "rate" else "1", None, peer)


def write_study(folder: Path, trials: Sequence[dict[str, Any]], rows: Sequence[Row]) -> None:
    """``study.json``: what is kept as ``benchmarks/results/sim-learning.json``."""
    from temporeal.robots.atomic_files import write_whole

    whole = study_document("sim-learning", rows, list(trials), seeds=list(SEEDS), episodes=EPISODES)
    write_whole(folder / STUDY, as_json(whole).encode())


def code_of(experiment: str) -> str:
    """Digest of the sources and settings that a trained policy of ``experiment`` depends on."""
    return code_digest(CODE, lambda path: needed(path, experiment))


def needed(path: str, experiment: str) -> bool:
    """Whether ``experiment`` depends on the source ``path``; its task has its name."""
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0]
    if folder in ("configs/experiment", "configs/task", "sim/tasks"):
        return stem in (experiment, "__init__")
    if folder in ("policies/algos", "configs/algo"):
        return stem not in OTHERS
    return folder != "configs/task/stl"
