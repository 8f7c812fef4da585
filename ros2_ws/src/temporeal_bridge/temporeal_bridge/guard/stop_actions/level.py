"""The stop `level` of a quadrotor: it levels out, brakes sideways, and sinks until it has landed, or is let down.

Plain functions of what is known: nothing that is said of the robot is believed alone, neither its height, which may
creep, nor its velocity, which may lie. Which thrust it hovers with is :mod:`temporeal_bridge.guard.hover_thrust`.
``values`` are the newest signals by name, None while nobody sees the attitude; share: of the hover thrust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Motion
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.ground import FLIES_S
from temporeal_bridge.guard.hover_thrust import GRAVITY, SMOOTH_S, Flown, hover_thrust, known, lifts, sideways
from temporeal_bridge.guard.safety import LONGEST, Profile
from temporeal_bridge.guard.stop_actions import Step, Stopping, Values

SINKS_M, SINKS_S = 0.1, 1.0  # who has come down by so much in so long still sinks: no noise, and no gust, is that large
SHOWN_S = 3 * SMOOTH_S  # after so long it shows how fast the robot sinks: to 5 % of what that was at the beginning
AGREE_M_S, AHEAD_M_S = 0.1, 0.3  # that much faster or slower than its height shows may a robot say it sinks: always
# (noise of 1 cm is 0.03 m/s), and for a moment (SMOOTH_S) besides. Chosen: whatever a velocity says it still sinks
AGREED_M = 0.15  # so near are a height and what a velocity says of it, both smoothed: 0.5 m/s times SMOOTH_S. Chosen
CAUGHT_M_S = 1.0  # the same, of slower: a robot that falls is braked with up to 0.3 g, so its height is 0.9 m/s late
ANSWERED = 0.4  # of a speed that the height alone shows. Chosen: a time constant of 0.5 s, for it is 0.3 s late
TRIM, TRIM_S = 0.25, 0.2  # share per m, and per s at most: so slowly is corrected what carries a robot that sinks, with
# a time constant of 2 s (sink_gain over it) after the proportional term's 0.2 s. Chosen
DOWN_S = 0.05  # share per s, at most, on the word of the height alone, or on nobody's. Chosen: steady, 16 s to LET_DOWN
RESTS_M_S = 0.1  # in SMOOTH_S: a speed that changes so fast to what it should be needs no other share. Chosen
LEAST_CARRIED = 0.5  # of the hover thrust, until max_s: less carries no robot that sees that it does not sink. Chosen
CLIMBS_M_S, CLIMB_TRIM_S = 0.1, 1.0  # who climbs faster than that, by velocity and height, loses so much share per s:
# its hover thrust is wrong, for it was held as it flew. Chosen: at 1.31 of the weight it is right in 0.3 s
STANDS_M_S, STANDS_M, STANDS_S = 0.05, 0.02, 1.0  # who is no faster, and stays so near, for so long stands, or is
# held: with STANDS_SHARE or less it would move at 1 m/s in the air. Chosen
STANDS_SHARE = 0.9  # of the hover thrust. Chosen: `descend` and what sinks at 0.3 m/s are below it
BRAKES, LEAN = 5.0, 0.15  # a speed sideways is gone with a time constant of so many of the attitude's (1 / gain: with 5
# 1/s 1 s), with so much lean (its sine) at most: 1.5 m/s^2. Chosen: with 3.5 a Crazyflie swings, which is late, too
SWEPT_S, FASTER_M_S = 0.5, 0.3  # who is faster sideways by so much than in so long after the stop began is not braked
# any more: levelling out takes that time, and after it nothing but a gust, or a lie, makes it faster. Chosen
SLOWED_M_S2, LEAST_M_S = 0.8, 0.7  # nor who does not become slower by so much, but for speeds that wind holds. Chosen:
# half of what braking makes of it; with a yaw that is wrong it is driven on
DRIVEN_S = 0.3  # and for good once that lasts so long. Chosen: a velocity that leaps lasts for a sample or two
ALIVE_S = 0.2  # a velocity whose bits do not change for so long says nothing. Chosen: 6 samples at 31 Hz
STOOD_DOWN_S, TOLD_DOWN_S = 0.3, 0.5  # share per s: who stands is let down so fast; whom the operator tells to. Chosen
AGAIN_S = 2.0  # so long after level began, and after the word before, an operator's word is a second one. Chosen:
# `ros2 topic pub` repeats its word every second
OFF_S = 2.5  # so long zeros are sent after landing. A Crazyflie that is silent sooner than IS_FLYING_HYSTERESIS (2 s,
# supervisor.c) after its last thrust counts as falling, and is locked until somebody starts it again
RISING = 0.09  # share per m/s, less for who climbed where a stop begins blind: 2 / (g T), with which it is back where
# that was after T = 2.3 s (blind_s, and the 2 s for which the firmware keeps the thrust)
LET_DOWN = 0.2  # of the hover thrust: who has come to that flies no more, its motors may be cut. Chosen
LANDS_M_S = 0.1  # in SMOOTH_S: who is faster has not landed, however low its height is said to be. Chosen: 5 x noise


@dataclass(frozen=True)
class Levelling(Stopping):
    """Level, or its end (``off``), under way.

    For :func:`looked`: when the state was last fresh (``seen`` [s]), the ``height`` [m] without its noise, the
    ``highest`` of those since it last ``sank`` [s]; by how much [m] that height would be above the newest one if the
    robot sank as the velocity ``said``; for how long [s] height and velocity were ``known`` before it began; the
    ``place`` [m], x and y without noise; the horizontal speed [m/s] that is still braked (``swept``), and for how long
    [s] the robot has been faster (``driven``).

    For :func:`trimmed`: the share of the hover thrust that ``carries`` it, and how long it ``lasted`` [s] by its
    commands; for how long it ``stood`` [s], at the height ``stands`` [m], and for how long its ``velocity`` [m/s] has
    been the ``same`` [s]; for how long the operator has ``told`` it to end [s] (None: he has not); for how long it has
    been ``blind`` [s], with no attitude; whether the mission began on the ``floor``.

    What is summed up counts whole periods, or a replay, whose times are rounded otherwise, would not come out the same
    to the digit.
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


def begun(now: float, motion: Motion | None, grounded: bool, floor: bool = False) -> Stopping:
    """Level begins, or what can be done in its place. ``motion``: of the last command of this mission; ``grounded``:
    nothing that the guard sent can have lifted the robot, and a thrust that levels would; ``floor``: it began there."""
    if not grounded:
        return Levelling("level", now, floor=floor)
    return Stopping("silence", now) if motion is None else Levelling("off", now)


def onward(
    stop: Levelling, robot: RobotSpec, profile: Profile, spec: CommandSpec, values: Values | None, now: float,
    before: Flown, autopilot: bool, sound: bool, waits: bool = False,
) -> tuple[Stopping, Step]:
    """``stop``, one command later, and that command: see :func:`looked`, :func:`trimmed` and :func:`levelled`."""
    period = profile.limits.dt
    stop = looked(unseen(stop, values, period), values, now, period, before)
    if not silent(stop, profile):  # else nothing is sent that could be trimmed
        stop = trimmed(stop, profile, values, sound, unknown=not known(before))
    hover = lifts(robot) if stop.floor and not (sound or known(before)) else hover_thrust(robot, before)
    if values is None:
        hover *= 1.0 - RISING * climbed(stop, before)
    step = levelled(profile, hover, spec, stop, values, now, autopilot, sound, waits)
    if not step.over or step.command is None or autopilot:
        return stop, step
    return Levelling("off", now), Step(step.command, over=False)  # down: a firmware that hears no more calls it a fall


def climbed(stop: Levelling, before: Flown) -> float:
    """How fast [m/s] a robot climbed, as far as velocity and height both said it, that this stop has never seen."""
    return max(min(-before.said, before.shown) / SMOOTH_S, 0.0) if stop.seen == -inf else 0.0


def looked(
    stop: Levelling, values: Values | None, now: float, period: float, before: Flown | None = None
) -> Levelling:
    """``stop``, which looks every ``period`` [s], with what it knows of the height: whether the robot still sinks is a
    question of a second. It begins with what height and velocity agreed on ``before``: who sank fast just now
    still does."""
    if values is None:
        return stop
    told, velocity = float(values["height"]), values.get("base_vel_w")
    if velocity is not None:
        speed = hypot(*velocity.tolist()[:2])
        driven = stop.driven + period if speed > stop.swept + FASTER_M_S and stop.lasted >= SWEPT_S else 0.0
        stop = replace(stop, swept=_swept(stop, speed, period), driven=driven)
    if stop.seen == -inf:
        if before is not None and velocity is not None and 0.0 < now - before.at < SHOWN_S:
            taken = looked(replace(
                stop, seen=before.at, height=before.height, highest=before.height, said=before.said,
                place=before.place, known=before.at - before.since), values, now, period)
            if abs(taken.height - told - taken.said) <= AGREED_M:
                return taken
        return replace(stop, seen=now, height=told, highest=told, place=sideways((), values, 0.0))
    gap = period * max(round((now - stop.seen) / period), 1)
    kept, way = exp(-gap / SMOOTH_S), 0.0 if velocity is None else -gap * float(velocity[2])
    height, said = told + kept * (stop.height - told), kept * (stop.said + way)
    sank, place = height < stop.highest - SINKS_M, sideways(stop.place, values, kept)
    return replace(stop, seen=now, height=height, highest=height if sank else max(stop.highest, height), said=said,
                   sank=now if sank else stop.sank, place=place)


def _swept(stop: Levelling, speed: float, period: float) -> float:
    """The greatest horizontal speed [m/s] that is still braked, but for FASTER_M_S: of the beginning, then less and
    less; -inf for good once the robot was faster for DRIVEN_S. It is braked the wrong way then, or pushed; each try to
    find out would drive the former on, and drag brakes the latter, too."""
    if stop.lasted < SWEPT_S:
        return max(stop.swept, speed)
    return -inf if stop.driven >= DRIVEN_S else max(stop.swept - SLOWED_M_S2 * period, LEAST_M_S)


def speeds(stop: Levelling, values: Values) -> tuple[float | None, float, float]:
    """How fast [m/s] the robot sinks as its velocity says (None: nobody does) and as its height shows, which is late
    (:func:`looked` comes first), and by how much more the velocity says than it did, as late as that."""
    velocity, shown = values.get("base_vel_w"), (stop.height - float(values["height"])) / SMOOTH_S
    if velocity is None:
        return None, shown, 0.0
    said = -float(velocity[2])
    return said, shown, said - stop.said / SMOOTH_S


def sinking(stop: Levelling, values: Values, wanted: float) -> float:
    """How fast [m/s] the robot sinks: as its velocity says, but as its height agrees with. A velocity that lies would
    lift it out of the room, or drop it, and a height that creeps would lift it, too: more thrust than it hovers with
    is for a sink that both of them see. Without a velocity only a part of what the height shows is answered, for that
    is late, and more would swing."""
    said, shown, more = speeds(stop, values)
    if said is None:
        return wanted + ANSWERED * (shown - wanted)
    agreed = shown + min(max(more, -CAUGHT_M_S), AHEAD_M_S)
    return min(max(said, agreed - AGREE_M_S), agreed + AGREE_M_S, max(said, wanted))


def climbing(stop: Levelling, values: Values) -> float:
    """How fast [m/s] the robot climbs, as far as velocity and height both say it."""
    said, shown, _ = speeds(stop, values)
    return 0.0 if said is None else max(-max(said, shown), 0.0)


def leaning(stop: Levelling, values: Values, gain: float) -> tuple[float, float]:
    """Where the thrust is to point to so that the robot stops sideways, too: sines of the lean towards the world's x
    and y. ``gain`` [1/s]: of the attitude. Braked is the speed that a velocity which is alive and the place both see,
    while it gets no faster: by one that lies, or an attitude that is turned, the robot would be driven away."""
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
    """What two say of one number: the one nearer to 0, and 0 where they differ in its sign."""
    return min(max(said, 0.0), max(shown, 0.0)) + max(min(said, 0.0), min(shown, 0.0))


def unseen(stop: Levelling, values: Values | None, period: float) -> Levelling:
    """``stop``, a ``period`` [s] later, with for how long it has been blind."""
    if values is None:
        return replace(stop, blind=stop.blind + period)
    return replace(stop, blind=0.0) if stop.blind else stop


def silent(stop: Levelling, profile: Profile) -> bool:
    """Whether level has been blind for so long that the firmware must level by itself: after ``blind_s``."""
    return stop.blind - 0.5 * profile.limits.dt > (profile.level or {})["blind_s"]


def standing(
    stop: Levelling, level: Mapping[str, float], values: Values | None, sound: bool, period: float
) -> Levelling:
    """``stop``, a ``period`` [s] later, with for how long the robot has stood: by its velocity where that is known and
    alive, and by its height where that is ``sound``, while it is sent less than carries it. A velocity that stands at
    0 says nothing against that; nor does one that never comes to 0 while the height rests where robots have landed."""
    velocity = None if values is None else values.get("base_vel_w")
    said: tuple[float, ...] = () if velocity is None else tuple(velocity.tolist())
    same = 0.0 if said != stop.velocity else stop.same + period
    share = stop.carries * max(level["descend"], 1.0 - level["sink_gain"] * level["sink_m_s"])  # of who does not sink
    known = values is not None and (sound or (velocity is not None and same < ALIVE_S))
    still = velocity is None or abs(stop.said) < STANDS_M_S * SMOOTH_S or (sound and stop.height < level["landed_m"])
    near = not sound or abs(stop.height - stop.stands) <= STANDS_M
    stays = known and still and share < STANDS_SHARE
    return replace(stop, velocity=said, same=same, stood=stop.stood + period if stays and near else 0.0,
                   stands=stop.stands if stays and near else stop.height)


def carried(stop: Levelling, autopilot: bool) -> float:
    """The share of the hover thrust that the robot is carried with: less with every second that it stands, or that the
    operator has said again that it is to end. What was let down because it stood it has again once it moves: in the
    air that was wrong. An ``autopilot`` lands by itself."""
    if autopilot:
        return stop.carries
    stood = STOOD_DOWN_S * max(stop.stood - STANDS_S, 0.0)
    return max(stop.carries - max(stood, 0.0 if stop.told is None else TOLD_DOWN_S * stop.told), 0.0)


def insisted(stop: Stopping) -> Levelling | None:
    """``stop`` once the operator has said again that it is to end; None: he need not, or it has just begun."""
    return replace(stop, told=0.0) if stop.action == "level" and stop.told is None and stop.lasted >= AGAIN_S else None


def off(stop: Levelling, spec: CommandSpec, period: float) -> tuple[Levelling, Step]:
    """The motors stay off, and the robot is told so, until it is known to stand, ``period`` [s] by period: then
    silence. That it bounces changes nothing."""
    stop = replace(stop, lasted=stop.lasted + period)
    return stop, Step(np.zeros(spec.shape), over=stop.lasted >= OFF_S)


def trimmed(
    stop: Levelling, profile: Profile, values: Values | None, sound: bool, unknown: bool = False
) -> Levelling:
    """``stop``, one command later, with the share of the hover thrust that carries the robot. It grows while velocity
    and height both show too fast a sink, and shrinks while neither shows it; fast, and at once, while both show a
    climb, by a state that is not ``sound``, too, while it is ``unknown`` what the robot hovers with. After ``max_s`` it
    shrinks while the height does not, or is not ``sound``; after LONGEST times that, anyway, for a state that says for
    so long that it sinks lies. So whom somebody holds, or who stands where no height says so, is let down, and none is
    dropped."""
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
    """Whether velocity and height both show a climb that is not braked already: less thrust would drop it then."""
    said, shown, _ = speeds(stop, values)
    if said is None or stop.lasted < SMOOTH_S or max(said, shown) >= -CLIMBS_M_S:
        return False
    mean = stop.said / (SMOOTH_S * (1.0 - exp(-(stop.known + stop.lasted) / SMOOTH_S)))  # what was said of late
    return said < mean


def _faster(stop: Levelling, values: Values, wanted: float, late: bool) -> float:
    """By how much [m/s] the robot sinks faster than ``wanted``, as far as velocity and height agree in that; too slowly
    by the height alone where it is ``late``, and where there is no velocity."""
    said, shown, more = speeds(stop, values)
    if shown < wanted and (late or said is None):
        return shown - wanted
    if said is None:
        return 0.0
    faster = sorted((said, shown, wanted))[1] - wanted
    return 0.0 if faster * more < 0.0 and abs(more) > RESTS_M_S else faster


def levelled(
    profile: Profile, hover: float, spec: CommandSpec, stop: Levelling, values: Values | None, now: float,
    autopilot: bool, sound: bool, waits: bool = False,
) -> Step:
    """Level out and sink, no faster than the profile says where the state has the velocity and is ``sound`` (it is
    alive and did not jump), and brake sideways by it (:func:`leaning`); ``hover``: :func:`hover_thrust`. With no
    attitude, do not turn, and soon be silent: the firmware levels by itself. For as long as it does (FLIES_S), who
    ``waits`` goes on once the attitude is seen again. An ``autopilot`` lands by itself what is still in the air. Motors
    are cut by a height that is sound, was low for ``SMOOTH_S``, and is not alone (:func:`_rests`), or once next to
    nothing carries: else that is a fall."""
    level = profile.level or {}
    landed = (sound and values is not None and now - stop.since >= SMOOTH_S
              and max(float(values["height"]), stop.height) < level["landed_m"] and _rests(level, stop, values))
    if values is None and silent(stop, profile):
        waits = waits and stop.told is None and stop.blind <= level["blind_s"] + FLIES_S
        return Step(None, over=not waits)
    if landed or _over(level, stop, now, autopilot, sound):
        cut = landed or (values is not None and not autopilot)
        return Step(np.zeros(spec.shape) if cut else None, over=True)
    quat = None if values is None else values.get("base_quat_w")
    hover *= carried(stop, autopilot)
    if not sound or values is None:
        return Step(shield.clamp(spec, shield.level_and_descend(quat, hover, level)).command, over=False)
    sink, climb = sinking(stop, values, level["sink_m_s"]), climbing(stop, values)
    command = shield.level_and_descend(quat, hover, level, sink, climb, leaning(stop, values, level["gain"]))
    return Step(shield.clamp(spec, command).command, over=False)


def _rests(level: Mapping[str, float], stop: Levelling, values: Values) -> bool:
    """Whether no velocity that is alive says that the robot moves, nor has it more thrust than one that stands: who
    hovers by a height that creeps down says that it does not sink, too, but that takes all of the thrust."""
    velocity, wanted = values.get("base_vel_w"), level["sink_m_s"]
    if velocity is None or stop.same >= ALIVE_S:
        return True
    share = 1.0 + level["sink_gain"] * (sinking(stop, values, wanted) - wanted)
    return abs(stop.said) < LANDS_M_S * SMOOTH_S and share <= STANDS_SHARE


def _over(level: Mapping[str, float], stop: Levelling, now: float, autopilot: bool, sound: bool) -> bool:
    """Whether levelling is over without having landed: after ``max_s`` an autopilot goes on, but not while it sinks.
    Without one the robot was let down (:func:`carried`)."""
    if not autopilot:
        return carried(stop, autopilot) < LET_DOWN
    sinks = sound and now - stop.sank <= SINKS_S
    return now - stop.since > level["max_s"] * (LONGEST if sinks else 1.0)
