"""How a stopped quadrotor comes down: by which signals, with which thrust, and when its motors are cut."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from tests.bridge.guard.guard_world import (
    LOW,
    PERIOD,
    ROBOT,
    Sinking,
    World,
    ready,
)
from tests.examples import thinned

from temporeal.robots.frames import from_rotation_vector
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.fallback_actions import OFF_S
from temporeal_bridge.guard.stop_actions.hover_thrust import HoverEstimate, hover_thrust, updated
from temporeal_bridge.guard.stop_actions.level import SHOWN_S, Levelling, observed, sinking, trimmed
from temporeal_bridge.interface.loading import load_interface


@pytest.fixture
def high(lockstep, artifact):
    """Flying; nobody minds that it is somewhere else at once."""
    world = ready(lockstep, artifact, jump=None, agree=None)
    world.begin()
    world.fly(0.3)
    return world


def hovering() -> float:
    return ROBOT.parameters["mass"].nominal[0] * 9.81


@pytest.mark.parametrize("height, speed", thinned(
    [(1.2, 0.0), (3.9, 0.0), (3.0, -2.0), (2.0, 2.0)], keep=[(1.2, 0.0), (3.0, -2.0)]))
def test_a_stopped_quadrotor_comes_down_slowly_and_its_motors_run_until_it_is_down(high, height, speed):
    """From the fence's 4 m it takes longer than max_s; a thrust that is 7 % off makes it a little faster."""
    high.tell("mission/stop")
    robot = Sinking(high, height, speed, strength=0.93)
    robot.fall(30.0)
    assert high.mode == "stopped" and robot.height < 0.07 and -robot.speed <= 0.5
    assert robot.fastest <= max(0.5, -speed + 0.3)
    assert high.commands[-1][1].tolist() == [0.0] * 4


LIES: dict[str, Callable[[float, float], float]] = {
    "it falls": lambda speed, t: -2.0, "too low": lambda speed, t: speed - 1.0, "upside down": lambda speed, t: -speed,
    "ten times": lambda speed, t: 10.0 * speed, "noise": lambda speed, t: 3.0 * (-1.0) ** round(10.0 * t),
    "faster and faster": lambda speed, t: -0.2 * t}


SPEEDS = (0.0, 0.5, -1.0)


@pytest.mark.parametrize("lie, speed", thinned(
    [(lie, speed) for lie in LIES for speed in SPEEDS], keep=[(lie, SPEEDS[k % 3]) for k, lie in enumerate(LIES)]))
@pytest.mark.slow
def test_a_velocity_that_lies_does_not_lift_a_stopped_quadrotor(high, lie, speed):
    """More thrust than it hovers with is for a sink that shows in its height, too: it comes down all the same."""
    high.tell("mission/stop")
    robot = Sinking(high, 2.0, speed, says=LIES[lie])
    robot.fall(6.0)
    assert robot.highest < 2.4 and robot.height < 2.0
    robot.fall(24.0)
    assert high.mode == "stopped" and robot.height < 0.07


@pytest.mark.parametrize("speed, left", [(-1.0, 2.2), (-2.0, 1.75), (-5.0, 0.0)])
def test_a_stopped_quadrotor_that_falls_is_caught(high, speed, left):
    """From 3 m in two seconds, or from 6 m: 5 to 8 cm lower than where the velocity alone would be believed."""
    high.tell("mission/stop")
    robot = Sinking(high, 3.0 if left else 6.0, speed)
    robot.fall(2.0)
    assert robot.speed == pytest.approx(-0.3, abs=0.05) and robot.height > (left or 1.45)


def test_a_velocity_that_agrees_with_the_height_is_believed_to_the_last_bit():
    """Sinking as it should, noise included; nearly when braked from a climb; what is off by 0.5 m/s is corrected."""
    rng = np.random.default_rng(0)

    def believed(speeds: np.ndarray, off: float) -> np.ndarray:
        stop, height, out = Levelling("level", 0.0), 3.0, []
        for k, speed in enumerate(speeds.tolist()):
            height += 0.02 * speed
            values = {"height": np.array(height + 0.005 * rng.normal()), "base_vel_w": np.array([0, 0, speed - off])}
            stop = observed(stop, values, 0.02 * k, 0.02)
            out.append(sinking(stop, values, 0.3))
        return np.array(out)

    steady, braked = np.full(200, -0.3), np.maximum(2.0 - 0.02 * 1.47 * np.arange(200), -0.3)
    assert believed(steady, 0.0).tolist() == (-steady).tolist()
    told = believed(braked, 0.0)
    assert told[10:] == pytest.approx(-braked[10:], abs=0.07) and (told[:10] < -1.0).all()  # a climb: not all at once
    assert believed(steady, 0.5)[[0, -1]] == pytest.approx([0.4, 0.4], abs=0.05)
    assert believed(steady, -0.5)[-1] == pytest.approx(0.2, abs=0.05)


def test_without_a_velocity_that_can_be_believed_it_sinks_as_it_always_did(flying):
    """Frozen, it says for ever that it sinks: more thrust would lift a robot that does not."""
    flying.tell("mission/stop")
    falling = {**flying.state(), "base_vel_w": np.array([0.0, 0.0, -1.2]), "base_quat_w": np.array([1.0, 0, 0, 0])}
    begun = flying.own.monotonic()
    for _ in range(700):
        flying.publish(falling)
        flying.pause()
    shares = [command[0] / hovering() for at, command in flying.commands if at > begun]
    assert shares[0] == pytest.approx(1.05, abs=0.02) and shares[20] == pytest.approx(0.85, abs=1e-3)
    assert flying.mode == "stopped" and flying.own.monotonic() - begun < 7.1


def shares(world: World, since: float) -> np.ndarray:
    """Thrusts sent after ``since`` [s], of the nominal hover thrust."""
    return np.array([command[0] for at, command in world.commands if at > since]) / hovering()


def test_a_stopped_quadrotor_that_does_not_sink_is_let_down(flying):
    """It stands on a table, or hangs in a net: velocity and height are noise. A second, then 30 % of it each second."""
    flying.tell("mission/stop")
    begun = flying.own.monotonic()
    flying.fly(1.0, None)
    assert flying.mode == "stopping" and shares(flying, begun).min() > 0.8
    flying.fly(9.0, None)
    told = shares(flying, begun)
    run = told[told > 0.0]
    assert flying.mode == "stopped" and 2.5 < PERIOD * run.size < 5.0 and (told[run.size:] == 0.0).all()
    assert run[-1] < 0.25 and (np.diff(run) > -0.15).all()  # noise


def test_a_robot_whose_height_nobody_believes_is_let_down(flying):
    """Frozen: after max_s by 5 % of the hover thrust a second, and not all at once."""
    flying.tell("mission/stop")
    frozen, begun = flying.state(), flying.own.monotonic()
    frozen["base_quat_w"] = np.array([1.0, 0.0, 0.0, 0.0])
    for _ in range(1000):
        flying.publish({**frozen, "base_quat_w": from_rotation_vector(1e-3 * flying.rng.normal(size=3))})
        flying.guard.monitor.jumped.add("base_pos_w")
        flying.pause()
    told = shares(flying, begun)
    assert flying.mode == "stopping" and told[200] == pytest.approx(0.85, abs=1e-3)
    assert told[-1] == pytest.approx(0.85 * (1.0 - 0.05 * 4.0), abs=0.01)


def test_a_state_that_says_it_sinks_for_ever_is_not_believed_for_ever(lockstep, artifact):
    level = {**load_interface(ROBOT).safety["level"], "max_s": 1.0}
    world = ready(lockstep, artifact, jump=None, agree=None, geofence=None, level=level)
    world.begin()
    world.fly(0.3)
    world.tell("mission/stop")
    begun = world.own.monotonic()
    for k in range(2100 + round(OFF_S / 0.01)):
        state, height = world.state(), 1e3 - 0.003 * k
        position = np.array([0.0, 0.0, height]) + 1e-3 * world.rng.normal(size=3)
        world.publish({**state, "base_pos_w": position, "height": position[2]})
        world.pause()
        if k == 390:
            assert world.mode == "stopping" and shares(world, begun)[-20:].mean() > 0.9
    told = shares(world, begun)
    assert world.mode == "stopped" and told[told > 0.0][-1] < 0.3


def test_blind_it_sinks_with_a_share_of_what_it_hovered_with(lockstep, artifact):
    """A robot of 27 g climbs with 0.85 of the nominal hover thrust."""
    world = ready(lockstep, artifact)
    world.begin()
    light = np.array([0.85 * hovering(), 0.0, 0.0, 0.0])
    world.fly(1.5, light)
    begun = world.own.monotonic()
    world.fly(0.3, light, states=False)
    assert world.code == "stale" and shares(world, begun)[-1] == pytest.approx(0.85 * 0.85, abs=0.02)


@pytest.mark.parametrize("start, motion", [("at rest", 0.0), ("taking off", 0.8)])
def test_the_thrust_that_hovers_is_what_was_flown(start, motion):
    """Less what accelerated it, more where it was tilted, and nominal if nobody knows: thrust that is next to none, or
    far too much, while it moves evenly is not what carries it."""
    level, nominal = {"landed_m": 0.06}, hovering()

    def after(seconds: float, share: float, degrees: float = 0.0, floor: bool = False) -> float:
        quat, told = from_rotation_vector(np.array([np.deg2rad(degrees), 0.0, 0.0])), HoverEstimate()
        for k in range(round(seconds / PERIOD)):
            t = k * PERIOD
            more = motion * np.exp(-t)  # m/s^2: up to ``motion`` m/s
            height = 0.0 if floor else 1.0 + motion * (t + np.exp(-t) - 1.0)
            thrust = share * (1.0 + more / 9.81) / np.cos(np.deg2rad(degrees))
            values = {"height": np.array(height), "base_quat_w": quat}
            told = updated(told, level["landed_m"], thrust, values, t, PERIOD)
        return hover_thrust(ROBOT, told) / nominal

    assert after(0.5, 0.85) == after(3.0, 0.85, floor=True) == 1.0
    assert after(1.2, 0.85) == pytest.approx(0.85, abs=0.02)
    assert [after(3.0, 0.85), after(3.0, 0.85, 40.0)] == pytest.approx([0.85, 0.85], abs=0.01)
    assert after(3.0, 1.25) == pytest.approx(1.25, abs=0.015)
    assert after(3.0, 1.45) == 1.35
    assert after(3.0, 0.1) == after(3.0, 9.0) == 1.0  # it stands, or is held


LEVELLED = load_interface(ROBOT)


def trim(speed: float, said: float, seconds: float, late: bool = False) -> float:
    """The share that carries a robot which sinks with ``speed`` [m/s] and says ``said``, after so long."""
    profile = profile_on(ROBOT, LEVELLED, ROBOT.command("ctbr_cmd"), PERIOD)
    stop, now = Levelling("level", 0.0, lasted=6.0 if late else 0.0), 0.0
    while now < seconds:
        values = {"height": np.array(5.0 - speed * now), "base_vel_w": np.array([0.0, 0.0, -said])}
        stop = trimmed(observed(stop, values, now, PERIOD), profile, values, True)
        now += PERIOD
    return stop.carries


def test_what_carries_shrinks_where_nobody_sees_a_sink_and_grows_where_both_see_too_much():
    assert trim(0.0, 0.0, SHOWN_S - PERIOD) == 1.0  # the height does not show it yet
    assert trim(0.0, 0.0, SHOWN_S + 2.0) == pytest.approx(1.0 - 0.25 * 0.3 * 2.0, abs=0.01)
    assert trim(-0.08, -0.08, SHOWN_S + 2.0) == pytest.approx(1.0 - 0.25 * 0.38 * 2.0, abs=0.015)
    assert trim(-0.5, -0.5, 0.3) == 1.0 and trim(-0.5, -0.5, 0.6) == pytest.approx(1.0 - 0.3, abs=0.03)  # a climb
    assert trim(-0.5, -0.5, 5.9) == 0.5 > trim(-0.5, -0.5, 30.0) == 0.0  # after max_s it may be less
    assert trim(0.5, 0.5, SHOWN_S + 2.0) == pytest.approx(1.0 + 0.25 * 0.2 * 2.0, abs=0.02)
    assert trim(1.0, 1.0, 5.9) == 1.3
    assert trim(0.3, 3.0, 5.0) == trim(0.0, 3.0, 5.0) == 1.0  # a velocity that lies
    assert trim(1.0, -3.0, 3.0) == pytest.approx(1.0, abs=0.02)
    assert trim(0.0, 3.0, 3.0, late=True) == pytest.approx(0.85, abs=0.01)  # after max_s the height alone has the word


def test_what_carries_is_left_alone_while_a_climb_is_braked():
    """Or it would be far too little once it sinks."""
    stop, height, profile = Levelling("level", 0.0), 1.0, profile_on(ROBOT, LEVELLED, ROBOT.command("ctbr_cmd"), PERIOD)
    for k in range(60):
        speed = 2.0 - 1.47 * k * PERIOD
        height += speed * PERIOD
        values = {"height": np.array(height), "base_vel_w": np.array([0.0, 0.0, speed])}
        stop = trimmed(observed(stop, values, k * PERIOD, PERIOD), profile, values, True)
    assert stop.carries > 0.97


def test_a_gap_in_the_state_does_not_end_a_stop_that_is_under_way(high):
    """Blind for blind_s: that is counted from the last fresh state, not from the beginning."""
    high.tell("mission/stop")
    robot = Sinking(high, 3.0, 0.0)
    robot.fall(2.0)
    high.fly(0.3, None, states=False)  # stale for 0.2 s of it
    carried = high.guard.active_stop.under_way.carries * hovering()
    assert high.mode == "stopping" and high.commands[-1][1][0] == pytest.approx(0.85 * carried, rel=1e-3)
    robot.fall(30.0)
    assert high.mode == "stopped" and robot.height < 0.07


def heights(world: World, *parts: tuple[float, float]) -> list[np.ndarray]:
    """The guard's commands while the robot says each height [m] for so long [s]."""
    count = len(world.commands)
    for height, seconds in parts:
        world.height = height
        world.fly(seconds, None)
    return [command for _, command in world.commands[count:]]


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.3])
def test_one_low_height_does_not_cut_the_motors_in_the_air(lockstep, artifact, seconds):
    """A marker that is taken for another one for a moment: below the limit of a jump, no velocity that would tell, and
    the robot would fall."""
    world = ready(lockstep, artifact, jump={"base_pos_w": 1.0}, agree=None)
    world.begin()
    world.fly(0.5)
    world.tell("mission/stop")
    assert all(command[0] > 0.2 for command in heights(world, (1.0, 0.5), (LOW, seconds), (0.98, 0.5)))
    assert world.mode == "stopping"
    heights(world, (LOW, 2.0 + OFF_S))  # it has landed
    assert world.mode == "stopped" and world.commands[-1][1].tolist() == [0.0] * 4


@pytest.mark.parametrize("code", ["violated", "operator"])
def test_one_low_height_at_the_moment_of_a_stop_does_not_cut_the_motors(flying, code):
    """It may be what the stop is for: a formula with a floor is violated by it."""
    flying.height = 0.9
    flying.fly(0.1)
    count = len(flying.commands)
    flying.height = LOW
    flying.publish()
    if code == "operator":
        flying.tell("mission/stop")
    else:
        flying.tell("monitor/verdict", json.dumps({"flight": 1, "start_ns": flying.began, "verdict": "violated"}))
    flying.pause()
    flying.height = 0.9
    flying.fly(0.5, None)
    assert (flying.mode, flying.code) == ("stopping", code)
    assert all(command[0] > 0.2 for _, command in flying.commands[count:])


def test_a_height_that_leapt_does_not_cut_the_motors(lockstep, artifact):
    """Motion capture takes another robot, which stands on the ground, for this one."""
    world = ready(lockstep, artifact)
    world.height = 1.5
    world.fly(0.3, None)
    world.begin()
    world.fly(0.5)
    assert all(command[0] > 0.2 for command in heights(world, (LOW, 1.0)))  # longer, and by its velocity it stands
    assert (world.mode, world.code) == ("stopping", "jump")
