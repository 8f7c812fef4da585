"""Who says that an episode did what was asked: the task's formula, a model of progress, the operator.

    success=formula                                    the monitor of the task's formula, sample by sample
    success=outputs/train/lift-contrastive_goals-1     a model of progress from pictures or state, above ``threshold``
    success=operator                                   the operator's keys alone
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
    """A model of progress: done where it says at least ``threshold`` (of 1), two samples in a row."""

    def __init__(self, model: ProgressModel, threshold: float) -> None:
        self.model, self.threshold, self.names, self.above = model, threshold, tuple(model.names), 0

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
        return True if self.above >= 2 else None

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


def judge_of(word: str, threshold: float, task: Task) -> Judge:
    """The judge that ``success=`` names."""
    if word == FORMULA:
        return ByFormula(task.formula, task.control_dt)
    if word == OPERATOR:
        return ByOperator()
    from temporeal.policies.runs.progress import load_progress

    if not Path(word).is_dir():
        raise BadInput(f"success={word}: {FORMULA}, {OPERATOR}, or the folder of a run that learned a model of "
                       "progress (temporeal train algo=contrastive_goals dataset=SET)")
    return ByProgress(load_progress(Path(word)), threshold)


def judged(word: str, threshold: float, reward: str) -> dict[str, object]:
    """What of this actor and learner must agree on: a run's place may differ."""
    kind = word if word in (FORMULA, OPERATOR) else "progress"
    return {"reward": reward, "success": kind, **({"threshold": threshold} if kind == "progress" else {})}


def require_signals(judge: Judge, there: Schema) -> None:
    """Refuse a judge of signals that the world does not have."""
    from temporeal.sim.task import MISSION_TIME

    if missing := [name for name in judge.names if name not in there and name != MISSION_TIME.name]:
        raise BadInput(f"success: {', '.join(missing)} would be read, which the world does not measure; it measures: "
                       f"{', '.join(there)}")
