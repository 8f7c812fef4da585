"""Ways around: an itinerary by a point on the way that its formula does not ask for.

A policy that goes to one place at a time can come to rest before what it must keep out of. Who is behind looks
whether the place is likelier to be reached by another point. Visiting one more point breaks nothing: the windows of all
legs and
what is kept stay as they are. numpy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, hypot

from temporeal.sim.stl.itineraries.itinerary import START, Itinerary, Kept, Leg
from temporeal.sim.stl.itineraries.regions import Numbers, Region, distance
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED

ALONG, ASIDE = (0.0, 0.5, 1.0), (-1.0, -0.5, 0.5, 1.0)
"""Of the straight way to the place, in its length: how far along the points are, and how far beside it in the plane."""
ROOM = 0.5
"""Of the place's size: how far the middle of a point is from what must be kept."""


def detours(found: Itinerary, point: Numbers, now: int, travel: Callable[..., float], size: float) -> list[Itinerary]:
    """``found`` from ``point`` at sample ``now``, by each point around that is as it asks for; ``size`` m: how near to
    a point is there. ``travel``: samples between two points."""
    leg = found.legs[0]
    if leg.region is None or leg.high <= now:
        return []
    goal = found.places[0]
    ahead = (goal[0] - point[0], goal[1] - point[1])
    if hypot(*ahead) < size:
        return []
    direct = travel(point, goal, ())
    out = []
    for along in ALONG:
        for aside in ASIDE:
            x, y = (p + along * a + aside * b for p, a, b in zip(point, ahead, (-ahead[1], ahead[0])))
            via = (x, y, point[2] + along * (goal[2] - point[2]))
            if all(clear(via, keep.region, ROOM * size) for keep in found.kept):
                there = travel(point, via, ())
                out.append(by(found, via, leg.region.position, size, now, ceil(there),
                              ceil(there + travel(via, goal, ()) - direct)))
    return out


def clear(point: Numbers, region: Region, room: float) -> bool:
    """Whether ``point`` is as ``region`` asks for, by ``room`` m."""
    away = distance(point, region)
    return away < -room if region.inside else away > room


def by(found: Itinerary, via: Numbers, position: str, size: float, now: int, there: int, later: int) -> Itinerary:
    """``found`` with a first leg to within ``size`` m of ``via``, where the robot is expected after ``there`` samples;
    all else is expected ``later``."""
    leg = Leg(Region(position, via, (0.0, 0.0, 0.0), size, True), 0, now, found.legs[0].high, ())
    legs = (leg, *(replace(each, since=((0, UNBOUNDED), *each.since)) for each in found.legs))

    def after(end: tuple[int, int]) -> tuple[int, int]:
        return end if end[0] == START else (end[0] + 1, end[1])

    kept = tuple(Kept(keep.region, after(keep.start), after(keep.end)) for keep in found.kept)
    return replace(found, groups=((), *found.groups), legs=legs, kept=kept, slack=found.slack - later,
                   times=(now + there, *(time + later for time in found.times)), places=(via, *found.places))


def of_formula(groups: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The legs that the formula asks for."""
    return tuple(group for group in groups if group)
