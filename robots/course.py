"""A command and the way to rest after it: what a robot can follow to its end if nothing more is sent.

Units are the command's, times in s. [A]: components, [K]: points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robots.motion import Array, Bounds, Motion, MotionError, stopping

MOST = 24  # points of a course: a message at 500 Hz stays small
LONGEST = 100_000  # steps of a stop; more means limits that no robot has


@dataclass(frozen=True)
class Course:
    """Points to pass: the first is the command, the last is at rest.

    Args:
        times: [K] s from now, positive and increasing.
        positions, speeds: [K, A].

    Raises:
        MotionError: shapes differ, a value is not finite, times do not increase, or the last point moves.
    """

    times: Array
    positions: Array
    speeds: Array

    def __post_init__(self) -> None:
        count = len(self.times)
        if self.times.shape != (count,) or self.positions.ndim != 2 or len(self.positions) != count or not count:
            raise MotionError(f"a course has times [K] and positions [K, A], got {self.times.shape} and "
                              f"{self.positions.shape}")
        if self.speeds.shape != self.positions.shape:
            raise MotionError(f"speeds have the shape of positions {self.positions.shape}, got {self.speeds.shape}")
        if not all(np.isfinite(part).all() for part in (self.times, self.positions, self.speeds)):
            raise MotionError("a course has finite numbers only")
        if not (np.diff(self.times, prepend=0.0) > 0).all():
            raise MotionError(f"times of a course are positive and increase, got {self.times.tolist()}")
        if self.speeds[-1].any():
            raise MotionError(f"a course ends at rest, its last speeds are {self.speeds[-1].tolist()}")


def course(limits: Bounds, motion: Motion, most: int = MOST) -> Course:
    """The command of ``motion``, reached a period from now, and the stop that begins there, in at most ``most`` points.

    Speeds are those of a curve through the commands: central differences, exact where the acceleration is constant
    (differences to the one before lag by half a period and make a spline's acceleration swing between 4 and -2 times
    the true one). What follows the command itself is not known yet, so its speed goes on as it did, within the limit
    and without turning round: a steady motion, sent command by command, is steady between them too.
    """
    steps = [motion]
    while steps[-1].speed.any() or steps[-1].acceleration.any():
        steps.append(stopping(limits, steps[-1]))
        if len(steps) > LONGEST:
            raise MotionError(f"a stop takes more than {LONGEST} periods of {limits.dt:g} s")
    speeds = np.stack([step.speed for step in steps])
    onward = motion.speed + 0.5 * limits.dt * motion.acceleration
    onward = np.where(onward * motion.speed > 0, np.clip(onward, -limits.speed, limits.speed), 0.0)
    smooth = np.concatenate([onward[None], 0.5 * (speeds[1:-1] + speeds[2:]), np.zeros_like(speeds[:1])])
    smooth = smooth[: len(steps)] if len(steps) > 1 else np.zeros_like(speeds)
    kept = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int))
    positions = np.clip(np.stack([step.command for step in steps]), limits.low, limits.high)
    return Course((kept + 1) * limits.dt, positions[kept], smooth[kept])
