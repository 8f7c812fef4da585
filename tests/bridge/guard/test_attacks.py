"""The guard against what would get past it: bursts, pauses, garbage, stops at bad moments, failures of its own.

World (a quadrotor) and Arm are those of the guard's other tests.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.bridge.guard import test_arm as arms
from tests.bridge.guard.guard_world import come_down

from temporeal.robots.artifact.manifest import identity
from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.motion.rate_limiter import Bounds
from temporeal.robots.spec import load_robot
from temporeal_bridge import mission
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.command_stream import EARLY, PACE
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.config_checks import check_carried
from temporeal_bridge.guard.safety.fallback_actions import FLIES_S
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.safety.section import profile as safety_profile
from temporeal_bridge.guard.stop_actions.ramp_and_damp import damping
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.sockets import MOST, SocketController, SocketGuard
from temporeal_bridge.process import node
from temporeal_bridge.process.files import plain

HOME, PERIOD, swinging = arms.HOME, arms.PERIOD, arms.swinging


@pytest.fixture
def moving(lockstep):
    made = arms.Arm(lockstep)
    made.begin()
    made.run(3.0, swinging)
    assert made.mode == "active"
    return made


# commands that come faster than the limits are meant for


def test_a_burst_is_one_command(moving):
    """Each step keeps the limits for a period: ten of them at once would move ten times as fast."""
    count = len(moving.sent)
    moving.publish()
    for _ in range(10):
        moving.propose(HOME + 0.5)
    moving.lockstep.run(0.01)
    moving.own.wait(0.0)
    assert len(moving.sent) == count + 1 and moving.guard.flight.dropped == 9


def test_a_controller_that_is_too_fast_is_slowed_down(moving):
    """Twice the rate, for two seconds: no more commands than periods, but for the 5 % that clocks may be off."""
    count = len(moving.sent)
    for k in range(200):
        moving.publish()
        if k % 2 == 0:
            moving.propose(swinging(75 + k // 4))
        moving.lockstep.run(0.01)
        moving.own.wait(0.0)
    assert moving.mode == "active" and 50 <= len(moving.sent) - count <= 54


@pytest.mark.parametrize("early, count", [(0.0001, 0), (-0.0001, 1)])
def test_what_is_too_early_follows_from_what_the_guard_tells(moving, monkeypatch, early, count):
    """When a command was begun, however long it took: else a replay, which takes no time, would decide otherwise."""
    bus, limited = moving.lockstep.bus, moving.guard.forwarder.limited

    def slow(asked, flight, now):
        bus.advance(0.0003)
        return limited(asked, flight, now)

    monkeypatch.setattr(moving.guard.forwarder, "limited", slow)
    moving.publish()
    moving.propose(swinging(75))
    made = bus.seconds
    moving.guard.step()
    moving.own.wait(0.0)
    before, guard = len(moving.sent), moving.guard
    assert guard.stream.sent_at - made == pytest.approx(0.0003)
    bus.advance(made + (PACE - EARLY) * guard.config.period - early - bus.seconds)
    moving.propose(swinging(76))
    guard.step()
    moving.own.wait(0.0)
    assert len(moving.sent) - before == count


def test_a_command_of_another_start_of_the_same_mission_is_dropped(flying):
    count = len(flying.commands)
    flying.publish()
    flying.propose(np.array([0.5, 1.0, 1.0, 1.0]), stamp_ns=flying.began - 1)
    flying.pause()
    assert len(flying.commands) == count and flying.guard.flight.dropped == 1


def test_one_who_sends_without_end_does_not_keep_the_guard_from_its_checks(tmp_path):
    guard = SocketGuard(tmp_path / "own" / "guard.sock")
    controller = SocketController(tmp_path / "own" / "guard.sock")
    received = guard.socket.recvfrom_into

    class Flood:
        def recvfrom_into(self, buffer):
            controller.send(Proposal(datagrams.HELLO))
            return received(buffer)

    real, guard.socket = guard.socket, Flood()
    assert len(guard.receive()) == MOST
    guard.socket = real
    controller.close()
    guard.close()


def test_a_text_of_any_length_gets_through():
    proposal = datagrams.pack(Proposal(datagrams.FAIL, text="é" * 10**6))
    assert len(datagrams.unpack(proposal).text) <= datagrams.LONGEST_TEXT
    answer = datagrams.pack_answer(datagrams.Answer("stopped", reason="x" * 10**6))
    assert len(datagrams.unpack_answer(answer).reason) == 4096


# a guard that stood still


def hurrying(step: int) -> np.ndarray:
    """From where the swing is after 3 s on at 1 rad/s: a stop from there takes some way."""
    return swinging(75) + 0.04 * (step - 75)


def test_after_a_pause_it_goes_on_where_the_robot_went(moving):
    """The trajectory that it had sent led the arm to rest: the stop begins there, not where the guard left off."""
    moving.run(0.4, hurrying)
    assert np.abs(moving.guard.stream.motion.speed).max() > 0.9
    pair = moving.lockstep.pairs.pop()
    moving.run(1.0, swinging)
    rest = np.array(moving.messages[-1].points[-1].positions)
    moving.lockstep.pairs.append(pair)
    count = len(moving.sent)
    moving.run(0.5)
    assert moving.mode == "holding" and moving.guard.flight.code == "guard"
    assert "stood still for 1.0" in moving.guard.flight.reason
    assert np.abs(np.array(moving.sent[count:]) - rest).max() < 1e-3


def test_a_pause_within_a_step_is_the_guards_own_too(moving):
    """What it finds then, an old state and a silent controller, is of its not having listened."""
    transport = moving.guard.transport
    wait, pauses = transport.wait, [0.5]

    def paused(seconds: float) -> int:
        if pauses:
            moving.lockstep.bus.advance(pauses.pop())
        return wait(seconds)

    transport.wait = paused
    moving.guard.step()
    assert moving.guard.flight.code == "guard" and "stood still for 0.5" in moving.guard.flight.reason


def test_after_a_pause_a_forward_controller_is_found_where_it_was_left(lockstep):
    arm = arms.Arm(lockstep, "forward_position")
    arm.begin()
    arm.run(3.0, swinging)
    arm.run(0.4, hurrying)
    pair = lockstep.pairs.pop()
    arm.run(1.0, swinging)
    lockstep.pairs.append(pair)
    count = len(arm.sent)
    arm.run(0.5)
    assert arm.mode == "holding" and np.array(arm.sent[count:]) == pytest.approx(
        np.tile(arm.sent[count - 1], (len(arm.sent) - count, 1)))


# garbage


def test_a_verdict_about_an_earlier_mission_of_the_same_number_stops_nothing(flying):
    flight = flying.guard.flight
    said = {"flight": flight.number, "start_ns": flight.start_ns - 1, "verdict": "violated"}
    flying.tell("monitor/verdict", json.dumps(said))
    flying.fly(0.1)
    assert flying.mode == "active"
    flying.tell("monitor/verdict", json.dumps({**said, "start_ns": flight.start_ns}))
    flying.fly(0.1)
    assert flying.mode == "stopping" and flying.guard.flight.code == "violated"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"verdict": []}', '"violated"', "[" * 200_000])
def test_a_verdict_that_is_none_changes_nothing(flying, text):
    flying.tell("monitor/verdict", text)
    flying.fly(0.1)
    assert flying.mode == "active"


def test_bytes_that_are_no_message_change_nothing_but_at_the_stop_button(flying):
    flying.own.publish(flying.states, b"\x00\x01")
    flying.own.publish(flying.topics["monitor/verdict"], b"\x00\x01")
    flying.fly(0.1)
    assert flying.mode == "active" and flying.guard.unreadable == 1 and flying.guard.state.rejected == 1
    flying.own.publish(flying.topics["estop"], b"")
    flying.fly(0.02)
    assert flying.mode == "stopping" and flying.code == "operator"


def test_reports_that_cannot_be_published_do_not_stop_a_stop(flying):
    bus = flying.guard.transport
    publish = bus.publish

    def broken(endpoint: Any, data: bytes) -> None:
        if endpoint not in flying.guard.output.endpoints.values():
            raise RuntimeError("no room")
        publish(endpoint, data)

    bus.publish = broken
    count = len(flying.commands)
    flying.tell("mission/stop")
    flying.fly(0.1)
    assert flying.guard.mode == "stopping" and len(flying.commands) > count + 3
    assert flying.guard.output.announcements.unpublished > 3


# stops at bad moments


def test_a_stop_before_a_start_that_is_on_its_way_is_heard(world):
    """The operator presses while the controller still waits for its first state: the mission must not begin."""
    world.tell("mission/stop")
    world.pause()
    world.begin()
    world.fly(0.1)
    assert world.commands == [] and world.mode == "stopped"
    world.fly(0.5, None)
    world.tell("mission/reset")
    world.hello()
    world.fly(0.1, None)
    assert world.mode == "ready"
    world.begin(2)
    world.fly(0.1)
    assert world.modes[-1] == "active 2"


def test_a_stop_while_a_mission_ends_is_latched(flying):
    flying.controller.send(Proposal(datagrams.END, 1, text="stop"))
    flying.fly(0.04, None)
    assert flying.mode == "stopping" and flying.guard.flight.reason == ""
    flying.tell("mission/stop")
    come_down(flying)
    assert flying.mode == "stopped" and flying.guard.flight.reason == "stopped by the operator"


def test_beginning_twice_is_refused_and_does_not_look_like_a_start(flying):
    flying.controller.receive()
    flying.begin(2)
    flying.pause()
    answers = [a for a in flying.controller.receive() if a.flight == 2]
    assert [a.mode for a in answers] == ["refused"] and flying.modes[-1] == "active 1"


def test_neither_start_nor_reset_ends_a_stop_action(flying):
    flying.tell("mission/stop")
    flying.fly(0.04, None)
    for _ in range(5):
        flying.tell("mission/reset")
        flying.begin(2)
        flying.fly(0.02)
    assert flying.mode == "stopping" and flying.guard.flight.number == 1
    assert "not reset: the robot is still stopping: say reset when it has stopped" in [
        event["reason"] for event in flying.events]


def test_who_has_not_said_what_he_flies_begins_nothing(flying):
    flying.tell("mission/stop")
    come_down(flying)
    flying.tell("mission/reset")
    flying.fly(0.1, None)
    flying.guard.checks.controller.greeted, flying.guard.modes.mode = flying.own.monotonic(), "ready"
    flying.begin(2)
    flying.pause()
    assert "has not said which artifact" in flying.events[-1]["reason"]


def test_after_a_mission_another_controller_can_take_the_line(flying, monkeypatch):
    released: list[bool] = []
    monkeypatch.setattr(flying.guard.link, "release", lambda: released.append(True))
    flying.controller.send(Proposal(datagrams.END, 1, text="silence"))
    flying.fly(1.0, None)
    assert flying.mode == "finished" and not released
    flying.fly(2.0, None)
    assert flying.mode == "finished" and released


def test_a_guard_that_was_restarted_tells_who_flies_on_that_it_is_over(world):
    world.flight, world.began = 7, world.own.now()
    world.controller.receive()
    world.fly(0.04)
    answers = [a for a in world.controller.receive() if (a.flight, a.stamp_ns) == (7, world.began)]
    assert world.commands == [] and answers[0].mode == "refused" and "does not fly this mission" in answers[0].reason


def test_a_robot_that_moves_is_not_started(lockstep):
    """A guard before this one may have left it in motion: what begins at rest would be a jolt."""
    arm = arms.Arm(lockstep)
    arm.begin()
    arm.position = arm.position + 0.05
    arm.run(0.01)
    arm.run(0.04, HOME + 0.05)
    assert arm.sent == [] and arm.guard.flight.code == "start" and "still moving" in arm.guard.flight.reason


def test_a_guard_is_ready_when_it_can_say_that_the_robot_rests(lockstep):
    """A mission that was started a few milliseconds after the first state was refused: nobody knew yet."""
    arm = arms.Arm(lockstep)
    arm.controller.send(Proposal(datagrams.HELLO, text=identity(arms.MANIFEST)))
    arm.run(0.04)
    assert arm.mode == "waiting"
    arm.run(0.03)
    assert arm.mode == "ready"
    arm.controller.send(Proposal(datagrams.BEGIN, 1, -1, 5))
    arm.run(0.2, HOME)
    assert arm.mode == "active" and arm.sent


# what is watched


def test_a_jump_across_a_gap_is_a_jump():
    profile = replace(quadrotor_profile(), stale_after_s=1.0)
    for gap, far, jumped in ((0.01, 0.19, False), (0.01, 0.21, True), (0.15, 0.29, False), (0.15, 0.31, True)):
        monitor = StateMonitor(profile, [100.0])
        monitor.take(0, 1, {"base_pos_w": np.zeros(3)}, 0.0, 1)
        monitor.take(0, 2, {"base_pos_w": np.array([far, 0.0, 0.0])}, gap, 2)
        assert (monitor.jump[0] == "jump") == jumped, (gap, far)


def test_a_step_is_flown_once(flying):
    count, dropped = len(flying.commands), flying.guard.flight.dropped
    flying.propose(step=flying.step)
    flying.fly(0.02, None)
    assert len(flying.commands) == count and flying.guard.flight.dropped == dropped + 1 and flying.mode == "active"


def test_of_several_topics_the_worst_stamp_counts_to_either_side():
    for late_s, way in ((-2.0, "after"), (2.0, "before")):
        for order in ((0.01, late_s), (late_s, 0.01)):
            monitor = StateMonitor(quadrotor_profile(), [100.0, 100.0])
            for topic, late in enumerate(order):
                monitor.take(topic, 10**18 - round(1e9 * late), {}, 0.0, 10**18)
            code, told = monitor.freshness.stamps()
            assert code == "stamps" and f"was stamped 2.000 s {way} it arrived" in told


def test_frozen_is_what_has_no_signal_left_that_changes():
    rule = quadrotor_profile().frozen
    assert rule is not None and rule.signals == ("base_pos_w", "base_quat_w")
    for alive, frozen in ((rule.signals, False), (rule.signals[:1], False), (rule.signals[1:], False), ((), True)):
        monitor = StateMonitor(quadrotor_profile(), [100.0])
        for k in range(40):
            place, attitude = (np.full(3, 0.001 * k * (name in alive)) for name in rule.signals)
            monitor.take(0, k, {"base_pos_w": place, "base_quat_w": from_rotation_vector(attitude)}, 0.01 * k, k)
        assert (monitor.frozen(0.39)[0] == "frozen") == frozen, alive


def test_a_state_is_as_old_as_its_oldest_part():
    monitor = StateMonitor(quadrotor_profile(), [100.0, 50.0, 0.0])
    for topic, at in ((2, 0.1), (0, 1.0)):
        monitor.take(topic, 1, {}, at, 1)
    assert monitor.freshness.age(1.0) == np.inf  # a part is missing
    monitor.take(1, 1, {}, 0.8, 1)
    assert monitor.freshness.age(1.0) == pytest.approx(0.2)  # topic 2 never ages
    assert monitor.freshness.stale(1.0)[0] == "stale"


def test_what_was_before_a_mission_is_forgiven(world):
    """Somebody carried the robot to its start, and there it stood: a jump, and values that did not change."""
    still = world.state()
    for k in range(60):
        place = still["base_pos_w"] + (1.5 if k == 0 else 0.0)
        world.publish({**still, "base_pos_w": place, "height": place[2]})
        world.pause()
    world.begin()
    world.pause()
    world.fly(0.1)
    assert world.mode == "active" and world.events == []


def test_a_guard_whose_state_gets_old_is_not_ready_any_more(world):
    world.hello()
    world.fly(0.2, None, states=False)
    assert world.mode == "waiting"
    world.fly(0.02, None)
    assert world.mode == "ready"


def test_an_effort_that_damps_is_against_the_velocity():
    """-2 N m s/rad times 3 and -1 rad/s, within 4 N m; unseen velocity: none."""
    spec, values = SimpleNamespace(size=2, unit="N m"), {"joint_vel": np.array([3.0, -1.0])}
    profile = SimpleNamespace(
        limits=Bounds([-4.0] * 2, [4.0] * 2, 0.01), ends=SimpleNamespace(velocity="joint_vel", gain=(2.0, 2.0)))
    assert damping(profile, spec, values).tolist() == [-4.0, 2.0]
    assert damping(profile, spec, None).tolist() == [0.0, 0.0]


def quadrotor_profile() -> Profile:
    robot = load_robot("crazyflie")
    return safety_profile(robot, load_interface(robot).safety, robot.command("ctbr_cmd"), 0.02)


def test_what_nobody_brings_cannot_be_watched():
    profile = quadrotor_profile()
    names = ["base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "height"]
    check_carried(profile, names)
    for lost in names:
        with pytest.raises(SafetyError, match=f"needs '{lost}', which no topic"):
            check_carried(profile, [name for name in names if name != lost])


def test_an_autopilot_that_does_not_obey_gets_silence_and_nothing_else():
    robot = load_robot("crazyflie")
    content = load_interface(robot).safety
    assert quadrotor_profile().action("autopilot") == "silence" and quadrotor_profile().action("silent") == "level"
    commands = {"ctbr_cmd": {"stop": {"default": "level", "autopilot": "level"}}}
    with pytest.raises(SafetyError, match=r"stop\.autopilot is 'level'; legal: silence"):
        safety_profile(robot, {**content, "commands": commands}, robot.command("ctbr_cmd"), 0.02)


# a guard that fails


def spin_into(guard: Any, error: Exception) -> None:
    """Run the guard's process until its step raises."""
    def step() -> None:
        raise error

    guard.step = step
    with pytest.raises(type(error)):
        node.spin(guard, guard.transport, lambda: False)


def test_a_guard_that_fails_first_brings_the_arm_to_rest(moving):
    count = len(moving.sent)
    spin_into(moving.guard, KeyError("by zero"))
    moving.own.wait(0.0)
    assert moving.guard.mode == "holding" and moving.guard.flight.code == "guard"
    assert moving.guard.flight.reason == "the guard failed: KeyError: 'by zero'"
    assert len(moving.sent) > count and arms.kept(moving) and not moving.guard.stream.motion.speed.any()


def test_an_arm_is_brought_to_rest_without_the_watch_that_fails_every_time(moving, monkeypatch):
    def broken(now: float) -> bool:
        raise KeyError("joint_pos")

    monkeypatch.setattr(moving.guard.monitor.freshness, "seen", broken)
    count = len(moving.sent)
    spin_into(moving.guard, KeyError("joint_pos"))
    assert moving.guard.active_stop.blind > 0
    moving.own.wait(0.0)
    assert moving.guard.mode == "holding" and moving.guard.flight.code == "guard"
    assert len(moving.sent) > count and arms.kept(moving) and not moving.guard.stream.motion.speed.any()


def test_a_guard_whose_stop_fails_too_tries_again(moving):
    """What the guard failed by is met once more where the stop begins: the arm must not hold its last command."""
    guard, count, failed = moving.guard, len(moving.sent), []
    catch_up = guard.stream.catch_up

    def once(now: float) -> None:
        if not failed:
            failed.append(guard.mode)
            raise KeyError("by zero")
        catch_up(now)

    guard.stream.catch_up = once
    spin_into(moving.guard, KeyError("by zero"))
    moving.own.wait(0.0)
    assert failed == ["active"]  # the first attempt had come to nothing
    assert moving.guard.mode == "holding" and moving.guard.flight.code == "guard"
    assert len(moving.sent) > count and arms.kept(moving) and not moving.guard.stream.motion.speed.any()


def test_a_guard_that_fails_first_brings_the_quadrotor_down(flying):
    """Its state stops with it in this test: it levels blindly for as long as its profile says, and is silent, and gone
    once the firmware flies it no more."""
    count, began = len(flying.commands), flying.own.monotonic()
    spin_into(flying.guard, ZeroDivisionError("by zero"))
    flying.own.wait(0.0)
    assert flying.guard.mode == "stopped" and len(flying.commands) > count + 5
    assert flying.commands[-1][0] - began < 1.0 and flying.own.monotonic() - began < 1.0 + FLIES_S


def test_a_stop_action_that_cannot_be_sent_does_not_keep_the_process_for_ever(flying):
    def broken(endpoint: Any, data: bytes) -> None:
        raise RuntimeError("the bus is gone")

    flying.guard.transport.publish = broken
    began = flying.own.monotonic()
    spin_into(flying.guard, RuntimeError("by zero"))
    assert flying.own.monotonic() - began <= 10.1


def test_outside_a_mission_nothing_is_sent_when_it_fails(world):
    spin_into(world.guard, RuntimeError("by zero"))
    world.own.wait(0.0)
    assert world.commands == []


# for days


def test_memory_stays_flat_over_many_missions(flying):
    for number in range(2, mission.FLIGHTS + 20):
        flying.controller.send(Proposal(datagrams.END, flying.flight, text="silence"))
        flying.publish()
        flying.begin(number)
        flying.propose()
        flying.pause()
    guard = flying.guard
    assert len(guard.modes.flights) == mission.FLIGHTS and guard.flight.number == mission.FLIGHTS + 19
    assert all(len(f.latency_s) == 0 and f.latency_ms for f in list(guard.modes.flights)[:-1])
    assert guard.forwarder.latency_s.maxlen == guard.flight.latency_s.maxlen == mission.AGES
    assert json.dumps(plain(guard.summary()["flights"][0]))
