"""What the guard requires of a controller's proposal: plain functions, one for each question. [A]: components of the
command."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array
from temporeal.robots.signals import CommandSpec, all_finite
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason
from temporeal_bridge.link.datagrams import Proposal


def unusable(p: Proposal, now: float, spec: CommandSpec, profile: Profile) -> Reason:
    """What is wrong with the proposal itself: shape, finite values, age of the state that it was made of."""
    values = np.asarray(p.values, dtype=float).reshape(-1)
    fits = values.size == spec.size
    if not fits or not all_finite(values):
        return "policy", shield.finite(spec, values.reshape(spec.shape) if fits else values).reason
    old = (shield.stale(now - p.seen, profile.age(0).stale_s)  # the first topic paces the controller
           or shield.stale(now - min(p.seen, p.oldest), profile.oldest_s))
    return ("stale", f"the command was made of an old state: {old}") if old else NOTHING


def refused_start(asked: Array, now: float, profile: Profile, monitor: StateMonitor) -> Reason:
    """Why ``asked`` [A] may not be the first command: the robot is outside its limits, moves, or is far away."""
    rule, limits = profile.start, profile.limits
    unrest = monitor.rest.unrest(monitor.values)
    if unrest != NOTHING or rule is None or not rule.signal:
        return unrest
    measured = monitor.values[rule.signal].reshape(-1)
    low, high = limits.low[: measured.size], limits.high[: measured.size]
    out = np.flatnonzero((measured < low) | (measured > high))
    if len(out):
        i = int(out[0])
        return "start", (f"{rule.signal}[{i}] is {measured[i]:.3f}, outside [{low[i]:.3f}, {high[i]:.3f}]: move the "
                         "robot inside first")
    return monitor.far_start(asked, now)


def origin(asked: Array, profile: Profile, values: Mapping[str, np.ndarray]) -> Array | None:
    """Where [A] the robot is when its first command is ``asked`` [A]; None where no rule says where commands begin."""
    if profile.start is None:
        return None
    if not profile.start.signal:
        return np.zeros(asked.size)
    measured = values[profile.start.signal].reshape(-1).astype(float)
    return np.concatenate([measured, np.clip(asked, profile.limits.low, profile.limits.high)[measured.size :]])
