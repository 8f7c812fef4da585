"""Which thrust a quadrotor hovers with, from what a mission's commands and states say.

No two weigh the same, and motors age: a stop that held the nominal thrust would lift one and drop the other. Plain
functions; the thrust that levels is :mod:`temporeal_bridge.guard.level`'s. ``values``: the newest signals by name.
"""

from __future__ import annotations

from math import exp, inf
from typing import NamedTuple

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.stop_actions import Values

GRAVITY = 9.81  # m/s^2
SMOOTH_S = 0.3  # of heights, and of what velocities say of them. Chosen: 1 cm of noise is 0.03 m/s then
FLOWN_S, ENOUGH_S = 2.0, 0.2  # so long it is remembered what carried; after so long of that, smoothed, enough was
# flown: 0.7 s after the thrust came. Chosen: at 0.5 s a take-off looks 10 % heavier, or lighter, than the robot is
HOVERS = (0.7, 1.35)  # of the nominal hover thrust: other thrusts hover no robot. Chosen: 0.74 to 1.25 are published
ANSWERS_S = 0.08  # so late motors, command and state are. Chosen: a Crazyflie's motors alone are 0.06 to 0.15 s
APART = 0.15  # of the nominal hover thrust: by so much more or less pushes who flies, for motors and state are late.
# Chosen: thrust that is cut all at once is 0.12 off when it is 0.1 s late
ROSE_M, STOOD_S = 0.03, 0.5  # who is so far from where the mission began flies, or flew; who is not may stand, and what
# pushed it is remembered for so long. Chosen: 3 standard deviations of a poor height


class Flown(NamedTuple):
    """What a mission's commands and states say, ``since`` its first command [s] and up to the one ``at`` [s]. Of the
    thrust that hovers: sums [s] that fade with FLOWN_S of the ``thrust`` that carried, in nominal hover thrusts, and of
    what it ``carried``, in weights: 1 + acceleration / g. All that goes into them is smoothed twice, for then all is
    late alike: what the ``motors`` pushed up (``pushed``: smoothed once, twice), the 1 of what is ``counted``, and the
    ``height`` [m] (once, ``twice``), which changes with ``speed`` [m/s]. Whether the robot ``rose`` from where it began
    or sank, and whether it ``flies``: it did, or is high. For a stop that begins: ``height``, ``said`` and ``place`` of
    :class:`temporeal_bridge.guard.level.Levelling`, and what is ``shown`` [m]: how far its height is above the smoothed
    one, which is how it climbs times SMOOTH_S."""

    at: float = -inf
    since: float = inf
    thrust: float = 0.0
    carried: float = 0.0
    motors: float = 0.0
    pushed: tuple[float, float] = (0.0, 0.0)
    counted: tuple[float, float] = (0.0, 0.0)
    beginning: float = 0.0
    height: float = 0.0
    twice: float = 0.0
    speed: float = 0.0
    said: float = 0.0
    shown: float = 0.0
    place: tuple[float, ...] = ()
    rose: bool = False
    flies: bool = False


def nominal_thrust(robot: RobotSpec) -> float:
    """The thrust [N] that carries the robot as its ``spec.py`` has it."""
    return robot.parameters["mass"].nominal[0] * GRAVITY


def lifts(robot: RobotSpec) -> float:
    """The least thrust [N] that may lift the robot: with less none of those that are published hovers."""
    return HOVERS[0] * nominal_thrust(robot)


def flown(before: Flown, below: float, share: float, values: Values, now: float, period: float) -> Flown:
    """One more command, a ``period`` [s] or more later, with the collective thrust ``share``, in nominal hover thrusts:
    only the part of it that points up carries. What is not higher than ``below`` [m] may stand. A thrust that lifts no
    robot counts once it is known to fly, and what fits no robot that flies (it stands, or is held) never."""
    height, velocity = float(values["height"]), values.get("base_vel_w")
    new = before.at == -inf
    if new:
        before = Flown(now - period, now, beginning=height, height=height, twice=height)
    gap = period * max(round((now - before.at) / period), 1)
    smooth = exp(-gap / SMOOTH_S)
    once = height + smooth * (before.height - height)
    twice = once + smooth * (before.twice - once)
    speed = (twice - before.twice) / gap
    said = smooth * (before.said - (0.0 if velocity is None else gap * float(velocity[2])))
    _, x, y, _ = values["base_quat_w"].tolist()
    up = share * (1.0 - 2.0 * (x * x + y * y))
    motors = up + exp(-gap / ANSWERS_S) * ((up if new and height > below else before.motors) - up)
    rose, (least, most) = before.rose or abs(height - before.beginning) > ROSE_M, HOVERS
    counts = rose or up >= least
    pushed = _smoothed(before.pushed, motors if counts else 0.0, smooth)
    counted = _smoothed(before.counted, 1.0 if counts else 0.0, smooth)
    carried, thrust = counted[1] + (speed - before.speed) / (GRAVITY * gap), pushed[1]
    sums, slack = (before.thrust, before.carried), APART * counted[1]
    if least * carried - slack <= thrust <= most * carried + slack:
        kept = exp(-gap / (FLOWN_S if rose else STOOD_S))
        sums = kept * sums[0] + gap * thrust, kept * sums[1] + gap * carried
    return Flown(now, before.since, *sums, motors, pushed, counted, before.beginning, once, twice, speed, said,
                 height - once, sideways(before.place, values, smooth), rose, rose or height > below)


def _smoothed(before: tuple[float, float], value: float, kept: float) -> tuple[float, float]:
    """``value`` smoothed once and twice."""
    once = value + kept * (before[0] - value)
    return once, once + kept * (before[1] - once)


def known(told: Flown) -> bool:
    """Whether enough was flown to know the thrust that hovers."""
    return told.flies and told.carried >= ENOUGH_S


def hover_thrust(robot: RobotSpec, told: Flown) -> float:
    """The thrust [N] that the robot hovers with: as flown, if it was for long enough; else the nominal one."""
    nominal = nominal_thrust(robot)
    if not known(told):
        return nominal
    least, most = HOVERS
    return nominal * min(max(told.thrust / told.carried, least), most)


def sideways(before: tuple[float, ...], values: Values, kept: float) -> tuple[float, ...]:
    """The place [m], x and y in the world, smoothed as the height is; (): nobody says it."""
    place = values.get("base_pos_w")
    if place is None:
        return ()
    here = place.tolist()[:2]
    return tuple(x + kept * (b - x) for x, b in zip(here, before or here))
