"""A log that was inspected, as identification takes it: one even grid, and which samples of it may be used."""

from __future__ import annotations

import hashlib

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    POSITION,
    RATES,
    VELOCITY,
    VOLTAGE,
    Marks,
    Numbers,
    Stream,
)
from temporeal.policies.data.flight_logs.inspection import Inspection
from temporeal.policies.data.flight_logs.motion import Even, smooth
from temporeal.robots.handed_over.files import read
from temporeal.sim.identification.record import FlightRecord

MOTORS = ("motor_pwm", "motor_thrust", "motor_cmd")
"""Commands of which each component is one motor's, a share of its full command."""
LONGEST_GAP_S = 0.03
"""What is not measured for longer is no straight line between its neighbours any more."""
OWN = "motor_cmd"
"""What a policy of this project tells each motor itself, at its own rate: no loop behind it makes others."""
FAST_HZ = 250.0
"""A Crazyflie's attitude loop makes commands at 500 Hz; of logs slower than this, part of them is not there."""
SMOOTH_S = 0.05
FEWEST_RESTING = 100


def record_of(inspection: Inspection) -> tuple[FlightRecord, bool]:
    """The record, and whether its commands were logged more slowly than the robot's loop makes them."""
    log, even = inspection.log, inspection.even
    if log.command is None or log.command.name not in MOTORS:
        told = "no commands" if log.command is None else f"the command {log.command.name}"
        raise DataError(f"{log.path} has {told}: identification needs what each motor was told ({', '.join(MOTORS)})")
    if even is None or not even.has(COMMAND, RATES):
        absent = [name for name in (COMMAND, RATES) if even is None or name not in even.values]
        raise DataError(f"{log.path}: identification needs motors and gyro over one time; not there: "
                        f"{', '.join(absent)}")
    motors = log.stream_of(COMMAND)
    assert motors is not None
    low, high = np.array(log.command.low), np.array(log.command.high)
    attitude, position = even.values.get(ATTITUDE), even.values.get(POSITION)
    velocity = even.values.get(VELOCITY)
    if velocity is None and position is not None:
        velocity = np.gradient(smooth(position, max(int(round(SMOOTH_S / even.step)), 1)), even.step, axis=0)
    felt = even.values.get(ACCELERATION)
    if felt is None and (attitude is None or velocity is None):
        raise DataError(f"{log.path} has no accelerometer: identification needs it, or attitude and velocity")
    resting = even.values[RATES][even.resting]
    record = FlightRecord(
        log.name, digest(inspection), even.step, (even.values[COMMAND] - low) / (high - low),
        even.values.get(VOLTAGE), even.values[RATES], felt, usable(inspection, even),
        attitude, velocity, position, resting if len(resting) >= FEWEST_RESTING else None)
    return record, log.command.name != OWN and motors.period > 1 / FAST_HZ


def usable(inspection: Inspection, even: Even) -> Marks:
    """[G] in flight, and no source missing for long."""
    out = even.flying.copy()
    for name, stream in inspection.log.streams.items():
        out &= ~missing(even, stream, inspection.measured[name])
    return out


def missing(even: Even, stream: Stream, measured: Marks) -> Marks:
    """[G] where ``stream`` has no measurement for longer than :data:`LONGEST_GAP_S`, or than three of its periods."""
    times: Numbers = stream.times[measured]
    limit = max(LONGEST_GAP_S, 3 * stream.period)
    wide = np.flatnonzero(np.diff(times) > limit)
    out = np.zeros(len(even.times), bool)
    for k in wide:
        out |= (even.times > times[k]) & (even.times < times[k + 1])
    return out


def digest(inspection: Inspection) -> str:
    """SHA-256 of the log's file; of a folder, of its streams' numbers."""
    path = inspection.log.path
    if path.is_file():
        return hashlib.sha256(read(path)).hexdigest()
    out = hashlib.sha256()
    for name, stream in sorted(inspection.log.streams.items()):
        out.update(name.encode() + np.ascontiguousarray(stream.times).tobytes())
        for signal, values in sorted(stream.values.items()):
            out.update(signal.encode() + np.ascontiguousarray(values).tobytes())
    return out.hexdigest()
