"""What excites the joints of an arm or a hand: sines of many frequencies in all joints at once, then slow sweeps.

The multisines have frequencies of their own in each joint, so that the joints' answers can be told apart; they show
inertia, gains and delay. The sweeps go through each joint's place at constant speeds, there and back, from fast to
slow: they show friction (Coulomb, viscous, Stribeck) and backlash, where speed is low and changes its sign. The robot
comes from where it is to the place about which it is excited (its home, or as far from the ends as it takes), and goes
home at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, floor

import numpy as np

from temporeal.robots.motion.link_shapes import watched
from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.excitation import waves
from temporeal.sim.identification.excitation.segments import Segment, segments_of
from temporeal.sim.identification.excitation.waves import CannotExcite, Limits, Numbers

COMMAND, PLACE, SPEED = "joint_pos_cmd", "joint_pos", "joint_vel"
USUAL = 0.2  # rad or m: reach where none is asked for, at most
SHARE_OF_RANGE = 0.25  # of a joint's range: the same
MOST_SHARE = 0.6  # of the robot's speeds and accelerations: what guards let pass
PERIODS = 2.0  # of the lowest frequency, in the multisines
LINES = 12  # frequencies of a joint, at most
UNLIKE = 0.3  # how much the sweeps' speeds differ between the first joint and the last
APART_M = 0.03  # between links that must not touch; 1 cm more than guards ask for
LOOKED_S = 0.1  # between the places at which that is looked at
SAG = 0.05  # rad or m beyond the range of setpoints, that the formula leaves to servos which give way
START = 0.15  # rad or m from home, in which joints may be at the start, and from which they are rehearsed
GO, REST = 0.8, 0.6  # of settle_s, and of quiet_s: in which it goes
CORNERS, ON_THE_WAY = 32, 6  # starts from which links are looked at, and places on their way home
ROOM = 0.25  # rad or m about what is planned, that the formula leaves to where the robot was and how it follows


@dataclass(frozen=True)
class JointSettings:
    """What the user asks of an excitation.

    Args:
        seconds: of all. rate_hz: of commands; 0: the robot's own.
        reach: amplitude about the middle, rad (m of sliding joints); None: 0.2, or a quarter of a joint's range.
        share: of the speeds and accelerations that the robot accepts.
        low_hz, high_hz: of the multisines.
        sweeps: how many speeds. slow: the last one's share of the first one.
        margin: share of each joint's range that is kept free at each of its ends.
        settle_s, quiet_s: to the middle, and home and rest.
        table_m: height in the world above which an arm's tool stays.
    """

    seconds: float = 60.0
    rate_hz: float = 0.0
    reach: float | None = None
    share: float = 0.3
    low_hz: float = 0.1
    high_hz: float = 3.0
    sweeps: float = 3.0
    slow: float = 0.1
    margin: float = 0.05
    settle_s: float = 3.0
    quiet_s: float = 3.0
    table_m: float = 0.05


@dataclass(frozen=True)
class JointPlan:
    """An excitation of T control steps of J joints.

    Args:
        place: [T, J] rad or m of the setpoints, from home to home. most_speed: [J] that they have.
    """

    robot: RobotSpec
    settings: JointSettings
    rate_hz: float
    segments: tuple[Segment, ...]
    place: Numbers
    most_speed: Numbers

    command = COMMAND

    @property
    def steps(self) -> int:
        """Number of control steps."""
        return len(self.place)

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.steps / self.rate_hz

    @property
    def rest_s(self) -> float:
        """For which it is at home at the end, whole control steps."""
        return round(0.3 * self.settings.quiet_s * self.rate_hz) / self.rate_hz

    @property
    def home(self) -> Numbers:
        """[J] where it ends."""
        return np.array(self.robot.home[PLACE])

    @property
    def clauses(self) -> dict[str, str]:
        """What a run of it keeps, in the formulas' language, by what it limits."""
        end, joints = self.seconds, range(self.place.shape[1])
        place = " & ".join(f"joint_pos[{j}] > low[{j}] & joint_pos[{j}] < high[{j}]" for j in joints)
        speed = " & ".join(f"abs(joint_vel[{j}]) < speed[{j}]" for j in joints)
        home = " & ".join(f"abs(joint_pos[{j}] - home[{j}]) < near" for j in joints)
        start = " & ".join(f"abs(joint_pos[{j}] - home[{j}]) < start" for j in joints)
        out = {"start": f"({start})", "place": f"G[0,{end:g}] ({place})", "speed": f"G[0,{end:g}] ({speed})",
               "quiet end": f"G[{end - self.rest_s:g},{end:g}] ({home})"}
        if self.robot.tool:
            out["table"] = f"G[0,{end:g}] ({self.robot.tool}_pos_w.z > table)"
        return out if SPEED in self.robot.signals else {name: text for name, text in out.items() if name != "speed"}

    @property
    def constants(self) -> dict[str, float | tuple[float, ...]]:
        """Of the formulas."""
        low, high = ends(self.robot, 0.0)
        speed = np.minimum(2.5 * self.most_speed, np.array(limits(self.robot)[0]))
        return {"low": tuple(np.maximum(low - SAG, self.place.min(0) - ROOM)),
                "high": tuple(np.minimum(high + SAG, self.place.max(0) + ROOM)),
                "speed": tuple(speed), "home": tuple(self.home), "near": 0.1, "start": START,
                "table": self.settings.table_m}


def plan(robot: RobotSpec, settings: JointSettings) -> JointPlan:
    """The excitation; a :class:`CannotExcite` says what of it must not be."""
    rate = settings.rate_hz or robot.control_hz or 50.0
    check(robot, settings, rate)
    dt, joints = 1.0 / rate, len(robot.home[PLACE])
    reach = reaches(robot, settings)
    middle = np.clip(robot.home[PLACE], *within(robot, settings, reach))
    speed, acceleration = (settings.share * values for values in limits(robot))
    swept = np.concatenate(sweeps(settings, dt, reach, speed, acceleration))
    settle, quiet = (round(s * rate) for s in (settings.settle_s, settings.quiet_s))
    whole = round(settings.seconds * rate)
    count = whole - settle - quiet - len(swept)
    enough(settings, count * dt, len(swept) * dt, joints)
    sines = np.stack([waves.shrunk(reach[j] * waves.multisine(count, dt, lines(settings, count * dt, j, joints),
                                                              lambda hz: 1.0 / hz), dt,
                                   Limits(reach[j], speed[j], acceleration[j])) for j in range(joints)], 1)
    away = middle - np.array(robot.home[PLACE])
    begins = check_start(robot, settings, np.abs(away) + START)
    go = waves.smooth((np.arange(settle) + 1) / (GO * settle))[:, None] * away
    back = waves.smooth((np.arange(quiet) + 1) / (REST * quiet))[:, None] * away
    table = np.concatenate([go, away + sines, away + swept, away - back]) + robot.home[PLACE]
    check_path(robot, settings, table, dt)
    check_way_home(robot, away)
    parts = segments_of(("settle", "multisines", "sweeps", "home"), (settle, count, len(swept), quiet))
    return JointPlan(robot, settings, rate, parts, table,
                     np.maximum(np.abs(np.diff(table, axis=0)).max(0) / dt, begins))


def ends(robot: RobotSpec, margin: float) -> tuple[Numbers, Numbers]:
    """Least and greatest setpoints [J], with ``margin`` of the range kept free at each end."""
    assert robot.motion is not None
    command = robot.command(COMMAND)
    low, high = np.maximum(command.low, robot.motion.low), np.minimum(command.high, robot.motion.high)
    return low + margin * (high - low), high - margin * (high - low)


def limits(robot: RobotSpec) -> tuple[Numbers, Numbers]:
    """Speeds and accelerations [J] that the robot accepts."""
    assert robot.motion is not None
    return np.array(robot.motion.speed), np.minimum(robot.motion.acceleration, robot.motion.brake)


def reaches(robot: RobotSpec, s: JointSettings) -> Numbers:
    """Amplitudes [J]."""
    low, high = ends(robot, s.margin)
    if s.reach is None:
        return np.minimum(USUAL, SHARE_OF_RANGE * (high - low))
    for name, room in zip(robot.sources[PLACE].names, 0.5 * (high - low)):
        if s.reach > room:
            raise CannotExcite(f"reach={s.reach:g}: joint {name} has {room:.3g} to each side of the middle of its "
                               f"range, less margin={s.margin:g} of it at each end")
    return np.full(len(low), s.reach)


def within(robot: RobotSpec, s: JointSettings, reach: Numbers) -> tuple[Numbers, Numbers]:
    """Least and greatest middles [J]."""
    low, high = ends(robot, s.margin)
    return low + reach, high - reach


def lines(s: JointSettings, seconds: float, joint: int, joints: int) -> Numbers:
    """Frequencies [L] Hz of one joint: whole periods in ``seconds``, and no other joint's."""
    first, last = ceil(s.low_hz * seconds - 1e-9), floor(s.high_hz * seconds + 1e-9)
    own = np.arange(first + joint, last + 1, joints)
    wanted = np.unique(np.rint(np.geomspace(1, len(own), LINES) - 1).astype(int)) if len(own) else own
    return np.asarray(own[wanted] / seconds)


def sweeps(s: JointSettings, dt: float, reach: Numbers, speed: Numbers, acceleration: Numbers) -> list[Numbers]:
    """[T, J] for each speed, all joints at once: each at its own, so that they do not turn at the same time."""
    unlike = np.linspace(1.0, 1.0 - UNLIKE, len(reach))
    out = []
    for share in np.geomspace(1.0, s.slow, round(s.sweeps)):
        each = [waves.sweep(dt, r, v, a) for r, v, a in zip(reach, share * unlike * speed, acceleration)]
        longest = max(map(len, each))
        out.append(np.stack([np.pad(one, (0, longest - len(one))) for one in each], 1))
    return out


def enough(s: JointSettings, seconds: float, swept: float, joints: int) -> None:
    """Refuse a time in which the multisines cannot be."""
    least = max(PERIODS / s.low_hz, 2 * joints / max(s.high_hz - s.low_hz, 1e-9))
    if seconds < least:
        raise CannotExcite(f"seconds={s.seconds:g}: the sweeps take {swept:.3g} s, which leaves {seconds:.3g} s for "
                           f"the multisines; {least:.3g} s are needed for {PERIODS:g} periods of {s.low_hz:g} Hz and "
                           f"two frequencies for each of {joints} joints: seconds="
                           f"{s.seconds + least - seconds + 1:.0f}")


def check(robot: RobotSpec, s: JointSettings, rate: float) -> None:
    """Refuse what must not be moved."""
    if COMMAND not in robot.commands or PLACE not in robot.sources or robot.motion is None:
        raise CannotExcite(f"robot {robot.name!r} cannot be excited: it needs the command {COMMAND}, the signal "
                           f"{PLACE} and limits of motion; its commands: {', '.join(robot.commands)}")
    if robot.command(COMMAND).size != len(robot.home[PLACE]):
        raise CannotExcite(f"robot {robot.name!r}: {COMMAND} has {robot.command(COMMAND).size} joints, {PLACE} "
                           f"{len(robot.home[PLACE])}: they must be the same")
    for name in (f.name for f in fields(s) if f.name not in ("rate_hz", "reach", "table_m")):
        if not getattr(s, name) > 0:
            raise CannotExcite(f"{name}={getattr(s, name):g}: a number above 0 is needed")
    if s.reach is not None and not s.reach > 0:
        raise CannotExcite(f"reach={s.reach:g}: a number above 0 is needed")
    for name, least, most in (("share", 0.02, MOST_SHARE), ("slow", 0.02, 1.0), ("margin", 0.0, 0.3),
                              ("sweeps", 1.0, 10.0)):
        if not least <= getattr(s, name) <= most:
            raise CannotExcite(f"{name}={getattr(s, name):g}: {least:g} to {most:g} are legal")
    if s.sweeps != round(s.sweeps):
        raise CannotExcite(f"sweeps={s.sweeps:g}: a whole number is needed")
    waves.check_steps(s.seconds, rate)
    waves.check_band(s.low_hz, s.high_hz, rate)


def check_start(robot: RobotSpec, s: JointSettings, far: Numbers) -> Numbers:
    """[J] speeds at which the joints come from ``far`` [J] away; refuse a time that is too short for them. Least jerk
    has 1.875 of the mean speed at most, and 5.77 (10 / sqrt(3)) of the distance over the time squared."""
    speed, acceleration = (s.share * values for values in limits(robot))
    least = np.maximum(1.875 * far / speed, (10 / 3**0.5 * far / acceleration) ** 0.5) / GO
    worst = int(np.argmax(least))
    if s.settle_s < least[worst]:
        raise CannotExcite(f"settle_s={s.settle_s:g}: joint {robot.sources[PLACE].names[worst]} may begin {START:g} "
                           f"from home, and then has {far[worst]:.3g} to go; with share={s.share:g} of the speed and "
                           f"acceleration that it accepts at least {np.ceil(100 * least[worst]) / 100:g} s are needed")
    return np.asarray(1.875 * far / (GO * s.settle_s))


def check_way_home(robot: RobotSpec, away: Numbers) -> None:
    """Refuse starts, within what the formula allows, from which links would come near each other on their way."""
    if robot.kind != "arm":
        return
    home, capsules = np.array(robot.home[PLACE]), watched(robot, PLACE, APART_M)
    corners = START * np.sign(np.random.default_rng(0).standard_normal((CORNERS, len(home))))
    for share in np.linspace(0.0, 1.0, ON_THE_WAY):
        for corner in corners:
            room, links = capsules.distance(home + share * away + (1 - share) * corner)
            if room < APART_M:
                raise CannotExcite(f"home: from {START:g} beside it, which the formula allows, the links {links} would "
                                   f"come {room:.3f} m near each other, {APART_M:g} m are kept: this robot needs "
                                   "another home")


def check_path(robot: RobotSpec, s: JointSettings, place: Numbers, dt: float) -> None:
    """Refuse setpoints that pass a limit (on the way to the middle, where this is far), or with which links touch."""
    speed, acceleration = (s.share * values for values in limits(robot))
    for j, name in enumerate(robot.sources[PLACE].names):
        _, fast, hard = waves.peaks(place[:, j] - place[0, j], dt)
        if fast > speed[j] * 1.01 or hard > acceleration[j] * 1.2 + 1e-9:
            raise CannotExcite(f"joint {name} would move at up to {fast:.3g}/s and {hard:.3g}/s^2; share={s.share:g} "
                               f"of what it accepts is {speed[j]:.3g}/s and {acceleration[j]:.3g}/s^2: a larger "
                               "settle_s and quiet_s, or a smaller reach")
    if robot.kind != "arm":
        return  # fingers that touch each other are no harm, and their shapes touch at home
    capsules = watched(robot, PLACE, APART_M)
    for at in place[:: max(1, round(LOOKED_S / dt))]:
        room, links = capsules.distance(at)
        if room < APART_M:
            raise CannotExcite(f"reach: the links {links} would come {room:.3f} m near each other, {APART_M:g} m are "
                               "kept: a smaller reach is needed")
