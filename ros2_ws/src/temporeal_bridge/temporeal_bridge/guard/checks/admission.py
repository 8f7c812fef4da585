"""What the guard asks of a controller's proposal before it is a command: plain functions, each for one question.

Whether there is a mission, and what is done with the answer, is :mod:`temporeal_bridge.guard_node`'s; limits of motion
are :func:`temporeal.robots.motion.shield.guard`'s. [A]: components of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.collision import Nearness
from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, resting
from temporeal.robots.signals import CommandSpec, all_finite
from temporeal_bridge.guard.safety import Profile
from temporeal_bridge.guard.state_monitor import NOTHING, Reason, Watch
from temporeal_bridge.link.datagrams import Proposal


def unusable(p: Proposal, now: float, spec: CommandSpec, profile: Profile) -> Reason:
    """What is wrong with the proposal itself, whatever the robot does."""
    values = np.asarray(p.values, dtype=float).reshape(-1)
    fits = values.size == spec.size
    if not fits or not all_finite(values):
        return "policy", shield.finite(spec, values.reshape(spec.shape) if fits else values).reason
    old = (shield.stale(now - p.seen, profile.age(0).stale_s)  # the first topic paces the controller
           or shield.stale(now - min(p.seen, p.oldest), profile.oldest_s))
    return ("stale", f"the command was made of an old state: {old}") if old else NOTHING


def refused_start(asked: Array, now: float, profile: Profile, watch: Watch) -> Reason:
    """What speaks against ``asked`` [A] as the first command: the robot is outside, moves, or is far from there."""
    rule, limits = profile.start, profile.limits
    unrest = watch.unrest()
    if unrest != NOTHING or rule is None or not rule.signal:
        return unrest
    measured = watch.values[rule.signal].reshape(-1)
    low, high = limits.low[: measured.size], limits.high[: measured.size]
    out = np.flatnonzero((measured < low) | (measured > high))
    if len(out):
        i = int(out[0])
        return "start", (f"{rule.signal}[{i}] is {measured[i]:.3f}, outside [{low[i]:.3f}, {high[i]:.3f}]: move the "
                         "robot inside first")
    return watch.start(asked, now)


def origin(asked: Array, profile: Profile, watch: Watch) -> Array | None:
    """Where [A] the robot is as its first command ``asked`` [A] counts it; None where no rule says where it begins."""
    if profile.start is None:
        return None
    if not profile.start.signal:
        return np.zeros(asked.size)
    measured = watch.values[profile.start.signal].reshape(-1).astype(float)
    return np.concatenate([measured, np.clip(asked, profile.limits.low, profile.limits.high)[measured.size :]])


def window(profile: Profile, values: Mapping[str, np.ndarray] | None) -> shield.Window | None:
    """Between which commands no servo needs more effort than it may, or no joint runs into an end of its range. None
    where nobody knows: there is no rule, or the state is stale (``values``: None)."""
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


def within(asked: Array, window: shield.Window | None) -> Array:
    """``asked`` [A] in the ``window``: aimed at from afar, its end is come to within the limits of motion."""
    if window is None:
        return asked
    size = window[0].size
    return np.concatenate([np.clip(asked[:size], *window), asked[size:]])


def wanted(
    asked: Array, elapsed: float, begun_at: Array | None, profile: Profile, window: shield.Window | None
) -> Array:
    """``asked`` [A], ``elapsed`` [s] into the mission: faded in from where the robot was (``begun_at``), and in the
    ``window`` of what servos may give."""
    rule = profile.start
    if rule is not None and begun_at is not None and elapsed < rule.ramp_s:
        share = elapsed / rule.ramp_s
        asked = begun_at + share * share * (3.0 - 2.0 * share) * (asked - begun_at)
    return within(asked, window)


def rests(
    profile: Profile, limits: Bounds, motion: Motion, values: Mapping[str, np.ndarray] | None
) -> Array | None:
    """Where [A] the robot comes to rest if it stops after ``motion``; of speeds and efforts, where [B] its joints do.
    None: the state is stale, and nobody knows."""
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
    """Would the robot ``rest`` [A] too near to itself, and nearer than where it rests else (``before``, which is asked
    when that matters), or than ``least`` [m]?"""
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
