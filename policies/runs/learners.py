"""The algorithm that settings name, with its configuration, and the trained policy that it starts from."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any

from temporeal.policies.runs.environments import GREATEST_SEED, check_seed
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.compose import of_group
from temporeal.policies.training.errors import fits
from temporeal.policies.training.registries import LEARNERS

RANK_SEED = 1_000_003  # between the seeds of the processes of one run: their worlds must differ
REGISTRIES = (*LEARNERS, "temporeal.policies.planners")


def check_training_seed(seed: int) -> None:
    """The seed leaves room for that of the evaluation, which is greater."""
    from temporeal.policies.evaluate.judging import EVALUATION_SEED

    check_seed("seed", seed)
    if seed > GREATEST_SEED - EVALUATION_SEED:
        raise BadInput(f"the seed of a training is at most {GREATEST_SEED - EVALUATION_SEED}: its evaluation adds "
                       f"{EVALUATION_SEED}, and seeds end at 2^63 - 1; got {seed}")


def module_of(name: str) -> ModuleType:
    """The module of algorithm ``name``: a learner, or a planner."""
    from temporeal.robots.registry import UnknownName, names, resolve
    from temporeal.robots.search_path import VARIABLE, said

    known = {entry: package for package in REGISTRIES for entry in names(package)}
    if name not in known:
        raise UnknownName(f"algo={name}: no such algorithm; known: {', '.join(sorted(known))}; files of your own: "
                          f"{VARIABLE}, {said()}")
    return resolve(known[name], name)


def algorithm(settings: Mapping[str, Any]) -> tuple[ModuleType, Any]:
    """The learner's module and its configuration: the class that its ``train`` takes, filled with the settings."""
    with bad_input():
        name = settings["algo"]["name"]
        module = module_of(name)
        if not hasattr(module, "train") or not {"env", "data"} & set(inspect.signature(module.train).parameters):
            about = (module.__doc__ or "").partition("\n")[0]
            instead = f": python -m {module.__name__} --help" if hasattr(module, "main") else ""
            raise BadInput(f"algo={name} does not learn tasks of temporeal.sim.tasks ({about})"
                           f"{instead or planned(settings)}")
        return module, configured(name, typing.get_type_hints(module.train)["config"], of_group(settings, "algo"))


def learns_from_data(module: ModuleType) -> bool:
    """Whether a learner takes a dataset and no environment."""
    return "data" in inspect.signature(module.train).parameters


def reads_episodes(module: ModuleType) -> bool:
    """Whether a learner takes a dataset, be it beside an environment."""
    return bool({"data", "demonstrations"} & set(inspect.signature(module.train).parameters))


def from_data() -> list[str]:
    """The names of the learners that take a dataset."""
    from temporeal.robots.registry import names

    return sorted(name for package in LEARNERS for name in names(package) if reads_episodes(module_of(name)))


def configured(name: str, kind: Any, values: Mapping[str, Any]) -> Any:
    """The configuration ``kind`` of algorithm ``name`` with ``values``; unknown keys and wrong types are refused."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    hints, legal = typing.get_type_hints(kind), [field.name for field in fields(kind)]
    for key, value in given.items():
        if key not in legal:
            raise BadInput(f"algo.{key}: {name} has no such setting; legal: {', '.join(legal)}")
        if not fits(value, hints[key]):
            wanted = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
            raise BadInput(f"algo.{key}={value}: expected {wanted.replace('collections.abc.', '')}, finite")
    return kind(**given)


def planned(settings: Mapping[str, Any]) -> str:
    """How to have a planner judged on the task; empty where the algorithm is none, or plans no such tasks."""
    from temporeal.policies.evaluate.suite.catalog import METHODS, PLANNER

    method = next((m for m in METHODS.values() if m.kind == PLANNER and m.algo == settings["algo"]["name"]), None)
    if method is None or settings["task"]["name"] != "stl":
        return ""
    name = str(settings["task"].get("title", "stl-NAME")).removeprefix("stl-")
    return (f". It plans for each start and learns nothing: temporeal bench stl-tasks --tasks {name} --methods "
            f"{method.key} judges it")
