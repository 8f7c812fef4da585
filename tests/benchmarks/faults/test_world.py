"""The fault bench's short form: every fault once in fake time; and the oracle itself sees what it must see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Bounds, Motion, at_rest
from temporeal.robots.motion.smooth_trajectory import resting, smooth_trajectory, steps_to_rest
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.command_oracle import Oracle
from temporeal_benchmarks.deployment.matched_commands import MatchedCommands
from temporeal_benchmarks.faults import cases, trials, world
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.guard.command_stream import CommandStream
from temporeal_bridge.interface.interface import Interface, StateTopic
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import mark
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages

ROUND = 5  # another seed than the bench begins with
TRIED = 2  # kinds of robots that each fault is tried with, each with a seed of its own


@pytest.mark.parametrize("case, number", thinned(
    [(case, number) for case in cases.CASES for number in range(min(TRIED, len(cases.CASES[case].kinds)))],
    keep=lambda tried: tried[1] == 0))
@pytest.mark.slow
def test_every_fault_has_its_reaction_in_time_and_no_command_leaves_the_limits(
    case: str, number: int, tmp_path: Path
) -> None:
    kinds = cases.CASES[case].kinds
    kind = kinds[(len(case) + number * len(kinds) // TRIED) % len(kinds)]  # kinds that lie far apart in the list
    result = trials.trial(kind, case, ROUND + number, tmp_path)
    assert result.wrong == () and result.outside == 0
    assert (result.reaction is None) == (cases.CASES[case].code in (cases.GOES_ON, cases.ANY))
    assert result.commands > 3 or cases.CASES[case].before


PAUSED, PAUSES = ("franka", "franka-effort", "franka-velocity", "allegro_hand"), (0.03, 0.06, 0.11, 0.099)


@pytest.mark.parametrize("kind, pause_s", thinned(
    [(kind, pause_s) for kind in PAUSED for pause_s in PAUSES], keep=list(zip(PAUSED, PAUSES, strict=True))))
def test_a_guard_that_was_held_up_goes_on_for_newer_states_wait(kind: str, pause_s: float, tmp_path: Path) -> None:
    """For less than a silent controller stops it: what it knew is too old then, what has come meanwhile is not."""
    flying = world.World(world.KINDS[kind], ROUND, tmp_path)
    flying.plan["wild"] = False
    flying.begin()
    flying.run(1.0)
    assert flying.guard.mode == "active"
    flying.guarding.asleep = flying.bus.seconds + pause_s
    flying.run(0.5)
    assert (flying.guard.mode, flying.guard.flight.code) == ("active", "")
    flying.close()


def test_a_trial_follows_from_its_seed(tmp_path: Path) -> None:
    assert trials.trial("leap_hand", "unit jump", 3, tmp_path) == trials.trial("leap_hand", "unit jump", 3, tmp_path)


def test_a_required_time_that_is_missed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(cases.CASES["state stopped"], within=lambda w: 0.05)
    monkeypatch.setitem(cases.CASES, "state stopped", strict)
    wrong = trials.trial("crazyflie", "state stopped", 0, tmp_path).wrong
    assert len(wrong) == 1 and wrong[0].startswith("stopped after 0.") and "0.0500 s is allowed" in wrong[0]


def test_a_frozen_state_may_be_told_by_its_velocity_but_no_sooner_than_that_leads_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1 rad/s and more the place should have changed by 0.1 rad before it is frozen for long enough. A guard that
    says so of less has seen something else."""
    pair = ("franka-tool", "state frozen, fresh stamps", 1)
    assert trials.trial(*pair, tmp_path).wrong == ()
    monkeypatch.setattr("temporeal_bridge.guard.safety.profile.APART_RAD", 0.03)
    wrong = trials.trial(*pair, tmp_path).wrong
    assert len(wrong) == 1 and wrong[0].startswith("stopped by 'speeds'") and "'frozen' was due" in wrong[0]


REAL = CommandStream.catch_up
STOOD = "guard late by some periods"


def forgets(stream: CommandStream, now: float) -> None:
    """Goes on from the last command, as if no time had passed."""


def counts_twice(stream: CommandStream, now: float) -> None:
    """Asked again before it has sent anything, it goes on by the same pause once more."""
    stream.stands_at = stream.sent_at
    REAL(stream, now)


@pytest.mark.parametrize("kind, seed, catch_up", [
    ("franka", 1, forgets), ("franka-forward", 2, forgets), ("franka", 18, counts_twice)])
def test_a_guard_that_leaps_after_it_stood_still_is_caught(
    kind: str, seed: int, catch_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trajectories and single commands; the real guard does not in the same missions."""
    assert trials.trial(kind, STOOD, seed, tmp_path).wrong == ()
    monkeypatch.setattr(CommandStream, "catch_up", catch_up)
    wrong = trials.trial(kind, STOOD, seed, tmp_path).wrong
    assert wrong and "acceleration of component" in wrong[0]


@pytest.mark.parametrize("case, seed", [("world pushes a finger", 2), ("world pushes a finger that was stopped", 2)])
def test_a_guard_that_asks_a_servo_for_more_than_it_may_is_caught(
    case: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trials.trial("allegro_hand", case, seed, tmp_path).wrong == ()
    monkeypatch.setattr(shield, "spare", lambda limits, before, motion, window: (motion, ""))
    wrong = trials.trial("allegro_hand", case, seed, tmp_path).wrong
    assert wrong and "way beyond the servo's limit of component 2" in wrong[0]


# the oracle

ARRAY = "std_msgs/msg/Float64MultiArray"
FRANKA = load_robot("franka")
HOME = np.array(FRANKA.home["joint_pos"])


def read(
    *commands: np.ndarray, period: float = 0.02, interface: str = "forward_position", apart: float = 1.0
) -> Oracle:
    """An oracle that has read these commands, ``apart`` periods from each other."""
    oracle = Oracle(FRANKA, load_interface(FRANKA, interface), "joint_pos_cmd", period)
    oracle.set_mode("active")
    for k, command in enumerate(commands):
        codec = COMMAND_CODECS[oracle.topic.codec]
        message = (codec.encode(command, oracle.topic.options) if interface == "forward_position" else
                   codec.encode_smooth_trajectory(resting(command, 0.04), oracle.topic.options))
        oracle.read(k * period * apart, messages.encode(oracle.topic.type, message))
    return oracle


def test_the_oracle_passes_what_rests_and_what_moves_slowly() -> None:
    assert read(HOME, HOME, HOME).wrong == []
    steps = [HOME + 0.5 * 6.0 * (0.02 * k) ** 2 for k in range(10)]  # at 6 rad/s^2 all the time
    assert read(*steps).wrong == []


@pytest.mark.parametrize("leap, told", [
    (0.02 * 1.6, "speed of component 0 is 1.6, 1.572"), (0.02 * 0.2, "acceleration of component 0 is 10, 6")])
def test_the_oracle_sees_a_leap(leap: float, told: str) -> None:
    wrong = read(HOME, HOME, HOME, HOME + leap * np.eye(7)[0]).wrong
    assert any(told in text for text in wrong), wrong


def test_the_oracle_sees_a_jerk() -> None:
    """From 5 rad/s^2 to -5 rad/s^2 in a millisecond: 10000 rad/s^3, 5000 are allowed."""
    dt = 0.001
    speed = np.cumsum([0.0, 0.0, 5.0, 5.0, 5.0, -5.0]) * dt
    wrong = read(*(HOME + x * np.eye(7)[0] for x in np.cumsum(speed) * dt), period=dt).wrong
    assert len(wrong) == 1 and "jerk of component 0 is 1" in wrong[0]


def test_the_oracle_sees_a_place_outside_and_commands_in_a_heap() -> None:
    limits = Oracle(FRANKA, load_interface(FRANKA), "joint_pos_cmd", 0.04)
    outside = limits.high + np.array([1e-3, 0, 0, 0, 0, 0, 0])
    assert any("command place of component 0" in text for text in read(outside).wrong)
    assert any("two commands within" in text for text in read(HOME, HOME, apart=0.3).wrong)
    assert any("point place of component 0" in text for text in read(outside, interface="franka_ros2").wrong)


def test_the_oracle_sees_commands_when_there_is_no_mission_and_what_is_no_command() -> None:
    oracle = Oracle(FRANKA, load_interface(FRANKA), "joint_pos_cmd", 0.04)
    oracle.set_mode("ready")
    oracle.read(0.0, b"nonsense")
    oracle.read(0.0, messages.encode(oracle.topic.type, COMMAND_CODECS[oracle.topic.codec].encode(
        HOME, oracle.topic.options)))
    assert [text.split(":")[0] for text in oracle.wrong] == ["not a command", "a command in mode 'ready'"]


@pytest.mark.parametrize(("grounded", "thrust", "wrong"), [
    (True, 0.0, []), (False, 0.0, ["a command in mode 'ready'"]), (True, 0.1, ["a command in mode 'ready'"])])
def test_a_zero_on_the_ground_unlocks_and_anything_else_is_a_command(
    grounded: bool, thrust: float, wrong: list[str]
) -> None:
    robot = load_robot("crazyflie")
    oracle = Oracle(robot, load_interface(robot), "ctbr_cmd", 0.02)
    oracle.grounded = grounded
    oracle.set_mode("ready")
    command = COMMAND_CODECS[oracle.topic.codec].encode(np.array([thrust, 0, 0, 0]), oracle.topic.options)
    oracle.read(0.0, messages.encode(oracle.topic.type, command))
    assert oracle.wrong == wrong


def test_in_the_instant_of_a_mode_without_commands_one_may_still_come_and_no_other() -> None:
    topic = load_interface(FRANKA, "forward_position").command("joint_pos_cmd")
    data = messages.encode(topic.type, COMMAND_CODECS[topic.codec].encode(HOME, topic.options))
    for again, count in ((1.0, 1), (1.001, 1), (None, 0)):
        oracle = Oracle(FRANKA, load_interface(FRANKA, "forward_position"), "joint_pos_cmd", 0.04)
        oracle.set_mode("active")
        oracle.set_mode("stopped", 1.0)
        for at in (1.0, again):
            if at is not None:
                oracle.read(at, data)
        assert sum("in mode 'stopped'" in text for text in oracle.wrong) == count


FLIER = load_robot("crazyflie")
HOVER = np.array([0.31, 0.0, 0.0, 0.0])


def flier(timed: bool) -> tuple[Oracle, bytes]:
    """An oracle of a Crazyflie at 50 Hz, whose limits are of place only, and a command."""
    oracle = Oracle(FLIER, load_interface(FLIER, "odometry"), "ctbr_cmd", 0.02, timed)
    return oracle, messages.encode(oracle.topic.type, COMMAND_CODECS[oracle.topic.codec].encode(
        HOVER, oracle.topic.options))


@pytest.mark.parametrize("timed", [True, False])
def test_a_heap_of_commands_is_counted_for_a_robot_without_limits_of_motion_too(timed: bool) -> None:
    """400 at 10 kHz in one mission, whoever tells the times; one a period are none."""
    for apart, least in ((1e-4, 380), (0.02, 0)):
        oracle, data = flier(timed)
        oracle.set_mode("active", 1.0)
        for k in range(400):
            oracle.read(1.0 + k * apart, data)
        oracle.settle()
        assert oracle.outside >= least and bool(oracle.outside) == bool(least)


@pytest.mark.parametrize("said, early, wrong", [
    (("active", "stopping"), 1, 0), (("active", "stopping"), 2, 1), (("active",), 1, 1),
    (("active", "stopping", "stopping"), 2, 0)])
@pytest.mark.parametrize("before", [True, False], ids=["mode first", "command first"])
def test_the_first_command_of_each_stop_may_follow_at_once_and_no_other(
    said: tuple[str, ...], early: int, wrong: int, before: bool
) -> None:
    """Whichever topic is taken first, by the times that the guard tells."""
    oracle, data = flier(timed=False)
    matched = MatchedCommands(oracle)
    oracle.set_mode("active", 0.0)
    commands = [0.0, 0.02, 0.04, *(0.041 + 0.001 * k for k in range(early)), 0.041 + 0.001 * early + 0.02]
    for mode in said[1:] if before else ():
        oracle.set_mode(mode, 0.05)
    for k, made in enumerate(commands):
        matched.command(0.05 + 1e-6 * k, data)
        matched.record(messages.encode(ARRAY, messages.array64(
            CommandRecord(1, k, 0.0, made, made, HOVER, HOVER, [3_000_000_000]).row())))
    for mode in () if before else said[1:]:
        oracle.set_mode(mode, 0.06)
    matched.end()
    assert oracle.outside == wrong and matched.lost == 0


@pytest.mark.parametrize("at, wrong", [(0.95, 0), (0.85, 1), (1.5, 0), (2.08, 0), (2.15, 1)])
def test_who_listens_beside_sees_a_command_outside_a_mission(at: float, wrong: int) -> None:
    """In a mission from 1.0 to 2.0, as its modes were taken: they are on another topic than commands."""
    oracle, data = flier(timed=False)
    oracle.set_mode("", 0.0)
    said = [(1.0, "active"), (1.9, "stopping"), (2.0, "stopped"), (2.05, "waiting")]
    for moment, mode in sorted([*said, (at, "")]):
        if mode:
            oracle.set_mode(mode, moment)
        else:
            oracle.read(moment, data)
    oracle.settle()
    assert oracle.outside == wrong and all("a command in mode" in text for text in oracle.wrong)


def servoed() -> tuple[Oracle, Interface]:
    """An oracle, every 20 ms, of servos of 1000 N m/rad and 50 N m, and their interface."""
    found = load_interface(FRANKA, "forward_position")
    own = {**found.safety["commands"]["joint_pos_cmd"], "effort": {
        "position": "joint_pos", "velocity": "joint_vel", "kp": 1000.0, "kd": 2.0, "limit": 50.0}}
    interface = replace(found, safety={**found.safety, "commands": {"joint_pos_cmd": own}})
    oracle = Oracle(FRANKA, interface, "joint_pos_cmd", 0.02)
    oracle.set_mode("active")
    return oracle, interface


def said(topic: StateTopic, position: np.ndarray, at: float) -> bytes:
    """A state at rest."""
    signals = {"joint_pos": position, "joint_vel": np.zeros(7), "joint_torque": np.zeros(7)}
    state = STATE_CODECS[topic.codec].encode(signals, round(1e9 * (at + 0.02)), ("w", "r"), topic.options)
    return messages.encode(topic.type, state)


def read_with_servos(positions: list[np.ndarray], *commands: np.ndarray) -> Oracle:
    """An oracle that has read a state, every 20 ms, before each of the commands."""
    (oracle, interface), codec = servoed(), COMMAND_CODECS["forward_array"]
    for k, (position, command) in enumerate(zip(positions, commands, strict=True)):
        assert oracle.servos is not None
        oracle.servos.read(interface.states[0], 0.02 * k, said(interface.states[0], position, 0.02 * k))
        oracle.read(0.02 * k, messages.encode(oracle.topic.type, codec.encode(command, oracle.topic.options)))
    return oracle


@pytest.mark.parametrize("steps, wrong, judged", [
    ([(0, 0.0), (1, 0.05), (2, 0.05)], 0, 2), ([(0, 0.0), (1, 0.0), (1, 0.0), (2, 0.05)], 2, 3),
    ([(0, 0.0), *[(1, 0.0)] * 8], 4, 4)])
def test_efforts_of_real_processes_are_judged_by_the_state_that_the_guard_knew(
    steps: list[tuple[int, float]], wrong: int, judged: int
) -> None:
    """The arm is pushed away by 0.1 rad from the second state on; its commands (state that the guard knew, rad) must go
    along by half of that. This process has seen all states before. Of the first one, and of one that may be stale by
    then, nothing is said."""
    oracle, interface = servoed()
    assert oracle.servos is not None
    topic, matched, first = interface.states[0], MatchedCommands(oracle), np.eye(7)[0]
    states = [said(topic, HOME - (0.1 if k else 0.0) * first, 0.01 * k) for k in range(3)]
    for k, data in enumerate(states):
        oracle.servos.read(topic, 0.001 * k, data)
    for k, (knew, along) in enumerate(steps):
        command = HOME - along * first
        message = COMMAND_CODECS["forward_array"].encode(command, oracle.topic.options)
        matched.command(0.02 * k, messages.encode(oracle.topic.type, message))
        marks = [mark(states[knew]), *[0] * (len(interface.states) - 1)]
        told = CommandRecord(1, k, 0.0, 0.02 * k, 0.02 * k, command, command, marks)
        matched.record(messages.encode(ARRAY, messages.array64(told.row())))
    assert oracle.efforts == judged
    assert sum("way beyond the servo's limit of component 0" in text for text in oracle.wrong) == wrong


@pytest.mark.parametrize("mode, efforts, wrong", [
    ("stopping", (30.0, 15.0, 0.0), 0), ("stopping", (15.0, 30.0), 1), ("stopping", (15.0, -60.0), 1),
    ("active", (30.0, 15.0), 1)])
def test_a_stop_may_take_efforts_back_whatever_a_state_says_that_nobody_believes(
    mode: str, efforts: tuple[float, ...], wrong: int
) -> None:
    """The joint is said to be so fast that nothing but braking was allowed."""
    interface = load_interface(FRANKA, "forward_effort")
    oracle, topic = Oracle(FRANKA, interface, "joint_effort_cmd", 0.02), interface.states[0]
    assert oracle.servos is not None
    oracle.set_mode(mode)
    for k, effort in enumerate(efforts):
        if k == 1:  # from here on
            signals = {"joint_pos": HOME, "joint_vel": 5.0 * np.eye(7)[0], "joint_torque": np.zeros(7)}
            state = STATE_CODECS[topic.codec].encode(signals, 1, ("world", "arm"), topic.options)
            oracle.servos.read(topic, 0.02 * k, messages.encode(topic.type, state))
        message = COMMAND_CODECS["forward_array"].encode(effort * np.eye(7)[0], oracle.topic.options)
        oracle.read(0.02 * k, messages.encode(oracle.topic.type, message))
    assert sum("way beyond the servo's limit" in text for text in oracle.wrong) == wrong


def test_the_oracle_sees_a_servo_that_is_asked_for_too_much() -> None:
    """By the newest state: here it is known when each command was made."""
    away = HOME - 0.1 * np.eye(7)[0]
    assert read_with_servos([HOME] * 4, *[HOME] * 4).wrong == []
    wrong = read_with_servos([HOME, HOME, away, away], *[HOME] * 4).wrong
    assert len(wrong) == 2 and all("way beyond the servo's limit of component 0 is 0.05" in text for text in wrong)


def test_the_oracle_excuses_a_command_that_was_pushed_and_none_after_it() -> None:
    """At the end of what the servo may give: from there on it is judged as after the first."""
    first = np.eye(7)[0]
    away, there = HOME - 0.1 * first, HOME - 0.05 * first
    calm = [HOME, HOME, HOME, there, there, there]
    seen = read_with_servos([HOME, HOME, HOME, *[away] * 3], *calm)
    assert seen.wrong == [] and seen.yielded == 3
    assert any("speed of component 0" in text for text in read(*calm).wrong)
    back = [there - 0.01 * first, there - 0.0002 * first, there + 0.02 * first]
    wrong = read_with_servos([HOME, HOME, HOME, away, away, away, HOME], *calm[:4], *back).wrong
    assert any("acceleration of component 0" in text for text in wrong)


PERIOD = 0.04
BOUNDS = Bounds(HOME - 1.0, HOME + 1.0, PERIOD, speed=1.572, acceleration=6.0, jerk=5000.0)


def moved(motion: Motion, command: np.ndarray) -> Motion:
    """The motion once ``command`` is sent, a period after the last one."""
    speed = (command - motion.command) / PERIOD
    return Motion.of(command, speed, (speed - motion.speed) / PERIOD)


def accelerated(count: int, start: np.ndarray = HOME) -> list[Motion]:
    """Rest, and commands at 6 rad/s^2 after it."""
    out = [at_rest(start)] * 3
    for k in range(1, count + 1):
        out.append(moved(out[-1], out[-1].command + 6.0 * k * PERIOD**2))
    return out


def after_a_pause(interface: str, before: list[Motion], pause: float, after: list[Motion]) -> list[str]:
    """What the oracle says of these motions, with so many periods between the two parts."""
    oracle = Oracle(FRANKA, load_interface(FRANKA, interface), "joint_pos_cmd", PERIOD)
    oracle.set_mode("active")
    codec, at = COMMAND_CODECS[oracle.topic.codec], 0.0
    for motion in before + after:
        at += PERIOD * (pause if motion is after[0] else 1.0)
        message = (codec.encode(motion.command, oracle.topic.options) if codec.encode_smooth_trajectory is None else
                   codec.encode_smooth_trajectory(smooth_trajectory(BOUNDS, motion), oracle.topic.options))
        oracle.read(at, messages.encode(oracle.topic.type, message))
    return oracle.wrong


@pytest.mark.parametrize("pause, missed", [(1.95, 1), (2.85, 1), (3.4, 2), (5.0, 4), (40.0, 39)])
def test_after_a_pause_the_oracle_looks_for_a_trajectory_where_it_led_meanwhile(pause: float, missed: int) -> None:
    before = accelerated(4)
    way = steps_to_rest(BOUNDS, before[-1])
    way += [at_rest(way[-1].command)] * (missed + 4)
    assert after_a_pause("franka_ros2", before, pause, way[missed + 1 : missed + 4]) == []
    assert after_a_pause("franka_ros2", before, pause, way[:3])  # as if nothing had been missed: back
    far = [moved(way[missed], way[missed].command + PERIOD * (way[missed].speed + 4.8))]
    assert any("acceleration of component 0" in text for text in after_a_pause("franka_ros2", before, pause, far))


def test_after_a_pause_the_oracle_takes_single_commands_from_rest() -> None:
    before = accelerated(4)
    here = before[-1].command
    assert after_a_pause("forward_position", before, 3.4, accelerated(3, here)[3:]) == []
    on = [moved(before[-1], here + PERIOD * before[-1].speed)]
    wrong = after_a_pause("forward_position", before, 3.4, on)
    assert len(wrong) == 1 and "acceleration of component 0 is 24" in wrong[0]


def test_a_pause_after_a_trajectory_with_points_left_out_cannot_be_judged() -> None:
    """At 500 Hz the way to rest has more points than a message carries: such an oracle is told no times."""
    fine = Bounds(HOME - 1.0, HOME + 1.0, 0.002, speed=1.572, acceleration=6.0, jerk=5000.0)
    fast = Motion.of(HOME, np.full(7, 0.5), np.zeros(7))
    oracle = Oracle(FRANKA, load_interface(FRANKA), "joint_pos_cmd", 0.002)
    oracle.set_mode("active")
    for at in (0.0, 0.01):
        codec = COMMAND_CODECS[oracle.topic.codec]
        message = codec.encode_smooth_trajectory(smooth_trajectory(fine, fast), oracle.topic.options)
        oracle.read(at, messages.encode(oracle.topic.type, message))
    assert oracle.wrong == ["a trajectory left points out: where it led in a pause is unknown"]


@pytest.mark.parametrize("mode, last, wrong", [
    ("holding", 0.0, 0), ("holding", 1.0, 1), ("active", 0.0, 1)])
def test_the_last_word_to_a_robot_that_holds_efforts_is_zero_at_once(mode: str, last: float, wrong: int) -> None:
    """From 30 N m, a thousandth of a second after them."""
    oracle = Oracle(FRANKA, load_interface(FRANKA, "forward_effort"), "joint_effort_cmd", 0.02)
    oracle.set_mode("active")
    for at, effort in ((0.0, 10.0), (0.02, 20.0), (0.04, 30.0)):
        message = COMMAND_CODECS["forward_array"].encode(effort * np.eye(7)[0], oracle.topic.options)
        oracle.read(at, messages.encode(oracle.topic.type, message))
    oracle.mode = mode
    message = COMMAND_CODECS["forward_array"].encode(last * np.eye(7)[0], oracle.topic.options)
    oracle.read(0.041, messages.encode(oracle.topic.type, message))
    assert bool(oracle.outside) == bool(wrong)
