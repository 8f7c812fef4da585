"""The stop action ``level`` of a quadrotor: it levels out, brakes sideways, and sinks until it has landed.

Plain functions. No measurement is trusted alone: a height may drift, and a velocity may be wrong. The hover thrust is
estimated in :mod:`temporeal_bridge.guard.stop_actions.hover_thrust`. ``values`` are the newest signals by name, None
while the attitude is unknown; share: of the hover thrust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, inf
from typing import NamedTuple

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Motion
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.fallback_actions import LONGEST
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.stop_actions.hover_thrust import (
    GRAVITY,
    SMOOTH_S,
    HoverEstimate,
    hover_thrust,
    known,
    lifts,
    sideways,
)
from temporeal_bridge.guard.stop_actions.step import Step, Stopping, Values

# ---- sinking
SINKS_M, SINKS_S = 0.1, 1.0  # a robot that came down by so much in so long still sinks: no noise or gust is that large
SHOWN_S = 3 * SMOOTH_S  # after so long the height shows the sink rate: 5 % of the initial error are left
AGREE_M_S, AHEAD_M_S = 0.1, 0.3  # by so much the velocity may differ from the height's sink rate: always (noise of 1 cm
# is 0.03 m/s), and for a moment (SMOOTH_S) besides. Chosen: whatever a velocity says, the robot still sinks
AGREED_M = 0.15  # so near are smoothed height and integrated velocity when they agree: 0.5 m/s times SMOOTH_S. Chosen
CAUGHT_M_S = 1.0  # the same for a slower sink: a falling robot is braked with up to 0.3 g, so its height is 0.9 m/s
# late
ANSWERED = 0.4  # share that is answered of a speed that the height alone shows. Chosen: a time constant of 0.5 s,
# because the height is 0.3 s late

# ---- the share that carries
TRIM, TRIM_S = 0.25, 0.2  # share per m, at most per s: correction of the share that carries, with a time constant of 2
# s (sink_gain over it) after the proportional term's 0.2 s. Chosen
DOWN_S = 0.05  # share per s, at most, when only the height shows it, or nothing. Chosen: steady, 16 s to LET_DOWN
RESTS_M_S = 0.1  # in SMOOTH_S: a speed that converges so fast needs no other share. Chosen
LEAST_CARRIED = 0.5  # of the hover thrust, until max_s: less carries no robot that sees that it does not sink. Chosen
CLIMBS_M_S, CLIMB_TRIM_S = 0.1, 1.0  # a robot that climbs faster, by velocity and height, loses so much share per s:
# its estimate is wrong, because it was held as it flew. Chosen: at 1.31 of the weight it is right in 0.3 s
RISING = 0.09  # share per m/s, less for a robot that climbed where a stop begins blind: 2 / (g T), with which it is
# back where it was after T = 2.3 s (blind_s, and the 2 s for which the firmware keeps the thrust)

# ---- standing and landing
STANDS_M_S, STANDS_M, STANDS_S = 0.05, 0.02, 1.0  # a robot that is slower, and stays so near, for so long stands or is
# held: with STANDS_SHARE or less it would move at 1 m/s in the air. Chosen
STANDS_SHARE = 0.9  # of the hover thrust. Chosen: `descend` and the share that sinks at 0.3 m/s are below it
STOOD_DOWN_S, TOLD_DOWN_S = 0.3, 0.5  # share per s by which a standing robot is let down; by the operator's order.
# Chosen
AGAIN_S = 2.0  # so long after level began, and after the last order, an operator's order is a second one. Chosen:
# `ros2 topic pub` repeats its message every second
LET_DOWN = 0.2  # of the hover thrust: with less no robot flies, and its motors may be cut. Chosen
LANDS_M_S = 0.1  # in SMOOTH_S: a faster robot has not landed, however low its height. Chosen: 5 times the noise

# ---- sideways
BRAKES, LEAN = 5.0, 0.15  # a sideways speed decays with so many time constants of the attitude (1 / gain: with 5 1/s
# 1 s), with at most so much lean (its sine): 1.5 m/s^2. Chosen: with 3.5 a Crazyflie, which is late, too, swings
SWEPT_S, FASTER_M_S = 0.5, 0.3  # a robot that becomes faster by so much, so long after the stop began, is not braked
# any more: after levelling out only a gust, or a wrong velocity, makes it faster. Chosen
SLOWED_M_S2, LEAST_M_S = 0.8, 0.7  # nor is one that does not slow down by so much, except speeds that wind holds.
# Chosen: half of what braking achieves; with a wrong yaw it is driven on
DRIVEN_S = 0.3  # and not again once that lasted so long. Chosen: a velocity outlier lasts a sample or two
ALIVE_S = 0.2  # a velocity that is bit-identical for so long says nothing. Chosen: 6 samples at 31 Hz


@dataclass(frozen=True)
class Levelling(Stopping):
    """Level, or its end (``off``), under way. Durations count whole periods, so that a replay, whose times are rounded
    differently, gives identical numbers.

    Height, for :func:`observed`:

    - ``seen``: when the state was last fresh [s]; ``height``: smoothed [m]; ``highest``: of the heights since ``sank``,
      when [s] it last came down by SINKS_M.
    - ``said``: by how much [m] the smoothed height would lag behind if the robot sank as its velocity says.
    - ``known``: for how long [s] height and velocity were known before the stop.
    - ``place``: x and y [m], smoothed; ``swept``: the horizontal speed [m/s] that is still braked; ``driven``: for how
      long [s] the robot has been faster.

    Thrust, for :func:`trimmed`:

    - ``carries``: the share that carries the robot; ``lasted``: duration [s] by commands.
    - ``stood``: for how long [s] it stood, at the height ``stands`` [m]; ``velocity`` [m/s] has been the ``same`` for
      so long [s].
    - ``told``: for how long [s] the operator has ordered it down (None: no order); ``blind``: for how long [s] there
      was no attitude; ``floor``: whether the mission began on the ground.
    """

    seen: float = -inf
    height: float = -inf
    highest: float = -inf
    sank: float = -inf
    said: float = 0.0
    known: float = 0.0
    place: tuple[float, ...] = ()
    swept: float = 0.0
    driven: float = 0.0
    carries: float = 1.0
    lasted: float = 0.0
    stood: float = 0.0
    stands: float = inf
    velocity: tuple[float, ...] = ()
    same: float = inf
    told: float | None = None
    blind: float = 0.0
    floor: bool = False


class Vehicle(NamedTuple):
    """The quadrotor that levels. ``autopilot``: one stands between the commands and the motors, and lands by itself."""

    robot: RobotSpec
    spec: CommandSpec
    profile: Profile
    autopilot: bool

    @property
    def period(self) -> float:
        """Of its commands [s]."""
        return self.profile.limits.dt

    @property
    def parameters(self) -> Mapping[str, float]:
        """Of the stop action."""
        return self.profile.level or {}


class Seen(NamedTuple):
    """What is known at the time ``now`` [s]; ``sound``: whether positions and heights are credible."""

    values: Values | None
    sound: bool
    now: float


def begin(now: float, motion: Motion | None, grounded: bool, floor: bool = False) -> Stopping:
    """Level begins, or what can be done in its place. ``motion``: of the last command of this mission. ``grounded``:
    nothing that the guard sent can have lifted the robot, and levelling thrust would. ``floor``: the mission began on
    the ground."""
    if not grounded:
        return Levelling("level", now, floor=floor)
    return Stopping("silence", now) if motion is None else Levelling("off", now)


def next_step(
    stop: Levelling, vehicle: Vehicle, seen: Seen, before: HoverEstimate, waits: bool = False
) -> tuple[Stopping, Step]:
    """``stop`` one command later, and that command; see :func:`observed`, :func:`trimmed` and :func:`levelled`."""
    values, sound, now = seen
    stop = observed(noted_blind(stop, values, vehicle.period), values, now, vehicle.period, before)
    if not silent(stop, vehicle):  # else nothing is sent that could be trimmed
        stop = trimmed(stop, vehicle.profile, values, sound, unknown=not known(before))
    lowest = stop.floor and not (sound or known(before))
    hover = lifts(vehicle.robot) if lowest else hover_thrust(vehicle.robot, before)
    if values is None:
        hover *= 1.0 - RISING * climbed(stop, before)
    step = levelled(stop, vehicle, seen, hover, waits)
    if not step.over or step.command is None or vehicle.autopilot:
        return stop, step
    return Levelling("off", now), Step(step.command, over=False)  # landed: to the firmware silence would be a fall


def climbed(stop: Levelling, before: HoverEstimate) -> float:
    """The climb rate [m/s] before a stop that has seen no state, as far as velocity and height agreed on it."""
    return max(min(-before.said, before.shown) / SMOOTH_S, 0.0) if stop.seen == -inf else 0.0


# ---------------------------------------------------------------- what height and velocity show


def observed(
    stop: Levelling, values: Values | None, now: float, period: float, before: HoverEstimate | None = None
) -> Levelling:
    """``stop`` with a new state, which comes every ``period`` [s]. It begins with what height and velocity agreed on
    ``before``, because a robot that sank fast just now still does."""
    if values is None:
        return stop
    height, velocity = float(values["height"]), values.get("base_vel_w")
    if velocity is not None:
        speed = hypot(*velocity.tolist()[:2])
        driven = stop.driven + period if speed > stop.swept + FASTER_M_S and stop.lasted >= SWEPT_S else 0.0
        stop = replace(stop, swept=_swept(stop, speed, period), driven=driven)
    if stop.seen == -inf:
        return _first_seen(stop, values, now, period, before)
    gap = period * max(round((now - stop.seen) / period), 1)
    kept, way = exp(-gap / SMOOTH_S), 0.0 if velocity is None else -gap * float(velocity[2])
    smoothed, said = height + kept * (stop.height - height), kept * (stop.said + way)
    sank, place = smoothed < stop.highest - SINKS_M, sideways(stop.place, values, kept)
    highest = smoothed if sank else max(stop.highest, smoothed)
    return replace(stop, seen=now, height=smoothed, highest=highest, said=said, sank=now if sank else stop.sank,
                   place=place)


def _first_seen(
    stop: Levelling, values: Values, now: float, period: float, before: HoverEstimate | None
) -> Levelling:
    """``stop`` with its first state, and what was known ``before`` if height and velocity agree on that."""
    height = float(values["height"])
    if before is not None and values.get("base_vel_w") is not None and 0.0 < now - before.at < SHOWN_S:
        taken = observed(replace(
            stop, seen=before.at, height=before.height, highest=before.height, said=before.said,
            place=before.place, known=before.at - before.since), values, now, period)
        if abs(taken.height - height - taken.said) <= AGREED_M:
            return taken
    return replace(stop, seen=now, height=height, highest=height, place=sideways((), values, 0.0))


def _swept(stop: Levelling, speed: float, period: float) -> float:
    """The largest horizontal speed [m/s], less FASTER_M_S, that is still braked: that of the beginning, then less and
    less; -inf for good once the robot was faster for DRIVEN_S. It is then pushed, which drag brakes too, or braked the
    wrong way, and every further try would drive it on."""
    if stop.lasted < SWEPT_S:
        return max(stop.swept, speed)
    return -inf if stop.driven >= DRIVEN_S else max(stop.swept - SLOWED_M_S2 * period, LEAST_M_S)


def speeds(stop: Levelling, values: Values) -> tuple[float | None, float, float]:
    """Sink rates [m/s]: by the velocity (None: unknown), by the height, which is late (after :func:`observed`), and by
    how much the first exceeds its own value of as long ago."""
    velocity, shown = values.get("base_vel_w"), (stop.height - float(values["height"])) / SMOOTH_S
    if velocity is None:
        return None, shown, 0.0
    said = -float(velocity[2])
    return said, shown, said - stop.said / SMOOTH_S


def sinking(stop: Levelling, values: Values, wanted: float) -> float:
    """The sink rate [m/s] that is answered: by the velocity, as far as the height agrees.

    A wrong velocity would lift the robot out of the room, or drop it, and a height that drifts would lift it, too: more
    thrust than hovers is only for a sink that both show. Without a velocity only a part of what the height shows is
    answered, because it is late, and more would swing."""
    said, shown, more = speeds(stop, values)
    if said is None:
        return wanted + ANSWERED * (shown - wanted)
    agreed = shown + min(max(more, -CAUGHT_M_S), AHEAD_M_S)
    return min(max(said, agreed - AGREE_M_S), agreed + AGREE_M_S, max(said, wanted))


def climbing(stop: Levelling, values: Values) -> float:
    """The climb rate [m/s], as far as velocity and height both show it."""
    said, shown, _ = speeds(stop, values)
    return 0.0 if said is None else max(-max(said, shown), 0.0)


def leaning(stop: Levelling, values: Values, gain: float) -> tuple[float, float]:
    """The direction of thrust that brakes sideways motion: sines of the lean towards the world's x and y. ``gain``
    [1/s]: of the attitude. Only a speed that a live velocity and the position both show is braked, and only while it
    does not grow: with a wrong velocity, or a turned attitude, the robot would be driven away."""
    velocity, place = values.get("base_vel_w"), values.get("base_pos_w")
    if velocity is None or place is None or not stop.place or stop.same >= ALIVE_S:
        return 0.0, 0.0
    (x, y, _), (here_x, here_y, _), (was_x, was_y) = velocity.tolist(), place.tolist(), stop.place
    if hypot(x, y) > stop.swept + FASTER_M_S:
        return 0.0, 0.0
    x, y = _both(x, (here_x - was_x) / SMOOTH_S), _both(y, (here_y - was_y) / SMOOTH_S)
    lean = -1.0 / max(GRAVITY * BRAKES / gain, hypot(x, y) / LEAN)
    return lean * x, lean * y


def _both(said: float, shown: float) -> float:
    """What two measurements agree on: the one nearer to 0; 0 if their signs differ."""
    return min(max(said, 0.0), max(shown, 0.0)) + max(min(said, 0.0), min(shown, 0.0))


# ---------------------------------------------------------------- blind, standing, ordered down


def noted_blind(stop: Levelling, values: Values | None, period: float) -> Levelling:
    """``stop``, a ``period`` [s] later, with how long it has been blind."""
    if values is None:
        return replace(stop, blind=stop.blind + period)
    return replace(stop, blind=0.0) if stop.blind else stop


def silent(stop: Levelling, vehicle: Vehicle) -> bool:
    """Whether level has been blind for longer than ``blind_s``: then the firmware must level by itself."""
    return stop.blind - 0.5 * vehicle.period > vehicle.parameters["blind_s"]


def standing(
    stop: Levelling, level: Mapping[str, float], values: Values | None, sound: bool, period: float
) -> Levelling:
    """``stop``, a ``period`` [s] later, with how long the robot has stood: by its velocity where that is known and
    alive, and by its height where that is ``sound``, while it is sent less than carries it. A velocity that is stuck at
    0 does not contradict that; nor does one that never reaches 0 while the height rests where robots have landed."""
    velocity = None if values is None else values.get("base_vel_w")
    said: tuple[float, ...] = () if velocity is None else tuple(velocity.tolist())
    same = 0.0 if said != stop.velocity else stop.same + period
    share = stop.carries * max(level["descend"], 1.0 - level["sink_gain"] * level["sink_m_s"])  # if it does not sink
    known = values is not None and (sound or (velocity is not None and same < ALIVE_S))
    still = velocity is None or abs(stop.said) < STANDS_M_S * SMOOTH_S or (sound and stop.height < level["landed_m"])
    near = not sound or abs(stop.height - stop.stands) <= STANDS_M
    stays = known and still and share < STANDS_SHARE
    return replace(stop, velocity=said, same=same, stood=stop.stood + period if stays and near else 0.0,
                   stands=stop.stands if stays and near else stop.height)


def carried(stop: Levelling, autopilot: bool) -> float:
    """The share of the hover thrust that the robot is given: less with every second that it stands, or since the
    operator ordered it down. A robot that was let down because it stood has its share again once it moves: in the air
    that was wrong. An ``autopilot`` lands by itself."""
    if autopilot:
        return stop.carries
    stood = STOOD_DOWN_S * max(stop.stood - STANDS_S, 0.0)
    return max(stop.carries - max(stood, 0.0 if stop.told is None else TOLD_DOWN_S * stop.told), 0.0)


def ordered_down(stop: Stopping) -> Levelling | None:
    """``stop`` after the operator repeated the order to stop; None: it was given already, or level has just begun."""
    if isinstance(stop, Levelling) and stop.action == "level" and stop.told is None and stop.lasted >= AGAIN_S:
        return replace(stop, told=0.0)
    return None


def off(stop: Levelling, spec: CommandSpec, period: float, off_s: float) -> tuple[Levelling, Step]:
    """The motors stay off, and zeros are sent every ``period`` [s] for ``off_s``, until the firmware knows that the
    robot stands; then silence. That it bounces changes nothing."""
    stop = replace(stop, lasted=stop.lasted + period)
    return stop, Step(np.zeros(spec.shape), over=stop.lasted >= off_s)


# ---------------------------------------------------------------- thrust


def trimmed(
    stop: Levelling, profile: Profile, values: Values | None, sound: bool, unknown: bool = False
) -> Levelling:
    """``stop``, one command later, with the share of the hover thrust that carries the robot.

    It grows while velocity and height both show too fast a sink, and shrinks while neither shows it; fast, and at once,
    while both show a climb, even by a state that is not ``sound`` while the hover thrust is ``unknown``. After
    ``max_s`` it shrinks while the height shows no sink, or is not ``sound``; after LONGEST times that in any case,
    because a state that reports a sink for so long is wrong. A robot that is held, or stands where no height shows it,
    is thus let down, and none is dropped."""
    level, period = profile.level or {}, profile.limits.dt
    lasted = stop.lasted + period
    late = lasted > level["max_s"]
    if values is not None and (sound or unknown) and _climbs(stop, values):
        rate = -CLIMB_TRIM_S
    elif values is None or (not late and not (sound and lasted > SHOWN_S)):
        rate = 0.0
    elif not sound or lasted > LONGEST * level["max_s"]:
        rate = -DOWN_S
    else:
        rate = min(max(TRIM * _faster(stop, values, level["sink_m_s"], late), -DOWN_S if late else -TRIM_S), TRIM_S)
    carries = min(max(stop.carries + rate * period, 0.0 if late else LEAST_CARRIED), shield.MOST_THRUST)
    told = None if stop.told is None else stop.told + period
    return standing(replace(stop, carries=carries, lasted=lasted, told=told), level, values, sound, period)


def _climbs(stop: Levelling, values: Values) -> bool:
    """Whether velocity and height both show a climb that is not braked already: less thrust would then drop it."""
    said, shown, _ = speeds(stop, values)
    if said is None or stop.lasted < SMOOTH_S or max(said, shown) >= -CLIMBS_M_S:
        return False
    mean = stop.said / (SMOOTH_S * (1.0 - exp(-(stop.known + stop.lasted) / SMOOTH_S)))  # of the recent velocity
    return said < mean


def _faster(stop: Levelling, values: Values, wanted: float, late: bool) -> float:
    """By how much [m/s] the robot sinks faster than ``wanted``, as far as velocity and height agree; negative by the
    height alone if it is ``late``, or there is no velocity."""
    said, shown, more = speeds(stop, values)
    if shown < wanted and (late or said is None):
        return shown - wanted
    if said is None:
        return 0.0
    faster = sorted((said, shown, wanted))[1] - wanted
    return 0.0 if faster * more < 0.0 and abs(more) > RESTS_M_S else faster


def levelled(stop: Levelling, vehicle: Vehicle, seen: Seen, hover: float, waits: bool = False) -> Step:
    """The command that levels out, sinks, and brakes sideways (:func:`leaning`), with the thrust ``hover`` [N].

    Sink rate and sideways speed are controlled only by a sound state. Without an attitude the robot is not turned, and
    after ``blind_s`` nothing is sent: the firmware levels by itself. For as long as it does (``flies_s``), a stop that
    ``waits`` continues once the attitude is seen again. Motors are cut when a sound height was low for ``SMOOTH_S`` and
    nothing contradicts it (:func:`_rests`), or when the share is too small to carry: otherwise that is a fall."""
    level, (values, sound, now) = vehicle.parameters, seen
    landed = (sound and values is not None and now - stop.since >= SMOOTH_S
              and max(float(values["height"]), stop.height) < level["landed_m"] and _rests(level, stop, values))
    if values is None and silent(stop, vehicle):
        waits = waits and stop.told is None and stop.blind <= level["blind_s"] + level["flies_s"]
        return Step(None, over=not waits)
    if landed or _over(stop, vehicle, sound, now):
        cut = landed or (values is not None and not vehicle.autopilot)
        return Step(np.zeros(vehicle.spec.shape) if cut else None, over=True)
    quat = None if values is None else values.get("base_quat_w")
    hover *= carried(stop, vehicle.autopilot)
    if not sound or values is None:
        return Step(shield.clamp(vehicle.spec, shield.level_and_descend(quat, hover, level)).command, over=False)
    sink, climb = sinking(stop, values, level["sink_m_s"]), climbing(stop, values)
    command = shield.level_and_descend(quat, hover, level, sink, climb, leaning(stop, values, level["gain"]))
    return Step(shield.clamp(vehicle.spec, command).command, over=False)


def _rests(level: Mapping[str, float], stop: Levelling, values: Values) -> bool:
    """Whether no live velocity shows motion, and the thrust is not larger than that of a standing robot. A robot that
    hovers by a height that drifts down shows no sink either, but needs all of the thrust."""
    velocity, wanted = values.get("base_vel_w"), level["sink_m_s"]
    if velocity is None or stop.same >= ALIVE_S:
        return True
    share = 1.0 + level["sink_gain"] * (sinking(stop, values, wanted) - wanted)
    return abs(stop.said) < LANDS_M_S * SMOOTH_S and share <= STANDS_SHARE


def _over(stop: Levelling, vehicle: Vehicle, sound: bool, now: float) -> bool:
    """Whether levelling is over without a landing: an autopilot takes over after ``max_s``, but not while the robot
    sinks; without one the robot was let down (:func:`carried`)."""
    if not vehicle.autopilot:
        return carried(stop, vehicle.autopilot) < LET_DOWN
    sinks = sound and now - stop.sank <= SINKS_S
    return now - stop.since > vehicle.parameters["max_s"] * (LONGEST if sinks else 1.0)
