"""Settings that all learners share which tune a chunk policy in simulation; the algorithms add their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from temporeal.policies.training.errors import SettingsError, choose, require
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
        require(self, execute="[1, inf)", ensemble="[0, inf)", total_steps="[1, inf)", max_seconds="(0, inf)",
                evaluate_steps="[0, inf)", evaluate_episodes="[1, inf)", collapse="[0, inf)",
                checkpoint_seconds="[0, inf)", threads="[1, inf)")
        choose(self, clock=tuple(CLOCKS), reward=REWARDS)
        if (self.reward == "progress") != bool(self.progress_model):
            raise SettingsError(f"algo.progress_model={self.progress_model!r}: the folder of a progress model where "
                                f"algo.reward=progress, and only there; algo.reward={self.reward}")

    @property
    def updates(self) -> int:
        """The budget as :mod:`temporeal.policies.training.budget` counts it: here in control steps."""
        return self.total_steps


def plain(config: TuningConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
