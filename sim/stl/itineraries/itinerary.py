"""Itineraries: one way through a formula as places to go to in turn, each in its window, and what is kept on the way.

An alternative of the decomposition (:mod:`temporeal.sim.stl.planning.decompose`) with an order of its time variables.
Variables that are hit at one place and time are one *leg*. The windows are those of the closure of all constraints with
the order added, so that whoever hits each leg within its window can still hit the next ones in time (Dechter, Meiri and
Pearl, 1991). Times are whole samples. numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from temporeal.sim.stl.itineraries.asked import Asked
from temporeal.sim.stl.itineraries.regions import Region
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED, Ints, closure

START = -1
"""In place of a leg: the start of the mission."""


@dataclass(frozen=True)
class Leg:
    """A place to be in, for ``hold`` samples more after the first; None: anywhere.

    It is hit at the first sample of that stretch. Its window is ``low`` to ``high``, and from ``since[k][0]`` to
    ``since[k][1]`` samples after the hit of each earlier leg k.
    """

    region: Region | None
    hold: int
    low: int
    high: int
    since: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Kept:
    """``region`` as it asks for, from ``start`` to ``end``: (leg, samples after its hit), both included.

    Nothing is asked before ``start``'s leg is hit, and what ends with a leg goes on until that is hit.
    """

    region: Region
    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Itinerary:
    """The legs in turn, what is kept, and what the search expects.

    Args:
        alternative: index of it in the decomposition. ``groups``: the variables of each leg.
        samples: length of the trace that the formula is about.
        times, places: expected hits, [L] samples and points [L, 3] m.
        slack: by how many samples all windows are expected to be met, at least; negative: they are not.
    """

    alternative: int
    groups: tuple[tuple[int, ...], ...]
    legs: tuple[Leg, ...]
    kept: tuple[Kept, ...]
    samples: int
    times: tuple[int, ...]
    places: tuple[tuple[float, float, float], ...]
    slack: float


def itinerary(
    asked: Asked, number: int, groups: Sequence[Sequence[int]], times: Sequence[int],
    places: Sequence[tuple[float, float, float]], slack: float, triggers: Sequence[tuple[int, int, int]],
    hits: Sequence[int] = (),
) -> Itinerary | None:
    """The itinerary of ``groups`` of variables in turn; None where no times satisfy the constraints in this order.

    ``triggers``: (variable, answer, most samples between): a place whose visit asks for an answer in time. ``hits``:
    the samples of the first legs, which are hit already.
    """
    count = len(groups)
    leg_of = {v: k for k, group in enumerate(groups) for v in group}
    holds = [max(asked.holds[v] for v in group) for group in groups]
    edges = _edges(asked, leg_of, groups, holds, triggers)
    edges += [edge for k, hit in enumerate(hits) for edge in ((0, k + 1, hit), (k + 1, 0, -hit))]
    d = closure(count, edges)
    if d is None:
        return None
    requests = {leg_of[v] for v, _, _ in triggers}
    legs = tuple(Leg(asked.regions[group[0]], 0 if k in requests else holds[k], int(-d[k + 1, 0]), int(d[0, k + 1]),
                     _since(d, k)) for k, group in enumerate(groups))
    kept = [*_kept(asked, leg_of, holds, legs), *_stays(legs, holds, requests)]
    return Itinerary(number, tuple(map(tuple, groups)), legs, tuple(kept), asked.samples, tuple(times), tuple(places),
                     slack)


def _edges(
    asked: Asked, leg_of: dict[int, int], groups: Sequence[Sequence[int]], holds: Sequence[int],
    triggers: Sequence[tuple[int, int, int]],
) -> list[tuple[int, int, int]]:
    """All constraints between legs (from 1 here; 0 is the start), with their order."""
    d, variables = asked.bounds, [0, *leg_of]
    place = {0: 0, **{v: k + 1 for v, k in leg_of.items()}}
    edges = [(place[i], place[j], int(d[i, j])) for i in variables for j in variables
             if i != j and d[i, j] < UNBOUNDED // 2 and place[i] != place[j]]
    edges += [(place[i], place[i], int(d[i, j])) for i in leg_of for j in leg_of
              if i != j and place[i] == place[j] and d[i, j] < 0]  # one leg, two times: no way
    edges += [(k + 1, k, -_between(asked, groups, holds, k)) for k in range(1, len(groups))]
    return edges + [(place[v], place[answer], most) for v, answer, most in triggers]


def _between(asked: Asked, groups: Sequence[Sequence[int]], holds: Sequence[int], k: int) -> int:
    """Samples that leg k comes after the one before at least: as long as that is stayed at, where the places differ."""
    before, own = (asked.regions[groups[j][0]] for j in (k - 1, k))
    return 0 if before == own else holds[k - 1]


def _since(d: Ints, k: int) -> tuple[tuple[int, int], ...]:
    """The windows of leg k after earlier ones."""
    return tuple((int(-d[k + 1, j + 1]), int(min(d[j + 1, k + 1], UNBOUNDED))) for j in range(k))


def _stays(legs: Sequence[Leg], holds: Sequence[int], requests: set[int]) -> list[Kept]:
    """The stays at places whose visit asks for an answer: kept from the hit on, because whoever leaves has asked."""
    return [Kept(region, (k, 0), (k, holds[k])) for k in sorted(requests)
            if holds[k] and (region := legs[k].region) is not None]


def _kept(asked: Asked, leg_of: dict[int, int], holds: Sequence[int], legs: Sequence[Leg]) -> list[Kept]:
    """What is kept, by legs. What is kept until long before an answer is kept until the leg that visits the place
    begins and its window is open, so that the first entry is its hit; where no leg visits it before the answer, until
    that."""
    found = list[Kept]()
    for keep in asked.keeps:
        start = (leg_of[keep.start[0]], keep.start[1]) if keep.start[0] else (START, keep.start[1])
        end = (leg_of[keep.end[0]], keep.end[1]) if keep.end[0] else (START, keep.end[1])
        if end[0] != START and end[1] < -1:
            visits = [leg_of[v] for v, region in enumerate(asked.regions)
                      if v and region is not None and region == keep.region.place() and leg_of[v] < end[0]
                      and leg_of[v] > start[0]]
            first = min(visits, default=None)
            if first is not None:
                found.append(Kept(keep.region, start, (START, legs[first].low - 1)))
                if first == 0:
                    continue
            end = (end[0], -1) if first is None else (first - 1, max(holds[first - 1], legs[first].since[-1][0] - 1))
        if start[0] != end[0] or start[1] <= end[1]:  # else it is empty whatever the times are
            found.append(Kept(keep.region, start, end))
    return list(dict.fromkeys(found))


def rest(found: Itinerary, hits: Sequence[int]) -> Itinerary:
    """``found`` without its first legs, which were hit at the samples ``hits``: what counts from them is absolute."""
    done = len(hits)

    def absolute(end: tuple[int, int]) -> tuple[int, int]:
        leg, offset = end
        if leg == START:
            return end
        return (START, hits[leg] + offset) if leg < done else (leg - done, offset)

    legs = tuple(replace(leg, since=leg.since[done:]) for leg in found.legs[done:])
    kept = tuple(Kept(keep.region, absolute(keep.start), absolute(keep.end)) for keep in found.kept)
    return replace(found, groups=found.groups[done:], legs=legs, kept=kept, times=found.times[done:],
                   places=found.places[done:])
