"""The next command to send: within its limits, and such that the commands after it can be, too.

Commands are sent every ``dt``; their speed, acceleration and jerk are backward differences, as robots check them
(libfranka, ``rate_limiting.h``). A target that keeps all limits, and from which a stop still does, is sent unchanged.
Another target is approached as fast as the limits allow. Where even that would violate a limit later, the next command
is that of a stop.

Invariant: a command is sent only if the stop that begins there, :func:`stopping`, keeps the limits (:func:`can_stop`
bounds its path from above). So a stop is possible at any time, whatever target comes next.

Components are independent and few: plain numbers are faster than arrays of seven. Units are the command's: rad and s
for joints. [A]: components. Limits of motion may be infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, copysign, floor, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
ROUNDING = 1e-9  # of a limit: what a comparison lets pass
SOME = 1.0 + ROUNDING
NEAR = 1e-6  # of a range: who comes so near to where it shall rest is led there


class MotionError(ValueError):
    """Limits that cannot be kept."""


class Axis(NamedTuple):
    """Limits of one component, sent every ``dt`` [s].

    Args:
        fade: change of acceleration in a step.
        braked: the acceleration is limited, so that a stop takes some distance.
        bent: the jerk is limited, so that braking takes steps to build up.
        span: tolerance of positions against rounding.
        calm: up to this speed no stop exceeds the axis' speed, whatever the acceleration.
        inner_low, inner_high: between them a stop from at most the axis' speed keeps ``low`` and ``high``.
    """

    low: float
    high: float
    dt: float
    speed: float
    acceleration: float
    jerk: float
    fade: float
    braked: bool
    bent: bool
    span: float
    calm: float = -inf
    inner_low: float = inf
    inner_high: float = -inf


class State(NamedTuple):
    """One component: the last command, its speed and its acceleration."""

    x: float
    v: float
    a: float


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
        if (np.isfinite(self.jerk) & ~np.isfinite(self.acceleration)).any():
            raise MotionError("a limited jerk needs a limited acceleration")
        self.axes = [self._axis(*row) for row in zip(*(
            each.tolist() for each in (self.low, self.high, self.speed, self.acceleration, self.jerk)))]

    def _axis(self, low: float, high: float, speed: float, acceleration: float, jerk: float) -> Axis:
        fade, braked = jerk * self.dt, acceleration < inf
        axis = Axis(low, high, self.dt, speed, acceleration, jerk, fade, braked, braked and fade < 2.0 * acceleration,
                    ROUNDING * (high - low))
        calm, inner_low, inner_high = surely_stops(axis)
        return axis._replace(calm=calm, inner_low=inner_low, inner_high=inner_high)

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
    """The last command sent, its speed and its acceleration: plain numbers per component, or read-only arrays [A]."""

    states: Sequence[State]

    @staticmethod
    def of(command: Array, speed: Array, acceleration: Array) -> Motion:
        """From arrays [A]."""
        rows = (np.asarray(part, dtype=np.float64).reshape(-1).tolist() for part in (command, speed, acceleration))
        return Motion([State(*row) for row in zip(*rows, strict=True)])

    @cached_property
    def command(self) -> Array:
        """[A]."""
        return fixed([state.x for state in self.states])

    @cached_property
    def speed(self) -> Array:
        """[A] per second."""
        return fixed([state.v for state in self.states])

    @cached_property
    def acceleration(self) -> Array:
        """[A] per second squared."""
        return fixed([state.a for state in self.states])

    @property
    def moves(self) -> bool:
        """Whether it is not at rest."""
        return any(state.v or state.a for state in self.states)


def fixed(values: Sequence[float]) -> Array:
    """``values`` as a read-only array [A]."""
    out = np.array(values, dtype=np.float64)
    out.flags.writeable = False
    return out


def at_rest(command: Any) -> Motion:
    """At rest at ``command``: at the start, or after a pause."""
    return Motion([State(x, 0.0, 0.0) for x in np.asarray(command, dtype=np.float64).reshape(-1).tolist()])


# what follows a motion


def following(limits: Bounds, before: Motion, target: Any) -> tuple[Motion, Flags]:
    """The next motion towards ``target`` [A], and where [A] it differs from the target.

    Per component: the target, if it keeps all limits and a stop from there does; else an approach to it; else a stop.
    """
    asked = np.asarray(target, dtype=np.float64).reshape(-1).tolist()
    steps = [follow(*row) for row in zip(limits.axes, before.states, asked)]
    return Motion([step for step, _ in steps]), np.array([changed for _, changed in steps])


def approaching(limits: Bounds, before: Motion, target: Any) -> Motion:
    """The next motion on the way to rest at ``target`` [A]. It never overshoots; :func:`following` may arrive at full
    speed."""
    aims = np.asarray(target, dtype=np.float64).reshape(-1).tolist()
    near = [nearing(axis, state, aim).x for axis, state, aim in zip(limits.axes, before.states, aims)]
    spans = (limits.high - limits.low).tolist()
    there = [aim if abs(x - aim) < NEAR * span else x for x, aim, span in zip(near, aims, spans)]
    return following(limits, before, there)[0]


def confined(limits: Bounds, before: Motion | None, motion: Motion, low: Array, high: Array) -> tuple[Motion, Flags]:
    """``motion``, the successor of ``before``, with its first components within ``low`` and ``high`` [B <= A] at any
    speed and acceleration, and where [A] that changed it. Position limits still hold.

    The result can stop again (:func:`can_stop`) and later motions keep all limits. A component whose step was shortened
    has the speed of that shorter step. One that was moved elsewhere rests there: that displacement is no motion to
    continue.
    """
    rows = zip(limits.axes, motion.states, motion.states if before is None else before.states, low.tolist(),
               high.tolist())
    states = [confine(axis, state, old.x, least, most) for axis, state, old, least, most in rows]
    states += motion.states[len(states) :]
    return Motion(states), np.array([new is not old for new, old in zip(states, motion.states)], dtype=bool)


def stopping(limits: Bounds, motion: Motion) -> Motion:
    """The next motion of a stop: speed and acceleration go to zero as fast as acceleration and jerk allow."""
    return Motion([paced(axis, state, 0.0) for axis, state in zip(limits.axes, motion.states)])


def resting(limits: Bounds, motion: Motion) -> Array:
    """Position [A] where a stop that begins after ``motion`` ends, or a little beyond; at most the position limits."""
    return np.array([rest(axis, state) for axis, state in zip(limits.axes, motion.states)])


def can_stop(limits: Bounds, motion: Motion) -> Flags:
    """Whether each component [A] certainly keeps its position and speed limits when :func:`stopping` from here."""
    return np.array([stops(axis, state) for axis, state in zip(limits.axes, motion.states)], dtype=bool)


# one component


def follow(axis: Axis, before: State, target: float) -> tuple[State, bool]:
    """See :func:`following`."""
    state = moved(before, target, axis.dt)
    if keeps(axis, state, before.a):
        return state, False
    state = nearing(axis, before, target)
    if not keeps(axis, state, before.a):
        state = paced(axis, before, 0.0)
    return State(min(max(state.x, axis.low), axis.high), state.v, state.a), True  # a stop may round over an end


def moved(state: State, command: float, dt: float) -> State:
    """The motion once ``command`` is sent, ``dt`` [s] after the last one."""
    x, v, _ = state
    speed = (command - x) / dt
    return State(command, speed, (speed - v) / dt)


def keeps(axis: Axis, state: State, before: float) -> bool:
    """Whether ``state`` keeps all limits one step after the acceleration ``before``, and a stop from there does."""
    x, v, a = state
    return (axis.low <= x <= axis.high and abs(v) <= axis.speed * SOME and abs(a) <= axis.acceleration * SOME
            and abs(a - before) <= axis.fade * SOME and stops(axis, state))


def confine(axis: Axis, state: State, before: float, low: float, high: float) -> State:
    """See :func:`confined`; ``before``: the command before ``state``'s."""
    x = min(max(min(max(state.x, low), high), axis.low), axis.high)
    if x == state.x:
        return state
    shorter = State(x, (x - before) / axis.dt, 0.0)
    between = (x - before) * (state.x - x) > 0.0
    return shorter if between and abs(shorter.v) <= axis.speed and stops(axis, shorter) else State(x, 0.0, 0.0)


def stops(axis: Axis, state: State) -> bool:
    """Whether a stop from here certainly keeps the position and speed limits on both sides."""
    x, v, a = state
    if axis.inner_low <= x <= axis.inner_high and abs(v) <= axis.calm and abs(a) <= axis.acceleration * SOME:
        return True  # what the rest would say, sooner
    return clears(axis, axis.high - x, v, a) and clears(axis, x - axis.low, -v, -a)


def surely_stops(axis: Axis) -> tuple[float, float, float]:
    """The speed and positions within which a stop is certain for any acceleration the axis allows: ``calm``,
    ``inner_low`` and ``inner_high`` of :class:`Axis`."""
    most = axis.acceleration * SOME
    push = 0.0
    if axis.fade < inf:  # n (a - (n + 1) fade / 2) dt, of whatever n, is no more than a^2 dt / (2 fade)
        push = 0.5 * most * most * axis.dt / axis.fade
    calm = axis.speed - push * SOME
    if not axis.braked:
        return calm, axis.low, axis.high
    room = way(axis, axis.speed)
    if axis.bent:
        room += axis.speed * axis.dt * (most / axis.fade + 2.0)
    return calm, axis.low + room * SOME, axis.high - room * SOME


def clears(axis: Axis, room: float, speed: float, acceleration: float) -> bool:
    """Whether a stop certainly needs at most ``room`` and at most the axis' speed; positive is the side of ``room``."""
    if speed <= 0 and acceleration <= 0:  # it leads away from there
        needed, peak = 0.0, 0.0
    else:
        needed, peak = stopping_way(axis, speed, acceleration)
    return needed <= room * SOME + axis.span and peak <= axis.speed * SOME


def stopping_way(axis: Axis, speed: float, acceleration: float) -> tuple[float, float]:
    """Upper bounds of a stop's distance and of its speed towards the positive side."""
    peak, steps = speed, 0.0
    if acceleration > 0 and axis.fade < inf:
        steps = float(floor(acceleration / axis.fade + ROUNDING))  # until nothing pushes any more
        peak += steps * (acceleration - 0.5 * (steps + 1.0) * axis.fade) * axis.dt
    if peak <= 0 or not axis.braked:
        return 0.0, max(peak, 0.0)
    return way(axis, peak) + (peak * axis.dt * (steps + 1.0) if axis.bent else 0.0), peak


def way(axis: Axis, speed: float) -> float:
    """Distance of a stop from ``speed`` at zero acceleration: along an S-curve, or with one braking if the jerk is
    unlimited."""
    if not axis.braked:
        return 0.0
    straight = speed / axis.acceleration
    if not axis.bent:
        return 0.5 * speed * straight
    if speed * axis.jerk >= axis.acceleration**2:
        return 0.5 * speed * (straight + axis.acceleration / axis.jerk)
    return speed * sqrt(speed / axis.jerk)


def rest(axis: Axis, state: State) -> float:
    """See :func:`resting`."""
    up, _ = stopping_way(axis, state.v, state.a) if state.v >= 0 else (0.0, 0.0)
    down, _ = stopping_way(axis, -state.v, -state.a) if state.v <= 0 else (0.0, 0.0)
    return min(max(state.x + up - down, axis.low), axis.high)


def allowed(axis: Axis, room: float) -> float:
    """A speed from which a stop travels at most ``room``, including ``late`` steps at that speed first. The larger of
    two safe values, one for each form of an S-curve."""
    if not axis.braked:
        return room / axis.dt
    late = axis.dt * (2.0 if axis.bent else 1.0)
    bend = late + (0.5 * axis.acceleration / axis.jerk if axis.bent else 0.0)
    long = axis.acceleration * (sqrt(bend**2 + 2.0 * room / axis.acceleration) - bend)
    return max(long, min((0.25 * room**2 * axis.jerk) ** (1 / 3), 0.5 * room / late)) if axis.bent else long


def nearing(axis: Axis, state: State, target: float) -> State:
    """A motion towards ``target`` that keeps the limits of speed, acceleration and jerk, slower near the position
    limits."""
    wanted = min(max(target, axis.low), axis.high) - state.x
    ahead = axis.high - state.x if wanted > 0 else state.x - axis.low
    fastest = min(axis.speed, allowed(axis, max(ahead - axis.span, 0.0)),
                  allowed(axis, abs(wanted)))  # so as to stop there, not behind it
    return paced(axis, state, min(max(wanted / axis.dt, -fastest), fastest))


def paced(axis: Axis, state: State, speed: float) -> State:
    """The next motion on the way to ``speed``, as fast as acceleration and jerk allow, without overshoot.

    The acceleration is the largest that can fade by ``jerk * dt`` a step exactly as the remaining speed difference d is
    used up: with m steps, m a - (m - 1) m / 2 * fade = d / dt (J. Han's discrete tracking differentiator, fhan, IEEE
    Transactions on Industrial Electronics 56, 2009, with its steps counted).
    """
    change = (speed - state.v) / axis.dt
    size = abs(change)
    steps = max(ceil(0.5 * (sqrt(1.0 + 8.0 * size / axis.fade) - 1.0) - 1e-12), 1)
    lost = 0.5 * (steps - 1) * axis.fade if steps > 1 else 0.0
    wanted = copysign(min(size / steps + lost, axis.acceleration), change)
    near = min(max(wanted, state.a - axis.fade), state.a + axis.fade)
    after = state.v + near * axis.dt
    if abs(after) < 1e-12 * abs(state.v):
        after = 0.0
    return State(state.x + after * axis.dt, after, near)
