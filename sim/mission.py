"""A formula as a small automaton over sampled signals: which subgoal is next, by when, and what must be kept.

One module serves three times: inside the policy (on measured signals, traced into the artifact), in the reward
(on true signals) and in the training statistics. It follows the formula's decomposition (`sim.stl.decompose`):
a timed subgoal is *hit* at the start of the first stretch inside its window over which its predicate held for
its hold time. Hitting as early as possible is one grounding among many, so "mission done" here implies
"formula satisfied", never the other way round; verdicts are always computed by `sim.stl.robustness`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sim.stl.decompose import Decomposition, Invariant
from sim.stl.robustness import margin

EPS = 1e-6  # s: windows are closed, sample times are rounded multiples of the control period
NEVER = 1e3  # a margin or time that means "not active"


class Progress(NamedTuple):
    """Where N worlds are in the mission. S subgoals, H timed holds, stages S + H."""

    time: Tensor  # [N] s
    margin: Tensor  # [N, S + H] of each stage's predicate, in its own unit (m for distances)
    hit: Tensor  # [N, S] bool
    stage: Tensor  # [N, S + H] one-hot: the stage to work on
    left: Tensor  # [N] s until the current stage's deadline (negative: missed)
    hold: Tensor  # [N] bool: the current stage must hold now
    keep: Tensor  # [N, I] margin of each invariant where it is active, NEVER elsewhere


class Mission(nn.Module):
    """The automaton. ``slack`` [unit of the margin] must be exceeded for a hit, to be robust to sensor noise."""

    def __init__(self, decomposition: Decomposition, dt: float, slack: float = 0.0) -> None:
        super().__init__()
        self.dt, self.slack = dt, slack
        self.subgoals = tuple(decomposition.subgoals)
        late = [inv for inv in decomposition.invariants if inv.lo > EPS and inv.after is None and inv.until is None]
        self.holds = tuple(sorted(late, key=lambda inv: inv.lo))
        self.invariants = tuple(decomposition.invariants)
        self.stages = tuple(s.predicate for s in self.subgoals) + tuple(h.predicate for h in self.holds)
        self.memory = {"tick": (), "hit": (len(self.subgoals),), "held": (len(self.subgoals),)}

    def start_of(self, after: int | None, hits: Sequence[Tensor], time: Tensor) -> Tensor:
        """Time [N] that a window counts from: 0, or the hit time of subgoal ``after`` (NEVER before its hit)."""
        if after is None:
            return torch.zeros_like(time)
        return torch.where(hits[after] > 0, hits[after] - 1.0, NEVER)

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Progress, dict[str, Tensor]]:
        """Progress at this sample and the memory for the next one.

        ``memory["hit"]`` holds 1 + hit time (0: not hit), so that zeros are the start; ``held`` counts the samples
        over which the predicate has been true; ``tick`` counts samples.
        """
        tick, hit, held = memory["tick"], memory["hit"], memory["held"]
        time = tick * self.dt
        margins = torch.stack([margin(p, signals) for p in self.stages], -1)
        if self.subgoals:
            held = torch.where(margins[:, : len(self.subgoals)] > self.slack, held + 1.0, torch.zeros_like(held))
        hits, deadlines = list(hit.unbind(-1)), []
        for i, goal in enumerate(self.subgoals):
            lo, hi = goal.window
            base = self.start_of(goal.after, hits, time)
            # the stretch may have begun before the window opened: what counts is a start inside it
            begun = torch.maximum(time - (held[:, i] - 1.0) * self.dt, base + lo)
            inside = (begun <= base + hi + EPS) & (time >= base + lo - EPS)
            done = (held[:, i] > 0) & (time - begun >= goal.hold - EPS) & inside
            hits[i] = torch.where((hits[i] == 0) & done, 1.0 + begun, hits[i])
            deadlines.append(base + hi + goal.hold)
        hit = torch.stack(hits, -1) if hits else hit
        deadlines += [torch.full_like(time, h.lo) for h in self.holds]
        stage = self.next_stage(time, hit)
        left = (torch.stack(deadlines, -1).clamp(max=NEVER) * stage).sum(-1) - time
        holding = [torch.zeros_like(time)] * len(self.subgoals)
        holding += [((time >= h.lo - EPS) & (time <= h.hi + EPS)).float() for h in self.holds]
        hold = (torch.stack(holding, -1) * stage).sum(-1) > 0.5
        keep = torch.stack([self.keep_margin(inv, signals, time, hits) for inv in self.invariants], -1)
        progress = Progress(time, margins, hit > 0, stage, left, hold, keep)
        return progress, {"tick": tick + 1.0, "hit": hit, "held": held}

    def next_stage(self, time: Tensor, hit: Tensor) -> Tensor:
        """One-hot [N, S + H]: the first subgoal not hit, then the first hold not over; the last one stays."""
        is_open = [(h == 0).float() for h in hit.unbind(-1)] + [(time <= h.hi + EPS).float() for h in self.holds]
        is_open[-1] = torch.ones_like(time)
        opened = torch.stack(is_open, -1)
        return opened * ((torch.cumsum(opened, -1) - opened) < 0.5).float()

    def keep_margin(
        self, inv: Invariant, signals: Mapping[str, Tensor], time: Tensor, hits: Sequence[Tensor]
    ) -> Tensor:
        """Margin [N] of an invariant where it is active now, NEVER where it is not."""
        base = self.start_of(inv.after, hits, time)
        active = (time >= base + inv.lo - EPS) & (time <= base + inv.hi + EPS)
        if inv.until is not None:
            active = active & (hits[inv.until] == 0)
        return torch.where(active, margin(inv.predicate, signals), NEVER)
