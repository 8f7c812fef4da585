"""The tau-MDP: the policy sees a history as long as the inner formula looks ahead.

Aksaray, Jones, Kong, Schwager and Belta, "Q-Learning for Robust Satisfaction of Signal Temporal Logic Specifications"
(CDC 2016, arXiv 1609.07409) take F[a,b] phi and G[a,b] phi, where phi may look tau samples far. They augment the state
by its tau last samples, on which the robustness r of phi can be computed, and replace the maximum or minimum of r over
the outer window by a log-sum-exp. Its sum is what is learned: each step of the window pays exp(beta r) for F and
-exp(-beta r) for G. Here these rewards are shifted and scaled by constants, which changes no optimal policy of episodes
of one length (per step (exp(beta r) - 1) / beta and (1 - exp(-beta r)) / beta, which tend to r as beta does to 0).

What the paper leaves open, and how it is here:

* phi is any formula whose windows end, of any depth: r is its exact robustness
  (`temporeal.sim.rewards.online_robustness`), tau all it looks ahead. The paper's phi has one more layer of F or G over
  predicates, and tau grows with every further layer.
* A formula with another outer operator (a conjunction, a disjunction, an until) is F[0,0] of itself. Then tau is the
  whole horizon. The log-sum-exp is over the parts of the conjunction, and what a new sample changes of it is paid at
  that sample (`temporeal.sim.rewards.terminal_robustness.Soft`). A whole history knows it, one that is thinned out
  nearly; of one number at the end next to nothing would be learned.
* The history holds the signals that the formula reads (the rest of the state is in the observation as it is now), and
  the time is a feature. Before the episode began there is its first sample. ``samples`` thins it out for long horizons:
  compiling an environment (`temporeal.sim.compiler.vectorize`) takes seconds for 300 numbers of observation and grows
  faster than they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory
from temporeal.sim.rewards.online_robustness import Online, Part
from temporeal.sim.rewards.terminal_robustness import Clock, NotSupported, Scored, Soft, check_reward
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import Always, Eventually
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.task import MISSION_TIME, Carry, weights


@dataclass(frozen=True)
class Reward:
    """Coefficients."""

    robustness: float = 1.0  # times what a step pays, see above
    beta: float = 1.0  # 1 / unit of the margins: the larger, the nearer is the sum to the maximum or minimum
    # where no outer operator is: of the soft robustness (`temporeal.sim.rewards.terminal_robustness.Soft`), 1 / unit of
    # the margins
    sharp: float = 5.0
    exponent: float = 4.0  # beta * robustness counts as within +-exponent: rewards stay in proportion
    cap: float = 10.0  # margins' unit: where no outer operator is, robustness counts as within +-cap
    satisfied: float = 0.0  # once, when the formula is known to be satisfied


class Outer:
    """A formula as the paper writes it: an operator (None: F[0,0], see above), its window in samples, what is inside.

    ``first`` and ``last``: samples at which the robustness of what is inside becomes known.
    """

    def __init__(self, formula: Formula, online: Online) -> None:
        f = positive(formula)
        self.most: bool | None = None
        self.inner, lo, hi = f, 0, 0
        if isinstance(f, (Always, Eventually)):
            lo, end = window_steps(f.window, online.dt)
            if end is None:
                raise NotSupported(f"{to_text(f)} has no end: give its window one")
            self.most, self.inner, hi = isinstance(f, Eventually), f.arg, end
        self.part: Part = online.following(self.inner) if self.most is not None else online.at_start(f)
        self.first, self.last = lo + self.part.late, hi + self.part.late


class Objective(Scored):
    """The sum that stands for the log-sum-exp."""

    def __init__(self, formula: Formula, dt: float, steps: int, reward: Reward, privileged: bool = False) -> None:
        online = Online(dt)
        self.outer = Outer(formula, online)
        soft = Soft(formula, online, reward.sharp, reward.cap) if self.outer.most is None else None
        super().__init__(online, online.at_start(formula), steps, privileged, reward.cap, soft)
        self.weights = reward

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (never), next carry."""
        outer, tick = self.outer, carry["tick"]
        (worth, inner), after = self.seen(signals, carry, outer.part)
        if outer.most is None:
            reward = self.change(carry, after)
        else:
            now = (tick >= outer.first) & (tick <= outer.last)
            reward = torch.where(now, self.paid_for(inner), torch.zeros_like(inner))
        done = ((tick == self.paid) & (worth > 0)).float()
        return self.weights.robustness * reward + self.weights.satisfied * done, tick < 0, after

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self.seen(signals, {**carry, **self.online.begin(carry)}, self.outer.part)[1]

    def paid_for(self, robustness: Tensor) -> Tensor:
        """What a step pays for the robustness [N] of the inner formula."""
        w = self.weights
        exponent = (w.beta * robustness).clamp(-w.exponent, w.exponent)
        return (torch.exp(exponent) - 1.0) / w.beta if self.outer.most else (1.0 - torch.exp(-exponent)) / w.beta


class HistoryView:
    """What the formula reads: now, and at ``rows`` samples before it, ``stride`` samples apart, the newest first."""

    def __init__(
        self, formula: Formula, schema: Mapping[str, SignalSpec], steps: int, objective: Objective, samples: int | None
    ) -> None:
        self.clock, self.objective = Clock(steps), objective
        self.module: nn.Module | None = None
        self.reads = tuple(n for n in signals_in(formula) if n != MISSION_TIME.name)
        self.width = sum(prod(schema[n].shape) for n in self.reads)
        before = objective.outer.part.late if self.reads else 0
        self.stride = 1 if samples is None else max(1, ceil(before / samples))
        self.rows = ceil(before / self.stride)
        self.size = self.width * (1 + self.rows) + 1
        self.memory: dict[str, tuple[int, ...]] = {"tick": ()}
        if self.rows:
            self.memory["history"] = (self.rows * self.width,)

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """The history and the time [N, size], and the next memory."""
        time, after = self.clock(memory)
        seen = [signals[n].flatten(1) if signals[n].ndim > 1 else signals[n][:, None] for n in self.reads]
        if not self.rows:
            return torch.cat([*seen, time], -1), after
        now, tick = torch.cat(seen, -1), memory["tick"]
        past = torch.where((tick == 0)[:, None], now.repeat(1, self.rows), memory["history"])
        moved = torch.cat([now, past[:, : -self.width]], -1)
        if self.stride > 1:
            kept = (tick - self.stride * torch.floor(tick / self.stride)) == 0
            moved = torch.where(kept[:, None], moved, past)
        return torch.cat([now, past, time], -1), {**after, "history": moved}


def make(
    formula: Formula, dt: float, steps: int, schema: Mapping[str, SignalSpec], *,
    reward: Mapping[str, Any] | None = None, samples: int | None = None, privileged: bool = False,
) -> HistoryView:
    """The view of any formula whose windows end.

    Args:
        dt: control period, s. ``steps``: control steps of an episode.
        schema: signals by name.
        reward: coefficients of :class:`Reward` by name.
        samples: at most so many samples before now, evenly spaced; None: all tau, as published.
        privileged: whether the critic sees margins so far: for a history that leaves samples out.
    """
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
        raise ValueError(f"samples is a whole number above 0, or null for all, got {samples!r}")
    checked = check_reward(weights(Reward, reward), "beta", "sharp", "exponent", "cap")
    try:
        return HistoryView(formula, schema, steps, Objective(formula, dt, steps, checked, privileged), samples)
    except FormulaError as error:
        raise NotSupported(f"view tau_mdp of {to_text(formula)}: {error}") from error
