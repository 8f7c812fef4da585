"""Ways past what must be kept out of: by the first corner, clear of all, as short as it can be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.itineraries.guide import Guide
from temporeal.sim.stl.itineraries.planner import plan, ways_of
from temporeal.sim.stl.itineraries.routes import free, shortest
from temporeal.sim.stl.itineraries.search import straight
from temporeal.sim.stl.language.parse import parse

TRAVEL, POINT, ROOM = straight(1.0, 0.02), (0.0, 0.0, 1.0), 0.2
WHERE = {"a": [4.0, 0.0, 1.0], "o": [2.0, 0.1, 0.0], "p": [2.0, 5.0, 0.0], "w": [2.0, -0.9, 0.0]}


def ways(text: str):
    return ways_of(parse(f"F[0,20] norm(base_pos_w - a) < 0.4 & G[0,20] ({text})",
                         schema(SignalSpec("base_pos_w", (3,), "m")), WHERE), 0.02, "base_pos_w")


def pillar(name: str, radius: float) -> str:
    return f"hypot(base_pos_w.x - {name}.x, base_pos_w.y - {name}.y) > {radius}"


def test_a_pillar_on_the_way_is_passed_by_a_corner_with_room_and_the_place_comes_after() -> None:
    found = plan(ways(pillar("o", 0.5)), POINT, TRAVEL, room=ROOM)
    assert found is not None and found.itinerary.groups[0] == () and len(found.itinerary.legs) == 2
    x, y, z = found.itinerary.places[0]
    assert y < 0 and z == pytest.approx(1.0)  # the shorter side
    for begin, end in ((POINT, (x, y)), ((x, y), (4.0, 0.0))):
        step = np.linspace(begin[:2], end[:2], 200)
        # past the second end of its own way the next corner comes: only the way to the first one is clear by then
        if begin is POINT:
            assert np.hypot(*(step - [2.0, 0.1]).T).min() >= 0.5 + ROOM - 1e-6


@pytest.mark.parametrize("text", [pillar("p", 0.5), "norm(base_pos_w - [2, 0, 3]) > 0.5", "base_pos_w.z > 0.2"])
def test_a_free_way_stays_straight(text: str) -> None:
    straight_way, found = (plan(ways(text), POINT, TRAVEL, room=room) for room in (0.0, ROOM))
    assert straight_way is not None and found is not None
    assert np.array_equal(straight_way.program, found.program) and found.itinerary.groups[0] != ()


def test_the_side_without_room_is_not_taken() -> None:
    """A second pillar closes the gap below, a wall the one above is left open."""
    found = plan(ways(f"{pillar('o', 0.5)} & {pillar('w', 0.4)}"), POINT, TRAVEL, room=ROOM)
    assert found is not None and found.itinerary.places[0][1] > 0.1


def test_where_no_way_has_room_the_straight_one_is_left_to_the_policy() -> None:
    found = plan(ways(f"{pillar('o', 0.5)} & abs(base_pos_w.y) < 0.7"), POINT, TRAVEL, room=ROOM)
    assert found is not None and found.itinerary.groups[0] != ()


def test_corner_after_corner_leads_to_the_place() -> None:
    """A point that goes to each place in turn, planned again at each hit, keeps out of a pillar and is in time."""
    guide = Guide(ways(pillar("o", 0.5)), TRAVEL, None, 0.1, ROOM)
    found, at, now = guide.begin(POINT), POINT, 0
    corners = 0
    while found is not None:
        way = math.dist(at[:2], found.itinerary.places[0][:2])
        step = np.linspace(at[:2], found.itinerary.places[0][:2], 200)
        assert np.hypot(*(step - [2.0, 0.1]).T).min() >= 0.5 + ROOM - 1e-3
        corners, now, at = corners + 1, now + math.ceil(way / 0.02), found.itinerary.places[0]
        found = guide.step(at, now, [now, *[0.0] * 11], 0.0)
    assert 1 < corners < 6 and math.dist(at, WHERE["a"]) < 0.4 and now * 0.02 < 5.0


def test_the_shortest_way_is_dijkstras() -> None:
    nodes = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0], [2.0, -1.0]])
    edges = free(nodes, nodes, np.array([[2.0, 0.0, 0.5]]))
    assert not edges[0, 1] and shortest(nodes, edges) == [0, 3, 1]
    assert shortest(nodes, np.eye(4, dtype=bool)) == []
