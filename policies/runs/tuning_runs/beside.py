"""What a learner in simulation is given beside its worlds, where its ``train`` asks for it: recorded episodes of the
task, and a judge of its deterministic policy."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import offline
from temporeal.policies.runs.errors import bad_input
from temporeal.policies.runs.memory import check_replay
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.bases import JUDGES
from temporeal.policies.runs.tuning_runs.warm import judges, warm_start, warm_starts

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.transitions import Transitions
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def asks_for(module: ModuleType, name: str) -> bool:
    """Whether the learner's ``train`` has a parameter ``name``."""
    return name in inspect.signature(module.train).parameters


def given(module: ModuleType, settings: Settings, env: Env, configuration: Any) -> dict[str, Any]:
    """The arguments by name; ``env`` has the dataset's states as starts where that is asked for."""
    from temporeal.policies.data.snapshots import begin_at_snapshots
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.training.off_policy.settings import require_demonstrations

    found, task = dict[str, Any](), env.task
    if asks_for(module, "demonstrations"):
        check_replay(configuration, settings["num_worlds"], task, cameras=settings.get("cameras"))
        with bad_input():
            require_demonstrations(configuration, bool(settings.get("dataset")))
            if settings.get("dataset"):
                dataset = recorded(settings, task)
                found["demonstrations"] = demonstrations(dataset, env, configuration)
                if configuration.snapshots:
                    begin_at_snapshots(env, dataset)
    if asks_for(module, "warm") and configuration.adapt:
        found["warm"] = warm_start(settings, task, configuration.adapt)
    if asks_for(module, "policies"):
        found["policies"] = warm_starts(settings, task, configuration)
        if configuration.merge:
            found["judges"] = judges(settings, configuration)
    if asks_for(module, "evaluate") and configuration.evaluate_steps:
        apart = {**settings, "seed": settings["seed"] + JUDGES}
        found["evaluate"] = offline.evaluation(
            apart, to_full_horizon(task), lambda actor, normalizer, env: lambda obs: actor(
                normalizer(obs), *([env.images] if env.rendering else [])))
    return found


def recorded(settings: Settings, task: Task) -> Dataset:
    """The set of ``dataset=FOLDER``, which is about ``task``."""
    from temporeal.policies.data import learnable

    dataset = offline.named_dataset(str(settings["dataset"]))
    learnable.require_sound(dataset)
    offline.require_task(dataset, task)
    return dataset


def demonstrations(dataset: Dataset, env: Env, configuration: Any) -> Transitions:
    """The episodes of ``dataset`` as steps, as the critics see them, with the pictures that cameras of ``env`` show."""
    from temporeal.policies.data.episodes.layout import is_picture
    from temporeal.policies.data.objective_rewards import by
    from temporeal.policies.data.privileged_view import critic_view
    from temporeal.policies.data.views import transitions

    task, cameras = env.task, () if env.pictures is None else tuple(env.pictures.rig.signals)
    view = critic_view(task, dataset.interface, configuration.privileged and not cameras)
    found = transitions(
        dataset, view, reward=by(task.objective) if configuration.demonstration_reward == "task" else None)
    known = {name for name, spec in dataset.interface.signals.items() if is_picture(spec)}
    return replace(found, pictures={name: dataset.column(name) for name in cameras if name in known})
