"""Logs that a Crazyflie writes to its micro SD card (usdlog, versions 1 and 2), at about 1 kHz.

Layout (Bitcraze, ``docs/userguides`` of the uSD-card deck): 0xBC, version and number of event types (uint16 each); per
type its number (uint16), name, number of variables (uint16) and for each ``name(format)``, texts ending with 0; then
events: number (uint16), time (version 1: uint32 ms; 2: uint64 us), values; at the end the CRC-32 of all before it.
Units are the firmware's: accelerometer g, gyro deg/s, motors 0 to 65535, ``locSrv`` and ``stateEstimate`` m and m/s.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    BATTERY,
    COMMAND,
    FULL_PWM,
    GRAVITY,
    IMU,
    MOCAP,
    MOTORS,
    POSITION,
    RATES,
    VELOCITY,
    VOLTAGE,
    FlightLog,
    Stream,
)
from temporeal.robots.handed_over.files import read

KIND = "usdlog"
MAGIC = 0xBC
FORMATS = "bBhHiIqQfd"
"""Of Python's ``struct``, little-endian, as the firmware names types."""
MOST_TYPES, MOST_VARIABLES, LONGEST_NAME = 64, 256, 128
TICK = {1: 1e-3, 2: 1e-6}
STAMP = {1: "<u4", 2: "<u8"}
SUM = 4  # bytes of the check sum, less than any event has
ESTIMATE = "estimate"
WANTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    IMU: {ACCELERATION: ("acc.x", "acc.y", "acc.z"), RATES: ("gyro.x", "gyro.y", "gyro.z")},
    MOTORS: {COMMAND: tuple(f"motor.m{k}" for k in (1, 2, 3, 4))},
    BATTERY: {VOLTAGE: ("pm.vbat",)},
    MOCAP: {POSITION: ("locSrv.x", "locSrv.y", "locSrv.z"),
            ATTITUDE: ("locSrv.qw", "locSrv.qx", "locSrv.qy", "locSrv.qz")},
    ESTIMATE: {POSITION: ("stateEstimate.x", "stateEstimate.y", "stateEstimate.z"),
               VELOCITY: ("stateEstimate.vx", "stateEstimate.vy", "stateEstimate.vz"),
               ATTITUDE: ("stateEstimate.qw", "stateEstimate.qx", "stateEstimate.qy", "stateEstimate.qz")},
}
"""By source and signal, the variables. What motion capture sent to the robot (locSrv) goes before its own estimate."""
SCALE = {ACCELERATION: GRAVITY, RATES: np.pi / 180, COMMAND: 1.0 / FULL_PWM}


@dataclass(frozen=True)
class Event:
    """A type of events: how its values lie in the file."""

    name: str
    dtype: np.dtype[np.void]


def is_this(path: Path) -> bool:
    """Whether a file begins as such a log does."""
    with path.open("rb") as file:
        head = file.read(3)
    return len(head) == 3 and head[0] == MAGIC and struct.unpack("<H", head[1:])[0] in TICK


def read_log(path: Path) -> FlightLog:
    """The log in a file of the card."""
    data = read(path)
    version, events, begin = header_of(path, data)
    whole = len(data) > begin + SUM and zlib.crc32(data[:-SUM]) == struct.unpack("<I", data[-SUM:])[0]
    rows, said = rows_of(path, data[begin : len(data) - SUM if whole else len(data)], events)
    cut = ", and ".join(["its check sum is missing or wrong"] * (not whole) + [said] * bool(said))
    streams = {}
    for name, signals in WANTED.items():
        wanted = [column for columns in signals.values() for column in columns]
        found = next((row for row in rows.values() if row.dtype.names and set(wanted) <= set(row.dtype.names)), None)
        if found is not None and len(found) > 1:
            streams[name] = stream_of(name, found, TICK[version])
    if MOCAP in streams:
        streams.pop(ESTIMATE, None)
    if not streams:
        known = sorted({column for row in rows.values() for column in row.dtype.names or () if "." in column})
        raise DataError(f"{path} has neither acc, gyro, motor, pm.vbat, locSrv nor stateEstimate; it has: "
                        f"{', '.join(known) or 'no event'}")
    first = min(float(stream.times[0]) for stream in streams.values())
    streams = {name: Stream(name, stream.times - first, stream.values) for name, stream in streams.items()}
    return FlightLog(path, KIND, "crazyflie", streams, cut=cut)


def header_of(path: Path, data: bytes) -> tuple[int, Mapping[int, Event], int]:
    """The version, the types of events by number, and where the events begin."""
    try:
        magic, version, count = struct.unpack_from("<BHH", data)
        if magic != MAGIC or version not in TICK:
            raise DataError(f"{path} begins with {data[:3].hex()}; bc0100 or bc0200 is needed")
        if not 0 < count <= MOST_TYPES:
            raise DataError(f"{path}: {count} types of events; 1 to {MOST_TYPES} are legal")
        events, at = {}, 5
        for _ in range(count):
            (number,), at = struct.unpack_from("<H", data, at), at + 2
            name, at = text(data, at)
            (variables,), at = struct.unpack_from("<H", data, at), at + 2
            if variables > MOST_VARIABLES:
                raise DataError(f"{path}: event {name!r} has {variables} variables; {MOST_VARIABLES} at most are legal")
            fields: list[tuple[str, str]] = [("number", "<u2"), ("stamp", STAMP[version])]
            for _ in range(variables):
                told, at = text(data, at)
                fields.append((told[:-3], f"<{format_of(path, told)}"))
            events[number] = Event(name, np.dtype(fields))
    except (struct.error, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: its header cannot be read: {error}") from error
    return version, events, at


def text(data: bytes, at: int) -> tuple[str, int]:
    """The text at ``at``, and where it is over."""
    end = data.index(b"\0", at, at + LONGEST_NAME)
    return data[at:end].decode("ascii"), end + 1


def format_of(path: Path, told: str) -> str:
    """The format letter of ``acc.x(f)``."""
    if len(told) < 4 or told[-3] != "(" or told[-1] != ")" or told[-2] not in FORMATS:
        raise DataError(f"{path}: variable {told!r}; name(F) with F of {FORMATS} is needed")
    return np.dtype(told[-2]).str.lstrip("<>|=") if told[-2] in "bB" else np.dtype(f"<{told[-2]}").str[1:]


def rows_of(path: Path, body: bytes, events: Mapping[int, Event]) -> tuple[dict[int, np.ndarray], str]:
    """The events by number of their type, up to the first that the header does not name; and what is left behind
    them, in words; "": at most a check sum that is wrong."""
    if len(events) == 1:
        (number, event), = events.items()
        rows = np.frombuffer(body, event.dtype, len(body) // event.dtype.itemsize)
        wrong = np.flatnonzero(rows["number"] != number)[:1]
        rows = rows[: wrong[0]] if wrong.size else rows
        out, at = {number: rows}, rows.nbytes
    else:
        out, at = several(body, events)
    if (left := len(body) - at) <= SUM:
        return out, ""
    (number,) = struct.unpack_from("<H", body, at)
    if number in events:
        return out, f"the last {left} bytes are a part of an event"
    said = (f"byte {at} of its events is of type {number}, which the header does not name: bytes are missing or "
            "damaged before it")
    if at == 0:
        raise DataError(f"{path}: {said}")
    return out, f"{said}; {left} bytes are not read"


def several(body: bytes, events: Mapping[int, Event]) -> tuple[dict[int, np.ndarray], int]:
    """The events of several types by number, and where they are over."""
    places: dict[int, list[int]] = {number: [] for number in events}
    at = 0
    while at + SUM < len(body):
        (number,) = struct.unpack_from("<H", body, at)
        if number not in events or at + events[number].dtype.itemsize > len(body):
            break
        places[number].append(at)
        at += events[number].dtype.itemsize
    raw = np.frombuffer(body, np.uint8)
    return {number: raw[np.add.outer(found, np.arange(events[number].dtype.itemsize))].view(events[number].dtype)[:, 0]
            for number, found in places.items() if found}, at


def stream_of(name: str, rows: np.ndarray, tick: float) -> Stream:
    """One source of a type of events."""
    values = {}
    for signal, columns in WANTED[name].items():
        found = np.stack([rows[column].astype(np.float64) for column in columns], 1) * SCALE.get(signal, 1.0)
        values[signal] = found[:, 0] if len(columns) == 1 else found
    return Stream(name, rows["stamp"].astype(np.float64) * tick, values)
