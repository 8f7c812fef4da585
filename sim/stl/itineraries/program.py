"""Programs: itineraries as rows of numbers, which a policy's follower reads (:mod:`temporeal.sim.rewards.follower`).

A row [SIZE] has, in turn,

    legs    [LEGS, 12]          center 3, half 3, radius [m], hold, low, high [samples], used, anywhere
    least   [LEGS, LEGS]        samples from the hit of leg k (column) to that of a leg (row), at least
    most    [LEGS, LEGS]        the same, at most
    kept    [KEEPS, 13]         center 3, half 3, radius [m], inside (1) or outside (-1), used, first leg and samples
                                after it, last leg and samples after it (leg 0: the start; leg k + 1: leg k)

numpy only: the robot's planner writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from temporeal.sim.stl.itineraries.itinerary import START, Itinerary, Kept
from temporeal.sim.stl.itineraries.regions import FAR, Region
from temporeal.sim.stl.language.errors import FormulaError

LEGS, KEEPS = 12, 24
LEG, KEPT = 12, 13  # numbers of each
BIG = 1e6  # samples: no limit
PARTS = {"legs": (LEGS, LEG), "least": (LEGS, LEGS), "most": (LEGS, LEGS), "kept": (KEEPS, KEPT)}
SIZE = sum(a * b for a, b in PARTS.values())


class TooLong(FormulaError):
    """An itinerary that has more than fits into a program; the message says what."""


def program(found: Itinerary, centers: Mapping[str, Sequence[float]] | None = None) -> np.ndarray:
    """The itinerary as a row [SIZE], float32; ``centers``: of the signals that regions are bound to.

    Legs beyond the first LEGS are left out: whoever follows them plans again on the way.

    Raises:
        TooLong: more than KEEPS intervals are kept.
    """
    legs, count = np.zeros((LEGS, LEG)), min(len(found.legs), LEGS)
    least, most = np.full((LEGS, LEGS), -BIG), np.full((LEGS, LEGS), BIG)
    for k, leg in enumerate(found.legs[:LEGS]):
        shape = [0.0] * 3 + [FAR] * 3 + [0.0] if leg.region is None else numbers(leg.region, centers)
        legs[k] = [*shape, leg.hold, leg.low, min(leg.high, BIG), 1.0, float(leg.region is None)]
        for j, (low, high) in enumerate(leg.since):
            least[k, j], most[k, j] = max(low, -BIG), min(high, BIG)
    asked = [keep for keep in found.kept if keep.start[0] < count and keep.end[0] < count]
    asked += [Kept(keep.region, keep.start, (START, found.samples)) for keep in found.kept
              if keep.start[0] < count <= keep.end[0]]
    if len(asked) > KEEPS:
        raise TooLong(f"{len(asked)} regions are to be kept over intervals of their own; at most {KEEPS} are legal")
    kept = np.zeros((KEEPS, KEPT))
    for row, keep in zip(kept, asked):
        row[:] = [*numbers(keep.region, centers), 1.0 if keep.region.inside else -1.0, 1.0, keep.start[0] + 1,
                  keep.start[1], keep.end[0] + 1, min(keep.end[1], BIG)]
    return np.concatenate([legs.ravel(), least.ravel(), most.ravel(), kept.ravel()]).astype(np.float32)


def numbers(region: Region, centers: Mapping[str, Sequence[float]] | None = None) -> list[float]:
    """Center, half sides and radius [7]."""
    moved = (centers or {}).get(region.bound, (0.0, 0.0, 0.0)) if region.bound else (0.0, 0.0, 0.0)
    return [*(float(c) + float(m) for c, m in zip(region.center, moved)), *region.half, region.radius]


def split(rows: np.ndarray) -> dict[str, np.ndarray]:
    """The parts of ``rows`` [..., SIZE] by name, views."""
    out, begin = {}, 0
    for name, (a, b) in PARTS.items():
        out[name] = rows[..., begin : begin + a * b].reshape(*rows.shape[:-1], a, b)
        begin += a * b
    return out
