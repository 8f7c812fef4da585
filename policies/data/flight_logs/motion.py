"""When a robot flew and when it rested, and its numbers on one even grid: what all checks of physics begin with.

The grid is for judging and identifying: what lies between two samples is a straight line there, whatever the gap; a
command is held until the next. Datasets are made of the streams themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    FlightLog,
    Marks,
    Numbers,
    Stream,
    continuous,
)
from temporeal.robots import frames

MOST_HZ = 250.0
"""Of the grid: a Crazyflie's motors need 60 ms and more, its attitude loop is slower than 25 Hz."""
LONGEST_S = 1800.0
AIRBORNE, LEAST, OFF = 0.35, 0.05, 0.02
"""Motors carry the robot, or are about to, above this share of the mean command that is usual in the log, and of its
range; below the last they rest."""
EDGE_S = 1.0
"""Of a flight at its ends: the ground is near, and pushes."""
STEADY = 0.01
"""Of its mean: an accelerometer whose samples within half a second spread less is at rest."""
REST_S = 0.3


@dataclass(frozen=True)
class Even:
    """A log on one grid.

    Args:
        times: [G] s. values: by signal [G, *shape] of all streams that overlap; a command is the mean of what was
            held from a time of the grid to the next.
        flying, resting: [G].
    """

    times: Numbers
    values: dict[str, Numbers]
    flying: Marks
    resting: Marks

    @property
    def step(self) -> float:
        """Of the grid [s]."""
        return float(self.times[1] - self.times[0])

    def has(self, *signals: str) -> bool:
        """Whether all are there."""
        return all(name in self.values for name in signals)


def even(log: FlightLog, good: dict[str, Marks]) -> Even | None:
    """The log on a grid over the time that its streams have in common; None: they have none (half a second is needed).

    Args:
        good: by stream, which samples are measured [T]; others are left out.
    """
    kept = {name: (stream.times[good[name]], stream, good[name]) for name, stream in log.streams.items()
            if good[name].sum() > 2}
    if not kept:
        return None
    begin = max(times[0] for times, _, _ in kept.values())
    end = min(min(times[-1] for times, _, _ in kept.values()), begin + LONGEST_S)
    fastest = min(stream.period for _, stream, _ in kept.values())
    step = max(fastest, 1 / MOST_HZ)
    if not end - begin > 0.5:
        return None
    grid = begin + step * np.arange(int((end - begin) / step))
    values = {signal: held(grid, times, found[mark]) if signal == COMMAND else
              columns(grid, times, continuous(found[mark]) if signal == ATTITUDE else found[mark])
              for times, stream, mark in kept.values() for signal, found in stream.values.items()}
    if ATTITUDE in values:
        length = np.linalg.norm(values[ATTITUDE], axis=1, keepdims=True)
        values[ATTITUDE] = np.where(length > 1e-6, values[ATTITUDE] / np.maximum(length, 1e-6), frames.IDENTITY)
    return Even(grid, values, flying(log, values, len(grid), step), resting(values, len(grid), step))


def columns(grid: Numbers, times: Numbers, values: Numbers) -> Numbers:
    """``values`` [T, *shape] at the times ``grid`` [G]; of more samples than the grid has, the mean around each."""
    usual = np.median(np.diff(times))
    wide = max(int(round((grid[1] - grid[0]) / usual)), 1) if usual > 0 else 1
    flat = smooth(values.reshape(len(values), -1), wide)
    middle = smooth(times[:, None], wide)[:, 0]  # of an even number of samples it is between two of them
    out = np.stack([np.interp(grid, middle, column) for column in flat.T], 1)
    return out.reshape(len(grid), *values.shape[1:])


def held(grid: Numbers, times: Numbers, values: Numbers) -> Numbers:
    """Commands ``values`` [T, A], each held until the next: their mean from each time of ``grid`` [G] to the next.

    Whoever flies them holds this mean over the same time (``sim/identification/shooting.py``); the mean around a time
    of the grid would act half a step too early.
    """
    edges = np.append(grid, 2 * grid[-1] - grid[-2])
    until = np.append(times, max(times[-1], edges[-1]) + 1.0)  # the last is held on
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values * np.diff(until)[:, None], axis=0)])
    at = np.stack([np.interp(edges, until, column) for column in sums.T], 1)
    return np.asarray(np.diff(at, axis=0) / np.diff(edges)[:, None])


def centred(command: Numbers) -> Numbers:
    """[G, A] the mean around each time of the grid, of the means ``command`` [G, A] from each to the next."""
    return np.asarray(0.5 * (command + np.concatenate([command[:1], command[:-1]])))


def flying(log: FlightLog, values: dict[str, Numbers], count: int, step: float) -> Marks:
    """[G] where the robot flies, take-off and landing left out; without commands, everywhere."""
    if COMMAND not in values or log.command is None:
        return np.ones(count, bool)
    return carried(share(log, values[COMMAND]), step)


def carried(level: Numbers, step: float) -> Marks:
    """[T] where the mean command ``level`` carries the robot, ends left out."""
    return inner(level > max(AIRBORNE * float(np.percentile(level, 90)), LEAST), int(EDGE_S / step))


def share(log: FlightLog, command: Numbers) -> Numbers:
    """[T] the mean command, from 0 at the lower limit to 1 at the upper."""
    assert log.command is not None
    low, high = np.array(log.command.low), np.array(log.command.high)
    return np.asarray(((command - low) / (high - low)).mean(1))


def resting(values: dict[str, Numbers], count: int, step: float) -> Marks:
    """[G] where the robot stands still: the accelerometer is steady, and motors are off where there are commands."""
    if ACCELERATION not in values:
        return np.zeros(count, bool)
    acceleration = values[ACCELERATION]
    wide = max(int(0.5 / step) | 1, 3)
    mean = smooth(acceleration, wide)
    spread = np.sqrt(np.maximum(smooth(acceleration**2, wide) - mean**2, 0).sum(1))
    still = spread < STEADY * np.maximum(np.linalg.norm(mean, axis=1), 1e-6)
    if COMMAND in values:
        still &= np.abs(values[COMMAND]).max(1) < OFF
    return longer(still, int(REST_S / step))


def smooth(values: Numbers, wide: int) -> Numbers:
    """[T, F] the mean of ``wide`` samples around each; fewer at the ends."""
    if wide <= 1 or len(values) < wide:
        return values
    sums = np.cumsum(np.concatenate([np.zeros((1, values.shape[1])), values]), axis=0)
    centre = np.arange(len(values))
    first, last = np.maximum(centre - wide // 2, 0), np.minimum(centre + (wide - wide // 2), len(values))
    return np.asarray((sums[last] - sums[first]) / (last - first)[:, None])


def inner(mask: Marks, edge: int) -> Marks:
    """``mask`` without ``edge`` samples at the ends of each of its stretches that begins or ends within the log."""
    out = mask.copy()
    for first, last in stretches(mask):
        out[first : first + (edge if first > 0 else 0)] = False
        out[last - (edge if last < len(mask) else 0) : last] = False
    return out


def longer(mask: Marks, least: int) -> Marks:
    """``mask`` without its stretches of fewer than ``least`` samples."""
    out = mask.copy()
    for first, last in stretches(mask):
        if last - first < least:
            out[first:last] = False
    return out


def stretches(mask: Marks) -> list[tuple[int, int]]:
    """The stretches of ``mask`` [T] that are true, as first and one behind the last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2])]


def airborne(log: FlightLog, stream: Stream) -> Marks:
    """[T] the samples of ``stream`` while motors carry the robot; without commands, all."""
    motors = log.stream_of(COMMAND)
    if motors is None or log.command is None or len(motors.times) < 2:
        return np.ones(len(stream.times), bool)
    there = motors.in_order
    if not there.any():
        return np.ones(len(stream.times), bool)
    command = np.nan_to_num(motors.values[COMMAND][there], posinf=0.0, neginf=0.0)
    level = np.interp(np.nan_to_num(stream.times), motors.times[there], share(log, command))
    return carried(level, max(stream.period, 1e-6))
