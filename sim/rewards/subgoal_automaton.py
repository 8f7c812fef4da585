"""A formula as a small automaton over sampled signals: which subgoal is next, by when, and what must be kept.

One module serves three times: inside the policy (on measured signals, traced into the artifact), in the reward
(on true signals) and in the training statistics. It follows the formula's decomposition as a plan
(`temporeal.sim.stl.planning.plan`): a timed subgoal is *hit* at the start of the first stretch inside its window over
which its predicate held for its hold time. Hitting as early as possible is one grounding among many: if all subgoals
are hit, the formula is satisfied, but not the other way round. Verdicts are always computed by
`temporeal.sim.stl.semantics.robustness`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.sim.stl.planning.plan import Plan
from temporeal.sim.stl.semantics.torch_ops import margin_function

EPS = 1e-6  # s: windows are closed, sample times are rounded multiples of the control period
NEVER = 1e3  # a margin or time that means "not active"


class Progress(NamedTuple):
    """Where N worlds are. S subgoals, H timed holds, stages S + H."""

    time: Tensor  # [N] s
    margin: Tensor  # [N, S + H] of each stage's predicate, in its own unit (m for distances)
    hit: Tensor  # [N, S] bool
    stage: Tensor  # [N, S + H] one-hot: the stage to work on
    left: Tensor  # [N] s until the current stage's deadline (negative: missed)
    hold: Tensor  # [N] bool: the current stage must hold now
    keep: Tensor  # [N, I] margin of each invariant where it is active, NEVER elsewhere


class SubgoalAutomaton(nn.Module):
    """The automaton. ``slack`` [unit of the margin] must be exceeded for a hit, to be robust to sensor noise."""

    def __init__(self, plan: Plan, dt: float, slack: float = 0.0) -> None:
        super().__init__()
        self.dt, self.slack = dt, slack
        self.subgoals = plan.subgoals
        late = [inv for inv in plan.invariants if inv.lo > EPS and inv.after is None and inv.until is None]
        self.holds = tuple(sorted(late, key=lambda inv: inv.lo))
        self.invariants = plan.invariants
        self.stages = tuple(s.predicate for s in self.subgoals) + tuple(h.predicate for h in self.holds)
        self.memory = {"tick": (), "hit": (len(self.subgoals),), "held": (len(self.subgoals),)}
        # each distinct predicate is evaluated once per sample
        self.predicates = tuple(dict.fromkeys((*self.stages, *(inv.predicate for inv in self.invariants))))
        self.margins = [margin_function(p) for p in self.predicates]
        self.of_stage = [self.predicates.index(p) for p in self.stages]
        self.of_invariant = [self.predicates.index(inv.predicate) for inv in self.invariants]
        for name, values in (("keep_lo", [i.lo for i in self.invariants]), ("keep_hi", [i.hi for i in self.invariants]),
                             ("hold_lo", [h.lo for h in self.holds]), ("hold_hi", [h.hi for h in self.holds])):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))
        self.keep_lo: Tensor
        self.keep_hi: Tensor
        self.hold_lo: Tensor
        self.hold_hi: Tensor

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
        margins = torch.stack([margin(signals) for margin in self.margins], -1)
        of_stage = margins[:, self.of_stage]
        goals = len(self.subgoals)
        held = torch.where(of_stage[:, :goals] > self.slack, held + 1.0, torch.zeros_like(held))
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
        begins = torch.zeros_like(time)[:, None] + self.hold_lo
        deadline = torch.cat([torch.stack(deadlines, -1) if deadlines else hit, begins], -1)
        stage = self.next_stage(time, hit)
        left = (deadline.clamp(max=NEVER) * stage).sum(-1) - time
        due = (time[:, None] >= self.hold_lo - EPS) & (time[:, None] <= self.hold_hi + EPS)
        hold = (due.float() * stage[:, goals:]).sum(-1) > 0.5
        keep = self.keep(margins[:, self.of_invariant], time, hits)
        progress = Progress(time, of_stage, hit > 0, stage, left, hold, keep)
        return progress, {"tick": tick + 1.0, "hit": hit, "held": held}

    def next_stage(self, time: Tensor, hit: Tensor) -> Tensor:
        """One-hot [N, S + H]: the first subgoal not hit, then the first hold not over; the last one stays."""
        opened = torch.cat([(hit == 0).float(), (time[:, None] <= self.hold_hi + EPS).float()], -1)
        opened = torch.cat([opened[:, :-1], torch.ones_like(opened[:, -1:])], -1)
        return opened * ((torch.cumsum(opened, -1) - opened) < 0.5).float()

    def keep(self, margins: Tensor, time: Tensor, hits: Sequence[Tensor]) -> Tensor:
        """Margins [N, I] of the invariants where they are active now, NEVER where not."""
        if any(inv.after is not None for inv in self.invariants):
            since = time[:, None] - torch.stack([self.start_of(inv.after, hits, time) for inv in self.invariants], -1)
        else:
            since = time[:, None]
        active = (since >= self.keep_lo - EPS) & (since <= self.keep_hi + EPS)
        if any(inv.until is not None for inv in self.invariants):
            always = torch.ones_like(active[:, 0])
            still = [always if inv.until is None else hits[inv.until] == 0 for inv in self.invariants]
            active = active & torch.stack(still, -1)
        return torch.where(active, margins, NEVER)
