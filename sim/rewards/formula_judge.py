"""The formula inside the reward: hits of timed subgoals, what must be kept, whether an episode did what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.sim.rewards.subgoal_automaton import NEVER, Mission, Progress
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.plan import plan


class Verdict(NamedTuple):
    """One sample of N worlds, as the formula sees it."""

    progress: Progress
    hits: Tensor  # [N] subgoals hit at this sample
    done: Tensor  # [N] bool: all subgoals are hit
    inside: Tensor  # [N] 1 where the predicate of the stage to work on holds, 0 where not, or where there is no stage
    safe: Tensor  # [N] smallest margin of what must be kept now, NEVER where nothing
    memory: dict[str, Tensor]


class Judge:
    """Follows a formula's decomposition (:class:`temporeal.sim.rewards.subgoal_automaton.Mission`) on true signals.

    ``slack``: how much deeper than the formula asks a predicate must hold, in its unit: a policy that is paid for a
    hair's breadth lives on it.
    """

    def __init__(self, formula: Formula, dt: float, slack: float = 0.0) -> None:
        self.mission = Mission(plan(decompose(formula, dt)), dt, slack)
        self.memory: dict[str, tuple[int, ...]] = {**self.mission.memory, "broken": ()}

    def __call__(self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Verdict:
        """The verdict and the memory for the next sample."""
        progress, after = self.mission(signals, {k: memory[k] for k in self.mission.memory})
        hits = progress.hit.float().sum(-1) - (memory["hit"] > 0).float().sum(-1)
        safe = progress.keep.min(-1).values if progress.keep.shape[-1] else torch.full_like(progress.time, NEVER)
        broken = torch.maximum(memory["broken"], (safe <= 0).float())
        done = progress.hit.float().min(-1).values > 0.5 if progress.hit.shape[-1] else progress.time >= 0
        inside = ((progress.margin * progress.stage).sum(-1) > 0).float()
        return Verdict(progress, hits, done, inside, safe, {**after, "broken": broken})

    def success(self, memory: Mapping[str, Tensor]) -> Tensor:
        """Whether all subgoals were hit and nothing was broken, bool [N]: implies that the formula is satisfied."""
        done = memory["broken"] == 0
        hit = memory["hit"]
        return done & (hit.min(-1).values > 0) if hit.shape[-1] else done


class Judged:
    """What objectives share that succeed where the formula's decomposition does, and pay for smooth actions."""

    def __init__(self, judge: Judge, action_dim: int) -> None:
        self.judge = judge
        self.memory = {**judge.memory, "previous": (action_dim,)}

    def start(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """Memory after the sample at time 0."""
        return {**memory, **self.judge(signals, memory).memory}

    def success(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.judge.success(memory)
