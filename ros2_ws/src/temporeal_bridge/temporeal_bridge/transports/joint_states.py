"""Reads sensor_msgs/JointState fast: a driver says the same names again and again, and only stamp and numbers change.

A message is read whole the first time. The next ones of the same length, in which everything but the stamp and the
numbers is the same to the bit, take the header's frame and the names from it, as the same list, and views of their own
numbers: every process of a robot reads up to 1000 of them a second.

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
MOST = 32  # layouts that are kept: a process hears a few drivers


@dataclass(frozen=True)
class Layout:
    """What messages of one length have in common.

    Args:
        start: of the positions, up to where all but the stamp is ``fixed``.
        places: of each field its numbers' offset, and how many they are.
        lengths: offsets of the lengths that stand behind ``start``, and their values.
    """

    fixed: bytes
    start: int
    frame: str
    names: list[str]
    places: tuple[tuple[int, int], ...]
    lengths: tuple[tuple[int, int], ...]

    def fits(self, data: bytes) -> bool:
        """Whether a message of this length is laid out so."""
        return data[:HEAD] + data[BODY : self.start] == self.fixed and all(
            LENGTH.unpack_from(data, at)[0] == count for at, count in self.lengths)


def layout(data: bytes, message: Any) -> Layout:
    """The layout of a message that was read; the errors of ``struct`` where it is none."""
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


class Reader:
    """``whole`` reads any message, ``record`` gives the class of a message type: see the module."""

    def __init__(self, whole: Callable[[bytes], Any], record: Callable[[str], Any]) -> None:
        self.whole, self.record = whole, record
        self.known: dict[int, Layout] = {}

    def __call__(self, data: bytes) -> Any:
        """The JointState."""
        known = self.known.get(len(data))
        if known is None or not known.fits(data):
            return self._learnt(data)
        sec, nanosec = STAMP.unpack_from(data, HEAD)
        header = self.record("std_msgs/msg/Header")(
            stamp=self.record("builtin_interfaces/msg/Time")(sec=sec, nanosec=nanosec), frame_id=known.frame)
        position, velocity, effort = (numbers(data, place) for place in known.places)
        return self.record("sensor_msgs/msg/JointState")(
            header=header, name=known.names, position=position, velocity=velocity, effort=effort)

    def _learnt(self, data: bytes) -> Any:
        message = self.whole(data)
        if data[:2] == LITTLE_ENDIAN:
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[len(data)] = layout(data, message)
        return message
