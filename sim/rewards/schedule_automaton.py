"""A formula's decomposition with a time for each of its subgoals: what is asked now, what is reached, what is broken.

A *schedule* names an alternative of the decomposition (`temporeal.sim.stl.planning.decompose`) and gives each of its
time variables a sample: its allocation (TGPO: grounding). An invariant that begins at a later time has a variable for
that time (`temporeal.sim.stl.planning.arrivals`). The automaton follows the schedule over sampled signals:

- A variable is *hit* where everything it asks for holds, its window, given the other hits, is open, and what must come
  before it is hit. It is hit before its allocated time only where nothing is held from then on and variables that wait
  for it can still be on time. The allocated time is clamped to the window.
- A hit moves on with the clock while all of this stays so and nothing behind it is hit, where that only gives others
  more time: what must follow a visit counts from its end. The next variable in a chain is then not hit at the same
  visit, unless all variables behind it could be hit, too.
- A hit is taken back where what must be kept from it on breaks, or where the window of another variable passes that
  counts from it: if it may still come later, and nothing depends on it already.

Whatever the schedule: if all is hit and kept, the hits are a grounding, so that the formula is satisfied. The converse
does not hold: another grounding may satisfy it.

N worlds, V time variables, A alternatives, P distinct predicates. Torch operations without data-dependent control flow:
compiled with the environment (`temporeal.sim.compiler.vectorize`) and traced into artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.planning.alternative import Alternative, Keep, Point
from temporeal.sim.stl.planning.arrivals import never_empty, with_arrivals
from temporeal.sim.stl.planning.decompose import Decomposition
from temporeal.sim.stl.rewriting.normal import NotDecomposable
from temporeal.sim.stl.rewriting.ranges import margin_upper_bound
from temporeal.sim.stl.semantics.torch_ops import margin_function

NEVER = 1e3
"""A margin where nothing is asked."""


class ScheduleProgress(NamedTuple):
    """Where N worlds are. Times are in samples."""

    time: Tensor  # [N]
    margins: Tensor  # [N, P] of the distinct predicates, each in its own unit
    hit: Tensor  # [N, V] bool; also where the followed alternative has no such variable
    stage: Tensor  # [N, V] one-hot: the variable to work on, the first allocated of those that may come next
    togo: Tensor  # [N, V] until its time; 0 where hit
    spare: Tensor  # [N, V] until its window, given the hits, is over; 0 where hit
    distance: Tensor  # [N] by how much what the stage asks for fails, in its unit; 0 where there is no stage
    asked: Tensor  # [N, P] bool: what the stage asks for
    kept: Tensor  # [N, P] margins of what must be kept now, NEVER of what need not
    left: Tensor  # [N, V] until the last of what must be kept from a variable on is over; 0 where nothing runs
    violated: Tensor  # [N] bool: something that must be kept now is not, and the hits so far cannot be taken back
    late: Tensor  # [N] bool: a variable is not hit and its window is over
    done: Tensor  # [N] bool: all is hit, all invariants are over; earlier violations are not remembered


def width(alternatives: Sequence[Alternative]) -> int:
    """V: of the alternative with the most time variables, at least 1."""
    return max([1, *(a.variables for a in alternatives)])


class Route:
    """One alternative, prepared: predicates by place, bounds, what depends on what. Variables count from 0 here."""

    def __init__(self, alternative: Alternative, places: Mapping[Formula, int]) -> None:
        self.count = alternative.variables
        self.keeps, self.of_keep = alternative.keeps, [places[k.predicate] for k in alternative.keeps]
        for keep in self.keeps:
            if keep.start.variable and keep.start.offset < 0:
                raise NotDecomposable("something is to be kept before the time it counts from, which a schedule cannot "
                                      "follow on line", keep.predicate)
        d = [[int(x) for x in row] for row in alternative.bounds]
        self.windows = [(float(-d[v][0]), float(d[0][v])) for v in range(1, self.count + 1)]
        every, others = range(1, self.count + 1), lambda v: (u for u in range(1, self.count + 1) if u != v)
        # what a hit of u adds to the window of v: its end is at most so far behind it, its beginning at least
        self.upper = [[(u - 1, float(d[u][v])) for u in others(v) if d[u][v] - d[u][0] < d[0][v]] for v in every]
        self.lower = [[(u - 1, -float(d[v][u])) for u in others(v) if d[0][u] - d[v][u] > -d[v][0]] for v in every]
        self.before = [[u - 1 for u in range(1, v) if d[v][u] <= 0] for v in every]
        self.behind = [[w for w in range(self.count) if v in self.before[w]] for v in range(self.count)]
        self.asked = [[places[r.predicate] for r in alternative.reaches if r.variable == v]
                      + [places[k.predicate] for k in self.keeps if k.start == Point(v) and never_empty(alternative, k)]
                      for v in every]
        self.held = [any(k.start.variable == v for k in self.keeps) for v in every]
        # behind the end of what was kept until a hit, nobody looked: such a hit stays where it is
        self.fixed = [any(k.end.variable == v != k.start.variable for k in self.keeps) for v in every]
        self.answers = [any(_answered(k) and k.end.variable == v for k in self.keeps) for v in every]  # a response
        self.waiting = [[(w, most) for w in range(self.count) for u, most in self.upper[w]
                         if u == v and w not in self.before[v]] for v in range(self.count)]
        self.moves = [bool(self.waiting[v]) and not self.held[v] and not self.fixed[v] and not any(
            u == v and least > 0 for w in range(self.count) for u, least in self.lower[w]) for v in range(self.count)]
        self.chained = [[p for p in self.before[v] if self.moves[p] and any(w == v for w, _ in self.waiting[p])]
                        for v in range(self.count)]

    def window(self, v: int, hits: Sequence[Tensor], dues: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Earliest and latest sample [N] of variable ``v``, given the hits and dues [N] (1 + sample, 0: none)."""
        zero = torch.zeros_like(hits[0])
        low, high = (zero + end for end in self.windows[v])
        for u, least in self.lower[v]:
            low = torch.where(hits[u] > 0, torch.maximum(low, hits[u] - 1.0 + least), low)
        for u, most in self.upper[v]:
            high = torch.where(hits[u] > 0, torch.minimum(high, hits[u] - 1.0 + most), high)
        if dues:
            high = torch.where(dues[v] > 0, torch.minimum(high, dues[v] - 1.0), high)
        return low, high

    def due(self, v: int, time: Tensor, aims: Sequence[Tensor], hits: Sequence[Tensor]) -> Tensor:
        """Whether [N] variable ``v`` may be hit now, its window being open: its time has come, or it may come early,
        because whoever waits for it can still be on time."""
        come = time >= aims[v]
        if self.held[v]:
            return come
        on_time = [(hits[w] > 0) | (aims[w] <= time + most) for w, most in self.waiting[v]]
        return come | reduce(torch.logical_and, on_time, time == time)


class ScheduleAutomaton(nn.Module):
    """Follows schedules [N, 1 + V]: the number of the alternative, then a sample for each of its variables.

    Args:
        decomposition: of the formula, on samples each control step.
        slack: by how much a predicate must hold for a hit, in its unit. ``fitted``: but by no more than half of what it
            can hold by at all, where its form tells that: a speed below 0.05 m/s never holds by 0.05. ``slacks`` [P]
            are what is so asked of each predicate. ``margin``: by how much what is kept must hold.
    """

    def __init__(
        self, decomposition: Decomposition, slack: float = 0.0, margin: float = 0.0, fitted: bool = False
    ) -> None:
        super().__init__()
        self.alternatives = tuple(with_arrivals(alternative) for alternative in decomposition.alternatives)
        self.dt, self.samples = decomposition.dt, decomposition.samples
        self.slack, self.margin = slack, margin
        if not self.alternatives:
            raise NotDecomposable("no times satisfy what it asks for", decomposition.formula)
        self.variables = width(self.alternatives)
        asked = [x.predicate for a in self.alternatives for x in (*a.reaches, *a.keeps)]
        self.predicates = tuple(dict.fromkeys(asked))
        self.slacks = tuple(min(slack, 0.5 * margin_upper_bound(p)) if fitted else slack for p in self.predicates)
        self.values = [margin_function(p) for p in self.predicates]
        places = {p: i for i, p in enumerate(self.predicates)}
        self.routes = [Route(a, places) for a in self.alternatives]
        hit = {place for route in self.routes for wanted in route.asked for place in wanted}
        self.reached = tuple(self.predicates[place] for place in sorted(hit))
        self.memory: dict[str, tuple[int, ...]] = {"tick": (), "hit": (self.variables,)}
        self.dues = any(_answered(keep) for route in self.routes for keep in route.keeps)
        if self.dues:
            self.memory["due"] = (self.variables,)
        self.schedule_size = 1 + self.variables

    def forward(
        self, signals: Mapping[str, Tensor], schedule: Tensor, memory: Mapping[str, Tensor]
    ) -> tuple[ScheduleProgress, dict[str, Tensor]]:
        """Progress at this sample and the memory for the next one (zeros are the start)."""
        time = memory["tick"]
        margins = self.margins(signals, time)
        found = [self._follow(route, margins, time, schedule[:, 1:], memory) for route in self.routes]
        chosen = [(schedule[:, 0] - number).abs() < 0.5 for number in range(len(found))]
        parts = {name: reduce(lambda a, b: torch.where(_like(b[0], b[1]), b[1], a),
                              [(c, f[name]) for c, f in zip(chosen[1:], found[1:])], found[0][name])
                 for name in found[0]}
        hits, dues = parts.pop("hits"), parts.pop("dues", None)
        timed = ScheduleProgress(time=time, margins=margins, hit=hits > 0, **{
            name: value > 0.5 if name in ("asked", "violated", "late", "done") else value
            for name, value in parts.items()})
        return timed, {"tick": time + 1.0, "hit": hits, **({} if dues is None else {"due": dues})}

    def margins(self, signals: Mapping[str, Tensor], time: Tensor) -> Tensor:
        """Of the predicates [N, P], each in its own unit."""
        return torch.stack([value(signals) + 0.0 * time for value in self.values], -1)

    def _follow(
        self, route: Route, margins: Tensor, time: Tensor, allocated: Tensor, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """One alternative: the fields of :class:`ScheduleProgress` by name as floats, ``hits`` and ``dues`` [N, V]."""
        zero, every = torch.zeros_like(time), range(route.count)
        pad = [zero] * (self.variables - route.count)
        hits = [memory["hit"][:, v] for v in every]
        dues = [memory["due"][:, v] for v in every] if self.dues else []
        short = [self._short(route.asked[v], margins, zero) for v in every]
        aims = self._aims(route, allocated, hits, dues)
        for v in every:
            low, high = route.window(v, hits, dues)
            fits = reduce(torch.logical_and, [hits[u] > 0 for u in route.before[v]],
                          (time >= low) & (time <= high) & (short[v] <= 0))
            new = fits & (hits[v] == 0) & route.due(v, time, aims, hits) & ~self._early(route, v, time, short, hits)
            if route.moves[v]:
                new = new | reduce(torch.logical_and, [hits[w] == 0 for w in route.behind[v]], fits & (hits[v] > 0))
            hits[v] = torch.where(new, time + 1.0, hits[v])
        self._take_back(route, margins, time, hits, dues)
        dues = self._due(route, margins, time, hits, dues)
        violated, kept, left, over = self._keep(route, margins, time, hits)
        aims, ends = self._aims(route, allocated, hits, dues), [route.window(v, hits, dues)[1] for v in every]
        stage = self._stage(route, aims, hits)
        missed = reduce(torch.logical_or, [(hits[v] == 0) & (time >= ends[v]) for v in every], zero > 0)
        done = reduce(torch.logical_and, [hits[v] > 0 for v in every], over & (violated < 0.5))

        def table(columns: Sequence[Tensor], absent: float = 0.0) -> Tensor:
            return torch.stack([*columns, *(x + absent for x in pad)], -1)

        return {"hits": table(hits, 1.0), **({"dues": table(dues)} if self.dues else {}), "stage": table(stage),
                "togo": table([torch.where(hits[v] > 0, zero, aims[v] - time) for v in every]),
                "spare": table([torch.where(hits[v] > 0, zero, ends[v] - time) for v in every]),
                "distance": sum((stage[v] * short[v].clamp(min=0.0) for v in every), zero),
                "asked": torch.stack([sum((stage[v] for v in every if place in route.asked[v]), zero)
                                      for place in range(len(self.predicates))], -1),
                "kept": torch.stack(kept, -1), "left": table(left), "violated": violated,
                "late": torch.where(missed, 1.0, zero), "done": torch.where(done, 1.0, zero)}

    def _early(
        self, route: Route, v: int, time: Tensor, short: Sequence[Tensor], hits: Sequence[Tensor]
    ) -> Tensor:
        """Whether [N] a hit of ``v`` would be for nothing: one before it moves on with the clock just now, which leaves
        ``v`` more time. Unless all that is behind ``v`` could be hit now, too: then that is how it ends."""
        moving = reduce(torch.logical_or, [hits[p] == time + 1.0 for p in route.chained[v]], time != time)
        rest = reduce(torch.logical_and, [(short[w] <= 0) & (time >= route.windows[w][0]) for w in route.behind[v]],
                      time == time)
        return moving & ~rest

    def _aims(
        self, route: Route, allocated: Tensor, hits: Sequence[Tensor], dues: Sequence[Tensor]
    ) -> list[Tensor]:
        """The time [N] of each variable: the allocated one, drawn into its window."""
        aims = []
        for v in range(route.count):
            low, high = route.window(v, hits, dues)
            aims.append(torch.minimum(torch.maximum(allocated[:, v], low), high))
        return aims

    def _short(self, asked: Sequence[int], margins: Tensor, zero: Tensor) -> Tensor:
        """By how much [N] what a variable asks for fails, the slack included; not positive where it holds."""
        if not asked:
            return zero
        return reduce(torch.maximum, [self.slacks[i] + 1e-9 - margins[:, i] for i in asked])

    def _take_back(
        self, route: Route, margins: Tensor, time: Tensor, hits: list[Tensor], dues: Sequence[Tensor]
    ) -> None:
        """Set those of ``hits`` to 0 that did not lead on and may come later."""
        zero = torch.zeros_like(time)
        wanted = [zero > 0] * route.count
        for keep, place in zip(route.keeps, route.of_keep):
            s = keep.start.variable - 1
            if s >= 0:
                wanted[s] = wanted[s] | (self._asks(keep, time, hits)[0] & (margins[:, place] <= self.margin))
        for s in range(route.count):
            for w, most in route.waiting[s]:
                wanted[s] = wanted[s] | ((hits[s] > 0) & (hits[w] == 0) & (time >= hits[s] - 1.0 + most))
        for s in reversed(range(route.count)):
            if not route.fixed[s] and (route.held[s] or route.waiting[s]):
                high = route.window(s, hits, dues)[1]
                alone = reduce(torch.logical_and, [hits[w] == 0 for w in route.behind[s]], wanted[s] & (time < high))
                hits[s] = torch.where(alone, zero, hits[s])

    def _due(
        self, route: Route, margins: Tensor, time: Tensor, hits: Sequence[Tensor], dues: list[Tensor]
    ) -> list[Tensor]:
        """By when [N] each variable must be hit because something broke that is to be kept until some time before it:
        a response to a request."""
        dues, zero = [*dues], torch.zeros_like(time)
        for keep, place in zip(route.keeps, route.of_keep):
            if _answered(keep):
                e = keep.end.variable - 1
                begun, first, _ = self._span(keep, hits, zero)
                asks = begun & (time >= first) & (hits[e] == 0) & (margins[:, place] <= self.margin) & (dues[e] == 0)
                dues[e] = torch.where(asks, time - float(keep.end.offset), dues[e])
        return dues

    def _keep(
        self, route: Route, margins: Tensor, time: Tensor, hits: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor]:
        """Violated [N], margins [N] of what is kept now by predicate, time left of what runs [N] by variable, all
        over [N]."""
        zero = torch.zeros_like(time)
        violated, over = zero, zero == 0
        left, kept = [zero] * route.count, [zero + NEVER] * len(self.predicates)
        for keep, place in zip(route.keeps, route.of_keep):
            active, begun, last = self._asks(keep, time, hits)
            violated = torch.where(active & (margins[:, place] <= self.margin), 1.0, violated)
            kept[place] = torch.where(active, margins[:, place], kept[place])
            over = over & begun & (time >= last)
            s = keep.start.variable - 1
            if s >= 0:
                runs = (last - time).clamp(min=0.0, max=float(self.samples))
                left[s] = torch.where(begun, torch.maximum(left[s], runs), left[s])
        return violated, kept, left, over

    def _asks(self, keep: Keep, time: Tensor, hits: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Whether ``keep`` asks for something at this sample [N], whether it has begun [N], its last sample [N]."""
        begun, first, last = self._span(keep, hits, torch.zeros_like(time))
        active = begun & (time >= first) & (time <= last)
        if _answered(keep):  # before the answer it only says by when that must come
            active = active & (hits[keep.end.variable - 1] > 0)
        return active, begun, last

    def _span(self, keep: Keep, hits: Sequence[Tensor], zero: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether its beginning is known [N], the first and the last sample [N] of what is to be kept."""
        start, end = keep.start, keep.end
        begun = hits[start.variable - 1] > 0 if start.variable else zero == 0
        first = (hits[start.variable - 1] - 1.0 if start.variable else zero) + float(start.offset)
        if not end.variable:
            return begun, first, zero + float(end.offset)
        hit = hits[end.variable - 1]
        return begun, first, torch.where(hit > 0, hit - 1.0 + float(end.offset), zero + 1e6)

    def _stage(self, route: Route, aims: Sequence[Tensor], hits: Sequence[Tensor]) -> list[Tensor]:
        """One-hot, [N] by variable: the first of those that may come next."""
        zero = torch.zeros_like(aims[0]) if aims else torch.zeros(0)
        waiting = [reduce(torch.logical_and, [hits[u] > 0 for u in route.before[v]], hits[v] == 0)
                   for v in range(route.count)]
        first = zero + 1e9
        for v in range(route.count):
            first = torch.where(waiting[v], torch.minimum(first, aims[v]), first)
        stage, taken = [], zero > 0
        for v in range(route.count):
            mine = waiting[v] & (aims[v] <= first) & ~taken
            taken = taken | mine
            stage.append(torch.where(mine, 1.0, zero))
        return stage


def _answered(keep: Keep) -> bool:
    """Whether ``keep`` ends so long before a variable that it tells by when that must come: a response."""
    return bool(keep.end.variable) and keep.end.offset < -1


def _like(condition: Tensor, value: Tensor) -> Tensor:
    """``condition`` [N] as [N, 1] where ``value`` is [N, V]."""
    return condition[:, None] if value.ndim > 1 else condition
