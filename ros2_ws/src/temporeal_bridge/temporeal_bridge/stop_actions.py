"""What the guard's stop actions send: the next command of each, from what is known of the robot.

Plain functions. When an action begins and which mode comes after it is :mod:`temporeal_bridge.guard_node`'s to say,
what each of them is :data:`temporeal_bridge.safety.ACTIONS`. [A]: components of the command. ``values`` are the newest
signals by name, None while the state is stale: then nobody knows where the robot is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, hypot, inf
from typing import NamedTuple

import numpy as np

from robots import shield
from robots.motion import Array, Bounds, Motion, at_rest, following, stopping
from robots.signals import CommandSpec
from robots.spec import RobotSpec
from temporeal_bridge import admission
from temporeal_bridge.safety import LONGEST, Profile, is_rate

Values = Mapping[str, np.ndarray]
GRAVITY = 9.81  # m/s^2
AT_REST = 1e-9  # of a command's range
SINKS_M, SINKS_S = 0.1, 1.0  # who has come down by so much in so long still sinks: no noise, and no gust, is that large
SMOOTH_S = 0.3  # of the height, for that
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
LET_DOWN = 0.2  # of the hover thrust: who has come to that flies no more, its motors may be cut. Chosen
LANDS_M_S = 0.1  # in SMOOTH_S: who is faster has not landed, however low its height is said to be. Chosen: 5 x noise
FLIES_S = 1.5  # so long after the last command a Crazyflie still flies: it levels out with its thrust, which it cuts
# after 2 s (supervisor.c). Chosen: 0.5 s less, for what the radio loses and the next command takes
FLOWN_S, ENOUGH_S = 2.0, 0.2  # so long it is remembered what carried; after so long of that, smoothed, enough was
# flown: 0.7 s after the thrust came. Chosen: at 0.5 s a take-off looks 10 % heavier, or lighter, than the robot is
HOVERS = (0.7, 1.35)  # of the nominal hover thrust: other thrusts hover no robot. Chosen: 0.74 to 1.25 are published
ANSWERS_S = 0.08  # so late motors, command and state are. Chosen: a Crazyflie's motors alone are 0.06 to 0.15 s
APART = 0.15  # of the nominal hover thrust: by so much more or less pushes who flies, for motors and state are late.
# Chosen: thrust that is cut all at once is 0.12 off when it is 0.1 s late
ROSE_M, STOOD_S = 0.03, 0.5  # who is so far from where the mission began flies, or flew; who is not may stand, and what
# pushed it is remembered for so long. Chosen: 3 standard deviations of a poor height
SLOW, STILL_S, DAMPED_S = 0.02, 0.1, 5.0  # share of a joint's speed limit: an effort has braked what is slower for so
# long, s, and has not just turned round; and after so long, s, it is over: whom somebody pushes never rests. Chosen
FASTER = 0.05  # share of a joint's speed limit: by so much more than at the beginning, braking is none. Chosen


@dataclass(frozen=True)
class Stopping:
    """A stop action under way: what, since when [s], and to where [A] (hold; NaN: not known yet); for :func:`looked`,
    of level: when the state was last fresh [s], the height [m] without its noise, the greatest of those since it last
    ``sank`` [s]; by how much [m] that height would be above the newest one if the robot sank as the velocity ``said``;
    for :func:`trimmed`, the share of the hover thrust that ``carries`` it, and how long it ``lasted`` [s] by its
    commands; for how long it ``stood`` [s], at the height ``stands`` [m], and for how long its ``velocity`` [m/s] has
    been ``same`` [s]; for how long the operator has ``told`` it to end [s] (None: he has not). What is summed up counts
    whole periods, or a replay, whose times are rounded otherwise, would not come out the same to the digit."""

    action: str
    since: float
    target: Array | None = None
    seen: float = -inf
    height: float = -inf
    highest: float = -inf
    sank: float = -inf
    said: float = 0.0
    carries: float = 1.0
    lasted: float = 0.0
    stood: float = 0.0
    stands: float = inf
    velocity: tuple[float, ...] = ()
    same: float = inf
    told: float | None = None
    blind: float = 0.0  # of level: for how long [s] nobody has seen the attitude, by whole periods
    known: float = 0.0  # of level: for how long [s] height and velocity were smoothed before it began
    place: tuple[float, ...] = ()  # the same: x and y [m] without noise
    swept: float = 0.0  # the same: the horizontal speed [m/s] that is still braked
    driven: float = 0.0  # the same: for how long [s] it has been faster than that
    fastest: float = -inf  # of commands that are efforts, when it began: share of a joint's speed limit
    still: float = inf  # the same: since when [s] all joints have been slow


class Step(NamedTuple):
    """What a stop action does next: the command to send (None: nothing), whether the action has come to its end with
    it, and the motion that this is where it goes on from the last one."""

    command: Array | None
    over: bool
    motion: Motion | None = None


def begun(
    profile: Profile, action: str, now: float, motion: Motion | None, values: Values | None, grounded: bool = False,
) -> Stopping:
    """``action`` begins, or what can be done in its place. ``motion``: of the last command of this mission;
    ``grounded``: nothing that the guard sent can have lifted the robot."""
    if motion is None and (grounded or action in ("hold", "ramp")):  # nothing was sent: nothing moves because of us
        return Stopping("silence", now)
    if action == "level" and grounded:  # a thrust that levels would lift it
        return Stopping("off", now)
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
    may give. (Hold: :mod:`temporeal_bridge.holding`.)"""
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


def looked(
    stop: Stopping, values: Values | None, now: float, period: float, before: Flown | None = None
) -> Stopping:
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
        return replace(stop, seen=now, height=told, highest=told, place=_sideways((), values, 0.0))
    gap = period * max(round((now - stop.seen) / period), 1)
    kept, way = exp(-gap / SMOOTH_S), 0.0 if velocity is None else -gap * float(velocity[2])
    height, said = told + kept * (stop.height - told), kept * (stop.said + way)
    sank, place = height < stop.highest - SINKS_M, _sideways(stop.place, values, kept)
    return replace(stop, seen=now, height=height, highest=height if sank else max(stop.highest, height), said=said,
                   sank=now if sank else stop.sank, place=place)


def _swept(stop: Stopping, speed: float, period: float) -> float:
    """The greatest horizontal speed [m/s] that is still braked, but for FASTER_M_S: of the beginning, then less and
    less; -inf for good once the robot was faster for DRIVEN_S, for then it is braked the wrong way."""
    if stop.lasted < SWEPT_S:
        return max(stop.swept, speed)
    return -inf if stop.driven >= DRIVEN_S else max(stop.swept - SLOWED_M_S2 * period, LEAST_M_S)


def _sideways(before: tuple[float, ...], values: Values, kept: float) -> tuple[float, ...]:
    """The place [m], x and y in the world, smoothed as the height is; (): nobody says it."""
    place = values.get("base_pos_w")
    if place is None:
        return ()
    here = place.tolist()[:2]
    return tuple(x + kept * (b - x) for x, b in zip(here, before or here))


def speeds(stop: Stopping, values: Values) -> tuple[float | None, float, float]:
    """How fast [m/s] the robot sinks as its velocity says (None: nobody does) and as its height shows, which is late
    (:func:`looked` comes first), and by how much more the velocity says than it did, as late as that."""
    velocity, shown = values.get("base_vel_w"), (stop.height - float(values["height"])) / SMOOTH_S
    if velocity is None:
        return None, shown, 0.0
    said = -float(velocity[2])
    return said, shown, said - stop.said / SMOOTH_S


def sinking(stop: Stopping, values: Values, wanted: float) -> float:
    """How fast [m/s] the robot sinks: as its velocity says, but as its height agrees with. A velocity that lies would
    lift it out of the room, or drop it, and a height that creeps would lift it, too: more thrust than it hovers with
    is for a sink that both of them see. Without a velocity only a part of what the height shows is answered, for that
    is late, and more would swing."""
    said, shown, more = speeds(stop, values)
    if said is None:
        return wanted + ANSWERED * (shown - wanted)
    agreed = shown + min(max(more, -CAUGHT_M_S), AHEAD_M_S)
    return min(max(said, agreed - AGREE_M_S), agreed + AGREE_M_S, max(said, wanted))


def climbing(stop: Stopping, values: Values) -> float:
    """How fast [m/s] the robot climbs, as far as velocity and height both say it."""
    said, shown, _ = speeds(stop, values)
    return 0.0 if said is None else max(-max(said, shown), 0.0)


def leaning(stop: Stopping, values: Values, gain: float) -> tuple[float, float]:
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


def unseen(stop: Stopping, values: Values | None, period: float) -> Stopping:
    """``stop``, a ``period`` [s] later, with for how long it has been blind."""
    if values is None:
        return replace(stop, blind=stop.blind + period)
    return replace(stop, blind=0.0) if stop.blind else stop


def silent(stop: Stopping, profile: Profile) -> bool:
    """Whether level has been blind for so long that the firmware must level by itself: after ``blind_s``."""
    return stop.blind - 0.5 * profile.limits.dt > (profile.level or {})["blind_s"]


def standing(stop: Stopping, level: Mapping[str, float], values: Values | None, sound: bool, period: float) -> Stopping:
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


def carried(stop: Stopping, autopilot: bool) -> float:
    """The share of the hover thrust that the robot is carried with: less with every second that it stands, or that the
    operator has said again that it is to end. What was let down because it stood it has again once it moves: in the
    air that was wrong. An ``autopilot`` lands by itself."""
    if autopilot:
        return stop.carries
    stood = STOOD_DOWN_S * max(stop.stood - STANDS_S, 0.0)
    return max(stop.carries - max(stood, 0.0 if stop.told is None else TOLD_DOWN_S * stop.told), 0.0)


def insisted(stop: Stopping) -> Stopping | None:
    """``stop`` once the operator has said again that it is to end; None: he need not, or it has just begun."""
    return replace(stop, told=0.0) if stop.action == "level" and stop.told is None and stop.lasted >= AGAIN_S else None


def off(stop: Stopping, spec: CommandSpec, period: float) -> tuple[Stopping, Step]:
    """The motors stay off, and the robot is told so, until it is known to stand, ``period`` [s] by period: then
    silence. That it bounces changes nothing."""
    stop = replace(stop, lasted=stop.lasted + period)
    return stop, Step(np.zeros(spec.shape), over=stop.lasted >= OFF_S)


def trimmed(stop: Stopping, profile: Profile, values: Values | None, sound: bool) -> Stopping:
    """``stop``, one command later, with the share of the hover thrust that carries the robot. It grows while velocity
    and height both show too fast a sink, and shrinks while neither shows it; fast, and at once, while both show a
    climb. After ``max_s`` it shrinks while the height does not, or is not ``sound``; after LONGEST times that, anyway,
    for a state that says for so long that it sinks lies. So whom somebody holds, or who stands where no height says so,
    is let down, and nobody is dropped."""
    level, period = profile.level or {}, profile.limits.dt
    lasted = stop.lasted + period
    late = lasted > level["max_s"]
    if values is not None and sound and _climbs(stop, values):
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


def _climbs(stop: Stopping, values: Values) -> bool:
    """Whether velocity and height both show a climb that is not braked already: less thrust would drop it then."""
    said, shown, _ = speeds(stop, values)
    if said is None or stop.lasted < SMOOTH_S or max(said, shown) >= -CLIMBS_M_S:
        return False
    mean = stop.said / (SMOOTH_S * (1.0 - exp(-(stop.known + stop.lasted) / SMOOTH_S)))  # what was said of late
    return said < mean


def _faster(stop: Stopping, values: Values, wanted: float, late: bool) -> float:
    """By how much [m/s] the robot sinks faster than ``wanted``, as far as velocity and height agree in that; too slowly
    by the height alone where it is ``late``, and where there is no velocity."""
    said, shown, more = speeds(stop, values)
    if shown < wanted and (late or said is None):
        return shown - wanted
    if said is None:
        return 0.0
    faster = sorted((said, shown, wanted))[1] - wanted
    return 0.0 if faster * more < 0.0 and abs(more) > RESTS_M_S else faster


class Flown(NamedTuple):
    """What a mission's commands and states say, ``since`` its first command [s] and up to the one ``at`` [s]. Of the
    thrust that hovers: sums [s] that fade with FLOWN_S of the ``thrust`` that carried, in nominal hover thrusts, and of
    what it ``carried``, in weights: 1 + acceleration / g. All that goes into them is smoothed twice, for then all is
    late alike: what the ``motors`` pushed up (``pushed``: smoothed once, twice), the 1 of what is ``counted``, and the
    ``height`` [m] (once, ``twice``), which changes with ``speed`` [m/s]. Whether the robot ``rose`` from where it began
    or sank, and whether it ``flies``: it did, or is high. For a stop that begins: ``height``, ``said`` and ``place`` of
    :class:`Stopping`."""

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
    place: tuple[float, ...] = ()
    rose: bool = False
    flies: bool = False


def nominal_thrust(robot: RobotSpec) -> float:
    """The thrust [N] that carries the robot as its ``spec.py`` has it."""
    return robot.parameters["mass"].nominal[0] * GRAVITY


def lifts(robot: RobotSpec) -> float:
    """The least thrust [N] that may lift the robot: with less none of those that are published hovers."""
    return HOVERS[0] * nominal_thrust(robot)


def flown(
    before: Flown, level: Mapping[str, float], share: float, values: Values, now: float, period: float
) -> Flown:
    """One more command, a ``period`` [s] or more later, with the collective thrust ``share``, in nominal hover thrusts:
    only the part of it that points up carries. A thrust that lifts no robot counts once it is known to fly, and what
    fits no robot that flies (it stands, or is held) never."""
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
    motors = up + exp(-gap / ANSWERS_S) * ((up if new and height > level["landed_m"] else before.motors) - up)
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
                 _sideways(before.place, values, smooth), rose, rose or height > level["landed_m"])


def _smoothed(before: tuple[float, float], value: float, kept: float) -> tuple[float, float]:
    """``value`` smoothed once and twice."""
    once = value + kept * (before[0] - value)
    return once, once + kept * (before[1] - once)


def hover_thrust(robot: RobotSpec, told: Flown) -> float:
    """The thrust [N] that the robot hovers with: as flown, if it was for long enough; else the nominal one."""
    nominal = nominal_thrust(robot)
    if not told.flies or told.carried < ENOUGH_S:
        return nominal
    least, most = HOVERS
    return nominal * min(max(told.thrust / told.carried, least), most)


def levelled(
    profile: Profile, hover: float, spec: CommandSpec, stop: Stopping, values: Values | None, now: float,
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


def _rests(level: Mapping[str, float], stop: Stopping, values: Values) -> bool:
    """Whether no velocity that is alive says that the robot moves, nor has it more thrust than one that stands: who
    hovers by a height that creeps down says that it does not sink, too, but that takes all of the thrust."""
    velocity, wanted = values.get("base_vel_w"), level["sink_m_s"]
    if velocity is None or stop.same >= ALIVE_S:
        return True
    share = 1.0 + level["sink_gain"] * (sinking(stop, values, wanted) - wanted)
    return abs(stop.said) < LANDS_M_S * SMOOTH_S and share <= STANDS_SHARE


def _over(level: Mapping[str, float], stop: Stopping, now: float, autopilot: bool, sound: bool) -> bool:
    """Whether levelling is over without having landed: after ``max_s`` an autopilot goes on, but not while it sinks.
    Without one the robot was let down (:func:`carried`)."""
    if not autopilot:
        return carried(stop, autopilot) < LET_DOWN
    sinks = sound and now - stop.sank <= SINKS_S
    return now - stop.since > level["max_s"] * (LONGEST if sinks else 1.0)


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
