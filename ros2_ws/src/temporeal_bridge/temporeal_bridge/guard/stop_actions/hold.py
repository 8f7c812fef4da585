"""The stop action ``hold``: each joint goes to where it is measured, as far as its measured place is credible.

A joint goes there as soon as its place is known; until then it comes to rest where it was sent. Fingers thus release
what they press on.

A ``ramp`` of any robot but a hand ends when the robot is where it was told to be. A robot that stays elsewhere is
blocked, maybe by a person, and would go on pressing: the ramp becomes a hold (:func:`pressing`).

A hand's (``closes`` of the command in its ``ros.yaml``) measured place may be old although it arrives in time: the
driver repeats the last place of a motor that does not answer, or its clock is behind. Such a joint cannot be told from
one that is blocked. Opening is never wrong, so a joint whose place is in doubt is sent there only if that does not
close the hand. Joints open as fast as the motors may, because that releases a grip; any other movement is slow.

[A]: components of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import nan

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Array, Bounds, Motion, approaching, at_rest
from temporeal_bridge.guard.command_limits import within
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.stop_actions.ramp_and_damp import AT_REST, inside, ramped
from temporeal_bridge.guard.stop_actions.step import Step, Stopping, Values

GENTLE = 1.0  # rad/s or m/s for a held finger that does not open. Chosen: slower than a grip closes
PRESSES = 0.03  # rad or m between command and measurement of a blocked joint. Chosen: there the servos of a Franka pull
# with all they have (87 N m at 3000 N m/rad: 0.029 rad); its largest payload (3 kg) makes it sag by 0.008
PRESS_S = 0.4  # for so long. Chosen: drivers and servos are late, a Franka's by 0.13 s (`tracking` in its ros.yaml)


def aimed(
    stop: Stopping, profile: Profile, motion: Motion, values: Values | None, doubts: Sequence[bool] | None
) -> Stopping:
    """``stop``, a hold that continues ``motion``, with the targets [A] of joints that are known now; NaN: not yet.

    Args:
        values: the newest signals; None: stale.
        doubts: by joint, whether its place may be old; None: the robot's place is unknown.
    """
    target = np.full(motion.command.size, nan) if stop.target is None else stop.target
    unknown = np.isnan(target)
    if not unknown.any():
        return stop
    place, sure = motion.command, np.ones(target.size, bool)
    if profile.place:
        if values is None or doubts is None:
            sure[:] = False
        else:
            place = measured(profile, motion, values)
            sure[: len(doubts)] = ~np.asarray(doubts, bool) | (closing(profile, motion, place)[: len(doubts)] <= 0)
    known = unknown & sure
    return replace(stop, target=np.where(known, place, target)) if known.any() or stop.target is None else stop


def measured(profile: Profile, motion: Motion, values: Values) -> Array:
    """The command [A] that keeps the robot where it is measured, within the limits."""
    value = values[profile.place].reshape(-1)
    return inside(profile.limits, np.concatenate([value, motion.command[value.size :]]))


def pressing(profile: Profile, motion: Motion, values: Values) -> list[int]:
    """Components that are measured elsewhere than ``motion``, which rests, tells them to be: their servos press. A hand
    presses by its grip, which does not count."""
    if not profile.place or profile.fingers is not None:
        return []
    return np.flatnonzero(np.abs(measured(profile, motion, values) - motion.command) > PRESSES).tolist()


def recovered(profile: Profile, last: Motion, values: Values, doubts: Sequence[bool]) -> Motion:
    """Rest where a hand is measured that fell silent after ``last`` and is seen again.

    A joint whose place may be old (``doubts``) rests where it was last told to be, or at its measured place if that is
    more open. If its motor lost power meanwhile, and cannot be read, its place cannot be known."""
    place, in_doubt = measured(profile, last, values), np.zeros(last.command.size, bool)
    in_doubt[: len(doubts)] = doubts
    return at_rest(np.where(in_doubt & (closing(profile, last, place) >= 0), last.command, place))


def closing(profile: Profile, motion: Motion, target: Array) -> Array:
    """How far [A] the way from ``motion`` to ``target`` closes a hand; negative: it opens. 0 for other robots."""
    closes = np.zeros(target.size) if profile.fingers is None else np.asarray(profile.fingers.closes)
    return closes * (target - motion.command)


@lru_cache(maxsize=8)
def gentle(limits: Bounds) -> Bounds:
    """``limits`` with a speed of at most GENTLE. Cached, because it is made of arrays."""
    return Bounds(limits.low, limits.high, limits.dt, speed=np.minimum(limits.speed, GENTLE),
                  acceleration=limits.acceleration, jerk=limits.jerk)


def held(stop: Stopping, profile: Profile, shape: Sequence[int], before: Motion, reach: shield.Window | None) -> Step:
    """The next command of a hold that continues ``before``, in the window (``reach``) of what servos may give. It is
    over when every joint rests, at its target or, if that is unknown, anywhere."""
    assert stop.target is not None  # aimed
    limits, known = profile.limits, ~np.isnan(stop.target)
    target = np.where(known, stop.target, before.command)
    target = inside(limits, within(target, reach))  # as near as the servos may go
    ways = [ramped(limits, before).states, approaching(limits, before, target).states]
    slow = np.zeros(target.size, bool)
    if profile.fingers is not None:
        slow = closing(profile, before, target) >= 0
        ways.append(approaching(gentle(limits), before, target).states)
    way = np.where(known, np.where(slow, 2, 1), 0).tolist()
    moved = Motion([ways[which][joint] for joint, which in enumerate(way)])
    after, _ = shield.spare(limits, before, moved, reach)
    near = np.abs(after.command - target) <= AT_REST * (limits.high - limits.low)
    over = bool(np.where(known, near, after.speed == 0.0).all())
    return Step(after.command.reshape(shape), over, after)


def unknown(stop: Stopping) -> list[int]:
    """Components of a hold whose target is not known yet."""
    return [] if stop.target is None else np.flatnonzero(np.isnan(stop.target)).tolist()


def release_message(joints: Sequence[int]) -> str:
    """What the operator hears of joints that pressed."""
    return (f"components {list(joints)} did not come to where they were told to rest in {PRESS_S:g} s: the robot goes "
            "to where it is measured")


def hold_message(joints: Sequence[int], why: str) -> str:
    """What the operator hears of joints that are not held yet; of none: that all are."""
    return (f"components {list(joints)} are not held yet: their place is not known ({why}); what they press on "
            "stays pressed") if joints else "it is held where it is measured now"
