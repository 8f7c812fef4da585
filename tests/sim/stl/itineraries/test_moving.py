"""Regions that are bound to signals, and the chance of a mission that is under way."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.itineraries.moving import about, moved, placed, shifts
from temporeal.sim.stl.itineraries.on_the_way import chance_left
from temporeal.sim.stl.itineraries.planner import plan, ways_of
from temporeal.sim.stl.itineraries.program import LEGS, split
from temporeal.sim.stl.itineraries.regions import NotARegion
from temporeal.sim.stl.itineraries.search import straight
from temporeal.sim.stl.language.parse import parse

SIGNALS = schema(*(SignalSpec(name, (3,), "m", "w") for name in ("p", "goal", "post", "other")))
DT, TRAVEL = 0.1, straight(1.0, 0.1)
TEXT = "F[0,9] (norm(p - goal) < 0.5) & F[0,9] (norm(p - a) < 0.5) & G[0,9] (hypot(p.x - post.x, p.y - post.y) > 0.2)"


def ways(text: str = TEXT):
    return about(ways_of(parse(text, SIGNALS, {"a": (1.0, 0.0, 0.0)}), DT), "p")


def test_a_program_moves_as_its_signals_do():
    """Moved by the way of a signal, it is the program that is planned for where the signal went."""
    before = {"goal": np.array([0.0, 2.0, 0.0]), "post": np.array([3.0, 3.0, 7.0])}
    after = {"goal": np.array([0.5, 2.0, -1.0]), "post": np.array([3.0, 2.5, 7.0])}
    best = plan(placed(ways(), before), (0.0, 0.0, 0.0), TRAVEL)
    by = shifts(best.itinerary)
    assert set(by) == {"goal", "post"}
    row = moved(best.program, by, {name: after[name] - before[name] for name in by})
    parts = split(row)
    assert {tuple(map(float, leg[:3])) for leg in parts["legs"][:2]} == {(1.0, 0.0, 0.0), (0.5, 2.0, -1.0)}
    assert parts["kept"][0, :2] == pytest.approx([3.0, 2.5])
    again = plan(placed(ways(), after), (0.0, 0.0, 0.0), TRAVEL)
    assert again.itinerary.groups == best.itinerary.groups and row == pytest.approx(again.program)
    assert moved(best.program, by, dict.fromkeys(by, np.zeros(3))) == pytest.approx(best.program)


def test_a_distance_is_that_of_the_robot_whichever_signal_is_named_first():
    [one], [other] = ways("F[0,1] (norm(p - goal) < 1)"), ways("F[0,1] (norm(goal - p) < 1)")
    assert one.regions == other.regions and (one.regions[1].position, one.regions[1].bound) == ("p", "goal")
    for text in ("F[0,1] (norm(other - goal) < 1)", "F[0,1] (norm(other - a) < 1)"):
        with pytest.raises(NotARegion, match="is not where the robot is, which is p"):
            ways(text)


def test_the_chance_on_the_way_is_that_of_what_is_left():
    """The judge is asked once for the leg under way, each leg after it, and what is kept after the last."""
    text = "F[0,9] (norm(p - a) < 0.5 & F[0,9] G[0,1] (norm(p - [0.0, 2.0, 0.0]) < 0.5))"
    best = plan(ways(text), (-2.0, 0.0, 0.0), TRAVEL)
    asked = []

    def judge(programs, points, ticks, hits):
        asked.append((points, ticks, hits))
        return np.full(len(ticks), 0.5, np.float32), np.zeros(len(ticks), np.float32)

    none, one = np.zeros(LEGS), np.zeros(LEGS)
    one[0] = 31.0
    legs = len(best.itinerary.legs)
    assert chance_left(best.itinerary, best.program, (-2.0, 0.0, 0.0), 0.0, none, judge) == 0.5 ** (legs + 1)
    assert chance_left(best.itinerary, best.program, (1.0, 0.0, 0.0), 40.0, one, judge) == 0.5 ** legs
    points, ticks, hits = asked[-1]
    assert points[0] == pytest.approx([1.0, 0.0, 0.0]) and ticks[0] == 40.0 and (hits[0] > 0).sum() == 1
    assert (np.diff(ticks) >= 0).all() and [(row > 0).sum() for row in hits] == [*range(1, legs + 1)]
