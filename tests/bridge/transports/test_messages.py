"""Golden vectors of a real ROS 2 Jazzy: CDR bytes and type hashes, and the fields that they mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from temporeal_bridge.transports import messages

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "ros2_messages.json").read_text())["messages"]
BY_TYPE = {row["type"]: row for row in GOLDEN}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["type"].split("/")[-1])
def test_bytes_survive_decoding_and_encoding(row):
    data = bytes.fromhex(row["cdr_hex"])
    assert messages.encode(row["type"], messages.decode(row["type"], data)) == data


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["type"].split("/")[-1])
def test_type_hash(row):
    assert messages.type_hash(row["type"]) == row["type_hash"]


def decoded(name: str):
    return messages.decode(name, bytes.fromhex(BY_TYPE[name]["cdr_hex"]))


def test_fields_of_a_joint_state():
    fields, message = BY_TYPE["sensor_msgs/msg/JointState"]["fields"], decoded("sensor_msgs/msg/JointState")
    assert message.name == fields["name"]
    assert message.position.tolist() == fields["position"] and message.velocity.tolist() == fields["velocity"]
    assert [message.header.stamp.sec, message.header.stamp.nanosec] == fields["header"]["stamp"]


def test_fields_of_a_pose():
    fields = BY_TYPE["geometry_msgs/msg/PoseStamped"]["fields"]
    q = decoded("geometry_msgs/msg/PoseStamped").pose.orientation
    assert [q.x, q.y, q.z, q.w] == fields["orientation_xyzw"]


def test_what_we_build_ourselves_is_golden_too():
    """Diagnostics with the golden content, from our own constructor."""
    made = messages.diagnostics(4_000_000_005, "policy", "cf1", 1, "late", {"p99_ms": 1.2})
    assert messages.encode("diagnostic_msgs/msg/DiagnosticArray", made).hex() == \
        BY_TYPE["diagnostic_msgs/msg/DiagnosticArray"]["cdr_hex"]
    text = messages.record("std_msgs/msg/String")(data="grüß")
    assert messages.encode("std_msgs/msg/String", text).hex() == BY_TYPE["std_msgs/msg/String"]["cdr_hex"]


def test_dds_names():
    assert messages.dds_type("geometry_msgs/msg/Twist") == "geometry_msgs::msg::dds_::Twist_"
    with pytest.raises(messages.MessageError, match="package/msg/Name"):
        messages.dds_type("Twist")


def test_unknown_type_lists_its_package():
    with pytest.raises(messages.MessageError, match=r"std_msgs/msg/String"):
        messages.record("std_msgs/msg/Strnig")
    with pytest.raises(messages.MessageError, match="definitions"):
        messages.record("nobody_msgs/msg/Thing")


def test_bytes_of_something_else_are_an_error():
    with pytest.raises(messages.MessageError, match="not a nav_msgs/msg/Odometry"):
        messages.decode("nav_msgs/msg/Odometry", b"\0\1\0\0\1\2")


def test_a_type_from_the_text_of_its_definition():
    messages.define({"test_msgs_here/msg/Pair": "float64 a\nfloat32[] b\n"})
    kind = "test_msgs_here/msg/Pair"
    message = messages.record(kind)(a=1.5, b=np.array([1, 2], dtype=np.float32))
    again = messages.decode(kind, messages.encode(kind, message))
    assert again.a == 1.5 and again.b.tolist() == [1, 2]


def test_stamps():
    assert messages.nanoseconds(messages.time(1_234_567_890_123_456_789)) == 1_234_567_890_123_456_789


def test_an_endpoint_has_its_codec_before_the_first_message(monkeypatch):
    """Codecs are compiled on demand: a control loop has no 15 ms for that."""
    from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
    from temporeal_bridge.transports.transport import QOS

    kind = "shape_msgs/msg/SolidPrimitive"
    messages.store().cache.pop(kind, None)
    MemoryTransport(Bus(), "node").advertise("shape", kind, QOS["default"])
    assert kind in messages.store().cache


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_rows_of_numbers_have_the_bytes_of_any_other_message(count):
    kind, values = "std_msgs/msg/Float64MultiArray", np.random.default_rng(count).normal(size=count)
    message = messages.array64(values)
    assert messages.encode(kind, message) == bytes(messages.store().serialize_cdr(message, kind))
    assert messages.decode(kind, messages.encode(kind, messages.array64(values))).data.tolist() == values.tolist()


def test_a_layout_of_numbers_is_not_lost():
    kind = "std_msgs/msg/Float64MultiArray"
    row = messages.record("std_msgs/msg/MultiArrayDimension")(label="rows", size=2, stride=2)
    for dim, offset in (([row], 0), ([], 1)):
        layout = messages.record("std_msgs/msg/MultiArrayLayout")(dim=dim, data_offset=offset)
        again = messages.decode(kind, messages.encode(kind, messages.record(kind)(layout=layout, data=np.ones(2))))
        assert len(again.layout.dim) == len(dim) and again.layout.data_offset == offset
