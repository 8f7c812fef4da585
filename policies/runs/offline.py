"""Train a learner from data: the settings, the dataset and the task that they are about, and the run."""

from __future__ import annotations

import inspect
import time
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks, environments, progress, run_folders
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.interrupts import Interrupted, stop_asked
from temporeal.policies.runs.pipelines.gates import FittedGate
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.settings.files import Settings, read, write
from temporeal.policies.runs.settings.handed_over import checked as plain
from temporeal.policies.runs.settings.overrides import parse_override
from temporeal.policies.runs.trained_run import TrainedRun, events, naming_checkpoint
from temporeal.robots.registry import guess_file

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.training.acting import Act
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

WORLD = ("robot", "task", "backend", "randomize")
"""Groups of settings that say what a dataset is about."""


def settings_of(words: Sequence[str]) -> Settings:
    """The settings of a command's ``words``; without ``task=``, the dataset says which task it is about."""
    folder = next((named(word) for word in reversed(words) if word.startswith("dataset=")), "")
    if not folder or any(word.startswith("task=") for word in words):
        return compose(words)
    return settings_about(named_dataset(folder), words)


def named(word: str) -> str:
    """The folder that a word ``dataset=FOLDER`` names in the grammar of overrides; "" for null."""
    value = parse_override(word).value()
    return "" if value is None else str(value)


def settings_about(dataset: Dataset, words: Sequence[str]) -> Settings:
    """The settings of a command's ``words``, and for the rest the world that ``dataset`` says it is about."""
    about = dict(dataset.interface.about.get("settings") or {})
    if "task" not in about:
        return compose(words)
    of_world = [word for word in words if word.partition("=")[0].partition(".")[0] in WORLD]
    with bad_input():
        settings = compose([word for word in words if word not in of_world])
        groups = (*WORLD, "cameras") if chunks.gives_chunks(settings) else WORLD
        held = plain({key: about[key] for key in groups if key in about}, str(dataset.folder))
        return override({**settings, **held}, of_world)


def open_dataset(folder: str | Path) -> Dataset:
    """The dataset in ``folder``."""
    from temporeal.policies.data.episodes.dataset import Dataset

    with bad_input():
        return Dataset.open(Path(folder))


def named_dataset(folder: str) -> Dataset:
    """The set that ``dataset=FOLDER`` names."""
    if not Path(folder).exists():
        near = guess_file(Path(folder))
        raise BadInput(f"dataset={folder}: there is no such folder; {near}`temporeal data generate` makes a set, "
                       "`temporeal data record` records one")
    return open_dataset(folder)


def task_of(data: Dataset) -> Task | None:
    """The task that a set was generated with; None where it names none."""
    return environments.make_task(settings_about(data, [])) if names_task(data) else None


def names_task(data: Dataset) -> bool:
    """Whether a set says which task it is about."""
    return "task" in dict(data.interface.about.get("settings") or {})


def require_task(data: Dataset, task: Task, otherwise: str = "") -> None:
    """Refuse a set that names no task and is of another robot than ``task``, which nobody may have asked for.
    ``otherwise``: what else can be done."""
    if not names_task(data) and data.interface.robot != task.robot.name:
        raise BadInput(f"{data.folder} names no task, and task {task.name!r} as set is of robot {task.robot.name}, not "
                       f"{data.interface.robot}: give task=NAME of a robot with these signals{otherwise}")


def train(
    settings: Settings, module: ModuleType, configuration: Any, *, overwrite: bool = False, quiet: bool = False,
    again: str = "",
) -> TrainedRun:
    """Train as the settings say; see :func:`temporeal.policies.runs.training.train`."""
    name = settings["algo"]["name"]
    if not settings.get("dataset"):
        raise BadInput(f"algo={name} learns from episodes: dataset=FOLDER; `temporeal data generate` makes a set, "
                       "`temporeal data record` records one")
    if settings["processes"] != 1:
        raise BadInput(f"processes={settings['processes']}: algo={name} is trained by one process")
    if settings["device"] != "cpu":
        raise BadInput(f"device={settings['device']}: algo={name} learns on the cpu")
    from temporeal.policies.data import learnable, memoryless

    dataset = named_dataset(str(settings["dataset"]))
    with bad_input():
        learnable.require_sound(dataset)
    task = memoryless.shown(environments.make_task(settings), getattr(configuration, "history", True))
    settings = environments.resolved(settings)
    if learns_steps(module):
        require_task(dataset, task)
    elif chunks.gives_chunks(settings) and configuration.evaluate_updates:
        require_task(dataset, task, ", or algo.evaluate_updates=0, which learns without a simulation")
    with bad_input():
        data = shown(dataset, module, task, configuration)
        more: dict[str, Any] = {"done": progress.done_at(dataset, task)} if hasattr(module, "load_progress") else {}
    if "gate" in inspect.signature(module.train).parameters:
        more["gate"] = FittedGate(configuration, settings["seed"])
    started, folder = time.perf_counter(), run_folders.run_folder(settings)
    with run_folders.opened_run(settings, folder, overwrite):
        with events(folder / run_folders.EVENTS) as logger, naming_checkpoint(folder, 1, again), stop_asked() as asked:
            history = _learn(module, data, configuration, settings, folder, quiet=quiet, logger=logger, asked=asked,
                             evaluate=evaluation_of(module, dataset, settings, task), **more)
            if asked:
                raise Interrupted(asked[0])
    if run_folders.resumes(settings):
        file = folder / run_folders.CONFIG
        write({**settings, "task": read(file)["task"], "resume": None}, file)
    notes = tuple(module.notes(folder)) if hasattr(module, "notes") else ()
    return TrainedRun(folder, time.perf_counter() - started, 0, history[-1] if history else {}, notes)


def shown(dataset: Dataset, module: ModuleType, task: Task, configuration: Any) -> Transitions | Dataset:
    """What the learner ``module`` takes: steps as ``task`` shows them to a policy, or the episodes as they are."""
    return steps_of(dataset, task, configuration) if learns_steps(module) else dataset


def learns_steps(module: ModuleType) -> bool:
    """Whether a learner takes steps, rather than the episodes as they are."""
    from temporeal.policies.data.transitions import Transitions

    return typing.get_type_hints(module.train)["data"] is Transitions


def steps_of(dataset: Dataset, task: Task, configuration: Any) -> Transitions:
    """The steps of ``dataset`` as ``task`` shows them to a policy, with the reward that is asked for."""
    from temporeal.policies.data.curation.relabeling import objective_of
    from temporeal.policies.data.objective_rewards import by
    from temporeal.policies.data.views import task_view, transitions

    kind, weight = getattr(configuration, "reward", "data"), weights_of(dataset, task, configuration)
    if kind == "data":
        return transitions(dataset, task_view(task), weight=weight)
    objective = task.objective if kind == "task" else objective_of(
        task.formula, task.control_dt, task.steps, task.schema)
    return transitions(dataset, task_view(task), reward=by(objective), weight=weight)


def weights_of(dataset: Dataset, task: Task, configuration: Any) -> np.ndarray | None:
    """How often each episode is drawn where ``weighting`` is ``data``: by its robustness, scaled to [0, 1] over the
    set, as :func:`temporeal.policies.training.offline.trajectory_weights.softmax` scales returns; None elsewhere."""
    from temporeal.policies.data.curation.robustness import judge, scaled, table_of, weights

    if getattr(configuration, "weighting", "none") != "data":
        return None
    return weights(scaled(judge(task.formula, table_of(dataset)).robustness), 1.0 / configuration.weighting_temperature)


def evaluation_of(
    module: ModuleType, dataset: Dataset, settings: Settings, task: Task
) -> Callable[[nn.Module, nn.Module, int], dict[str, float]] | None:
    """How policies of the learner ``module`` are evaluated; None where they are no plain networks."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon

    if chunks.gives_chunks(settings):
        shown = chunks.shown_to(tuple(dataset.interface.signals), task)
        return evaluation(settings, shown, lambda actor, normalizer, env: chunks.policy_act(actor, settings, env))
    if not hasattr(module, "load_policy"):
        return None
    return evaluation(settings, to_full_horizon(task),
                      lambda actor, normalizer, env: lambda obs: actor(normalizer(obs)))


def evaluation(
    settings: Settings, shown: Task, act: Callable[[Any, Any, Env], Act]
) -> Callable[[nn.Module, nn.Module, int], dict[str, float]]:
    """``evaluate(actor, normalizer, episodes)``: the share of fresh episodes that satisfy the formula, and their median
    robustness. ``act``: makes the policy of an environment of task ``shown``."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.judging import EVALUATION_SEED
    from temporeal.policies.evaluate.rollout import rollout

    seed = settings["seed"] + EVALUATION_SEED
    worlds: dict[int, Any] = {}

    def judge(actor: nn.Module, normalizer: nn.Module, episodes: int) -> dict[str, float]:
        if episodes not in worlds:
            worlds[episodes] = environments.make_env(settings, task=shown, num_worlds=episodes, seed=seed)
        worlds[episodes].reseed(seed)  # the same episodes each time: what differs is the policy
        found = evaluate(rollout(worlds[episodes], act(actor, normalizer, worlds[episodes])), shown.formula, delays=0)
        return {"success": found.satisfied.estimate, "robustness": found.robustness.median}

    return judge


def _learn(
    module: ModuleType, data: Transitions | Dataset, configuration: Any, settings: Settings, folder: Path, *,
    quiet: bool, asked: Sequence[int], **watched: Any,
) -> list[dict[str, float]]:
    """The history of the training; errors of settings, checkpoints and numbers are the user's to correct."""
    from temporeal.policies.data.episodes.interface import DataError
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.errors import NonFiniteError, SettingsError
    from temporeal.policies.training.progress import show

    title = f"{run_folders.title_of(settings)}, {settings['algo']['name']}, seed {settings['seed']}"
    try:
        result = module.train(
            data, configuration, out=folder, seed=settings["seed"], resume=run_folders.resumes(settings),
            progress=None if quiet else show(title), on_iteration=lambda _: bool(asked), **watched)
    except (CheckpointError, SettingsError, DataError) as error:
        raise BadInput(str(error)) from error
    except NonFiniteError as error:
        raise BadInput(f"the training diverged and was stopped: {error}; try a smaller learning rate") from error
    history: list[dict[str, float]] = result.history
    return history
