"""Models of progress from the runs that learned them, and which episodes judge them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.run_folders import read_run

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.training.progress_models.protocol import ProgressModel
    from temporeal.sim.stl.language.conventions import Semantics
    from temporeal.sim.stl.language.propositional import Formula


def load_progress(run: Path, device: str = "cpu") -> ProgressModel:
    """The model of the run in the folder ``run``; :class:`BadInput` where it learned no model of progress."""
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.robots.registry import names

    name = read_run(run)["algo"]["name"]
    module = module_of(name)
    if not hasattr(module, "load_progress"):
        raise BadInput(f"{run}: algo={name} learns no model of progress; those that do: "
                       f"{', '.join(names('temporeal.policies.progress'))}")
    try:
        model: ProgressModel = module.load_progress(run, device)
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, ValueError) as error:
        raise BadInput(f"{run}: its last checkpoint holds no model of this version ({type(error).__name__}: {error}): "
                       "train anew") from error
    return model


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


def robustness_of(data: Dataset, formula: Formula | None, semantics: Semantics) -> np.ndarray | None:
    """[E] robustness of ``formula``, or of that of the task that the set was generated with; None where there is
    neither, or the set lacks a signal of it."""
    from temporeal.policies.data.curation.robustness import judge, table_of
    from temporeal.policies.data.episodes.interface import DataError

    if formula is not None:
        return judge(formula, table_of(data), semantics).robustness
    if (own := formula_of(data)) is None:
        return None
    try:
        return judge(own, table_of(data)).robustness
    except DataError:
        return None


def formula_of(data: Dataset) -> Formula | None:
    """The formula of the task that a set was generated with."""
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.runs.offline import settings_of

    if "task" not in dict(data.interface.about.get("settings") or {}):
        return None
    return make_task(settings_of([f"dataset={data.folder}"])).formula
