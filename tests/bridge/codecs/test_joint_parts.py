"""Joint states in any order, among others, in several messages of one topic, and with joints left out."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.joint_parts import SEEN
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import StateTopic
from temporeal_bridge.interface.state_input import StateReader
from temporeal_bridge.transports import messages

KIND = "sensor_msgs/msg/JointState"
OPTIONS = {"joints": ["a", "b", "c", "d"], "position": "joint_pos", "velocity": "joint_vel"}
SPECS = {name: SignalSpec(name, (4,), unit) for name, unit in (("joint_pos", "rad"), ("joint_vel", "rad/s"))}
SECOND = 10**9


def state(names: str, stamp: int = SECOND, position=None, velocity=None) -> bytes:
    value = np.array([10.0 * "abcdefg".index(name) for name in names]) if position is None else np.asarray(position)
    return messages.encode(KIND, messages.record(KIND)(
        header=messages.header(stamp), name=list(names), position=value,
        velocity=0.1 * value if velocity is None else np.asarray(velocity, dtype=float), effort=np.zeros(0)))


class Listener:
    """Reads one topic's messages."""

    def __init__(self, wanted=None, rate_hz: float = 100.0, **options) -> None:
        self.reader = StateReader(StateTopic("joint_states", KIND, "joint_state", rate_hz, "sensor",
                                             {**OPTIONS, **options}), SPECS, wanted)

    def hear(self, data: bytes, at: float = 0.0):
        found = self.reader.message(KIND, data, at)
        return None if found is None else (found[1], self.reader.signals(found[0]))


@pytest.mark.parametrize("names", ["abcd", "dcba", "bdac", "gabfcde"])
def test_any_order_and_other_joints_between(names):
    stamp, signals = Listener().hear(state(names))
    assert stamp == SECOND and signals["joint_pos"].tolist() == [0.0, 10.0, 20.0, 30.0]


def test_parts_are_put_together_with_the_oldest_stamp():
    topic = Listener()
    assert topic.hear(state("ca", 3 * SECOND), 0.0) is None
    stamp, signals = topic.hear(state("bd", 2 * SECOND), 0.001)
    assert stamp == 2 * SECOND
    assert signals["joint_pos"].tolist() == [0.0, 10.0, 20.0, 30.0] and signals["joint_vel"][3] == pytest.approx(3.0)


def test_each_joint_must_be_new():
    """A driver that falls silent ends the state, however often the other one speaks."""
    topic = Listener()
    topic.hear(state("ab", 1 * SECOND), 0.0)
    assert topic.hear(state("cd", 1 * SECOND), 0.0) is not None
    for k in range(2, SEEN):
        assert topic.hear(state("ab", k * SECOND), 0.01 * k) is None
    stamp, _ = topic.hear(state("cd", SEEN * SECOND), 0.01 * SEEN)
    assert stamp == (SEEN - 1) * SECOND


def test_a_fast_and_a_slow_driver_are_put_together_at_the_slow_ones_rate():
    topic, times = Listener(rate_hz=1000.0), []
    for k in range(200):
        topic.hear(state("ab", 1000 + k), 0.001 * k)
        if k % 8 == 7 and (found := topic.hear(state("cd", 1000 + k), 0.001 * k)):
            times.append(found[0])
    assert times == [1007 + 8 * k for k in range(25)]


def test_a_message_that_is_repeated_is_not_new():
    topic = Listener()
    topic.hear(state("ab", SECOND), 0.0)
    topic.hear(state("cd", SECOND), 0.0)
    topic.hear(state("ab", SECOND), 0.01)
    assert topic.hear(state("cd", 2 * SECOND), 0.01) is None


def test_values_wait_for_two_periods():
    topic = Listener(rate_hz=50.0)
    topic.hear(state("ab", 0), 0.0)
    assert topic.hear(state("cd", 0), 0.05) is None  # stamps of 0: only the arrival tells
    assert topic.hear(state("ab", 0), 0.06) is not None


def test_a_joint_that_never_comes_is_named():
    topic = Listener()
    for _ in range(SEEN):
        assert topic.hear(state("abd")) is None
    with pytest.raises(CodecError, match="no joint 'c'; it has: a, b, d; seen on this topic: a, b, d"):
        topic.hear(state("abd"))


def test_others_messages_on_the_topic_are_none_of_ours():
    topic = Listener()
    topic.hear(state("abcd"))
    assert all(topic.hear(state("efg")) is None for _ in range(5))


def test_others_messages_may_lack_what_is_read_of_ours():
    """A gripper's driver that shares the arm's topic gives no velocity."""
    topic = Listener()
    assert topic.hear(state("fg", velocity=[])) is None
    assert topic.hear(state("abcd")) is not None
    with pytest.raises(CodecError, match="2 names and 0 values of velocity"):
        topic.hear(state("af", velocity=[]))


@pytest.mark.parametrize("wanted, refused", [(None, True), (["joint_vel"], True), (["joint_pos"], False)])
def test_velocity_may_be_missing_where_nobody_reads_it(wanted, refused):
    topic = Listener(wanted)
    if refused:
        with pytest.raises(CodecError, match="4 names and 0 values of velocity"):
            topic.hear(state("abcd", velocity=[]))
    else:
        assert topic.hear(state("abcd", velocity=[]))[1]["joint_pos"].tolist() == [0.0, 10.0, 20.0, 30.0]


MIMIC = {"mimic": {"d": {"of": "b", "multiplier": -2.0, "offset": 0.5}}}


def test_a_joint_that_mimics_another_is_computed():
    _, signals = Listener(**MIMIC).hear(state("cba", velocity=[2.0, 1.0, 0.0]))
    assert signals["joint_pos"].tolist() == [0.0, 10.0, 20.0, -19.5]
    assert signals["joint_vel"].tolist() == [0.0, 1.0, 2.0, -2.0]


def test_a_mimic_goes_both_ways():
    codec, options = STATE_CODECS["joint_state"], {**OPTIONS, **MIMIC}
    given = {"joint_pos": np.array([0.0, 1.0, 2.0, -1.5]), "joint_vel": np.array([0.0, 1.0, 2.0, -2.0])}
    message = codec.encode(given, SECOND, ("world", "arm"), options)
    assert message.name == ["a", "b", "c"]
    back = codec.decode(message, options)
    assert all(np.allclose(back[name], given[name]) for name in given)


@pytest.mark.parametrize("rows", [
    {"d": {"of": "x", "multiplier": 1, "offset": 0}}, {"x": {"of": "a", "multiplier": 1, "offset": 0}},
    {"d": {"of": "b"}},
    {"d": {"of": "c", "multiplier": 1, "offset": 0}, "c": {"of": "d", "multiplier": 1, "offset": 0}}])
def test_a_wrong_mimic_is_refused(rows):
    with pytest.raises(CodecError, match="option mimic"):
        Listener(mimic=rows)
