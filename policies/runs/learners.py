"""The algorithm that settings name, with its configuration, and the trained policy that it starts from."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.environments import GREATEST_SEED, check_seed, fits
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.run_folders import load_run, title_of
from temporeal.policies.runs.settings.compose import of_group
from temporeal.policies.runs.trained import load_graph

if TYPE_CHECKING:
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task


RANK_SEED = 1_000_003  # between the seeds of the processes of one run: their worlds must not be the same


def check_training_seed(seed: int) -> None:
    """An evaluation of the run can have its own seed, which is greater."""
    from temporeal.policies.evaluate.run_outputs import EVALUATION_SEED

    check_seed("seed", seed)
    if seed > GREATEST_SEED - EVALUATION_SEED:
        raise BadInput(f"seed of a training is at most {GREATEST_SEED - EVALUATION_SEED}: that of its evaluation is by "
                       f"{EVALUATION_SEED} greater, and at most 2^63 - 1; got {seed}")


def algorithm(settings: Mapping[str, Any]) -> tuple[ModuleType, Any]:
    """The learner's module and its configuration: the class that its ``train`` takes, filled with the settings."""
    from temporeal.robots.registry import resolve

    with bad_input():
        module = resolve("temporeal.policies.algos", settings["algo"]["name"])
        if not hasattr(module, "train") or "env" not in inspect.signature(module.train).parameters:
            told = (module.__doc__ or "").partition("\n")[0]
            instead = f": python -m {module.__name__} --help" if hasattr(module, "main") else ""
            raise BadInput(f"algo={settings['algo']['name']} does not learn tasks of temporeal.sim.tasks ({told})"
                           f"{instead or planned(settings)}")
        made = typing.get_type_hints(module.train)["config"]
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in of_group(settings, "algo").items()}
        hints = typing.get_type_hints(made)
        legal = [field.name for field in fields(made)]
        for key, value in given.items():
            if key not in legal:
                name = settings["algo"]["name"]
                raise BadInput(f"algo.{key}: {name} has no such setting; legal: {', '.join(legal)}")
            if not fits(value, hints[key]):
                wanted = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
                raise BadInput(f"algo.{key}={value}: expected {wanted.replace('collections.abc.', '')}, finite")
        return module, made(**given)


def planned(settings: Mapping[str, Any]) -> str:
    """How to have a planner judged on the task; empty where the algorithm is none, or plans no such tasks."""
    from temporeal.policies.evaluate.suite.suite import METHODS, PLANNER

    method = next((m for m in METHODS.values() if m.kind == PLANNER and m.algo == settings["algo"]["name"]), None)
    if method is None or settings["task"]["name"] != "stl":
        return ""
    name = str(settings["task"].get("title", "stl-NAME")).removeprefix("stl-")
    return (f". It plans for each start and learns nothing: temporeal bench stl-tasks --tasks {name} --methods "
            f"{method.key} judges it")


def base_of(settings: Mapping[str, Any], task: Task) -> PolicyGraph | None:
    """The trained policy that the learner starts from, on ``task``; None where it starts from nothing.

    Such a learner has the setting ``policy``, the folder of the run.
    """
    if "policy" not in settings["algo"]:
        return None
    given, name = settings["algo"]["policy"], settings["algo"]["name"]
    if not given:
        raise BadInput(f"algo={name} starts from a trained policy: algo.policy=RUN, the folder of a run on the same "
                       "task")
    run = Path(str(given))
    trained = load_run(run)
    if trained["task"]["name"] != settings["task"]["name"] or trained["robot"] != settings["robot"]:
        raise BadInput(f"algo.policy={run} was trained on task {title_of(trained)}, this is {title_of(settings)}: say "
                       f"task=... as it was said there")
    return load_graph({**trained, "device": settings["device"]}, run, task)
