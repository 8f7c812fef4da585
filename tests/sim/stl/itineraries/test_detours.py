"""Ways around: a point more to visit, which changes nothing that a formula asks for."""

from __future__ import annotations

from math import hypot

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.itineraries.detours import detours
from temporeal.sim.stl.itineraries.guide import LOOK, Guide
from temporeal.sim.stl.itineraries.itinerary import START
from temporeal.sim.stl.itineraries.planner import ways_of
from temporeal.sim.stl.itineraries.regions import distance
from temporeal.sim.stl.itineraries.search import search, straight
from temporeal.sim.stl.language.parse import parse

POINT = (0.0, 0.0, 0.0)
TRAVEL = straight(1.0, 0.1)
TEXT = """at_a = norm(base_pos_w - a) < 0.5; clear = norm(base_pos_w - o) > 1.0;
F[0,20] (at_a & F[2,10] norm(base_pos_w - b) < 0.5) & G[0,30] clear"""
PLACES = {"a": [6.0, 0.0, 0.0], "b": [6.0, 4.0, 0.0], "o": [3.0, 0.0, 0.0]}


def ways():
    formula = parse(TEXT, schema(SignalSpec("base_pos_w", (3,), "m")), PLACES)
    return ways_of(formula, 0.1, "base_pos_w")


def test_points_around_are_clear_and_windows_stay() -> None:
    direct = search(ways(), POINT, TRAVEL)[0]
    found = detours(direct, POINT, 3, TRAVEL, 0.5)
    assert found
    for each in found:
        via, *rest = each.legs
        assert via.region is not None and each.groups == ((), *direct.groups)
        assert all(distance(via.region.center, keep.region) > 0 for keep in direct.kept)
        assert (via.low, via.high, via.hold) == (3, direct.legs[0].high, 0)
        assert [(leg.region, leg.hold, leg.low, leg.high, leg.since) for leg in direct.legs] == [
            (leg.region, leg.hold, leg.low, leg.high, leg.since[1:]) for leg in rest]
        assert [(k.start[0] - (k.start[0] != START), k.end[0] - (k.end[0] != START)) for k in each.kept] == [
            (k.start[0], k.end[0]) for k in direct.kept]
        assert each.slack <= direct.slack
    beside = max(hypot(*each.places[0][:2]) for each in found)
    assert beside > 1.0 and not any(each.places[0][1] == 0.0 for each in found)  # the disc is on the straight way


def test_none_where_the_robot_is_there_or_the_window_is_over() -> None:
    direct = search(ways(), POINT, TRAVEL)[0]
    assert detours(direct, (5.8, 0.0, 0.0), 3, TRAVEL, 0.5) == []
    assert detours(direct, POINT, direct.legs[0].high, TRAVEL, 0.5) == []


NOTHING = [0.0] * 12


def planned(guide: Guide, point, now, hits):
    """The plan, however many steps it takes: the robot stays where it is meanwhile."""
    found = guide.step(point, now, hits, 0.0)
    while guide.rest is not None:
        now += 1
        found = guide.step(point, now, hits, 0.0)
    return found


def stuck(programs, points, ticks, hits):
    """A judge of a policy that does not get past the disc by itself."""
    legs = programs[:, :144].reshape(-1, 12, 12)
    place = np.take_along_axis(legs, (hits > 0).sum(1)[:, None, None].astype(int), 1)[:, 0, :3]
    blocked = (points[:, 0] < 2.0) & (np.abs(points[:, 1]) < 0.5) & (place[:, 0] > 4.0) & (np.abs(place[:, 1]) < 0.5)
    away = np.linalg.norm(place - points, axis=1)
    return np.where(blocked, 0.1, 0.95).astype(np.float32), (away / 0.1).astype(np.float32)


@pytest.mark.parametrize("dt", [0.1, 0.02])
def test_who_is_stuck_is_sent_around_and_then_on(dt: float) -> None:
    guide = Guide(ways(), TRAVEL, stuck, dt)
    began = guide.begin(POINT)
    assert began is not None and not guide.due(LOOK - 1, 0.0) and not guide.due(LOOK, 1.0) and guide.due(LOOK, 0.0)
    found = planned(guide, POINT, LOOK, NOTHING)
    assert found is not None and found.itinerary.groups[0] == () and found.chance > began.chance
    via = found.itinerary.places[0]
    on = planned(guide, via, 40, [41.0, *[0.0] * 11])
    assert on is not None and on.itinerary.groups == began.itinerary.groups
    assert guide.begun is not None and guide.begun.groups == ()  # the formula did not ask for the point
    assert planned(guide, via, 40 + LOOK, NOTHING) is None  # the way is free: what is followed stays


def test_who_left_a_place_before_its_time_keeps_the_order() -> None:
    """Another order may ask that the robot was never there."""
    text = "F[0,40] G[0,2] norm(base_pos_w - a) < 0.5 & F[0,40] norm(base_pos_w - b) < 0.5"
    formula = parse(text, schema(SignalSpec("base_pos_w", (3,), "m")), {"a": [3.0, 0.0, 0.0], "b": [-3.0, 0.0, 0.0]})
    chosen = [3.0]

    def judge(programs, points, ticks, hits):  # one place is hopeless: first none, then the one that was chosen
        legs = programs[:, :144].reshape(-1, 12, 12)
        place = np.take_along_axis(legs, (hits > 0).sum(1)[:, None, None].astype(int).clip(max=11), 1)[:, 0, 0]
        first = (hits > 0).sum(1) == 0
        return np.where(first & (np.sign(place) == np.sign(chosen[0])), 0.2, 0.9), np.full(len(programs), 20.0)

    for left, same in ((False, False), (True, True)):
        guide = Guide(ways_of(formula, 0.1, "base_pos_w"), TRAVEL, judge, 0.1)
        chosen[0] = 0.0
        began = guide.begin(POINT)
        assert began is not None
        chosen[0] = began.itinerary.places[0][0]
        assert guide.step(POINT, LOOK - 1, NOTHING, float(left)) is None and guide.due(LOOK, 0.0)
        found = guide.step(POINT, LOOK, NOTHING, 0.0)
        groups = began.itinerary.groups if found is None else found.itinerary.groups
        assert (tuple(group for group in groups if group) == began.itinerary.groups) == same


def test_where_there_is_little_time_only_who_rests_is_looked_after() -> None:
    guide = Guide(ways(), TRAVEL, stuck, 0.02)
    guide.begin(POINT)
    assert planned(guide, (0.9, 0.0, 0.0), LOOK, NOTHING) is None  # it came nearly as far as it could
    assert planned(guide, (0.9, 0.0, 0.0), 2 * LOOK, NOTHING) is not None


def test_where_there_is_little_time_a_plan_is_made_in_pieces_and_is_the_same() -> None:
    """In each step one batch of the judge at most; a hit on the way makes it begin anew."""
    calls = [0]

    def counted(*arrays):
        calls[0] += 1
        return stuck(*arrays)

    at_once, bit_by_bit = (Guide(ways(), TRAVEL, counted, dt) for dt in (0.1, 0.02))
    for guide in (at_once, bit_by_bit):
        guide.begin(POINT)
    wanted, now = at_once.step(POINT, LOOK, NOTHING, 0.0), LOOK
    found, steps = None, 0
    while found is None:
        calls[0] = 0
        found, steps = bit_by_bit.step(POINT, now + steps, NOTHING, 0.0), steps + 1
        assert calls[0] <= 1 and (found is not None or bit_by_bit.rest is not None)
    assert wanted is not None and steps > 2 and np.array_equal(found.program, wanted.program)
    bit_by_bit.step(POINT, 100, [50.0, *NOTHING[1:]], 0.0)
    assert bit_by_bit.rest is not None and not bit_by_bit.rest.around and bit_by_bit.rest.now == 100


def test_a_plan_on_the_way_is_dropped_once_the_robot_has_come() -> None:
    guide = Guide(ways(), TRAVEL, stuck, 0.02)
    guide.begin(POINT)
    assert guide.step(POINT, LOOK, NOTHING, 0.0) is None and guide.rest is not None
    assert guide.step(POINT, LOOK + 1, NOTHING, 1.0) is None and guide.rest is None


def test_another_order_is_not_taken_once_the_robot_came_to_the_next_place_meanwhile() -> None:
    text = " & ".join(f"F[0,60] norm(base_pos_w - {name}) < 0.5" for name in "abc")
    where = {"a": [0.0, 0.0, 0.0], "b": [3.0, 0.0, 0.0], "c": [-3.0, 0.0, 0.0]}
    formula, avoided = parse(text, schema(SignalSpec("base_pos_w", (3,), "m")), where), [0.0]

    def judge(programs, points, ticks, hits):  # going first to the place on one side is hopeless
        place = programs[:, :144].reshape(-1, 12, 12)[:, 0, 0]
        return np.where((hits.sum(1) == 0) & (place * avoided[0] > 1.0), 0.2, 0.9), np.full(len(programs), 20.0)

    for came in (False, True):
        guide = Guide(ways_of(formula, 0.02, "base_pos_w"), TRAVEL, judge, 0.02)
        avoided[0] = 0.0
        began = guide.begin((0.0, 0.0, 0.0))
        assert began is not None and began.itinerary.places[0][0] == 0.0
        avoided[0] = began.itinerary.places[1][0]
        found, now, hits = None, 1, [1.0, *NOTHING[1:]]
        assert guide.step((0.0, 0.0, 0.0), now, hits, 0.0) is None
        while guide.rest is not None:
            now += 1
            found = guide.step((0.0, 0.0, 0.0), now, hits, float(came))
        assert (found is None) == came
