"""Which policy of a run is kept: the best one by evaluations on fresh episodes, of which the first is before the first
update. For learners that are watched through ``on_iteration``, as PPO is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Judge = Callable[[nn.Module, nn.Module], float]
"""``judge(actor, normalizer)``: the share of successes of the deterministic policy."""


@dataclass
class KeepBest:
    """Evaluates a PPO learner every so many control steps.

    Args:
        every: control steps between evaluations.

    Attributes:
        seen: control steps and share of all evaluations.
        best: share, control steps, and the states of actor and normalizer then.
    """

    judge: Judge
    every: int
    seen: list[tuple[int, float]] = field(default_factory=list)
    best: tuple[float, int, Mapping[str, Tensor], Mapping[str, Tensor]] | None = None

    def __call__(self, learner: Any) -> None:
        """After an iteration of ``learner``."""
        if not self.seen or learner.steps // self.every > self.seen[-1][0] // self.every:
            self.note(learner.actor, learner.normalizer, learner.steps)

    def note(self, actor: nn.Module, normalizer: nn.Module, steps: int) -> None:
        """Evaluate a policy."""
        share = self.judge(actor, normalizer)
        self.seen.append((steps, share))
        if self.best is None or share >= self.best[0]:
            kept = [{name: value.clone() for name, value in each.state_dict().items()} for each in (actor, normalizer)]
            self.best = (share, steps, kept[0], kept[1])

    def put_back(self, actor: nn.Module, normalizer: nn.Module) -> None:
        """Set both to the best."""
        if self.best is not None:
            actor.load_state_dict(self.best[2])
            normalizer.load_state_dict(self.best[3])
