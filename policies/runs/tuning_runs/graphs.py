"""The policy of a run as a graph between raw signals and raw commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks
from temporeal.policies.runs.environments import check_device
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.learners import algorithm

if TYPE_CHECKING:
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task


def load_graph(settings: Mapping[str, Any], folder: Path, task: Task) -> PolicyGraph:
    """The policy of the run in ``folder`` between raw signals and raw commands of ``task``."""
    from temporeal.policies.training import policy_graphs
    from temporeal.policies.training.checkpoint import CheckpointError

    if hasattr(algorithm(settings)[0], "load_progress"):
        raise BadInput(f"{folder}: algo={settings['algo']['name']} learned a model of progress, and no policy: "
                       f"temporeal data progress {folder} SET judges it")
    if chunks.gives_chunks(settings):
        raise BadInput(f"{folder}: its policy gives chunks of commands; here one that gives single ones is needed, or "
                       f"an artifact: temporeal export {folder}")
    check_device(settings["device"])
    try:
        return policy_graphs.load_graph(folder, task, settings["device"])
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise BadInput(f"{folder}: its last checkpoint holds no policy of this version ({type(error).__name__}: "
                       f"{error}): train anew, or judge the artifact that was exported then") from error
