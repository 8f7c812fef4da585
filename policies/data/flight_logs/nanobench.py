"""NanoBench: flights of a Crazyflie 2.1 as CSV, motion capture and onboard values in rows of 100 Hz.

Syed Izzat Ullah and Jose Baca, ``syediu/nanobench-iros2026`` (BSD-3-Clause). Units as the data shows them (checked by
:mod:`.inspection` on every log that is read): Vicon position m, quaternion xyzw body to world, velocity m/s world;
accelerometer g; gyro rad/s; motors 0 to 65535; battery V. The authors put all sources onto Vicon's times, so that a row
may hold values that lay between two samples: what is a straight line is marked by :mod:`.channels`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
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

KIND = "nanobench"
LARGEST = 1 << 28  # bytes of a file, decompressed
PIECE = 1 << 16
GZIP = 31  # zlib's word for a gzip header and trailer
TIME = "t"
QUATERNION = ("qw", "qx", "qy", "qz")
COLUMNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    MOCAP: {POSITION: ("px", "py", "pz"), ATTITUDE: QUATERNION, VELOCITY: ("vx", "vy", "vz")},
    IMU: {ACCELERATION: ("imu_acc_x", "imu_acc_y", "imu_acc_z"), RATES: ("imu_gyro_x", "imu_gyro_y", "imu_gyro_z")},
    MOTORS: {COMMAND: tuple(f"motor_motor_m{k}" for k in (1, 2, 3, 4))},
    BATTERY: {VOLTAGE: ("pwr_pm_vbat",)},
}
"""By source and signal, the columns that are read; estimates, set points and controllers' outputs are not."""
SCALE = {ACCELERATION: GRAVITY, COMMAND: 1.0 / FULL_PWM}
"""From the file's units to the signal's."""
MUST = (TIME, "px", "qw", "imu_acc_x", "imu_gyro_x", "motor_motor_m1")
"""A table that has these is of this kind."""


def is_this(header: list[str]) -> bool:
    """Whether a CSV's columns are NanoBench's."""
    return set(MUST) <= set(header)


def read_log(path: Path) -> FlightLog:
    """The log in a ``.csv`` or ``.csv.gz``."""
    text, cut = text_of(path)
    lines = text.splitlines()
    header = [name.strip() for name in lines[0].split(",")] if lines else []
    if not is_this(header):
        raise DataError(f"{path}: its columns are not NanoBench's: {', '.join(MUST)} are needed")
    if lines and lines[-1].count(",") != lines[0].count(",") or (text and not text.endswith("\n")):
        cut = cut or f"its last line, {len(lines)}, ends in the middle"
        lines = lines[:-1]
    try:
        table = np.loadtxt(lines, delimiter=",", skiprows=1, ndmin=2, dtype=np.float64, comments=None)
    except ValueError as error:
        raise DataError(f"{path}: its rows are no numbers in {len(header)} columns: {error}") from error
    if len(table) < 2:
        raise DataError(f"{path} has {len(table)} rows; two at least are needed")
    at = {name: k for k, name in enumerate(header)}
    streams = {name: stream_of(name, table, at) for name, signals in COLUMNS.items()
               if all(column in at for columns in signals.values() for column in columns)}
    return FlightLog(path, KIND, "crazyflie", streams, cut=cut,
                     notes=tuple(f"no columns of {name}" for name in COLUMNS if name not in streams))


def stream_of(name: str, table: np.ndarray, at: dict[str, int]) -> Stream:
    """One source of the table."""
    values = {}
    for signal, columns in COLUMNS[name].items():
        found = table[:, [at[column] for column in columns]] * SCALE.get(signal, 1.0)
        values[signal] = found[:, 0] if len(columns) == 1 else found
    times = table[:, at[TIME]]
    first = times[np.isfinite(times)][:1]  # [0] or [1]: there may be none
    return Stream(name, times - (first[0] if len(first) else 0.0), values)


def text_of(path: Path) -> tuple[str, str]:
    """The text of the file, and why it is not whole; "": it is."""
    data = read(path, LARGEST)
    if path.suffix != ".gz":
        return data.decode(errors="replace"), ""
    out = bytearray()
    while data:  # a file may have several parts
        reader = zlib.decompressobj(GZIP)
        try:
            for begin in range(0, len(data), PIECE):
                out += reader.decompress(data[begin : begin + PIECE], LARGEST + 1 - len(out))
                if len(out) > LARGEST or reader.unconsumed_tail:
                    raise DataError(f"{path}: more than {LARGEST >> 20} MiB when decompressed")
                if reader.eof:
                    break
        except zlib.error as error:
            return out.decode(errors="replace"), f"its compressed data are damaged: {error}"
        if not reader.eof:
            return out.decode(errors="replace"), "its compressed data end early"
        data = data[min(begin + PIECE, len(data)) - len(reader.unused_data) :]
    return out.decode(errors="replace"), ""
