"""The guard of an arm: a ramped start from where it is, motion within limits, and every way of coming to rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.motion.rate_limiter import at_rest
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("franka")
HOME = np.array(ROBOT.home["joint_pos"])
PERIOD, NEAR = 0.04, 1e-6  # s, of commands; rad: what its sensors' noise and float32 are worth
MANIFEST = Manifest(
    name="arm", robot="franka", signals=(ROBOT.signals["joint_pos"],), commands=(ROBOT.command("joint_pos_cmd"),),
    rate_hz=25.0, memory=(), formula="G[0,10] (joint_pos[0] < 3)", constants={}, horizon_s=10.0, stop="ramp",
    training={}, versions={}, seed=0, git_revision="test", created="2026-01-01T00:00:00Z", files={})


class Arm:
    """A guard, a controller, and an arm that follows at once unless it is ``blocked``."""

    def __init__(
        self, lockstep: Any, interface: str = "franka_ros2", fence: bool = True, awake: bool = False, **changes: Any
    ) -> None:
        self.lockstep = lockstep
        found = load_interface(ROBOT, interface)
        own = {**found.safety["commands"]["joint_pos_cmd"], **changes}
        fenced = {} if fence else {"geofence": None}
        jump = {"joint_pos": 0.2}  # it follows at once: its velocity leaps
        self.interface = replace(
            found, safety={**found.safety, **fenced, "jump": jump, "commands": {"joint_pos_cmd": own}})
        self.own = MemoryTransport(lockstep.bus, "peer", "/arm")
        ends = linked()
        self.controller = ends[0]
        transport = MemoryTransport(lockstep.bus, "guard_node", "/arm")
        self.guard = lockstep.add(transport, GuardNode(
            transport, MANIFEST, ROBOT, self.interface, ends[1], GuardOptions(awake=awake)))
        self.topic = self.interface.command("joint_pos_cmd")
        self.codec = COMMAND_CODECS[self.topic.codec]
        self.sent: list[np.ndarray] = []
        self.messages: list[Any] = []
        self.modes: list[str] = []
        self.own.subscribe(self.topic.topic, self.topic.type, QOS["deep"], self._take)
        self.own.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"], lambda r: self.sent.append(
            CommandRecord.of(messages.decode(r.type, r.data).data).sent))
        self.own.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], lambda r: self.modes.append(
            messages.decode(r.type, r.data).frame_id))
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS["default"])) for s in self.interface.states]
        self.reset = self.own.advertise("mission/reset", "std_msgs/msg/Empty", QOS["default"])
        self.rng, self.position, self.blocked, self.step = np.random.default_rng(0), HOME.copy(), False, -1
        self.before, self.unit = self.position.copy(), 1.0  # of its velocity
        self.stands: float | None = None  # what is read of joint 1, for ever

    def _take(self, received: Any) -> None:
        message = messages.decode(received.type, received.data)
        self.messages.append(message)
        if not self.blocked:
            self.position = self.codec.decode(message, self.topic.options).copy()

    def publish(self) -> None:
        """One state at 100 Hz: where it is, and how fast it came there, with the noise that sensors have."""
        speed = (self.position - self.before) / 0.01
        said = self.position + 1e-7 * self.rng.normal(size=7)
        if self.stands is not None:
            said[0] = self.stands
        signals = {"joint_pos": said, "joint_vel": self.unit * speed + 1e-3 * self.rng.normal(size=7),
                   "joint_torque": self.rng.normal(size=7)}
        self.before = self.position.copy()
        for topic, endpoint in reversed(self.states):
            message = STATE_CODECS[topic.codec].encode(signals, self.own.now(), ("world", "arm"), topic.options)
            self.own.publish(endpoint, messages.encode(topic.type, message))

    def propose(self, command: Any) -> None:
        self.step += 1
        now = self.own.monotonic()
        self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, np.asarray(command, dtype=float)))

    def run(self, seconds: float, command: Any = None, states: bool = True) -> None:
        """Let time pass; ``command``: None, or what is proposed every 40 ms (a function of the step)."""
        for k in range(round(seconds / 0.01)):
            if states:
                self.publish()
            if command is not None and k % 4 == 0:
                self.propose(command(self.step + 1) if callable(command) else command)
            self.lockstep.run(0.01)
            self.own.wait(0.0)

    def begin(self) -> None:
        self.controller.send(Proposal(datagrams.HELLO, text=identity(MANIFEST)))
        self.run(0.1)
        assert self.mode == "ready"
        self.controller.send(Proposal(datagrams.BEGIN, 1, -1, 5))

    @property
    def mode(self) -> str:
        return self.modes[-1].split()[0]


def swinging(step: int) -> np.ndarray:
    """A policy's commands: a slow swing of all joints about home, in phase with home at step 0."""
    return HOME + 0.3 * np.sin(0.06 * step) * np.ones(7)


@pytest.fixture
def arm(lockstep):
    made = Arm(lockstep)
    made.begin()
    return made


@pytest.fixture
def moving(arm):
    arm.run(3.0, swinging)
    assert arm.mode == "active"
    return arm


def kept(arm: Arm) -> bool:
    """Whether every command kept every limit of place, speed, acceleration and jerk (positions cross as float64)."""
    limits, rows = arm.guard.config.limits, np.array([HOME] * 3 + arm.sent)
    # what a difference of commands near 3 rad can be off by, in rad: speeds divide it by dt, jerks by its cube
    good, slack = bool((rows >= limits.low).all() and (rows <= limits.high).all()), 8 * np.finfo(float).eps
    for limit in (limits.speed, limits.acceleration, limits.jerk):
        rows, slack = np.diff(rows, axis=0) / PERIOD, slack / PERIOD
        good &= bool((np.abs(rows) <= limit * (1 + 1e-9) + slack).all())
    return good


def test_it_begins_where_the_arm_is_and_ends_up_with_the_policy(moving):
    asked = np.array([swinging(k) for k in range(len(moving.sent))])
    assert np.abs(moving.sent[0] - HOME).max() < 1e-3
    assert np.abs(moving.sent[-1] - asked[-1]).max() < 1e-6  # faded in: nothing of the ramp is left
    assert kept(moving)


@pytest.mark.parametrize("interface", ["franka_ros2", "forward_position"])
def test_rehearsing_changes_no_command(interface, lockstep_of):
    """Each step is done before its turn, once more and for nothing: what is sent is the same in every bit."""
    arms, rehearsed = [], []
    for awake in (False, True):
        arms.append(arm := Arm(lockstep_of(Bus()), interface, awake=awake))
        before = arm.guard._rehearse
        arm.guard._rehearse = lambda now, before=before: (rehearsed.append(arm.own.monotonic()), before(now))
        arm.begin()
        arm.run(1.0, swinging)
        arm.run(0.5, lambda step: swinging(step) + (0.5 if step % 7 == 0 else 0.0))  # some that are limited
    assert np.array_equal(arms[0].sent, arms[1].sent) and len(arms[0].sent) > 30
    assert arms[0].guard.flight.limited == arms[1].guard.flight.limited > 0
    assert 30 < len(rehearsed) <= len(arms[1].sent)  # by the second arm alone


def test_a_rehearsal_that_fails_is_nobodys_reason(moving):
    moving.guard.forwarder.asked = np.zeros(3)  # of no arm
    with pytest.raises(ValueError):
        moving.guard.forwarder.limited(moving.guard.forwarder.asked, moving.guard.flight, moving.own.monotonic())
    moving.guard._rehearse(moving.own.monotonic())
    moving.run(0.2, swinging)
    assert moving.mode == "active"


def test_a_policy_that_begins_far_away_is_refused_before_anything_is_sent(arm):
    arm.run(0.1, HOME + 0.5)
    assert arm.sent == [] and arm.mode == "stopped"
    reason = arm.guard.flight.reason
    assert "first command is too far" in reason and "is 0.5 from its command" in reason


def test_an_arm_outside_its_soft_limits_is_refused(lockstep):
    arm = Arm(lockstep)
    arm.position[3] = ROBOT.command("joint_pos_cmd").high[3] - 0.001
    arm.begin()
    arm.run(0.1, arm.position)
    reason = arm.guard.flight.reason
    assert arm.sent == [] and "joint_pos[3]" in reason and "move the robot inside" in reason


def test_a_leap_of_the_policy_becomes_a_motion_within_limits(moving):
    target = HOME + np.array([1.0, 0.5, -1.0, 0.5, 1.0, -0.5, -1.0])
    moving.run(3.0, target)
    assert moving.sent[-1] == pytest.approx(target, abs=1e-6) and kept(moving)
    assert moving.guard.flight.limited > 10


def test_random_nonsense_never_leaves_the_limits(moving):
    rng = np.random.default_rng(3)
    for _ in range(400):
        moving.run(PERIOD, rng.normal(HOME, rng.choice([0.01, 1.0, 100.0])))
        if moving.mode != "active":
            break
    assert len(moving.sent) > 400 and kept(moving)


def test_a_silent_controller_ends_in_a_ramp_to_rest_and_is_held(moving):
    speed = (moving.sent[-1] - moving.sent[-2]) / PERIOD
    before, count = moving.sent[-1], len(moving.sent)
    moving.run(1.5)
    assert moving.guard.flight.code == "silent" and moving.guard.flight.action == "ramp" and moving.mode == "holding"
    assert moving.sent[-1] == pytest.approx(moving.sent[-10], abs=0) and len(moving.sent) - count > 30
    way = moving.sent[-1] - before
    moves = np.abs(speed) > 0.05
    assert moves.any() and (way * speed >= 0).all()  # on, not back
    assert (np.abs(way) <= speed**2 / (2 * 6.0) + 3 * np.abs(speed) * PERIOD + 1e-6).all() and kept(moving)


def test_in_a_gap_of_the_controller_the_commands_go_on_towards_rest(moving):
    """A trajectory that was sent ends at rest: what comes after a gap must not jump back to where the gap began."""
    moving.run(1.0, lambda step: moving.sent[-1] + 0.05)  # at speed
    moving.run(0.08)  # two periods without a proposal: not yet silent
    bridged = moving.guard.flight.bridged
    assert moving.mode == "active" and bridged in (1, 2)
    moving.run(0.5, lambda step: moving.sent[-1])
    assert moving.mode == "active" and moving.guard.flight.bridged == bridged
    way = np.diff([command[0] for command in moving.sent[-20:]])
    assert (way >= -1e-9).all() and kept(moving)


def test_a_guard_that_stood_still_stops_where_the_arm_is_by_then(moving):
    """The arm has gone on along its last trajectory for 4.25 periods, in which three commands were missed: the next one
    goes on from there, though more than one rule asks where that is."""
    moving.run(0.4, HOME + 1.0)  # at speed
    told, count = moving.messages[-1].points, len(moving.messages)
    moving.lockstep.bus.advance(0.17 - PERIOD)
    moving.run(1.0)
    assert moving.guard.flight.code == "guard" and moving.mode == "holding"
    for after, point in zip(moving.messages[count:], told[4:]):
        assert np.abs(np.subtract(after.points[0].positions, point.positions)).max() < 1e-9
    assert len(told) > 6


def test_without_a_state_it_still_comes_to_rest_within_limits(moving):
    moving.run(0.9, swinging, states=False)
    assert moving.guard.flight.code == "stale" and moving.mode == "holding" and kept(moving)


def test_who_would_hold_but_does_not_know_where_the_arm_is_comes_to_rest_on_its_way(lockstep):
    """The last measured place is a tenth of a second behind: to hold there would be to turn back."""
    arm = Arm(lockstep, stop={"default": "hold"})
    arm.begin()
    arm.run(0.8, HOME)
    arm.run(0.4, HOME + 1.0)  # at speed
    count = len(arm.sent)
    arm.run(0.9, HOME + 1.0, states=False)
    assert arm.guard.flight.code == "stale" and len(arm.guard.active_stop.unheld) == 7 and arm.mode == "holding"
    assert (np.diff(arm.sent[count:], axis=0) >= -1e-12).all() and kept(arm)


def test_an_arm_that_was_pushed_over_its_soft_limit_is_held_at_it(lockstep):
    arm = Arm(lockstep, stop={"default": "hold"})
    edge = arm.guard.config.limits.high[3]
    arm.position[3] = edge - 0.01
    arm.begin()
    arm.run(0.8, arm.position.copy())
    arm.blocked = True
    arm.position[3] = edge + 0.02
    arm.run(0.5)
    assert arm.guard.flight.code == "silent" and arm.mode == "holding"
    assert arm.sent[-1][3] == edge


def test_a_blocked_arm_is_held_where_it_is_measured(moving):
    """Not at its command: a servo that goes on pulling is what hurts."""
    moving.blocked = True
    stuck = moving.position.copy()
    moving.run(4.0, lambda step: stuck + min(0.02 * (step - 75), 0.6))
    assert moving.guard.flight.code == "tracking" and moving.guard.flight.action == "hold" and moving.mode == "holding"
    assert moving.sent[-1] == pytest.approx(stuck, abs=1e-6) and kept(moving)


def blocked(arm: Arm) -> list[Any]:
    """Joint 1 is blocked in motion and told to go on, 0.18 rad, which `tracking` allows; the events since then."""
    events: list[Any] = []
    arm.own.subscribe("guard/event", "std_msgs/msg/String", QOS["deep"], lambda r: events.append(
        json.loads(messages.decode(r.type, r.data).data)))
    arm.run(0.8, leading)
    arm.blocked = True
    arm.run(0.32, leading)
    assert arm.mode == "active" and behind(arm) > 0.15
    return events


def leading(step: int) -> np.ndarray:
    return HOME + 0.02 * step * np.eye(7)[0]


def behind(arm: Arm) -> float:
    return float(np.abs(arm.sent[-1] - arm.position).max())


@pytest.mark.parametrize("why", ["operator", "silent", "end"])
def test_whom_an_arm_is_blocked_by_is_not_pressed_on_after_its_stop(arm, why):
    """It went on to press, for ever, with all that its servos have (0.19 rad; saturated from 0.029 rad on)."""
    events = blocked(arm)
    if why == "operator":
        arm.own.publish(arm.own.advertise("mission/stop", "std_msgs/msg/Empty", QOS["default"]), messages.empty())
    elif why == "end":
        arm.controller.send(Proposal(datagrams.END, 1, arm.step + 1, 5, text="stop"))
    arm.run(2.0)
    assert arm.guard.flight.action == "ramp" and arm.mode == ("finished" if why == "end" else "holding")
    assert behind(arm) < NEAR and kept(arm)
    told, = (event["reason"] for event in events if event["code"] == "held")
    assert "components [0] did not come" in told
    count = len(arm.sent)
    arm.run(0.5)
    assert (len(arm.sent) == count) == (why == "end") and behind(arm) < NEAR


def test_where_nobody_knows_where_a_blocked_arm_is_it_stays_where_it_was_sent_until_that_is_known(arm):
    events = blocked(arm)
    arm.run(0.9, states=False)
    assert arm.guard.flight.code in ("silent", "stale") and arm.mode == "holding" and behind(arm) > 0.15
    assert "held" not in [event["code"] for event in events]
    arm.run(1.5)
    assert arm.mode == "holding" and behind(arm) < NEAR


def test_an_arm_that_is_pushed_while_it_is_kept_gives_way_but_for_a_moment(moving):
    moving.run(1.5)
    assert moving.mode == "holding"
    place, moving.blocked = moving.sent[-1], True
    for push, gives in ((0.3, False), (0.6, True)):
        moving.position = place + 0.1 * np.eye(7)[1]
        moving.run(push)
        moving.position = place + (0.1 * np.eye(7)[1] if gives else 0.0)
        moving.run(1.0)
        assert moving.sent[-1] == pytest.approx(moving.position, abs=NEAR) and moving.mode == "holding"


def test_somebody_who_struggles_is_given_way_to(moving):
    """He comes free for a moment again and again: each time the count began anew, and the arm pressed on."""
    moving.run(1.5)
    place, moving.blocked = moving.sent[-1], True
    for k in range(6):
        moving.position = place + 0.1 * np.eye(7)[1]
        moving.run(0.32)
        moving.position = place if k < 5 else moving.position
        moving.run(0.08)
    assert moving.mode == "holding" and moving.sent[-1][1] == pytest.approx(place[1] + 0.1, abs=NEAR)


def test_an_arm_whose_reading_stands_is_not_led_back_there(lockstep):
    """Its velocity says that it moves: `tracking` held it 0.66 rad back, where it had not been for half a second."""
    arm = Arm(lockstep)
    arm.begin()
    arm.run(0.8, lambda step: HOME + 0.05 * step * np.eye(7)[0])
    arm.stands = float(arm.position[0])
    arm.run(0.7, lambda step: HOME + 0.05 * step * np.eye(7)[0])
    stopped = arm.position[0]
    assert arm.guard.flight.code == "speeds" and stopped - arm.stands > 0.05
    arm.run(1.5)
    assert arm.mode == "holding" and arm.position[0] >= stopped and kept(arm)


def test_held_until_reset_then_it_is_let_go(moving):
    moving.run(1.5)
    moving.own.publish(moving.reset, messages.empty())
    moving.controller.send(Proposal(datagrams.HELLO, text=identity(MANIFEST)))
    moving.run(0.1)
    count = len(moving.sent)
    moving.run(0.5)
    assert moving.mode == "ready" and len(moving.sent) == count


def test_every_trajectory_ends_at_rest(moving):
    """If everything dies after this message, the arm's own controller brings it to rest, within the same limits."""
    fastest = max(moving.messages, key=lambda m: np.abs(m.points[0].velocities).max())
    assert len(fastest.points) > 2 and not np.any(fastest.points[-1].velocities)
    for message in moving.messages:
        assert not np.any(message.points[-1].velocities)
        ends = np.array([p.positions for p in message.points])
        assert (ends >= moving.guard.config.limits.low).all() and (ends <= moving.guard.config.limits.high).all()


def test_a_forward_controller_gets_positions(lockstep):
    arm = Arm(lockstep, "forward_position")
    arm.begin()
    arm.run(3.0, swinging)
    assert arm.sent[-1] == pytest.approx(swinging(arm.step), abs=1e-6)


SERVOS = {"position": "joint_pos", "velocity": "joint_vel", "kp": 1000.0, "kd": 0.0, "limit": 50.0}
LOOSE = {"signal": "joint_pos", "error": 10.0, "after_s": 0.2}
MOST = 50.0 + 1e-3  # N m: signals are float32


def test_no_servo_is_asked_for_more_effort_than_it_may(lockstep):
    """kp (command - position) within the limit: a blocked arm is pushed with that, and no more."""
    arm = Arm(lockstep, "forward_position", effort=SERVOS, tracking=LOOSE)
    arm.begin()
    arm.run(2.0, HOME)
    arm.blocked = True
    stuck = arm.position.copy()
    arm.run(2.0, stuck + 0.3)
    assert arm.mode == "active" and np.abs(arm.sent[-1] - stuck).max() == pytest.approx(0.05, abs=1e-6)


def test_of_a_trajectory_no_effort_is_promised(lockstep):
    """A blocked arm would be pushed by the points behind the first one, which no state says anything of yet."""
    with pytest.raises(SafetyError, match="effort needs an interface whose command is the servos' setpoint"):
        Arm(lockstep, "franka_ros2", effort=SERVOS)


def asked(arm: Arm) -> float:
    """The greatest effort [N m] that the last command asks of a servo."""
    return float(np.abs(1000.0 * (arm.sent[-1] - arm.position)).max())


def pushed(arm: Arm, propose: bool) -> list[float]:
    """Joint 4 is pushed away by 0.15 rad in 0.1 s and kept there: the effort asked for by each command meanwhile."""
    arm.blocked, here, worst = True, arm.position.copy(), []
    for k in range(30):
        arm.position = here + np.eye(7)[3] * min(0.015 * (k + 1), 0.15)
        before = len(arm.sent)
        if propose and k % 4 == 0:
            arm.propose(swinging(arm.step + 1))
        arm.run(0.01)
        worst += [asked(arm)] if len(arm.sent) > before else []
    return worst


@pytest.fixture
def servoed(lockstep):
    arm = Arm(lockstep, "forward_position", effort=SERVOS, tracking=LOOSE)
    arm.begin()
    arm.run(3.0, swinging)
    return arm


def test_an_arm_that_is_pushed_away_takes_its_command_along(servoed):
    """However fast: from there on the command keeps the limits of motion again."""
    worst = pushed(servoed, propose=True)
    assert servoed.mode == "active" and len(worst) > 5 and max(worst) <= MOST and max(worst) > 49.0
    assert not kept(servoed)
    servoed.blocked, count = False, len(servoed.sent)
    servoed.run(2.0, lambda step: swinging(100))
    assert servoed.sent[-1] == pytest.approx(swinging(100), abs=1e-6)
    assert (np.abs(np.diff(servoed.sent[count:], 2, axis=0)) <= 6.0 * PERIOD**2 + 1e-9).all()


@pytest.mark.parametrize("action", ["ramp", "hold"])
def test_an_arm_that_is_kept_pulls_no_harder_than_it_may(lockstep, action):
    arm = Arm(lockstep, "forward_position", effort=SERVOS, tracking=LOOSE, stop={"default": action}, fence=False)
    arm.begin()
    arm.run(2.0, HOME)
    arm.own.publish(arm.own.advertise("mission/stop", "std_msgs/msg/Empty", QOS["default"]), messages.empty())
    arm.run(1.0)
    worst = pushed(arm, propose=False)
    assert len(worst) > 5 and max(worst) <= MOST
    arm.run(1.0)
    assert asked(arm) <= MOST and arm.mode == "holding"


def test_in_a_gap_of_the_controller_no_servo_is_asked_for_more_either(servoed):
    servoed.blocked, worst = True, []
    for _ in range(5):
        servoed.position, before = servoed.position - 0.03, len(servoed.sent)
        servoed.run(0.01)
        worst += [asked(servoed)] if len(servoed.sent) > before else []
    assert servoed.mode == "active" and servoed.guard.flight.bridged and 49.0 < max(worst) <= MOST


@pytest.mark.parametrize("unit", [57.3, 0.0])
def test_a_velocity_that_is_none_stops_the_robot_and_leads_no_command(servoed, unit):
    """In degrees per second, or always 0: the way to rest is that of a robot that nobody sees."""
    servoed.unit, servoed.blocked = unit, True
    while servoed.mode == "active" and servoed.guard.stream.motion.command[3] < 0.0:
        servoed.position = servoed.position + 0.015 * np.eye(7)[3]
        servoed.run(0.01, swinging)
    assert servoed.guard.flight.code == "speeds"
    count = len(servoed.sent)
    servoed.position = servoed.position + 0.1  # after that its velocity is right again: it has lied, all the same
    servoed.run(0.5)
    after = np.array(servoed.sent[count:])
    assert (np.abs(np.diff(after, axis=0)) <= servoed.guard.config.limits.speed * PERIOD + 1e-9).all()
    assert (np.abs(np.diff(after, 2, axis=0)) <= 6.0 * PERIOD**2 + 1e-9).all() and np.ptp(after[-5:], axis=0).max() == 0


def test_the_next_mission_believes_the_velocity_again(servoed):
    servoed.unit, servoed.blocked = 0.0, True
    while servoed.mode == "active" and servoed.guard.stream.motion.command[3] < 0.0:
        servoed.position = servoed.position + 0.015 * np.eye(7)[3]
        servoed.run(0.01, swinging)
    assert servoed.guard.flight.code == "speeds" and servoed.guard.monitor.disagreed
    servoed.unit, servoed.blocked = 1.0, False
    servoed.run(1.0)
    servoed.own.publish(servoed.reset, messages.empty())
    servoed.controller.send(Proposal(datagrams.HELLO, text=identity(MANIFEST)))
    servoed.run(0.2)
    servoed.controller.send(Proposal(datagrams.HELLO, text=identity(MANIFEST)))
    servoed.controller.send(Proposal(datagrams.BEGIN, 2, -1, 6))
    servoed.run(0.1)
    assert servoed.modes[-1] == "active 2" and not servoed.guard.monitor.disagreed
    servoed.guard.stream.motion = at_rest(servoed.position.copy())
    servoed.guard.modes.stop("operator", "a test")
    assert max(pushed(servoed, propose=False)) <= MOST


def test_a_state_that_leapt_leads_no_command(servoed):
    """By the window of efforts a hold would go where the state says the robot is."""
    before = len(servoed.sent)
    servoed.blocked, servoed.position = True, servoed.position * 57.3
    servoed.run(0.5, swinging)
    assert servoed.guard.flight.code == "jump" and servoed.mode == "holding"
    assert kept(servoed) and np.abs(servoed.sent[-1] - servoed.sent[before]).max() < 0.1


def test_a_stale_state_says_nothing_of_efforts(servoed):
    servoed.blocked = True
    servoed.run(0.3, swinging, states=False)
    servoed.position = servoed.position - 0.3
    before = servoed.sent[-1]
    servoed.run(0.3, states=False)
    assert servoed.guard.flight.code == "stale" and servoed.mode in ("stopping", "holding")
    assert np.abs(servoed.sent[-1] - before).max() < 0.1


def test_beyond_the_limits_of_place_is_no_command(servoed):
    """Pushed over its soft limit by more than the servo's window: the end itself is the least that can be asked for."""
    servoed.blocked, high = True, servoed.guard.config.limits.high
    servoed.guard.modes.stop("operator", "a test")
    for place in np.linspace(servoed.position[3], high[3] + 0.2, 60):
        servoed.position[3] = place
        servoed.run(0.01)
    servoed.run(0.5)
    assert servoed.sent[-1][3] == high[3] and (np.array(servoed.sent) <= high).all()


def test_an_arm_that_would_hit_itself_comes_to_rest_before(lockstep):
    """Folding up: the flange towards the shoulder, within all joint limits."""
    arm = Arm(lockstep, fence=False)
    arm.begin()
    rule = arm.guard.config.profile.self_collision
    assert rule is not None
    folded = np.array([0.0, 1.0, 0.0, -2.95, 0.0, 3.0, 0.0])
    assert rule.capsules.distance(folded)[0] < rule.margin < rule.capsules.distance(HOME)[0]
    arm.run(10.0, lambda step: HOME + min(step / 150, 1.0) * (folded - HOME))
    assert arm.guard.flight.code == "collision" and "would come to" in arm.guard.flight.reason and arm.mode == "holding"
    assert min(rule.capsules.distance(command)[0] for command in arm.sent) >= rule.margin and kept(arm)


def test_a_first_command_that_is_too_near_is_refused_where_no_start_is_known(lockstep):
    arm = Arm(lockstep, fence=False, start=None)
    arm.position = np.array([0.0, 1.0, 0.0, -2.95, 0.0, 3.0, 0.0])
    arm.begin()
    arm.run(0.1, arm.position.copy())
    assert arm.guard.flight.code == "collision" and arm.sent == []


def test_an_arm_that_is_too_near_to_itself_may_move_away(lockstep):
    arm = Arm(lockstep, fence=False)
    folded = np.array([0.0, 1.0, 0.0, -2.95, 0.0, 3.0, 0.0])
    arm.position = folded.copy()
    arm.begin()
    arm.run(6.0, lambda step: folded + min(step / 100, 1.0) * (HOME - folded))
    assert arm.mode == "active" and arm.sent[-1] == pytest.approx(HOME, abs=1e-3)


def test_the_interface_that_ships_is_what_is_tested(tmp_path: Path) -> None:
    """The rules above are those of robots/franka/ros.yaml, not of this file."""
    own = load_interface(ROBOT).safety["commands"]["joint_pos_cmd"]
    assert own["stop"] == {"default": "ramp", "tracking": "hold"} and set(own) >= {"motion", "tracking", "start"}
