"""Ways past what must be kept out of: the shortest one in the plane, by corners around discs.

A policy that goes to one place at a time flies into what stands right before the place, or comes to rest there. Where
the straight way is blocked the itinerary gets a leg to the first corner of the shortest way (a visibility graph:
Lozano-Perez and Wesley, Communications of the ACM 22(10), 1979); at its hit the rest is planned again, from there.
Visiting one more point breaks nothing. numpy only. N points, D discs.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil, cos, hypot, inf, pi

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.itineraries.detours import by, clear
from temporeal.sim.stl.itineraries.itinerary import START, Itinerary
from temporeal.sim.stl.itineraries.regions import FAR, Numbers, Region
from temporeal.sim.stl.itineraries.search import Travel

CORNERS = 8
"""Of the polygon around a disc."""
APART = 1e-3
"""m, between a disc and a point that is nearer to it than the room that is wanted."""
Floats = NDArray[np.float64]


def routed(found: Itinerary, point: Numbers, now: int, travel: Travel, room: float) -> Itinerary:
    """``found``, by the first corner of the shortest way from ``point`` at sample ``now`` that is ``room`` m away from
    what its first leg must keep out of; ``found`` itself where the straight way is, or no way is."""
    if not found.legs or (region := found.legs[0].region) is None or found.legs[0].high <= now:
        return found
    goal, kept = found.places[0], asked_meanwhile(found, now)
    discs = around([each for each in kept if not each.inside and beside(each, point, goal, room)], point, goal, room)
    ends = np.array([point[:2], goal[:2]])
    if free(ends[:1], ends[1:], discs).all() or (ends[0] == ends[1]).all():
        return found
    corners = corners_of(discs, [each for each in kept if each.inside], 0.5 * (point[2] + goal[2]), room)
    nodes = np.concatenate([ends, corners])
    way = shortest(nodes, free(nodes, nodes, discs))
    if not way:
        return found
    lengths = [hypot(*(nodes[b] - nodes[a])) for a, b in zip(way, way[1:])]
    x, y = map(float, nodes[way[1]])
    via = (x, y, point[2] + lengths[0] / sum(lengths) * (goal[2] - point[2]))
    direct = travel(point, goal, ())
    longer = direct * (sum(lengths) / hypot(*(ends[1] - ends[0])) - 1.0)
    return by(found, via, region.position, room, now, ceil(travel(point, via, ())), ceil(longer))


def asked_meanwhile(found: Itinerary, now: int) -> list[Region]:
    """What is kept on the way to the first place, as far as that is known now."""
    return [keep.region for keep in found.kept if keep.start[0] == START and keep.start[1] <= found.times[0]
            and (keep.end[0] != START or keep.end[1] >= now)]


def beside(region: Region, point: Numbers, goal: Numbers, room: float) -> bool:
    """Whether a region is as high or low as the way."""
    reach = region.half[2] + region.radius + room
    return min(point[2], goal[2]) < region.center[2] + reach and max(point[2], goal[2]) > region.center[2] - reach


def around(shut: Sequence[Region], point: Numbers, goal: Numbers, room: float) -> Floats:
    """Discs [D, 3] (x, y, radius) around regions, ``room`` larger, but less where an end of the way is nearer. A region
    without an end in the plane is none that can be gone around."""
    out = []
    for each in shut:
        if max(each.half[:2]) < 0.5 * FAR:
            x, y, _ = each.center
            near = min(hypot(x - end[0], y - end[1]) for end in (point, goal)) - APART
            out.append((x, y, max(min(hypot(*each.half[:2]) + each.radius + room, near), APART)))
    return np.array(out).reshape(-1, 3)


def corners_of(discs: Floats, walls: Sequence[Region], height: float, room: float) -> Floats:
    """Corners [N, 2] of polygons around the discs, outside of all discs, and inside of the walls by ``room``."""
    angles = 2.0 * pi * np.arange(CORNERS) / CORNERS
    ring = 1.02 / cos(pi / CORNERS) * np.stack([np.cos(angles), np.sin(angles)], -1)
    found = (discs[:, None, :2] + discs[:, None, 2:] * ring).reshape(-1, 2)
    away = np.hypot(*(found[:, None] - discs[None, :, :2]).transpose(2, 0, 1))
    found = found[(away >= discs[None, :, 2]).all(1)]
    inside = [all(clear((float(x), float(y), height), wall, room) for wall in walls) for x, y in found]
    chosen: Floats = found[np.array(inside, bool)]
    return chosen


def free(a: Floats, b: Floats, discs: Floats) -> NDArray[np.bool_]:
    """Whether [A, B] the straight ways from ``a`` [A, 2] to ``b`` [B, 2] stay out of all discs."""
    along = b[None, :] - a[:, None]
    square, out = np.maximum((along**2).sum(-1), 1e-12), np.ones((len(a), len(b)), bool)
    for x, y, radius in discs:
        middle = np.array([x, y])
        share = np.clip(((middle - a)[:, None] * along).sum(-1) / square, 0.0, 1.0)
        out &= ((a[:, None] + share[..., None] * along - middle) ** 2).sum(-1) >= (radius - 1e-6) ** 2
    return out


def shortest(nodes: Floats, edges: NDArray[np.bool_]) -> list[int]:
    """The nodes of the shortest way from node 0 to node 1 (Dijkstra, 1959); empty: there is none."""
    best, before, heap = {0: 0.0}, dict[int, int](), [(0.0, 0)]
    while heap:
        length, k = heappop(heap)
        if k == 1:
            way = [1]
            while way[-1] != 0:
                way.append(before[way[-1]])
            return way[::-1]
        for j in map(int, np.flatnonzero(edges[k]) if length <= best[k] else ()):
            further = length + float(hypot(*(nodes[j] - nodes[k])))
            if further < best.get(j, inf):
                best[j], before[j] = further, k
                heappush(heap, (further, j))
    return []
