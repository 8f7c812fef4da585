"""The planner of a policy for any formula: which itinerary is followed, and how likely it is to be done.

    ways = ways_of(formula, dt, position)                       # once per formula: a decomposition as regions
    best = plan(ways, point, travel, judge)           # 16 itineraries, each of their legs judged, in one batch
    best.program, best.chance                         # what the policy reads, P(all is done)

A *judge* is what a learner's critic is here: for a leg as a policy would see it, the probability that it is hit in time
with nothing broken, and how many samples that takes. The chance of an itinerary is the product over its legs, and the
expected times are those of the judge. numpy only: the robot runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.itineraries.asked import Asked, asked, choices
from temporeal.sim.stl.itineraries.detours import detours, of_formula
from temporeal.sim.stl.itineraries.itinerary import START, Itinerary, rest
from temporeal.sim.stl.itineraries.moving import about
from temporeal.sim.stl.itineraries.pieces import Pieces, whole
from temporeal.sim.stl.itineraries.program import LEGS, SIZE, TooLong, program
from temporeal.sim.stl.itineraries.regions import NotARegion, Numbers, Region, distance
from temporeal.sim.stl.itineraries.routes import routed
from temporeal.sim.stl.itineraries.search import AMPLE, Begun, Travel, inner, searching
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.planning.decompose import decompose

Floats = NDArray[np.float32]
MOST_WAYS, MOST_VISITS = 64, 400
"""Alternatives that are searched, and their time variables together: of more the plan would not be there in time."""
FEW_ORDERS, SMALL = 4, 0.05
"""Orders that are judged beside ways around; m: the least size of a point of these."""
JUDGED, ROUTED = 25.0, 5.0
"""What a batch of the judge costs, and a way past obstacles (:mod:`temporeal.sim.stl.itineraries.pieces`)."""
PATIENCE = 0.05
"""Of a chance: by how much another order must be better, for the one that is followed to be left."""
TRUSTED = 0.5
"""Share of the best slack that the search expects, below which the judge does not choose: of many estimates the highest
is easily too high, and a window that is over cannot be met."""
Judge = Callable[[Floats, Floats, Floats, Floats], tuple[Floats, Floats]]
"""``judge(programs [R, SIZE], points [R, 3], ticks [R], hits [R, LEGS])``: for R legs that are about to begin, the
probability [R] that the leg under way is hit in time with nothing broken, and the samples [R] that it takes."""


@dataclass(frozen=True)
class Plan:
    """An itinerary with its ``program`` [SIZE] and what the judge says: ``chances`` [L + 1] of its legs and of what is
    kept after the last, ``chance`` of all of them."""

    itinerary: Itinerary
    program: Floats
    chances: tuple[float, ...]
    chance: float


def ways_of(formula: Formula, dt: float, position: str = "") -> tuple[Asked, ...]:
    """The alternatives of ``formula`` as regions of the signal ``position``; "": of whichever one it is about.

    Raises:
        FormulaError: nothing satisfies it, a part cannot be decomposed, or is no region of ``position``; the message
            says which.
    """
    found, reasons = list[Asked](), list[NotARegion]()
    whole = decompose(formula, dt, strict=True)
    if whole.count > MOST_WAYS:
        raise FormulaError(f"there are {whole.count} ways to satisfy the formula; at most {MOST_WAYS} are legal")
    ways = [each for alternative in whole.alternatives for each in choices(alternative)]
    if len(ways) > MOST_WAYS:
        raise FormulaError(f"there are {len(ways)} ways to satisfy the formula; at most {MOST_WAYS} are legal")
    for alternative in ways:
        try:
            one = (asked(alternative),)
            found += about(one, position) if position else one
        except NotARegion as error:
            reasons.append(error)
    if not found:
        raise reasons[0] if reasons else FormulaError(f"nothing satisfies {formula}")
    if (visits := sum(each.variables for each in found)) > MOST_VISITS:
        raise FormulaError(f"all ways together have {visits} times at which to be somewhere; at most {MOST_VISITS} are "
                           "legal")
    return tuple(found)


def plan(
    ways: Sequence[Asked], point: Numbers, travel: Travel, judge: Judge | None = None, *, now: int = 0,
    begun: Begun | None = None, kept: tuple[tuple[int, ...], ...] = (), around: bool = False, same: bool = False,
    room: float = 0.0,
) -> Plan | None:
    """The result of :func:`planning`, at once."""
    return whole(planning(ways, point, travel, judge, now=now, begun=begun, kept=kept, around=around, same=same,
                          room=room))


def planning(
    ways: Sequence[Asked], point: Numbers, travel: Travel, judge: Judge | None = None, *, now: int = 0,
    begun: Begun | None = None, kept: tuple[tuple[int, ...], ...] = (), around: bool = False, same: bool = False,
    room: float = 0.0,
) -> Pieces[Plan | None]:
    """The itinerary with the best chance from ``point`` at sample ``now``, by the judge; by the search's slack without
    one. Of a mission that was ``begun`` it is the rest, and the order ``kept`` so far stays unless another one's chance
    is higher by ``PATIENCE``. ``around``: also by ways around; ``same``: in no order but the one ``kept``. ``room``: m
    that the way to the first place keeps from what it must keep out of (:func:`routes.routed`); 0: it is straight. None
    where no order of places satisfies the times."""
    found = yield from searching(ways, point, travel, now=now, begun=begun)
    if begun is not None:
        found = [rest(each, begun.times) for each in found]
    found = [each for each in found if not same or each.groups == kept]
    if not found:
        return None
    if around and found[0].legs and (place := found[0].legs[0].region) is not None:
        yield FEW_ORDERS
        found = [*found[:FEW_ORDERS], *detours(found[0], point, now, travel, max(inner(place), SMALL))]
    if room > 0:
        for k, each in enumerate(found):
            yield ROUTED
            found[k] = routed(each, point, now, travel, room)
    yield 0.5 * len(found)
    found, programs = written(found)
    if judge is None:
        return Plan(found[0], programs[0], (), float(found[0].slack >= 0 and possible(found[0], point, now)))
    times = [_hits(each.times) for each in found]
    for _ in range(2 if found[0].legs else 1):  # with the times that the search guessed, then with the judge's
        yield JUDGED
        chances, durations = _judged(found, programs, times, point, judge, now)
        times = [_expected(each, own, now) for each, own in zip(found, durations)]
    yield len(found)
    chance_of = [whole_chance(each, own) if possible(each, point, now) else 0.0 for each, own in zip(found, chances)]
    least = TRUSTED * min(found[0].slack, AMPLE) if not around else min(0.0, found[0].slack)
    patience = [PATIENCE * (of_formula(each.groups) == kept) for each in found]
    best = int(np.argmax([(chance if each.slack >= least else chance - 1.0) + more
                          for chance, each, more in zip(chance_of, found, patience)]))
    expected = replace(found[best], times=tuple(int(t) for t in times[best][: len(found[best].times)]))
    return Plan(expected, programs[best], tuple(map(float, chances[best])), chance_of[best])


def whole_chance(found: Itinerary, chances: Floats) -> float:
    """The product over the legs; legs beyond those that a program has room for count as the others' geometric mean."""
    product, beyond = float(np.prod(chances)), max(len(found.legs) - LEGS, 0)
    return float(product ** (1.0 + beyond / len(chances)))


def possible(found: Itinerary, point: Numbers, now: int) -> bool:
    """Whether the places leave a way at all: False where something that is kept now is broken at ``point``, and where
    the place of a leg lies outside of what is then kept, or within what is then to be kept out of. Of what is kept
    from a fixed time on to a fixed time, which is most; the judge knows the places of its training only."""
    for keep in found.kept:
        if keep.start[0] != START or keep.end[0] != START:
            continue
        first, last = keep.start[1], keep.end[1]
        if first <= now <= last and (distance(point, keep.region) < 0) != keep.region.inside:
            return False
        if any(leg.region is not None and first <= leg.low and leg.high <= last and apart(leg.region, keep.region)
               for leg in found.legs):
            return False
    return True


def apart(place: Region, kept: Region) -> bool:
    """Whether no point of ``place`` is as ``kept`` asks for: of balls exactly, of others by their middles."""
    if not kept.inside:
        return distance(place.center, kept) <= -inner(place)
    core = tuple(min(max(c, k - h), k + h) for c, k, h in zip(place.center, kept.center, kept.half))
    off = tuple(c - k for c, k in zip(place.center, core))
    length = sum(x * x for x in off) ** 0.5
    share = min(1.0, kept.radius / length) if length > 0 else 0.0
    x, y, z = (k + share * o for k, o in zip(core, off))
    return distance((x, y, z), place) >= 0


def written(found: Sequence[Itinerary]) -> tuple[list[Itinerary], Floats]:
    """Those of the itineraries that a program has room for, and their programs; a TooLong where it has for none."""
    out, rows, reasons = list[Itinerary](), list[Floats](), list[TooLong]()
    for each in found:
        try:
            rows.append(program(each))
            out.append(each)
        except TooLong as error:
            reasons.append(error)
    if reasons and not out:
        raise reasons[0]
    return out, np.stack(rows) if rows else np.zeros((0, SIZE), np.float32)


def _hits(times: Sequence[int]) -> NDArray[np.float64]:
    out = np.zeros(LEGS)
    out[: min(len(times), LEGS)] = times[:LEGS]
    return out


def _judged(
    found: Sequence[Itinerary], programs: Floats, times: Sequence[NDArray[np.float64]], point: Numbers, judge: Judge,
    now: int,
) -> tuple[list[Floats], list[Floats]]:
    """Chances and durations of the legs of each, and of what comes after the last."""
    rows, points, ticks, hits, sizes = [], [], [], [], []
    for each, row, own in zip(found, programs, times):
        count = min(len(each.legs), LEGS)
        sizes.append(count + 1)
        for k in range(count + 1):
            rows.append(row)
            points.append(point if k == 0 else each.places[k - 1])
            ticks.append(float(now) if k == 0 else own[k - 1] + each.legs[k - 1].hold + 1)
            hits.append(np.where(np.arange(LEGS) < k, 1.0 + own, 0.0))
    chance, duration = judge(np.asarray(rows, np.float32), np.asarray(points, np.float32),
                             np.asarray(ticks, np.float32), np.asarray(hits, np.float32))
    ends = np.cumsum(sizes)[:-1]
    return np.split(chance, ends), np.split(duration, ends)


def _expected(each: Itinerary, durations: Floats, now: int) -> NDArray[np.float64]:
    """Samples of the hits, if each leg takes as long as the judge says, and begins when the one before is done."""
    out, free = np.zeros(LEGS), float(now)
    for k, leg in enumerate(each.legs[:LEGS]):
        low = max([float(leg.low), *(out[j] + since[0] for j, since in enumerate(leg.since[:k]))])
        out[k] = max(low, np.ceil(free + max(float(durations[k]) - leg.hold, 0.0)))
        free = out[k] + leg.hold + 1
    return out


def reading(chance: float, calibration: Mapping[str, float]) -> float:
    """P(satisfied) of a plan's ``chance`` (Platt's recalibration: a logistic function of its log-odds). What has no
    chance has none: a flat calibration would make much of it."""
    if chance <= 0.0:
        return 0.0
    odds = np.log(np.clip(chance, 1e-6, 1 - 1e-6) / np.clip(1 - chance, 1e-6, 1.0))
    return float(1.0 / (1.0 + np.exp(-(calibration["slope"] * odds + calibration["offset"]))))
