"""Two clocks of one motion: by how much one is behind the other, and how fast that grows, each with its interval.

Two sources that measure one motion are laid over each other in windows; in each, the shift of largest correlation is
found to a part of a sample (parabola through three points). A line through the shifts over time, by least squares, is
offset and drift; its intervals come from how far the windows are from the line (Student's t, 95 %).

Between motors and accelerometer the shift is no error of a clock but the lag of motors and propellers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ALIGNED,
    ATTITUDE,
    COMMAND,
    GOOD,
    GRAVITY,
    IMU,
    MOCAP,
    MOTORS,
    POSITION,
    RATES,
    UNKNOWN,
    VELOCITY,
    WRONG,
    Finding,
    FlightLog,
    Numbers,
)
from temporeal.policies.data.flight_logs.motion import Even, centred, smooth
from temporeal.policies.data.flight_logs.physics import derivative, rates_of, smoothed
from temporeal.robots import frames

WINDOW_S, STRIDE_S = 2.0, 1.0
REACH_S = 0.5
"""Largest shift that a window is asked for, around that of the whole flight."""
FAR_S = 5.0
"""Largest shift that the whole flight is asked for."""
ALIKE = 0.6
"""Correlation below which a window says nothing."""
WINDOWS = 4
SHORTEST_S = 0.5
APART_S = 0.02
"""Offset above which two clocks are not one; chosen: two samples of motion capture at 100 Hz."""
DRIFTING = 1e-3
"""Drift above which they are not: clocks of microcontrollers are off by 1e-4 at most."""
LAG_S = (-0.01, 0.3)
"""A motor's effect follows its command by so much: a propeller of any small robot is within it."""
TOLD_S = (0.1, 0.15)
"""Half the width of an interval, of motion capture and of motors, above which nothing is told."""
SLOW_S = 1.0
"""Changes of thrust that are slower are the battery's, not the commands'."""
T95 = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 15: 2.13, 20: 2.09, 30: 2.04}
"""Student's t, two-sided 95 %, by degrees of freedom; above: 1.96."""


@dataclass(frozen=True)
class Shift:
    """y is behind x by offset + drift * (t - the middle of the flight).

    Args:
        offset_s, drift: with half the width of their 95 % intervals. spread_s: standard deviation of the windows around
            the line: above some 20 ms, delays come and go, and no line puts them right. windows: that told something.
        at: [W] s, shifts: [W] s, of each of them.
    """

    offset_s: float
    offset_half: float
    drift: float
    drift_half: float
    spread_s: float
    windows: int
    middle: float
    at: Numbers
    shifts: Numbers

    def said(self) -> str:
        """In words."""
        return (f"{1e3 * self.offset_s:.1f} ms ± {1e3 * self.offset_half:.1f} ms, drift {1e6 * self.drift:.0f} ± "
                f"{1e6 * self.drift_half:.0f} ppm ({self.windows} windows of {WINDOW_S:g} s, "
                f"{1e3 * self.spread_s:.0f} ms around that line)")

    def figures(self) -> dict[str, float]:
        """For machines."""
        return {"offset_s": self.offset_s, "offset_half_s": self.offset_half, "drift": self.drift,
                "drift_half": self.drift_half, "spread_s": self.spread_s, "windows": self.windows,
                "middle_s": self.middle}


def check(log: FlightLog, even: Even | None, doubted: set[str]) -> Iterator[Finding]:
    """Motion capture against the IMU, and commands against the IMU.

    Args:
        doubted: signals whose axes, units or order are wrong: they cannot be laid over others.
    """
    if (nothing := without_common_time(log)) is not None:
        yield nothing
    if even is None:
        return
    seen = log.stream_of(ATTITUDE)
    if seen is not None and even.has(RATES, ATTITUDE) and not doubted and log.stream_of(RATES) is not seen:
        yield capture(even, "motion capture" if seen.name == MOCAP else seen.name, f"{seen.name}, {IMU}")
    if even.has(ACCELERATION, COMMAND) and ACCELERATION not in doubted:
        yield lag(even)


def without_common_time(log: FlightLog) -> Finding | None:
    """Sources whose times do not overlap, or hardly do."""
    ends = {name: (float(there.min()), float(there.max())) for name, stream in log.streams.items()
            if len(there := stream.times[stream.in_order])}
    if not ends:
        return Finding("clocks", log.name, UNKNOWN, "no source has a time")
    common = min(end for _, end in ends.values()) - max(begin for begin, _ in ends.values())
    if common > SHORTEST_S:
        return None
    told = ", ".join(f"{name} {begin:.6g} to {end:.6g} s" for name, (begin, end) in ends.items())
    if common > 0 or len(ends) == 1 or max(end - begin for begin, end in ends.values()) <= SHORTEST_S:
        return Finding("clocks", ", ".join(ends), UNKNOWN, f"its sources have {max(common, 0):.3g} s in common "
                       f"({told}): too little to be judged")
    return Finding("clocks", ", ".join(ends), WRONG, f"its sources have no time in common ({told}): they are of clocks "
                   "that nothing relates", "two clocks")


def capture(even: Even, who: str, subject: str) -> Finding:
    """How far motion capture is behind the IMU: by the rates and by the accelerations that both say. The one with the
    narrower interval is told, unless the other contradicts it.

    Args:
        who: what gave the orientation.
    """
    pairs = [(whole_rates(even), smoothed(even, even.values[RATES]))]
    pairs += [accelerations(even)] if even.has(VELOCITY, ACCELERATION) else []
    found = [shift for x, y in pairs if (shift := shift_of(even, x, y)) is not None]
    if not found:
        return Finding("clocks", subject, UNKNOWN, "the robot moves too little for the two clocks to be compared")
    told = min(found, key=lambda each: each.offset_half)
    if apart(told) and any(contradicts(each, told) for each in found):
        return Finding("clocks", subject, UNKNOWN, f"the gyro says that {who} is behind by {found[0].said()}, the "
                       f"accelerometer by {found[-1].said()}: they contradict each other", figures=told.figures())
    if apart(told):
        return Finding("clocks", subject, WRONG, f"two clocks: {who} is {1e3 * abs(told.offset_s):.0f} ms "
                       f"{'behind' if told.offset_s > 0 else 'ahead of'} the IMU: {told.said()}; --align corrects it",
                       "two clocks", told.figures())
    if told.offset_half > TOLD_S[0]:
        return Finding("clocks", subject, UNKNOWN, f"{who} is behind by {told.said()}: too wide an interval "
                       "to say whether there is one clock", figures=told.figures())
    return Finding("clocks", subject, GOOD, f"one clock: {who} is behind by {told.said()}",
                   figures=told.figures())


def apart(found: Shift) -> bool:
    """Whether a shift is none of one clock, whatever is within its intervals."""
    return (abs(found.offset_s) - found.offset_half > APART_S) or (abs(found.drift) - found.drift_half > DRIFTING)


def contradicts(one: Shift, other: Shift) -> bool:
    """Whether two estimates cannot both be right: their intervals are apart, and not both say that one clock is behind.
    (By drag and by what smoothing leaves, accelerations are some 40 ms off.)"""
    both = apart(one) and apart(other) and one.offset_s * other.offset_s > 0
    return not both and abs(one.offset_s - other.offset_s) > one.offset_half + other.offset_half


def whole_rates(even: Even) -> Numbers:
    """[G, 3] rad/s by the derivative of orientation over the whole log."""
    return rates_of(Even(even.times, even.values, np.ones_like(even.flying), even.resting), even.values[ATTITUDE])


def accelerations(even: Even) -> tuple[Numbers, Numbers]:
    """[G, 3] m/s^2 in body axes: of motion capture alone, R^T (dv/dt + g), and of the accelerometer. In the world's
    axes the accelerometer's would have the attitude of motion capture in it, and its clock."""
    quat = frames.normalized(even.values[ATTITUDE])
    change = derivative(even, smoothed(even, even.values[VELOCITY])) + np.array([0.0, 0.0, GRAVITY])
    return smoothed(even, frames.rotate_inverse(quat, change)), smoothed(even, even.values[ACCELERATION])


def lag(even: Even) -> Finding:
    """How far thrust is behind its commands."""
    subject = f"{MOTORS}, {IMU}"
    thrust = quick(even, centred(even.values[COMMAND]).sum(1, keepdims=True))
    found = shift_of(even, thrust, quick(even, even.values[ACCELERATION][:, 2:]))
    if found is None:
        return Finding("clocks", subject, UNKNOWN, "commands change too little for the lag of the motors to be told")
    behind = -found.offset_s
    told = replace(found, offset_s=behind, drift=-found.drift, shifts=-found.shifts)
    outside = behind + found.offset_half < LAG_S[0] or behind - found.offset_half > LAG_S[1]
    if outside or abs(found.drift) - found.drift_half > DRIFTING:
        return Finding("clocks", subject, WRONG, f"thrust is behind its command by {told.said()}; {LAG_S[0]:g} to "
                       f"{LAG_S[1]:g} s without drift are possible: two clocks", "two clocks", told.figures())
    if told.offset_half > TOLD_S[1]:
        return Finding("clocks", subject, UNKNOWN, f"thrust follows its command by {told.said()}: too wide an interval "
                       "to say whether there is one clock", figures=told.figures())
    return Finding("clocks", subject, GOOD, f"thrust follows its command by {told.said()}: the lag of the motors",
                   figures=told.figures())


def quick(even: Even, values: Numbers) -> Numbers:
    """[G, F] without what is slower than :data:`SLOW_S`."""
    return smoothed(even, values) - smooth(values, max(int(SLOW_S / even.step), 3))


def shift_of(even: Even, x: Numbers, y: Numbers) -> Shift | None:
    """How far x [G, F] is behind y [G, F], which measure one motion; None: too few windows tell."""
    fly = np.flatnonzero(even.flying)
    if len(fly) < 2:
        return None
    first, last = int(fly[0]), int(fly[-1]) + 1
    x, y, times = x[first:last], y[first:last], even.times[first:last]
    whole, alike = best(x, y, min(int(FAR_S / even.step), len(x) // 3))
    if alike < 0.5 * ALIKE:
        return None
    reach, size = int(REACH_S / even.step), int(WINDOW_S / even.step)
    at, shifts = [], []
    for begin in range(0, len(x) - size + 1, max(int(STRIDE_S / even.step), 1)):
        found, alike = windowed(x, y, begin, size, int(round(whole)), reach)
        if alike > ALIKE:
            at.append(float(times[begin : begin + size].mean()))
            shifts.append(found * even.step)
    return line(np.array(at), np.array(shifts), float(times.mean()))


def best(x: Numbers, y: Numbers, reach: int) -> tuple[float, float]:
    """The shift in samples, of at most ``reach``, at which x is most like y, and their correlation there."""
    x, y = x - x.mean(0), y - y.mean(0)
    size = 1 << int(np.ceil(np.log2(2 * len(x))))
    product = np.fft.irfft((np.fft.rfft(x, size, axis=0) * np.fft.rfft(y, size, axis=0).conj()).sum(1), size)
    norm = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return peak(np.concatenate([product[size - reach :], product[: reach + 1]]) / max(norm, 1e-12), -reach)


def windowed(x: Numbers, y: Numbers, begin: int, size: int, centre: int, reach: int) -> tuple[float, float]:
    """The same for ``size`` samples of y from ``begin`` on, around the shift ``centre``."""
    first, last = max(begin + centre - reach, 0), min(begin + centre + reach, len(x) - size)
    if last - first < 2:
        return 0.0, 0.0
    shifted = np.lib.stride_tricks.sliding_window_view(x[first : last + size], size, axis=0)  # [K, F, size]
    shifted = shifted - shifted.mean(2, keepdims=True)
    wanted = (y[begin : begin + size] - y[begin : begin + size].mean(0)).T
    norm = np.sqrt((shifted**2).sum((1, 2)) * (wanted**2).sum())
    return peak((shifted * wanted).sum((1, 2)) / np.maximum(norm, 1e-12), first - begin)


def peak(table: Numbers, first: int) -> tuple[float, float]:
    """Place and height of the largest number of ``table``, to a part of a sample; at an end nothing is told."""
    k = int(np.argmax(table))
    if not 0 < k < len(table) - 1:
        return 0.0, 0.0
    left, top, right = table[k - 1 : k + 2]
    bend = left - 2 * top + right
    return first + k + (0.5 * (left - right) / bend if bend < 0 else 0.0), float(top)


def line(at: Numbers, shifts: Numbers, middle: float) -> Shift | None:
    """Offset at ``middle`` and drift of ``shifts`` [W] over ``at`` [W]; windows far from the line are left out once."""
    for _ in range(2):
        if len(at) < WINDOWS:
            return None
        table = np.stack([np.ones_like(at), at - middle], 1)
        found, *_ = np.linalg.lstsq(table, shifts, rcond=None)
        away = shifts - table @ found
        near = np.abs(away) <= 5 * 1.4826 * np.median(np.abs(away)) + 1e-9
        if near.all():
            break
        at, shifts = at[near], shifts[near]
    # windows overlap: those that are independent of each other are fewer
    independent = max(len(at) * STRIDE_S / WINDOW_S, 3.0)
    spread = float(np.sqrt((away[near] ** 2).sum() / max(near.sum() - 2, 1)))
    factor = student(independent - 2) * spread * np.sqrt(near.sum() / independent)
    covariance = np.linalg.inv(table[near].T @ table[near])
    half = factor * np.sqrt(np.diag(covariance))
    return Shift(float(found[0]), float(half[0]), float(found[1]), float(half[1]), spread, int(near.sum()), middle, at,
                 shifts)


def student(freedom: float) -> float:
    """Student's t for a two-sided 95 % interval."""
    return next((T95[k] for k in sorted(T95, reverse=True) if freedom >= k), T95[1]) if freedom < 60 else 1.96


def aligned(log: FlightLog, found: Finding) -> FlightLog:
    """The log with motion capture's times put onto the IMU's clock, by the line of ``found``."""
    late, drift, middle = (found.figures[key] for key in ("offset_s", "drift", "middle_s"))
    moved = [stream for name in (POSITION, ATTITUDE, VELOCITY) if (stream := log.stream_of(name)) is not None]
    streams = {name: replace(stream, times=stream.times - late - drift * (stream.times - middle))
               if any(stream is each for each in moved) else stream for name, stream in log.streams.items()}
    return replace(log, streams=streams, notes=(*log.notes, f"a clock was corrected: {found.said}"),
                   about={**log.about, ALIGNED: found.said})
