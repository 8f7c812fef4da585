"""Faults between a robot's state and its readers: what each does to a stream, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from temporeal_bridge.simulated_robot import fault_injection
from temporeal_bridge.simulated_robot.fault_injection import FaultError, Sample
from temporeal_bridge.transports import messages

SIGNALS = {"joint_pos": np.array([1.0, 2.0, 3.0]), "joint_vel": np.array([0.1, 0.2, 0.3]), "unseen": np.zeros(2)}
NAMES = ["a", "b", "c"]


def joint_state(signals, stamp: int = 0):
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(stamp), name=list(NAMES), position=np.asarray(signals["joint_pos"]),
        velocity=np.asarray(signals["joint_vel"]), effort=np.zeros(0))


def gripper(signals, stamp: int = 0):
    """A message without joints and arrays."""
    return messages.record("std_msgs/msg/Header")(stamp=messages.time(stamp), frame_id="gripper")


def encode(signals):
    return {"joints": ("sensor_msgs/msg/JointState", joint_state(signals)),
            "gripper": ("std_msgs/msg/Header", gripper(signals))}


def fault(name: str, **options) -> fault_injection.Fault:
    return fault_injection.parse(json.dumps({"name": name, **options}), 0.0, SIGNALS, encode)


def stream(which: fault_injection.Fault, count: int = 10, topic: str = "joints") -> list:
    """What is published of samples k = 1, 2, ... with stamps of k * 100 ms and joint_pos[0] = k: (stamp, value)."""
    out = []
    for k in range(1, count + 1):
        which.remember(Sample({**SIGNALS, "joint_pos": np.array([k, 2.0, 3.0])}, k * 10**8))
        told = which.sample(topic)
        out.append(None if told is None else (told.stamp // 10**8, float(told.signals["joint_pos"][0])))
    return out


HEALTHY = [(k, float(k)) for k in range(1, 11)]


@pytest.mark.parametrize(("name", "options", "seen"), [
    ("stopped", {}, [None] * 10),
    ("delayed", {"by_s": 0.3}, [None] * 3 + HEALTHY[:7]),
    ("delayed", {"by_s": 0.0}, HEALTHY),
    ("frozen", {}, [(k, 1.0) for k in range(1, 11)]),
    ("repeated", {}, [(1, 1.0)] * 10),
    ("stamped", {"by_s": 0.5}, [(k + 5, float(k)) for k in range(1, 11)]),
    ("stamped", {"by_s": -100.0}, [(k - 1000, float(k)) for k in range(1, 11)]),
    ("lost", {"share": 1.0}, [None] * 10), ("lost", {"share": 0.0}, HEALTHY),
    ("jump", {"signal": "joint_pos", "index": 0, "by": 5.0}, [(k, k + 5.0) for k in range(1, 11)]),
    ("jump", {"signal": "joint_pos", "scale": 10.0}, [(k, 10.0 * k) for k in range(1, 11)]),
    ("jump", {"signal": "joint_pos", "index": 1, "by": 5.0}, HEALTHY),
])
def test_streams(name, options, seen):
    assert stream(fault(name, **options)) == seen


def test_memory_of_a_fault_stays_small():
    for which, most in ((fault("frozen"), 2), (fault("delayed", by_s=0.3), 5)):
        stream(which, 200)
        assert len(which.past) <= most


def test_lost_messages_are_those_of_the_seed():
    first, again, other = (stream(fault("lost", share=0.5, seed=seed), 50) for seed in (1, 1, 2))
    assert first == again != other and 10 < first.count(None) < 40


def test_only_the_chosen_topic_is_touched():
    which = fault("stopped", topic="joints")
    assert stream(which, topic="gripper") == HEALTHY and stream(fault("stopped", topic="joints")) == [None] * 10


def test_nan_is_one_component():
    which = fault("nan", signal="joint_pos", index=2)
    which.remember(Sample(SIGNALS, 1))
    assert np.isnan(which.sample("joints").signals["joint_pos"]).tolist() == [False, False, True]
    assert np.isfinite(SIGNALS["joint_pos"]).all()  # the true one is left alone


def columns(message) -> dict:
    return {name: (p, v) for name, p, v in zip(message.name, message.position, message.velocity, strict=True)}


ALL = {"a": (1.0, 0.1), "b": (2.0, 0.2), "c": (3.0, 0.3)}


def test_joints_of_a_message():
    message = joint_state(SIGNALS)
    assert columns(fault("missing").message("joints", message)) == {k: ALL[k] for k in "bc"}
    assert columns(fault("missing", joint="b").message("joints", message)) == {k: ALL[k] for k in "ac"}
    more = fault("extra").message("joints", message)
    assert columns(more) == {"extra_joint": (0.0, 0.0), **ALL} and more.name[0] == "extra_joint"
    orders, shuffle = set(), fault("permuted")
    for _ in range(20):
        mixed = shuffle.message("joints", message)
        assert columns(mixed) == ALL and len(mixed.effort) == 0
        orders.add(tuple(mixed.name))
    assert len(orders) > 3
    short = fault("wrong_length").message("joints", message)
    assert short.name == NAMES and short.position.tolist() == [1.0, 2.0] and len(short.velocity) == 3
    for changed in (more, mixed, short):  # they are messages
        messages.encode("sensor_msgs/msg/JointState", changed)
    header = gripper(SIGNALS)
    assert fault("extra").message("gripper", header) is header


@pytest.mark.parametrize(("text", "told"), [
    ("stopped", "JSON"), ("[1]", "JSON object"), ('{"fault": 1}', "no fault None; known: stopped, .*blocked"),
    ('{"name": "stop"}', "no fault 'stop'; known"), ('{"name": "delayed"}', r"needs the options \['by_s'\]"),
    ('{"name": "delayed", "by_s": -1}', "0 or more"), ('{"name": "delayed", "by_s": NaN}', "finite"),
    ('{"name": "delayed", "by_s": "1"}', "finite number of seconds, got '1'"),
    ('{"name": "stopped", "by_s": 1}', r"unknown options \['by_s'\]; legal: topic, for_s, seed"),
    ('{"name": "stopped", "for_s": 0}', "above 0, or null"), ('{"name": "lost", "share": 2}', "share from 0 to 1"),
    ('{"name": "lost", "share": 0.1, "seed": -1}', "whole number"), ('{"name": "stopped", "topic": 3}', "a topic"),
    ('{"name": "stopped", "topic": "odom"}', "no topic 'odom'; there are: joints, gripper"),
    ('{"name": "nan", "signal": "torque"}', "no signal 'torque'; there are: joint_pos"),
    ('{"name": "nan", "signal": "joint_pos", "index": 3}', r"shape is \(3,\); got 3"),
    ('{"name": "nan", "signal": "unseen"}', "unseen is not in the messages on joints, gripper"),
    ('{"name": "jump", "signal": "joint_pos", "topic": "gripper"}', "not in the messages on gripper"),
    ('{"name": "missing", "topic": "gripper"}', "fits no message on gripper"),
    ('{"name": "missing", "joint": "z"}', "no joint 'z'; it has: a, b, c"),
    ('{"name": "blocked", "joints": "a"}', "a list of names, got 'a'"),
])
def test_what_is_no_fault_is_refused(text, told):
    with pytest.raises(FaultError, match=told):
        fault_injection.parse(text, 0.0, SIGNALS, encode)


def test_an_empty_object_ends_the_fault():
    assert fault_injection.parse("{}", 0.0, SIGNALS, encode) is None
