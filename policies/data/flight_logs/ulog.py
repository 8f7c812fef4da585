"""PX4's logs (ULog), read by pyulog (optional: ``pip install pyulog``).

Topics (PX4-Autopilot v1.16, msg/): ``vehicle_attitude`` (wxyz, FRD to NED), ``vehicle_local_position`` (NED),
``sensor_combined`` (gyro rad/s, accelerometer m/s^2, FRD), ``actuator_motors`` (share of thrust; NaN, stopped, is 0),
``battery_status``. All become ENU and FLU; motors take the order of this project (front right, rear right, rear left,
front left), which is 1, 4, 2, 3 of PX4's quad x. Attitude and position are the estimator's, which itself reads the IMU:
that they agree says less than it does of motion capture.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import ActionSpec, DataError
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    BATTERY,
    COMMAND,
    IMU,
    MOTORS,
    POSITION,
    RATES,
    VELOCITY,
    VOLTAGE,
    FlightLog,
    Marks,
    Numbers,
    Stream,
)
from temporeal.robots.frames import enu_flu_from_ned_frd, enu_from_ned, flu_from_frd
from temporeal.robots.handed_over.files import read

KIND = "ulog"
MAGIC = b"ULog\x01\x12\x35"
HEADER, MESSAGE = 16, 3
THRUST = ActionSpec("motor_thrust", (0.0,) * 4, (1.0,) * 4, "1", ("m1", "m2", "m3", "m4"))
"""Share of full thrust; PX4 makes motor signals of it (THR_MDL_FAC)."""
ATTITUDES, POSITIONS = "attitude estimate", "position estimate"
ORDER = (1, 4, 2, 3)
Made = Callable[[Mapping[str, Numbers]], dict[str, Numbers]]


def vector(data: Mapping[str, Numbers], *names: str) -> Numbers:
    """[T, n] of the fields ``names``."""
    return np.stack([np.asarray(data[name], np.float64) for name in names], 1)


def indexed(data: Mapping[str, Numbers], name: str, count: int) -> Numbers:
    """[T, count] of the array ``name``."""
    return vector(data, *(f"{name}[{k}]" for k in range(count)))


TOPICS: Mapping[str, tuple[str, Made]] = {
    ATTITUDES: ("vehicle_attitude", lambda data: {ATTITUDE: enu_flu_from_ned_frd(indexed(data, "q", 4))}),
    POSITIONS: ("vehicle_local_position", lambda data: {
        POSITION: enu_from_ned(vector(data, "x", "y", "z")), VELOCITY: enu_from_ned(vector(data, "vx", "vy", "vz"))}),
    IMU: ("sensor_combined", lambda data: {
        ACCELERATION: flu_from_frd(indexed(data, "accelerometer_m_s2", 3)),
        RATES: flu_from_frd(indexed(data, "gyro_rad", 3))}),
    MOTORS: ("actuator_motors", lambda data: {
        COMMAND: vector(data, *(f"control[{k - 1}]" for k in ORDER))}),
    BATTERY: ("battery_status", lambda data: {VOLTAGE: np.asarray(data["voltage_v"], np.float64)}),
}
"""By source, its topic and its signals."""


def is_this(path: Path) -> bool:
    """Whether a file begins as a ULog does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_log(path: Path) -> FlightLog:
    """The log in a ``.ulg``."""
    data = read(path)
    found = parsed(path, data)
    streams, lacks = dict[str, Stream](), list[str]()
    for name, (topic, made) in TOPICS.items():
        rows = next((each.data for each in found.data_list if each.name == topic and each.multi_id == 0), None)
        if rows is None or len(rows["timestamp"]) < 2:
            lacks.append(f"no topic {topic}")
            continue
        try:
            streams[name] = Stream(name, np.asarray(rows["timestamp"], np.float64) * 1e-6, made(rows))
        except KeyError as error:
            lacks.append(f"{topic} has no field {error}")
    if not streams:
        raise DataError(f"{path}: {'; '.join(lacks)}; its topics: "
                        f"{', '.join(sorted({each.name for each in found.data_list})) or 'none of these'}")
    first = min(float(stream.times[0]) for stream in streams.values())
    streams = {name: Stream(name, stream.times - first, stream.values) for name, stream in streams.items()}
    streams, doubted, stopped = running(streams)
    lost = [f"PX4 says that it dropped {len(found.dropouts)} times what it should have logged"] * bool(found.dropouts)
    cut = cut_of(data, found.file_corruption)
    return FlightLog(path, KIND, "", streams, THRUST if MOTORS in streams else None, cut, (*lacks, *lost, *stopped),
                     doubted=doubted)


def running(streams: dict[str, Stream]) -> tuple[dict[str, Stream], dict[str, Marks], list[str]]:
    """The streams, in which motors that PX4 calls stopped (NaN) are told 0; which samples these are, and a note."""
    if MOTORS not in streams:
        return streams, {}, []
    command = streams[MOTORS].values[COMMAND]
    stopped = np.asarray(np.isnan(command).any(1))
    if not stopped.any():
        return streams, {}, []
    told = replace(streams[MOTORS], values={COMMAND: np.where(np.isnan(command), 0.0, command)})
    return {**streams, MOTORS: told}, {MOTORS: stopped}, [
        f"{stopped.sum()} of {len(stopped)} commands are no number for a motor, by which PX4 means that it is stopped: "
        "they are read as 0, and marked"]


def parsed(path: Path, data: bytes) -> Any:
    """What pyulog reads; its warnings go nowhere, because what they say is found again here."""
    try:
        from pyulog import ULog
    except ModuleNotFoundError as error:
        raise DataError(f"{path} is a ULog, which pyulog reads: pip install pyulog") from error
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return ULog(io.BytesIO(data), [topic for topic, _ in TOPICS.values()])
    except Exception as error:  # of its own kinds, and whatever damaged bytes make of its parser
        raise DataError(f"{path} cannot be read: {error}") from error


def cut_of(data: bytes, damaged: bool) -> str:
    """Why the file is not whole; "": its last message ends with it."""
    at = HEADER
    while at + MESSAGE <= len(data):
        at += MESSAGE + struct.unpack_from("<H", data, at)[0]
    if at != len(data):
        return "its last message ends in the middle"
    return "some of its messages are damaged" if damaged else ""
