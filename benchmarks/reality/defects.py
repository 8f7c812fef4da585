"""A table of defects: each, injected into a clean excerpt of a flight, is found, named, and blamed on its cause.

Excerpts of NanoBench (motion capture, 100 Hz) and usdlog (an IMU, 1 kHz). A defect counts as found where ``temporeal
log inspect`` says what the row of the table has, and calls nothing else wrong: what is wrong is one thing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    MARKED,
    POSITION,
    RATES,
    VELOCITY,
    WRONG,
    FlightLog,
    Numbers,
)
from temporeal.policies.data.flight_logs.inspection import Inspection, inspect
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, Change, both, clean, times, values, without
from temporeal_benchmarks.rows import Row, at_least, none_of

DEGREES = 180 / np.pi


def swapped(a: int, b: int) -> Callable[[Numbers], Numbers]:
    """Two axes in each other's place."""
    return lambda found: found[:, [b if k == a else a if k == b else k for k in range(found.shape[1])]]


def turned(*axes: int) -> Callable[[Numbers], Numbers]:
    return lambda found: found * np.where(np.isin(np.arange(found.shape[1]), axes), -1.0, 1.0)


def scaled(factor: float) -> Callable[[Numbers], Numbers]:
    return lambda found: found * factor


def at(rows: slice | list[int], column: int, value: float) -> Callable[[Numbers], Numbers]:
    def changed(found: Numbers) -> Numbers:
        found[rows, column] = value
        return found
    return changed


def spikes(column: int, size: float) -> Callable[[Numbers], Numbers]:
    def changed(found: Numbers) -> Numbers:
        found[[500, 700, 900], column] += size
        return found
    return changed


def lined(found: Numbers) -> Numbers:
    """Half a second that somebody filled with straight lines."""
    found[600:650] = np.linspace(found[600], found[650], 51)[:50]
    return found


def repeated(found: Numbers) -> Numbers:
    found[700] = found[699]
    return found


def set_back(found: Numbers) -> Numbers:
    found[700:] -= 5.0
    return found


MOCAP_DEFECTS = {
    "gyro in deg/s": (values(RATES, scaled(DEGREES)), WRONG, "unit", RATES, "deg for rad"),
    "gyro in rad/s, read as deg/s": (values(RATES, scaled(1 / DEGREES)), WRONG, "unit", RATES, "rad for deg"),
    "accelerometer in g": (values(ACCELERATION, scaled(1 / 9.80665)), WRONG, "unit", ACCELERATION, "in g"),
    "accelerometer scaled twice": (values(ACCELERATION, scaled(9.80665)), WRONG, "unit", ACCELERATION, "twice"),
    "accelerometer in mm/s^2": (values(ACCELERATION, scaled(1000)), WRONG, "unit", ACCELERATION, "mm/s^2"),
    "gravity taken out": (values(ACCELERATION, lambda a: a - [0, 0, 9.81]), WRONG, "unit", ACCELERATION, "taken out"),
    "position in mm": (values(POSITION, scaled(1000)), WRONG, "unit", POSITION, "mm for m"),
    "position in cm": (values(POSITION, scaled(100)), WRONG, "unit", POSITION, "cm for m"),
    "velocity in mm/s": (values(VELOCITY, scaled(1000)), WRONG, "unit", VELOCITY, "mm for m"),
    "motion capture in mm": (
        both(values(POSITION, scaled(1000)), values(VELOCITY, scaled(1000))), WRONG, "unit", VELOCITY, "mm for m"),
    "gyro x and y swapped": (values(RATES, swapped(0, 1)), WRONG, "axes", RATES, "x is y, y is x"),
    "gyro x turned": (values(RATES, turned(0)), WRONG, "axes", RATES, "x is -x"),
    "gyro in FRD": (values(RATES, turned(1, 2)), WRONG, "axes", RATES, "y is -y"),
    "accelerometer x and y swapped": (
        values(ACCELERATION, swapped(0, 1)), WRONG, "axes", ACCELERATION, "x is y, y is x"),
    "accelerometer x and z swapped": (values(ACCELERATION, swapped(0, 2)), WRONG, "axes", ACCELERATION, "along x"),
    "accelerometer in FRD": (values(ACCELERATION, turned(1, 2)), WRONG, "axes", ACCELERATION, "points down"),
    "position x and y swapped": (values(POSITION, swapped(0, 1)), WRONG, "axes", POSITION, "x is y, y is x"),
    "velocity y turned": (values(VELOCITY, turned(1)), WRONG, "axes", VELOCITY, "y is -y"),
    "motion capture x and y swapped": (
        both(values(POSITION, swapped(0, 1)), values(VELOCITY, swapped(0, 1))), WRONG, "axes", VELOCITY, "x is y"),
    "motion capture in NED": (
        both(values(POSITION, turned(1, 2)), values(VELOCITY, turned(1, 2))), WRONG, "axes", VELOCITY, "y is -y"),
    "quaternion xyzw, read as wxyz": (
        values(ATTITUDE, lambda q: q[:, [1, 2, 3, 0]]), WRONG, "quaternion order", ATTITUDE, "xyzw"),
    "quaternion wxyz, read as xyzw": (
        values(ATTITUDE, lambda q: q[:, [3, 0, 1, 2]]), WRONG, "quaternion order", ATTITUDE, "wxyz"),
    "quaternion inverse": (values(ATTITUDE, turned(1, 2, 3)), WRONG, "quaternion inverse", ATTITUDE, "world to body"),
    "quaternion of length 2": (values(ATTITUDE, scaled(2)), WRONG, "no unit quaternion", ATTITUDE, "length 1"),
    "motion capture 0.2 s late": (times("mocap", lambda t: t + 0.2), WRONG, "two clocks", "mocap, imu", "behind"),
    "motion capture 0.3 s early": (times("mocap", lambda t: t - 0.3), WRONG, "two clocks", "mocap, imu", "ahead"),
    "motion capture's clock 2 % fast": (
        times("mocap", lambda t: t * 1.02), WRONG, "two clocks", "mocap, imu", "drift"),
    "two epochs": (times("mocap", lambda t: t + 1.7e9), WRONG, "two clocks", "mocap", "no time in common"),
    "commands 0.6 s early": (times("motors", lambda t: t - 0.6), WRONG, "two clocks", "motors, imu", "possible"),
    "a gap of motion capture": (without("mocap", 600, 640), MARKED, "gap", "mocap", "0.41 s"),
    "a time twice": (times("imu", repeated), MARKED, "times go back", "imu", "repeat"),
    "a clock set back": (times("imu", set_back), WRONG, "clock set", "imu", "no order"),
    "motion capture jumps": (values(POSITION, spikes(0, 1.0)), MARKED, "outlier", f"{POSITION}.x", "3 outliers"),
    "gyro spikes": (values(RATES, spikes(1, 25.0)), MARKED, "outlier", f"{RATES}.y", "3 outliers"),
    "accelerometer spikes": (values(ACCELERATION, spikes(2, 80.0)), MARKED, "outlier", f"{ACCELERATION}.z", "3 out"),
    "gyro z constant": (values(RATES, at(slice(None), 2, 0.0)), WRONG, "constant", f"{RATES}.z", "gives 0"),
    "motion capture frozen for 1 s": (
        values(POSITION, at(slice(600, 700), 0, 0.5)), MARKED, "constant", f"{POSITION}.x", "0.5"),
    "a motor stuck": (values(COMMAND, at(slice(None), 1, 0.6)), WRONG, "constant", "command.m2", "0.6"),
    "gyro clipped": (values(RATES, lambda w: np.clip(w, -0.6, 0.6)), MARKED, "clipped", RATES, "never goes"),
    "accelerometer clipped": (
        values(ACCELERATION, lambda a: np.minimum(a, 10.3)), MARKED, "clipped", f"{ACCELERATION}.z", "10.3"),
    "commands clipped": (values(COMMAND, lambda u: np.minimum(u, 0.85)), MARKED, "clipped", "command", "0.85"),
    "no numbers": (values(RATES, at([500, 501], 0, np.nan)), MARKED, "no number", f"{RATES}.x", "2 samples"),
    "filled motion capture": (values(POSITION, lined), MARKED, "filled", "mocap", "straight lines"),
    "another robot": (values(COMMAND, scaled(0.3)), WRONG, "another robot", ACCELERATION, "no crazyflie"),
}
IMU_DEFECTS = {
    "gyro in deg/s": (values(RATES, scaled(DEGREES)), WRONG, "unit", RATES, "deg/s, not rad/s"),
    "gyro in rad/s, read as deg/s": (values(RATES, scaled(1 / DEGREES)), WRONG, "unit", RATES, "taken for deg/s"),
    "accelerometer in g": (values(ACCELERATION, scaled(1 / 9.80665)), WRONG, "unit", ACCELERATION, "in g"),
    "gyro x and y swapped": (values(RATES, swapped(0, 1)), WRONG, "axes", RATES, "x is y, y is x"),
    "gyro y turned": (values(RATES, turned(1)), WRONG, "axes", RATES, "y is -y"),
    "accelerometer y and z swapped": (values(ACCELERATION, swapped(1, 2)), WRONG, "axes", ACCELERATION, "along y"),
    "motors in another order": (values(COMMAND, lambda u: u[:, [1, 2, 3, 0]]), WRONG, "axes", RATES, "another order"),
    "another robot, that turns slowly": (values(RATES, scaled(0.15)), WRONG, "another robot", RATES, "no crazyflie"),
    "another robot, that is light": (
        values(COMMAND, scaled(0.3)), WRONG, "another robot", ACCELERATION, "no crazyflie"),
    "gyro clipped": (values(RATES, lambda w: np.clip(w, -1.0, 1.0)), MARKED, "clipped", RATES, "never goes"),
    "a gap": (both(without("imu", 900, 960), without("motors", 900, 960)), MARKED, "gap", "imu", "gap"),
    "a clock set back": (times("imu", set_back), WRONG, "clock set", "imu", "no order"),
}


class Defect(NamedTuple):
    """One row: what is done to which log, and what is to be said of what."""

    path: Path
    name: str
    inject: Change
    status: str
    defect: str
    subject: str
    said: str


TABLE = tuple(Defect(path, name, *row) for path, rows in ((NANOBENCH, MOCAP_DEFECTS), (USDLOG, IMU_DEFECTS))
              for name, row in rows.items())


def inspected(log: FlightLog) -> Inspection:
    """As ``temporeal log inspect`` does it."""
    return inspect(log, logs.robot())


def told(each: Defect) -> tuple[bool, list[str]]:
    """Whether a defect is found, named and nothing else blamed; all that is said."""
    found = inspected(each.inject(clean(each.path)))
    bad = found.of(WRONG, MARKED)
    named = any(one.status == each.status and one.defect == each.defect and each.subject in one.subject
                and each.said in one.said for one in bad)
    alone = {one.defect for one in found.of(WRONG)} <= {each.defect}
    return named and alone, [f"{one.status} {one.defect} {one.subject}: {one.said}" for one in bad]


def rows(quick: bool, out: Path) -> list[Row]:
    """The share of the table that is found; logs without a defect in which something is found."""
    asked = TABLE[::6] if quick else TABLE
    missed = [each.name for each in asked if not told(each)[0]]
    clear = [path.name for path in (NANOBENCH, USDLOG) if inspected(clean(path)).of(WRONG, MARKED)]
    return [at_least("reality.logs.defects_found", 1 - len(missed) / len(asked), "1", 1.0,
                     f"{len(asked) - len(missed)} of {len(asked)}" + (f"; not: {', '.join(missed)}" if missed else "")),
            none_of("reality.logs.clean_called_bad", len(clear), ", ".join(clear) or "of 2 excerpts as they are")]
