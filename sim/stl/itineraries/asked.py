"""What an alternative of a decomposition asks for, as regions: where to be at each time variable, and what is kept.

Variables are numbered from 1 as in :mod:`temporeal.sim.stl.planning.alternative`; 0 is the start of the trace. numpy
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from temporeal.sim.stl.itineraries.regions import FAR, FORMS, NotARegion, Region, regions
from temporeal.sim.stl.language.propositional import And, Formula, Or
from temporeal.sim.stl.planning.alternative import Alternative, Keep
from temporeal.sim.stl.planning.arrivals import never_empty, with_arrivals
from temporeal.sim.stl.planning.difference_constraints import Ints


@dataclass(frozen=True)
class Interval:
    """``region`` as it asks for from ``start`` to ``end``: (variable, offset), both included."""

    region: Region
    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Asked:
    """An alternative as regions.

    Args:
        regions: by variable, where to be at its time; None: anywhere. ``regions[0]`` is None.
        holds: by variable, for how many samples more.
        bounds: closure [n+1, n+1] of the constraints. ``before``: by variable, those that are never later.
    """

    regions: tuple[Region | None, ...]
    holds: tuple[int, ...]
    keeps: tuple[Interval, ...]
    bounds: Ints
    before: tuple[tuple[int, ...], ...]
    samples: int

    @property
    def variables(self) -> int:
        """n."""
        return len(self.regions) - 1

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """By variable, the number of its place: equal for equal places; 0: anywhere."""
        places = list(dict.fromkeys(region for region in self.regions if region is not None))
        return tuple(0 if region is None else 1 + places.index(region) for region in self.regions)

    @cached_property
    def outside(self) -> tuple[tuple[int, Interval], ...]:
        """What is kept out of, with the number of that place; -1: no variable goes there."""
        number = {region: self.numbers[v] for v, region in enumerate(self.regions) if region is not None}
        return tuple((number.get(keep.region.place(), -1), keep) for keep in self.keeps if not keep.region.inside)

    @cached_property
    def closing(self) -> Mapping[int, tuple[Interval, ...]]:
        """By the number of a place, when it must be kept out of."""
        return {k: tuple(keep for number, keep in self.outside if number == k) for k in set(self.numbers)}


def asked(alternative: Alternative) -> Asked:
    """The ``alternative`` as regions; a :class:`NotARegion` where it asks for anything else, or for two places at one
    time."""
    alternative, keeps = _without_bans(alternative)
    found = with_arrivals(alternative)
    n, d = found.variables, found.bounds
    wanted: list[dict[Region, None]] = [{} for _ in range(n + 1)]
    texts: list[list[str]] = [[] for _ in range(n + 1)]
    for reach in found.reaches:
        wanted[reach.variable].update(dict.fromkeys(regions(reach.predicate)))
        texts[reach.variable].append(str(reach.predicate))
    holds = [0] * (n + 1)
    for keep in found.keeps:
        start, end = (keep.start.variable, keep.start.offset), (keep.end.variable, keep.end.offset)
        own = tuple(regions(keep.predicate))
        v = start[0]
        if v and not start[1] and never_empty(found, keep):
            wanted[v].update(dict.fromkeys(region for region in own if region.inside))
            texts[v].append(str(keep.predicate))
            if end[0] == v and len(own) == 1 and own[0].inside:
                holds[v] = max(holds[v], end[1])
                continue
        keeps += [Interval(region, start, end) for region in own]
    for v, places in enumerate(wanted):
        if any(min(region.half) >= FAR for region in places):
            raise NotARegion(f"{' and '.join(texts[v])} is a half-space, to be reached: it has no middle. Give "
                             f"it an end, as max(abs(P.z - c) - h) < 0; to be kept, half-spaces are legal. {FORMS}")
        outside = [region for region in places if not region.inside]
        if len(places) > 1 or outside:
            raise NotARegion(f"{' and '.join(texts[v])} at one time: a policy goes to one place at a time, and inside "
                             f"of it. {FORMS}")
    before = tuple(tuple(u for u in range(1, n + 1) if u != v and d[v, u] <= 0 and (d[u, v] > 0 or u < v))
                   for v in range(n + 1))
    return Asked(tuple(next(iter(places), None) for places in wanted), tuple(holds), tuple(keeps), d,
                 ((), *before[1:]), found.samples)


def choices(alternative: Alternative) -> Iterator[Alternative]:
    """``alternative`` with one disjunct of each state that is to be reached: at one sample p or q is one of the two."""
    parts = [disjuncts(reach.predicate) for reach in alternative.reaches]
    if (count := prod(map(len, parts))) > MOST_CHOICES:
        raise NotARegion(f"the places that the formula lets choose from make {count} ways; at most {MOST_CHOICES} are "
                         "legal")
    for chosen in product(*parts):
        yield replace(alternative, reaches=tuple(
            replace(reach, predicate=part) for reach, part in zip(alternative.reaches, chosen)))


def disjuncts(state: Formula) -> list[Formula]:
    """The disjuncts of a state in disjunctive normal form."""
    if isinstance(state, Or):
        return [part for arg in state.args for part in disjuncts(arg)]
    if isinstance(state, And):
        return [And(parts) for parts in product(*map(disjuncts, state.args))]
    return [state]


MOST_CHOICES = 64


def _without_bans(alternative: Alternative) -> tuple[Alternative, list[Interval]]:
    """``alternative`` without what is to be kept out of between two known times, and those intervals.

    Where such an interval begins after the start nobody has to arrive anywhere: it is no leg.
    """
    keeps, bans = list[Keep](), list[Interval]()
    for keep in alternative.keeps:
        known = keep.start.variable == keep.end.variable == 0 and keep.start.offset > 0
        parts = keep.predicate.args if isinstance(keep.predicate, And) else (keep.predicate,)
        own = [tuple(regions(part)) for part in parts] if known else []
        away = [k for k, found in enumerate(own) if all(not region.inside for region in found)]
        bans += [Interval(region, (0, keep.start.offset), (0, keep.end.offset)) for k in away for region in own[k]]
        rest = tuple(part for k, part in enumerate(parts) if k not in away)
        if rest:
            keeps.append(keep if not away else replace(keep, predicate=And(rest) if len(rest) > 1 else rest[0]))
    return replace(alternative, keeps=tuple(keeps)), bans
