"""JointStates read by the layout of the one before: always what the whole reading gives, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.joint_states import MOST, JointStateDecoder

KIND = "sensor_msgs/msg/JointState"


def whole(data: bytes):
    return messages.store().deserialize_cdr(data, KIND)


def joint_state(names, counts, frame="", stamp=5, seed=0):
    """A message with so many numbers in position, velocity and effort."""
    rng = np.random.default_rng(seed)
    position, velocity, effort = (rng.normal(size=count) for count in counts)
    return messages.record(KIND)(header=messages.header(stamp, frame), name=list(names), position=position,
                                 velocity=velocity, effort=effort)


def fields(message):
    return (message.header.stamp.sec, message.header.stamp.nanosec, message.header.frame_id, list(message.name),
            message.position.tobytes(), message.velocity.tobytes(), message.effort.tobytes())


@pytest.fixture
def reader():
    """A reader that counts how often a message was read whole."""
    def counted(data):
        made.count += 1
        return whole(data)

    made = JointStateDecoder(counted, messages.record)
    made.count = 0
    return made


NAMES = st.lists(st.text("abc_1", max_size=9), max_size=6)
COUNTS = st.tuples(*[st.integers(0, 4)] * 3)
MESSAGES = st.builds(joint_state, NAMES, COUNTS, st.text("abc/", max_size=5), st.integers(0, 2**60), st.integers(0, 9))


@given(st.lists(MESSAGES, min_size=1, max_size=12))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_comes_after_whatever_is_read_as_the_whole_reading_does(rows):
    made = JointStateDecoder(whole, messages.record)
    for message in [*rows, *rows]:
        data = messages.encode(KIND, message)
        assert fields(made(data)) == fields(whole(data)) == fields(message)


def test_of_a_driver_that_says_the_same_names_only_the_numbers_are_read(reader):
    for seed in range(5):
        said = joint_state(["a", "joint_2", "c"], (3, 3, 0), "base", 10**18 + seed, seed)
        assert fields(reader(messages.encode(KIND, said))) == fields(said)
    assert reader.count == 1


@pytest.mark.parametrize("change", [
    {"names": ["c", "joint_2", "a"]}, {"frame": "bose"}, {"counts": (2, 2, 2)}, {"counts": (3, 1, 2)}])
def test_another_message_of_the_same_length_is_read_whole(reader, change):
    first = {"names": ["a", "joint_2", "c"], "counts": (3, 2, 1), "frame": "base"}
    before, after = (messages.encode(KIND, joint_state(**said)) for said in (first, {**first, **change}))
    assert len(before) == len(after)
    reader(before)
    assert fields(reader(after)) == fields(whole(after))
    assert reader.count == 2


def test_bytes_that_are_no_message_are_refused_after_a_good_one_too():
    data = messages.encode(KIND, joint_state(["a", "b"], (2, 2, 2)))
    messages.decode(KIND, data)
    for bad in (data[:-1], data[:40], b"", b"\0\1\0\0", data[:12] + b"\xff" * (len(data) - 12)):
        with pytest.raises(messages.MessageError, match=f"{len(bad)} bytes are not a {KIND}"):
            messages.decode(KIND, bad)
    assert messages.decode(KIND, data).name == ["a", "b"]


def test_layouts_do_not_pile_up(reader):
    for count in range(2 * MOST):
        reader(messages.encode(KIND, joint_state(["a" * count], (1, 1, 1))))
    assert len(reader.known) <= MOST
