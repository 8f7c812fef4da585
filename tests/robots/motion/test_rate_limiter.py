"""Commands keep limits of place, speed, acceleration and jerk, whatever is asked for: judged by the commands alone."""

from __future__ import annotations

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.robots.motion.rate_limiter import (
    Bounds,
    Motion,
    MotionError,
    State,
    allowed,
    at_rest,
    can_stop,
    confined,
    following,
    moved,
    resting,
    stopping,
    stops,
    way,
)

INF = np.inf
LIMITS = [(INF, INF, INF), (2.0, INF, INF), (2.0, 10.0, INF), (2.0, 10.0, 5000.0), (2.0, 10.0, 100.0), (2.0, 2.0, 5.0),
          (2.0, 50.0, 20.0), (INF, 5.0, 40.0)]
STEPS = [0.001, 0.02, 0.1]
CASES = pytest.mark.parametrize("limits, dt", thinned(  # each limits with one step, each step with some limits
    [(limits, dt) for limits in LIMITS for dt in STEPS],
    keep=[(limits, STEPS[k % 3]) for k, limits in enumerate(LIMITS)]))
LOW, HIGH = -1.0, 1.5


def bounds(limits: tuple[float, float, float], dt: float, size: int) -> Bounds:
    speed, acceleration, jerk = limits
    return Bounds([LOW] * size, [HIGH] * size, dt, speed=speed, acceleration=acceleration, jerk=jerk)


def wishes(size: int, steps: int, dt: float, seed: int) -> np.ndarray:
    """Jumps far beyond the ends, drifts at any speed, noise, the ends themselves, [T, N]."""
    rng = np.random.default_rng(seed)
    target, drift, out = rng.uniform(-3, 3, size), np.zeros(size), []
    for _ in range(steps):
        jump = rng.random(size) < 0.03
        kind = rng.integers(0, 4, size)
        new = np.choose(kind, [rng.uniform(-4, 4, size), np.full(size, LOW), np.full(size, HIGH), target])
        target = np.where(jump, new, target + drift * dt)
        drift = np.where(jump, rng.choice([0.0, 0.5, 2.0, 20.0], size) * rng.normal(size=size), drift)
        out.append(target + np.where(rng.random(size) < 0.1, rng.normal(0, 0.05, size), 0.0))
    return np.array(out)


@CASES
def test_no_limit_is_ever_passed(limits: tuple[float, float, float], dt: float) -> None:
    size, steps = 60, 200
    b = bounds(limits, dt, size)
    motion = at_rest(np.random.default_rng(1).uniform(LOW, HIGH, size))
    sent = [motion.command] * 3
    for target in wishes(size, steps, dt, 2):
        motion, changed = following(b, motion, target)
        assert np.array_equal(motion.command[~changed], target[~changed])
        sent.append(motion.command)
    commands = np.array(sent)
    assert commands.min() >= LOW and commands.max() <= HIGH
    rounding = 1e-12
    for limit in limits:  # of the first, second and third difference
        commands = np.diff(commands, axis=0) / dt
        rounding /= dt
        assert np.abs(commands).max() <= limit * (1 + 1e-6) + rounding


@CASES
def test_what_is_asked_for_is_reached(limits: tuple[float, float, float], dt: float) -> None:
    ends = np.array([HIGH, LOW, 0.3, -0.999, 9.0])
    b, motion = bounds(limits, dt, 5), at_rest(np.full(5, 0.2))
    speed, acceleration, jerk = limits
    slow = 1.3 / min(speed, 2.0) + min(acceleration, 1e3) ** -0.5 * 3.0 + 4.0 * (1.0 / min(jerk, 1e4)) ** (1 / 3)
    for _ in range(int(4.0 * slow / dt) + 20):
        motion, _ = following(b, motion, ends)
    np.testing.assert_allclose(motion.command, np.clip(ends, LOW, HIGH), atol=2e-3)


@CASES
def test_what_was_confined_goes_on_within_all_limits(limits: tuple[float, float, float], dt: float) -> None:
    """A window that appears anywhere has its way; what follows it keeps place and speed, and can always stop."""
    size, rng = 60, np.random.default_rng(4)
    b, speed = bounds(limits, dt, size), limits[0]
    motion = at_rest(rng.uniform(LOW, HIGH, size))
    for target in wishes(size, 300, dt, 5):
        after, _ = following(b, motion, target)
        assert (np.abs(after.command - motion.command) <= speed * dt * (1 + 1e-9) + 1e-12).all()
        near = rng.random(size) < 0.1
        low = np.where(near, after.command + rng.choice([1e-6, 0.01, 1.0], size) * rng.normal(size=size), -9.0)
        high = np.where(near, low + rng.choice([0.0, 0.1], size), 9.0)
        motion, changed = confined(b, motion, after, low, high)
        assert (motion.command == np.clip(np.clip(after.command, low, high), LOW, HIGH)).all()
        assert (changed == (motion.command != after.command)).all() and can_stop(b, motion)[changed].all()
        assert not motion.acceleration[changed].any() and (np.abs(motion.speed) <= speed * (1 + 1e-9)).all()
        assert LOW <= motion.command.min() and motion.command.max() <= HIGH


def test_a_step_that_was_shortened_goes_on_as_fast_as_it_was_and_a_push_is_no_motion() -> None:
    b, before = bounds((2.0, 10.0, INF), 0.1, 4), Motion.of(np.zeros(4), np.ones(4), np.zeros(4))
    after = Motion.of(np.full(4, 0.1), np.ones(4), np.zeros(4))
    ends = np.array([0.06, -0.3, 0.5])  # of the first three: shorter, back, ahead
    motion, changed = confined(b, before, after, ends, ends)
    assert motion.command == pytest.approx([0.06, -0.3, 0.5, 0.1]) and changed.tolist() == [True, True, True, False]
    assert motion.speed == pytest.approx([0.6, 0.0, 0.0, 1.0]) and not motion.acceleration.any()


def test_what_keeps_the_limits_is_sent_as_it_is() -> None:
    b = Bounds([-1.0] * 2, [1.0] * 2, 0.01, speed=1.0, acceleration=20.0, jerk=2000.0)
    time = np.arange(1, 600) * 0.01
    waves = np.stack([0.9 * (1 - np.cos(time)) / 2, 0.5 * np.sin(0.9 * time) * (1 - np.exp(-(time**4)))], -1)
    motion = at_rest([0.0, 0.0])
    for target in waves:
        motion, changed = following(b, motion, target)
        assert not changed.any() and np.array_equal(motion.command, target)


def test_commands_at_an_end_are_sent_where_only_place_or_speed_is_limited() -> None:
    for limits in ({}, {"speed": 5.0}):
        b = Bounds([0.0, -2.0], [1.0, 2.0], 0.02, **limits)
        motion = at_rest([0.95, -1.95])
        motion, changed = following(b, motion, [1.0, -2.0])
        assert motion.command.tolist() == [1.0, -2.0] and not changed.any()
        motion, changed = following(b, motion, [1.01, -1.99])
        assert motion.command.tolist() == [1.0, -1.99] and changed.tolist() == [True, False]


@pytest.mark.parametrize("size, limits, dt", thinned(
    [(size, limits, dt) for size in (60, 200) for limits in LIMITS[2:] for dt in STEPS],
    keep=[(60, limits, STEPS[k % 3]) for k, limits in enumerate(LIMITS) if k >= 2]))
def test_a_stop_leads_no_farther_than_its_bound(limits: tuple[float, float, float], dt: float, size: int) -> None:
    rng = np.random.default_rng(3)
    wide = Bounds([-1e6] * size, [1e6] * size, dt, speed=limits[0], acceleration=limits[1], jerk=limits[2])
    top = min(limits[0], 5.0)
    push = min(limits[1], 0.5 * limits[2])
    motion = Motion.of(np.zeros(size), rng.uniform(-top, top, size), rng.uniform(-push, push, size))
    room = rng.uniform(0.0, 3.0, size)
    b = Bounds(-room - 1e-9, room + 1e-9, dt, speed=limits[0], acceleration=limits[1], jerk=limits[2])
    sure = can_stop(b, motion)
    farthest, fastest, still = np.zeros(size), np.abs(motion.speed), motion
    for _ in range(int(4.0 / dt) + 100):
        still = stopping(wide, still)
        farthest, fastest = np.maximum(farthest, np.abs(still.command)), np.maximum(fastest, np.abs(still.speed))
    assert np.abs(still.speed).max() < 1e-6
    assert 0.02 < sure.mean() < 1.0
    assert (farthest[sure] <= room[sure] * (1 + 1e-6) + 1e-8).all() and (fastest[sure] <= limits[0] * (1 + 1e-6)).all()


@CASES
def test_a_stop_that_is_certain_at_once_is_certain_when_reckoned(
    limits: tuple[float, float, float], dt: float
) -> None:
    """At, between and beyond the places and speeds up to which nothing is reckoned."""
    rng, wide = np.random.default_rng(4), 20.0
    axis = Bounds([-wide], [wide], dt, speed=limits[0], acceleration=limits[1], jerk=limits[2]).axes[0]
    slow = axis._replace(calm=-INF)  # nothing is calm: everything is reckoned
    top, push = min(limits[0], 6.0), min(limits[1], 60.0)
    found = []
    for _ in range(2000):
        edge = rng.random(3) < 0.3
        state = State(
            rng.choice([axis.inner_low, axis.inner_high, -wide, wide]) if edge[0] else rng.uniform(-1.1, 1.1) * wide,
            rng.choice([-1.0, 1.0]) * (min(axis.calm, top) if edge[1] else rng.uniform(0.0, 1.1) * top),
            rng.choice([-1.0, 1.0]) * (push if edge[2] else rng.uniform(0.0, 1.1) * push))
        state = state if np.isfinite(state.x) else state._replace(x=0.0)
        assert stops(axis, state) == stops(slow, state)
        at_once = axis.inner_low <= state.x <= axis.inner_high and abs(state.v) <= axis.calm
        found.append((at_once, stops(slow, state)))
    both = np.mean(found, axis=0)
    assert 0.0 < both[1] < 1.0 and (both[0] > 0.2 or limits[0] == INF > limits[1] or axis.calm < 0.5 * limits[0])


def test_the_allowed_speed_leaves_room_to_stop() -> None:
    for limits in LIMITS[2:]:
        axis = Bounds([-1.0], [1.0], 0.01, speed=INF, acceleration=limits[1], jerk=limits[2]).axes[0]
        before = 0.0
        for room in np.geomspace(1e-6, 2.5, 50):
            speed = allowed(axis, room)
            assert speed > before and way(axis, speed) + speed * 0.01 * (1 + axis.bent) <= room * (1 + 1e-9)
            before = speed


def test_differences_are_backward() -> None:
    first = moved(State(1.0, 0.0, 0.0), 1.2, 0.1)
    assert first == pytest.approx((1.2, 2.0, 20.0))
    assert moved(first, 1.3, 0.1) == pytest.approx((1.3, 1.0, -10.0))


@pytest.mark.parametrize(("wrong", "told"), [
    ({"low": [1.0], "high": [1.0]}, "below high"), ({"low": [np.nan]}, "below high"),
    ({"low": [0.0, 0.0]}, "below high"),
    ({"speed": 0.0}, "speed must be positive"), ({"acceleration": np.nan}, "acceleration must be positive"),
    ({"speed": [1.0, 2.0]}, "1 components need as many"), ({"jerk": 5.0}, "needs a limited acceleration"),
    ({"dt": 0.0}, "positive time"), ({"dt": INF}, "positive time")])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(MotionError, match=told):
        Bounds(**{"low": [-1.0], "high": [1.0], "dt": 0.01, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("push", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("jerk", [np.inf, 5000.0, 40.0])
@pytest.mark.parametrize("dt", [0.002, 0.04])
def test_where_a_stop_ends_is_known_without_making_it(dt, jerk, push):
    """At least as far as the stop leads, also from a motion that is still pushed on, and not much farther."""
    limits = Bounds([-9.0] * 2, [9.0] * 2, dt, speed=2.0, acceleration=6.0, jerk=jerk)
    start = Motion.of(np.zeros(2), np.array([1.0, -0.7]), push * np.array([1.0, -1.0]))
    told, motion = resting(limits, start), start
    while motion.speed.any() or motion.acceleration.any():
        motion = stopping(limits, motion)
    beyond = np.sign(start.speed) * (told - motion.command)
    fade = push / jerk  # s until nothing pushes any more
    assert (beyond >= -1e-9).all() and (beyond <= (3 * dt + fade) * (np.abs(start.speed) + push * fade) + 1e-9).all()


def test_arrays_of_a_motion_are_those_of_its_numbers_and_stay_so():
    made = Motion.of(np.array([1.0, 2.0]), np.zeros(2), np.array([0.0, 0.5]))
    assert made.states == [State(1.0, 0.0, 0.0), State(2.0, 0.0, 0.5)] and made.moves and not at_rest([1.0, 2.0]).moves
    for name, values in (("command", [1.0, 2.0]), ("speed", [0.0, 0.0]), ("acceleration", [0.0, 0.5])):
        array = getattr(made, name)
        assert array.tolist() == values
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9.0
    with pytest.raises(ValueError, match="zip"):
        Motion.of(np.zeros(3), np.zeros(2), np.zeros(3))
