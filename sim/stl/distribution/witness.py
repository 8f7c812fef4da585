"""A trajectory that does a mission, and the windows that give it time.

The witness visits its places in order, each by the shortest way that stays clear of what is to be avoided, at its speed
limits. A window ends after a factor times what it took. Constructive, and hence biased: a mission is certified only if
this order and these ways do it; how often that fails is counted by kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, dist, floor, sqrt

import numpy as np

from temporeal.sim.stl.distribution.missions import Mission, Recurrence, Response, Visit, window
from temporeal.sim.stl.distribution.motions import Floats, go, pace, signals, still
from temporeal.sim.stl.distribution.regions import Layout, Region
from temporeal.sim.stl.distribution.routes import route
from temporeal.sim.stl.distribution.settings import World

ROOM = 1e-3  # m: by how much more than the margin a way keeps clear
Span = tuple[int, int]


class NoWitness(Exception):
    """The mission is not done this way; the message says why, and is counted."""


@dataclass(frozen=True)
class Performance:
    """A witness, in samples.

    Args:
        commands: float32 [horizon, A].
        windows: by visit. times: by slot, of the mission's watches.
    """

    commands: Floats
    windows: dict[int, Span]
    times: dict[str, int]
    horizon: int


def perform(mission: Mission, layout: Layout, world: World) -> Performance:
    """The witness of ``mission`` at the places of ``layout``; :class:`NoWitness`: there is none of this kind."""
    rows, hits, windows = _visited(mission, layout, world)
    for i, visit in enumerate(mission.visits):
        if not visit.done:
            hits[i], windows[i] = _estimated(visit, mission, hits, layout, world)
    if mission.together:
        last = max(windows[i][1] for i, visit in enumerate(mission.visits) if visit.after is None)
        windows = {i: (lo, last if mission.visits[i].after is None else hi) for i, (lo, hi) in windows.items()}
    places = signals(world, layout.start, layout.heading, rows.astype(np.float32))[world.signal]
    times = _watched(mission, layout, world, places, hits)
    horizon = _horizon(mission, windows, times)
    if horizon * world.dt > world.horizon_s:
        raise NoWitness("the horizon is too long")
    rows = np.concatenate([rows, still(world, max(0, horizon - len(rows)))])[:horizon]
    return Performance(rows.astype(np.float32), windows, times, horizon)


def _visited(mission: Mission, layout: Layout, world: World) -> tuple[Floats, dict[int, int], dict[int, Span]]:
    """The way along all visits: commands [n, A], hits and windows."""
    pose = np.asarray(layout.start[: len(world.low)]), layout.heading
    rows: list[Floats] = []
    now, hits, windows = 0, dict[int, int](), dict[int, Span]()
    waiting = list(mission.order)
    while waiting:
        i = min(waiting, key=lambda j: dist(pose[0], layout.places[mission.visits[j].place].center[: len(pose[0])])
                ) if mission.nearest else waiting[0]
        waiting.remove(i)
        visit = mission.visits[i]
        for corner in _way(pose[0], visit, layout, world):
            part, pose = go(world, pose, corner)
            rows.append(part)
            now += len(part)
        base = 0 if visit.after is None else hits[visit.after]
        windows[i] = _window(visit, now - base)
        hits[i] = max(now, base + windows[i][0])
        rows.append(still(world, hits[i] + visit.hold - now))
        now = hits[i] + visit.hold
    return np.concatenate([still(world, 0), *rows]), hits, windows


def _window(visit: Visit, taken: int) -> Span:
    """The window of a visit that takes ``taken`` samples."""
    last = max(1, ceil(taken * visit.factor - 1e-9))
    return floor(visit.later * last), last


def _way(start: Floats, visit: Visit, layout: Layout, world: World) -> list[Floats]:
    """Corners [D] on the way into a place, up to the depth."""
    goal = layout.places[visit.place]
    shut: Iterable[Region] = (*layout.avoided.values(), *(layout.places[name] for name in visit.closed))
    discs = np.array([(*r.center[:2], r.radius + world.margin + ROOM) for r in shut]).reshape(-1, 3)
    low, high = (np.asarray(x[:2]) for x in (world.low, world.high))
    corners = route(start[:2], np.asarray(goal.center[:2]), discs, low + world.margin, high - world.margin)
    if corners is None:
        raise NoWitness("no way to a place")
    if len(start) == 3:  # climb evenly along the way
        gone = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
        share = gone / gone[-1] if gone[-1] > 0 else gone
        corners = np.column_stack([corners, start[2] + share * (goal.center[2] - start[2])])
    return _cut(corners, np.asarray(goal.center[: len(start)]), goal.radius - world.depth)


def _cut(corners: Floats, center: Floats, radius: float) -> list[Floats]:
    """The corners after the first, up to where the way comes within ``radius`` of ``center``."""
    out: list[Floats] = []
    for one, other in zip(corners, corners[1:]):
        from_center, along = one - center, other - one
        a, b, c = along @ along, from_center @ along, from_center @ from_center - radius ** 2
        if c <= 0:
            break
        root = b * b - a * c
        if a > 0 and root >= 0 and 0 <= (share := (-b - sqrt(root)) / a) <= 1:
            out.append(one + share * along)
            break
        out.append(other)
    return out


def _estimated(
    visit: Visit, mission: Mission, hits: dict[int, int], layout: Layout, world: World
) -> tuple[int, Span]:
    """When a visit of a branch that is not taken could be hit, straight from the one before, and its window."""
    before = layout.start if visit.after is None else layout.places[mission.visits[visit.after].place].center
    base = 0 if visit.after is None else hits[visit.after]
    taken = ceil(dist(before, layout.places[visit.place].center) / (pace(world) * world.dt))
    return base + taken, _window(visit, taken)


def _watched(
    mission: Mission, layout: Layout, world: World, places: Floats, hits: dict[int, int]
) -> dict[str, int]:
    """The times of the mission's watches, from the witness's ``places`` [n+1, 3]."""
    def from_center(name: str) -> Floats:
        region = layout.places[name]
        return np.asarray(np.linalg.norm(places - region.center, axis=1) - region.radius)

    within = {w.place: np.flatnonzero(from_center(w.place) <= -world.margin)
              for w in mission.watches if isinstance(w, Recurrence)}
    ends = [int(samples[-1]) for samples in within.values()]
    ends += [hits[w.answer] for w in mission.watches if isinstance(w, Response)]
    times: dict[str, int] = {}
    for watch in mission.watches:
        if isinstance(watch, Recurrence):
            end, samples = min(ends), within[watch.place]
            following = samples[np.searchsorted(samples, np.arange(end + 1))]
            times["t"], taken = end, int((following - np.arange(end + 1)).max())
        else:
            times["t"] = max(ends)
            trigger = mission.visits[watch.trigger].place
            taken = hits[watch.answer] - int(np.flatnonzero(from_center(trigger) < world.margin)[0])
        times[watch.slot] = max(1, ceil(taken * watch.factor - 1e-9))
    return times


def _horizon(mission: Mission, windows: dict[int, Span], times: dict[str, int]) -> int:
    """The last sample that the mission's formula looks at."""
    answers = {w.answer: times["t"] + times[w.slot] for w in mission.watches if isinstance(w, Response)}
    latest: dict[int, int] = {}
    for i, visit in enumerate(mission.visits):
        if i in answers:
            latest[i] = answers[i]
        elif window(i) in mission.template:
            latest[i] = (0 if visit.after is None else latest[visit.after]) + windows[i][1]
    ends = [at + mission.visits[i].hold for i, at in latest.items()]
    return max([*ends, *(times["t"] + times[w.slot] for w in mission.watches)])
