"""A formula's decomposition with a time for each of its subgoals: what is asked now, what is reached, what is broken.

A *schedule* says which alternative of the decomposition (`sim.stl.decompose`) is followed and about when each of its
time variables shall be: its allocation (TGPO calls it grounding). The mission follows it over sampled signals. A
variable is *hit* at the first sample at which everything it asks for holds, its windows are open and what must come
before it is hit; before its allocated time only where nothing is held from then on, and where the allocated times of
others stay possible. What is to be kept from a later time on has a variable there (`sim.stl.marks`). A hold that breaks
while its variable may still come later takes the hit back. Whatever the schedule was: if all is hit and kept, the hits
are a grounding, so that the formula is satisfied (never the other way round: another grounding may do).

N worlds, V time variables, A alternatives, P distinct predicates. Torch operations only, none of which looks at values:
compiled with the environment's rows (`sim.rows`) and traced into artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sim.stl.alternative import Alternative, Keep, NotDecomposable
from sim.stl.decompose import Decomposition
from sim.stl.marks import marked
from sim.stl.syntax import Formula
from sim.stl.torch_ops import compiled

NEVER = 1e3
"""A margin that means: nothing is asked."""


class Timed(NamedTuple):
    """Where N worlds are. Times are in samples."""

    time: Tensor  # [N]
    margins: Tensor  # [N, P] of the distinct predicates, each in its own unit
    hit: Tensor  # [N, V] bool; also where the followed alternative has no such variable
    stage: Tensor  # [N, V] one-hot: the variable to work on, the first allocated of those that may come next
    togo: Tensor  # [N, V] until the allocated time; 0 where hit
    distance: Tensor  # [N] by how much what the stage asks for fails, in its unit; 0 where there is no stage
    keep: Tensor  # [N] least margin of what must be kept now, NEVER where nothing
    left: Tensor  # [N, V] until the last of what must be kept from a variable on is over; 0 where nothing runs
    violated: Tensor  # [N] bool: something that must be kept now is not, and no later hit can mend it
    late: Tensor  # [N] bool: a variable is not hit and its window is over
    done: Tensor  # [N] bool: all is hit, what is to be kept is over; what was violated before is not remembered


def width(alternatives: Sequence[Alternative]) -> int:
    """V: of the alternative with the most time variables, at least 1."""
    return max([1, *(a.variables for a in alternatives)])


class Route:
    """One alternative, prepared: predicates by place, bounds, what depends on what. Variables count from 0 here."""

    def __init__(self, alternative: Alternative, places: Mapping[Formula, int]) -> None:
        self.count = alternative.variables
        self.bounds = [[int(x) for x in row] for row in alternative.bounds]
        self.keeps = alternative.keeps
        for keep in self.keeps:
            if keep.start.variable and keep.start.offset < 0:
                raise NotDecomposable("something is to be kept before the time it counts from, which a schedule cannot "
                                      "follow on line", keep.predicate)
        self.asked = [[places[r.predicate] for r in alternative.reaches if r.variable == v]
                      + [places[k.predicate] for k in self.keeps if k.start.variable == v and k.start.offset == 0]
                      for v in range(1, self.count + 1)]
        self.of_keep = [places[k.predicate] for k in self.keeps]
        self.before = [[u - 1 for u in range(1, v) if self.bounds[v][u] <= 0] for v in range(1, self.count + 1)]
        self.behind = [[w for w in range(self.count) if v in self.before[w]] for v in range(self.count)]
        self.held = [any(keep.start.variable == v for keep in self.keeps) for v in range(1, self.count + 1)]
        self.tied = [self._tied(v) for v in range(1, self.count + 1)]

    def _tied(self, v: int) -> list[tuple[int, float]]:
        """The variables (from 0) that a hit of variable ``v`` (from 1) bounds, and how far behind it they may be.

        Those before it are hit by then.
        """
        d, others = self.bounds, [w for w in range(1, self.count + 1) if w != v and w - 1 not in self.before[v - 1]]
        return [(w - 1, float(d[v][w])) for w in others if -d[v][0] + d[v][w] < d[0][w]]

    def now(self, v: int, time: Tensor, allocated: Tensor, hits: Sequence[Tensor]) -> Tensor:
        """Whether [N] variable ``v`` (from 0) may be hit now, its window being open: its time has come, or it may
        come early, because whoever waits for it can still be on time."""
        due = time >= allocated[:, v]
        if self.held[v]:
            return due
        on_time = [(hits[w] > 0) | (allocated[:, w] <= time + most) for w, most in self.tied[v]]
        return due | reduce(torch.logical_and, on_time, time == time)

    def window(self, v: int, hits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Earliest and latest sample [N] of variable ``v`` (from 0), given the hits [N] (1 + sample, 0: none)."""
        d, v = self.bounds, v + 1
        low = torch.zeros_like(hits[0]) - float(d[v][0])
        high = torch.zeros_like(hits[0]) + float(d[0][v])
        for u, hit in enumerate(hits[: self.count], 1):
            if u == v:
                continue
            if d[0][u] - d[v][u] > -d[v][0]:
                low = torch.where(hit > 0, torch.maximum(low, hit - 1.0 - float(d[v][u])), low)
            if -d[u][0] + d[u][v] < d[0][v]:
                high = torch.where(hit > 0, torch.minimum(high, hit - 1.0 + float(d[u][v])), high)
        return low, high


class TimedMission(nn.Module):
    """Follows schedules [N, 1 + V]: the number of the alternative, then a sample for each of its variables.

    Args:
        decomposition: of the formula, on samples each control step.
        slack: by how much a predicate must hold for a hit, in its unit. ``margin``: the same for what is kept.
    """

    def __init__(self, decomposition: Decomposition, slack: float = 0.0, margin: float = 0.0) -> None:
        super().__init__()
        self.alternatives = tuple(marked(alternative) for alternative in decomposition.alternatives)
        self.dt, self.samples = decomposition.dt, decomposition.samples
        self.slack, self.margin = slack, margin
        if not self.alternatives:
            raise NotDecomposable("no times satisfy what it asks for", decomposition.formula)
        self.variables = width(self.alternatives)
        asked = [x.predicate for a in self.alternatives for x in (*a.reaches, *a.keeps)]
        self.predicates = tuple(dict.fromkeys(asked))
        self.values = [compiled(p) for p in self.predicates]
        places = {p: i for i, p in enumerate(self.predicates)}
        self.routes = [Route(a, places) for a in self.alternatives]
        self.memory: dict[str, tuple[int, ...]] = {"tick": (), "hit": (self.variables,)}
        self.schedule_size = 1 + self.variables

    def forward(
        self, signals: Mapping[str, Tensor], schedule: Tensor, memory: Mapping[str, Tensor]
    ) -> tuple[Timed, dict[str, Tensor]]:
        """What is so at this sample and the memory for the next one (zeros are the start)."""
        time = memory["tick"]
        margins = torch.stack([value(signals) + 0.0 * time for value in self.values], -1)
        found = [self._follow(route, margins, time, schedule[:, 1:], memory["hit"]) for route in self.routes]
        chosen = [(schedule[:, 0] - number).abs() < 0.5 for number in range(len(found))]
        parts = {name: reduce(lambda a, b: torch.where(_like(b[0], b[1]), b[1], a),
                              [(c, f[name]) for c, f in zip(chosen[1:], found[1:])], found[0][name])
                 for name in found[0]}
        hits = parts.pop("hits")
        timed = Timed(time=time, margins=margins, hit=hits > 0, **{
            name: value > 0.5 if name in ("violated", "late", "done") else value for name, value in parts.items()})
        return timed, {"tick": time + 1.0, "hit": hits}

    def _follow(
        self, route: Route, margins: Tensor, time: Tensor, allocated: Tensor, hit: Tensor
    ) -> dict[str, Tensor]:
        """One alternative: the fields of :class:`Timed` by name as floats, and ``hits`` [N, V]."""
        zero, one = torch.zeros_like(time), torch.ones_like(time)
        hits = [hit[:, v] if v < route.count else one for v in range(self.variables)]
        short = [self._short(route.asked[v], margins, zero) for v in range(route.count)]
        latest: list[Tensor] = []
        for v in range(route.count):
            low, high = route.window(v, hits)
            open_ = reduce(torch.logical_and, [hits[u] > 0 for u in route.before[v]],
                           (time >= low) & (time <= high) & (short[v] <= 0))
            open_ = open_ & route.now(v, time, allocated, hits)
            hits[v] = torch.where((hits[v] == 0) & open_, time + 1.0, hits[v])
            latest.append(high)
        violated, kept, left, over = self._keep(route, margins, time, hits, latest)
        stage, togo = self._stage(route, time, allocated, hits)
        missed = reduce(torch.logical_or, [(hits[v] == 0) & (time >= latest[v]) for v in range(route.count)], zero > 0)
        done = reduce(torch.logical_and, [hits[v] > 0 for v in range(route.count)], over & (violated < 0.5))
        distance = sum((stage[v] * short[v].clamp(min=0.0) for v in range(route.count)), zero)
        pad = [zero] * (self.variables - route.count)
        return {"hits": torch.stack(hits, -1), "stage": torch.stack([*stage, *pad], -1),
                "togo": torch.stack([*togo, *pad], -1), "distance": distance, "keep": kept,
                "left": torch.stack([*left, *pad], -1), "violated": violated,
                "late": torch.where(missed, one, zero), "done": torch.where(done, one, zero)}

    def _short(self, asked: Sequence[int], margins: Tensor, zero: Tensor) -> Tensor:
        """By how much [N] what a variable asks for fails, ``slack`` included; not positive where it holds."""
        if not asked:
            return zero
        return self.slack + 1e-9 - reduce(torch.minimum, [margins[:, i] for i in asked])

    def _keep(
        self, route: Route, margins: Tensor, time: Tensor, hits: list[Tensor], latest: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """Violated [N], least margin kept now [N], time left of what runs [N] by variable, all over [N].

        A hit that is taken back is set to 0 in ``hits``.
        """
        zero = torch.zeros_like(time)
        violated, kept, over = zero, zero + NEVER, zero == 0
        left = [zero] * route.count
        spans = [self._span(keep, hits, zero) for keep in route.keeps]
        back = [zero > 0] * route.count
        for keep, place, (begun, first, last) in zip(route.keeps, route.of_keep, spans):
            active = begun & (time >= first) & (time <= last)
            broken = active & (margins[:, place] <= self.margin)
            s = keep.start.variable - 1
            if s >= 0:
                behind = reduce(torch.logical_or, [hits[w] > 0 for w in route.behind[s]], zero > 0)
                back[s] = back[s] | (broken & (time < latest[s]) & ~behind)
        for keep, place, (begun, first, last) in zip(route.keeps, route.of_keep, spans):
            s = keep.start.variable - 1
            begun = begun & ~back[s] if s >= 0 else begun
            active = begun & (time >= first) & (time <= last)
            violated = torch.where(active & (margins[:, place] <= self.margin), 1.0, violated)
            kept = torch.where(active, torch.minimum(kept, margins[:, place]), kept)
            over = over & begun & (time >= last)
            if s >= 0:
                runs = (last - time).clamp(min=0.0, max=float(self.samples))
                left[s] = torch.where(begun, torch.maximum(left[s], runs), left[s])
        for v in range(route.count):
            hits[v] = torch.where(back[v], zero, hits[v])
        return violated, kept, left, over

    def _span(self, keep: Keep, hits: Sequence[Tensor], zero: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether its beginning is known [N], the first and the last sample [N] of what is to be kept."""
        start, end = keep.start, keep.end
        begun = hits[start.variable - 1] > 0 if start.variable else zero == 0
        first = (hits[start.variable - 1] - 1.0 if start.variable else zero) + float(start.offset)
        if not end.variable:
            return begun, first, zero + float(end.offset)
        hit = hits[end.variable - 1]
        return begun, first, torch.where(hit > 0, hit - 1.0 + float(end.offset), zero + 1e6)

    def _stage(
        self, route: Route, time: Tensor, allocated: Tensor, hits: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One-hot stage and time to go, [N] by variable."""
        zero = torch.zeros_like(time)
        waiting = [reduce(torch.logical_and, [hits[u] > 0 for u in route.before[v]], hits[v] == 0)
                   for v in range(route.count)]
        first = zero + 1e9
        for v in range(route.count):
            first = torch.where(waiting[v], torch.minimum(first, allocated[:, v]), first)
        stage, taken = [], zero > 0
        for v in range(route.count):
            mine = waiting[v] & (allocated[:, v] <= first) & ~taken
            taken = taken | mine
            stage.append(torch.where(mine, 1.0, zero))
        togo = [torch.where(hits[v] > 0, zero, allocated[:, v] - time) for v in range(route.count)]
        return stage, togo


def _like(condition: Tensor, value: Tensor) -> Tensor:
    """``condition`` [N] as [N, 1] where ``value`` is [N, V]."""
    return condition[:, None] if value.ndim > 1 else condition
