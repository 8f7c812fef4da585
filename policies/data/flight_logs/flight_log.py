"""A log of a flight: what its sensors said, each on its own clock, in the project's signals and units.

A reader of this room is ``read(path) -> FlightLog``. It converts by what its format states (g, deg/s, quaternion order)
and judges nothing: whether the numbers are what the format states is for the checks (:mod:`.inspection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.data.episodes.interface import ActionSpec
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.samples.times import late

Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]

ALIGNED = "aligned"
GRAVITY = 9.80665
"""m/s^2 of one g, as accelerometers are calibrated (CGPM 1901)."""
POSITION, ATTITUDE, VELOCITY = "base_pos_w", "base_quat_w", "base_vel_w"
RATES, ACCELERATION, VOLTAGE, COMMAND = "base_ang_vel_b", "specific_force_b", "battery_voltage", "command"
MOCAP, IMU, MOTORS, BATTERY = "mocap", "imu", "motors", "battery"

SPECS = schema(
    SignalSpec(POSITION, (3,), "m", "w"), SignalSpec(ATTITUDE, (4,), "wxyz", "w"),
    SignalSpec(VELOCITY, (3,), "m/s", "w"),
    SignalSpec(RATES, (3,), "rad/s", "b"),
    # what an accelerometer measures: acceleration minus gravity in body axes, +9.81 m/s^2 along z at rest
    SignalSpec(ACCELERATION, (3,), "m/s^2", "b"), SignalSpec(VOLTAGE, (), "V"))

PWM = ActionSpec("motor_pwm", (0.0,) * 4, (1.0,) * 4, "1", ("m1", "m2", "m3", "m4"))
"""Share of the full duty cycle, as the firmware sets it. Not ``motor_cmd``, a rotor speed: what speed or thrust a duty
cycle gives depends on the battery, and is for identification to find."""
FULL_PWM = 65535.0
"""The Crazyflie's full duty cycle (uint16)."""


@dataclass(frozen=True)
class Stream:
    """Samples of one source. times: [T] s of its own clock; values: by signal (or :data:`COMMAND`) [T, *shape]."""

    name: str
    times: Numbers
    values: Mapping[str, Numbers]

    @property
    def in_order(self) -> Marks:
        """[T] the samples whose time is a number after those before it."""
        out = np.isfinite(self.times)
        out[out] = ~late(self.times[out])
        return out

    @property
    def period(self) -> float:
        """Usual time between samples [s]; 0 where there is one sample."""
        steps = np.diff(self.times)
        return float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0


@dataclass(frozen=True)
class FlightLog:
    """What was read.

    Args:
        kind: of the file. robot: whose log it is; "": nobody says.
        streams: by name. command: what the motors were told; None: the log has no commands.
        cut: why the file is not whole; "": it is. notes: what the user should know.
        doubted: by stream, which samples are no measurements, by what their reader knows [T].
        about: :data:`ALIGNED`: how a clock was moved.
    """

    path: Path
    kind: str
    robot: str
    streams: Mapping[str, Stream]
    command: ActionSpec | None = PWM
    cut: str = ""
    notes: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    doubted: Mapping[str, Marks] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its file, as it can be written in UTF-8."""
        return self.path.name.encode(errors="replace").decode()

    def stream_of(self, signal: str) -> Stream | None:
        """Where a signal comes from; None: the log has no such signal."""
        return next((stream for stream in self.streams.values() if signal in stream.values), None)

    @property
    def signals(self) -> Mapping[str, SignalSpec]:
        """The signals that it has, command left out."""
        return {name: SPECS[name] for stream in self.streams.values() for name in stream.values if name != COMMAND}

    def components(self) -> Iterator[tuple[Stream, str, str, Numbers]]:
        """Each column: its stream, its signal, its name (``base_pos_w.x``), its values [T]; quaternions continuous."""
        for stream in self.streams.values():
            for signal, found in stream.values.items():
                values = continuous(found) if signal == ATTITUDE else found
                if values.ndim == 1:
                    yield stream, signal, signal, values
                else:
                    for k, letter in enumerate(letters(signal, values.shape[1])):
                        yield stream, signal, f"{signal}.{letter}", values[:, k]


def letters(signal: str, size: int) -> list[str]:
    """Names of a signal's components: axes where it has a frame, else numbers from 1 on (motors)."""
    if signal in SPECS and SPECS[signal].frame:
        return list("wxyz" if size == 4 else "xyz")
    return [f"m{k + 1}" if signal == COMMAND else f"{k}" for k in range(size)]


def continuous(quat: Numbers) -> Numbers:
    """[T, 4] the same attitudes, each of the sign that is nearer to the one before: q and -q are one."""
    turned = np.concatenate([[False], (quat[1:] * quat[:-1]).sum(1) < 0])
    return np.asarray(quat * np.where(np.cumsum(turned) % 2, -1.0, 1.0)[:, None])


@dataclass(frozen=True)
class Finding:
    """What one check says of a log.

    Args:
        check: its name, for machines. subject: the signal, source or pair of them that it is about.
        status: :data:`GOOD`; :data:`MARKED`: samples are marked, the others can be used; :data:`WRONG`: the numbers are
            not what they are said to be, and nothing may be learned from them as they are; :data:`UNKNOWN`: this log
            cannot tell.
        defect: what is wrong, one word for machines; "": nothing.
        said: in words. figures: numbers behind it.
    """

    check: str
    subject: str
    status: str
    said: str
    defect: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


GOOD, MARKED, WRONG, UNKNOWN = "good", "marked", "wrong", "unknown"
