"""Safety functions: which command may be sent to a robot. Pure functions over numpy arrays, no state, no clock.

Checks in order: the command exists and is finite; its state is fresh; the robot follows its commands; the robot is
inside its fence; the command is inside its limits and changes no faster than allowed; and, with priority over these,
the effort it demands of its servos is within their limit. :class:`Verdict` gives the reason of every change, so that a
node can publish it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.frames import rotate_inverse
from temporeal.robots.motion.rate_limiter import Bounds, Motion, at_rest, confined, following
from temporeal.robots.signals import CommandSpec, all_finite

MOST_THRUST = 1.3  # of the hover thrust: what a quadrotor that stops may push with at most; chosen
LEAST_THRUST, CLIMB_M_S = 0.6, 0.1  # of the hover thrust, at least, to brake a climb that is faster than that; chosen
LEAST_UP = 0.7  # cosine of the tilt, at least, that thrust is raised for: 45 degrees
Array = NDArray[Any]
Window = tuple[Array, Array]
"""Lowest and highest command [B], of the first components that it has."""


@dataclass(frozen=True)
class Verdict:
    """A checked command: ``command`` is what may be sent (None: nothing), ``reason`` is empty if it is unchanged."""

    command: Array | None
    reason: str = ""


def finite(spec: CommandSpec, command: Array) -> Verdict:
    """Refuse a command of another shape or with a non-finite value."""
    command = np.asarray(command, dtype=float)
    if command.shape != spec.shape:
        return Verdict(None, f"{spec.name} has shape {command.shape}, {spec.shape} is needed")
    if not all_finite(command):
        return Verdict(None, f"{spec.name} is not finite: {command}")
    return Verdict(command)


def clamp(spec: CommandSpec, command: Array) -> Verdict:
    """``command`` inside the limits of ``spec``."""
    low, high = np.reshape(spec.low, spec.shape), np.reshape(spec.high, spec.shape)
    inside = np.clip(command, low, high)
    # the network computes in float32: a value that rounds over its limit is no event
    over = np.abs(inside - command) > 1e-5 * (high - low)
    detail = f"{spec.name} clamped to its limits, component {np.flatnonzero(over).tolist()}" if over.any() else ""
    return Verdict(inside, detail)


def stale(age_s: float, limit_s: float) -> str:
    """Reason why a state of this age must not be used, or "". A state from the future is refused, too."""
    if not age_s <= limit_s:
        return f"the newest state is {age_s:.3f} s old, {limit_s:.3f} s is allowed"
    if age_s < -limit_s:
        return f"the newest state is {-age_s:.3f} s in the future: the clocks differ"
    return ""


def outside(position_w: Array, low: Sequence[float] | Array, high: Sequence[float] | Array) -> str:
    """Reason why a position [3] m is outside the box ``low`` to ``high`` (world frame), or ""."""
    position = np.asarray(position_w, dtype=float).tolist()
    for axis, x, lo, hi in zip("xyz", position, low, high):
        if not lo <= x <= hi:
            return f"{axis} = {x:.2f} m is outside the geofence [{lo:g}, {hi:g}]"
    return ""


def behind(asked: Array, measured: Array, error: Sequence[float] | Array) -> str:
    """Reason why ``measured`` [A] is farther than ``error`` [A] from the command, or ""."""
    rows = zip(np.asarray(asked, dtype=float).tolist(), np.asarray(measured, dtype=float).tolist(), error, strict=True)
    if all(abs(a - m) <= e for a, m, e in rows):
        return ""
    off = np.abs(np.asarray(asked, dtype=float) - np.asarray(measured, dtype=float))
    worst = int(np.argmax(off / np.asarray(error, dtype=float)))
    return f"component {worst} is {off[worst]:.3g} from its command, {error[worst]:g} is allowed"


def effort_window(position: Array, velocity: Array, kp: Array, kd: Array, limit: Array) -> Window:
    """Lowest and highest command [A] for which a servo's effort ``kp (command - position) - kd velocity`` is within
    ``limit`` [A]."""
    p, v, gain = (np.asarray(x, dtype=float) for x in (position, velocity, kp))
    damping, most = np.asarray(kd, dtype=float) * v, np.asarray(limit, dtype=float)
    return p + (damping - most) / gain, p + (damping + most) / gain


def speed_window(
    position: Array, low: Sequence[float], high: Sequence[float], brake: Sequence[float], speed: Sequence[float],
    late: float = 0.0,
) -> Window:
    """Lowest and highest speed [A] of joints at ``position`` [A] from which braking with ``brake`` [A], begun ``late``
    [s] from now, ends between ``low`` and ``high`` [A]; at most ``speed`` [A]. Beyond a limit only motion back is
    allowed."""
    q, b, most = (np.asarray(x, dtype=float) for x in (position, brake, speed))
    before = b * late
    down, up = (np.minimum(np.sqrt(before**2 + 2.0 * b * np.maximum(room, 0.0)) - before, most)
                for room in (q - low, high - q))
    return -down, up


def guard(
    spec: CommandSpec, command: Array, limits: Bounds, before: Motion | None, window: Window | None = None
) -> tuple[Verdict, Motion | None]:
    """The command that may be sent, the reasons of its changes, and the motion to pass as ``before`` next time.

    The command is made finite, put inside its limits and slowed to the allowed rate (``limits``; ``before``: the last
    one sent, None at first), and then into its servos' ``window`` (:func:`effort_window`; None: unknown) at any speed.
    """
    checked = finite(spec, command)
    if checked.command is None:
        return checked, before
    asked, same = np.reshape(checked.command, -1), False
    if before is None:
        motion = at_rest(np.clip(asked, limits.low, limits.high))
    else:
        motion, changed = following(limits, before, asked)
        same = not any(changed.tolist())
    spared, yielded = spare(limits, before, motion, window)
    if same and not yielded:
        return Verdict(checked.command), motion
    inside = np.clip(asked, limits.low, limits.high)
    reasons = (clamp(spec, checked.command).reason, _differs(spec, inside, motion.command), yielded)
    return Verdict(spared.command.reshape(spec.shape), "; ".join(r for r in reasons if r)), spared


def spare(limits: Bounds, before: Motion | None, motion: Motion, window: Window | None) -> tuple[Motion, str]:
    """``motion``, the successor of ``before``, within its servos' ``window``, and the reason if that changed it."""
    if window is None:
        return motion, ""
    spared, changed = confined(limits, before, motion, *window)
    far = changed & (np.abs(spared.command - motion.command) > 1e-5 * (limits.high - limits.low))
    return spared, f"its effort is limited, component {np.flatnonzero(far).tolist()}" if far.any() else ""


def _differs(spec: CommandSpec, asked: Array, sent: Array) -> str:
    slow = np.abs(sent - asked) > 1e-5 * (np.asarray(spec.high) - np.asarray(spec.low))
    return f"{spec.name} moves faster than allowed, component {np.flatnonzero(slow).tolist()}" if slow.any() else ""


def level_rates(quat_wxyz: Array, gain: float, limit: float, lean: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Body rates [3] rad/s that turn the body's z axis up: ``gain`` [1/s] times the sine of the tilt, at most
    ``limit``.

    ``lean`` tilts "up" a little towards the world's x and y (sines). The axis from the body's z to the world's up, in
    the body frame, is z x up = (-up_y, up_x, 0): yaw is unchanged.
    """
    x, y = lean
    up = rotate_inverse(np.asarray(quat_wxyz, dtype=float), np.array([x, y, sqrt(1.0 - x * x - y * y)]))
    lever = 1.0 if up[2] >= 0 else 1.0 / max(float(np.hypot(up[0], up[1])), 1e-3)  # upside down: full effort
    return np.clip(gain * lever * np.array([-up[1], up[0], 0.0]), -limit, limit)


def level_and_descend(
    quat_wxyz: Array | None, hover_thrust: float, config: Mapping[str, float], sink: float | None = None,
    climb: float = 0.0, lean: tuple[float, float] = (0.0, 0.0),
) -> Array:
    """Collective thrust [N] and body rates [4] of a quadrotor that stops: level out and descend.

    ``hover_thrust`` [N]: the thrust that carries it, as far as known. Without an attitude (None: the state is stale)
    the rates are zero, because turning blindly is worse than not turning. With a known ``sink`` [m/s, down] the speed
    is controlled to ``sink_m_s``; otherwise the thrust is ``descend``. ``climb``: see :func:`sinking_share`; ``lean``:
    :func:`level_rates`. ``config``: ``descend`` (share of the hover thrust), ``gain`` [1/s], ``limit`` [rad/s], and the
    entries of :func:`sinking_share`.
    """
    rates = np.zeros(3) if quat_wxyz is None else level_rates(quat_wxyz, config["gain"], config["limit"], lean)
    share = config["descend"] if quat_wxyz is None or sink is None else sinking_share(quat_wxyz, sink, config, climb)
    return np.concatenate([[share * hover_thrust], rates])


def sinking_share(quat_wxyz: Array, sink: float, config: Mapping[str, float], climb: float = 0.0) -> float:
    """Share of the hover thrust for a ``sink`` [m/s, down] of ``sink_m_s``.

    Proportional to the error (``sink_gain`` [s/m]; time constant 1 / (g sink_gain)), divided by the cosine of the tilt,
    because only that part of the thrust carries. It lies between ``descend`` and MOST_THRUST; for a certain ``climb``
    [m/s, up] it may go down to LEAST_THRUST, so that the climb ends sooner. Upside down thrust carries nothing.
    """
    up = float(rotate_inverse(np.asarray(quat_wxyz, dtype=float), np.array([0.0, 0.0, 1.0]))[2])
    if up <= 0:
        return config["descend"]
    share = (1.0 + config["sink_gain"] * (sink - config["sink_m_s"])) / max(up, LEAST_UP)
    least = config["descend"]
    if climb > CLIMB_M_S:
        least = min(least, max(LEAST_THRUST, least - config["sink_gain"] * (climb - CLIMB_M_S)))
    return float(np.clip(share, least, MOST_THRUST))
