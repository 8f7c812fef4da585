"""Places must change as their rates say: what the guard believes of a quadrotor's attitude, place and velocities."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import sin

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.robots.frames import from_rotation_vector, multiply
from temporeal.robots.spec import load_robot
from temporeal_bridge.guard.checks.rate_pairs import turn
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.profile import GAP_S
from temporeal_bridge.guard.safety.reasons import NOTHING
from temporeal_bridge.interface.loading import load_interface

ROBOT = load_robot("crazyflie")
NOISE = load_interface(ROBOT).simulation["noise"]
Signals = dict[str, np.ndarray]
PERIOD = 0.01
MOVES = Callable[[Signals, float], Signals]


def watching(interface: str = "crazyswarm2") -> StateMonitor:
    """Of a Crazyflie: odometry (topic 0) and gyro (1)."""
    found = load_interface(ROBOT, interface)
    profile = profile_on(ROBOT, found, ROBOT.command("ctbr_cmd"), 0.02)
    return StateMonitor(profile, [row.rate_hz for row in found.states])


def flight(seconds: float, swing: float = 0.5, pace: float = 3.0, step: float = 0.001) -> list[Signals]:
    """True signals every ms: it rolls, pitches and yaws with up to ``swing`` [rad/s], to and from by ``pace``."""
    place, speed, attitude, out = np.zeros(3), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), []
    for k in range(round(seconds / step)):
        t = k * step
        rate = swing * np.array([sin(pace * t), sin(1.3 * pace * t + 1.0), 0.5 * sin(0.7 * pace * t)])
        attitude = multiply(attitude, from_rotation_vector(step * rate))
        speed = np.array([sin(2.0 * t), sin(3.0 * t), 0.3])
        place = place + step * speed
        out.append({"base_pos_w": place, "base_vel_w": speed, "base_quat_w": attitude, "base_ang_vel_b": rate})
    return out


def told(
    monitor: StateMonitor, true: list[Signals], lie: MOVES = lambda signals, t: signals, apart_s: float = 0.0,
    lost: float = 0.0, since: float = 0.0,
) -> float:
    """Tell it every 10 ms, the gyro as it was ``apart_s`` before; of either a share is ``lost``. The time [s] then."""
    rng = np.random.default_rng(0)
    for k in range(round(apart_s / 0.001), len(true), round(PERIOD / 0.001)):
        t = since + 0.001 * k
        here, before = true[k], true[k - round(apart_s / 0.001)]
        parts = [{name: here[name] for name in ("base_pos_w", "base_vel_w", "base_quat_w")},
                 {"base_ang_vel_b": before["base_ang_vel_b"]}]
        for topic in (1, 0):
            errors = {name: NOISE[name] * rng.normal(size=3) for name in parts[topic]}
            noisy = {name: multiply(value, from_rotation_vector(errors[name])) if name == "base_quat_w" else
                     value + errors[name] for name, value in parts[topic].items()}
            if rng.random() >= lost:
                monitor.take(topic, 0, lie(noisy, t), t, 0)
    return since + 0.001 * (len(true) - 1)


def reason(monitor: StateMonitor, now: float) -> tuple[str, str]:
    monitor.freshness.at = [now, now]  # it is fresh: that is another rule
    return monitor.reason(now, None)


def test_a_turn_is_about_the_bodys_axes_whatever_the_quaternions_sign():
    rng = np.random.default_rng(0)
    for _ in range(100):
        start, way = from_rotation_vector(rng.normal(size=3)), rng.uniform(-1.7, 1.7, size=3)
        end = multiply(start, from_rotation_vector(way))
        for sign in (1.0, -1.0):
            assert turn(start.tolist(), (sign * end).tolist()) == pytest.approx(way.tolist(), abs=1e-12)
    assert turn(start.tolist(), (-start).tolist()) == pytest.approx([0.0] * 3, abs=1e-7)


@pytest.mark.parametrize("swing, pace, most, lost, apart_s", thinned(
    [(*motion, lost, apart_s) for motion in ((0.0, 1.0, 0.1), (3.5, 20.0, 0.5), (6.0, 15.0, 0.8))
     for lost in (0.0, 0.3) for apart_s in (0.0, 0.01, 0.03)],
    keep=lambda case: case[3:] in ((0.0, 0.0), (0.3, 0.03))))
def test_who_says_what_is_so_is_believed(swing, pace, most, lost, apart_s):
    """At up to 6 rad/s and 120 rad/s^2, with noise, lost samples, and a gyro that comes up to 30 ms later; quaternions
    of either sign. ``most``: share of what is allowed."""
    monitor, worst = watching(), 0.0

    def turned(signals: Signals, t: float) -> Signals:
        nonlocal worst
        worst = max([worst, *(abs(x) / pair.rule.within for pair in monitor.pairs for x in pair.apart)])
        flip = round(100 * t) % 3 == 0 and "base_quat_w" in signals
        return {**signals, "base_quat_w": -signals["base_quat_w"]} if flip else signals

    now = told(monitor, flight(4.0, swing, pace), turned, apart_s, lost)
    assert reason(monitor, now) == NOTHING and not monitor.disagreed
    assert monitor.sees_attitude(now) and monitor.sound(now)
    assert worst < most


def test_coarse_values_on_the_ground_may_stand():
    """Crazyswarm2's: whole mm, and quaternions in steps of 1.4 mrad; the gyro is off by 1 degree/s."""
    monitor, rest = watching(), flight(20.0, swing=0.0)

    def coarse(signals: Signals, t: float) -> Signals:
        out = dict(signals)
        if "base_pos_w" in out:
            step = 0.0014 * (round(100 * t) % 15 == 0)
            return {"base_pos_w": np.zeros(3), "base_quat_w": np.array([1.0, 0.0, step, 0.0]),
                    "base_vel_w": np.full(3, 0.01)}
        return {"base_ang_vel_b": out["base_ang_vel_b"] + 0.017}

    now = told(monitor, rest, coarse)
    assert reason(monitor, now) == NOTHING and monitor.sees_attitude(now) and monitor.sound(now)


def standing(name: str) -> MOVES:
    kept: Signals = {}

    def lie(signals: Signals, t: float) -> Signals:
        return {**signals, name: kept.setdefault(name, signals[name])} if name in signals else signals

    return lie


def added(name: str, what: Callable[[np.ndarray, float], np.ndarray]) -> MOVES:
    return lambda signals, t: {**signals, name: what(signals[name], t - BEGUN_S)} if name in signals else signals


X, Z = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
BEGUN_S = 1.0  # the lies begin
# what is said, the code and the text that must follow, and whether attitude and place are believed then
LIES = {
    "attitude stands": (standing("base_quat_w"), "frozen", "base_quat_w did not change in any bit", False, True),
    "place stands": (standing("base_pos_w"), "frozen", "base_pos_w did not change in any bit, though", True, False),
    "velocity stands": (standing("base_vel_w"), "speeds", r"base_pos_w\[.\] .* than base_vel_w says", True, False),
    "velocity creeps": (added("base_vel_w", lambda v, t: v + 2.0 * t * X), "speeds", r"base_pos_w\[0\]", True, False),
    "height creeps": (added("base_pos_w", lambda p, t: p - 1.5 * t * Z), "speeds", r"base_pos_w\[2\]", True, False),
    "gyro in degrees": (added("base_ang_vel_b", lambda w, t: 57.3 * w), "speeds", "turned about axis", False, True),
    "gyro off by 1 rad/s": (added("base_ang_vel_b", lambda w, t: w + X), "speeds", "about axis 0 by 0.6", False, True),
    "attitude creeps": (added("base_quat_w", lambda q, t: multiply(from_rotation_vector(t * Z), q)), "speeds",
                        "base_quat_w has turned about axis 2 by 0.6.. rad more or less than base_ang", False, True)}


@pytest.mark.parametrize("lie", LIES)
def test_who_lies_is_found_and_not_believed_for_the_rest_of_the_mission(lie):
    how, code, text, sees, sound = LIES[lie]
    monitor, true = watching(), flight(4.0)
    begun = told(monitor, true[: round(BEGUN_S / 0.001)])
    monitor.begin(begun)
    assert reason(monitor, begun) == NOTHING and monitor.sees_attitude(begun) and monitor.sound(begun)
    now, found, k = begun, NOTHING, 1000
    while found == NOTHING and k < 3000:
        now, k = told(monitor, true[k:k + 10], how, since=0.001 * k), k + 10
        found = reason(monitor, now)
    assert found[0] == code and re.search(text, found[1]), found
    assert (monitor.sees_attitude(now), monitor.sound(now)) == (sees, sound)
    later = told(monitor, true[k:], since=0.001 * k)
    assert (monitor.sees_attitude(later), monitor.sound(later)) == (sees, sound)  # what is right now may have lied
    monitor.begin(later)
    assert monitor.sees_attitude(later) and monitor.sound(later)


@pytest.mark.parametrize("stand, blind", [(["base_ang_vel_b"], False), (["base_ang_vel_b", "base_quat_w"], True)])
def test_a_gyro_that_stands_is_dead_and_an_attitude_that_changes_beside_it_is_believed(stand, blind):
    """MAVROS: attitude and rates are of one stream, which may end while the place goes on."""
    monitor = watching()
    lies = [standing(name) for name in stand]

    def lie(signals: Signals, t: float) -> Signals:
        for one in lies:
            signals = one(signals, t)
        return signals

    now = told(monitor, flight(0.35, swing=0.02), lie)
    assert reason(monitor, now) == ("frozen", "base_ang_vel_b did not change in any bit for 0.2 s")
    assert monitor.sees_attitude(now) == (not blind) and monitor.sound(now)


def test_after_a_gap_nobody_knows_how_far_it_went():
    """Of places the leap counts, and of attitudes; not how they came there."""
    for gap, said in ((GAP_S - 0.01, "speeds"), (GAP_S + 0.01, "")):
        monitor = watching()
        within = next(pair.rule.within for pair in monitor.pairs if not pair.rule.turns)
        for t, place in ((0.0, 0.0), (gap, within + 0.01)):
            monitor.take(0, 0, {"base_pos_w": place * X, "base_vel_w": 0 * X}, t, 0)
        assert monitor.speeds()[0] == said


def test_a_gyro_that_does_not_come_any_more_lets_the_attitude_be_believed():
    """Its log block is lost: it is stale, and that is what the stop is for; the attitude is as good as before."""
    monitor, true = watching(), flight(2.0, swing=2.0, pace=10.0)
    told(monitor, true[:500])
    now = told(monitor, true[500:], lambda signals, t: signals if "base_quat_w" in signals else {}, since=0.5)
    monitor.freshness.at = [now, 0.5]
    assert monitor.reason(now, None)[0] == "stale" and monitor.freshness.seen(now)
    assert monitor.sees_attitude(now) and monitor.sound(now)


def test_a_state_that_comes_later_and_later_is_stale():
    """Each message has just come: only its stamp says how old it is, and the clocks need not agree for that."""
    for topic, differs in ((0, -0.09), (1, -0.09), (0, 0.0)):
        monitor = watching()
        for k in range(100):
            now, late = 0.01 * k, 0.0012 * k
            for each in (1, 0):
                age = 0.01 + differs + (late if each == topic else 0.0)
                monitor.take(each, 10**12 + round(1e9 * (now - age)), {}, now, 10**12 + round(1e9 * now))
            if monitor.reason(now, None) != NOTHING:
                break
        code, text = monitor.reason(now, None)
        if differs:
            assert code == "stale" and "0.101 s later after its stamp than those before it, less than 0.1 s" in text
        else:
            assert code == "stamps" and now == pytest.approx(0.76)
        assert monitor.sees_attitude(now) == (topic == 1 or not differs)


@pytest.mark.parametrize("row, words", [
    ([1], r"safety.agree is \[1\]; a mapping from places to rate and within"),
    ({"base_pos_w": {"rate": "base_vel_w"}}, "agree.base_pos_w: the key 'within' is missing; legal: rate"),
    ({"pos": {"rate": "base_vel_w", "within": 1}}, "has no signal 'pos'"),
    ({"base_pos_w": {"rate": "vel", "within": 1}}, "agree.base_pos_w.rate: robot 'crazyflie' has no signal 'vel'"),
    ({"base_pos_w": {"rate": "base_ang_vel_b", "within": 1}}, "is in rad/s; base_pos_w is in m, so"),
    ({"base_vel_w": {"rate": "base_vel_w", "within": 1}}, "base_vel_w is in m/s, so a signal in m/s/s is needed"),
    ({"base_quat_w": {"rate": "base_vel_w", "within": 1}}, "is in m/s, frame 'w'; .* in rad/s, frame 'b', .* base_ang"),
    ({"base_quat_w": {"rate": "base_ang_vel_b", "within": 4}}, "within is 4; an angle below pi rad is needed"),
    ({"base_pos_w": {"rate": "base_vel_w", "within": 0}}, "within is 0; a positive number is needed")])
def test_a_wrong_rule_is_named(row, words):
    found = load_interface(ROBOT, "crazyswarm2")
    with pytest.raises(SafetyError, match=words):
        profile_on(ROBOT, replace(found, safety={**found.safety, "agree": row}), ROBOT.command("ctbr_cmd"), 0.02)


def test_what_comes_too_seldom_to_be_compared_is_refused():
    found = load_interface(ROBOT, "crazyswarm2")
    slow = replace(found, states=(found.states[0], replace(found.states[1], rate_hz=10)),
                   safety={**found.safety, "stale_after_s": 0.3})
    with pytest.raises(SafetyError, match="agree.base_quat_w needs base_ang_vel_b more often than every 0.1 s"):
        profile_on(ROBOT, slow, ROBOT.command("ctbr_cmd"), 0.02)


@pytest.mark.parametrize("speed, held_up_s", [(3.0, 0.09), (4.0, 0.07)])
def test_states_that_waited_on_the_way_and_come_in_a_heap_are_judged_by_when_they_were(speed, held_up_s):
    """By when they came the first of them would have stood for all that time, and the others would leap."""
    monitor, waiting = watching("odometry"), list[tuple[float, Signals]]()
    rng = np.random.default_rng(0)
    for k in range(1, 600):
        t = 0.01 * k
        place = np.array([0.5 * speed * sin(2.0 * t), 0.0, 1.0]) + 0.001 * rng.normal(size=3)
        attitude = from_rotation_vector(np.array([0.0, 0.0, 2.0 * sin(2.0 * t)]) + 0.002 * rng.normal(size=3))
        waiting.append((t, {"base_pos_w": place, "base_vel_w": np.array([speed * np.cos(2.0 * t), 0.0, 0.0]),
                            "base_quat_w": attitude,
                            "base_ang_vel_b": np.array([0.0, 0.0, 4.0 * np.cos(2.0 * t)]) + 0.01 * rng.normal(size=3)}))
        if t % 0.5 > held_up_s:
            for at, signals in waiting:
                monitor.take(0, round(1e9 * (5.0 + at)), signals, t, round(1e9 * (5.0 + t)))
                if t <= 0.5 + held_up_s:
                    monitor.begin(t)  # right after the first message of a heap
                assert monitor.reason(t, None) == NOTHING and monitor.sound(t) and monitor.attitude_sound
            waiting.clear()


def circled(said: Callable[[float], float], seconds: float = 6.0) -> tuple[StateMonitor, float]:
    """A place that goes round with 3 m/s and 6 m/s^2, and a velocity that tells ``said`` of it along one axis, from the
    time [s]; and how long it took until one of them was not believed [s]."""
    monitor = watching()
    for k in range(round(100 * seconds)):
        t = 0.01 * k
        monitor.take(0, 0, {"base_pos_w": 1.5 * np.sin(2.0 * t) * X, "base_vel_w": said(t) * X}, t, 0)
        if monitor.disagreed:
            return monitor, t
    return monitor, np.inf


@pytest.mark.parametrize("said", [lambda t: 3.0 * np.cos(2.0 * (t - 0.1)), lambda t: 0.85 * 3.0 * np.cos(2.0 * t)])
def test_a_velocity_that_is_late_or_a_little_small_is_honest(said):
    assert circled(said)[1] == np.inf


@pytest.mark.parametrize("creeps, found_s", [(0.6, np.inf), (0.8, 1.0), (1.5, 0.3)])
def test_a_place_that_creeps_away_from_its_velocity_is_found(creeps, found_s):
    """A height that did so by 0.8 m/s lifted a robot that levelled, as long as it lasted."""
    assert circled(lambda t: 3.0 * np.cos(2.0 * t) - creeps)[1] <= found_s
    assert (circled(lambda t: 3.0 * np.cos(2.0 * t) - creeps)[1] < np.inf) == (found_s < np.inf)
