"""Settings that all learners share which tune a chunk policy in simulation; the algorithms add their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress import CLOCKS

REWARDS = ("sparse", "formula", "task", "progress")
MAY_CHANGE = ("total_steps", "max_seconds", "clock", "checkpoint_seconds")


@dataclass(frozen=True)
class TuningConfig:
    """Settings of all learners. A *decision* is one chunk, of which ``execute`` control steps are played.

    Args:
        policy: the folder of the run that is tuned: its policy gives chunks.
        reward: sparse (the task's success), formula (its formula, decomposed), task (the task's own reward), or
            progress (a learned model, ``progress_model``): :mod:`temporeal.policies.training.chunk_rl.rewards`.
        progress_model: the folder of that model.
        execute: control steps of a chunk that are played before the next decision, in training and where the tuned
            policy is evaluated.
        ensemble: of the evaluation only, see :class:`temporeal.policies.training.chunks.learner.CloningConfig`.
        total_steps: control steps of all worlds, the budget.
        max_seconds: of the clock, earlier parts of a resumed run included; None: no limit.
        clock: "wall", or "cpu": time that the process computes.
        evaluate_steps: control steps of all worlds between evaluations of the deterministic policy on fresh episodes;
            the policy of the best one is what the run gives. 0: none, and the last one counts.
        evaluate_episodes: of such an evaluation.
        collapse: by how much an evaluation may fall short of the best one before the learner goes back to that policy,
            with half the step size. 0: it never does.
        checkpoint_seconds: between checkpoints; 0: after each iteration.
        threads: of torch's operations.
        overlap: twice the worlds, each half flown by a thread of its own: one infers while the other renders.
    """

    policy: str = ""
    reward: str = "sparse"
    progress_model: str = ""
    execute: int = 8
    ensemble: float | None = None
    total_steps: int = 500_000
    max_seconds: float | None = None
    clock: str = "wall"
    evaluate_steps: int = 100_000
    evaluate_episodes: int = 128
    collapse: float = 0.15
    checkpoint_seconds: float = 60.0
    threads: int = 1
    overlap: bool = False

    def __post_init__(self) -> None:
        for name in ("execute", "total_steps", "evaluate_episodes", "threads"):
            self.at_least(name, 1)
        for name in ("evaluate_steps", "collapse", "checkpoint_seconds"):
            self.at_least(name, 0)
        self.one_of("clock", tuple(CLOCKS))
        self.one_of("reward", REWARDS)
        if (self.reward == "progress") != bool(self.progress_model):
            raise SettingsError(f"algo.progress_model={self.progress_model!r}: the folder of a progress model where "
                                f"algo.reward=progress, and only there; algo.reward={self.reward}")

    @property
    def updates(self) -> int:
        """The budget as :mod:`temporeal.policies.training.budget` counts it: here in control steps."""
        return self.total_steps

    def at_least(self, name: str, least: float) -> None:
        """Refuse a smaller value."""
        if not getattr(self, name) >= least:
            raise SettingsError(f"algo.{name} is at least {least}, got {getattr(self, name)}")

    def positive(self, *names: str) -> None:
        """Refuse values that are not."""
        for name in names:
            if not getattr(self, name) > 0:
                raise SettingsError(f"algo.{name} must be positive, got {getattr(self, name)}")

    def share(self, *names: str) -> None:
        """Refuse values outside of 0 to 1."""
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"algo.{name} is from 0 to 1, got {getattr(self, name)}")

    def one_of(self, name: str, legal: tuple[str, ...]) -> None:
        """Refuse other words."""
        if getattr(self, name) not in legal:
            raise SettingsError(f"algo.{name}={getattr(self, name)}: one of {', '.join(legal)}")


def plain(config: TuningConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
