"""The public API, ``import temporeal as tr``: what commands train, evaluate and export, scripts do, and the reverse.

A run folder made here is what ``temporeal eval`` and ``temporeal export`` take, and theirs are taken here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.runs.training import TrainedRun
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def make_task(name: str | Path, **settings: Any) -> Task:
    """A task by the name of its file in ``configs/task`` (``"hover"``, ``"stl/linear_reach"``), or the path of a Python
    file of yours with ``make() -> Task``.

    Args:
        settings: what the task's ``make`` takes, such as ``constants`` or ``control_dt`` in s.

    Raises:
        ValueError: for an unknown name or setting; the message lists the legal ones.
    """
    from temporeal.policies.runs.environments import make_task as make
    from temporeal.policies.runs.settings.compose import compose

    return make(compose(words(name, {f"task.settings.{key}": value for key, value in settings.items()})))


def make_env(task: Task | str | Path, **options: Any) -> Env:
    """N worlds of a task that step together: ``env.reset()``, ``env.step(action[N, A])``.

    Args:
        task: a task, or what :func:`make_task` takes.
        options: those of :func:`temporeal.sim.env.make_env`, such as ``num_worlds=1024``, ``seed=0``,
            ``backend="auto"``, ``device="cpu"``.
    """
    from temporeal.policies.runs.memory import check_memory
    from temporeal.sim.env import make_env as make

    made = make_task(task) if isinstance(task, str | Path) else task
    count = options.get("num_worlds", 0)
    if isinstance(count, int):  # what else it is, its reader says
        check_memory(lambda worlds: make(made, **{**options, "num_worlds": worlds}), count,
                     str(options.get("device", "cpu")))
    return make(made, **options)


def train(
    task: str | Path, *, algo: str = "ppo", out: str | Path | None = None, overwrite: bool = False, quiet: bool = True,
    settings: Mapping[str, Any] | None = None, **more: Any,
) -> TrainedRun:
    """Train a policy; the run is a folder.

    Args:
        task: as in :func:`make_task`.
        algo: a file of ``configs/algo``.
        out: the run's folder; ``outputs/train/<task>-<algo>-<seed>`` by default.
        overwrite: replace a run that is there.
        quiet: show no progress.
        settings: any setting by its dotted name, ``{"algo.gamma": 0.99}``; ``temporeal train --config`` prints them.
        more: settings whose names have no dots: ``seed=1``, ``num_worlds=1024``, ``backend="mujoco"``.

    Raises:
        ValueError: for a setting that does not exist or does not fit; the message lists the legal ones.
    """
    from temporeal.policies.runs.settings.compose import compose
    from temporeal.policies.runs.training import train as learn

    given = {"algo": algo, **dict(settings or {}), **more, **({} if out is None else {"out": str(out)})}
    return learn(compose(words(task, given)), overwrite=overwrite, quiet=quiet)


def evaluate(
    policy: TrainedRun | str | Path, *, episodes: int = 1000, backend: str | None = None, seed: int | None = None,
    confidence: float = 0.95, task: str | Path | None = None,
) -> Evaluation:
    """Fly fresh episodes of a trained policy, deterministically: how often the formula holds, and by how much.

    Args:
        policy: a run, its folder, or the folder of an artifact.
        backend: the simulator; by default the one it was trained in.
        seed: of the episodes; by default one that the training never used.
        confidence: of the interval (Clopper and Pearson, 1934).
        task: the Python file of the task, where the run was trained on one and another process trained it.

    Returns:
        Its ``satisfied`` has ``estimate``, ``low`` and ``high``; robustness is in the units of the formula's margins.
    """
    from temporeal.policies.runs.evaluating import EvaluationConfig, backends_of, evaluate_on
    from temporeal.policies.runs.settings.compose import override
    from temporeal.policies.runs.trained import load_trained

    trained = load_trained(_folder(policy))
    settings = override(trained.settings, [] if task is None else [f"task={task}"])
    chosen = backends_of(settings, None if backend is None else [backend])[0]
    return evaluate_on(trained, settings, chosen, EvaluationConfig(episodes, confidence, seed)).evaluation


def export(
    run: TrainedRun | str | Path, out: str | Path | None = None, *, name: str | None = None,
    task: str | Path | None = None,
) -> Artifact:
    """Write a run's policy as an artifact and prove it on its recorded trace.

    Args:
        out: the artifact's folder; ``artifact`` in the run's by default.
        name: in the manifest; by default the task's.
        task: as in :func:`evaluate`.
    """
    from temporeal.policies.runs.exporting import export_run

    folder = _folder(run)
    return export_run(folder, folder / "artifact" if out is None else Path(out), name, task)


def load_artifact(folder: str | Path, *, trust: str | Path | None = None) -> Artifact:
    """An artifact, checked against its robot and by its own recorded trace. Needs no torch and no simulator.

    ``artifact.act(signals, memory)`` gives the command of one control step.

    Args:
        trust: file of a public key; an artifact that its key did not sign is refused.
    """
    from temporeal.policies.runs.artifacts import load_artifact as load

    return load(Path(folder), None if trust is None else Path(trust))


def words(task: str | Path, settings: Mapping[str, Any]) -> list[str]:
    """``settings`` as the words of a command line."""
    if not isinstance(task, str | Path):
        raise TypeError(f"a task is named, or its Python file is: got {type(task).__name__}")
    return [f"task={task}", *(f"{key}={literal(value)}" for key, value in settings.items())]


def literal(value: Any) -> str:
    """``value`` in the grammar of Hydra's overrides."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(inner)}" for key, inner in value.items()) + "}"
    if hasattr(value, "tolist"):  # numpy and torch
        return literal(value.tolist())
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, str | Path):
        return str(value) if is_word(str(value)) else "'" + str(value).replace("'", r"\'") + "'"
    return repr(value)


def is_word(text: str) -> bool:
    """Whether ``text`` stays text in Hydra's grammar without quotes."""
    return text.isidentifier() and text.lower() not in ("null", "true", "false", "nan", "inf")


def _folder(of: TrainedRun | str | Path) -> Path:
    if not isinstance(of, str | Path) and not hasattr(of, "folder"):
        raise TypeError(f"a run is what tr.train returned, or the path of its folder; got {of!r}")
    return Path(of) if isinstance(of, str | Path) else of.folder
