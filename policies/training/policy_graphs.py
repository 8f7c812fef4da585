"""The policy of a run between raw signals and raw commands, for every algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.registry import resolve

if TYPE_CHECKING:
    from temporeal.policies.nets.normalizer import Normalizer
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task

CONFIG = "config.yaml"


def algorithm_of(run: Path) -> str:
    """The algorithm of the run in folder ``run``, by its settings."""
    try:
        file = run / CONFIG
        name = from_yaml(read_text(file, within=run), str(file))["algo"]["name"]
    except (OSError, TypeError, LookupError, Refused, yaml.YAMLError) as error:
        raise CheckpointError(f"{run} is no run: its {CONFIG} does not say which algorithm learned it "
                              f"({type(error).__name__}: {error})") from error
    return str(name)


def check_reads(run: Path, normalizer: Normalizer, task: Task) -> None:
    """Raise :class:`CheckpointError` if the policy of ``run`` has another observation size than ``task``."""
    reads = len(normalizer.shift)
    if reads != task.observe.obs_dim:
        raise CheckpointError(
            f"the policy in {run} reads {reads} numbers, task {task.name!r} with this formula and these settings shows "
            f"{task.observe.obs_dim}: judge it on what it was trained for; if that was this task, what it shows "
            "has changed since (CHANGELOG.md): judge the artifact that was exported then, or train anew")


def load_graph(run: Path, task: Task, device: str = "cpu") -> PolicyGraph:
    """The policy of ``run`` on ``task``; a :class:`CheckpointError` if it belongs to another task."""
    from temporeal.sim.maps import PolicyGraph

    module = resolve("temporeal.policies.algos", algorithm_of(run))
    if hasattr(module, "load_graph"):  # its policy sees more than the task's observation map shows
        return cast("PolicyGraph", module.load_graph(run, task, device))
    actor, normalizer, _ = module.load_policy(run, device)
    check_reads(run, normalizer, task)
    return PolicyGraph(task.observe, normalizer, actor, task.act).eval()
