"""The ``safety`` section of a robot's ``ros.yaml`` as checked, frozen data: what the guard demands, what it does else.

    safety:
      stale_after_s: 0.1     # a state that arrived longer ago stops the robot
      silent_after_s: 0.1    # so does a controller that has proposed nothing for so long
      stamps_within_s: 0.5   # and a state whose stamp is farther from our clock; null: the clocks are not compared
      geofence: {signal: base_pos_w, low: [-5, -5, -0.2], high: [5, 5, 4]}
      # values that do not change in any bit: all of `signals` together, or any of `each`
      frozen: {signals: [base_pos_w, base_quat_w], each: [base_ang_vel_b], after_s: 0.2}
      jump: {base_pos_w: 1.0}     # the largest change from one message to the next, in each component, more after a
                                  # gap (a velocity: after a lost message); of an attitude the angle [rad], whatever
                                  # gap. A command's own section may have more of them
      agree:                      # places that must change as their rates say: so far may they be apart of late, in the
        base_pos_w: {rate: base_vel_w, within: 0.2}  # place's unit; see below. A command's own section may have more
      violated: stop              # the monitor says that the formula is violated: stop, or warn
      estop: {required: false, heartbeat_s: 0.5}
      swap: {blend_s: 0.5}        # so long the command goes over from one artifact to the next
      (temporeal_bridge.guard.artifact_swap)
      unlock_below_m: 0.1         # quadrotors: one zero setpoint below this height, whenever the state comes (back)
      level: {descend: 0.85, gain: 5.0, limit: 3.0, landed_m: 0.06, max_s: 6.0, blind_s: 0.3, sink_m_s: 0.3, ...}
      commands:
        ctbr_cmd:                 # a section for each command of the robot
          stop: {default: level, operator: silence}   # action by code of the reason
          motion: {margin: 0.02, speed: [...], acceleration: [...], jerk: [...]}
          tracking: {signal: joint_pos, error: 0.2, after_s: 0.2}
          effort: {position: joint_pos, velocity: joint_vel, kp: [...], kd: [...], limit: [...]}  # of the servos' law
          start: {signal: joint_pos, within: 0.3, ramp_s: 2.0}
          self_collision: {signal: joint_pos, margin: 0.02}  # m; where the robot would come to rest. Of a speed that is
                                                            # not its joints': with their velocity, range, brake, late_s
        joint_effort_cmd:         # and of one that is a speed or an effort
          ends: {position: joint_pos, velocity: joint_vel, range: joint_pos_cmd, margin: 0.05, brake: 4.0, speed: 1.5,
                 gain: 30.0, period_s: 0.02}
          stale_after_s: 0.03     # in the place of the one for all commands, and not longer: of topics that bring a
          stamps_within_s: 0.015  # signal which a rule or a stop of this command reads; of others the common ones
          start: {at_rest: {signal: joint_vel, below: 0.1}, ramp_s: 0.5}

Times after which something is wrong (those above, ``frozen.after_s`` and ``estop.heartbeat_s``) are 5 s at most.
What is left out, or null, is not checked (``swap`` has the value above then), but for ``stale_after_s``,
``silent_after_s``, ``commands`` and each command's ``stop``, which must be there. The stop ``hold`` goes to where
``tracking``, or else ``start``, measures the robot, once that is known: while the state is stale or not to be believed
(it leapt, stands, has foreign stamps), it comes to rest as by ``ramp``. A ``ramp`` ends where the robot was told to
rest: one that is no hand and stays elsewhere presses on something, and is held where it is measured. ``closes`` (hands)
says, by component, whether a greater command closes the hand (1), a smaller one (-1), or neither (0): a joint whose
place may be an old one is led there only if that does not close it (:mod:`temporeal_bridge.guard.hold`).

``level`` (quadrotors): level out (``gain`` 1/s times the sine of the tilt, up to ``limit`` rad/s), and sink with
``sink_m_s``, by the velocity that the state brings, as far as the height agrees with it (``sink_gain``: share of the
thrust that carries the robot, per m/s), from ``descend`` to 1.3 of that thrust, from 0.6 on while velocity and height
both show a climb. A speed sideways that velocity and place both show is braked by a lean of 9 degrees at most. The
thrust that carries is what it hovered with in this mission, its accelerations deducted, where it flew for long enough,
else its nominal weight, and is slowly corrected, up by a sink that velocity and height both show to be too fast, down
where neither shows it. Without a velocity, or after that jumped, the height alone
says how fast it sinks, and 0.4 of that is answered. After another signal jumped, while the state is frozen, has foreign
stamps or place and velocity are not of one mind, ``descend`` alone. It is over below ``landed_m``, where no velocity
that is alive says that the robot moves or has more thrust than who stands, then the motors are off. Where nothing
lifted the robot it does not begin: silence, or zeros (:func:`temporeal_bridge.guard.level.begun`). After ``max_s`` an
autopilot goes on with what does not sink. Where there is none, nobody is dropped: the thrust is then let down by 5 % of
it a second while the height does not show the sink, or is not to be believed, and after four times ``max_s`` anyway,
for a state that says for so long that it sinks lies; with a fifth of it left, the motors are off. Once the state is
stale it is silent after ``blind_s``, and over 1.5 s later if it does not come back; after the attitude jumped, or lied
(``agree``), nobody knows which way is up, and it is as if the state were stale. So a ``geofence`` may only be so high
that the robot comes down from there in four times ``max_s``, and not begin far below ``landed_m``: a height below that
is a robot that has landed.

``agree`` finds a place, or a rate, that lies: what the place changed by of late minus what its ``rate`` says
(:mod:`temporeal_bridge.guard.state_monitor`) may be ``within`` so much; of an attitude (``wxyz``) both are turns about
the body's
axes. The most that honest ones come to is what the rate changes by, times how long after it the place is told. A place
that stands in every bit while its rate says that it moves is frozen. By an attitude that was found so nothing is turned
for the rest of the mission, by such a place or velocity no motor is cut and no sink braked. The same holds, with limits
of its own, for joints whose velocity efforts are made or judged by, or a collision is told by.

``effort`` has the last word on every command that goes out while the state is fresh: the controller's, those of the
guard's own in its gaps, and those of the stop actions, which keep a robot for as long as it takes. A robot that is
pushed away takes its command along, and that may be faster than ``motion`` allows: who pushes it is stronger than the
limits of a command, and a servo that pulls with more than its limit is what hurts. The next command begins at rest from
there (:func:`temporeal.robots.motion.rate_limiter.confined`), and limits of place hold: beyond them is no command. A
stale state says nothing of efforts: then the command goes as it is. So it does in a stop after the state jumped, while it is frozen or stamped
as old, and once the velocity was not how the position changes, which stops the robot, too: by such a state the command
would lead the robot away. For a command that goes out as a trajectory the section is refused: its
points, which the robot passes even if it hears nothing more, lie ahead of the setpoint in force, and where it will be
by then nobody knows.

``ends`` is the like for commands that are speeds or efforts, which say nothing of a place: towards an end of the
joints' ``range`` (the limits of that command, and the ``margin`` inside them) a joint may only be as fast as braking
with ``brake`` [rad/s^2] comes to rest there, and nowhere faster than ``speed``. A speed is cut to that a period and
``late_s`` earlier; an effort may be ``gain`` [N m s/rad] times what the joint's ``velocity`` is below that speed, so
that it brakes one that is faster. Such commands begin at 0, or, with a ``start.signal``, at what is measured, and
with ``start.at_rest`` not before each component of its signal is ``below`` so much. ``damp`` of an effort is
``-gain`` times the velocity; none where that is stale, frozen, has foreign stamps, or is not how the position changes
(this stops efforts, too). An artifact whose efforts come less often than every ``period_s`` is refused: damping with
older speeds shakes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.collision import Capsules, capsules_of
from temporeal.robots.motion.rate_limiter import Bounds, MotionError
from temporeal.robots.signals import CommandSpec, is_number
from temporeal.robots.spec import RobotSpec

ACTIONS = {
    "hold": "go to the measured position and keep it", "ramp": "come to rest within the limits and keep it",
    "damp": "zero velocity or effort", "level": "level out and sink (quadrotors)", "silence": "say nothing more"}
ONLY = {"autopilot": "silence"}  # whatever else is sent brings PX4 back to offboard, against its pilot or its failsafe
PLACES, SPEEDS, EFFORTS = ("rad", "m"), ("rad/s", "m/s"), ("N m", "N")  # units of commands
RATES = (*SPEEDS, *EFFORTS)
MOVED = {"rad/s": "rad", "m/s": "m", "N m": "rad", "N": "m"}  # unit of the place that a speed or an effort changes
NEEDS = {"hold": PLACES, "ramp": PLACES, "damp": RATES}  # a place of 0 is no rest, a speed that is kept neither
KEEPS = ("hold", "ramp", "damp")  # actions after which commands go on, until somebody resets
CODES = {
    "policy": "the policy failed, or its command has another shape or is not finite",
    "silent": "the controller says nothing", "stale": "the state is old", "stamps": "stamps disagree with our clock",
    "frozen": "the state does not change any more", "jump": "the state jumped",
    "speeds": "the velocity is not that of the position",
    "tracking": "the robot does not follow", "start": "the robot is far from where the policy begins",
    "fence": "outside the geofence", "collision": "its links would come too near to each other",
    "violated": "the formula is violated", "operator": "somebody stopped it",
    "publisher": "somebody else commands the robot", "inactive": "the node was deactivated",
    "autopilot": "the autopilot does not obey us any more", "guard": "the guard itself failed"}
"""Reasons for a stop, by the code that a profile's ``stop`` chooses the action by."""

APART_RAD, APART_S = 0.1, 0.2  # so far may joints move beyond what their velocity says, forgotten in so long: 0.5 rad/s
# for ever is seen. Chosen: a velocity that is 20 ms late at 3 rad/s is 0.06 rad off
FINGERS_RAD = 0.2  # the same of servos whose efforts are limited: fingers reach 7 rad/s
TURNED_S = 1.0  # so long it is remembered how far an attitude turned beyond its rate: it is made of that. Chosen
WENT_S = 0.45  # the same of a body's place: 0.67 m/s for ever is `within` 0.3 m. Chosen: a velocity that is 0.1 s late
# at 6 m/s^2, or 15 % too small at 3 m/s, comes to less (tests/bridge/test_agree.py)
STANDS = 0.05  # rad or m: what stood in every bit though by its rate it went so far is frozen. Chosen: far above the
# steps of drivers (Crazyswarm2: 1 mm, 1.4 mrad), and no tilt that would matter


class SafetyError(ValueError):
    """The ``safety`` section is wrong; the message says where, and what is legal."""


@dataclass(frozen=True)
class Fence:
    """A box [3] in m that a position signal must not leave (frame of the signal)."""

    signal: str
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Frozen:
    """On a robot that flies or moves not all of the ``signals`` can stay equal in every bit for ``after_s``, and none
    of ``each``."""

    signals: tuple[str, ...]
    after_s: float
    each: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agree:
    """A ``place`` [unit] that must change as its ``rate`` says: ``within`` so much, which is forgotten with the time
    constant ``forgotten_s``. Of an attitude (wxyz) both are about the body's axes, in rad. It is frozen where it
    ``stands`` in every bit while the rate says that it went so far (inf: nobody asks)."""

    place: str
    rate: str
    within: float
    unit: str = "rad"
    forgotten_s: float = APART_S
    stands: float = inf

    @property
    def turns(self) -> bool:
        """Whether the place is an attitude."""
        return self.unit == "wxyz"

    @property
    def of(self) -> str:
        """Unit of what they are apart."""
        return "rad" if self.turns else self.unit


@dataclass(frozen=True)
class Tracking:
    """The command may differ by ``error`` [A] from the measured ``signal`` for ``after_s`` at most."""

    signal: str
    error: tuple[float, ...]
    after_s: float


@dataclass(frozen=True)
class Effort:
    """A servo's law ``kp (command - position) - kd velocity``: no command may ask for more than ``limit`` of it, even
    where it must move faster than the limits of motion for that."""

    position: str
    velocity: str
    kp: tuple[float, ...]
    kd: tuple[float, ...]
    limit: tuple[float, ...]


@dataclass(frozen=True)
class Ends:
    """Towards the ends ``low`` and ``high`` [B] of the measured ``position`` the first components of a command in rad/s
    or N m may only be as fast as ``brake`` [B] can stop, up to ``speed`` [B]. ``gain`` [B] and the measured
    ``velocity`` are an effort's, ``late`` [s], after which a joint has the speed it is told, a speed's; see the text
    of the module."""

    position: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    brake: tuple[float, ...]
    speed: tuple[float, ...]
    velocity: str = ""
    gain: tuple[float, ...] = ()
    late: float = 0.0


@dataclass(frozen=True)
class Start:
    """The first command may be ``within`` [A] of the measured ``signal``; from there it is faded in over ``ramp_s``.
    No signal: from 0, for speeds and efforts. Before those each component of the measured ``rests`` must be ``below``
    so much ("": nobody asks)."""

    signal: str
    within: tuple[float, ...]
    ramp_s: float
    rests: str = ""
    below: tuple[float, ...] = ()


@dataclass(frozen=True)
class Estop:
    """Topic ``estop`` (std_msgs/Bool). Once heard, it must be heard every ``heartbeat_s`` (None: need not)."""

    required: bool = False
    heartbeat_s: float | None = 0.5


@dataclass(frozen=True)
class SelfCollision:
    """Where the robot would come to rest, its links (:mod:`temporeal.robots.motion.collision`) must be ``margin`` [m]
    apart, or no nearer than before, or, where measured joints tell it, than when the mission began. Where the command does not say
    where it rests: as far from the measured joints ``position`` [B], between ``low`` and ``high`` [B], as their
    measured ``velocity`` goes on for ``late`` [s] and is then braked with ``brake`` [B] ("": the command says it)."""

    capsules: Capsules
    margin: float
    position: str = ""
    velocity: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    brake: tuple[float, ...] = ()
    late: float = 0.0


class Fingers(NamedTuple):
    """Of a hand: by component, whether a greater command closes it (1), a smaller one (-1), or neither (0); the signals
    that say something of its joints; and by component of its place, which of their values do."""

    closes: tuple[float, ...]
    said: frozenset[str]
    parts: tuple[tuple[int, ...], ...]


class Ages(NamedTuple):
    """How old [s] what a topic brings may be: since it came, and by its stamp when it comes; None: nobody asks.
    ``read``: whether a rule or a stop reads some of it."""

    stale_s: float
    stamps_s: float | None
    read: bool = True


@dataclass(frozen=True)
class Profile:
    """What holds for one command of a robot; see the module's text. ``limits``: of its motion, a step is a period;
    ``ages``: by state topic of an interface (:func:`temporeal_bridge.guard.config_checks.profile_on`), none: all the
    profile's."""

    limits: Bounds
    stop: Mapping[str, str]
    stale_after_s: float
    silent_after_s: float
    stamps_within_s: float | None = None
    geofence: Fence | None = None
    frozen: Frozen | None = None
    jump: Mapping[str, float] | None = None
    agree: tuple[Agree, ...] = ()
    attitudes: frozenset[str] = frozenset()  # those of ``jump`` that are unit quaternions
    velocities: frozenset[str] = frozenset()  # those of ``jump`` that are speeds of joints or bodies
    violated: str = "warn"
    estop: Estop = Estop()
    blend_s: float = 0.5
    unlock_below_m: float | None = None
    level: Mapping[str, float] | None = None
    tracking: Tracking | None = None
    effort: Effort | None = None
    ends: Ends | None = None
    start: Start | None = None
    self_collision: SelfCollision | None = None
    fingers: Fingers | None = None
    ages: Sequence[Ages] = ()

    def age(self, topic: int) -> Ages:
        """How old what state topic number ``topic`` brings may be."""
        return self.ages[topic] if self.ages else Ages(self.stale_after_s, self.stamps_within_s)

    @cached_property
    def oldest_s(self) -> float:
        """How old the oldest part of a state may be that a command is made of."""
        return max((age.stale_s for age in self.ages if age.stale_s < inf), default=self.stale_after_s)

    @property
    def joints(self) -> str:
        """Their measured position, where it and not the command says where they come to rest; else ""."""
        rule = self.self_collision
        return self.ends.position if self.ends is not None else "" if rule is None else rule.position

    @cached_property
    def moving(self) -> tuple[Agree, ...]:
        """Places that must change as their rates say: those of ``agree``, and joints whose velocity another rule relies
        on."""
        rules = (rule for rule in (self.ends, self.effort, self.self_collision) if rule is not None and rule.velocity)
        pair = next(((rule.position, rule.velocity) for rule in rules), None)
        if pair is None or pair in ((rule.place, rule.rate) for rule in self.agree):
            return self.agree
        return (*self.agree, Agree(*pair, APART_RAD if self.effort is None else FINGERS_RAD))

    @cached_property
    def witnesses(self) -> frozenset[str]:
        """Signals that tell only whether others lie: no stop is made of them, and none needs them."""
        rates = {rule.rate for rule in self.agree} | set(self.frozen.each if self.frozen else ())
        others = {name for rule, names in self.reads().items() if rule not in ("agree", "frozen") for name in names}
        return frozenset(rates - others - set(self.frozen.signals if self.frozen else ()))

    @property
    def place(self) -> str:
        """Where the robot is measured, as the command says it; "": nothing says that."""
        return self.tracking.signal if self.tracking is not None else "" if self.start is None else self.start.signal

    def reads(self) -> dict[str, Sequence[str]]:
        """Signals by the rule, or the stop action, that reads them."""
        return {
            "geofence": [self.geofence.signal] if self.geofence else (),
            "frozen": (*self.frozen.signals, *self.frozen.each) if self.frozen else (), "jump": list(self.jump or ()),
            "agree": [name for rule in self.agree for name in (rule.place, rule.rate)],
            "tracking": [self.tracking.signal] if self.tracking else (),
            "effort": [self.effort.position, self.effort.velocity] if self.effort else (),
            "ends": [name for name in (self.ends.position, self.ends.velocity) if name] if self.ends else (),
            "self_collision": [name for name in (self.self_collision.position, self.self_collision.velocity) if name]
            if self.self_collision else (),
            "start": [name for name in (self.start.signal, self.start.rests) if name] if self.start else (),
            "level": ("base_quat_w", "height") if "level" in self.stop.values() else (),
            "unlock_below_m": ("height",) if self.unlock_below_m is not None else ()}

    def signals(self) -> set[str]:
        """Names of all those."""
        return {name for names in self.reads().values() for name in names}

    def action(self, code: str) -> str:
        """What to do for a reason of this code."""
        return self.stop.get(code, self.stop["default"])


COMMON = ("stale_after_s", "silent_after_s", "stamps_within_s", "geofence", "frozen", "jump", "agree", "violated",
          "estop", "swap", "unlock_below_m", "level", "commands")
AGES = ("stale_after_s", "stamps_within_s")
OF_COMMAND = ("stop", *AGES, "jump", "agree", "motion", "tracking", "effort", "ends", "start", "self_collision",
              "closes")
LOW_M = 0.5  # m: motors may be cut below; chosen: a fall from there ends at 3 m/s, and larger quadrotors stand so high
LONGEST = 4.0  # times max_s: even a quadrotor that says it sinks is down after that, or its state lies
LEVEL: dict[str, tuple[str, Callable[[float], bool]]] = {  # what each parameter is, and whether a number is it
    "descend": ("from 0.5 and below 1: a share of the hover thrust, from 1 on the robot climbs, with less it falls",
                lambda v: 0.5 <= v < 1),
    **dict.fromkeys(("gain", "limit"), ("from 0.5 to 20: with less it does not level", lambda v: 0.5 <= v <= 20)),
    "landed_m": (f"from 0 to {LOW_M:g} m: below it the motors are cut, and the robot falls", lambda v: 0 <= v <= LOW_M),
    "max_s": ("from 1 to 60 s: after it a robot that does not sink is let down", lambda v: 1 <= v <= 60),
    "blind_s": ("from 0 to 2 s: blind nobody knows where it goes", lambda v: 0 <= v <= 2),
    "sink_m_s": ("from 0.15 to 1 m/s: slower is not seen in the height, faster is a crash", lambda v: 0.15 <= v <= 1),
    "sink_gain": ("from 0.05 to 5 s/m: with less it is not brought to sink_m_s, with more it shakes",
                  lambda v: 0.05 <= v <= 5)}
BELOW_M = 0.3  # under landed_m: so far may the floor seem to be away; lower no robot is in flight, and the height that
# cuts the motors would be one of its flight. Chosen
AT_MOST_S = 5.0  # of times after which something counts as wrong. Chosen: longer, and nobody would be stopped for it
SINK = {"sink_m_s": 0.3, "sink_gain": 0.5}
"""Parameters of level that may be left out, both chosen: m/s, a drop from 5 mm; s/m, what it is off by is gone with a
time constant of 0.2 s, slower than state, command and motors are late (0.05 to 0.1 s)."""
MOTION = ("margin", "speed", "acceleration", "jerk")
SANE = (1e-6, 1e6)  # limits of motion, in SI; chosen: no robot's are beyond, and 1e308 is what nobody can reckon with


def profile(robot: RobotSpec, content: Mapping[str, Any], spec: CommandSpec, period: float) -> Profile:
    """The profile of ``robot`` for its command ``spec``, sent every ``period`` [s]; ``content``: the YAML section."""
    legal("safety", content, COMMON, ("stale_after_s", "silent_after_s", "commands"))
    commands = content["commands"]
    legal("safety.commands", commands, list(robot.commands))
    if spec.name not in commands:
        raise SafetyError(f"safety.commands has no section for {spec.name!r}; it has: {', '.join(commands)}")
    where, own = f"safety.commands.{spec.name}", commands[spec.name]
    legal(where, own, OF_COMMAND, ("stop",))
    seconds("safety.stale_after_s", content["stale_after_s"])
    stale, stamps = (shorter(where, name, own, content) for name in AGES)
    assert stale is not None
    level = content.get("level")
    if level is not None:
        legal("safety.level", level, list(LEVEL), [name for name in LEVEL if name not in SINK])
        level = {name: parameter(name, value) for name, value in {**SINK, **level}.items()}
    silent = seconds("safety.silent_after_s", content["silent_after_s"])
    if silent < 2 * period:
        raise SafetyError(f"safety.silent_after_s is {silent:g} s, but this artifact's commands come every {period:g} "
                          "s: at least two periods are needed, or every late step would stop the robot")
    violated = content.get("violated", "warn")
    if violated not in ("stop", "warn"):
        raise SafetyError(f"safety.violated is {violated!r}; legal: stop, warn")
    common, extra = jump("safety.jump", robot, content.get("jump")), jump(f"{where}.jump", robot, own.get("jump"))
    leaps = common if extra is None else {**(common or {}), **extra}
    pairs = {**agree("safety.agree", robot, content.get("agree")), **agree(f"{where}.agree", robot, own.get("agree"))}
    return Profile(
        limits=motion_limits(f"{where}.motion", own.get("motion"), spec, period),
        stop=stop_actions(f"{where}.stop", own["stop"], spec, robot, level,
                          own.get("tracking") is not None or own.get("start") is not None),
        stale_after_s=stale, silent_after_s=silent,
        stamps_within_s=stamps,
        geofence=fence(robot, content.get("geofence"), level), frozen=frozen(robot, content.get("frozen")),
        jump=leaps, agree=tuple(pairs.values()), attitudes=of_unit(robot, leaps or (), "wxyz"),
        velocities=of_unit(robot, leaps or (), "rad/s", "m/s"),
        violated=violated, estop=estop(content.get("estop"), period),
        blend_s=blend(content.get("swap")),
        unlock_below_m=unlock_height(content.get("unlock_below_m")), level=level,
        tracking=tracking(f"{where}.tracking", robot, own.get("tracking"), spec),
        effort=effort(f"{where}.effort", robot, own.get("effort"), spec),
        ends=ends(f"{where}.ends", robot, own.get("ends"), spec, period),
        start=start(f"{where}.start", robot, own.get("start"), spec),
        self_collision=self_collision(f"{where}.self_collision", robot, own, spec),
        fingers=fingers(where, robot, own, spec, content))


def parameter(name: str, value: Any) -> float:
    """A parameter of ``level``."""
    rule, good = LEVEL[name]
    if not is_number(value) or not good(value):
        raise SafetyError(f"safety.level.{name} is {value!r}; a number is needed {rule}")
    return float(value)


def unlock_height(value: Any) -> float | None:
    """Below it [m] a robot stands on the ground, and may have the setpoint that would cut its motors."""
    if value is not None and not (is_number(value) and 0 < value <= LOW_M):
        raise SafetyError(f"safety.unlock_below_m is {value!r}; a number above 0 and up to {LOW_M:g} m is needed: in "
                          "the air a zero setpoint cuts the motors")
    return None if value is None else float(value)


def shorter(where: str, name: str, own: Mapping[str, Any], content: Mapping[str, Any]) -> float | None:
    """A time of all commands, or this command's ``own``, which may only be shorter."""
    common, value = (None if row.get(name) is None else seconds(f"{place}.{name}", row[name])
                     for place, row in (("safety", content), (where, own)))
    if value is not None and common is not None and value > common:
        raise SafetyError(f"{where}.{name} is {value:g} s, longer than safety.{name}, {common:g} s: it may only be "
                          "shorter")
    return common if value is None else value


def motion_limits(where: str, row: Mapping[str, Any] | None, spec: CommandSpec, period: float) -> Bounds:
    """Limits of place (the command's own, a margin inside them), speed, acceleration and jerk."""
    row = {} if row is None else row
    legal(where, row, MOTION)
    margin = components(f"{where}.margin", row.get("margin", 0.0), spec.size, at_least=0.0)
    rates: dict[str, Any] = {
        name: sane(f"{where}.{name}", row[name], spec.size)
        for name in MOTION[1:] if row.get(name) is not None}
    try:
        return Bounds([lo + m for lo, m in zip(spec.low, margin)], [hi - m for hi, m in zip(spec.high, margin)],
                      period, **rates)
    except MotionError as error:
        raise SafetyError(f"{where}: {error}") from error


def stop_actions(
    where: str, row: Mapping[str, str], spec: CommandSpec, robot: RobotSpec, level: Any, placed: bool
) -> Mapping[str, str]:
    """Action by code of the reason, ``default`` for the others. ``placed``: whether a section says where a robot that
    is told places is measured."""
    legal(where, row, ("default", *CODES), ("default",))
    for code, action in row.items():
        if not isinstance(action, str) or action not in ACTIONS:
            raise SafetyError(f"{where}.{code} is {action!r}; legal: {', '.join(ACTIONS)}")
        if action != ONLY.get(code, action):
            raise SafetyError(f"{where}.{code} is {action!r}; legal: {ONLY[code]} alone, which needs not be said")
        if action == "level" and (robot.kind != "quadrotor" or spec.name != "ctbr_cmd" or level is None):
            raise SafetyError(f"{where}.{code}: level needs a quadrotor's ctbr_cmd and the section safety.level")
        if action in NEEDS and not set(spec.unit.split(",")) <= set(NEEDS[action]):
            raise SafetyError(f"{where}.{code}: {action} needs a command in {' or '.join(NEEDS[action])}; {spec.name} "
                              f"is in {spec.unit}")
        if action == "hold" and not placed:
            raise SafetyError(f"{where}.{code}: hold needs the section tracking, or start: they say where the robot is "
                              "measured")
    return {**row, **ONLY}


def fingers(
    where: str, robot: RobotSpec, own: Mapping[str, Any], spec: CommandSpec, content: Mapping[str, Any]
) -> Fingers | None:
    """What closes a hand, and what shows that its joints' places are of now."""
    signs = own.get("closes")
    if signs is None:
        return None
    good = isinstance(signs, list) and len(signs) == spec.size and all(is_number(s) and s in (-1, 0, 1) for s in signs)
    if not good:
        raise SafetyError(f"{where}.closes is {signs!r}; {spec.size} numbers are needed, one for each component of "
                          f"{spec.name}: 1 where a greater value closes the hand, -1 where a smaller one does, 0 "
                          "where neither does")
    measured = own.get("tracking") or own.get("start") or {}
    if "hold" not in own["stop"].values() or not measured.get("signal"):
        raise SafetyError(f"{where}.closes is for the stop hold, and needs a section tracking or start: that says "
                          "where the hand is measured")
    place = robot.signals[measured["signal"]]
    alive = (content.get("frozen") or {}).get("signals") or ()
    said = {place.name, *(name for name in alive if robot.signals[name].shape == place.shape)}
    return Fingers(tuple(float(s) for s in signs), frozenset(said), tuple((i,) for i in range(place.size)))


def check_carried(profile: Profile, carried: Collection[str]) -> None:
    """Refuse a profile that watches, or stops by, a signal that no topic brings: it would be checked by nobody."""
    for where, names in profile.reads().items():
        for name in names:
            if name not in carried:
                raise SafetyError(f"safety: {where} needs {name!r}, which no topic of the interface carries; carried: "
                                  f"{', '.join(carried)}")


def check_setpoint(profile: Profile, led: bool) -> None:
    """Refuse the servos' law for a command that is no setpoint of theirs: the robot is ``led`` along a trajectory."""
    if profile.effort is not None and led:
        raise SafetyError("safety: effort needs an interface whose command is the servos' setpoint. The points of a "
                          "trajectory lie ahead of it: what they will ask for, no state says yet. Take an interface of "
                          "single positions, or leave effort out and limit it in the robot's own controller")


def fence(
    robot: RobotSpec, row: Mapping[str, Any] | None, level: Mapping[str, float] | None = None
) -> Fence | None:
    """The geofence; with ``level`` a robot comes down from everywhere in it, and flies where it has not landed."""
    if row is None:
        return None
    legal("safety.geofence", row, ("signal", "low", "high"), ("signal", "low", "high"))
    known_signal("safety.geofence.signal", robot, row["signal"])
    shape = robot.signals[row["signal"]].shape
    if shape != (3,):
        raise SafetyError(f"safety.geofence.signal is {row['signal']!r} of shape {shape}; a position (3,) is needed")
    places = [name for name, other in robot.signals.items() if (other.shape, other.unit) == (shape, "m")]
    if row["signal"] not in places:
        raise SafetyError(f"safety.geofence.signal is {row['signal']!r} in {robot.signals[row['signal']].unit}; a "
                          f"position (3,) in m is needed: {', '.join(places) or 'there is none'}")
    low, high = (components(f"safety.geofence.{end}", row[end], 3, at_least=-np.inf) for end in ("low", "high"))
    if any(lo >= hi for lo, hi in zip(low, high)):
        raise SafetyError(f"safety.geofence: low {list(low)} must be below high {list(high)}")
    if level is not None:
        lowest, sunk = level["landed_m"] - BELOW_M, LONGEST * level["max_s"] * level["sink_m_s"]
        highest = level["landed_m"] + sunk
        if low[2] < lowest:
            raise SafetyError(f"safety.geofence.low is {list(low)}; with safety.level its z must be at least "
                              f"{lowest:g} m, {BELOW_M:g} m below landed_m: below that height the motors are cut")
        if high[2] > highest:
            raise SafetyError(f"safety.geofence.high is {list(high)}; with safety.level its z may be at most "
                              f"{highest:g} m, from which level comes down in time: {LONGEST:g} max_s sink_m_s, "
                              f"{sunk:g} m, above landed_m")
    return Fence(row["signal"], low, high)


def frozen(robot: RobotSpec, row: Mapping[str, Any] | None) -> Frozen | None:
    """Signals that must change."""
    if row is None:
        return None
    legal("safety.frozen", row, ("signals", "each", "after_s"), ("signals", "after_s"))
    lists = {key: row[key] for key in ("signals", "each") if key in row}
    for key, names in lists.items():
        if not isinstance(names, (list, tuple)) or not names:
            raise SafetyError(f"safety.frozen.{key} is {names!r}; a list of signals is needed")
        for name in names:
            known_signal(f"safety.frozen.{key}", robot, name)
    after = seconds("safety.frozen.after_s", row["after_s"])
    return Frozen(tuple(lists["signals"]), after, tuple(lists.get("each", ())))


def jump(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> Mapping[str, float] | None:
    """Largest changes of signals."""
    if row is None:
        return None
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where} is {row!r}; a mapping from signals to their largest changes is needed")
    for name in row:
        known_signal(where, robot, name)
    out = {name: positive(f"{where}.{name}", value) for name, value in row.items()}
    for name in of_unit(robot, out, "wxyz"):
        if out[name] >= np.pi:
            raise SafetyError(f"{where}.{name} is {out[name]:g}; an angle below pi rad is needed: none is greater")
    return out


def agree(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> dict[str, Agree]:
    """By its name, each place that must change as its rate says."""
    if row is None:
        return {}
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where} is {row!r}; a mapping from places to rate and within is needed")
    out = {}
    for name, own in row.items():
        here = f"{where}.{name}"
        known_signal(where, robot, name)
        legal(here, own, ("rate", "within"), ("rate", "within"))
        unit = robot.signals[name].unit
        if unit == "wxyz":
            turning(f"{here}.rate", robot, own["rate"], name)
        else:
            velocity_of(here, robot, own["rate"], name, "rate")
        within = positive(f"{here}.within", own["within"])
        if unit == "wxyz" and within >= np.pi:
            raise SafetyError(f"{here}.within is {within:g}; an angle below pi rad is needed: none is greater")
        forgotten = {"wxyz": TURNED_S, "m": WENT_S}.get(unit, APART_S)
        out[name] = Agree(name, own["rate"], within, unit, forgotten, STANDS)
    return out


def turning(where: str, robot: RobotSpec, name: str, attitude: str) -> None:
    """The robot has the signal, and it is how fast the ``attitude`` turns about the body's axes."""
    known_signal(where, robot, name)
    spec = robot.signals[name]
    if (spec.shape, spec.unit, spec.frame) != ((3,), "rad/s", "b"):
        rates = [each for each, other in robot.signals.items()
                 if (other.shape, other.unit, other.frame) == ((3,), "rad/s", "b")]
        raise SafetyError(f"{where}: {name} of shape {spec.shape} is in {spec.unit}, frame {spec.frame!r}; {attitude} "
                          "is an attitude, so body rates (3,) in rad/s, frame 'b', are needed: "
                          f"{', '.join(rates) or 'there are none'}")


def of_unit(robot: RobotSpec, names: Collection[str], *units: str) -> frozenset[str]:
    """Those of the signals ``names`` that have one of these units."""
    return frozenset(name for name in names if robot.signals[name].unit in units)


def estop(row: Mapping[str, Any] | None, period: float) -> Estop:
    """The operator's stop, of a guard that looks every ``period`` [s]."""
    row = {} if row is None else row
    legal("safety.estop", row, ("required", "heartbeat_s"))
    required = row.get("required", False)
    if not isinstance(required, bool):
        raise SafetyError(f"safety.estop.required is {required!r}; legal: true, false")
    heartbeat = row.get("heartbeat_s", Estop.heartbeat_s)
    heartbeat = None if heartbeat is None else seconds("safety.estop.heartbeat_s", heartbeat)
    if required and heartbeat is None:
        raise SafetyError("safety.estop: a required stop needs a heartbeat_s, or its loss would not be seen")
    if heartbeat is not None and heartbeat < 2 * period:
        raise SafetyError(f"safety.estop.heartbeat_s is {heartbeat:g} s, but the guard looks every {period:g} s: at "
                          "least two periods are needed, or a button that is well would count as silent")
    return Estop(required, heartbeat)


def blend(row: Mapping[str, Any] | None) -> float:
    """Seconds in which one artifact's command becomes another's."""
    row = {} if row is None else row
    legal("safety.swap", row, ("blend_s",))
    return positive("safety.swap.blend_s", row.get("blend_s", Profile.blend_s))


def tracking(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Tracking | None:
    """How far the robot may be behind."""
    if row is None:
        return None
    legal(where, row, ("signal", "error", "after_s"), ("signal", "error", "after_s"))
    size = measured(f"{where}.signal", robot, row["signal"], spec, spec.unit)
    return Tracking(row["signal"], components(f"{where}.error", row["error"], size),
                    positive(f"{where}.after_s", row["after_s"]))


def effort(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Effort | None:
    """The servo's law."""
    if row is None:
        return None
    keys = ("position", "velocity", "kp", "kd", "limit")
    legal(where, row, keys, keys)
    if is_rate(spec):
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}; effort is the law of servos that are given places. "
                          "What holds a speed or an effort is ends")
    size = measured(f"{where}.position", robot, row["position"], spec, spec.unit)
    velocity_of(where, robot, row["velocity"], row["position"])
    kp, limit = (components(f"{where}.{key}", row[key], size) for key in ("kp", "limit"))
    return Effort(row["position"], row["velocity"], kp, components(f"{where}.kd", row["kd"], size, at_least=0.0), limit)


def is_rate(spec: CommandSpec) -> bool:
    """Whether the command is a speed or an effort: 0 is its rest, wherever the robot is."""
    return set(spec.unit.split(",")) <= set(RATES)


def ends(
    where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec, period: float
) -> Ends | None:
    """How fast joints may be near the ends of their range."""
    if row is None:
        return None
    if not is_rate(spec):
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}; ends hold commands in {' or '.join(RATES)}: "
                          "places have limits of their own")
    pushes = spec.unit in EFFORTS
    own = ("velocity", "gain", "period_s") if pushes else ()
    needed = ("position", "range", "brake", "speed", *own)
    legal(where, row, (*needed, "margin", *(() if pushes else ("late_s",))), needed)
    longest = positive(f"{where}.period_s", row["period_s"]) if pushes else np.inf
    if period > longest + 1e-9:
        raise SafetyError(f"{where}.period_s is {longest:g} s, but this artifact's commands come every {period:g} s: "
                          "efforts that damp by older velocities shake the robot instead")
    size = measured(f"{where}.position", robot, row["position"], spec, place_units(spec))
    if pushes:
        velocity_of(where, robot, row["velocity"], row["position"])
    limits = place_range(f"{where}.range", robot, row["range"], size)
    margin = components(f"{where}.margin", row.get("margin", 0.0), size, at_least=0.0)
    low, high = (tuple(end + sign * m for end, m in zip(each[:size], margin))
                 for each, sign in ((limits.low, 1.0), (limits.high, -1.0)))
    if any(lo >= hi for lo, hi in zip(low, high)):
        raise SafetyError(f"{where}.margin is {row['margin']!r}: it leaves nothing of the range of {row['range']}")
    brake, speed = (sane(f"{where}.{key}", row[key], size) for key in ("brake", "speed"))
    if not pushes:
        late = period + positive(f"{where}.late_s", row.get("late_s", 0.0), or_zero=True)
        return Ends(row["position"], low, high, brake, speed, late=late)
    return Ends(row["position"], low, high, brake, speed, row["velocity"], components(
        f"{where}.gain", row["gain"], size))


def start(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Start | None:
    """Where and how commands begin."""
    if row is None:
        return None
    rate, near = is_rate(spec), ("signal", "within")
    needed = ("ramp_s",) if rate and isinstance(row, Mapping) and not set(near) & set(row) else (*near, "ramp_s")
    legal(where, row, (*near, "ramp_s", *(("at_rest",) if rate else ())), needed)
    ramp = positive(f"{where}.ramp_s", row["ramp_s"], or_zero=True)
    still = at_rest(f"{where}.at_rest", robot, row.get("at_rest"))
    if "signal" not in needed:
        return Start("", (), ramp, *still)
    size = measured(f"{where}.signal", robot, row["signal"], spec, spec.unit)
    return Start(row["signal"], components(f"{where}.within", row["within"], size), ramp, *still)


def at_rest(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> tuple[str, tuple[float, ...]]:
    """What must be how small before speeds or efforts begin."""
    if row is None:
        return "", ()
    legal(where, row, ("signal", "below"), ("signal", "below"))
    measured_speed(f"{where}.signal", robot, row["signal"])
    return row["signal"], components(f"{where}.below", row["below"], robot.signals[row["signal"]].size)


def self_collision(where: str, robot: RobotSpec, own: Mapping[str, Any], spec: CommandSpec) -> SelfCollision | None:
    """The robot's shapes, from its model; the joints are those of the signal. ``own``: the command's section."""
    row = own.get("self_collision")
    if row is None:
        return None
    braked = ("velocity", "range", "brake", "late_s")
    seen = isinstance(row, Mapping) and is_rate(spec) and bool(set(braked) & set(row))
    needed = ("signal", "margin", *(braked if seen else ()))
    legal(where, row, needed, needed)
    ends = own.get("ends")
    if seen and ends is not None:
        raise SafetyError(f"{where}: {', '.join(braked)} are for commands without ends, which say where a robot rests")
    if is_rate(spec) and not seen and (ends or {}).get("position") != row["signal"]:
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}: where the robot comes to rest is known by the "
                          f"section ends of the same position, {row['signal']!r}, or by {', '.join(braked)} here")
    known_signal(f"{where}.signal", robot, row["signal"])
    margin, source = positive(f"{where}.margin", row["margin"]), robot.sources.get(row["signal"])
    if robot.model is None or source is None or source.what != "joint_pos":
        raise SafetyError(f"{where}: robot {robot.name!r} has no model whose joints are {row['signal']!r}")
    if not seen:
        measured(f"{where}.signal", robot, row["signal"], spec, place_units(spec))
    try:
        found = capsules_of(robot.model, source.names, tuple(robot.home[row["signal"]]), margin)
    except RobotFileError as error:
        raise SafetyError(f"{where}: {error}") from error
    if not seen:
        return SelfCollision(found, margin)
    size = robot.signals[row["signal"]].size
    velocity_of(where, robot, row["velocity"], row["signal"])
    limits = place_range(f"{where}.range", robot, row["range"], size)
    brake = sane(f"{where}.brake", row["brake"], size)
    return SelfCollision(found, margin, row["signal"], row["velocity"], limits.low[:size], limits.high[:size], brake,
                         positive(f"{where}.late_s", row["late_s"], or_zero=True))


def place_range(where: str, robot: RobotSpec, name: Any, size: int) -> CommandSpec:
    """The command whose limits are the range of measured joints."""
    known = [each for each, other in robot.commands.items() if set(other.unit.split(",")) <= set(PLACES)]
    if name not in known or robot.commands[name].size < size:
        raise SafetyError(f"{where} is {name!r}; a command of {robot.name!r} in {' or '.join(PLACES)} is needed, with "
                          f"{size} components or more: {', '.join(known) or 'there is none'}")
    return robot.commands[name]


def measured(where: str, robot: RobotSpec, name: str, spec: CommandSpec, units: str) -> int:
    """Size of a signal that measures the first components of the command, or of what it moves, in ``units``."""
    known_signal(where, robot, name)
    size = robot.signals[name].size
    if size > spec.size:
        raise SafetyError(f"{where}: {name} has {size} components, {spec.name} only {spec.size}")
    in_units(where, robot, name, units, f"{spec.name}, which is in {spec.unit},", spec.size)
    return size


def place_units(spec: CommandSpec) -> str:
    """Units of the places that the command says, or that its speeds or efforts change."""
    return ",".join(MOVED.get(unit, unit) for unit in spec.unit.split(","))


def in_units(where: str, robot: RobotSpec, name: str, units: str, whose: str, size: int) -> None:
    """The signal has the first of the ``units``, or all of them; ``whose``: what needs it, with ``size`` components at
    most."""
    parts = units.split(",")
    good = [",".join(parts[: k + 1]) for k in range(len(parts))]
    if robot.signals[name].unit not in good:
        others = [each for each, other in robot.signals.items() if other.unit in good and other.size <= size]
        raise SafetyError(f"{where}: {name} is in {robot.signals[name].unit}; {whose} needs a signal in "
                          f"{' or '.join(good)}: {', '.join(others) or 'there is none'}")


def velocity_of(where: str, robot: RobotSpec, name: str, position: str, key: str = "velocity") -> None:
    """The robot has the signal, and it is how fast the ``position`` changes."""
    known_signal(f"{where}.{key}", robot, name)
    signals = robot.signals
    if signals[name].size != signals[position].size:
        raise SafetyError(f"{where}: {position} and {name} differ in size")
    measured_speed(f"{where}.{key}", robot, name)
    units = ",".join(f"{unit}/s" for unit in signals[position].unit.split(","))
    if signals[name].unit != units:
        raise SafetyError(f"{where}.{key}: {name} is in {signals[name].unit}; {position} is in "
                          f"{signals[position].unit}, so a signal in {units} is needed")


def known_signal(where: str, robot: RobotSpec, name: str) -> None:
    """The robot has the signal."""
    if not isinstance(name, str) or name not in robot.signals:
        raise SafetyError(f"{where}: robot {robot.name!r} has no signal {name!r}; known: {', '.join(robot.signals)}")


def measured_speed(where: str, robot: RobotSpec, name: str) -> None:
    """The robot has the signal, and it is a speed."""
    known_signal(where, robot, name)
    speeds = [each for each, other in robot.signals.items() if set(other.unit.split(",")) <= set(SPEEDS)]
    if name not in speeds:
        raise SafetyError(f"{where}: {name} is in {robot.signals[name].unit}; a signal in {' or '.join(SPEEDS)} is "
                          f"needed: {', '.join(speeds) or 'there is none'}")


def legal(where: str, row: Any, keys: Sequence[str], needed: Sequence[str] = ()) -> None:
    """``row`` is a mapping that has the ``needed`` keys and no others than ``keys``."""
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where}: a mapping with {', '.join(keys)} is needed, got {row!r}")
    unknown, missing = sorted(set(row) - set(keys), key=str), sorted(set(needed) - set(row))
    if unknown or missing:
        told = f"there is no key {unknown[0]!r}" if unknown else f"the key {missing[0]!r} is missing"
        raise SafetyError(f"{where}: {told}; legal: {', '.join(keys)}")


def components(where: str, value: Any, size: int, at_least: float | None = None) -> tuple[float, ...]:
    """``size`` finite numbers, or one for all; positive, unless ``at_least`` says otherwise."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) not in (1, size) or not all(map(is_number, values)):
        raise SafetyError(f"{where} is {value!r}; {size} numbers, or one for all, are needed, each finite")
    array = np.broadcast_to(np.array(values, dtype=float), (size,))
    good = (array > 0) if at_least is None else (array >= at_least)
    if not good.all():
        rule = "positive" if at_least is None else "finite" if at_least == -np.inf else f"at least {at_least:g}"
        raise SafetyError(f"{where} is {value!r}; each must be {rule}")
    return tuple(float(x) for x in array)


def sane(where: str, value: Any, size: int) -> tuple[float, ...]:
    """Limits of motion, ``size`` or one for all."""
    out = components(where, value, size)
    least, most = SANE
    if not all(least <= limit <= most for limit in out):
        raise SafetyError(f"{where} is {value!r}; each must be from {least:g} to {most:g}: no robot has others, and "
                          "nobody can reckon with them")
    return out


def positive(where: str, value: Any, or_zero: bool = False) -> float:
    """A positive number."""
    if not is_number(value) or not (value > 0 or (or_zero and value == 0)):
        raise SafetyError(f"{where} is {value!r}; a {'number from 0' if or_zero else 'positive number'} is needed")
    return float(value)


def seconds(where: str, value: Any) -> float:
    """A positive time [s] after which something counts as wrong."""
    if (found := positive(where, value)) > AT_MOST_S:
        raise SafetyError(f"{where} is {found:g} s; at most {AT_MOST_S:g} s is legal: later a stop helps nobody")
    return found
