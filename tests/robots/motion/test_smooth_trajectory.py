"""The way between commands and to rest after them: within the commands' limits, whole, and still at its end."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from temporeal.robots.franka import spec as franka
from temporeal.robots.motion.rate_limiter import Bounds, Motion, MotionError, at_rest, following
from temporeal.robots.motion.smooth_trajectory import SmoothTrajectory, resting, smooth_trajectory

DT = 0.04
LIMITS = Bounds([-2.0, -2.0], [2.0, 2.0], DT, speed=1.5, acceleration=6.0, jerk=200.0)
State = tuple[np.ndarray, np.ndarray, np.ndarray]
REST = (np.zeros(2), np.zeros(2), np.zeros(2))


def along(way: SmoothTrajectory, begin: State, time: float) -> tuple[np.ndarray, ...]:
    """Position, speed, acceleration and jerk at ``time`` from ``begin`` on through the points: polynomials of fifth
    degree that have position, speed and acceleration of both ends, found as a linear system."""
    times = np.concatenate([[0.0], way.times])
    ends = [begin, *zip(way.positions, way.speeds, way.accelerations)]
    i = int(np.clip(np.searchsorted(times, time, side="right") - 1, 0, len(times) - 2))
    h = times[i + 1] - times[i]

    def rows(t: float) -> np.ndarray:
        return np.array([[prod(range(k - n + 1, k + 1)) * t ** max(k - n, 0) for k in range(6)] for n in range(4)])

    system = np.vstack([rows(0.0)[:3], rows(h)[:3]])
    return tuple(rows(time - times[i]) @ np.linalg.solve(system, np.vstack([*ends[i], *ends[i + 1]])))


def ends(way: SmoothTrajectory, point: int = 0) -> State:
    return way.positions[point], way.speeds[point], way.accelerations[point]


def commands(target: np.ndarray, steps: int) -> list[Motion]:
    """The motion of commands on the way from rest at 0 to ``target``."""
    out = [at_rest(np.zeros(2))]
    for _ in range(steps):
        out.append(following(LIMITS, out[-1], target)[0])
    return out[1:]


def check(values: tuple[np.ndarray, ...]) -> None:
    position, speed, acceleration, jerk = values
    assert (position >= LIMITS.low - 1e-9).all() and (position <= LIMITS.high + 1e-9).all()
    for value, limit in ((speed, LIMITS.speed), (acceleration, LIMITS.acceleration), (jerk, LIMITS.jerk)):
        assert (np.abs(value) <= limit * (1 + 1e-6) + 1e-6).all()


def test_at_rest_it_is_one_point():
    way = smooth_trajectory(LIMITS, at_rest([0.5, -0.5]))
    assert way.times.tolist() == [DT] and way.positions.tolist() == [[0.5, -0.5]] and not way.speeds.any()


def test_points_of_the_spline_by_hand():
    """Control points 0, 0, 0.006: (0 + 0 + 0.006) / 6, and the differences 0 and 0.006 in 0.04 s."""
    motion = Motion.of(np.array([0.006]), np.array([0.15]), np.array([3.75]))
    way = smooth_trajectory(Bounds([-1.0], [1.0], DT, speed=1.0, acceleration=3.75), motion)
    assert way.positions[0] == pytest.approx(0.001) and way.speeds[0] == pytest.approx(0.075)
    assert way.accelerations[0] == pytest.approx(3.75)
    # then a stop in one step, at the same place: control points 0, 0.006, 0.006, 0.006 and so on
    assert way.positions[1:, 0] == pytest.approx([0.005, 0.006]) and way.times == pytest.approx([0.04, 0.08, 0.12])


@pytest.mark.parametrize("target", [(1.9, -0.3), (-2.5, 2.5), (0.02, 0.0)])
def test_between_commands_and_on_the_way_to_rest_the_limits_of_the_commands_hold(target):
    begin = REST
    for k, motion in enumerate(commands(np.array(target), 60)):
        way = smooth_trajectory(LIMITS, motion)
        for time in np.linspace(0.0, DT, 5):
            check(along(way, begin, time))
        if k % 10 == 5:
            for time in np.linspace(0.0, way.times[-1], 40):
                check(along(way, begin, time))
        begin = ends(way)
    assert begin[0] == pytest.approx(np.clip(target, LIMITS.low, LIMITS.high), abs=0.02)


def test_what_an_fr3_gets_at_1_khz_it_accepts():
    """Targets that jump, at 25 Hz and 0.6 of its limits: differences of setpoints 1 ms apart keep all its limits."""
    most, dt = franka.motion(0.6), 0.001
    limits = Bounds(most.low, most.high, DT, speed=most.speed, acceleration=most.acceleration, jerk=franka.JERK)
    rng, motion, setpoints = np.random.default_rng(0), at_rest(franka.HOME), [np.array(franka.HOME)] * 4
    begin = (setpoints[0], np.zeros(7), np.zeros(7))
    for _ in range(12):
        target = rng.uniform(most.low, most.high)
        for _ in range(4):
            motion, _ = following(limits, motion, target)
            way = smooth_trajectory(limits, motion)
            setpoints += [along(way, begin, k * dt)[0] for k in range(1, 41)]
            begin = ends(way)
    speed = np.diff(setpoints, axis=0) / dt
    acceleration = np.diff(speed, axis=0) / dt
    jerk = np.diff(acceleration, axis=0) / dt
    assert np.abs(speed).max() > 1.0 and np.abs(acceleration).max() > 5.0
    for found, limit in ((speed, franka.SPEED), (acceleration, franka.ACCELERATION), (jerk, franka.JERK)):
        assert (np.abs(found) <= limit).all()


def test_an_arm_that_hears_no_more_comes_to_rest_by_itself_near_the_last_command():
    motions = commands(np.array([1.9, -1.0]), 20)
    assert np.abs(motions[-1].speed).max() > 1.0
    way = smooth_trajectory(LIMITS, motions[-1])
    position, speed, acceleration, _ = along(way, ends(smooth_trajectory(LIMITS, motions[-2])), way.times[-1])
    assert position == pytest.approx(way.positions[-1]) and not np.abs(speed).max() > 1e-9
    assert np.abs(acceleration).max() < 1e-6
    braking = motions[-1].speed**2 / (2 * LIMITS.acceleration)
    assert (np.abs(position - motions[-1].command) < 1.3 * braking + 0.01).all()


def test_it_is_two_periods_behind_a_steady_motion():
    """The command of two periods ago is passed a period after the last one: at constant speed exactly."""
    motion = Motion.of(np.array([0.5, -0.5]), np.array([1.0, -0.5]), np.zeros(2))
    way = smooth_trajectory(LIMITS, motion)
    assert way.positions[0] == pytest.approx(motion.command - DT * motion.speed)
    assert way.speeds[0] == pytest.approx(motion.speed)


def test_a_long_stop_at_a_high_rate_is_few_points_that_still_end_at_rest():
    fast = Bounds([-2.0], [2.0], 0.002, speed=1.5, acceleration=6.0, jerk=5000.0)
    motion = Motion.of(np.zeros(1), np.array([1.5]), np.zeros(1))
    whole, few = smooth_trajectory(fast, motion, most=10_000), smooth_trajectory(fast, motion)
    assert len(whole.times) > 100 and len(few.times) == 24
    assert few.times[0] == whole.times[0] and few.times[-1] == whole.times[-1]
    begin = (np.array([-0.006]), np.array([1.5]), np.zeros(1))
    near = np.array([along(few, begin, t)[0][0] for t in whole.times])
    assert np.abs(whole.positions[:, 0] - near).max() < 1e-4


@pytest.mark.parametrize(("times", "positions", "speeds", "words"), [
    ([0.1, 0.1], [[0.0], [0.0]], [[0.0], [0.0]], "increase"),
    ([0.0], [[0.0]], [[0.0]], "positive"),
    ([0.1], [[0.0]], [[1.0]], "ends at rest"),
    ([0.1], [[np.nan]], [[0.0]], "finite"),
    ([0.1, 0.2], [[0.0]], [[0.0]], "positions"),
    ([0.1], [[0.0, 1.0]], [[0.0]], "differ in shape"),
    ([], np.zeros((0, 1)), np.zeros((0, 1)), "positions"),
])
def test_what_is_no_course(times, positions, speeds, words):
    positions = np.array(positions)
    with pytest.raises(MotionError, match=words):
        SmoothTrajectory(np.array(times), positions, np.array(speeds), np.zeros_like(positions))


def test_an_acceleration_at_the_end_is_refused():
    with pytest.raises(MotionError, match="ends at rest"):
        SmoothTrajectory(np.array([0.1]), np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))


def test_resting_at_a_place():
    way = resting(np.array([0.1, 0.2]), 0.5)
    assert way.times.tolist() == [0.5] and way.positions.tolist() == [[0.1, 0.2]]
