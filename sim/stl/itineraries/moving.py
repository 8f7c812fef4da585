"""Regions whose centres are signals: where they are when a plan is made, how its program moves with them. numpy only.

    now = placed(ways, "base_pos_w", {"goal_pos_w": goal})      # plan with these
    row = moved(best.program, shifts(best.itinerary), {"goal_pos_w": goal_now - goal})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.itineraries.asked import Asked
from temporeal.sim.stl.itineraries.itinerary import Itinerary
from temporeal.sim.stl.itineraries.program import program
from temporeal.sim.stl.itineraries.regions import FORMS, NotARegion, Numbers, Region

Floats = NDArray[np.float32]
Vector = Sequence[float] | NDArray[np.float64]


def every_region(ways: Sequence[Asked]) -> list[Region]:
    """All regions of the alternatives, each once."""
    return list(dict.fromkeys(region for asked in ways for region in (
        *(region for region in asked.regions if region is not None), *(keep.region for keep in asked.keeps))))


def about(ways: Sequence[Asked], position: str) -> tuple[Asked, ...]:
    """The alternatives as regions of ``position``, the robot's. A distance between two signals is one of both.

    Raises:
        NotARegion: a region of another signal.
    """
    def own(region: Region) -> Region:
        if region.bound == position and region.position != position and not any(region.center):
            return replace(region, position=position, bound=region.position)
        if region.position != position or region.bound == position:
            raise NotARegion(f"{region.position} is not where the robot is, which is {position}. {FORMS}")
        return region

    return with_regions(ways, own)


def placed(ways: Sequence[Asked], centers: Mapping[str, Vector]) -> tuple[Asked, ...]:
    """The alternatives with regions that are bound to signals where these are now, ``centers`` [3] m by name."""
    def now(region: Region) -> Region:
        if not region.bound:
            return region
        x, y, z = (float(c) + float(m) for c, m in zip(region.center, centers[region.bound]))
        return replace(region, center=(x, y, z))

    return with_regions(ways, now) if any(region.bound for region in every_region(ways)) else tuple(ways)


def with_regions(ways: Sequence[Asked], of: Callable[[Region], Region]) -> tuple[Asked, ...]:
    """The alternatives with ``of(region)`` in place of each region."""
    return tuple(replace(
        asked, regions=tuple(None if region is None else of(region) for region in asked.regions),
        keeps=tuple(replace(keep, region=of(keep.region)) for keep in asked.keeps)) for asked in ways)


def shifts(found: Itinerary) -> dict[str, Floats]:
    """How the program [SIZE] of an itinerary changes with each signal that regions are bound to: [3, SIZE] by name."""
    bound = {region.bound for region in (*(leg.region for leg in found.legs), *(keep.region for keep in found.kept))
             if region is not None and region.bound}
    axes: tuple[Numbers, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    still = program(found)
    return {name: np.stack([np.round(program(found, {name: axis}) - still) for axis in axes]) for name in sorted(bound)}


def moved(row: Floats, by: Mapping[str, Floats], ways: Mapping[str, Vector]) -> Floats:
    """The program ``row`` [SIZE] when each signal of ``by`` (:func:`shifts`) has moved by ``ways`` [3] m."""
    out = row
    for name, shift in by.items():
        out = out + np.asarray(ways[name], np.float32) @ shift
    return out
