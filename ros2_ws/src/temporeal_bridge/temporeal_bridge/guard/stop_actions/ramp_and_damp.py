"""The stop actions ``ramp`` and ``damp``, and how the guard goes on by itself while a controller is late.

Plain functions. [A]: components of the command. ``values`` are the newest signals by name, None while the state is
stale: then the robot's place is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, at_rest, following, stopping
from temporeal.robots.signals import CommandSpec
from temporeal_bridge.guard.command_limits import window, within
from temporeal_bridge.guard.safety.checked_values import is_rate
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.stop_actions.step import Step, Stopping, Values

AT_REST = 1e-9  # of a command's range
SLOW = 0.02  # share of a joint's speed limit below which it is slow. Chosen
STILL_S = 0.1  # an effort has braked joints that were slow for so long: they did not just reverse. Chosen
DAMPED_S = 5.0  # after so long braking is over in any case: a robot that somebody pushes never rests. Chosen
FASTER = 0.05  # share of a joint's speed limit by which it may exceed its speed at the beginning while braked. Chosen


def begin(profile: Profile, action: str, now: float, motion: Motion | None, values: Values | None) -> Stopping:
    """``action`` begins, or what can be done in its place. ``motion``: of the last command of this mission. (For
    ``level`` see :func:`temporeal_bridge.guard.stop_actions.level.begin`.)"""
    if motion is None and action in ("hold", "ramp"):  # nothing was sent, so nothing moves because of us
        return Stopping("silence", now)
    return Stopping(action, now, fastest=-inf if (share := joint_speed(profile, values)) is None else share)


def joint_speed(profile: Profile, values: Values | None) -> float | None:
    """For efforts, the largest measured joint speed as a share of its limit in ``ends``; None for other commands, and
    while the state is stale."""
    ends = profile.ends
    if ends is None or not ends.velocity or values is None:
        return None
    return float(np.max(np.abs(values[ends.velocity].reshape(-1)) / np.asarray(ends.speed)))


def note_speed(stop: Stopping, profile: Profile, values: Values | None, now: float) -> Stopping:
    """``stop`` with the time since when all joints have been slow. Unseen joints count as slow, because their effort is
    0."""
    share = joint_speed(profile, values)
    if share is None:
        still = -inf
    elif share > SLOW:
        still = inf
    else:
        still = stop.still if abs(stop.still) < inf else now
    return stop if still == stop.still else replace(stop, still=still)


def brakes(stop: Stopping, profile: Profile, values: Values | None) -> bool:
    """Whether a braking effort does not accelerate the joints, as it would with velocities that come too late."""
    share = joint_speed(profile, values)
    return share is None or share <= max(stop.fastest, 0.0) + FASTER


def next_step(
    stop: Stopping, profile: Profile, spec: CommandSpec, motion: Motion | None, values: Values | None, now: float
) -> Step:
    """One step of ramp or damp: the robot comes to rest within its limits of motion and is kept there, with no more
    effort than its servos may give."""
    limits, reach = profile.limits, window(profile, values)
    before = motion or at_rest(inside(limits, np.zeros(spec.size)))
    if stop.action == "ramp":
        after = ramped(limits, before, reach)
        return Step(after.command.reshape(spec.shape), not after.speed.any(), after)
    target = inside(limits, within(damping(profile, spec, values), reach))  # as near as the servos may go
    after, _ = shield.spare(limits, before, following(limits, before, target)[0], reach)
    near = np.abs(after.command - target) <= AT_REST * (limits.high - limits.low)
    # a braking effort that was reached does not mean that the joints rest
    over = bool(near.all()) and (now - stop.still >= STILL_S or now - stop.since > DAMPED_S)
    return Step(after.command.reshape(spec.shape), over, after)


def damping(profile: Profile, spec: CommandSpec, values: Values | None) -> Array:
    """Zero velocity [A]; of an effort command, the effort that brakes."""
    out, ends = np.zeros(spec.size), profile.ends
    if ends is not None and ends.velocity and values is not None:
        velocity = values[ends.velocity].reshape(-1)
        out[: velocity.size] = -np.asarray(ends.gain) * velocity
    return inside(profile.limits, out)


def eased(profile: Profile, spec: CommandSpec, motion: Motion, values: Values | None) -> Motion:
    """One period further towards rest: of places where that is, of speeds and efforts 0."""
    reach = window(profile, values)
    if not is_rate(spec):
        return ramped(profile.limits, motion, reach)
    after, _ = following(profile.limits, motion, damping(profile, spec, values))
    return shield.spare(profile.limits, motion, after, reach)[0]


def ramped(limits: Bounds, motion: Motion, reach: shield.Window | None = None) -> Motion:
    """One period further towards rest, in the window (``reach``) of what servos may give."""
    after = stopping(limits, motion)
    placed = Motion.of(inside(limits, after.command), after.speed, after.acceleration)
    return shield.spare(limits, motion, placed, reach)[0]


def caught_up(limits: Bounds, motion: Motion, missed: int, led: bool) -> Motion:
    """Where the robot is after ``missed`` periods without a command: one that was sent its way to rest (``led``) has
    gone on along it, any other holds the last command."""
    if not led:
        return at_rest(motion.command)
    while missed and motion.moves:
        missed, motion = missed - 1, ramped(limits, motion)
    return motion


def inside(limits: Bounds, command: Array) -> Array:
    """``command`` [A] within the limits of place."""
    return np.clip(command, limits.low, limits.high)
