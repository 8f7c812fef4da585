"""The loop of a run with a budget of updates or seconds, with its display and checkpoints.

For learners of one process. PPO, which may have several, has its own (:func:`temporeal.policies.algos.ppo.train`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Protocol, TypeVar

from temporeal.policies.training.progress import CLOCKS, Logger, Progress


class Settings(Protocol):
    """The required settings of a learner: see :class:`temporeal.policies.algos.npc.NPCConfig`."""

    @property
    def updates(self) -> int:
        """Largest number of updates."""

    @property
    def max_seconds(self) -> float | None:
        """Budget by ``clock``, including earlier parts of a resumed run; None: unlimited."""

    @property
    def clock(self) -> str:
        """One of :data:`temporeal.policies.training.progress.CLOCKS`."""

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints; 0: after each iteration."""


class Learner(Protocol):
    """The required parts of a learner: updates done, seconds spent, and the figures of each iteration."""

    update: int
    seconds: float
    history: list[dict[str, float]]

    @property
    def config(self) -> Settings:
        """Its settings."""


L = TypeVar("L", bound=Learner)


def fraction_spent(learner: Learner) -> float:
    """Share of the budget used so far, 0 to 1: the larger one of updates and seconds."""
    config, fraction = learner.config, learner.update / learner.config.updates
    if config.max_seconds is not None:
        fraction = max(fraction, learner.seconds / config.max_seconds)
    return min(1.0, fraction)


def spend(
    learner: L, iterate: Callable[[L], Mapping[str, float]], steps: Callable[[L], int], keep: Callable[[L], None],
    progress: Progress | None = None, logger: Logger | None = None,
    on_iteration: Callable[[L], bool | None] | None = None,
) -> None:
    """Iterate until the budget is spent or ``on_iteration`` returns True.

    Args:
        iterate: one iteration, of one update or more; returns its figures.
        steps: control steps of all worlds so far.
        keep: writes a checkpoint; called every ``checkpoint_seconds``, and at the end.
    """
    config, passed = learner.config, CLOCKS[learner.config.clock]
    began, saved, stop = passed() - learner.seconds, time.monotonic(), fraction_spent(learner) >= 1.0
    with progress if progress is not None else nullcontext():
        while not stop:
            figures = iterate(learner)
            learner.seconds = passed() - began
            enter(learner, steps(learner), figures, progress, logger)
            wished = bool(on_iteration(learner)) if on_iteration is not None else False
            stop = wished or fraction_spent(learner) >= 1.0
            if stop or time.monotonic() - saved >= config.checkpoint_seconds:
                keep(learner)
                saved = time.monotonic()


def enter(
    learner: Learner, steps: int, figures: Mapping[str, float], display: Progress | None, logger: Logger | None
) -> None:
    """Add an iteration to the history, the display and the log."""
    last = learner.history[-1] if learner.history else {"steps": 0.0, "seconds": 0.0}
    fraction = fraction_spent(learner)
    row = {"iteration": float(len(learner.history) + 1), "steps": float(steps), "seconds": learner.seconds,
           "rate": (steps - last["steps"]) / max(learner.seconds - last["seconds"], 1e-9), "fraction": fraction,
           "eta": max(0.0, learner.seconds * (1.0 / max(fraction, 1e-9) - 1.0)), **figures}
    learner.history.append(row)
    if display is not None:
        display(row)
    if logger is not None:
        logger(steps, row)
