"""The formula inside the reward: hits of timed subgoals, what must be kept, whether an episode did what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.sim.rewards.subgoal_automaton import NEVER, Progress, SubgoalAutomaton
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.plan import plan
from temporeal.sim.task import Carry


class TrackedSample(NamedTuple):
    """One sample of N worlds, as the formula sees it."""

    progress: Progress
    hits: Tensor  # [N] subgoals hit at this sample
    done: Tensor  # [N] bool: all subgoals are hit
    inside: Tensor  # [N] 1 where the predicate of the stage to work on holds, 0 where not, or where there is no stage
    safe: Tensor  # [N] smallest margin of what must be kept now, NEVER where nothing
    carry: Carry


class FormulaTracker:
    """Follows a formula's decomposition on true signals
    (:class:`temporeal.sim.rewards.subgoal_automaton.SubgoalAutomaton`).

    ``slack``: how much deeper than the formula asks a predicate must hold, in its unit. A policy that is paid for
    holding at all stays at the edge.
    """

    def __init__(self, formula: Formula, dt: float, slack: float = 0.0) -> None:
        self.automaton = SubgoalAutomaton(plan(decompose(formula, dt)), dt, slack)
        self.carry: dict[str, tuple[int, ...]] = {**self.automaton.memory, "broken": ()}

    def __call__(self, signals: Mapping[str, Tensor], carry: Carry) -> TrackedSample:
        """This sample, with the carry for the next."""
        progress, after = self.automaton(signals, {k: carry[k] for k in self.automaton.memory})
        hits = progress.hit.float().sum(-1) - (carry["hit"] > 0).float().sum(-1)
        safe = progress.keep.min(-1).values if progress.keep.shape[-1] else torch.full_like(progress.time, NEVER)
        broken = torch.maximum(carry["broken"], (safe <= 0).float())
        done = progress.hit.float().min(-1).values > 0.5 if progress.hit.shape[-1] else progress.time >= 0
        inside = ((progress.margin * progress.stage).sum(-1) > 0).float()
        return TrackedSample(progress, hits, done, inside, safe, {**after, "broken": broken})

    def success(self, carry: Carry) -> Tensor:
        """Whether all subgoals were hit and nothing was broken, bool [N]: implies that the formula is satisfied."""
        done = carry["broken"] == 0
        hit = carry["hit"]
        return done & (hit.min(-1).values > 0) if hit.shape[-1] else done


def lowest(margins: Tensor, like: Tensor) -> Tensor:
    """The smallest [N] of ``margins`` [N, I]; 1 where there are none, [N] as ``like``."""
    return margins.min(-1).values if margins.shape[-1] else torch.ones_like(like)


class FormulaObjective:
    """Base of objectives that succeed where the formula's decomposition does, and pay for smooth actions."""

    def __init__(self, tracker: FormulaTracker, action_dim: int) -> None:
        self.tracker = tracker
        self.carry = {**tracker.carry, "previous": (action_dim,)}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return {**carry, **self.tracker(signals, carry).carry}

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.tracker.success(carry)
