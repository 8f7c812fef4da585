"""Evaluate a run or an artifact on fresh episodes, and write its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import corrected_policy
from temporeal.policies.runs.residual.opening import is_corrected
from temporeal.policies.runs.run_folders import EVENTS, title_of
from temporeal.policies.runs.settings.handed_over import described_by
from temporeal.policies.runs.trained import Trained, trained_policy
from temporeal.robots.registry import guess, names

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.judging import Judged
    from temporeal.policies.evaluate.pairs import Pairs
    from temporeal.policies.evaluate.report.outputs import Report
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

BACKEND_TITLES = {"quadrotor": "Own simulator (quadrotor)", "planar": "Own simulator (plane)", "mujoco": "MuJoCo"}
"""Titles of backends in reports, where not their names."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Which episodes are evaluated, and how.

    Args:
        episodes: per simulator.
        confidence: of the interval.
        seed: of the episodes; None: one that the training never uses.
    """

    episodes: int = 1000
    confidence: float = 0.95
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise BadInput(f"--episodes is at least 1, got {self.episodes}")
        if not 0 < self.confidence < 1:
            raise BadInput(f"--confidence lies between 0 and 1, both excluded, got {self.confidence}")


def evaluate_on(
    trained: Trained, settings: Mapping[str, Any], backend: str, config: EvaluationConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Judged:
    """Evaluate ``trained`` on ``backend``, in the task and randomization that ``settings`` describe."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.judging import EVALUATION_SEED, Judged, reference_of
    from temporeal.policies.evaluate.rollout import rollout

    seed = settings["seed"] + EVALUATION_SEED if config.seed is None else config.seed
    with described_by(trained.folder):
        task = environments.make_task(settings)
        policy = trained_policy(trained, settings, task)
        env = environments.make_env(settings, task=policy.task, num_worlds=config.episodes, backend=backend, seed=seed)
        act = policy.act(env)
    started = time.perf_counter()
    found = rollout(env, act, progress=progress)
    seconds = time.perf_counter() - started
    evaluation = evaluate(found, task.formula, reference=reference_of(task), confidence=config.confidence)
    return Judged(evaluation, found, seconds, beside_base(trained, settings, env, evaluation))


def beside_base(trained: Trained, settings: Mapping[str, Any], env: Env, evaluation: Evaluation) -> Pairs | None:
    """Of a policy that corrects a base: its episodes beside the base's, from the same starts; else None."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.pairs import paired
    from temporeal.policies.evaluate.rollout import rollout

    if trained.artifact is not None or trained.served is not None or not is_corrected(settings):
        return None
    _, act, _ = corrected_policy(trained.folder, settings, environments.make_task(settings), corrected=False)
    env.reseed(env.seed)
    alone = evaluate(rollout(env, act(env), keep=read_by(env.task)), env.task.formula, delays=0)
    return paired(evaluation.episodes.satisfied, alone.episodes.satisfied)


def read_by(task: Task) -> list[str]:
    """The signals that the task's formula reads."""
    from temporeal.sim.stl.language.queries import signals_in

    return list(signals_in(task.formula))


def write_report(
    settings: Mapping[str, Any], judged: Mapping[str, Judged], folder: Path, require: float | None = None,
    run: Path | None = None,
) -> Report:
    """Write ``report.html`` and ``report.json``: ``judged`` by backend; ``require``: the probability asked for;
    ``run``: the folder of the training, for its learning curves."""
    from temporeal.policies.evaluate.report.learning import curves_of
    from temporeal.policies.evaluate.report.outputs import make_report

    facts, curves = {}, []
    try:
        curves = [] if run is None else curves_of(run / EVENTS)
    except ValueError as error:
        facts = {"Learning curves": str(error)}
    rows = [(key, BACKEND_TITLES.get(key, key), found.evaluation, found.rollout) for key, found in judged.items()]
    return make_report(environments.make_task(settings), rows, folder, require=require, settings=settings,
                       title=title_of(settings), facts=facts, curves=curves)


def caveat(settings: Mapping[str, Any]) -> str:
    """What the algorithm has besides the evaluated policy; empty if nothing."""
    if (settings.get("algo") or {}).get("name") != "npc":
        return ""
    from temporeal.policies.algos.npc import JUDGED_WITHOUT

    return f"algo=npc: {JUDGED_WITHOUT}"


def check_backends(chosen: Sequence[str] | None) -> None:
    """Refuse the name of a backend that does not exist, without importing any."""
    known = names("temporeal.sim.backends")
    for name in chosen or ():
        if name not in known:
            raise BadInput(f"--backend {name}: {guess(name, known)}one of {', '.join(known)} is needed")


def backends_of(settings: Mapping[str, Any], chosen: Sequence[str] | None) -> list[str]:
    """The ``chosen`` backends, each once; the one of the settings if none is chosen."""
    return list(dict.fromkeys(chosen or [settings["backend"]["name"]]))
