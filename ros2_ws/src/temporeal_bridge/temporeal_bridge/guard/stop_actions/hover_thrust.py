"""The thrust with which a quadrotor hovers, estimated from a mission's commands and states.

No two weigh the same, and motors age: a stop action with the nominal thrust would lift one and drop another. Plain
functions; :mod:`temporeal_bridge.guard.stop_actions.level` uses the estimate. ``values``: the newest signals by name.
"""

from __future__ import annotations

from math import exp, inf
from typing import NamedTuple

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.stop_actions.step import Values

GRAVITY = 9.81  # m/s^2
SMOOTH_S = 0.3  # time constant for heights and integrated velocities. Chosen: 1 cm of noise becomes 0.03 m/s
FLOWN_S = 2.0  # time constant with which the estimate forgets. Chosen
ENOUGH_S = 0.2  # of smoothed flight, 0.7 s after the thrust came. Chosen: after 0.5 s a take-off looks 10 % heavier, or
# lighter, than the robot is
HOVERS = (0.7, 1.35)  # of the nominal hover thrust: no robot hovers with others. Chosen: 0.74 to 1.25 are published
ANSWERS_S = 0.08  # delay of motors, command and state. Chosen: a Crazyflie's motors alone need 0.06 to 0.15 s
APART = 0.15  # of the nominal hover thrust: tolerance for a flying robot, because motors and state are late. Chosen:
# thrust that is cut at once is 0.12 off when it is 0.1 s late
ROSE_M = 0.03  # a robot that is so far from where the mission began flies, or flew. Chosen: 3 standard deviations of a
# poor height
STOOD_S = 0.5  # time constant with which a robot that may stand forgets. Chosen


class HoverEstimate(NamedTuple):
    """What a mission's commands and states have shown so far.

    Everything that enters ``thrust`` and ``carried`` is smoothed twice, so that all of it is equally late.

    Attributes:
        at, since: time [s] of the last and of the first command.
        thrust: decaying sum [s] of the thrust that carried, in nominal hover thrusts.
        carried: the same of what it carried, in weights: 1 + acceleration / g.
        motors: the thrust of the motors, with their delay; pushed: smoothed once, twice.
        counted: the 1 of what is counted, smoothed once, twice.
        beginning: height [m] at the first command. height, twice: smoothed once, twice; it changes with ``speed``
        [m/s].
        said: by how much [m] the smoothed height would lag behind if the robot sank as its velocity says.
        shown: the height minus the smoothed one [m]: the climb rate times SMOOTH_S.
        place: x and y [m] in the world, smoothed.
        rose, flies: whether the robot moved up or down from the beginning; whether it did, or is high.
    """

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
    """The thrust [N] that carries the robot with the mass of its ``spec.py``."""
    return robot.parameters["mass"].nominal[0] * GRAVITY


def lifts(robot: RobotSpec) -> float:
    """The least thrust [N] that may lift the robot: with less, no published one hovers."""
    return HOVERS[0] * nominal_thrust(robot)


def updated(
    before: HoverEstimate, below: float, share: float, values: Values, now: float, period: float
) -> HoverEstimate:
    """The estimate after one more command, a ``period`` [s] or more later, with the collective thrust ``share``, in
    nominal hover thrusts, of which only the vertical part carries.

    A robot below the height ``below`` [m] may stand. A thrust that lifts no robot counts once the robot is known to
    fly; a thrust that fits no flying robot (it stands, or is held) never counts."""
    height, velocity = float(values["height"]), values.get("base_vel_w")
    new = before.at == -inf
    if new:
        before = HoverEstimate(now - period, now, beginning=height, height=height, twice=height)
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
    return HoverEstimate(
        now, before.since, *sums, motors, pushed, counted, before.beginning, once, twice, speed, said, height - once,
        sideways(before.place, values, smooth), rose, rose or height > below)


def _smoothed(before: tuple[float, float], value: float, kept: float) -> tuple[float, float]:
    """``value`` smoothed once and twice."""
    once = value + kept * (before[0] - value)
    return once, once + kept * (before[1] - once)


def known(estimate: HoverEstimate) -> bool:
    """Whether the flight was long enough to know the hover thrust."""
    return estimate.flies and estimate.carried >= ENOUGH_S


def hover_thrust(robot: RobotSpec, estimate: HoverEstimate) -> float:
    """The thrust [N] with which the robot hovers: as estimated, if that is known; else the nominal one."""
    nominal = nominal_thrust(robot)
    if not known(estimate):
        return nominal
    least, most = HOVERS
    return nominal * min(max(estimate.thrust / estimate.carried, least), most)


def sideways(before: tuple[float, ...], values: Values, kept: float) -> tuple[float, ...]:
    """The place [m], x and y in the world, smoothed as the height is; (): it is not measured."""
    place = values.get("base_pos_w")
    if place is None:
        return ()
    here = place.tolist()[:2]
    return tuple(x + kept * (b - x) for x, b in zip(here, before or here))
