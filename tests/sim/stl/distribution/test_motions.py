"""Ways around discs, and motions along them: as the systems' models move, within the limits."""

from __future__ import annotations

from math import hypot

import numpy as np
import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.stl.distribution import motions
from temporeal.sim.stl.distribution.routes import route
from temporeal.sim.stl.distribution.settings import world, worlds
from temporeal.sim.system import states_after
from temporeal.sim.task_parts.systems import system_of

LOW, HIGH = np.full(2, -5.0), np.full(2, 5.0)


def length(corners: np.ndarray) -> float:
    return float(np.hypot(*np.diff(corners, axis=0).T).sum())


def test_a_way_is_straight_where_nothing_is_between() -> None:
    way = route(np.zeros(2), np.array([3.0, 4.0]), np.array([[3.0, 0.0, 1.0]]), LOW, HIGH)
    assert (way == [[0, 0], [3, 4]]).all()


def test_a_way_around_one_disc_is_little_longer_than_the_shortest() -> None:
    way = route(np.array([-2.0, 0.0]), np.array([2.0, 0.0]), np.array([[0.0, 0.0, 1.0]]), LOW, HIGH)
    shortest = 2 * np.sqrt(3) + np.pi / 3  # two tangents and an arc of 60 degrees
    assert shortest <= length(way) < 1.05 * shortest


def test_ways_keep_out_of_discs() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(60):
        discs = np.column_stack([rng.uniform(-4, 4, (6, 2)), rng.uniform(0.4, 1.2, 6)])
        start, goal = rng.uniform(-5, 5, (2, 2))
        if any(hypot(*(p - d[:2])) <= d[2] for p in (start, goal) for d in discs):
            continue
        way = route(start, goal, discs, LOW, HIGH)
        if way is None:
            continue
        found += 1
        assert (way[0] == start).all() and (way[-1] == goal).all()
        assert ((way >= -5) & (way <= 5)).all() and length(way) >= length(np.stack([start, goal])) - 1e-9
        share = np.linspace(0, 1, 200)[:, None]
        points = np.concatenate([a + share * (b - a) for a, b in zip(way, way[1:])])
        apart = np.hypot(points[:, None, 0] - discs[:, 0], points[:, None, 1] - discs[:, 1])
        assert (apart >= discs[:, 2] - 1e-6).all()
    assert found > 20


def test_there_is_no_way_out_of_a_ring_of_discs() -> None:
    turn = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    ring = np.column_stack([2 * np.cos(turn), 2 * np.sin(turn), np.full(8, 0.9)])
    assert route(np.zeros(2), np.array([4.0, 0.0]), ring, LOW, HIGH) is None


@pytest.mark.parametrize("robot", worlds())
def test_it_arrives_at_rest_within_the_limits(robot: str) -> None:
    of = world(robot)
    pose = np.array(of.low) + 0.1, 0.3
    start = (*pose[0], *[of.height] * (3 - len(pose[0])))
    rows = []
    for target in (np.array(of.high) - 0.1, 0.5 * (np.array(of.low) + of.high)):
        part, pose = motions.go(of, pose, target)
        rows.append(part)
    commands = np.concatenate([*rows, motions.still(of, 3)]).astype(np.float32)
    assert motions.broken_limit(of, commands) is None
    places = motions.signals(of, start, 0.3, commands)[of.signal]
    assert np.allclose(places[-4:, : len(of.low)], pose[0], atol=1e-4)
    assert np.allclose(places[len(rows[0]), : len(of.low)], np.array(of.high) - 0.1, atol=1e-4)
    fastest = np.linalg.norm(np.diff(places, axis=0), axis=1).max() / of.dt
    assert 0.5 * motions.pace(of) < fastest < 1.5 * motions.pace(of)
    assert motions.broken_limit(of, 1.05 * commands) is not None  # near a limit: no time is wasted


@pytest.mark.parametrize("robot", ["linear", "unicycle"])
def test_signals_are_those_of_the_systems_model(robot: str) -> None:
    of, model = world(robot), system_of(robot).model
    command = load_robot(robot).command(system_of(robot).command)
    low, high = np.array(command.low), np.array(command.high)
    share = np.random.default_rng(1).random((40, 2))
    commands = (low + (high - low) * share).astype(np.float32)
    ours = motions.signals(of, (1.0, -2.0, 0.0), 0.7, commands)
    state = {"base_pos_w": torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)}
    if robot == "unicycle":
        state["base_quat_w"] = torch.tensor([[np.cos(0.35), 0.0, 0.0, np.sin(0.35)]])
    states = states_after(model, model.state(state), torch.from_numpy(2 * share - 1)[None])[:, 0]
    for name, values in model.signals(states).items():
        if name in ours:
            assert np.allclose(ours[name][1:], values.numpy(), atol=1e-5)


@pytest.mark.parametrize("commands, message", [
    (np.full((3, 2), 1.1), "outside -1 to 1"), (np.zeros((3, 3)), r"commands are \[T, 2\]"),
    (np.full((3, 2), np.nan), "outside"),
])
def test_a_limit_that_is_broken_is_named(commands: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        raise ValueError(motions.broken_limit(world("linear"), commands))


def test_a_glider_that_is_too_fast_is_named() -> None:
    of = world("ant")
    most = motions.limits(of)[1]
    assert "the acceleration is 0.848528" in str(motions.broken_limit(of, most[None]))
    assert "the speed is" in str(motions.broken_limit(of, np.tile(0.7 * most, (40, 1))))
