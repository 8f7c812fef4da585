"""The chance that a mission under way is done: the judge's, of the leg under way and those after it. numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal.sim.stl.itineraries.itinerary import Itinerary
from temporeal.sim.stl.itineraries.planner import Floats, Judge
from temporeal.sim.stl.itineraries.program import LEGS


def chance_left(
    found: Itinerary, row: Floats, point: Sequence[float], tick: float, hits: Floats, judge: Judge
) -> float:
    """The product of the judge's chances over the rest of ``found``, whose program is ``row`` [SIZE].

    ``point`` [3] m and ``tick`` samples: where the robot is and how long the mission has lasted; ``hits`` [LEGS]: 1 +
    the sample of each leg's hit, 0: not yet. Legs after the one under way are expected as in ``found``, later by what
    that is behind.
    """
    count, done = min(len(found.legs), LEGS), int(np.sum(np.asarray(hits) > 0))
    rows = range(done, count + 1)
    late = max(0.0, tick - found.times[done]) if done < count else 0.0
    known = np.asarray(hits, float).copy()
    points, ticks, past = [], [], []
    for k in rows:
        first = k == done
        if not first:
            known[k - 1] = 1.0 + found.times[k - 1] + late
        points.append(point if first else found.places[k - 1])
        ticks.append(tick if first else known[k - 1] + found.legs[k - 1].hold)
        past.append(known.copy())
    chances, _ = judge(np.repeat(np.asarray(row, np.float32)[None], len(points), 0), np.asarray(points, np.float32),
                       np.asarray(ticks, np.float32), np.asarray(past, np.float32))
    return float(np.prod(chances))
