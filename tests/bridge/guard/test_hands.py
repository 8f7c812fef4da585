"""The guard of hands whose fingers press on something: what a stop leaves of the grip."""

from __future__ import annotations

import re
from typing import Any

import mujoco
import numpy as np
import pytest

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.stop_actions import hold
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

HANDS = ("leap_hand", "allegro_hand", "shadow_hand")
PERIOD, TICK, NOISE = 0.05, 0.01, 1e-3  # s: of the policy, of the state; rad
LAG_S, OPENS = 0.06, 4.0  # of fingers behind their command; rad/s, of a policy's command
EMPTY = "std_msgs/msg/Empty"


class Hand:
    """A guard and a controller that closes the fingers, which a thing, or somebody's own finger, blocks at home."""

    def __init__(self, lockstep: Any, name: str) -> None:
        self.robot = load_robot(name)
        self.interface = load_interface(self.robot)
        (command,) = self.interface.commands
        self.spec, self.lockstep = self.robot.command(command), lockstep
        manifest = Manifest(
            name=name, robot=name, signals=(self.robot.signals["joint_pos"],), commands=(self.spec,),
            rate_hz=1 / PERIOD, memory=(), formula="G[0,10] (joint_pos[0] < 9)", constants={}, horizon_s=10.0,
            stop="hold", training={}, versions={}, seed=0, git_revision="test", created="2026-01-01T00:00:00Z",
            files={})
        self.own = MemoryTransport(lockstep.bus, "peer", "/hand")
        self.controller, guarded = linked()
        transport = MemoryTransport(lockstep.bus, "guard_node", "/hand")
        self.guard = lockstep.add(transport, GuardNode(transport, manifest, self.robot, self.interface, guarded))
        self.sent: list[np.ndarray] = []
        self.own.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"], lambda r: self.sent.append(
            CommandRecord.of(messages.decode(r.type, r.data).data).sent))
        self.row = self.interface.states[0]
        self.state = self.own.advertise(self.row.topic, self.row.type, QOS["default"])
        self.stop = self.own.advertise("mission/stop", EMPTY, QOS["default"])
        self.rng, self.step, self.noise = np.random.default_rng(0), -1, NOISE
        self.place = np.array(self.robot.home["joint_pos"], dtype=float)
        self.controller.send(Proposal(datagrams.HELLO, text=identity(manifest)))
        self.run(0.2)
        assert self.guard.mode == "ready"
        self.controller.send(Proposal(datagrams.BEGIN, 1, -1, 5))

    @property
    def at(self) -> np.ndarray:
        """Where the motors are measured [A]."""
        return np.asarray(self.guard.monitor.values[self.guard.config.profile.place]).reshape(-1)

    def publish(self, place: np.ndarray | None = None, stamp: float = 0.0) -> None:
        """One state: the fingers rest where they are blocked, or as the driver says at ``place``, ``stamp`` [s] from
        now."""
        size = len(self.place)
        signals = {"joint_pos": (self.place if place is None else place) + self.noise * self.rng.normal(size=size),
                   "joint_vel": self.noise * self.rng.normal(size=size), "joint_torque": self.rng.normal(size=size)}
        message = STATE_CODECS[self.row.codec].encode(
            signals, self.own.now() + round(1e9 * stamp), ("world", "hand"), self.row.options)
        self.own.publish(self.state, messages.encode(self.row.type, message))

    def run(self, seconds: float, closes: bool = False) -> None:
        for k in range(round(seconds / TICK)):
            self.publish()
            if closes and k % round(PERIOD / TICK) == 0:
                self.step += 1
                now, asked = self.own.monotonic(), self.at + min(0.05 * self.step, 0.8)
                self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, asked))
            self.lockstep.run(TICK)
            self.own.wait(0.0)

    def beyond(self) -> float:
        """How far the last command closes the fingers beyond where they are [rad]."""
        return float(np.max(self.sent[-1] - self.at))


@pytest.fixture(params=HANDS)
def gripping(request, lockstep):
    hand = Hand(lockstep, request.param)
    hand.run(1.5, closes=True)
    assert hand.guard.mode == "active" and hand.beyond() > 0.1, hand.guard.flight.reason
    return hand


def test_the_operators_stop_lets_go_of_what_the_fingers_press_on(gripping):
    """It kept the last command, up to 0.8 rad beyond a finger that is in between, until somebody reset it."""
    count = len(gripping.sent) - 1
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(1.0)
    assert gripping.guard.flight.action == "hold" and gripping.guard.mode == "holding"
    assert np.abs(gripping.sent[-1] - gripping.at).max() < 10 * NOISE
    steps, closes = np.diff(gripping.sent[count:], axis=0), np.asarray(gripping.guard.config.profile.fingers.closes)
    assert (np.abs(steps) <= PERIOD * gripping.guard.config.limits.speed + 1e-6).all()
    assert (np.abs(steps)[:, closes == 0] <= PERIOD * hold.GENTLE + 1e-6).all()
    assert (steps * closes <= PERIOD * hold.GENTLE + 1e-6).all()
    first = next(k for k, sent in enumerate(gripping.sent[count:]) if ((sent - gripping.at) * closes).max() < 0.05)
    assert first * PERIOD <= 0.8 / gripping.guard.config.limits.speed.min() + 0.2  # as fast as the motors may


def test_a_guard_that_is_told_to_end_leaves_no_grip(gripping):
    """The driver holds the last command for ever."""
    gripping.guard.may_end()
    gripping.run(1.0)
    assert gripping.guard.may_end() and np.abs(gripping.sent[-1] - gripping.at).max() < 10 * NOISE


def test_a_controller_that_falls_silent_lets_nothing_fall(gripping):
    grip = gripping.beyond()
    gripping.run(1.0)
    assert (gripping.guard.flight.code, gripping.guard.flight.action) == ("silent", "ramp")
    assert gripping.beyond() == pytest.approx(grip, abs=20 * NOISE)
    gripping.own.publish(gripping.stop, messages.empty())  # the operator may have his finger in the hand
    gripping.run(1.0)
    assert gripping.guard.flight.action == "hold" and gripping.beyond() < 10 * NOISE


def test_a_state_that_leapt_says_nothing_of_where_the_fingers_are(gripping):
    before = gripping.sent[-1]
    gripping.place = gripping.place - 0.7
    gripping.run(0.02)
    assert gripping.guard.flight.code == "jump"
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(1.0)
    assert gripping.guard.active_stop.unheld == list(range(gripping.spec.size))
    assert np.abs(gripping.sent[-1] - before).max() < 0.3


def test_where_a_hand_is_measured_is_what_its_command_says(lockstep):
    """Of the Shadow Hand a J0 is the sum of two joints, which one motor moves."""
    for name in HANDS:
        hand = Hand(lockstep, name)
        assert hand.robot.signals[hand.guard.config.profile.place].shape == hand.spec.shape
        assert np.abs(hand.at - hand.robot.home[hand.guard.config.profile.place]).max() < 10 * NOISE


@pytest.mark.parametrize("name", ["leap_hand", "shadow_hand"])
def test_a_hand_whose_driver_says_the_same_for_ever_is_stopped(lockstep, name):
    hand = Hand(lockstep, name)
    hand.run(0.5, closes=True)
    hand.noise = 0.0
    hand.run(0.9, closes=True)
    assert hand.guard.mode == "active"
    hand.run(0.2, closes=True)
    assert hand.guard.flight.code == "frozen" and hand.guard.flight.action == "ramp"


class Following(Hand):
    """A hand whose fingers follow their commands, of which its driver may say old places: ``stuck`` at one, as when its
    reads fail, or ``late`` by so many states; its clock is ``ahead`` [s]."""

    stuck: np.ndarray | None = None

    want: np.ndarray | None = None

    def __init__(self, lockstep: Any, name: str, late: int = 0, ahead: float = 0.0) -> None:
        self.late, self.ahead, self.places = late, ahead, list[np.ndarray]()
        super().__init__(lockstep, name)

    def publish(self, place: np.ndarray | None = None, stamp: float = 0.0) -> None:
        if self.want is not None and self.sent:
            self.place = self.place + (self.sent[-1] - self.place) * TICK / LAG_S
        self.places.append(self.place)
        said, self.noise = self.places[max(len(self.places) - 1 - self.late, 0)], NOISE
        if self.stuck is not None:
            said, self.noise = self.stuck, 0.0
        super().publish(said, self.ahead - TICK * self.late)

    def go(self, seconds: float, target: np.ndarray) -> None:
        """The policy leads the fingers there."""
        for k in range(round(seconds / TICK)):
            self.publish()
            if k % round(PERIOD / TICK) == 0:
                before = self.place if self.want is None else self.want
                self.want = before + np.clip(target - before, -OPENS * PERIOD, OPENS * PERIOD)
                self.step, now = self.step + 1, self.own.monotonic()
                self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, self.want))
            self.lockstep.run(TICK)
            self.own.wait(0.0)

    def opens(self, seconds: float, stuck: bool = False, later: int = 0) -> None:
        """A fist, which opens while the driver says old places; then the operator's stop."""
        home = self.place
        self.go(1.0, np.clip(home + 1.2, self.spec.low, self.spec.high))
        self.stuck = self.places[-1] if stuck else None
        self.late += later
        self.go(seconds, home)
        assert self.guard.mode == "active", self.guard.flight.reason
        self.own.publish(self.stop, messages.empty())
        self.opened = self.place
        self.run(2.2)

    def closes(self) -> float:
        """How far [rad] the fingers have closed since the stop."""
        return float(np.max((self.place - self.opened) * np.asarray(self.guard.config.profile.fingers.closes)))


@pytest.mark.parametrize("late, ahead, old", [
    (0, 0.0, {"stuck": True}), (20, 0.0, {}), (45, 0.0, {}), (0, 0.3, {"later": 8})], ids=str)
def test_no_stop_drives_a_hand_back_to_where_its_driver_says_it_was(lockstep, late, ahead, old):
    """It went to a place half a second old, at the motors' full speed: a hand that had opened became a fist again. Of a
    driver's clock that is ahead, a late stamp looks like one of now."""
    hand = Following(lockstep, "leap_hand", late, ahead)
    hand.opens(0.25, **old)
    assert hand.guard.flight.action == "hold"
    assert hand.closes() < 0.05 and hand.guard.mode == "holding"


def test_a_driver_that_says_the_same_from_the_first_command_on_closes_no_hand(lockstep):
    """Where its fingers are is in doubt: they go back to the open hand that it says."""
    hand = Following(lockstep, "leap_hand")
    hand.stuck = hand.place
    hand.go(0.6, hand.place + 0.8)
    hand.own.publish(hand.stop, messages.empty())
    hand.run(0.8)
    assert hand.guard.flight.code == "operator" and hand.guard.mode == "holding"
    assert np.abs(hand.sent[-1] - hand.stuck).max() < 0.01 and hand.guard.active_stop.unheld == []


def test_fingers_that_move_are_held_where_they_are(lockstep):
    hand = Following(lockstep, "leap_hand")
    hand.opens(0.2)
    assert hand.guard.active_stop.under_way.action == "hold" and hand.closes() < 0.05 and hand.guard.mode == "holding"


def test_a_stop_lets_go_once_the_place_is_known(gripping):
    """What was not to be believed when the operator said stop does not leave the grip to a power switch."""
    gripping.lockstep.run(0.12)  # the newest state is stale by then
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.lockstep.run(0.3)
    assert gripping.guard.flight.action in ("hold", "ramp") and len(gripping.sent) > 2
    gripping.run(0.1)
    gripping.own.publish(gripping.stop, messages.empty())  # of a stop that was for the state it is the first
    gripping.run(0.8)
    assert gripping.guard.mode == "holding" and gripping.beyond() < 10 * NOISE
    assert gripping.guard.active_stop.unheld == []


@pytest.mark.parametrize("after", ["stop", "silence"])
@pytest.mark.parametrize("says", ["stop", "end"])
@pytest.mark.slow
def test_after_a_mission_the_operator_can_end_the_grip_that_it_left(gripping, after, says):
    """The driver holds the last command for ever, and a stop was silence."""
    gripping.controller.send(Proposal(datagrams.END, 1, gripping.step + 1, 5, text=after))
    gripping.run(3.0)
    assert gripping.guard.mode == "finished" and gripping.beyond() > 0.1
    if says == "stop":
        gripping.own.publish(gripping.stop, messages.empty())
    else:
        gripping.guard.may_end()
    gripping.run(1.2)
    assert gripping.guard.mode == "holding" and gripping.beyond() < 10 * NOISE and gripping.guard.may_end()


def test_fingers_whose_encoders_rest_on_what_they_grip_are_let_go_as_well(gripping):
    """In every bit, for longer than `frozen` lets them: but their command has not moved either."""
    gripping.controller.send(Proposal(datagrams.END, 1, gripping.step + 1, 5, text="silence"))
    gripping.noise = 0.0
    gripping.run(3.0)
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(1.2)
    assert gripping.guard.mode == "holding" and gripping.beyond() < 10 * NOISE


@pytest.mark.parametrize("silent_s", [0.0, 1.3])
def test_a_hand_that_somebody_else_commanded_since_its_mission_is_told_nothing(gripping, silent_s):
    """From the last command on, a hold would begin with a leap; and what it is told now is not ours."""
    gripping.controller.send(Proposal(datagrams.END, 1, gripping.step + 1, 5, text="silence"))
    gripping.run(0.3)
    gripping.lockstep.run(silent_s)
    gripping.run(0.2)
    other, topic = MemoryTransport(gripping.lockstep.bus, "other", "/hand"), gripping.guard.config.topic
    other.advertise(topic.topic, topic.type, QOS["default"])
    gripping.run(0.5)
    other.close()
    gripping.run(0.5)
    assert not gripping.guard.checks.publishers.competing
    count = len(gripping.sent)
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(0.5)
    assert gripping.guard.mode == "stopped" and len(gripping.sent) == count


class OneStands(Following):
    """A LEAP hand that has opened while the reading of one motor, which does not answer, stood: LEAP's driver says its
    last place on."""

    joint = 14
    kept: float | None = None

    def __init__(self, lockstep: Any) -> None:
        self.told: list[str] = []
        super().__init__(lockstep, "leap_hand")
        self.own.subscribe("guard/event", "std_msgs/msg/String", QOS["deep"], lambda r: self.told.append(
            messages.decode(r.type, r.data).data))
        home = self.place
        self.go(1.0, np.clip(home + 1.2, self.spec.low, self.spec.high))
        self.kept, self.want = float(self.places[-1][self.joint]), None
        for k in range(40):
            self.place = self.place + np.clip(home - self.place, -0.04, 0.04)
            self.publish()
            if k % 5 == 0:
                self.step, now = self.step + 1, self.own.monotonic()
                self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, self.place))
            self.lockstep.run(TICK)
            self.own.wait(0.0)
        assert self.guard.mode == "active" and self.kept > self.sent[-1][self.joint] + 0.5

    def publish(self, place: np.ndarray | None = None, stamp: float = 0.0) -> None:
        if self.kept is None:
            return super().publish(place, stamp)
        said = self.place + NOISE * self.rng.normal(size=16)
        said[self.joint], self.noise = self.kept, 0.0
        Hand.publish(self, said)


def test_one_finger_whose_reading_stands_is_not_closed_by_the_stop(lockstep):
    """The others move, and vouched for it."""
    hand = OneStands(lockstep)
    before = hand.sent[-1][hand.joint]
    hand.own.publish(hand.stop, messages.empty())
    hand.run(0.6)
    assert hand.sent[-1][hand.joint] <= before + 0.01
    assert hand.guard.active_stop.unheld == [hand.joint] and hand.guard.mode == "holding"
    assert any('"held"' in text and f"components [{hand.joint}] are not held yet" in text for text in hand.told)


def test_a_hand_that_was_silent_is_let_go_of_joint_by_joint(lockstep):
    """Its driver still says of one motor what it said of the fist: to go there would close it."""
    hand = OneStands(lockstep)
    hand.lockstep.run(1.3)
    hand.run(0.5)
    count, told = len(hand.sent), hand.sent[-1][hand.joint]
    hand.own.publish(hand.stop, messages.empty())
    hand.run(0.5)
    others = np.arange(hand.spec.size) != hand.joint
    assert hand.guard.mode == "holding" and hand.guard.active_stop.unheld == [hand.joint]
    assert np.abs(hand.sent[-1] - hand.place)[others].max() < 10 * NOISE
    assert [row[hand.joint] for row in hand.sent[count:]] == pytest.approx([told] * (len(hand.sent) - count))


def test_an_operator_whose_word_ends_no_grip_yet_is_told_so(lockstep):
    hand = OneStands(lockstep)
    hand.lockstep.run(1.3)
    hand.own.wait(0.0)
    hand.own.publish(hand.stop, messages.empty())  # nobody knows where it is
    hand.lockstep.run(0.05)
    hand.own.wait(0.0)
    assert hand.guard.mode == "stopped" and any("not known yet" in text for text in hand.told)


class OneRests(Hand):
    """A Shadow Hand: of a J0's two joints one rests on its end stop, where its reading stands; the other moves."""

    motor, rests, moves = 4, 4, 5

    def publish(self, place: np.ndarray | None = None, stamp: float = 0.0) -> None:
        self.place = np.array(self.place)
        self.place[self.rests] = 0.0
        if self.sent:
            self.place[self.moves] = self.sent[-1][self.motor]
        said = self.place + NOISE * self.rng.normal(size=self.place.size)
        said[self.rests], noise, self.noise = 0.0, self.noise, 0.0
        super().publish(said)
        self.noise = noise


def test_a_joint_that_rests_beside_one_that_moves_keeps_nobody_from_the_next_mission(lockstep):
    hand = OneRests(lockstep, "shadow_hand")
    start = np.array(hand.at)
    for asked in np.linspace(start[hand.motor], start[hand.motor] + 0.9, 25):
        hand.step, now = hand.step + 1, hand.own.monotonic()
        start[hand.motor] = asked
        hand.controller.send(Proposal(datagrams.COMMAND, 1, hand.step, 5, now, now, start))
        hand.run(PERIOD)
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.5)
    assert hand.guard.mode == "holding" and hand.guard.active_stop.unheld == []
    assert not any(hand.guard.monitor.doubts(hand.own.monotonic())[0])


def test_a_finger_that_rests_on_what_it_gripped_before_a_silence_can_begin_again_once_it_was_let_go(lockstep):
    """Its encoder stands in every bit, and so it does after it: until then it is in doubt."""
    hand = Hand(lockstep, "leap_hand")
    hand.noise = 0.0
    hand.run(0.8, closes=True)
    assert hand.guard.mode == "active" and hand.beyond() > 0.5
    hand.lockstep.run(1.3)
    hand.run(0.3)
    readings, now_s = hand.guard.monitor.readings, hand.guard.monitor.freshness.now_s
    assert hand.guard.mode == "stopped" and any(readings.stood(hand.own.monotonic(), now_s))
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.2)
    assert hand.guard.mode == "holding" and hand.beyond() < 10 * NOISE
    assert not any(readings.stood(hand.own.monotonic(), now_s))


class Tendon(Hand):
    """A Shadow Hand whose finger follows its motor, rh_FFJ0, with both joints; one of their sensors, of rh_FFJ2, stands
    at what it ``kept``."""

    motor, sensor = 4, 4
    kept: float | None = None

    def publish(self, place: np.ndarray | None = None, stamp: float = 0.0) -> None:
        if self.sent:
            self.place[self.sensor : self.sensor + 2] = 0.5 * self.sent[-1][self.motor]
        said, self.noise = self.place + NOISE * self.rng.normal(size=24), 0.0
        if self.kept is not None:
            said[self.sensor] = self.kept
        super().publish(said)

    def bend(self, low: float, high: float) -> None:
        """The policy leads the motor from ``low`` to ``high`` [rad]."""
        asked = np.array(self.robot.home["actuator_pos"])
        for asked[self.motor] in np.linspace(low, high, 25):
            self.step, now = self.step + 1, self.own.monotonic()
            self.controller.send(Proposal(datagrams.COMMAND, 1, self.step, 5, now, now, asked))
            self.run(PERIOD)
        assert self.guard.mode == "active", self.guard.flight.reason


def test_one_sensor_of_two_that_stands_closes_no_finger(lockstep):
    """The sum of both, by which the motor is led, changes all the same: it was closed by 0.6 rad."""
    hand = Tendon(lockstep, "shadow_hand")
    hand.bend(0.6, 1.8)
    hand.kept = float(hand.place[hand.sensor])
    hand.bend(1.8, 0.6)
    opened = float(hand.sent[-1][hand.motor])
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.0)
    assert hand.guard.mode == "holding" and hand.guard.active_stop.unheld == [hand.motor]
    assert opened < 0.7 and hand.sent[-1][hand.motor] <= opened + 0.01


@pytest.mark.parametrize("stands", [False, True])
def test_fingers_that_are_blocked_while_the_policy_closes_on_are_let_go(lockstep, stands):
    """Encoders of a blocked finger may stand in every bit: no sign that they say an old place."""
    hand = Hand(lockstep, "leap_hand")
    hand.run(0.4, closes=True)
    hand.noise = 0.0 if stands else NOISE
    hand.run(0.8, closes=True)
    assert hand.guard.mode == "active" and hand.beyond() > 0.5
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.0)
    assert hand.beyond() < 10 * NOISE


@pytest.mark.parametrize("way", ["reset", "begin", "refused"])
def test_a_grip_can_be_ended_after_a_reset_and_before_the_next_missions_first_command(gripping, way):
    """The driver has the last command still."""
    if way == "reset":
        gripping.run(1.0)
        assert gripping.guard.flight.code == "silent"
        gripping.own.publish(gripping.own.advertise("mission/reset", EMPTY, QOS["default"]), messages.empty())
        gripping.run(0.3)
        assert gripping.guard.mode == "waiting"
    else:
        gripping.controller.send(Proposal(datagrams.END, 1, gripping.step + 1, 5, text="silence"))
        gripping.run(0.5)
        gripping.controller.send(Proposal(datagrams.HELLO, text=gripping.guard.swaps.identity))
        gripping.run(0.1)
        gripping.controller.send(Proposal(datagrams.BEGIN, 2, -1, 6))
        gripping.run(0.03)
        assert gripping.guard.mode == "active"
    if way == "refused":
        now = gripping.own.monotonic()
        gripping.controller.send(Proposal(datagrams.COMMAND, 2, 0, 6, now, now, gripping.at + 0.7))
        gripping.run(0.05)
        assert (gripping.guard.mode, gripping.guard.flight.code) == ("stopped", "start")
    assert gripping.beyond() > 0.1
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(1.2)
    assert gripping.guard.mode == "holding" and gripping.beyond() < 10 * NOISE


@pytest.mark.parametrize("when", ["in it", "after it"])
def test_one_garbled_place_does_not_make_a_grip_for_ever(gripping, when):
    if when == "after it":
        gripping.controller.send(Proposal(datagrams.END, 1, gripping.step + 1, 5, text="silence"))
        gripping.run(0.5)
    garbled = gripping.place.copy()
    garbled[2] += 1.0
    gripping.publish(garbled)
    gripping.lockstep.run(TICK)
    gripping.run(1.0)
    assert gripping.guard.flight.code == ("jump" if when == "in it" else "") and gripping.beyond() > 0.1
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(1.2)
    assert gripping.guard.mode == "holding" and gripping.beyond() < 10 * NOISE


@pytest.mark.parametrize("before", ["in a mission", "after a stop", "after a mission", "after a reset"])
@pytest.mark.parametrize("name", HANDS)
def test_a_hand_that_was_silent_is_let_go_by_the_operators_stop_alone_once_it_is_seen_again(name, before, lockstep):
    """Its driver may have lived on, with the grip, which nothing ended any more; or it was started again, or its power:
    then a command of before would be a leap, wherever the hand has come to since."""
    hand = Hand(lockstep, name)
    hand.run(1.5, closes=True)
    if before == "after a mission":
        hand.controller.send(Proposal(datagrams.END, 1, hand.step + 1, 5, text="silence"))
    hand.run(0.0 if before == "in a mission" else 0.5)
    hand.lockstep.run(1.3)
    hand.own.wait(0.0)
    assert hand.guard.mode == ("finished" if before == "after a mission" else "stopped") and hand.beyond() > 0.1
    count = len(hand.sent)
    hand.own.publish(hand.stop, messages.empty())  # nobody knows where it is
    hand.lockstep.run(0.05)
    hand.place = hand.place - 0.5
    hand.run(0.7)
    if before == "after a reset":
        hand.own.publish(hand.own.advertise("mission/reset", EMPTY, QOS["default"]), messages.empty())
        hand.run(0.5)
    assert len(hand.sent) == count
    hand.own.publish(hand.stop, messages.empty())
    hand.run(0.5)
    assert hand.guard.mode == "holding" and len(hand.sent) > count
    asked = np.clip(hand.at, hand.spec.low, hand.spec.high)
    assert np.abs(np.array(hand.sent[count:]) - asked).max() < 10 * NOISE


def test_a_place_that_comes_late_since_the_last_mission_closes_no_hand(lockstep):
    """Each mission forgives what delay there was before it: a hold does not."""
    hand = Following(lockstep, "leap_hand", ahead=0.3)
    hand.go(0.3, hand.place)
    hand.controller.send(Proposal(datagrams.END, 1, hand.step + 1, 5, text="silence"))
    hand.run(0.3)
    hand.late = 20
    hand.run(0.5)
    hand.controller.send(Proposal(datagrams.HELLO, text=hand.guard.swaps.identity))
    hand.run(0.1)
    hand.controller.send(Proposal(datagrams.BEGIN, 2, -1, 6))
    hand.run(0.05)
    closed = hand.guard.monitor.doubts(hand.own.monotonic())
    assert closed[0] == [True] * 16 and "0.2" in closed[1]


@pytest.mark.parametrize("name", HANDS)
def test_what_closes_a_hand_brings_its_fingertips_to_the_thumbs(name, lockstep):
    """By the model's kinematics about home: 1 where a greater angle does by more than 3 mm for 0.3 rad, and a smaller
    one the other way; of a J0 of the Shadow Hand for both of its joints."""
    hand = Hand(lockstep, name)
    robot, closes = hand.robot, hand.guard.config.profile.fingers.closes
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    data, home = mujoco.MjData(model), np.array(robot.home["joint_pos"])
    where = [model.joint(joint).qposadr[0] for joint in robot.sources["joint_pos"].names]
    tips = [source.names[0] for signal, source in robot.sources.items() if signal.endswith("_tip_w")]

    def fingertips(angles: np.ndarray) -> np.ndarray:
        data.qpos[where] = angles
        mujoco.mj_kinematics(model, data)
        return np.array([data.site(tip).xpos for tip in tips])

    base, thumb = fingertips(home), np.array(["thumb" in tip for tip in tips])

    def nearer(joint: int, by: float) -> float:
        angles = home.copy()
        angles[joint] += by
        now = fingertips(angles)
        moved = np.abs(now - base).sum(axis=1) > 1e-4
        if moved.all():  # the wrist
            return 0.0
        goal = base[~moved].mean(axis=0) if moved[thumb].any() else base[thumb][0]
        return float(np.linalg.norm(base[moved].mean(axis=0) - goal) - np.linalg.norm(now[moved].mean(axis=0) - goal))

    names = list(robot.sources["joint_pos"].names)
    for motor, closing in zip(*robot.actuators.values(), closes, strict=True):
        joints = [motor] if motor in names else [f"{motor[:-1]}1", f"{motor[:-1]}2"]
        bends = all(nearer(names.index(j), 0.3) > 0.003 and nearer(names.index(j), -0.3) < -0.003 for j in joints)
        assert closing == (bends and not re.search("rot|axl|WRJ|J4|THJ3", motor)), motor  # those turn it, or spread


@pytest.mark.parametrize("begins", [False, True])
def test_a_start_does_not_forget_which_finger_is_in_doubt(begins, lockstep):
    """After one the operator's stop closed it by 1.2 rad."""
    hand = OneStands(lockstep)
    joint, before = hand.joint, float(hand.sent[-1][hand.joint])
    hand.controller.send(Proposal(datagrams.END, 1, hand.step + 1, 5, text="silence"))
    hand.run(0.3)
    if begins:
        hand.controller.send(Proposal(datagrams.HELLO, text=hand.guard.swaps.identity))
        hand.run(0.1)
        hand.controller.send(Proposal(datagrams.BEGIN, 2, -1, 6))
        hand.run(0.03)
        assert hand.guard.mode == "active"
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.5)
    assert hand.guard.active_stop.unheld == [joint] and hand.sent[-1][joint] == pytest.approx(before, abs=0.01)


def test_no_mission_begins_where_a_reading_stands_that_its_command_has_left(lockstep):
    """Its first command went to where the joint is "measured": 1.2 rad in 0.2 s."""
    hand = OneStands(lockstep)
    joint, before = hand.joint, float(hand.sent[-1][hand.joint])
    hand.controller.send(Proposal(datagrams.END, 1, hand.step + 1, 5, text="silence"))
    hand.run(0.3)
    hand.controller.send(Proposal(datagrams.HELLO, text=hand.guard.swaps.identity))
    hand.run(0.1)
    hand.controller.send(Proposal(datagrams.BEGIN, 2, -1, 6))
    hand.run(0.03)
    now = hand.own.monotonic()
    hand.controller.send(Proposal(datagrams.COMMAND, 2, 0, 6, now, now, hand.at))
    hand.run(0.3)
    assert hand.guard.flight.code == "start" and f"[{joint}] stood while" in hand.guard.flight.reason
    assert hand.sent[-1][joint] == before


@pytest.mark.parametrize("name", HANDS)
def test_garbled_places_of_a_moment_do_not_make_a_grip_for_ever(name, lockstep):
    hand = Hand(lockstep, name)
    hand.run(1.5, closes=True)
    garbled = hand.place.copy()
    garbled[2] += 3.0
    for _ in range(4):
        hand.publish(garbled)
        hand.lockstep.run(TICK)
        hand.own.wait(0.0)
    hand.run(1.0)
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.2)
    assert hand.guard.mode == "holding" and hand.beyond() < 10 * NOISE


def test_what_is_let_go_of_is_not_pressed_on_again(lockstep):
    """The Shadow Hand's commands have a limit of acceleration: they went 0.25 rad too far, and came back."""
    hand = Hand(lockstep, "shadow_hand")
    hand.run(1.5, closes=True)
    count = len(hand.sent) - 1
    hand.own.publish(hand.stop, messages.empty())
    hand.run(1.5)
    after = np.array(hand.sent[count:])
    assert (np.diff(after, axis=0) * hand.guard.config.profile.fingers.closes < 1e-9).all()


def test_a_watch_that_fails_leaves_a_hold_that_rests_where_it_was_sent(gripping, monkeypatch):
    """It is counted, and nobody is led to a place that was not looked at."""
    grip = gripping.beyond()
    monkeypatch.setattr(gripping.guard.monitor, "doubts", lambda now: 1 / 0)
    gripping.own.publish(gripping.stop, messages.empty())
    gripping.run(0.5)
    assert gripping.guard.mode == "holding" and gripping.guard.active_stop.blind > 0
    assert gripping.guard.active_stop.unheld == list(range(gripping.spec.size))
    assert gripping.beyond() == pytest.approx(grip, abs=20 * NOISE)
