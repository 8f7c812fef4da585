"""Who says that an episode did what was asked: the task's formula, a learned model, the operator.

    success=formula                                    the monitor of the task's formula, sample by sample
    success=outputs/train/lift-success_classifier-1    a classifier of success, by the threshold that it was given
    success=outputs/train/lift-contrastive_goals-1     a model of progress, from ``threshold`` on
    success=operator                                   the operator's keys alone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.monitoring.monitor import Monitor
from temporeal.sim.stl.semantics.verdicts import SATISFIED, UNDECIDED

if TYPE_CHECKING:
    from temporeal.policies.training.progress_models.protocol import ProgressModel
    from temporeal.robots.signals import Schema
    from temporeal.sim.task import Task

FORMULA, OPERATOR = "formula", "operator"
THRESHOLD = 0.9  # of progress: chosen; look at a set of your own episodes first: temporeal data progress RUN SET
IN_A_ROW = 2  # samples of progress above it; a classifier has its own number, as its own threshold


class Judge(Protocol):
    """Judges an episode while it runs. ``names``: of the signals that it reads."""

    names: tuple[str, ...]

    def begin(self) -> None:
        """An episode begins."""

    def update(self, signals: Mapping[str, np.ndarray]) -> bool | None:
        """The next sample: True, it is done; False, it can no longer be done; None, it goes on."""

    def finish(self) -> bool | None:
        """Time is over: whether it was done; None: nobody knows."""


class ByFormula:
    """A formula's monitor. A verdict holds for every continuation."""

    def __init__(self, formula: Formula, dt: float) -> None:
        self.monitor = Monitor(formula, dt)
        self.names = tuple(self.monitor.names)

    def begin(self) -> None:
        """Time 0 is the next sample."""
        self.monitor.reset()

    def update(self, signals: Mapping[str, np.ndarray]) -> bool | None:
        """The verdict, once there is one."""
        verdict = self.monitor.update(signals).verdict
        return None if verdict == UNDECIDED else verdict == SATISFIED

    def finish(self) -> bool | None:
        """The verdict on the samples so far, windows clipped to them."""
        return self.monitor.finish().verdict == SATISFIED


class ByProgress:
    """A learned model: done where it says at least ``threshold`` (of 1), ``in_a_row`` samples one after another."""

    def __init__(self, model: ProgressModel, threshold: float, in_a_row: int = IN_A_ROW) -> None:
        self.model, self.threshold, self.in_a_row = model, threshold, in_a_row
        self.names, self.above = tuple(model.names), 0

    def begin(self) -> None:
        """Nothing is remembered."""
        self.model.start(1)
        self.above = 0

    def update(self, signals: Mapping[str, np.ndarray]) -> bool | None:
        """Whether it is done."""
        import torch

        seen = {name: torch.from_numpy(np.array(signals[name], np.uint8 if signals[name].dtype == np.uint8 else
                                                np.float32))[None] for name in self.names}
        value = float(self.model.update(seen)[0])
        self.above = self.above + 1 if value >= self.threshold else 0
        return True if self.above >= self.in_a_row else None

    def finish(self) -> bool | None:
        """It never was."""
        return False


class ByOperator:
    """Nobody but the operator's keys."""

    names: tuple[str, ...] = ()

    def begin(self) -> None:
        """Nothing is remembered."""

    def update(self, signals: Mapping[str, np.ndarray]) -> bool | None:
        """It goes on."""
        return None

    def finish(self) -> bool | None:
        """Nobody said."""
        return None


def judge_of(word: str, threshold: float | None, task: Task) -> Judge:
    """The judge that ``success=`` names. ``threshold``: of a learned model; None: its own, :data:`THRESHOLD` where it
    has none."""
    if word == FORMULA:
        return ByFormula(task.formula, task.control_dt)
    if word == OPERATOR:
        return ByOperator()
    model = learned(word)
    own = getattr(model, "chosen", None)
    if own is None:
        return ByProgress(model, THRESHOLD if threshold is None else threshold)
    if threshold is not None:
        raise BadInput(f"threshold={threshold:g}: this classifier has one that held-out episodes chose, "
                       f"{own.value:.4g}; another share of false positives is trained: algo.false_positives=")
    if own.in_a_row > task.steps:
        raise BadInput(f"success={word}: this classifier calls done what {own.in_a_row} samples in a row say, and an "
                       f"episode of this task has {task.steps} steps: longer episodes, or train it with "
                       f"algo.in_a_row={task.steps} or less")
    return ByProgress(model, own.value, own.in_a_row)


def learned(word: str) -> ProgressModel:
    """The model in the folder ``word``."""
    from temporeal.policies.runs.progress import load_judge

    if not Path(word).is_dir():
        raise BadInput(f"success={word}: {FORMULA}, {OPERATOR}, or the folder of a run that learned when a task is "
                       "done (temporeal train algo=success_classifier dataset=SET), of its export, or of a model of "
                       "progress (algo=contrastive_goals)")
    return load_judge(Path(word))


def judged(word: str, threshold: float | None, reward: str) -> dict[str, object]:
    """What of this actor and learner must agree on: a run's place may differ, the weights and the threshold of a
    classifier may not. Where a ``threshold`` is given, the model, which then is one of progress, need not be there."""
    if word in (FORMULA, OPERATOR):
        return {"reward": reward, "success": word}
    of_progress = {"reward": reward, "success": "progress"}
    if threshold is not None:
        return {**of_progress, "threshold": threshold}
    model: Any = learned(word)
    own = getattr(model, "chosen", None)
    if own is None:
        return {**of_progress, "threshold": THRESHOLD}
    return {**of_progress, "threshold": own.value, "in_a_row": own.in_a_row, "weights": model.weights}


def require_signals(judge: Judge, there: Schema) -> None:
    """Refuse a judge of signals that the world does not have."""
    from temporeal.sim.task import MISSION_TIME

    if missing := [name for name in judge.names if name not in there and name != MISSION_TIME.name]:
        raise BadInput(f"success: {', '.join(missing)} would be read, which the world does not measure; it measures: "
                       f"{', '.join(there)}")


def require_learned_there(judge: Judge, robot: str, rate_hz: float, there: Schema, where: str) -> None:
    """Refuse a learned judge of another robot or rate, or of signals that are there otherwise, by names; without the
    time, which the actor counts itself."""
    of = getattr(getattr(judge, "model", None), "interface", None)
    if of is None:
        return
    from temporeal.policies.data.episodes.interface import differences
    from temporeal.sim.task import MISSION_TIME

    of = replace(of, signals={name: spec for name, spec in of.signals.items() if name != MISSION_TIME.name})
    rate = of.rate_hz if isclose(of.rate_hz, rate_hz, rel_tol=1e-6) else rate_hz
    here = replace(of, robot=robot, rate_hz=rate, signals={name: there[name] for name in of.signals if name in there})
    if said := differences(of, here):
        raise BadInput(f"success: the model does not fit {where}: {'; '.join(said)}")
