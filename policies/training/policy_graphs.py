"""The policy of a run between raw signals and raw commands, for every algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import yaml

from temporeal.policies.data.hidden_signals import without
from temporeal.policies.data.memoryless import shown
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.registries import LEARNERS, module_gives_chunks
from temporeal.policies.training.residual.graphs import Residual, residual_graph
from temporeal.policies.training.residual.settings import BaseConfig, base_config
from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.registry import names, resolve

if TYPE_CHECKING:
    from temporeal.policies.nets.normalizer import Normalizer
    from temporeal.sim.maps import ObserveMap, PolicyGraph
    from temporeal.sim.task import Task

CONFIG = "config.yaml"
BASE = "base"  # in a run's folder: a copy of what its policy corrects


def algorithm_of(run: Path) -> str:
    """The algorithm of the run in folder ``run``, by its settings."""
    return str(algorithm_settings(run)["name"])


def algorithm_settings(run: Path) -> Mapping[str, Any]:
    """The settings ``algo`` of the run in folder ``run``, with its ``name``."""
    file = run / CONFIG
    if not file.exists():
        raise CheckpointError(f"{run} is no run: " + (f"it has no {CONFIG}" if run.is_dir() else
                                                         "there is no such folder"))
    try:
        found = from_yaml(read_text(file, within=run), str(file))["algo"]
        return {**found, "name": found["name"]}
    except (OSError, TypeError, LookupError, Refused, yaml.YAMLError) as error:
        raise CheckpointError(f"{run} is no run: its {CONFIG} does not say which algorithm learned it "
                              f"({type(error).__name__}: {error})") from error


def gives_chunks(run: Path) -> bool:
    """Whether the policy of the run in folder ``run`` gives chunks."""
    return module_gives_chunks(learner_of(run), algorithm_settings(run))


def corrects(run: Path) -> BaseConfig:
    """What the policy of the run in folder ``run`` corrects, by its settings."""
    file = run / CONFIG
    try:
        return base_config(from_yaml(read_text(file, within=run), str(file)))
    except (OSError, TypeError, AttributeError, SettingsError, Refused, yaml.YAMLError) as error:
        raise CheckpointError(f"{run} is no run: its {CONFIG} does not say what its policy corrects "
                              f"({type(error).__name__}: {error})") from error


def check_reads(run: Path, normalizer: Normalizer, task: Task, more: int = 0) -> None:
    """Raise :class:`CheckpointError` if the policy of ``run`` has another observation size than ``task``, and ``more``
    numbers besides."""
    reads = len(normalizer.shift) - more
    if reads != task.observe.obs_dim:
        raise CheckpointError(
            f"the policy in {run} reads {reads} numbers, task {task.name!r} with this formula and these settings shows "
            f"{task.observe.obs_dim}: judge it on what it was trained for; if that was this task, what it shows "
            "has changed since (CHANGELOG.md): judge the artifact that was exported then, or train anew")


def learner_of(run: Path) -> ModuleType:
    """The module of the algorithm that learned the run in folder ``run``."""
    name = algorithm_of(run)
    known = {entry: package for package in LEARNERS for entry in names(package)}
    if name not in known:
        raise CheckpointError(f"{run}: no such algorithm here: {name!r}; known: {', '.join(sorted(known))}")
    return resolve(known[name], name)


def load_graph(run: Path, task: Task, device: str = "cpu") -> PolicyGraph:
    """The policy of ``run`` on ``task``; a :class:`CheckpointError` if it belongs to another task."""
    from temporeal.policies.nets.actor import SeeingActor
    from temporeal.policies.nets.seeing_graph import SeeingGraph
    from temporeal.policies.nets.seeing_policy import SeeingPolicy
    from temporeal.sim.maps import PolicyGraph

    if (base := corrects(run)).given:
        return corrected_graph(run, task, base, device)
    module = learner_of(run)
    if hasattr(module, "load_graph"):  # its policy sees more than the task's observation map shows
        return cast("PolicyGraph", module.load_graph(run, task, device))
    actor, normalizer, config = module.load_policy(run, device)
    check_reads(run, normalizer, task)
    task = shown(told(run, task, getattr(config, "hide", ())), getattr(config, "history", True))
    if isinstance(actor, SeeingActor | SeeingPolicy):
        return SeeingGraph(task.observe, normalizer, actor, task.act).eval()
    return PolicyGraph(task.observe, normalizer, actor, task.act).eval()


def told(run: Path, task: Task, hidden: Sequence[str]) -> Task:
    """``task`` without the signals ``hidden`` from the policy of ``run``."""
    try:
        return without(task, hidden)
    except ValueError as error:
        raise CheckpointError(f"the policy in {run} was trained on another task: {error}") from error


def corrected_graph(run: Path, task: Task, base: BaseConfig, device: str = "cpu") -> PolicyGraph:
    """The policy of ``run``, which corrects a copy of another run's in its folder, as ``base`` says."""
    if not (run / BASE / CONFIG).is_file() or gives_chunks(run / BASE):
        raise CheckpointError(f"the policy in {run} corrects one that reads signals itself, not the task's observation "
                              f"({base.title}): here one that reads the observation is needed. temporeal eval, "
                              "temporeal export and temporeal data generate (expert=RUN) take it, and base.policy its "
                              "artifact")
    own = load_graph(run / BASE, task, device)
    shown_task = task if own.observe is task.observe else replace(task, observe=cast("ObserveMap", own.observe))
    return residual_graph(own, load_residual(run, shown_task, base, device))


def load_residual(run: Path, task: Task, base: BaseConfig, device: str = "cpu") -> Residual:
    """What ``run`` learned to correct in ``task`` as it is shown, played as ``base`` says."""
    module = learner_of(run)
    actor, normalizer, _ = module.load_policy(run, device)
    check_reads(run, normalizer, task, task.act.action_dim if base.condition else 0)
    return Residual(normalizer, actor, base.scale, base.condition).eval()
