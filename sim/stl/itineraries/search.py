"""The search for itineraries: in which order to hit the time variables of a formula's alternatives.

A beam search over orders. Each step goes to the place of a variable whose predecessors are hit, by a guess of how long
that takes, and hits it as early as its window allows; what is closed then is not entered, and a visit that asks for an
answer says by when. Many orders are tried and the best by slack are given: a critic judges them better
(:mod:`temporeal.sim.stl.itineraries.planner`). numpy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, hypot, inf

import numpy as np

from temporeal.sim.stl.itineraries.asked import Asked, Interval
from temporeal.sim.stl.itineraries.itinerary import Itinerary, itinerary
from temporeal.sim.stl.itineraries.pieces import Pieces, whole
from temporeal.sim.stl.itineraries.regions import FAR, Numbers, Region, distance
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED, Ints

Travel = Callable[[Numbers, Numbers, Sequence[Region]], float]
"""Samples from a point to another one, past regions that are closed."""
MOST, AMPLE = 16, 25.0
"""Itineraries that are given; samples of slack beyond which more is not better."""
ROUNDS = ((8, False), (8, True), (24, True), (80, True))
"""Widths of the beam, one after the other until something is in time, and whether it looks ahead."""
WIDEST, FEW = 24, 5
"""Width for alternatives with few variables, at once."""
ALIKE = 3
"""Partial orders of a beam at most that go to the same places in turn."""
DEPTH = 0.1
"""m: how far inside a place a hit is expected."""


@dataclass(frozen=True)
class Partial:
    """The beginning of an order: what is hit when, where the robot is expected then."""

    hits: Mapping[int, int]
    groups: tuple[tuple[int, ...], ...]
    times: tuple[int, ...]
    places: tuple[Numbers, ...]
    point: Numbers
    free: int  # the sample at which it may go on
    slack: float
    low: Ints  # [n + 1] earliest sample of each variable, given the hits; of those that are hit: nothing
    high: Ints  # [n + 1] latest sample; UNBOUNDED of those that are hit
    triggers: tuple[tuple[int, int, int], ...] = ()
    past: int = 0  # groups that were hit before the search began

    def score(self) -> tuple[float, int]:
        """What is better is greater."""
        return min(self.slack, AMPLE), -self.free


@dataclass(frozen=True)
class Begun:
    """A mission under way: the alternative that is followed, the variables of the legs that were hit and when."""

    alternative: int
    groups: tuple[tuple[int, ...], ...]
    times: tuple[int, ...]


def search(
    ways: Sequence[Asked], point: Numbers, travel: Travel, *, now: int = 0, begun: Begun | None = None,
) -> list[Itinerary]:
    """The result of :func:`searching`, at once."""
    return whole(searching(ways, point, travel, now=now, begun=begun))


def searching(
    ways: Sequence[Asked], point: Numbers, travel: Travel, *, now: int = 0, begun: Begun | None = None,
) -> Pieces[list[Itinerary]]:
    """At most ``MOST`` itineraries from ``point`` at sample ``now``, the best by slack first; of all alternatives, or
    of the rest of the one that was ``begun``, whose legs that were hit are in it. Where a narrow beam finds none in
    time, wider ones look again."""
    ranked = list[Itinerary]()
    for width, ahead in ROUNDS:
        for number, asked in enumerate(ways):
            if begun is None or begun.alternative == number:
                ranked += yield from of_way(asked, number, point, travel, now, begun, width, ahead)
        ranked.sort(key=lambda each: (min(each.slack, AMPLE), -max(each.times, default=0)), reverse=True)
        if (ranked and ranked[0].slack >= 0) or all(each.variables <= FEW for each in ways):
            break
    return list({(each.alternative, each.groups): each for each in ranked}.values())[:MOST]


def of_way(
    asked: Asked, number: int, point: Numbers, travel: Travel, now: int, begun: Begun | None, width: int,
    ahead: bool = False,
) -> Pieces[list[Itinerary]]:
    """The itineraries of one alternative, by a beam of at most ``width``."""
    first = Partial({}, (), (), (), point, now, inf, -asked.bounds[:, 0], asked.bounds[0].copy())
    first.high[0] = UNBOUNDED
    beam = [first if begun is None else resumed(asked, first, begun)]
    past = beam[0].past
    if asked.variables <= FEW:
        width = WIDEST
    for _ in range(asked.variables - len(beam[0].hits)):
        after = list[Partial]()
        for each in beam:
            yield 1
            after += expanded(asked, each, travel, ahead)
        ranked = sorted(after, key=Partial.score, reverse=True)
        beam = (unlike(asked, ranked) if ahead else ranked)[:width]
    found = list[Itinerary]()
    for each in beam:
        yield 1
        one = itinerary(asked, number, each.groups, each.times, each.places, each.slack, each.triggers,
                        each.times[:past])
        found += [] if one is None else [one]
    return found


def unlike(asked: Asked, ranked: Sequence[Partial]) -> list[Partial]:
    """Of the partial orders those that go to unlike places in turn, and ``ALIKE`` of each kind: how often a place is
    hit at one time, as the chains of requests ask for, would else fill a beam."""
    count = Counter[tuple[int, ...]]()
    out = list[Partial]()
    for each in ranked:
        way = tuple(asked.numbers[group[0]] for group in each.groups[each.past:])
        count[way] += 1
        if count[way] <= ALIKE:
            out.append(each)
    return out


def resumed(asked: Asked, first: Partial, begun: Begun) -> Partial:
    """``first`` with what was hit."""
    each = first
    for group, at in zip(begun.groups, begun.times):
        for v in group:
            each = noted(asked, each, v, at)
    return replace(each, groups=begun.groups, times=begun.times, places=(first.point,) * len(begun.groups),
                   past=len(begun.groups))


def noted(asked: Asked, each: Partial, v: int, at: int) -> Partial:
    """``each`` with ``v`` hit at sample ``at``: what that says of the others' windows, and by when of answers."""
    d, triggers = asked.bounds, each.triggers
    low, high = np.maximum(each.low, at - d[:, v]), np.minimum(each.high, at + d[v])
    for keep in asked.closing.get(asked.numbers[v], ()):
        e, offset = keep.end
        if e and offset < -1 and e not in each.hits and active(keep, each, at):
            high[e] = min(high[e], at - offset - 1)
            triggers = (*triggers, (v, e, -offset - 1))
    hits = {**each.hits, v: at}
    high[[0, *hits]] = UNBOUNDED
    return replace(each, hits=hits, low=low, high=high, triggers=triggers)


def expanded(asked: Asked, each: Partial, travel: Travel, ahead: bool = False) -> list[Partial]:
    """``each`` with one more variable hit, in every way."""
    out = list[Partial]()
    for v in range(1, asked.variables + 1):
        if v not in each.hits and all(u in each.hits for u in asked.before[v]):
            after = hit(asked, each, v, travel, ahead)
            if after is not None:
                out.append(after)
    return out


def hit(asked: Asked, each: Partial, v: int, travel: Travel, ahead: bool = False) -> Partial | None:
    """``each`` with variable ``v`` hit next; None where its place is closed then or its window is over long before."""
    region, number = asked.regions[v], asked.numbers[v]
    same = len(each.groups) > each.past and asked.numbers[each.groups[-1][0]] == number
    low, high = int(each.low[v]), int(each.high[v])
    if same:
        there, at = each.point, each.times[-1]
    elif region is None:
        there, at = each.point, each.free
    else:
        shut = [keep.region for place, keep in asked.outside if place != number and active(keep, each, each.free)]
        there = entry(each.point, region)
        at = each.free + ceil(travel(each.point, there, shut) - 1e-6)
    at = max(at, low)
    slack = min(each.slack, float(high - at))
    if slack < -0.5 * (high + 20) or closed(asked, each, v, at):
        return None
    together = same and at == each.times[-1]
    groups = (*each.groups[:-1], (*each.groups[-1], v)) if together else (*each.groups, (v,))
    times, places = (each.times, each.places) if together else ((*each.times, at), (*each.places, there))
    after = replace(noted(asked, each, v, at), groups=groups, times=times, places=places, point=there,
                    free=max(each.free, at + asked.holds[v]))
    bound = _bound(asked, after, travel if ahead else None)
    return None if bound < -asked.samples else replace(after, slack=min(slack, bound))


def _bound(asked: Asked, each: Partial, travel: Travel | None) -> float:
    """The least slack that variables not hit yet can have. With ``travel`` it is looked ahead: to the way to each of
    their places, until when these are closed, as far as that is known, and when windows open."""
    if len(each.hits) == asked.variables:
        return inf
    last = asked.numbers[each.groups[-1][0]] if len(each.groups) > each.past else -1
    soonest = {number: each.times[-1] if number == last else each.free for number in asked.closing}
    if travel is not None:
        places = {asked.numbers[v]: asked.regions[v] for v in range(1, asked.variables + 1) if v not in each.hits}
        for number, region in places.items():
            if region is not None and number != last:
                soonest[number] += ceil(travel(each.point, entry(each.point, region), ()) - 1e-6)
            soonest[number] = max(soonest[number], reopened(asked, each, number, soonest[number]))
    first = np.array([soonest[number] for number in asked.numbers])
    return float((each.high - (first if travel is None else np.maximum(first, each.low))).min())


def reopened(asked: Asked, each: Partial, number: int, at: int) -> int:
    """When the place of this number may be entered, from sample ``at`` on, as far as that is known."""
    ends = [(each.hits[e] if e else 0) + last for keep in asked.closing.get(number, ())
            for e, last in (keep.end,) if (not e or e in each.hits) and active(keep, each, at)]
    return max(ends, default=at - 1) + 1


def active(keep: Interval, each: Partial, at: int) -> bool:
    """Whether ``keep`` asks for something at sample ``at``, or will when what it ends with is hit."""
    (s, first), (e, last) = keep.start, keep.end
    if s and s not in each.hits:
        return False
    if at < (each.hits[s] if s else 0) + first:
        return False
    return at <= (each.hits[e] if e else 0) + last if not e or e in each.hits else True


def closed(asked: Asked, each: Partial, v: int, at: int) -> bool:
    """Whether the place of ``v`` must not be entered at sample ``at``. What is closed until long before an answer may
    be: that is a request."""
    return any(active(keep, each, at) and not (keep.end[0] and keep.end[1] < -1 and keep.end[0] not in each.hits)
               and not _opens(asked, keep, each, v) for keep in asked.closing.get(asked.numbers[v], ()))


def _opens(asked: Asked, keep: Interval, each: Partial, v: int) -> bool:
    """Whether ``keep`` ends right before this very hit: a place that is closed until it is visited."""
    e, offset = keep.end
    return bool(e) and e not in each.hits and offset == -1 and asked.numbers[e] == asked.numbers[v]


@lru_cache(maxsize=4096)
def entry(point: Numbers, region: Region) -> Numbers:
    """Where the straight way from ``point`` to the middle of ``region`` is ``DEPTH`` inside of it, or less where it is
    small; ``point`` itself where that is inside."""
    deep = min(DEPTH, 0.5 * inner(region))
    if distance(point, region) <= -deep:
        return point
    target = tuple(p if h >= 0.5 * FAR else c for p, c, h in zip(point, region.center, region.half))
    lo, hi = 0.0, 1.0
    for _ in range(12):
        middle = 0.5 * (lo + hi)
        there = tuple(p + middle * (t - p) for p, t in zip(point, target))
        lo, hi = (lo, middle) if distance(there, region) <= -deep else (middle, hi)  # type: ignore[arg-type]
    return tuple(p + hi * (t - p) for p, t in zip(point, target))  # type: ignore[return-value]


def inner(region: Region) -> float:
    """How far inside one can be, m."""
    return region.radius + min(region.half)


def straight(speed: float, dt: float, per_axis: bool = False) -> Travel:
    """Travel at ``speed`` m/s, along each axis by itself where ``per_axis``, around what is closed on the way."""
    def travel(point: Numbers, there: Numbers, shut: Sequence[Region]) -> float:
        along = [b - a for a, b in zip(point, there)]
        length = max(map(abs, along)) if per_axis else hypot(*along)
        square = along[0] ** 2 + along[1] ** 2
        if square > 0:
            for region in shut:
                to = region.center[0] - point[0], region.center[1] - point[1]
                share = (to[0] * along[0] + to[1] * along[1]) / square
                if 0.0 < share < 1.0:
                    off = hypot(to[0] - share * along[0], to[1] - share * along[1])
                    length += max(inner(region) - off, 0.0)
        return length / (speed * dt)

    return travel
