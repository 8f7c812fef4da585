"""A smooth trajectory through commands, which ends at rest if no further command is sent.

Between commands a controller must interpolate. The curve here is a uniform cubic B-spline whose control points are the
commands: its position, speed, acceleration and jerk lie between those of the commands (each of its derivatives is a
spline of their differences: C. de Boor, *A Practical Guide to Splines*, 1978, ch. IX and X). So commands that keep the
limits of :mod:`temporeal.robots.motion.rate_limiter` give a curve that keeps them everywhere. An interpolating curve
does not: a cubic one that begins at rest needs three times the acceleration. The cost is delay: the spline passes a
command two periods after it was sent.

Units are the command's, times in s. [A]: components, [K]: points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, MotionError, stopping

MOST = 24  # points of a trajectory: a message at 500 Hz stays small
LONGEST = 100_000  # steps of a stop; more means limits that no robot has


@dataclass(frozen=True)
class SmoothTrajectory:
    """Points to pass, the last at rest.

    Args:
        times: [K] s from now, positive and increasing.
        positions, speeds, accelerations: [K, A].

    Raises:
        MotionError: shapes differ, a value is not finite, times do not increase, or the last point is not at rest.
    """

    times: Array
    positions: Array
    speeds: Array
    accelerations: Array

    def __post_init__(self) -> None:
        count, parts = len(self.times), (self.positions, self.speeds, self.accelerations)
        if self.times.shape != (count,) or self.positions.ndim != 2 or len(self.positions) != count or not count:
            raise MotionError(f"a trajectory has times [K] and positions [K, A], got {self.times.shape} and "
                              f"{self.positions.shape}")
        if any(part.shape != self.positions.shape for part in parts):
            raise MotionError(f"positions, speeds and accelerations differ in shape: {[part.shape for part in parts]}")
        if not all(np.isfinite(part).all() for part in (self.times, *parts)):
            raise MotionError("a trajectory has finite numbers only")
        if not (np.diff(self.times, prepend=0.0) > 0).all():
            raise MotionError(f"times of a trajectory are positive and increase, got {self.times.tolist()}")
        if self.speeds[-1].any() or self.accelerations[-1].any():
            raise MotionError(f"a trajectory ends at rest, its last speeds are {self.speeds[-1].tolist()} and its last "
                              f"accelerations {self.accelerations[-1].tolist()}")


def resting(command: Array, time: float) -> SmoothTrajectory:
    """At rest at ``command`` [A] after ``time`` [s]."""
    place = np.asarray(command, dtype=np.float64).reshape(1, -1)
    return SmoothTrajectory(np.array([time]), place, np.zeros_like(place), np.zeros_like(place))


def steps_to_rest(limits: Bounds, motion: Motion) -> list[Motion]:
    """``motion`` and the motions of a stop that begins after it."""
    steps = [motion]
    while steps[-1].moves:
        steps.append(stopping(limits, steps[-1]))
        if len(steps) > LONGEST:
            raise MotionError(f"a stop takes more than {LONGEST} periods of {limits.dt:g} s")
    return steps


def smooth_trajectory(limits: Bounds, motion: Motion, most: int = MOST) -> SmoothTrajectory:
    """The spline from one period ahead, and its way to rest if ``motion`` is the last command; at most ``most`` points,
    evenly chosen.

    Sent after every command and followed from then on, the parts make one spline: the point one period ahead depends
    only on commands already sent. Polynomials of fifth degree between points are the spline itself if no point was left
    out, as is a controller that interpolates positions, speeds and accelerations.
    """
    steps = steps_to_rest(limits, motion)
    kept = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int))
    commands, speeds, accelerations = (np.stack([getattr(steps[i], name) for i in kept])
                                       for name in ("command", "speed", "acceleration"))
    before = speeds - limits.dt * accelerations
    # (x'' + 4 x' + x) / 6, with the command before, x' = x - dt v, and the one before that, x'' = x' - dt v'
    positions = commands - limits.dt * (5.0 * speeds + before) / 6.0
    inside = np.clip(positions, limits.low, limits.high)  # differences may round over an end
    return SmoothTrajectory((kept + 1) * limits.dt, inside, 0.5 * (speeds + before), accelerations)
