"""The guard of commands that are speeds or efforts: none leads a joint out of its range, and their rest is 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.bridge.interface.test_extra_topics import CUBE

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.motion.rate_limiter import at_rest
from temporeal.robots.motion.shield import speed_window
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.guard.command_limits import rests
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.section import profile
from temporeal_bridge.guard.stop_actions.ramp_and_damp import damping
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("franka")
HOME = np.array(ROBOT.home["joint_pos"])
DT, TICK = 0.02, 0.005  # s: of the policy; of the arm
INERTIA = np.array([1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 0.2])  # kg m^2
INTERFACES = {"joint_vel_cmd": "forward_velocity", "joint_effort_cmd": "forward_effort"}
TOOL = {"tool_vel_cmd": "moveit_servo"}
PULLS = {"joint_vel_cmd": np.full(7, 0.2), "joint_effort_cmd": 0.5 * INERTIA}


class Arm:
    """A guard, a controller, and joints that have the speed, or the acceleration, that they are told."""

    extra: dict[str, Any] | None = None  # topics of a task
    late_s = 0.0  # of the state, when it arrives
    led_by_hand = False  # the joints do not follow what is told

    def __init__(self, lockstep: Any, command: str, **changes: Any) -> None:
        found = load_interface(ROBOT, {**INTERFACES, **TOOL}[command], self.extra)
        own = {**found.safety["commands"][command], **changes}
        self.interface = replace(found, safety={**found.safety, "geofence": None, "commands": {command: own}})
        self.spec, self.lockstep, self.pushes = ROBOT.command(command), lockstep, command == "joint_effort_cmd"
        manifest = Manifest(
            name="arm", robot="franka", signals=(ROBOT.signals["joint_pos"],), commands=(self.spec,), rate_hz=1 / DT,
            memory=(), formula="G[0,10] (joint_pos[0] < 3)", constants={}, horizon_s=10.0, stop="damp", training={},
            versions={}, seed=0, git_revision="test", created="2026-01-01T00:00:00Z", files={})
        self.own = MemoryTransport(lockstep.bus, "peer", "/arm")
        self.controller, guarded = linked()
        transport = MemoryTransport(lockstep.bus, "guard_node", "/arm")
        self.guard = lockstep.add(transport, GuardNode(transport, manifest, ROBOT, self.interface, guarded))
        topic = self.interface.command(command)
        self.topic, self.codec = topic, COMMAND_CODECS[topic.codec]
        self.own.subscribe(topic.topic, topic.type, QOS["deep"], self._take)
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS["default"])) for s in self.interface.states]
        self.stop = self.own.advertise("mission/stop", "std_msgs/msg/Empty", QOS["default"])
        self.rng, self.step, self.blocked = np.random.default_rng(0), -1, False
        self.place, self.speed, self.told = HOME.copy(), np.zeros(7), np.zeros(7)
        self.lie: np.ndarray | None = None  # what is published as the joints' speed
        self.stands: np.ndarray | None = None  # ... as their place
        self.frozen: dict[str, np.ndarray] | None = None
        self.sent: list[np.ndarray] = []
        self.track: list[tuple[np.ndarray, np.ndarray]] = []
        self.controller.send(Proposal(datagrams.HELLO, text=identity(manifest)))
        self.run(0.3)
        assert self.guard.mode == "ready"
        self.controller.send(Proposal(datagrams.BEGIN, 1, -1, 5))

    def _take(self, received: Any) -> None:
        self.told = self.codec.decode(messages.decode(received.type, received.data), self.topic.options)
        self.sent.append(self.told)

    def publish(self) -> None:
        if self.blocked:
            self.speed = np.zeros(7)
        elif self.pushes:
            self.speed = self.speed + TICK * self.told / INERTIA
        elif not self.led_by_hand:
            self.speed = self.told.copy()
        self.place = self.place + TICK * self.speed
        self.track.append((self.place, self.speed))
        signals = {"joint_pos": self.place, "joint_vel": self.speed + 1e-4 * self.rng.normal(size=7),
                   "joint_torque": self.rng.normal(size=7)}
        if self.lie is not None:
            signals["joint_vel"] = self.lie
        if self.stands is not None:
            signals["joint_pos"] = self.stands
        signals = self.frozen or signals
        for topic, endpoint in reversed(self.states):
            stamp = self.own.now() - round(1e9 * self.late_s)
            message = STATE_CODECS[topic.codec].encode(signals, stamp, ("world", "arm"), topic.options)
            self.own.publish(endpoint, messages.encode(topic.type, message))

    def run(self, seconds: float, command: Any = None) -> None:
        for k in range(round(seconds / TICK)):
            self.publish()
            if command is not None and k % round(DT / TICK) == 0:
                self.step += 1
                now = self.own.monotonic()
                self.controller.send(Proposal(
                    datagrams.COMMAND, 1, self.step, 5, now, now, np.asarray(command, dtype=float)))
            self.lockstep.run(TICK)
            self.own.wait(0.0)


@pytest.fixture(params=["joint_vel_cmd", "joint_effort_cmd"])
def arm(request, lockstep):
    return Arm(lockstep, request.param)


def test_a_command_begins_at_zero_and_comes_as_it_is_asked_for(arm):
    asked = PULLS[arm.spec.name]
    arm.run(0.9, asked)
    assert np.abs(arm.sent[0]).max() <= 1e-3 * asked.max() and arm.guard.flight.limited == 0
    assert arm.sent[-1] == pytest.approx(asked, abs=1e-9)
    assert (np.diff(arm.sent, axis=0) >= -1e-9).all()  # faded in


def test_no_command_drives_a_joint_out_of_its_range(arm):
    """The most that may be asked for, for 6 s, one way and the other: joints stop at the ends, and keep their speed."""
    ends = arm.guard.config.profile.ends
    low, high = (np.array(ROBOT.command("joint_pos_cmd").low), np.array(ROBOT.command("joint_pos_cmd").high))
    turns = np.isin(np.arange(7), (0, 4, 6))  # those that never lead it too near to itself
    arm.run(0.1, np.zeros(7))  # a mission begins at rest
    for way in (1.0, -1.0):
        arm.track.clear()
        arm.run(6.0, np.where(turns, way * np.array(arm.spec.high), 0.0))
        assert arm.guard.mode == "active", arm.guard.flight.reason
        place, speed = (np.array(rows) for rows in zip(*arm.track))
        assert (place >= low).all() and (place <= high).all()
        assert (np.abs(speed) <= np.array(ends.speed) * (1.3 if arm.pushes else 1.0) + 1e-6).all()
        reached = place[-1] - (ends.high if way > 0 else ends.low)
        assert (np.abs(reached[turns]) < 0.03).all() and np.abs(speed[-1]).max() < 0.02


def test_an_arm_that_lags_stays_in_its_range_all_the_same(lockstep, monkeypatch):
    """Told its speeds at 25 Hz, 50 ms behind them: joints 5 and 7 were 0.05 rad beyond their ends."""
    monkeypatch.setattr("tests.bridge.guard.test_rates.DT", 0.04)

    class Lagging(Arm):
        has = np.zeros(7)

        def publish(self) -> None:
            self.has = self.has + (self.told - self.has) * TICK / 0.05
            told, self.told = self.told, self.has
            super().publish()
            self.told = told

    arm = Lagging(lockstep, "joint_vel_cmd")
    arm.run(0.08, np.zeros(7))
    arm.run(4.0, np.where(np.isin(np.arange(7), (0, 4, 6)), arm.spec.high, 0.0))
    assert arm.guard.mode == "active" and (arm.place[[0, 4, 6]] > 2.6).all()
    assert (np.max([place for place, _ in arm.track], axis=0) <= ROBOT.command("joint_pos_cmd").high).all()


def test_beyond_an_end_it_may_only_go_back():
    low, high = speed_window(np.array([2.0, -3.0, 0.0]), [-1.0] * 3, [1.0] * 3, [2.0] * 3, [1.5] * 3)
    assert low.tolist() == [-1.5, 0.0, -1.5] and high.tolist() == [0.0, 1.5, 1.5]


def test_a_stop_brings_the_arm_to_rest_and_keeps_it_there(arm):
    arm.run(1.5, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    assert np.abs(arm.speed).max() > 0.15
    arm.own.publish(arm.stop, messages.empty())
    arm.run(1.5)
    assert arm.guard.flight.action == "damp" and arm.guard.mode == "holding"
    assert np.abs(arm.speed).max() < 2e-3
    if not arm.pushes:
        assert not arm.sent[-1].any()


@pytest.mark.parametrize("after", ["stop", "silence"])
def test_the_end_of_a_mission_leaves_no_speed_and_no_effort(arm, after):
    """A driver holds the last one for ever: one that brakes would push the arm the other way, faster and faster."""
    arm.run(1.5, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    arm.controller.send(Proposal(datagrams.END, 1, arm.step + 1, 5, text=after))
    arm.run(1.5)
    assert arm.guard.mode == "finished" and not arm.sent[-1].any()
    assert np.abs(arm.speed).max() < 0.07
    count = len(arm.sent)
    arm.run(0.5)
    assert len(arm.sent) == count and np.abs(arm.speed).max() < 0.07


def test_a_guard_that_is_told_to_end_waits_until_the_arm_rests(arm):
    arm.run(1.5, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    for _ in range(400):
        if arm.guard.may_end():
            break
        arm.run(TICK)
    arm.own.wait(0.0)
    arm.publish()
    assert np.abs(arm.speed).max() < 0.07 and not arm.sent[-1].any()


def test_who_is_let_go_of_while_somebody_pushes_it_is_told_no_effort(lockstep):
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(0.5, np.zeros(7))
    arm.own.publish(arm.stop, messages.empty())
    arm.run(0.5)
    reset = arm.own.advertise("mission/reset", "std_msgs/msg/Empty", QOS["default"])
    arm.speed = np.array([0.5, 0, 0, 0, 0, 0, 0])  # a push
    arm.run(0.02)
    assert arm.guard.mode == "holding" and abs(arm.sent[-1][0]) > 5.0
    arm.own.publish(reset, messages.empty())
    arm.run(0.1)
    assert arm.guard.mode in ("waiting", "ready") and not arm.sent[-1].any()


def test_whom_somebody_pushes_on_is_held_all_the_same(lockstep):
    """It never rests: damping is over after some seconds, and goes on until a reset."""
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(0.5, np.zeros(7))
    arm.own.publish(arm.stop, messages.empty())
    for _ in range(round(6.0 / DT)):
        arm.speed = np.array([0.3, 0, 0, 0, 0, 0, 0])
        arm.run(DT)
    assert arm.guard.mode == "holding" and arm.sent[-1][0] < -5.0


def test_a_guard_that_is_deactivated_brings_the_arm_to_rest_and_then_says_nothing_more(arm, monkeypatch):
    """It was told no effort at once, and an arm without friction coasted for ever."""
    arm.run(1.2, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    assert np.abs(arm.speed).max() > 0.15
    monkeypatch.setattr(arm.guard.transport, "active", False)
    arm.run(1.5)
    assert arm.guard.flight.code == "inactive" and arm.guard.mode == "stopped" and not arm.sent[-1].any()
    assert np.abs(arm.speed).max() < 0.07
    count = len(arm.sent)
    arm.run(0.5)
    assert len(arm.sent) == count


def test_a_guard_that_is_deactivated_while_it_holds_lets_go(arm, monkeypatch):
    arm.run(0.5, np.zeros(7))
    arm.own.publish(arm.stop, messages.empty())
    arm.run(1.0)
    assert arm.guard.mode == "holding"
    monkeypatch.setattr(arm.guard.transport, "active", False)
    arm.run(0.1)
    assert arm.guard.mode == "stopped" and not arm.sent[-1].any()


def test_a_deactivated_guard_that_never_commanded_the_arm_says_nothing(arm, monkeypatch):
    """Whatever moves it is another's."""
    arm.run(0.02)
    arm.speed = np.array([0.5, 0, 0, 0, 0, 0, 0])
    arm.told = np.zeros(7) if arm.pushes else arm.speed
    monkeypatch.setattr(arm.guard.transport, "active", False)
    arm.run(0.5)
    assert arm.guard.mode == "stopped" and not arm.sent


def test_a_deactivated_guard_does_not_fight_who_takes_over(arm, monkeypatch):
    arm.run(1.2, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    other = MemoryTransport(arm.lockstep.bus, "other", "/arm")
    other.advertise(arm.topic.topic, arm.topic.type, QOS["command"])
    count = len(arm.sent)
    monkeypatch.setattr(arm.guard.transport, "active", False)
    arm.run(0.5)
    assert arm.guard.mode == "stopped" and len(arm.sent) == count + 1 and not arm.sent[-1].any()


def test_a_deactivated_guard_whose_brake_pushes_lets_go(lockstep, monkeypatch):
    """A velocity that is too late for its gain: a light joint shook faster and faster, for 5 s."""
    arm = Arm(lockstep, "joint_effort_cmd", stamps_within_s=None)
    arm.run(1.2, PULLS["joint_effort_cmd"])
    began, past = np.abs(arm.speed).max(), [arm.speed] * 10
    monkeypatch.setattr(arm.guard.transport, "active", False)
    for _ in range(200):
        arm.lie = past[0] + 1e-4 * arm.rng.normal(size=7)  # 50 ms old
        arm.run(TICK)
        past = [*past[1:], arm.speed]
    assert arm.guard.mode == "stopped" and not arm.sent[-1].any()
    assert np.abs(np.array([speed for _, speed in arm.track])).max() < 3.0 * began


def test_a_joint_that_turns_round_does_not_rest(lockstep):
    """Its speed is 0 for a moment: the arm was let go of then."""
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(0.5, np.zeros(7))
    arm.own.publish(arm.stop, messages.empty())
    for k in range(40):
        arm.speed = 0.3 * np.cos(2 * np.pi * k / 10) * np.eye(7)[0]  # somebody swings it, at 10 Hz
        arm.run(2 * TICK)
        assert arm.guard.mode == "stopping"


def test_a_start_that_is_refused_is_no_jolt(lockstep):
    """0 at once was a braking of 75 rad/s^2 for an arm that an earlier guard's last speed moved."""
    arm = Arm(lockstep, "joint_vel_cmd")
    arm.told = arm.speed = np.array([1.5, 0, 0, 0, 0, 0, 0])
    arm.run(0.05)
    arm.run(0.4, arm.told)
    assert arm.guard.flight.code == "start"
    speeds = np.array([1.5, *(sent[0] for sent in arm.sent)])
    assert speeds[-1] == 0.0 and (np.diff(speeds) / DT >= -6.0 - 1e-6).all() and (np.diff(speeds) <= 0).all()


def test_no_speed_and_no_effort_begins_while_the_arm_moves(arm):
    """0 would be a jolt for the one, and no rest for the other."""
    arm.speed = arm.told = np.array([0.15, 0, 0, 0, 0, 0, 0])
    if arm.pushes:
        arm.told = np.zeros(7)
    arm.run(0.1)
    arm.run(0.1, arm.told)
    assert arm.guard.flight.code == "start" and "joint_vel[0] is 0.1" in arm.guard.flight.reason
    assert arm.guard.flight.sent == 0 and "the robot must rest first" in arm.guard.flight.reason
    arm.run(1.0)  # who moves though no command is known of, does what an earlier guard said last
    assert arm.guard.mode == "holding" and np.abs(arm.speed).max() < 2e-3


@pytest.mark.parametrize(("command", "late_s", "flies"), [
    ("joint_effort_cmd", 0.01, True), ("joint_effort_cmd", 0.02, False), ("joint_vel_cmd", 0.2, True)])
def test_an_effort_is_not_made_of_a_state_that_was_late_before_it_came(lockstep, monkeypatch, command, late_s, flies):
    """What is little for a speed is much for what a velocity is multiplied with."""
    monkeypatch.setattr(Arm, "late_s", late_s)
    arm = Arm(lockstep, command)
    arm.run(0.3, np.zeros(7))
    assert (arm.guard.mode == "active", bool(arm.sent)) == (flies, flies)


def test_a_guard_that_fails_leaves_no_effort(lockstep):
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(1.2, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    arm.guard.rescue(ValueError("a test"))
    arm.own.wait(0.0)
    assert not arm.sent[-1].any()


@pytest.mark.parametrize("lie", [0.0, 1.0])
def test_a_velocity_that_lies_stops_an_arm_and_pushes_it_nowhere(lockstep, lie):
    """Said to be at rest it was pushed faster and faster; said to be fast, braked the other way for ever."""
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(0.3, np.zeros(7))
    arm.lie = np.array([lie, 0, 0, 0, 0, 0, 0])
    arm.run(1.0, np.array([20.0, 0, 0, 0, 0, 0, 0]))
    assert arm.guard.flight.code == "speeds" and not arm.sent[-1].any()
    assert np.abs(arm.speed).max() < 4.0


def test_speeds_are_not_limited_by_a_place_that_stands(lockstep):
    """The ends of the range are kept by where the joints are: a place that stands says that there is room for ever."""
    arm = Arm(lockstep, "joint_vel_cmd")
    arm.run(0.1, np.zeros(7))
    arm.stands = arm.place
    before = arm.place
    arm.run(2.0, np.where(np.isin(np.arange(7), (0, 4, 6)), arm.spec.high, 0.0))
    assert (arm.guard.mode, arm.guard.flight.code) == ("holding", "frozen") and not arm.sent[-1].any()
    assert np.abs(arm.place - before).max() < 0.5  # rad, most of it on the way to rest; unseen it was 9 beyond the end


def test_a_frozen_velocity_does_not_brake(lockstep):
    arm = Arm(lockstep, "joint_effort_cmd")
    arm.run(1.5, PULLS["joint_effort_cmd"] * np.array([1, 0, 0, 0, 0, 0, 0]))
    arm.frozen = {"joint_pos": arm.place, "joint_vel": arm.speed, "joint_torque": np.ones(7)}
    arm.run(1.0, np.zeros(7))
    assert arm.guard.flight.code in ("frozen", "speeds") and arm.speed[0] > -0.7
    assert not arm.sent[-1].any()


class Tracked(Arm):
    """Beside the joints, a tracker says where a cube is: no rule reads that."""

    extra = {**CUBE, "states": [{**CUBE["states"][0], "rate_hz": 20}]}
    cube_late_s: float | None = 0.0  # None: it has died

    def publish(self) -> None:
        *joints, (cube, endpoint) = self.states
        self.states = joints
        super().publish()
        self.states = [*joints, (cube, endpoint)]
        if self.cube_late_s is not None and round(self.own.monotonic() / TICK) % 10 == 0:
            signals = {"cube_pos_w": self.rng.normal(size=3), "cube_quat_w": np.array([1.0, 0.0, 0.0, 0.0])}
            stamp = self.own.now() - round(1e9 * self.cube_late_s)
            message = STATE_CODECS[cube.codec].encode(signals, stamp, ("world", "arm"), cube.options)
            self.own.publish(endpoint, messages.encode(cube.type, message))


@pytest.mark.parametrize(("late_s", "code"), [(None, "stale"), (-0.7, "stamps")])
def test_a_tracker_that_dies_or_whose_clock_is_set_does_not_keep_the_stop_from_braking(lockstep, late_s, code):
    """It stops the arm, for the policy reads it; the joints' velocities, which damp, are as good as ever."""
    arm = Tracked(lockstep, "joint_effort_cmd")
    arm.run(1.5, PULLS["joint_effort_cmd"] * np.array([1, 0, 0, 0, 1, 0, 1]))
    assert arm.guard.mode == "active" and np.abs(arm.speed).max() > 0.15
    arm.cube_late_s = late_s
    arm.run(1.5, PULLS["joint_effort_cmd"] * np.array([1, 0, 0, 0, 1, 0, 1]))
    assert (arm.guard.mode, arm.guard.flight.code) == ("holding", code)
    assert np.abs(arm.speed).max() < 2e-3


def test_efforts_that_come_too_seldom_to_damp_are_refused():
    found = load_interface(ROBOT, "forward_effort").safety
    with pytest.raises(SafetyError, match="shake the robot"):
        profile(ROBOT, found, ROBOT.command("joint_effort_cmd"), 0.04)


def test_who_falls_silent_is_slowed_at_once(arm):
    """Before the guard gives the controller up (0.12 s) it makes speeds and efforts less: a place would be kept."""
    arm.run(1.2, PULLS[arm.spec.name] * np.array([1, 0, 0, 0, 1, 0, 1]))
    before = np.abs(arm.speed).max()
    arm.run(0.1)
    assert arm.guard.mode == "active" and arm.guard.flight.bridged > 0
    assert np.abs(arm.speed).max() < 0.8 * before
    arm.run(0.5)
    assert arm.guard.mode in ("stopping", "holding") and "the controller has proposed" in arm.guard.flight.reason
    assert np.abs(arm.speed).max() < 0.05


def test_an_effort_is_not_made_of_a_state_that_a_speed_may_be_made_of(arm):
    """What damps is the velocity: 40 ms old it pushes."""
    arm.run(0.5, np.zeros(7))
    now = arm.own.monotonic()
    arm.controller.send(Proposal(datagrams.COMMAND, 1, arm.step + 1, 5, now - 0.04, now - 0.04, np.zeros(7)))
    arm.run(0.01)
    assert (arm.guard.flight.code == "stale") == arm.pushes


def test_links_that_would_come_together_stop_it(lockstep):
    arm = Arm(lockstep, "joint_vel_cmd")
    arm.run(0.1, np.zeros(7))
    arm.run(4.0, [0, -0.5, 0, -1.0, 0, -1.0, 0])  # it curls up
    assert arm.guard.flight.action == "damp" and "would come to" in arm.guard.flight.reason
    assert abs(arm.speed).max() < 1e-6
    clear, _ = arm.guard.stream.nearness.distance(arm.place)
    assert clear > 0.015


@pytest.mark.parametrize("curls", [True, False])
def test_a_tools_velocity_that_leads_links_together_is_stopped_by_where_the_joints_go(lockstep, monkeypatch, curls):
    """Servo makes speeds of the joints out of it, which nobody but Servo and the state knows."""
    monkeypatch.setattr(Arm, "led_by_hand", True)
    arm = Arm(lockstep, "tool_vel_cmd", tracking=None)
    arm.run(0.1, np.zeros(6))
    for k in range(200):
        arm.speed = min(0.01 * k, 1.0) * np.array([0, -0.5, 0, -1.0, 0, -1.0, 0]) * (1.0 if curls else -0.2)
        arm.run(DT, np.zeros(6))
        if arm.guard.mode != "active":
            break
    assert (arm.guard.flight.code == "collision") == curls
    if curls:
        assert arm.guard.flight.action == "damp" and "would come to" in arm.guard.flight.reason
        clear, _ = arm.guard.stream.nearness.distance(arm.place + 0.5 * arm.speed**2 / 4.0 * np.sign(arm.speed))
        assert clear > 0.0


def test_a_velocity_that_lies_does_not_hide_where_a_tool_leads_the_joints(lockstep, monkeypatch):
    monkeypatch.setattr(Arm, "led_by_hand", True)
    arm = Arm(lockstep, "tool_vel_cmd", tracking=None)
    arm.run(0.1, np.zeros(6))
    for _ in range(100):
        arm.speed = 0.5 * np.array([0, -0.5, 0, -1.0, 0, -1.0, 0])
        arm.lie = 1e-4 * arm.rng.normal(size=7)
        arm.run(DT, np.zeros(6))
        if arm.guard.mode != "active":
            break
    assert arm.guard.flight.code == "speeds" and arm.guard.stream.nearness.distance(arm.place)[0] > 0.02


def within_the_margin():
    """A place where links are nearer to each other than they may come."""
    found = profile(ROBOT, load_interface(ROBOT, "moveit_servo").safety, ROBOT.command("tool_vel_cmd"), DT)
    rule, place = found.self_collision, HOME.copy()
    for _ in range(4000):
        place = np.clip(place + 0.001 * np.array([0, -0.5, 0, -1.0, 0, -1.0, 0]), np.array(rule.low) + 0.12,
                        np.array(rule.high) - 0.12)
        if rule.capsules.distance(place)[0] < 0.0195:
            return place
    raise AssertionError("no such place")


@pytest.mark.parametrize("command", ["tool_vel_cmd", "joint_effort_cmd"])
def test_who_begins_with_links_too_near_may_lead_them_apart_but_not_nearer(lockstep, monkeypatch, command):
    """The sensors' noise stopped it after a command, and after every reset again."""
    monkeypatch.setattr("tests.bridge.guard.test_rates.HOME", within_the_margin())
    monkeypatch.setattr(Arm, "led_by_hand", True)
    arm = Arm(lockstep, command, **({"tracking": None} if command == "tool_vel_cmd" else {}))
    arm.run(0.4, np.zeros(arm.spec.size))
    assert arm.guard.mode == "active", arm.guard.flight.reason
    for _ in range(40):
        arm.speed = 0.2 * np.array([0, -0.5, 0, -1.0, 0, -1.0, 0])
        arm.run(DT, np.zeros(arm.spec.size))
    assert arm.guard.flight.code == "collision"


def test_where_joints_would_rest_is_within_their_range():
    found = profile(ROBOT, load_interface(ROBOT, "moveit_servo").safety, ROBOT.command("tool_vel_cmd"), DT)
    rule, speed = found.self_collision, 0.5 * np.ones(7)
    near = {"joint_pos": np.array(rule.high) - 0.05, "joint_vel": speed}
    assert (rests(found, found.limits, at_rest(np.zeros(6)), near) == rule.high).all()
    far = {"joint_pos": np.array(rule.low) + 0.5, "joint_vel": speed}
    assert rests(found, found.limits, at_rest(np.zeros(6)), far) == pytest.approx(
        far["joint_pos"] + 0.15 * 0.5 + 0.5 * 0.25 / np.array(rule.brake))


def test_an_arm_that_does_not_follow_its_speed_is_stopped(lockstep):
    arm = Arm(lockstep, "joint_vel_cmd")
    arm.run(0.8, [0.3] + [0.0] * 6)
    arm.blocked = True
    arm.run(1.0, [1.4] + [0.0] * 6)
    assert "from its command" in arm.guard.flight.reason


def test_a_reason_to_stop_an_effort_that_nobody_sees_is_none():
    """Of a stale state nobody knows the velocity: no effort, rather than one against a speed that is gone."""
    found = profile(ROBOT, load_interface(ROBOT, "forward_effort").safety, ROBOT.command("joint_effort_cmd"), DT)
    assert not damping(found, ROBOT.command("joint_effort_cmd"), None).any()
    moving = damping(found, ROBOT.command("joint_effort_cmd"), {"joint_vel": np.array([0.5, 0, 0, 0, 0, 0, -1.0])})
    assert moving.tolist() == [-15.0, 0, 0, 0, 0, 0, 5.0]


class Tracking(Arm):
    """Besides its joints there is a cube, which a tracker sees 20 times a second, 60 ms ago."""

    extra = {"definitions": {}, "signals": {"cube_pos_w": {"shape": [3], "unit": "m", "frame": "w"}}, "states": [{
        "topic": "cube", "type": "geometry_msgs/msg/PointStamped", "codec": "point", "rate_hz": 20, "qos": "sensor",
        "options": {"signal": "cube_pos_w", "frame": None}}]}
    ticks, sees = 0, True

    def publish(self) -> None:
        arm, cube = self.states[0], self.states[-1]
        self.states = [arm]
        super().publish()
        self.states = [arm, cube]
        if self.sees and self.ticks % round(0.05 / TICK) == 0:
            topic, endpoint = cube
            message = STATE_CODECS[topic.codec].encode(
                {"cube_pos_w": self.rng.normal(size=3)}, self.own.now() - 60_000_000, ("world", "arm"), topic.options)
            self.own.publish(endpoint, messages.encode(topic.type, message))
        self.ticks += 1


def test_what_no_rule_reads_need_not_be_as_fresh_as_what_damps(lockstep):
    """Efforts ask 30 ms of the joints, and stamps of 15 ms: of a cube that would stop a robot that is well."""
    arm = Tracking(lockstep, "joint_effort_cmd")
    arm.run(1.0, PULLS[arm.spec.name])
    assert arm.guard.mode == "active", arm.guard.flight.reason
    arm.sees = False  # but nor may it be missed for ever
    arm.run(0.2, PULLS[arm.spec.name])
    assert arm.guard.flight.code == "stale" and "0.100 s is allowed" in arm.guard.flight.reason


def test_what_damps_must_be_as_fresh_as_before(lockstep):
    arm = Tracking(lockstep, "joint_effort_cmd")
    arm.run(0.5, PULLS[arm.spec.name])
    arm.late_s = 0.02
    arm.run(0.03, PULLS[arm.spec.name])
    assert arm.guard.flight.code == "stamps" and "0.015 s is allowed" in arm.guard.flight.reason
