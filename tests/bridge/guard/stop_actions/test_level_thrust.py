"""What the stop `level` begins with: the thrust that hovers, how fast the robot sinks, and how it goes sideways."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import exp
from typing import Any

import numpy as np
import pytest
from tests.bridge.guard.stop_actions.test_level import TILT_DEG, tilt
from tests.bridge.replay.test_replay import EMPTY, Flown
from tests.examples import thinned

from temporeal.robots.frames import from_rotation_vector, multiply, rotate, rotate_inverse
from temporeal.robots.motion import shield
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.stop_actions import hover_thrust as hovering
from temporeal_bridge.guard.stop_actions.hover_thrust import hover_thrust
from temporeal_bridge.guard.stop_actions.level import Levelling, climbing, leaning, observed, sinking
from temporeal_bridge.link import datagrams

ROBOT = load_robot("crazyflie")
FLOOR_M, PERIOD = 0.06, 0.02
UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])
MOTORS_S = 0.07  # of a Crazyflie


def estimate(*parts: tuple[float, Callable[[float], float]], weight: float = 1.0, height: float = 1.0,
             stands: bool = False, noise: float = 0.0, digit: float = 0.0) -> float:
    """The guard's hover thrust over the true one, which is ``weight`` nominal ones, after ``parts``: for so long [s] a
    thrust, in true hover thrusts, by the speed [m/s]. Where it ``stands``, the robot rests until thrust lifts it."""
    rng, told, now, speed, floor = np.random.default_rng(0), hovering.HoverEstimate(), 0.0, 0.0, height
    push = 0.0 if stands else 1.0
    for seconds, thrust in parts:
        for _ in range(round(seconds / PERIOD)):
            asked, seen = max(thrust(speed), 0.0), height + noise * rng.normal()
            seen = round(seen / digit) * digit if digit else seen
            values = {"height": np.array(seen), "base_quat_w": UPRIGHT}
            told = hovering.updated(told, FLOOR_M, asked * weight, values, now, PERIOD)
            for _ in range(20):
                push = asked + exp(-0.001 / MOTORS_S) * (push - asked)
                speed += 0.001 * 9.81 * (push - 1.0)
                height += 0.001 * speed
                if stands and height < floor:
                    height, speed = floor, 0.0
            now += PERIOD
    nominal = ROBOT.parameters["mass"].nominal[0] * 9.81
    return hover_thrust(ROBOT, told) / (weight * nominal)


def flies(wanted: float) -> Callable[[float], float]:
    """Brings the speed to ``wanted`` [m/s] with a time constant of 0.3 s."""
    return lambda speed: 1.0 + (wanted - speed) / (0.3 * 9.81)


def none(speed: float) -> float:
    return 0.0


@pytest.mark.parametrize("weight", [0.74, 1.0, 1.25])
@pytest.mark.parametrize("cut_s", [0.2, 0.3, 0.45])
def test_a_thrust_that_was_cut_makes_no_robot_light(cut_s, weight):
    """It was 0.79 to 0.89 of the weight, and a fall that was to be braked went on."""
    assert estimate((0.3, flies(0.5)), (2.0, flies(0.0)), (cut_s, none), weight=weight) == pytest.approx(1.0, abs=0.06)


def full(speed: float) -> float:
    return 1.37


@pytest.mark.parametrize("sensor", [{}, {"noise": 0.01}, {"digit": 0.01}], ids=str)
@pytest.mark.parametrize("parts", [
    ((1.0, flies(0.0)),), ((1.0, flies(1.0)), (1.0, flies(-1.0))), ((1.5, flies(-1.5)),),
    ((2.0, flies(0.0)), (0.5, full)), *(((0.4 * k, flies(1.0 - 2.0 * (k % 2))),) * 3 for k in (1, 2))], ids=range(6))
def test_the_thrust_that_hovers_is_found_in_every_flight(parts, sensor):
    assert estimate(*parts, height=3.0, **sensor) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("idle, within", [(0.06, 0.08), (0.5, 0.08), (0.85, 0.12)])
def test_what_stood_idle_was_not_flown(idle, within):
    """On a table that reads 0.1 m it was 0.70 of the weight, after two seconds with little thrust."""
    stood = (2.0, lambda speed: idle)
    assert estimate(stood, height=0.1, stands=True) in (pytest.approx(1.0, abs=1e-9), pytest.approx(idle, abs=0.01))
    assert estimate(stood, (1.2, flies(1.0)), height=0.1, stands=True) == pytest.approx(1.0, abs=within)


def seen(height: float, velocity: Any, place: Any = (0.0, 0.0)) -> dict[str, np.ndarray]:
    x, y = place
    return {"height": np.array(height), "base_vel_w": np.array(velocity, dtype=float), "base_quat_w": UPRIGHT,
            "base_pos_w": np.array([x, y, height])}


def stopped(velocity: Any, told: Any = None, seconds: float = 1.0) -> tuple[Levelling, dict[str, np.ndarray]]:
    """A stop's first look after a flight with ``velocity`` [3] m/s of which ``told`` was said, and what it sees."""
    (x, y, z), flown = velocity, hovering.HoverEstimate()
    for k in range(round(seconds / PERIOD) + 1):
        t = k * PERIOD
        values = seen(9.0 + z * t, velocity if told is None else told, (x * t, y * t))
        if t < seconds:
            flown = hovering.updated(flown, FLOOR_M, 1.0, values, t, PERIOD)
    return observed(Levelling("level", seconds), values, seconds, PERIOD, flown), values


def test_a_stop_begins_with_the_speed_that_velocity_and_height_agree_on():
    """It began with 1 m/s at most, whatever it sank with: a third of a second was lost."""
    assert sinking(*stopped((0.0, 0.0, -2.4)), 0.3) == pytest.approx(2.4, abs=0.15)
    assert climbing(*stopped((0.0, 0.0, 1.8))) == pytest.approx(1.8, abs=0.15)
    stop, values = stopped((0.0, 0.0, 0.0), told=(0.0, 0.0, -2.4))  # the velocity lies: it begins with neither
    assert stop.said == 0.0 and sinking(stop, values, 0.3) <= 2.4 - 1.4


def test_no_height_that_creeps_lifts_a_robot():
    """The velocity says that it stands: it rose from 2 m to 3.2 m."""
    stop = Levelling("level", 0.0)
    for k in range(100):
        values = seen(2.0 - 0.8 * k * PERIOD, (0.0, 0.0, 0.0))
        stop = observed(stop, values, k * PERIOD, PERIOD)
        assert sinking(stop, values, 0.3) <= 0.3


def test_a_climb_is_braked_with_less_thrust_than_one_that_sinks_is_given():
    config = {"descend": 0.85, "gain": 5.0, "limit": 3.0, "sink_m_s": 0.3, "sink_gain": 0.5}
    def share(sink: float, climb: float) -> float:
        return shield.level_and_descend(UPRIGHT, 1.0, config, sink, climb)[0]

    assert share(-2.0, 0.0) == share(-0.1, 0.1) == 0.85 and share(-2.0, 2.0) == 0.6
    assert share(-0.3, 0.3) == pytest.approx(0.75) and share(-2.0, 0.3) == pytest.approx(0.75)


def test_the_body_is_turned_until_its_axis_leans_as_asked():
    lean = (0.1, -0.05)
    quat = from_rotation_vector(np.array([0.0, 0.0, 2.0]))  # whatever its heading
    for _ in range(200):
        quat = multiply(quat, from_rotation_vector(0.02 * shield.level_rates(quat, 5.0, 3.0, lean)))
    assert rotate(quat, np.array([0.0, 0.0, 1.0]))[:2] == pytest.approx(lean, abs=1e-3)


def lean(stop: Levelling, values: dict[str, np.ndarray], same: float = 0.0) -> tuple[float, float]:
    return leaning(replace(stop, same=same), values, 5.0)


def test_it_leans_against_the_speed_that_velocity_and_place_both_see():
    x, y = lean(*stopped((0.5, -0.3, 0.0)))
    assert (x, y) == pytest.approx((-0.5 / 9.81, 0.3 / 9.81), abs=0.005)
    assert np.hypot(*lean(*stopped((3.0, 4.0, 0.0)))) == pytest.approx(0.15)
    assert lean(*stopped((0.5, 0.0, 0.0)), same=0.2) == (0.0, 0.0)  # a velocity that is dead
    for told in ((0.2, 0.0, 0.0), (0.6, 0.0, 0.0), (3.0, -3.0, 0.0)):  # one that lies: it goes nowhere
        assert lean(*stopped((0.0, 0.0, 0.0), told=told)) == (0.0, 0.0)
    assert lean(*stopped((0.5, 0.0, 0.0), told=(-0.5, 0.0, 0.0))) == (0.0, 0.0)
    stop, values = stopped((0.5, 0.0, 0.0))
    assert leaning(stop, {**values, "base_vel_w": np.array([0.9, 0.0, 0.0])}, 5.0) == (0.0, 0.0)  # faster and faster
    assert leaning(stop, {"height": values["height"]}, 5.0) == (0.0, 0.0)


def steered(flown: Flown, velocity: Callable[[float], Any]) -> None:
    """From now on the robot is proposed what flies it with ``velocity`` [3] m/s, by the time [s] from now; of a number
    that thrust, and no rates."""
    receive, begun = flown.guard.link.receive, flown.lockstep.bus.seconds

    def wanted() -> np.ndarray:
        true, asked = flown.robot.true(), velocity(flown.lockstep.bus.seconds - begun)
        if np.ndim(asked) == 0:
            return np.array([asked, 0.0, 0.0, 0.0])
        off = np.asarray(asked) - true["base_vel_w"]
        push = rotate_inverse(true["base_quat_w"], np.array([*np.clip(1.5 * off[:2], -1.5, 1.5), 9.81 + 3.0 * off[2]]))
        x, y, _ = push / np.linalg.norm(push)
        return np.array([0.0319 * push[2], -5.0 * y, 5.0 * x, 0.0])

    flown.guard.link.receive = lambda: [
        p._replace(values=wanted()) if p.kind == datagrams.COMMAND else p for p in receive()]


def down(flown: Flown) -> tuple[float, float]:
    """How far [m] it goes sideways while it comes down, upright, and with which speed [m/s] it does."""
    begun, speed = flown.robot.true()["base_pos_w"], 0.0
    while flown.robot.true()["height"] > 0.04 and flown.lockstep.bus.seconds < 30.0:
        flown.lockstep.run(0.02)
        true = flown.robot.true()
        assert tilt(true["base_quat_w"]) < TILT_DEG
        speed = true["base_vel_w"][2] if true["height"] > 0.05 else speed
    return float(np.hypot(*(flown.robot.true()["base_pos_w"] - begun)[:2])), speed


@pytest.fixture
def begun(grounded, lockstep_of, tmp_path):
    pytest.importorskip("mujoco")
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), grounded, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(0.1)
    yield flown
    flown.close()


def test_a_fall_after_a_policy_cut_its_thrust_is_braked(begun):
    """0.3 s of no thrust at 2.8 m: it came down with 2.3 m/s, for the guard took it for 16 % lighter."""
    steered(begun, lambda t: (0.0, 0.0, 1.2) if t < 1.5 else (0.0, 0.0, 0.0) if t < 2.2 else 0.0)
    begun.lockstep.run(2.5)
    assert begun.robot.true()["base_vel_w"][2] < -1.5 and begun.guard.mode == "active"
    begun.send("mission/stop", EMPTY)
    assert down(begun)[1] > -0.5


@pytest.mark.slow
def test_a_stop_brakes_sideways(begun):
    """1.1 m/s at the fence: it came down 2.6 m behind it."""
    steered(begun, lambda t: (1.5, 0.0, 1.0 if t < 1.0 else 0.0))
    begun.lockstep.run(2.0)
    assert begun.robot.true()["base_vel_w"][0] > 0.9 and begun.guard.mode == "active"
    begun.send("mission/stop", EMPTY)
    far, speed = down(begun)
    assert far < 1.2 and speed > -0.5


@pytest.mark.parametrize("by", thinned([0.2, 0.35, 0.6], keep=[0.35]))
def test_a_velocity_that_lies_sideways_drives_nobody_away(by, begun):
    steered(begun, lambda t: (0.0, 0.0, 0.0))
    begun.lockstep.run(1.0)
    begun.robot.set_fault(json.dumps(
        {"name": "jump", "signal": "base_vel_w", "index": 0, "by": by, "scale": 1.0}))
    begun.send("mission/stop", EMPTY)
    far, speed = down(begun)
    assert far < 0.4 and speed > -0.6


@pytest.mark.slow
def test_a_heading_that_is_wrong_drives_nobody_faster_and_faster(
        grounded, lockstep_of, tmp_path, monkeypatch):
    """By 180 degrees since before the mission, stopped at 1.1 m/s."""
    pytest.importorskip("mujoco")
    from temporeal_bridge.transports.memory_bus import Bus

    codec, turned = STATE_CODECS["odometry"], np.array([0.0, 0.0, 0.0, 1.0])
    monkeypatch.setitem(STATE_CODECS, "odometry", replace(codec, encode=lambda signals, *rest: codec.encode(
        {**signals, "base_quat_w": multiply(turned, np.asarray(signals["base_quat_w"], dtype=float))}, *rest)))
    flown = Flown(lockstep_of(Bus()), grounded, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(0.1)
    steered(flown, lambda t: (1.5, 0.0, 1.0 if t < 2.0 else 0.0))
    flown.lockstep.run(2.2)
    assert flown.guard.mode == "active" and flown.robot.true()["base_vel_w"][0] > 1.0, flown.guard.flight.reason
    flown.send("mission/stop", EMPTY)
    fastest = 0.0
    for _ in range(600):
        flown.lockstep.run(0.02)
        true = flown.robot.true()
        fastest = max(fastest, float(np.hypot(*true["base_vel_w"][:2])))
    assert true["height"] < 0.1 and fastest < 2.2, fastest
    flown.close()
