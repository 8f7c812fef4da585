"""The stop action ``hold``: where each joint is led, and what of its measured place is to be believed.

A robot that is held goes to where it is measured, joint by joint, as soon as that is known; until then a joint comes to
rest where it was sent. Fingers so let go of what they press on.

What ends a ``ramp`` of anything but a hand is that the robot is where it was told. One that is kept elsewhere is
blocked, by a person maybe, and would press for as long as it is kept: the ramp becomes a hold (:func:`pressing`).

Of a hand (``closes`` of the command in its ``ros.yaml``) a place may be old although it comes in time: a driver says
the last one of a motor that does not answer, or its clock is behind. Nothing tells such a joint from one that is
blocked, and stands. What is never wrong is to open: a joint whose place is in doubt is led there only if that does not
close the hand. What opens it goes as fast as the motors may, for it takes a grip away; anything else goes slowly.

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
from temporeal_bridge.guard import admission
from temporeal_bridge.guard.safety import Profile
from temporeal_bridge.guard.stop_actions import AT_REST, Step, Stopping, Values, inside, ramped

GENTLE = 1.0  # rad/s or m/s, of a finger that does not open when it is held. Chosen: slower than a grip closes
PRESSES = 0.03  # rad or m: a joint that is told to be so far from where it is, is blocked. Chosen: there the servos of
# a Franka pull with all they have (87 N m at 3000 N m/rad: 0.029 rad); by its largest payload (3 kg) it sags by 0.008
PRESS_S = 0.4  # for so long. Chosen: drivers and servos are late, a Franka's by 0.13 s (`tracking` in its ros.yaml)


def aimed(
    stop: Stopping, profile: Profile, motion: Motion, values: Values | None, doubts: Sequence[bool] | None
) -> Stopping:
    """``stop``, a hold that goes on from ``motion``, with the targets [A] of joints that are known now; NaN: not yet.

    Args:
        values: the newest signals, None: stale. doubts: by joint, whether its place may be an old one; None: nobody
            knows where the robot is.
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
    """The command [A] that keeps the robot where it is measured, inside the limits."""
    value = values[profile.place].reshape(-1)
    return inside(profile.limits, np.concatenate([value, motion.command[value.size :]]))


def pressing(profile: Profile, motion: Motion, values: Values) -> list[int]:
    """Components that are measured elsewhere than ``motion``, which rests, tells them to be: their servos press. What a
    hand presses with is its grip, and none of these."""
    if not profile.place or profile.fingers is not None:
        return []
    return np.flatnonzero(np.abs(measured(profile, motion, values) - motion.command) > PRESSES).tolist()


def found(profile: Profile, last: Motion, values: Values, doubts: Sequence[bool]) -> Motion:
    """Rest where a hand is measured that fell silent after ``last`` and is seen again. A joint whose place may be an
    old one (``doubts``) rests where it was told last to be, or where it is said to be if that is more open: where it is
    if its motor lost its power meanwhile, and its reads fail, nobody can know."""
    place, in_doubt = measured(profile, last, values), np.zeros(last.command.size, bool)
    in_doubt[: len(doubts)] = doubts
    return at_rest(np.where(in_doubt & (closing(profile, last, place) >= 0), last.command, place))


def closing(profile: Profile, motion: Motion, target: Array) -> Array:
    """How far [A] the way from ``motion`` to ``target`` closes a hand; below 0: it opens it. Of others 0."""
    closes = np.zeros(target.size) if profile.fingers is None else np.asarray(profile.fingers.closes)
    return closes * (target - motion.command)


@lru_cache(maxsize=8)
def gentle(limits: Bounds) -> Bounds:
    """``limits`` with a speed of GENTLE at most. Kept, for it is made of arrays."""
    return Bounds(limits.low, limits.high, limits.dt, speed=np.minimum(limits.speed, GENTLE),
                  acceleration=limits.acceleration, jerk=limits.jerk)


def held(stop: Stopping, profile: Profile, shape: Sequence[int], before: Motion, window: shield.Window | None) -> Step:
    """The next command of a hold that goes on from ``before``, in the ``window`` of what servos may give; it has come
    to its end where every joint rests, whether it is known where that is or not."""
    assert stop.target is not None  # aimed
    limits, known = profile.limits, ~np.isnan(stop.target)
    target = np.where(known, stop.target, before.command)
    target = inside(limits, admission.within(target, window))  # as near as the servos may go
    ways = [ramped(limits, before).states, approaching(limits, before, target).states]
    slow = np.zeros(target.size, bool)
    if profile.fingers is not None:
        slow = closing(profile, before, target) >= 0
        ways.append(approaching(gentle(limits), before, target).states)
    way = np.where(known, np.where(slow, 2, 1), 0).tolist()
    moved = Motion([ways[which][joint] for joint, which in enumerate(way)])
    after, _ = shield.spare(limits, before, moved, window)
    near = np.abs(after.command - target) <= AT_REST * (limits.high - limits.low)
    over = bool(np.where(known, near, after.speed == 0.0).all())
    return Step(after.command.reshape(shape), over, after)


def unknown(stop: Stopping) -> list[int]:
    """Components of a hold of which nobody knows yet where they are."""
    return [] if stop.target is None else np.flatnonzero(np.isnan(stop.target)).tolist()


def let_go(joints: Sequence[int]) -> str:
    """What is said of those that pressed."""
    return (f"components {list(joints)} did not come to where they were told to rest in {PRESS_S:g} s: the robot goes "
            "to where it is measured")


def words(joints: Sequence[int], why: str) -> str:
    """What is said of them."""
    return (f"components {list(joints)} are not held yet: where they are is not known ({why}); what they press on "
            "stays pressed") if joints else "it is held where it is measured now"
