"""Which commands may be sent: the window of efforts and ends, the fade-in, and where the robot would come to rest.

Plain functions. Limits of motion are applied by :func:`temporeal.robots.motion.shield.guard`. [A]: components of the
command, [B]: joints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.collision import Nearness
from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, resting
from temporeal_bridge.guard.safety.profile import Profile


def window(profile: Profile, values: Mapping[str, np.ndarray] | None) -> shield.Window | None:
    """The range of commands with which no servo exceeds its effort limit, and no joint runs into an end of its range.
    None: there is no such rule, or the state is stale (``values``: None)."""
    if values is None:
        return None
    effort, ends = profile.effort, profile.ends
    if effort is not None:
        position, velocity = (values[name].reshape(-1) for name in (effort.position, effort.velocity))
        return shield.effort_window(
            position, velocity, np.asarray(effort.kp), np.asarray(effort.kd), np.asarray(effort.limit))
    if ends is None:
        return None
    speeds = shield.speed_window(values[ends.position].reshape(-1), ends.low, ends.high, ends.brake, ends.speed,
                                 ends.late)
    if not ends.velocity:
        return speeds
    velocity, gain = values[ends.velocity].reshape(-1), np.asarray(ends.gain)
    return gain * (speeds[0] - velocity), gain * (speeds[1] - velocity)


def within(asked: Array, reach: shield.Window | None) -> Array:
    """``asked`` [A] in the window (``reach``). Whoever aims at its end from afar reaches it within the limits of
    motion."""
    if reach is None:
        return asked
    size = reach[0].size
    return np.concatenate([np.clip(asked[:size], *reach), asked[size:]])


def wanted(asked: Array, elapsed: float, origin: Array | None, profile: Profile, reach: shield.Window | None) -> Array:
    """``asked`` [A], ``elapsed`` [s] into the mission: faded in from where the robot was (``origin``), and in the
    window (``reach``) of what servos may give."""
    rule = profile.start
    if rule is not None and origin is not None and elapsed < rule.ramp_s:
        share = elapsed / rule.ramp_s
        asked = origin + share * share * (3.0 - 2.0 * share) * (asked - origin)
    return within(asked, reach)


def rests(profile: Profile, limits: Bounds, motion: Motion, values: Mapping[str, np.ndarray] | None) -> Array | None:
    """Where [A] the robot comes to rest if it stops after ``motion``; for speeds and efforts where its joints [B] do.
    None: unknown, because the state is stale."""
    ends, rule = profile.ends, profile.self_collision
    if not profile.joints:
        return resting(limits, motion)
    if values is None:
        return None
    position = values[profile.joints].reshape(-1)
    if ends is None:
        assert rule is not None
        speed = values[rule.velocity].reshape(-1)
        rest = position + rule.late * speed + 0.5 * speed * np.abs(speed) / np.asarray(rule.brake)
        return np.clip(rest, rule.low, rule.high)
    speed = values[ends.velocity].reshape(-1) if ends.velocity else motion.command[: position.size]
    return np.clip(position + 0.5 * speed * np.abs(speed) / np.asarray(ends.brake), ends.low, ends.high)


def collision(near: Nearness, rest: Array, before: Callable[[], Array] | None, least: float = inf) -> str:
    """Why the robot may not ``rest`` [A] there: links too close to each other, and closer than ``least`` [m] or than
    where it rests otherwise (``before``, evaluated only if it matters)."""
    if near.clear(rest[: near.capsules.count]):
        return ""
    clear, who = near.distance(rest[: near.capsules.count])
    if clear >= min(near.margin, least):
        return ""
    if before is not None:
        now, _ = near.capsules.distance(before()[: near.capsules.count])
        if clear >= now:
            return ""
    return f"{who} would come to {clear:.3f} m of each other, {near.margin:g} m is allowed"
