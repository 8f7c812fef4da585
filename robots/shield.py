"""Safety functions: what may be sent to a robot. Pure functions over numpy arrays, no state, no clock.

A command is checked in this order: it exists and is finite, the state it was computed from is fresh, it is inside the
robot's limits, it does not change faster than allowed. :class:`Verdict` carries the reason of everything that was
done to a command, so that a node can publish it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.frames import rotate_inverse
from robots.signals import CommandSpec

Array = NDArray[Any]


@dataclass(frozen=True)
class Verdict:
    """A command after a check: ``command`` is what may be sent (None: nothing), ``reason`` is empty if untouched."""

    command: Array | None
    reason: str = ""


def finite(spec: CommandSpec, command: Array) -> Verdict:
    """Refuse a command of another shape or with a value that is not a number."""
    command = np.asarray(command, dtype=float)
    if command.shape != spec.shape:
        return Verdict(None, f"{spec.name} has shape {command.shape}, {spec.shape} is needed")
    if not np.isfinite(command).all():
        return Verdict(None, f"{spec.name} is not finite: {command}")
    return Verdict(command)


def clamp(spec: CommandSpec, command: Array) -> Verdict:
    """``command`` inside the limits of ``spec``."""
    low, high = np.reshape(spec.low, spec.shape), np.reshape(spec.high, spec.shape)
    inside = np.clip(command, low, high)
    # the network computes in float32: a value that rounds over its limit is no event
    over = np.abs(inside - command) > 1e-5 * (high - low)
    told = f"{spec.name} clamped to its limits, component {np.flatnonzero(over).tolist()}" if over.any() else ""
    return Verdict(inside, told)


def limit_rate(spec: CommandSpec, command: Array, previous: Array | None, rate: Array | float, dt: float) -> Verdict:
    """``command`` at most ``rate`` [unit/s] times ``dt`` [s] away from ``previous`` (None: the first one)."""
    if previous is None:
        return Verdict(np.asarray(command))
    step = np.broadcast_to(np.asarray(rate, dtype=float) * dt, spec.shape)
    change = np.asarray(command) - previous
    near = previous + np.clip(change, -step, step)
    limited = bool((np.abs(change) > step * (1 + 1e-6)).any())
    return Verdict(near, f"{spec.name} changes faster than allowed" if limited else "")


def stale(age_s: float, limit_s: float) -> str:
    """Reason why a state of this age must not be acted on, or "". A state from the future is as wrong as an old one."""
    if not age_s <= limit_s:
        return f"the newest state is {age_s:.3f} s old, {limit_s:.3f} s is allowed"
    if age_s < -limit_s:
        return f"the newest state is {-age_s:.3f} s in the future: the clocks differ"
    return ""


def outside(position_w: Array, low: Array, high: Array) -> str:
    """Reason why a position [3] m leaves the box ``low`` to ``high`` (world frame), or ""."""
    position = np.asarray(position_w, dtype=float)
    for axis, x, lo, hi in zip("xyz", position, low, high):
        if not lo <= x <= hi:
            return f"{axis} = {x:.2f} m is outside the geofence [{lo:g}, {hi:g}]"
    return ""


def guard(spec: CommandSpec, command: Array, previous: Array | None, rate: Array | float | None, dt: float) -> Verdict:
    """Finite, then limits, then rate of change (None: unlimited): the command that may be sent and the reasons."""
    checked = finite(spec, command)
    if checked.command is None:
        return checked
    inside = clamp(spec, checked.command)
    if rate is None or inside.command is None:
        return inside
    slow = limit_rate(spec, inside.command, previous, rate, dt)
    return Verdict(slow.command, "; ".join(r for r in (inside.reason, slow.reason) if r))


def level_rates(quat_wxyz: Array, gain: float, limit: float) -> Array:
    """Body rates [3] rad/s that turn the body's z axis up: ``gain`` [1/s] times the sine of the tilt, up to ``limit``.

    The axis from the body's z to the world's up, seen in the body, is z x up = (-up_y, up_x, 0): yaw is left alone.
    """
    up = rotate_inverse(np.asarray(quat_wxyz, dtype=float), np.array([0.0, 0.0, 1.0]))
    lever = 1.0 if up[2] >= 0 else 1.0 / max(float(np.hypot(up[0], up[1])), 1e-3)  # upside down: full effort
    return np.clip(gain * lever * np.array([-up[1], up[0], 0.0]), -limit, limit)


def level_and_descend(quat_wxyz: Array | None, hover_thrust: float, config: Mapping[str, float]) -> Array:
    """Collective thrust [N] and body rates [4] of a quadrotor that stops: level out and sink.

    With no attitude (None: the state is stale) the rates are zero: turning blindly is worse than not turning.
    ``config``: ``descend`` (share of the hover thrust), ``gain`` [1/s], ``limit`` [rad/s].
    """
    rates = np.zeros(3) if quat_wxyz is None else level_rates(quat_wxyz, config["gain"], config["limit"])
    return np.concatenate([[config["descend"] * hover_thrust], rates])
