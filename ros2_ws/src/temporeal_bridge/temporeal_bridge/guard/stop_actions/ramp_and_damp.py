"""What the guard's stop actions send: the next command of each, from what is known of the robot.

Plain functions. When an action begins and which mode comes after it is :mod:`temporeal_bridge.guard_node`'s to say,
what each of them is :data:`temporeal_bridge.guard.safety.ACTIONS`. [A]: components of the command. ``values`` are the
newest signals by name, None while the state is stale: then nobody knows where the robot is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, at_rest, following, stopping
from temporeal.robots.signals import CommandSpec
from temporeal_bridge.guard import admission
from temporeal_bridge.guard.safety import Profile, is_rate

Values = Mapping[str, np.ndarray]
AT_REST = 1e-9  # of a command's range
SLOW, STILL_S, DAMPED_S = 0.02, 0.1, 5.0  # share of a joint's speed limit: an effort has braked what is slower for so
# long, s, and has not just turned round; and after so long, s, it is over: whom somebody pushes never rests. Chosen
FASTER = 0.05  # share of a joint's speed limit: by so much more than at the beginning, braking is none. Chosen


@dataclass(frozen=True)
class Stopping:
    """A stop action under way: what, since when [s], and to where [A] (hold; NaN: not known yet); of commands that are
    efforts, how fast the joints were when it began (``fastest``: share of a joint's speed limit), and since when [s]
    all of them have been slow (``still``); of a ramp that rests, for how long [s], by whole periods, the robot has
    ``pressed`` on something. Level knows more: :class:`temporeal_bridge.guard.level.Levelling`."""

    action: str
    since: float
    target: Array | None = None
    fastest: float = -inf
    still: float = inf
    pressed: float = 0.0


class Step(NamedTuple):
    """What a stop action does next: the command to send (None: nothing), whether the action has come to its end with
    it, and the motion that this is where it goes on from the last one."""

    command: Array | None
    over: bool
    motion: Motion | None = None


def begun(profile: Profile, action: str, now: float, motion: Motion | None, values: Values | None) -> Stopping:
    """``action`` begins, or what can be done in its place. ``motion``: of the last command of this mission. (Level:
    :func:`temporeal_bridge.guard.level.begun`.)"""
    if motion is None and action in ("hold", "ramp"):  # nothing was sent: nothing moves because of us
        return Stopping("silence", now)
    return Stopping(action, now, fastest=-inf if (share := swiftness(profile, values)) is None else share)


def swiftness(profile: Profile, values: Values | None) -> float | None:
    """The greatest of the joints' measured speeds, as a share of what ``ends`` allow it, of commands that are efforts;
    None: of others, and where nobody sees it."""
    ends = profile.ends
    if ends is None or not ends.velocity or values is None:
        return None
    return float(np.max(np.abs(values[ends.velocity].reshape(-1)) / np.asarray(ends.speed)))


def watched(stop: Stopping, profile: Profile, values: Values | None, now: float) -> Stopping:
    """``stop`` with since when the joints have been slow. Where nobody sees them, an effort is none, and none waits."""
    share = swiftness(profile, values)
    if share is None:
        still = -inf
    elif share > SLOW:
        still = inf
    else:
        still = stop.still if abs(stop.still) < inf else now
    return stop if still == stop.still else replace(stop, still=still)


def braking(stop: Stopping, profile: Profile, values: Values | None) -> bool:
    """Whether an effort that brakes does not make the joints faster: with velocities that come too late it would."""
    share = swiftness(profile, values)
    return share is None or share <= max(stop.fastest, 0.0) + FASTER


def calmed(
    stop: Stopping, profile: Profile, spec: CommandSpec, motion: Motion | None, values: Values | None, now: float
) -> Step:
    """Ramp, damp: the robot comes to rest within its limits of motion, and is kept, with no more effort than its servos
    may give. (Hold: :mod:`temporeal_bridge.guard.hold`.)"""
    limits, window = profile.limits, admission.window(profile, values)
    before = motion or at_rest(inside(limits, np.zeros(spec.size)))
    if stop.action == "ramp":
        after = ramped(limits, before, window)
        return Step(after.command.reshape(spec.shape), not after.speed.any(), after)
    target = inside(limits, admission.within(damping(profile, spec, values), window))  # as near as the servos may go
    after, _ = shield.spare(limits, before, following(limits, before, target)[0], window)
    near = np.abs(after.command - target) <= AT_REST * (limits.high - limits.low)
    # that an effort is what brakes does not say that the joints rest
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
    """One period further on the way to rest: of places where that leads, of speeds and efforts to none."""
    window = admission.window(profile, values)
    if not is_rate(spec):
        return ramped(profile.limits, motion, window)
    after, _ = following(profile.limits, motion, damping(profile, spec, values))
    return shield.spare(profile.limits, motion, after, window)[0]


def ramped(limits: Bounds, motion: Motion, window: shield.Window | None = None) -> Motion:
    """One period further on the way to rest, in the ``window`` of what servos may give."""
    after = stopping(limits, motion)
    placed = Motion.of(inside(limits, after.command), after.speed, after.acceleration)
    return shield.spare(limits, motion, placed, window)[0]


def caught_up(limits: Bounds, motion: Motion, missed: int, led: bool) -> Motion:
    """Where the robot is when so many commands were ``missed`` after ``motion``: what was told its way to rest
    (``led``) has gone on along it, anything else holds the last command."""
    if not led:
        return at_rest(motion.command)
    while missed and motion.moves:
        missed, motion = missed - 1, ramped(limits, motion)
    return motion


def inside(limits: Bounds, command: Array) -> Array:
    """``command`` [A] within the limits of place."""
    return np.clip(command, limits.low, limits.high)
