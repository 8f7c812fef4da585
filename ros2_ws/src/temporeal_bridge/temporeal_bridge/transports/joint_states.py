"""A fast decoder of sensor_msgs/JointState: a driver repeats the same names, and only the stamp and the numbers change.

The first message of a layout is decoded whole. A later one of the same length, equal bit for bit but for stamp and
numbers, reuses the frame and the list of names; its numbers are views of its bytes. Every process of a robot decodes up
to 1000 messages a second.

Layout (XCDR1, little endian; offsets from the 4 bytes of encapsulation on): stamp, frame, names, then three sequences
of float64, each with its length before it and aligned to 8 bytes if there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np

STAMP = Struct("<iI")
LENGTH = Struct("<I")
LITTLE_ENDIAN = b"\x00\x01"
HEAD, BODY = 4, 12  # bytes before the stamp, and up to what follows it
FIELDS = ("position", "velocity", "effort")
MOST = 32  # layouts that are kept: a process subscribes to a few drivers


@dataclass(frozen=True)
class Layout:
    """The layout that messages of one length share.

    Args:
        fixed: all bytes before the positions, without the stamp.
        start: offset of the positions.
        places: offset and count of each field's numbers.
        lengths: offsets and values of the sequence lengths after ``start``.
    """

    fixed: bytes
    start: int
    frame: str
    names: list[str]
    places: tuple[tuple[int, int], ...]
    lengths: tuple[tuple[int, int], ...]

    def fits(self, data: bytes) -> bool:
        """Whether a message of this length has this layout."""
        return data[:HEAD] + data[BODY : self.start] == self.fixed and all(
            LENGTH.unpack_from(data, at)[0] == count for at, count in self.lengths)


def layout(data: bytes, message: Any) -> Layout:
    """The layout of a decoded message; raises the errors of ``struct`` if it has none."""
    at = after_string(data, BODY)
    count, at = read_length(data, at)
    for _ in range(count):
        at = after_string(data, at)
    places, lengths = list[tuple[int, int]](), list[tuple[int, int]]()
    for _ in FIELDS:
        count, begin = read_length(data, at)
        begin = aligned(begin, 8) if count else begin
        places.append((begin, count))
        lengths.append((aligned(at, 4), count))
        at = begin + 8 * count
    start = places[0][0]
    return Layout(data[:HEAD] + data[BODY:start], start, message.header.frame_id, message.name, tuple(places),
                  tuple(lengths[1:]))


def aligned(at: int, size: int) -> int:
    """The next offset that is a multiple of ``size``, counted behind the encapsulation."""
    return at + (HEAD - at) % size


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length, and the offset behind it."""
    at = aligned(at, 4)
    return LENGTH.unpack_from(data, at)[0], at + 4


def after_string(data: bytes, at: int) -> int:
    """The offset behind a string."""
    count, begin = read_length(data, at)
    return begin + int(count)


def numbers(data: bytes, place: tuple[int, int]) -> np.ndarray:
    """A view of float64 numbers in a message."""
    return np.frombuffer(data, dtype="<f8", count=place[1], offset=place[0])


class JointStateDecoder:
    """Decodes messages by the layouts that it has seen.

    Args:
        whole: decodes any message.
        record: gives the class of a message type.
    """

    def __init__(self, whole: Callable[[bytes], Any], record: Callable[[str], Any]) -> None:
        self.whole, self.record = whole, record
        self.known: dict[int, Layout] = {}

    def __call__(self, data: bytes) -> Any:
        """The JointState."""
        known = self.known.get(len(data))
        if known is None or not known.fits(data):
            return self._decode_and_remember(data)
        sec, nanosec = STAMP.unpack_from(data, HEAD)
        header = self.record("std_msgs/msg/Header")(
            stamp=self.record("builtin_interfaces/msg/Time")(sec=sec, nanosec=nanosec), frame_id=known.frame)
        position, velocity, effort = (numbers(data, place) for place in known.places)
        return self.record("sensor_msgs/msg/JointState")(
            header=header, name=known.names, position=position, velocity=velocity, effort=effort)

    def _decode_and_remember(self, data: bytes) -> Any:
        message = self.whole(data)
        if data[:2] == LITTLE_ENDIAN:
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[len(data)] = layout(data, message)
        return message
