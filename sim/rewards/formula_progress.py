"""The decomposed formula as the whole reward: progress to the next subgoal, hits, what must be kept, completion.

For tasks and logs that have no reward of their own. Without a task's knowledge of how a robot gets there, the way to a
subgoal is the shortfall of its predicate's margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from temporeal.sim.rewards.formula_tracker import FormulaTracker, TrackedSample
from temporeal.sim.rewards.subgoal_automaton import EPS, Progress
from temporeal.sim.task import Carry


@dataclass(frozen=True)
class Reward:
    """Coefficients. The return of an episode is

        potential(end) - potential(start) + done [all is done] - broken [something was not kept]

    with potential = hit * (hits) - progress * min(shortfall / scale, 1): shaping by a potential (Ng et al., ICML 1999),
    as in :class:`temporeal.sim.rewards.scheduled.Reward`.
    """

    progress: float = 1.0  # times the share of the way to the current subgoal, its shortfall in units of ``scale``
    hit: float = 2.0  # once per subgoal: at least ``progress``, or a hit that makes a far subgoal the next one costs
    done: float = 5.0  # once, when all is hit and what is kept from some time on is kept to its end
    broken: float = 5.0  # once, when what is to be kept is not: the episode ends
    scale: float = 1.0  # in the margins' unit: what is farther counts as this far

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0 or (name == "scale" and not value > 0):
                raise ValueError(f"reward.{name} is {'above' if name == 'scale' else 'at least'} 0, got {value:g}")
        if self.hit < self.progress:
            raise ValueError(f"reward.hit is at least reward.progress, {self.progress:g}; got {self.hit:g}")


class FormulaProgress:
    """An :class:`temporeal.sim.task.Objective` of a formula that is one sequence or tree of timed subgoals."""

    privileged_dim = 0

    def __init__(self, tracker: FormulaTracker, reward: Reward | None = None) -> None:
        self.tracker, self.weights = tracker, reward or Reward()
        self.carry: dict[str, tuple[int, ...]] = {**tracker.carry, "potential": (), "done": ()}
        self.over = max((hold.hi for hold in tracker.automaton.holds), default=0.0)  # s, of what is kept later on

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        tracked = self.tracker(signals, carry)
        return {**carry, **tracked.carry, "potential": self.potential(tracked.progress),
                "done": self.finished(tracked).float()}

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (what must be kept is not), next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        going = carry["done"] < 0.5
        potential, broken = self.potential(tracked.progress), (tracked.safe <= 0) & going
        done = torch.maximum(carry["done"], self.finished(tracked).float())
        reward = torch.where(going, potential - carry["potential"], 0.0) + w.done * (done - carry["done"])
        return reward - w.broken * broken.float(), broken, {**tracked.carry, "potential": potential, "done": done}

    def potential(self, progress: Progress) -> Tensor:
        """hit * hits - progress * min(shortfall / scale, 1), [N]."""
        w = self.weights
        short = (-(progress.margin * progress.stage).sum(-1)).clamp(min=0.0)
        return w.hit * progress.hit.float().sum(-1) - w.progress * (short / w.scale).clamp(max=1.0)

    def finished(self, tracked: TrackedSample) -> Tensor:
        """Whether [N] all subgoals are hit and what was kept from some time on was kept to its end."""
        return tracked.done & (tracked.carry["broken"] == 0) & (tracked.progress.time >= self.over - EPS)

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Nothing."""
        return carry["potential"][:, None][:, :0]

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether all was hit and nothing was broken: implies that the formula is satisfied."""
        return self.tracker.success(carry)

    def state(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """What the reward depends on besides the ``signals`` [N, 2 S + H + 2], each 0 to 1: hits, how long the
        predicates of subgoals have been true, stage, time to the stage's deadline, time. ``carry``: before them."""
        automaton = self.tracker.automaton
        progress, after = automaton(signals, {name: carry[name] for name in automaton.memory})
        length = max(self.length, automaton.dt)
        held = (after["held"] * automaton.dt / length).clamp(max=1.0)
        return torch.cat([progress.hit.float(), held, progress.stage, (progress.left / length).clamp(0.0, 1.0)[:, None],
                          (progress.time / length).clamp(max=1.0)[:, None]], -1)

    @property
    def length(self) -> float:
        """Seconds from the start that the formula is about."""
        goals, ends = self.tracker.automaton.subgoals, list[float]()
        for goal in goals:
            ends.append(goal.window[1] + (ends[goal.after] if goal.after is not None else 0.0))
        return max([*(end + goal.hold for end, goal in zip(ends, goals)),
                    *(inv.hi for inv in self.tracker.automaton.invariants if inv.after is None)], default=0.0)
