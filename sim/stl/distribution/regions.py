"""Places and discs in an arena, apart from each other, and a start outside of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, pi

import numpy as np

from temporeal.sim.stl.distribution.missions import AVOIDED
from temporeal.sim.stl.distribution.settings import World

TRIES = 60
"""Places that are tried for one disc before all begin anew."""


@dataclass(frozen=True)
class Region:
    """A ball around ``center`` [3] m, or in the plane; one to avoid is a pillar."""

    center: tuple[float, float, float]
    radius: float


@dataclass(frozen=True)
class Layout:
    """Regions by name, places and discs to avoid, and the start: position [3] m and heading in rad."""

    places: Mapping[str, Region]
    avoided: Mapping[str, Region]
    start: tuple[float, float, float]
    heading: float


def layout(rng: np.random.Generator, world: World, places: Sequence[str], discs: int) -> Layout | None:
    """A layout; None where there was no room.

    Middles are as far apart in the plane as ``gap`` asks for and regions lie wholly in the arena, up to the margin. A
    crowded arena favours small radii: a radius is drawn again with its place.
    """
    clear = world.depth + world.margin
    home = [] if world.home is None else [Region(world.home, clear)]
    found: list[Region] = []
    for k in range(len(places) + discs):
        region = _region(rng, world, world.radius if k < len(places) else world.avoid_radius, [*home, *found])
        if region is None:
            return None
        found.append(region)
    start = _start(rng, world, found, clear)
    if start is None:
        return None
    names = [*places, *(f"{AVOIDED}{k + 1}" for k in range(discs))]
    regions = dict(zip(names, found))
    avoided = {name: regions.pop(name) for name in names[len(places):]}
    return Layout(regions, avoided, start, round(float(rng.uniform(-pi, pi)), 3) if world.headed else 0.0)


def _start(
    rng: np.random.Generator, world: World, regions: Sequence[Region], clear: float
) -> tuple[float, float, float] | None:
    """A place that is ``clear`` of all regions."""
    if world.home is not None:
        return world.home
    for u in rng.random((TRIES, 3)):
        start = _inside(world, u, clear)
        if all(hypot(start[0] - r.center[0], start[1] - r.center[1]) > r.radius + clear for r in regions):
            return start
    return None


def _region(
    rng: np.random.Generator, world: World, radii: tuple[float, float], others: Sequence[Region]
) -> Region | None:
    for u in rng.random((TRIES, 4)):
        radius = round(radii[0] + (radii[1] - radii[0]) * float(u[3]), 3)
        center = _inside(world, u, radius + world.margin)
        if all(hypot(center[0] - r.center[0], center[1] - r.center[1]) >= world.gap * (radius + r.radius)
               for r in others):
            return Region(center, radius)
    return None


def _inside(world: World, u: np.ndarray, room: float) -> tuple[float, float, float]:
    """A point of the arena by shares ``u`` of its sides, at least ``room`` from them; millimetres."""
    at = [round(low + room + (high - low - 2 * room) * float(x), 3) for low, high, x in zip(world.low, world.high, u)]
    return at[0], at[1], at[2] if len(at) == 3 else world.height
