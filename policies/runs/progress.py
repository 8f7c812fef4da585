"""Models of progress from the runs that learned them, and which episodes judge them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.run_folders import is_run, read_run

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.training.progress_models.protocol import ProgressModel
    from temporeal.sim.task import Task


def learns_progress(name: str) -> bool:
    """Whether the algorithm ``name`` learns a model of progress, and no policy; :class:`BadInput` where none has that
    name."""
    with bad_input():
        return hasattr(module_of(name), "load_progress")


def load_progress(run: Path, device: str = "cpu") -> ProgressModel:
    """The model of the run in the folder ``run``; :class:`BadInput` where it learned no model of progress."""
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.robots.registry import names

    name = read_run(run)["algo"]["name"]
    if not learns_progress(name):
        raise BadInput(f"{run}: algo={name} learns no model of progress; those that do: "
                       f"{', '.join(names('temporeal.policies.progress'))}")
    try:
        model: ProgressModel = module_of(name).load_progress(run, device)
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, ValueError) as error:
        raise BadInput(f"{run}: its last checkpoint holds no model of this version ({type(error).__name__}: {error}): "
                       "train anew") from error
    return model


def load_judge(folder: Path) -> ProgressModel:
    """The model of a run, or the exported classifier in ``folder``."""
    from temporeal.robots.artifact.manifest import MANIFEST

    if is_run(folder) or not (folder / MANIFEST).is_file():
        return load_progress(folder)
    from temporeal.policies.export.success import ExportedClassifier

    with bad_input():
        return ExportedClassifier.load(folder)


def unseen(run: Path, data: Dataset) -> list[int]:
    """Numbers of the episodes of ``data`` that the model of ``run`` did not learn from: those that it held out where
    this is the set that it learned from, else all."""
    from temporeal.policies.training import offline_learner
    from temporeal.policies.training.progress_models.moments import held_out, moments

    state: dict[str, Any] = offline_learner.read(run)
    try:
        same = moments(data, tuple(state["sizes"]["interface"]["signals"])).fingerprint() == state["data"]
    except ValueError:  # it lacks signals, or has other ones of these names: another set
        same = False
    return held_out(data.episodes, state["config"]["hold_out"]).tolist() if same else list(range(data.episodes))


def done_at(data: Dataset, task: Task) -> np.ndarray | None:
    """[E], the sample, from each episode's start, at which its task was done: the first that the objective of ``task``
    calls a success, the last one where none is. None where the set lacks a signal of it: then demonstrations are taken
    to end when they are done, as operators end them."""
    import numpy as np

    from temporeal.policies.data.curation.relabeling import read_by, rewarded
    from temporeal.policies.data.curation.robustness import table_of
    from temporeal.policies.data.episodes.interface import DataError

    table = table_of(data)
    nothing = [np.zeros((int(length) - 1, 1), dtype=np.float32) for length in table.lengths]
    done = table.lengths - 1
    try:
        for episode, found in rewarded(task.objective, table, nothing, read_by(None, table.signals)):
            done[episode] = found.done
    except DataError:
        return None
    return done
