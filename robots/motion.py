"""The command that may be sent next: within its limits, and such that those after it can be within them, too.

Commands are sent every ``dt``; their speed, acceleration and jerk are differences to the one before, as robots check
them (libfranka, ``rate_limiting.h``: backward Euler). A command that keeps all limits, and from which a stop still
does, is sent as it is. Another one is approached as fast as the limits allow. Where even that would end in a limit, the
next command is that of a stop.

Why no limit is ever passed: a command is taken only where the stop that begins there, :func:`stopping`, stays within
the limits (:func:`can_stop`: an upper bound of its way); and whatever is asked for afterwards, that stop can be made.

Units are the command's: rad and s for joints. [A]: components. Limits of motion may be infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
ROUNDING = 1e-9  # of a limit: what a comparison lets pass
BOTH_WAYS = np.array([[1.0], [-1.0]])


class MotionError(ValueError):
    """Limits that cannot be kept."""


class Bounds:
    """Limits of a command's components [A], sent every ``dt`` [s]; one number is for all components.

    Raises:
        MotionError: a limit is not positive or no number, ``low`` is not below ``high``, or a jerk is limited where the
            acceleration is not.
    """

    def __init__(
        self, low: Sequence[float], high: Sequence[float], dt: float, *, speed: Sequence[float] | float = np.inf,
        acceleration: Sequence[float] | float = np.inf, jerk: Sequence[float] | float = np.inf,
    ) -> None:
        self.low, self.high = (np.asarray(end, dtype=np.float64).reshape(-1) for end in (low, high))
        if self.low.shape != self.high.shape or not (self.low < self.high).all():
            raise MotionError(f"low {self.low.tolist()} must be below high {self.high.tolist()} in each component")
        if not 0 < dt < np.inf:
            raise MotionError(f"dt is a positive time in s, got {dt}")
        self.dt, self.size = float(dt), len(self.low)
        self.speed, self.acceleration, self.jerk = (
            self._limit(name, value) for name, value in (
                ("speed", speed), ("acceleration", acceleration), ("jerk", jerk)))
        self.braked = np.isfinite(self.acceleration)
        if (np.isfinite(self.jerk) & ~self.braked).any():
            raise MotionError("a limited jerk needs a limited acceleration")
        self.fade = self.jerk * dt  # change of acceleration in a step
        self.bent = self.fade < 2.0 * np.where(self.braked, self.acceleration, 0.0)  # braking takes steps to begin
        self.a = np.where(self.braked, self.acceleration, 1.0)
        self.j = np.where(self.bent, self.jerk, 1.0)
        self.span = ROUNDING * (self.high - self.low)

    def _limit(self, name: str, value: Sequence[float] | float) -> Array:
        try:
            limit = np.broadcast_to(np.asarray(value, dtype=np.float64), self.low.shape).copy()
        except ValueError:
            raise MotionError(f"{name}: {self.size} components need as many limits, got {value}") from None
        if not (limit > 0).all():
            raise MotionError(f"{name} must be positive in each component, got {limit.tolist()}")
        return limit


@dataclass(frozen=True)
class Motion:
    """The last command sent [A], and its speed and acceleration."""

    command: Array
    speed: Array
    acceleration: Array


def at_rest(command: Any) -> Motion:
    """Nothing moves: a start, or after a pause."""
    value = np.asarray(command, dtype=np.float64).reshape(-1)
    return Motion(value, np.zeros_like(value), np.zeros_like(value))


def moved(motion: Motion, command: Array, dt: float) -> Motion:
    """The motion once ``command`` [A] is sent, ``dt`` [s] after the last one."""
    speed = (command - motion.command) / dt
    return Motion(command, speed, (speed - motion.speed) / dt)


def within(limits: Bounds, motion: Motion, before: Motion) -> Flags:
    """Whether each component [A] of ``motion``, a step after ``before``, keeps all limits."""
    some = 1.0 + ROUNDING
    out: Flags = (
        (motion.command >= limits.low) & (motion.command <= limits.high)
        & (np.abs(motion.speed) <= limits.speed * some) & (np.abs(motion.acceleration) <= limits.acceleration * some)
        & (np.abs(motion.acceleration - before.acceleration) <= limits.fade * some))
    return out


def can_stop(limits: Bounds, motion: Motion) -> Flags:
    """Whether each component [A] certainly keeps its limits of place and speed when :func:`stopping` from here on."""
    room = np.stack((limits.high - motion.command, motion.command - limits.low))
    needed, peak = stopping_way(limits, motion)
    fits = (needed <= room * (1 + ROUNDING) + limits.span) & (peak <= limits.speed * (1 + ROUNDING))
    out: Flags = fits[0] & fits[1]
    return out


def stopping_way(limits: Bounds, motion: Motion) -> tuple[Array, Array]:
    """How far [2, A] a stop leads at most, and the greatest speed [2, A] on that way: up in row 0, down in row 1."""
    push = np.maximum(BOTH_WAYS * motion.acceleration, 0.0)
    steps = np.floor(push / limits.fade + ROUNDING)  # until nothing pushes any more
    gain = steps * (push - 0.5 * (steps + 1.0) * np.where(steps > 0, limits.fade, 0.0)) * limits.dt
    peak = np.maximum(BOTH_WAYS * motion.speed + gain, 0.0)
    return peak * limits.dt * np.where(limits.bent, steps + 1.0, 0.0) + way(limits, peak), peak


def way(limits: Bounds, speed: Array) -> Array:
    """How far [..., A] a stop leads from ``speed`` [..., A], where nothing accelerates: along an S-curve, or with one
    braking where that begins at once."""
    straight = speed / limits.a
    bent = np.where(speed * limits.j >= limits.a**2, straight + limits.a / limits.j, 2.0 * np.sqrt(speed / limits.j))
    return 0.5 * speed * np.where(limits.braked, np.where(limits.bent, bent, straight), 0.0)


def resting(limits: Bounds, motion: Motion) -> Array:
    """Where [A] a stop that begins after ``motion`` ends, or a little beyond; at the ends at the latest."""
    up, down = stopping_way(limits, motion)[0]
    ahead = np.where(motion.speed > 0, up, np.where(motion.speed < 0, -down, up - down))
    out: Array = np.clip(motion.command + ahead, limits.low, limits.high)
    return out


def allowed(limits: Bounds, room: Array) -> Array:
    """A speed [A] from which a stop leads at most ``room`` [A] far, the steps at that speed before it included: their
    way is ``late`` * speed. The better of two that are never too fast: one for each form of an S-curve."""
    late = limits.dt * (1.0 + limits.bent)
    bend = np.where(limits.bent, 0.5 * limits.a / limits.j, 0.0) + late
    long = limits.a * (np.sqrt(bend**2 + 2.0 * room / limits.a) - bend)
    short = np.where(limits.bent, np.minimum(np.cbrt(0.25 * room**2 * limits.j), 0.5 * room / late), 0.0)
    return np.where(limits.braked, np.maximum(long, short), room / limits.dt)


def stopping(limits: Bounds, motion: Motion) -> Motion:
    """The next motion of a stop: speed and acceleration to zero as fast as acceleration and jerk allow."""
    return paced(limits, motion, np.zeros(limits.size))


def nearing(limits: Bounds, motion: Motion, target: Array) -> Motion:
    """A motion towards ``target`` [A] that keeps the limits of speed, acceleration and jerk, slower near the ends."""
    wanted = np.clip(target, limits.low, limits.high) - motion.command
    ahead = np.where(wanted > 0, limits.high - motion.command, motion.command - limits.low)
    fastest = np.minimum(limits.speed, allowed(limits, np.maximum(ahead - limits.span, 0.0)))
    fastest = np.minimum(fastest, allowed(limits, np.abs(wanted)))  # so as to stop there, not behind it
    return paced(limits, motion, np.clip(wanted / limits.dt, -fastest, fastest))


def paced(limits: Bounds, motion: Motion, speed: Array) -> Motion:
    """The next motion on the way to ``speed`` [A], as fast as acceleration and jerk allow and without going over it.

    The acceleration is the greatest from which it can fade by ``jerk * dt`` a step just as the difference d of speeds
    is used up: with m steps m a - (m - 1) m / 2 * fade = d / dt (J. Han's discrete tracking differentiator, fhan, IEEE
    Transactions on Industrial Electronics 56, 2009, with its steps counted).
    """
    change = (speed - motion.speed) / limits.dt
    size = np.abs(change)
    steps = np.maximum(np.ceil(0.5 * (np.sqrt(1.0 + 8.0 * size / limits.fade) - 1.0) - 1e-12), 1.0)
    lost = np.where(steps > 1, 0.5 * (steps - 1.0), 0.0) * np.where(steps > 1, limits.fade, 0.0)
    acceleration = np.sign(change) * np.minimum(size / steps + lost, limits.acceleration)
    near = np.clip(acceleration, motion.acceleration - limits.fade, motion.acceleration + limits.fade)
    after = motion.speed + near * limits.dt
    after = np.where(np.abs(after) < 1e-12 * np.abs(motion.speed), 0.0, after)
    return Motion(motion.command + after * limits.dt, after, near)


def following(limits: Bounds, before: Motion, target: Any) -> tuple[Motion, Flags]:
    """The next motion towards ``target`` [A], and where [A] it is not the target itself.

    Per component: the target, if it keeps all limits and a stop from there does; else what comes near it; else a stop.
    """
    asked = np.asarray(target, dtype=np.float64).reshape(-1)
    motion = moved(before, asked, limits.dt)
    good = within(limits, motion, before) & can_stop(limits, motion)
    if good.all():
        return motion, ~good
    near, halt = nearing(limits, before, asked), stopping(limits, before)
    fits = within(limits, near, before) & can_stop(limits, near)
    best = _chosen(good, motion, _chosen(fits, near, halt))
    inside = np.clip(best.command, limits.low, limits.high)  # a stop may round over an end
    return Motion(inside, best.speed, best.acceleration), ~good


def _chosen(flags: Flags, a: Motion, b: Motion) -> Motion:
    return Motion(np.where(flags, a.command, b.command), np.where(flags, a.speed, b.speed),
                  np.where(flags, a.acceleration, b.acceleration))
