"""The safety profile: what the guard requires for one command of a robot, as frozen data.

:mod:`temporeal_bridge.guard.safety.section` makes it from ``ros.yaml`` and describes every key. [A]: components of the
command, [B]: of a measured signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from temporeal.robots.motion.collision import Capsules
from temporeal.robots.motion.rate_limiter import Bounds

# How far joints may deviate from their integrated velocity, and the time constant with which that is forgotten: a
# steady error of 0.5 rad/s is found. Chosen: a velocity that is 20 ms late at 3 rad/s is off by 0.06 rad.
APART_RAD, APART_S = 0.1, 0.2
FINGERS_RAD = 0.2  # the same for servos with an effort limit: fingers reach 7 rad/s
GAP_S = 0.1  # after longer gaps between samples a position is not compared with its rate, and may jump farther


@dataclass(frozen=True)
class Fence:
    """A box [3] in m that a position signal must not leave (frame of the signal)."""

    signal: str
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Frozen:
    """On a moving robot, all of ``signals`` together, or one of ``each``, must not stay bit-identical for
    ``after_s``."""

    signals: tuple[str, ...]
    after_s: float
    each: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agree:
    """A ``place`` [unit] must change as its ``rate`` says. The deviation may be ``within``, and is forgotten with the
    time constant ``forgotten_s``. For an attitude (wxyz) both are rotations about the body's axes, in rad. A place
    that is bit-identical while its rate integrates to more than ``stands`` is frozen (inf: not checked)."""

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
        """Unit of the deviation."""
        return "rad" if self.turns else self.unit


@dataclass(frozen=True)
class Tracking:
    """The command may differ by ``error`` [A] from the measured ``signal`` for at most ``after_s``."""

    signal: str
    error: tuple[float, ...]
    after_s: float


@dataclass(frozen=True)
class Effort:
    """The servo law ``kp (command - position) - kd velocity``. No command may ask for more than ``limit`` of it, even
    if it must then move faster than the limits of motion."""

    position: str
    velocity: str
    kp: tuple[float, ...]
    kd: tuple[float, ...]
    limit: tuple[float, ...]


@dataclass(frozen=True)
class Ends:
    """Limits for commands in rad/s or N m, whose first components move the measured ``position``: towards the ends
    ``low`` and ``high`` [B] a joint may be only as fast as ``brake`` [B] can stop, and never faster than ``speed`` [B].
    ``gain`` [B] and the measured ``velocity`` are for efforts; ``late`` [s], the delay until a joint has the commanded
    speed, for speeds."""

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
    """The first command must be ``within`` [A] of the measured ``signal``, from which commands are faded in over
    ``ramp_s``. Without a signal they begin at 0 (speeds and efforts). Before those each component of the measured
    ``rests`` must be ``below`` its limit ("": not checked)."""

    signal: str
    within: tuple[float, ...]
    ramp_s: float
    rests: str = ""
    below: tuple[float, ...] = ()


@dataclass(frozen=True)
class Estop:
    """Topic ``estop`` (std_msgs/Bool). Once heard, it must be heard every ``heartbeat_s`` (None: not required)."""

    required: bool = False
    heartbeat_s: float | None = 0.5


@dataclass(frozen=True)
class SelfCollision:
    """Where the robot would come to rest, its links (:mod:`temporeal.robots.motion.collision`) must be ``margin`` [m]
    apart, or no closer than before; if measured joints decide, no closer than when the mission began.

    Where the command does not say where the robot rests: the measured joints ``position`` [B], between ``low`` and
    ``high`` [B], go on with their measured ``velocity`` for ``late`` [s] and then brake with ``brake`` [B]
    ("": the command says it)."""

    capsules: Capsules
    margin: float
    position: str = ""
    velocity: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    brake: tuple[float, ...] = ()
    late: float = 0.0


class Fingers(NamedTuple):
    """A hand: by component of the command, whether a greater value closes it (1), a smaller one (-1), or neither (0);
    the ``signals`` that report its joints; and by component of its place the indices of their values (``parts``)."""

    closes: tuple[float, ...]
    signals: frozenset[str]
    parts: tuple[tuple[int, ...], ...]


class Ages(NamedTuple):
    """The largest ages [s] of a topic's messages: since arrival, and by the stamp at arrival; None: not checked.
    ``read``: whether a rule or a stop action reads one of its signals."""

    stale_s: float
    stamps_s: float | None
    read: bool = True


@dataclass(frozen=True)
class Profile:
    """The requirements for one command of a robot.

    Args:
        limits: of the command's motion; a step is a control period.
        stop: stop action by code of the reason, and ``default``.
        attitudes, velocities: those signals of ``jump`` that are unit quaternions; that are speeds.
        ages: by state topic of an interface (:func:`temporeal_bridge.guard.safety.config_checks.profile_on`); empty:
            the common ones for every topic.
    """

    limits: Bounds
    stop: Mapping[str, str]
    stale_after_s: float
    silent_after_s: float
    stamps_within_s: float | None = None
    geofence: Fence | None = None
    frozen: Frozen | None = None
    jump: Mapping[str, float] | None = None
    agree: tuple[Agree, ...] = ()
    attitudes: frozenset[str] = frozenset()
    velocities: frozenset[str] = frozenset()
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

    def action(self, code: str) -> str:
        """The stop action for a reason of this code."""
        return self.stop.get(code, self.stop["default"])

    def age(self, topic: int) -> Ages:
        """The largest ages of state topic number ``topic``."""
        return self.ages[topic] if self.ages else Ages(self.stale_after_s, self.stamps_within_s)

    @cached_property
    def oldest_s(self) -> float:
        """The largest age of any part of a state that a command is made of."""
        return max((age.stale_s for age in self.ages if age.stale_s < inf), default=self.stale_after_s)

    @property
    def joints(self) -> str:
        """The measured joint position, where that and not the command says where joints come to rest; else ""."""
        rule = self.self_collision
        return self.ends.position if self.ends is not None else "" if rule is None else rule.position

    @property
    def place(self) -> str:
        """The signal that measures what the command sets; "": there is none."""
        return self.tracking.signal if self.tracking is not None else "" if self.start is None else self.start.signal

    @cached_property
    def moving(self) -> tuple[Agree, ...]:
        """Places that must change as their rates say: those of ``agree``, and joints whose velocity another rule
        uses."""
        rules = (rule for rule in (self.ends, self.effort, self.self_collision) if rule is not None and rule.velocity)
        pair = next(((rule.position, rule.velocity) for rule in rules), None)
        if pair is None or pair in ((rule.place, rule.rate) for rule in self.agree):
            return self.agree
        return (*self.agree, Agree(*pair, APART_RAD if self.effort is None else FINGERS_RAD))

    @cached_property
    def witnesses(self) -> frozenset[str]:
        """Signals that only show whether others are wrong: no stop action uses them."""
        rates = {rule.rate for rule in self.agree} | set(self.frozen.each if self.frozen else ())
        others = {name for rule, names in self.reads().items() if rule not in ("agree", "frozen") for name in names}
        return frozenset(rates - others - set(self.frozen.signals if self.frozen else ()))

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
        """Names of all signals that a rule or stop action reads."""
        return {name for names in self.reads().values() for name in names}

    def decoded(self) -> set[str]:
        """Names of :meth:`signals`, and of those that the stop action level uses if the robot measures them."""
        return self.signals() | ({"base_pos_w", "base_vel_w"} if "level" in self.stop.values() else set())
