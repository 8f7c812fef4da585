"""The guard alone, on the memory bus: what it demands of states, commands and people, and what it does else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.bridge.guard.guard_world import (
    BOOL,
    HOVER,
    LOW,
    PERIOD,
    ROBOT,
    TWIST,
    World,
    come_down,
    ready,
    times_after,
)

from temporeal.robots.artifact.manifest import identity, mission_digest, to_json
from temporeal.robots.frames import from_rotation_vector
from temporeal_bridge.guard.safety.fallback_actions import FLIES_S, OFF_S
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import Source
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

# starting


def test_without_a_controller_it_waits_and_a_mission_is_refused(lockstep, artifact):
    world = World(lockstep, artifact)
    world.fly(0.5, None)
    assert world.mode == "waiting"
    world.begin()
    world.fly(0.1)
    assert world.commands == [] and "the guard is waiting" in world.events[-1]["reason"]


def test_without_a_state_it_waits(lockstep, artifact):
    world = World(lockstep, artifact)
    world.hello()
    world.fly(0.5, None, states=False)
    assert world.mode == "waiting"


def test_a_controller_that_has_gone_makes_it_wait_again(world):
    world.fly(2.1, None)
    assert world.mode == "waiting"


def test_a_controller_with_another_artifact_is_refused(world):
    world.hello("0" * 64)
    world.begin()
    world.fly(0.1)
    assert world.commands == [] and "another artifact (000000000000...)" in world.events[-1]["reason"]


def test_what_is_proposed_is_sent_at_once(flying):
    for _, command in flying.commands:
        assert command == pytest.approx(HOVER, abs=1e-4)
    assert np.diff([at for at, _ in flying.commands]) == pytest.approx(PERIOD, abs=1e-5)
    assert flying.guard.flight.latency_s == pytest.approx([0.0] * 15)


def test_commands_outside_a_mission_are_not_sent(world):
    world.flight = 1
    world.fly(0.2)
    assert world.commands == [] and world.guard.flight.dropped == 10


# commands


@pytest.mark.parametrize("change", [{"flight": 2}, {"step": 0}])
def test_old_repeated_and_foreign_commands_are_dropped(flying, change):
    sent = len(flying.commands)
    flying.publish()
    flying.propose(np.array([0.5, 1.0, 1.0, 1.0]), **change)
    flying.pause()
    assert len(flying.commands) == sent and flying.guard.flight.dropped == 1 and flying.mode == "active"


@pytest.mark.parametrize(("command", "word"), [
    ([np.nan, 0, 0, 0], "not finite"), ([np.inf, 0, 0, 0], "not finite"), ([0.3, 0, 0], "shape"), ([], "shape"),
    (np.zeros(5), "shape")])
def test_a_command_that_is_none_stops_the_mission(flying, command, word):
    flying.publish()
    flying.propose(command)
    flying.pause()
    assert flying.code == "policy" and word in flying.guard.flight.reason and flying.mode == "stopping"
    assert np.isfinite([c for _, c in flying.commands]).all()


def test_a_command_made_of_an_old_state_stops_the_mission(flying):
    flying.publish()
    flying.propose(seen=flying.own.monotonic() - 0.11)
    flying.pause()
    assert flying.code == "stale" and "made of an old state" in flying.guard.flight.reason


def test_a_command_outside_the_limits_is_brought_inside(flying):
    flying.publish()
    flying.propose([9.0, 99.0, -99.0, 0.0])
    flying.pause()
    spec = ROBOT.command("ctbr_cmd")
    sent = flying.commands[-1][1]
    assert (sent <= np.array(spec.high) + 1e-3).all() and (sent >= np.array(spec.low) - 1e-3).all()
    assert flying.mode == "active" and flying.guard.flight.limited == 1


def test_a_policy_that_says_it_failed_is_believed(flying):
    flying.controller.send(Proposal(datagrams.FAIL, 1, text="the policy failed: by zero"))
    flying.fly(0.02, None)
    assert flying.code == "policy" and flying.guard.flight.reason == "the policy failed: by zero"


def test_a_silent_controller_is_replaced_within_its_time(flying):
    """Killed, stopped, hanging: from outside all look the same. The stop begins 100 ms after the last command."""
    last = flying.commands[-1][0]
    flying.fly(0.3, None)
    assert flying.code == "silent" and "0.1 s is allowed" in flying.guard.flight.reason
    first = times_after(flying, last)[0]
    assert 0.1 < first <= 0.1 + 0.006
    assert np.diff(times_after(flying, last)) == pytest.approx(PERIOD, abs=1e-5)  # it levels at the control rate


def test_a_late_command_does_not_end_the_stop(flying):
    flying.fly(0.2, None)
    count = len(flying.commands)
    flying.publish()
    flying.propose(np.array([0.5, 1.0, 1.0, 1.0]))
    flying.pause()
    assert flying.mode == "stopping" and not any(c[1] > 0.9 for _, c in flying.commands[count:])


# states


def test_no_state_stops_it_within_its_time(flying):
    last = flying.own.monotonic() - 0.01
    flying.fly(0.3, states=False)
    assert flying.code == "stale"
    assert 0.1 < times_after(flying, last)[0] <= 0.1 + 0.011


def test_a_state_that_is_repeated_is_as_old_as_it_is(flying):
    """Messages keep coming, always the same one: arrival says nothing, the stamp does."""
    frozen, stamp = flying.state(), flying.own.now()
    for _ in range(15):
        flying.publish(frozen, late_s=1e-9 * (flying.own.now() - stamp))
        flying.propose()
        flying.pause()
    assert flying.code == "stale"


def test_a_message_overtaken_by_a_newer_one_is_dropped(flying):
    flying.publish()
    flying.publish({**flying.state(), "base_pos_w": np.array([0.0, 0.0, 4.5])}, late_s=0.02)
    flying.pause()
    flying.fly(0.2)
    assert flying.mode == "active" and flying.guard.state.repeated == 1


def test_stamps_that_go_back_and_on_again_are_of_a_clock_that_was_set():
    """One message, or two, that come late are none; nor are three that do not go on, or that newer ones lie between."""
    def taken(*stamps: int) -> list[int]:
        source, out = Source(load_interface(ROBOT, "odometry").states[0], {}), []
        for stamp in stamps:
            if not source.repeats(stamp):
                source.stamp = stamp
                out.append(stamp)
        return out

    assert taken(100, 60, 70, 80, 90, 100, 110) == [100, 80, 90, 100, 110]
    assert taken(100, 70, 60, 50, 60, 60, 70) == [100]  # of 50, 60, 70, but a repetition begins anew
    assert taken(100, 60, 70, 110, 80, 90, 120) == [100, 110, 120]
    assert taken(100, 100, 100, 100, 0, 0, 110) == [100, 110]  # 0 is a time like others on a topic that has stamps
    assert taken(2 * 10**9, 5, 6) == [2 * 10**9, 5, 6]  # by more than a second


@pytest.mark.parametrize("back_s", [0.15, 0.5, 0.9, 1.5])
def test_a_clock_of_everybody_that_is_set_back_stops_nothing(flying, back_s):
    flying.lockstep.bus.epoch_ns -= round(1e9 * back_s)
    flying.fly(0.5)
    assert flying.mode == "active" and flying.guard.state.repeated == (2 if back_s < 1.0 else 0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_frozen_values_with_fresh_stamps_stop_it(flying, sign):
    """A zero that changes its sign is no sign of life."""
    frozen, began = {**flying.state(), "base_ang_vel_b": np.zeros(3)}, flying.own.monotonic()
    while flying.mode == "active" and flying.own.monotonic() < began + 1.0:
        frozen = {**frozen, "base_ang_vel_b": sign * frozen["base_ang_vel_b"]}
        flying.publish(frozen)
        flying.propose()
        flying.pause()
    assert flying.code == "frozen" and 0.2 <= flying.own.monotonic() - began <= 0.24


def test_stamps_of_the_future_stop_it(flying):
    flying.publish(late_s=-0.6)
    flying.propose()
    flying.pause()
    assert flying.code == "stamps" and "stamped 0.600 s after it arrived" in flying.guard.flight.reason


def test_with_stamps_of_the_past_nothing_starts(lockstep, artifact):
    world = World(lockstep, artifact)
    world.hello()
    for _ in range(10):
        world.publish(late_s=0.6)
        world.pause()
    world.begin()
    world.propose()
    world.pause()
    assert world.commands == [] and "stamped 0.600 s before it arrived" in world.events[-1]["reason"]


def test_a_robot_clock_that_steps_back_far_stops_it(flying):
    flying.fly(0.05)
    for _ in range(3):
        flying.publish(late_s=3600.0)
        flying.propose()
        flying.pause()
    assert flying.code == "stamps" and "3600.0" in flying.guard.flight.reason


def test_our_clock_that_steps_stops_it_too(flying):
    """The wall clock of this machine is set by an hour; the robot's stamps are of the other clock."""
    flying.lockstep.bus.epoch_ns += 3600 * 10**9
    for _ in range(3):
        flying.publish(late_s=3600.0)
        flying.propose()
        flying.pause()
    assert flying.code == "stamps"


def test_states_that_cannot_be_are_as_good_as_none(flying):
    signals = flying.state()
    signals["base_vel_w"] = np.array([np.nan, 0, 0])
    last = flying.own.monotonic() - 0.01
    for _ in range(15):
        flying.publish(signals)
        flying.propose()
        flying.pause()
    assert flying.code == "stale" and flying.guard.state.rejected >= 10
    assert times_after(flying, last)[0] <= 0.1 + 0.011


# people


def test_the_operator_stops_and_resets(flying):
    flying.tell("mission/stop")
    flying.fly(0.02)
    assert flying.code == "operator" and flying.mode == "stopping"
    come_down(flying)
    assert flying.mode == "stopped"
    flying.hello()
    flying.begin(2)
    flying.fly(0.1)
    assert flying.mode == "stopped" and "mission/reset clears it" in flying.events[-1]["reason"]
    flying.tell("mission/reset")
    flying.hello()
    flying.fly(0.1, None)
    assert flying.mode == "ready"
    flying.begin(3)
    flying.fly(0.1)
    assert flying.modes[-1] == "active 3"


@pytest.mark.parametrize("before", [True, False])
def test_a_deactivated_guard_does_not_fight_who_flies_on(flying, before):
    """It goes on to level what it flew, but not once somebody else publishes commands."""
    topic = flying.interface.command("ctbr_cmd")

    def come() -> None:
        MemoryTransport(flying.lockstep.bus, "rival", "/cf1").advertise(topic.topic, topic.type, QOS["command"])

    if before:
        come()
    count = len(flying.commands)
    flying.guard.transport.active = False
    flying.fly(0.2, None)
    assert (flying.mode, len(flying.commands) > count) == (("stopped", False) if before else ("stopping", True))
    if not before:
        come()
        flying.fly(0.12, None)
    assert flying.mode == "stopped" and flying.code == "inactive"
    count = len(flying.commands)
    flying.fly(0.2, None)
    assert len(flying.commands) == count


def test_a_deactivated_guard_that_never_flew_the_robot_says_nothing(world):
    """Where it stands, or whoever holds it in the air, thrust would be a jolt."""
    world.begin()
    world.fly(0.02, None)
    assert world.mode == "active"
    world.guard.transport.active = False
    world.fly(0.3, None)
    assert world.mode == "stopped" and world.commands == []


@pytest.mark.parametrize("stopped", [False, True])
def test_an_attitude_that_leaps_is_a_jump_and_turns_nothing(flying, stopped):
    """A motion capture that takes markers for others: by it, a robot that is level would be turned over."""
    flying.fly(0.5)
    if stopped:
        flying.tell("mission/stop")
        flying.fly(0.1, None)
    count, level = len(flying.commands), flying.state

    def over() -> dict[str, np.ndarray]:
        noise = 0.01 * flying.rng.normal(size=3)
        return {**level(), "base_quat_w": from_rotation_vector(np.array([3.0, 0.0, 0.0]) + noise)}

    flying.state = over
    flying.fly(0.3, None)
    assert flying.code == ("operator" if stopped else "jump") and flying.guard.flight.action == "level"
    sent = np.array([command for _, command in flying.commands[count + 2:]])
    assert len(sent) > 5 and not sent[:, 1:].any() and (sent[:, 0] > 0.2).all()
    flying.fly(1.0, None)
    assert flying.mode == "stopped"  # as without a state: the firmware levels by itself


@pytest.mark.parametrize("gap, turn", [(0.2, 1.9), (0.33, 3.0)])
def test_an_attitude_that_comes_back_turned_after_a_gap_turns_nothing(flying, gap, turn):
    """A motion capture that lost the robot and has found other markers."""
    flying.fly(0.5)
    flying.fly(gap, states=False)
    count, level = len(flying.commands), flying.state

    def over() -> dict[str, np.ndarray]:
        noise = 0.01 * flying.rng.normal(size=3)
        return {**level(), "base_quat_w": from_rotation_vector(np.array([turn, 0.0, 0.0]) + noise)}

    flying.state = over
    flying.fly(0.5, None)
    sent = np.array([command for _, command in flying.commands[count:]])
    assert flying.code == "stale" and not flying.guard.monitor.attitude_sound
    assert len(sent) > 0 and not sent[:, 1:].any()


def test_the_next_mission_may_level_by_the_attitude_again(flying):
    """What an attitude was in the last one is forgiven, as every leap is."""
    flying.fly(0.5)
    level = flying.state
    flying.state = lambda: {**level(), "base_quat_w": np.array([0.0, 1.0, 0.0, 0.0])}
    flying.fly(0.02)
    flying.state = level
    flying.fly(8.0, None)
    assert flying.code == "jump" and flying.mode == "stopped"
    flying.tell("mission/reset")
    flying.hello()
    flying.fly(0.2, None)
    flying.begin(2)
    flying.fly(0.3)
    assert flying.modes[-1] == "active 2"
    flying.state = lambda: {**level(), "base_quat_w": from_rotation_vector(
        np.array([0.3, 0.0, 0.0]) + 0.01 * flying.rng.normal(size=3))}
    flying.tell("mission/stop")
    count = len(flying.commands)
    flying.fly(0.2, None)
    assert (np.array([command for _, command in flying.commands[count + 1:]])[:, 1] < -0.5).all()


def test_an_attitude_of_the_other_sign_is_the_same(flying):
    level, signs = flying.state, iter([1.0, -1.0] * 1000)
    flying.state = lambda: {**(state := level()), "base_quat_w": next(signs) * state["base_quat_w"]}
    flying.fly(0.5)
    assert flying.mode == "active"


def test_a_stop_that_flaps_is_a_stop(flying):
    for value in (True, False, True, False):
        flying.tell("estop", value)
        flying.fly(0.02)
    assert flying.code == "operator" and flying.mode == "stopping"


def test_a_stop_that_is_said_again_changes_nothing(flying):
    """A button says its state ten times a second: neither the stop action nor its time begins anew."""
    for _ in range(20):
        flying.tell("estop", True)
        flying.fly(0.02)
    assert [event["code"] for event in flying.events] == ["operator"]
    assert [mode.split()[0] for mode in flying.modes].count("stopping") == 1


def test_after_a_reset_whoever_speaks_must_say_what_it_flies(flying):
    flying.tell("mission/stop")
    come_down(flying)
    flying.hello()
    flying.fly(0.1, None)
    flying.tell("mission/reset")
    flying.fly(0.1, None)
    assert flying.mode == "waiting"
    flying.begin(2)
    flying.fly(0.1)
    assert flying.mode == "waiting" and "refused" in flying.events[-1]["reason"]
    flying.hello()
    flying.fly(0.02, None)
    assert flying.mode == "ready"


def test_while_the_stop_is_set_nothing_starts_and_nothing_is_reset(flying):
    for _ in range(80):
        flying.tell("estop", True)
        flying.height = max(flying.height - 0.03, LOW)
        flying.fly(0.1, None)
    assert flying.mode == "stopped"
    flying.tell("mission/reset")
    flying.fly(0.02, None)
    assert flying.mode == "stopped" and "still set" in flying.events[-1]["reason"]
    flying.tell("estop", False)
    flying.fly(0.5, None)
    flying.tell("mission/reset")
    flying.hello()
    flying.fly(0.1, None)
    assert flying.mode == "ready"


@pytest.mark.parametrize("topic, value", [("mission/stop", None), ("estop", True)])
@pytest.mark.parametrize("held_up_s", [0.001, 2.0])
def test_a_stop_is_not_undone_by_a_reset_that_was_said_before_it(lockstep, artifact, topic, value, held_up_s):
    """Both are heard in one look, topic by topic, the stop first. With silence the robot is stopped at once."""
    world = ready(lockstep, artifact, commands={"ctbr_cmd": {"stop": {"default": "silence"}}})
    world.begin()
    world.fly(0.3)
    world.tell("mission/reset")
    lockstep.bus.advance(held_up_s)
    world.tell(topic, value)
    if value:
        world.tell(topic, False)  # pressed, and let go of
    world.fly(0.1, None)
    assert world.mode == "stopped" and "not reset: a stop was heard 0.00 s ago: say reset again" in [
        event["reason"] for event in world.events]
    world.hello()
    world.begin(2)
    world.fly(0.1)
    assert "active 2" not in world.modes
    world.fly(0.4, None)
    world.tell("mission/reset")
    world.hello()
    world.fly(0.1, None)
    assert world.mode == "ready"


def test_who_resets_and_then_stops_a_robot_that_was_stopped_has_stopped_it(flying):
    """Whether both words are heard in one look or in two."""
    for between in (0.001, 0.05):
        flying.tell("mission/stop")
        flying.fly(30.0, None)
        assert flying.mode == "stopped"
        flying.tell("mission/reset")
        flying.lockstep.bus.advance(between) if between < 0.01 else flying.fly(between, None)
        flying.tell("mission/stop")
        flying.hello()
        flying.fly(0.1, None)
        assert flying.mode == "stopped" and flying.guard.flight.reason == "stopped by the operator"


def test_a_stop_that_the_guard_makes_itself_is_not_undone_by_a_reset_of_before(lockstep, artifact):
    """It hears the controller first, in flight: a reset that waits on the bus was said before the reason was there."""
    world = ready(lockstep, artifact, commands={"ctbr_cmd": {"stop": {"default": "silence"}}})
    world.begin()
    world.fly(0.3)
    world.tell("mission/reset")
    world.publish()
    world.propose([np.nan, 0, 0, 0])
    world.pause()
    assert world.mode == "stopped" and world.code == "policy"
    assert "the robot has just been stopped: say reset again" in world.events[-1]["reason"]
    world.tell("mission/reset")
    world.hello()
    world.fly(0.1, None)
    assert world.mode == "ready"


def test_a_stop_button_that_falls_silent_is_pressed(flying):
    for _ in range(10):
        flying.tell("estop", False)
        flying.fly(0.1)
    assert flying.mode == "active"
    began = flying.own.monotonic()
    while flying.mode == "active" and flying.own.monotonic() < began + 2.0:
        flying.fly(0.02)
    assert flying.code == "operator" and "not heard for 0.5 s" in flying.guard.flight.reason
    assert flying.own.monotonic() - began <= 0.5 + 0.02


@pytest.mark.parametrize("how", ["sensor", "latched"])
@pytest.mark.parametrize("topic, type", [("estop", BOOL), ("mission/stop", "std_msgs/msg/Empty")])
def test_a_stop_is_heard_from_every_publisher(flying, how, topic, type):
    """One of best effort, too: a panel may say its state like a sensor."""
    panel = MemoryTransport(flying.lockstep.bus, "panel", "/cf1")
    data = messages.encode(type, messages.record(type)(data=True)) if type == BOOL else messages.empty()
    panel.publish(panel.advertise(topic, type, QOS[how]), data)
    flying.fly(0.1)
    assert flying.code == "operator" and flying.mode == "stopping"
    assert [event["code"] for event in flying.events] == ["operator"]


def test_a_stop_that_was_set_before_the_guard_was_there_is_set(lockstep, artifact):
    """A button that speaks only when it is pressed, and latches that."""
    panel = MemoryTransport(lockstep.bus, "panel", "/cf1")
    button = panel.advertise("estop", BOOL, QOS["latched"])
    panel.publish(button, messages.encode(BOOL, messages.record(BOOL)(data=True)))
    world = World(lockstep, artifact)
    world.hello()
    world.fly(0.3, None)
    world.begin()
    world.fly(0.3)
    assert world.mode == "stopped" and world.code == "operator" and world.commands == []


@pytest.mark.parametrize("heartbeat_s", [0.5, None])
def test_no_mission_begins_with_two_stop_buttons(lockstep, artifact, heartbeat_s):
    """One may fall silent unseen, or be pressed while the other says no."""
    world = ready(lockstep, artifact, estop={"required": False, "heartbeat_s": heartbeat_s})
    panel = MemoryTransport(lockstep.bus, "panel2", "/cf1")
    panel.advertise("estop", BOOL, QOS["default"])
    world.fly(0.2, None)
    world.begin()
    world.fly(0.1)
    assert not any(mode.startswith("active") for mode in world.modes)
    assert "/cf1/panel2, /cf1/peer publish on estop" in world.events[-1]["reason"]


def test_a_second_stop_button_that_comes_in_flight_stops(flying):
    flying.tell("estop", False)
    MemoryTransport(flying.lockstep.bus, "panel2", "/cf1").advertise("estop", BOOL, QOS["default"])
    for _ in range(12):
        flying.tell("estop", False)
        flying.fly(0.1)
    assert flying.code == "operator" and "/cf1/panel2, /cf1/peer publish on estop" in flying.guard.flight.reason


def test_two_stop_buttons_of_one_name_are_two(flying):
    """The same launch file on two pendants: one that dies would not be seen, for the other goes on."""
    twin = MemoryTransport(flying.lockstep.bus, "peer", "/cf1")
    twin.advertise("estop", BOOL, QOS["default"])
    for _ in range(12):
        flying.tell("estop", False)
        flying.fly(0.1)
    assert flying.code == "operator" and "/cf1/peer, /cf1/peer publish on estop" in flying.guard.flight.reason


def test_a_stop_button_with_two_publishers_is_one(flying):
    flying.own.advertise("estop", BOOL, QOS["latched"])
    for _ in range(12):
        flying.tell("estop", False)
        flying.fly(0.1)
    assert flying.mode == "active" and flying.guard.button.names == ["/cf1/peer"]


def test_a_required_stop_button_must_be_there_first(lockstep, artifact):
    world = ready(lockstep, artifact, estop={"required": True, "heartbeat_s": 0.5})
    world.begin()
    world.fly(0.1)
    assert world.commands == [] and "not heard" in world.events[-1]["reason"]
    world.tell("estop", False)
    world.begin(2)
    world.fly(0.1)
    assert world.modes[-1] == "active 2"


def on_the_ground(world: World, seconds: float, states: bool = True, height: float = 0.02) -> None:
    """It stands there with a controller; or says nothing, as a robot that is off."""
    for k in range(round(seconds / 0.01)):
        if states:
            position = np.array([0.0, 0.0, height]) + 1e-4 * world.rng.normal(size=3)
            world.publish({**world.state(), "base_pos_w": position, "height": position[2]})
        if k % 20 == 0:
            world.hello()
        world.pause()


@pytest.mark.parametrize("ended", ["never flew", "finished", "reset"])
def test_after_a_change_of_the_battery_the_thrust_is_unlocked_again(lockstep, artifact, ended):
    """The firmware's lock is on after each start; whatever the guard has done with the robot before."""
    world = World(lockstep, artifact, jump=None, agree=None)
    on_the_ground(world, 0.3)
    if ended != "never flew":
        world.begin()
        world.fly(0.3)
        world.tell("mission/stop") if ended == "reset" else world.controller.send(
            Proposal(datagrams.END, 1, world.step + 1, text="stop"))
        on_the_ground(world, 1.0 + OFF_S)
        assert world.mode == ("stopped" if ended == "reset" else "finished")
    before = len(world.commands)
    assert before and world.commands[-1][1].tolist() == [0.0] * 4
    on_the_ground(world, 0.5)
    assert len(world.commands) == before  # not without a reason
    on_the_ground(world, 1.0, states=False)
    if ended == "reset":
        on_the_ground(world, 0.3)
        world.tell("mission/reset")
        world.hello()
    on_the_ground(world, 0.5)
    assert world.mode == ("finished" if ended == "finished" else "ready")
    assert len(world.commands) == before + 1 and world.commands[-1][1].tolist() == [0.0] * 4


def test_in_the_air_or_beside_somebody_else_nothing_is_unlocked(lockstep, artifact):
    world = World(lockstep, artifact, jump=None, agree=None)
    on_the_ground(world, 0.5, height=0.2)
    on_the_ground(world, 1.0, states=False)
    on_the_ground(world, 0.5, height=0.2)
    assert world.mode == "ready" and world.commands == []
    topic = world.interface.command("ctbr_cmd")
    MemoryTransport(world.lockstep.bus, "rival", "/cf1").advertise(topic.topic, topic.type, QOS["command"])
    on_the_ground(world, 1.0, states=False)
    on_the_ground(world, 0.5)
    assert world.mode == "ready" and world.commands == []


def test_a_gap_in_the_state_in_flight_unlocks_nothing(flying):
    """Low and blind: it levels, sinks and falls silent; a zero setpoint is the last word only where it has landed."""
    flying.fly(0.5, states=False)
    count = len(flying.commands)
    flying.fly(FLIES_S, states=False)
    assert flying.mode == "stopped" and flying.commands[-1][1][0] > 0.1 and len(flying.commands) == count
    on_the_ground(flying, 0.5)
    assert len(flying.commands) == count


def test_the_operators_own_action_ends_a_stop_that_is_under_way(lockstep, artifact):
    stop = {"default": "level", "operator": "silence"}
    world = ready(lockstep, artifact, commands={"ctbr_cmd": {"stop": stop}})
    world.begin()
    world.fly(0.2)
    world.fly(0.3, None)
    assert world.code == "silent" and world.mode == "stopping"
    world.tell("mission/stop")
    world.fly(0.02, None)
    count = len(world.commands)
    world.fly(0.3, None)
    assert world.mode == "stopped" and len(world.commands) == count
    assert world.code == "silent"  # why it began to stop is what is latched
    assert [event["code"] for event in world.events] == ["silent", "operator"]


@pytest.mark.parametrize(("rule", "mode"), [("stop", "stopping"), ("warn", "active")])
def test_a_violated_formula_stops_or_is_told(lockstep, artifact, rule, mode):
    world = ready(lockstep, artifact, violated=rule)
    world.begin()
    world.fly(0.1)
    world.tell("monitor/verdict", json.dumps({"verdict": "violated", "flight": 0}))  # of another flight
    world.fly(0.02)
    assert world.mode == "active" and world.events == []
    world.tell("monitor/verdict", json.dumps({"verdict": "violated", "flight": 1}))
    world.fly(0.02)
    assert world.mode == mode and world.events[-1]["code"] == "violated"


def test_a_verdict_on_another_formula_than_the_artifacts_stops_nothing(flying):
    """Somebody watches a formula of his own beside the flight, or another artifact's. A successor's monitor, or that of
    the artifact that was relieved, judges the same mission."""
    manifest, said = flying.guard.swaps.manifest, {"verdict": "violated", "at_risk": True, "flight": 1}
    ours = mission_digest(to_json(manifest))
    assert ours == mission_digest(to_json(replace(manifest, name="successor", seed=7)))
    for change in ({"formula": "G[0,4] (height > 5)"}, {"constants": {"a": 1.0}}, {"robot": "other"}, {"rate_hz": 7.0}):
        other = replace(manifest, **change)
        flying.tell("monitor/verdict", json.dumps(
            {**said, "artifact": identity(other), "mission": mission_digest(to_json(other))}))
    for nonsense in (None, [], 7, {}):
        flying.tell("monitor/verdict", json.dumps({**said, "mission": nonsense}))
    flying.fly(0.1)
    assert flying.mode == "active" and flying.events == []
    flying.tell("monitor/verdict", json.dumps({**said, "artifact": "of the one before", "mission": ours}))
    flying.fly(0.1)
    assert flying.mode == "stopping" and flying.code == "violated"


def test_an_early_warning_is_told_and_nothing_else(flying):
    flying.tell("monitor/verdict", json.dumps(
        {"verdict": "undecided", "flight": 1, "at_risk": True, "upper": 0.0213}))
    flying.fly(0.02)
    event = flying.events[-1]
    assert flying.mode == "active" and event["code"] == "at_risk" and "0.0213" in event["reason"]


def test_told_to_end_it_first_brings_the_robot_down(flying):
    assert not flying.guard.may_end()
    assert flying.mode == "active" or flying.guard.mode == "stopping"
    come_down(flying)
    assert flying.guard.may_end() and flying.guard.flight.reason == "the guard was told to end"
    assert flying.commands[-1][1] == pytest.approx(np.zeros(4))


@pytest.mark.parametrize("asleep_s, mode", [(5e-4, "stopped"), (0.0, "stopping")])
def test_a_guard_that_failed_stops_its_robot_for_as_long_as_it_takes(flying, asleep_s, mode):
    """However many messages wake it up; but not for ever where the clock stands still."""
    guard, bus = flying.guard, flying.lockstep.bus
    begun, hear, waits = bus.seconds, guard.transport.wait, [0]

    def wait(timeout: float) -> None:
        waits[0] += 1
        bus.advance(min(timeout, asleep_s))
        flying.height = 1.0 - 0.3 * (bus.seconds - begun)
        if waits[0] % 10 == 0:
            flying.publish()
        hear(0.0)

    guard.transport.wait = wait
    guard.rescue(RuntimeError("by zero"))
    waited = 5200 if mode == "stopping" else pytest.approx(6_950 + OFF_S / asleep_s, rel=0.05)
    assert guard.mode == mode and waits[0] == waited


def test_a_second_publisher_of_commands_ends_the_flight(flying):
    """The other one's commands cannot be taken back, but ours must not fight them in the air for long."""
    topic = flying.interface.command("ctbr_cmd").topic
    other = MemoryTransport(flying.lockstep.bus, "joystick", "/cf1")
    other.advertise(topic, TWIST, QOS["command"])
    flying.fly(0.6)
    assert flying.code == "publisher" and "/cf1/joystick publishes on /cf1/cmd_vel_legacy, too" in (
        flying.guard.flight.reason)


@pytest.mark.parametrize("topic", ["cmd_hover", "cmd_full_state", "motor_cmd"])
def test_who_commands_the_robot_by_another_topic_is_a_second_publisher(flying, topic):
    """The driver takes whichever setpoint comes last, and nobody saw those of other kinds."""
    MemoryTransport(flying.lockstep.bus, "joystick", "/cf1").advertise(topic, TWIST, QOS["command"])
    flying.fly(0.6)
    assert flying.code == "publisher" and flying.guard.flight.reason == (
        f"/cf1/joystick publishes on /cf1/{topic}, too")


def test_who_has_another_robots_topic_is_none(flying):
    MemoryTransport(flying.lockstep.bus, "joystick", "/cf2").advertise("cmd_hover", TWIST, QOS["command"])
    flying.fly(0.6)
    assert flying.mode == "active"


def test_with_a_second_publisher_nothing_starts(world):
    other = MemoryTransport(world.lockstep.bus, "joystick", "/cf1")
    other.advertise(world.interface.command("ctbr_cmd").topic, TWIST, QOS["command"])
    world.fly(0.6, None)
    world.begin()
    world.fly(0.1)
    assert world.commands == [] and "joystick" in world.events[-1]["reason"]
    other.close()
    world.fly(0.6, None)
    world.hello()
    world.begin(2)
    world.fly(0.1)
    assert world.modes[-1] == "active 2"


# the mission's end


def test_a_mission_that_is_over_is_no_reason(flying):
    flying.controller.send(Proposal(datagrams.END, 1, text="silence"))
    flying.fly(0.02, None)
    count = len(flying.commands)
    flying.fly(0.3, None)
    assert flying.mode == "finished" and len(flying.commands) == count and flying.guard.flight.reason == ""
    flying.begin(2)
    flying.fly(0.1)
    assert flying.modes[-1] == "active 2"


def test_what_was_proposed_and_sent_is_told(flying):
    told: list[CommandRecord] = []
    flying.own.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"], lambda r: told.append(
        CommandRecord.of(messages.decode(r.type, r.data).data)))
    flying.publish()
    known = flying.guard.state.marks  # a state that comes with the proposal is read after it
    flying.propose([9.0, 0.5, 0.0, 0.0])
    flying.pause()
    first, spec = told[0], ROBOT.command("ctbr_cmd")
    assert (first.flight, first.step, first.age) == (1, 15, 0.0)
    assert first.since == pytest.approx(flying.own.monotonic() - flying.guard.flight.began, abs=0.02)
    assert first.proposed == pytest.approx([9.0, 0.5, 0.0, 0.0])
    assert first.sent == pytest.approx([spec.high[0], 0.5, 0.0, 0.0])
    assert first.marks == known != flying.guard.state.marks and all(first.marks)
    flying.tell("mission/stop")
    flying.pause()
    own = told[-1]
    assert (own.flight, own.step) == (1, -1) and np.isnan(own.age) and np.isnan(own.proposed).all()


def test_the_summary_says_why_each_flight_ended(flying):
    flying.tell("mission/stop")
    flying.fly(0.02, None)
    row = flying.guard.summary()["flights"][0]
    assert (row["flight"], row["code"], row["action"], row["sent"]) == (1, "operator", "level", 15)
