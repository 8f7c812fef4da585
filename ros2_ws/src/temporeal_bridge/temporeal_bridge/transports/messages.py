"""ROS 2 messages without ROS: plain records, their CDR bytes, their definitions and their type hashes.

The records are the ones of the ``rosbags`` type store; their fields are those of the ``.msg`` files. CDR bytes are
little-endian XCDR1 with the 4-byte encapsulation header, as every ROS 2 middleware writes them.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from struct import Struct
from typing import Any

import numpy as np
from rosbags.typesys import Stores, TypesysError, get_types_from_msg, get_typestore

from temporeal_bridge.transports.joint_states import JointStateDecoder

JOINT_STATE, NUMBERS = "sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray"
UNLAID = bytes((0, 1, 0, 0)) + bytes(8)  # little endian; a layout without dimensions and offset
LENGTH = Struct("<I4x")  # then the numbers, aligned to 8 bytes behind the encapsulation
DISTRO = "jazzy"  # message definitions are those of $ROS_DISTRO where that is set and known


class MessageError(ValueError):
    """An unknown message type, or bytes that are not a message of the stated type."""


@lru_cache(maxsize=1)
def store() -> Any:
    """The type store of this process."""
    known = {s.value.removeprefix("ros2_"): s for s in Stores if s.value.startswith("ros2_")}
    return get_typestore(known.get(os.environ.get("ROS_DISTRO", DISTRO), known[DISTRO]))


def define(definitions: dict[str, str]) -> None:
    """Add message types that plain ROS 2 does not have, from the text of their ``.msg`` files.

    A type has one definition in a process: other fields under a known name (another version of a package) are an error.
    """
    new: dict[str, Any] = {}
    for name, text in definitions.items():
        try:
            found = get_types_from_msg(text, name)
        except TypesysError as error:
            raise MessageError(f"the definition of {name!r} cannot be read: {error}") from error
        for part, (constants, fields) in found.items():
            known = {**store().fielddefs, **new}.get(part)
            if known is None:
                new[part] = (constants, fields)
            elif known[1] != fields:
                raise MessageError(f"{part} is defined with other fields than before: two versions of its package")
    if new:
        store().register(new)


def record(name: str) -> Any:
    """The record class of message type ``name`` (``geometry_msgs/msg/Twist``)."""
    return record_of(store(), name)


@cache
def record_of(types: Any, name: str) -> Any:
    """The same of another type store."""
    if name not in types.types:
        package = name.split("/")[0]
        near = sorted(t for t in types.types if t.split("/")[0] == package)
        hint = f"{package} has: {', '.join(near)}" if near else "add its .msg text under `definitions` in ros.yaml"
        raise MessageError(f"unknown message type {name!r}; {hint}")
    return types.types[name]


def prepare(name: str) -> None:
    """Compile the codec of a type now; at first use it takes some 15 ms."""
    record(name)
    store().get_msgdef(name)


def encode(name: str, message: Any) -> bytes:
    """CDR bytes of ``message``."""
    if name == NUMBERS and not message.layout.dim and not message.layout.data_offset and np.ndim(message.data) == 1:
        return row_of_numbers(message.data)
    return bytes(store().serialize_cdr(message, name))


def row_of_numbers(values: Any) -> bytes:
    """CDR bytes of a ``std_msgs/msg/Float64MultiArray`` without layout: the most frequent message of control cycles."""
    data = np.asarray(values, dtype="<f8")
    if not data.size:
        return UNLAID + bytes(4)
    return UNLAID + LENGTH.pack(data.size) + data.tobytes()


def decode(name: str, data: bytes) -> Any:
    """The message of type ``name`` in the CDR bytes ``data``."""
    record(name)
    try:
        return joint_states(data) if name == JOINT_STATE else store().deserialize_cdr(data, name)
    except Exception as error:  # the generated codec raises whatever its struct calls raise
        raise MessageError(f"{len(data)} bytes are not a {name}: {error}") from error


joint_states = JointStateDecoder(lambda data: store().deserialize_cdr(data, JOINT_STATE), record)


@cache
def type_hash(name: str) -> str:
    """``RIHS01_...``: the hash that ROS 2 compares types by (REP 2011)."""
    record(name)
    return str(store().hash_rihs01(name))


def dds_type(name: str) -> str:
    """The DDS name of a message type: ``geometry_msgs/msg/Twist`` -> ``geometry_msgs::msg::dds_::Twist_``."""
    parts = name.split("/")
    if len(parts) != 3 or not all(parts):
        raise MessageError(f"a message type is written package/msg/Name, got {name!r}")
    return f"{parts[0]}::{parts[1]}::dds_::{parts[2]}_"


def definition(name: str) -> str:
    """The complete definition (with those of its parts) that a bag carries."""
    return str(store().generate_msgdef(name, ros_version=2)[0])


def time(stamp_ns: int) -> Any:
    """``builtin_interfaces/msg/Time`` of nanoseconds since the epoch."""
    return record("builtin_interfaces/msg/Time")(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def nanoseconds(stamp: Any) -> int:
    """Nanoseconds since the epoch of a ``builtin_interfaces/msg/Time``."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def header(stamp_ns: int, frame_id: str = "") -> Any:
    """``std_msgs/msg/Header``."""
    return record("std_msgs/msg/Header")(stamp=time(stamp_ns), frame_id=frame_id)


def empty() -> bytes:
    """CDR bytes of ``std_msgs/msg/Empty``, whose one byte is DDS's stand-in for no member."""
    kind = "std_msgs/msg/Empty"
    return encode(kind, record(kind)(structure_needs_at_least_one_member=0))


def array64(values: Any) -> Any:
    """``std_msgs/msg/Float64MultiArray`` of numbers in one row."""
    layout = record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return record("std_msgs/msg/Float64MultiArray")(layout=layout, data=values)


def diagnostics(stamp_ns: int, name: str, hardware: str, level: int, text: str, values: dict[str, Any]) -> Any:
    """``diagnostic_msgs/msg/DiagnosticArray`` with one status. ``level``: 0 ok, 1 warning, 2 error, 3 stale."""
    pair = record("diagnostic_msgs/msg/KeyValue")
    status = record("diagnostic_msgs/msg/DiagnosticStatus")(
        level=level, name=name, message=text, hardware_id=hardware,
        values=[pair(key=key, value=str(value)) for key, value in values.items()])
    return record("diagnostic_msgs/msg/DiagnosticArray")(header=header(stamp_ns), status=[status])
