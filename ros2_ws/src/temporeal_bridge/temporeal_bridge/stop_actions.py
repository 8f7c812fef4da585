"""What the guard's stop actions send: the next command of each, from what is known of the robot.

Plain functions. When an action begins and which mode comes after it is :mod:`temporeal_bridge.guard_node`'s to say,
what each of them is :data:`temporeal_bridge.safety.ACTIONS`. [A]: components of the command. ``values`` are the newest
signals by name, None while the state is stale: then nobody knows where the robot is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robots import shield
from robots.motion import Array, Bounds, Motion, at_rest, following, stopping
from robots.signals import CommandSpec
from robots.spec import RobotSpec
from temporeal_bridge import admission
from temporeal_bridge.safety import Profile

Values = Mapping[str, np.ndarray]
GRAVITY = 9.81  # m/s^2
AT_REST = 1e-9  # of a command's range


@dataclass(frozen=True)
class Stopping:
    """A stop action under way: what, since when [s], and to where [A] (hold)."""

    action: str
    since: float
    target: Array | None = None


class Step(NamedTuple):
    """What a stop action does next: the command to send (None: nothing), whether the action has come to its end with
    it, and the motion that this is where it goes on from the last one."""

    command: Array | None
    over: bool
    motion: Motion | None = None


def begun(profile: Profile, action: str, now: float, motion: Motion | None, values: Values | None) -> Stopping:
    """``action`` begins, or what can be done in its place. ``motion``: of the last command of this mission."""
    if motion is None and action in ("hold", "ramp"):  # nothing was ever sent: nothing moves because of us
        return Stopping("silence", now)
    if action == "hold" and values is None:
        action = "ramp"  # where the robot is, nobody knows: come to rest where it was sent
    target = measured(profile, motion, values) if action == "hold" and motion and values is not None else None
    return Stopping(action, now, target)


def measured(profile: Profile, motion: Motion, values: Values) -> Array:
    """The command [A] that keeps the robot where it is measured, inside the limits."""
    if profile.tracking is None:
        return motion.command
    value = values[profile.tracking.signal].reshape(-1)
    return inside(profile.limits, np.concatenate([value, motion.command[value.size :]]))


def calmed(stop: Stopping, profile: Profile, spec: CommandSpec, motion: Motion | None, values: Values | None) -> Step:
    """Hold, ramp, damp: the robot comes to rest within its limits of motion, and is kept, with no more effort than its
    servos may give."""
    limits, window = profile.limits, admission.window(profile, spec, values)
    before = motion or at_rest(inside(limits, np.zeros(spec.size)))
    if stop.action == "ramp":
        after = ramped(limits, before, window)
        return Step(after.command.reshape(spec.shape), not after.speed.any(), after)
    target = damping(profile, spec, values) if stop.target is None else stop.target
    target = inside(limits, admission.within(target, window))  # as near as the servos may go
    after, _ = shield.spare(limits, before, following(limits, before, target)[0], window)
    near = np.abs(after.command - target) <= AT_REST * (limits.high - limits.low)
    return Step(after.command.reshape(spec.shape), bool(near.all()), after)


def damping(profile: Profile, spec: CommandSpec, values: Values | None) -> Array:
    """Zero velocity [A]; of an effort command, the effort that brakes."""
    out, effort = np.zeros(spec.size), profile.effort
    if effort is not None and spec.unit == "N m" and values is not None:
        velocity = values[effort.velocity].reshape(-1)
        out[: velocity.size] = -np.asarray(effort.kd) * velocity
    return inside(profile.limits, out)


def levelled(
    profile: Profile, robot: RobotSpec, spec: CommandSpec, values: Values | None, elapsed: float, autopilot: bool
) -> Step:
    """Level out and sink, ``elapsed`` [s] after that began; with no attitude, do not turn, and soon be silent: the
    firmware levels by itself. An ``autopilot`` lands by itself what is still in the air."""
    level = profile.level or {}
    landed = values is not None and float(values["height"]) < level["landed_m"]
    if landed or elapsed > (level["blind_s"] if values is None else level["max_s"]):
        off = landed or (values is not None and not autopilot)
        return Step(np.zeros(spec.shape) if off else None, over=True)
    hover = robot.parameters["mass"].nominal[0] * GRAVITY
    command = shield.level_and_descend(None if values is None else values["base_quat_w"], hover, level)
    return Step(shield.clamp(spec, command).command, over=False)


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
