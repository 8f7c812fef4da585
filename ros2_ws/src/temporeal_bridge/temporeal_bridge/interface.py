"""A robot's ``ros.yaml`` as checked, frozen data: which topics carry which signals and commands.

A driver need not publish every signal that the robot's spec has, and a task has signals that no robot knows (its goal,
an object's pose): those come from topics of a file of the user's, ``load_interface(robot, name, extra=path)``:

    definitions: {}
    signals:
      goal_pos_w: {shape: [3], unit: m, frame: w}
    states:       # rate_hz 0: sent when it changes (latched); it is waited for, but never stale
      - {topic: goal, type: geometry_msgs/msg/PointStamped, codec: point, rate_hz: 0, qos: latched,
         options: {signal: goal_pos_w, frame: fr3_link0}}

Cameras stand there, too: they belong to a place, not to a robot. What they see is under ``pictures`` (keys as of a
state, and ``max_age_s``), where they are in simulation under ``cameras`` (:mod:`temporeal_bridge.cameras`); a file has
these two parts or not. docs/deploying.md shows one.

What an artifact reads must be carried by some topic: :func:`check_reads`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from robots.course import Course
from robots.signals import SignalError, SignalSpec, check_signal
from robots.spec import RobotSpec
from temporeal_bridge import codecs, messages
from temporeal_bridge.transport import QOS


class InterfaceError(ValueError):
    """``ros.yaml`` is wrong; the message says where, and what is legal."""


@dataclass(frozen=True)
class StateTopic:
    """A topic that carries signals. ``rate_hz`` 0: sent when they change, so their age says nothing."""

    topic: str
    type: str
    codec: str
    rate_hz: float
    qos: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class PictureTopic(StateTopic):
    """A camera's topic: no part of the state, for nobody waits for a picture, and guard and monitor do without.

    ``max_age_s``: a policy that reads it must not act on one that was taken longer ago.
    """

    max_age_s: float


@dataclass(frozen=True)
class CommandTopic:
    """A topic that carries one command to the robot.

    ``also``: companions (heartbeats), published in order just before the command by the step that made it, and by
    nothing else: a robot that watches only the heartbeat must lose it when commands stop being made.
    """

    topic: str
    type: str
    codec: str
    qos: str
    options: Mapping[str, Any]
    also: tuple[CommandTopic, ...] = ()


@dataclass(frozen=True)
class Topic:
    """A topic beside states and commands."""

    topic: str
    type: str
    qos: str


@dataclass(frozen=True)
class Autopilot:
    """What stands between the commands and the motors, arms them and switches modes (:mod:`temporeal_bridge.px4`).

    Args:
        status: where it says its mode.
        orders: where it is told to arm and to switch; None: by its own means only.
        arm: ``"never"``: a pilot arms and switches; ``"ask"``: we do, when the operator asks for it, and only then.
        silent_after_s: a status older than this is none.
        stream_s: how long heartbeats come before a switch is asked for.
        answer_s: how long arming and switching may take.
        start_s: how long it may fly without commands after that.
    """

    status: Topic
    orders: Topic | None
    arm: str
    silent_after_s: float
    stream_s: float
    answer_s: float
    start_s: float


@dataclass(frozen=True)
class Interface:
    """How one robot is talked to.

    Args:
        states: in order; the first is the one whose arrival paces the controller.
        commands: by the name of the command.
        safety, simulation: numbers of the stop behaviour and of the simulated robot.
        carried: by name, the signals that its topics carry: the robot's, or some of them, and those of ``extra``.
        autopilot: what must be asked before commands count; None: nothing.
        offers: by command, the robot's interfaces that have it.
        pictures: what cameras see.
        cameras: by name, where the simulated ones are and what they are like, as the file has it.
    """

    name: str
    states: tuple[StateTopic, ...]
    commands: Mapping[str, CommandTopic]
    safety: Mapping[str, Any]
    simulation: Mapping[str, Any]
    carried: Mapping[str, SignalSpec]
    autopilot: Autopilot | None = None
    offers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pictures: tuple[PictureTopic, ...] = ()
    cameras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[StateTopic, ...]:
        """States, then pictures: the order in which nodes tell of what message of each topic something was made."""
        return (*self.states, *self.pictures)

    @property
    def state(self) -> dict[str, SignalSpec]:
        """Those of the carried signals that are no pictures."""
        seen = {name for row in self.pictures for name in codecs.STATES[row.codec].signals(row.options)}
        return {name: spec for name, spec in self.carried.items() if name not in seen}

    def command(self, name: str) -> CommandTopic:
        """The topic of command ``name``."""
        if name not in self.commands:
            others = ", ".join(self.offers.get(name, ())) or "none of the robot's"
            raise InterfaceError(f"interface {self.name!r} has no topic for {name!r}; it has: "
                                 f"{', '.join(self.commands)}. Interfaces that have it: {others}")
        return self.commands[name]


TOP = ("default", "interfaces", "safety", "simulation")
PARTS = ("description", "definitions", "states", "commands")
STATE = ("topic", "type", "codec", "rate_hz", "qos", "options")
COMMAND = ("topic", "type", "codec", "qos", "options")
EXTRA = ("definitions", "signals", "states")
PICTURE = (*STATE, "max_age_s")
PICTURES = ("pictures", "cameras")  # parts of a file of extra topics that has cameras
AUTOPILOT = tuple(each.name for each in fields(Autopilot))
TOPIC = tuple(each.name for each in fields(Topic))
ARM = ("never", "ask")


def load_interface(
    robot: RobotSpec, name: str | None = None, extra: Path | str | Mapping[str, Any] | None = None
) -> Interface:
    """Interface ``name`` of ``robot`` (None: its default), and the topics of the file ``extra``, or its content.

    Types that plain ROS 2 lacks are defined on the way.
    """
    if robot.ros is None or not robot.ros.exists():
        raise InterfaceError(f"robot {robot.name!r} has no ros.yaml ({robot.ros})")
    more = read(Path(extra), EXTRA) if isinstance(extra, (Path, str)) else extra
    return build(robot, read(robot.ros), name, more)


def read(path: Path, legal: tuple[str, ...] = TOP) -> dict[str, Any]:
    """The YAML file."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InterfaceError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InterfaceError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise InterfaceError(f"{path}: a mapping with {', '.join(legal)} is needed")
    return content


def build(
    robot: RobotSpec, content: Mapping[str, Any], name: str | None, extra: Mapping[str, Any] | None = None
) -> Interface:
    """The interface from the file's content, and ``extra``'s."""
    keys("ros.yaml", content, TOP)
    name = name or content["default"]
    known = content["interfaces"]
    if name not in known:
        raise InterfaceError(f"robot {robot.name!r} has no interface {name!r}; known: {', '.join(known)}")
    part = known[name]
    keys(name, part, PARTS, ("autopilot",))
    messages.define(part["definitions"])
    states = tuple(StateTopic(**keys(f"{name}.states", row, STATE)) for row in part["states"])
    commands = {key: command_topic(f"{name}.commands.{key}", row) for key, row in part["commands"].items()}
    autopilot = autopilot_of(f"{name}.autopilot", part["autopilot"]) if part.get("autopilot") else None
    specs, pictures = dict(robot.signals), tuple[PictureTopic, ...]()
    cameras: Mapping[str, Any] = {}
    if extra is not None:
        more, rows = extra_topics(robot, extra)
        specs, states = {**specs, **more}, (*states, *rows)
        pictures, cameras = picture_topics(extra)
    try:
        carried = check(robot, specs, states, commands, pictures)
    except KeyError as error:
        raise InterfaceError(f"{name}: the option {error} is missing") from error
    lost = sorted(set(specs) - set(robot.signals) - set(carried))
    if lost:
        raise InterfaceError(f"extra signals: no topic carries {lost}")
    offers: dict[str, list[str]] = {}
    for key, other in known.items():
        for command in other.get("commands", ()):
            offers.setdefault(command, []).append(key)
    return Interface(name, states, commands, content["safety"], content["simulation"], carried, autopilot, offers,
                     pictures, cameras)


def extra_topics(
    robot: RobotSpec, content: Mapping[str, Any]
) -> tuple[dict[str, SignalSpec], tuple[StateTopic, ...]]:
    """Signals and rows of a user's file of topics."""
    keys("extra", content, EXTRA, PICTURES)
    messages.define(content["definitions"] or {})
    specs = {}
    for name, row in (content["signals"] or {}).items():
        if name in robot.signals:
            raise InterfaceError(f"extra signal {name!r} is one of robot {robot.name!r}, which declares it already")
        unknown = sorted(set(row) - {"shape", "unit", "frame", "dtype"})
        if unknown or "shape" not in row or "unit" not in row:
            raise InterfaceError(f"extra signal {name!r} has {sorted(row)}; shape and unit are needed, frame and dtype "
                                 f"are legal")
        try:
            specs[name] = SignalSpec(name, **{**row, "shape": tuple(row["shape"])})
        except (SignalError, TypeError) as error:
            raise InterfaceError(f"extra signal {name!r}: {error}") from error
    return specs, tuple(StateTopic(**keys("extra.states", row, STATE)) for row in content["states"] or ())


def picture_topics(content: Mapping[str, Any]) -> tuple[tuple[PictureTopic, ...], Mapping[str, Any]]:
    """Rows and cameras of a user's file of topics."""
    rows, cameras = content.get("pictures") or (), content.get("cameras") or {}
    if not isinstance(rows, (list, tuple)):
        raise InterfaceError(f"extra.pictures: a list of topics is needed, got {rows!r}")
    if not isinstance(cameras, Mapping):
        raise InterfaceError(f"extra.cameras: a mapping from names is needed, got {cameras!r}")
    pictures = tuple(PictureTopic(**keys("extra.pictures", row, PICTURE)) for row in rows)
    for row in pictures:
        for key in ("rate_hz", "max_age_s"):
            value = getattr(row, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < inf:
                raise InterfaceError(f"{row.topic}: {key} is {value!r}; a number above 0 is needed")
        if row.max_age_s < 1.0 / row.rate_hz:
            raise InterfaceError(f"{row.topic}: max_age_s is {row.max_age_s:g}, but between two pictures at "
                                 f"{row.rate_hz:g} Hz there are {1.0 / row.rate_hz:.3g} s already")
    return pictures, cameras


def check_reads(interface: Interface, signals: Iterable[SignalSpec], own: Collection[str] = ("mission_time",)) -> None:
    """Refuse an artifact that reads ``signals`` (its manifest's) of which one is carried by no topic.

    ``own``: signals that the node itself makes. Shape, unit and frame must be those that the topics' signals have.
    """
    for signal in signals:
        if signal.name in own:
            continue
        if signal.name not in interface.carried:
            raise InterfaceError(
                f"the policy reads {signal.name!r}, which no topic of interface {interface.name!r} carries; carried: "
                f"{', '.join(interface.carried)}. A task's own signals come from a file of extra topics")
        theirs = interface.carried[signal.name]
        for part in ("shape", "unit", "frame", "dtype"):
            if getattr(signal, part) != getattr(theirs, part):
                raise InterfaceError(f"signal {signal.name!r}: {part} is {getattr(signal, part)!r} for the policy, "
                                     f"{getattr(theirs, part)!r} on interface {interface.name!r}")


def command_topic(where: str, row: Mapping[str, Any]) -> CommandTopic:
    """A command's row with its companions."""
    also = row.get("also", ())
    if not isinstance(also, (list, tuple)):
        raise InterfaceError(f"{where}.also: a list of topics is needed, got {also!r}")
    companions = tuple(CommandTopic(**keys(f"{where}.also", other, COMMAND)) for other in also)
    return CommandTopic(**{**keys(where, row, COMMAND, ("also",)), "also": companions})


def autopilot_of(where: str, row: Mapping[str, Any]) -> Autopilot:
    """The autopilot's row, checked."""
    row = keys(where, row, AUTOPILOT)
    topics = {key: Topic(**keys(f"{where}.{key}", row[key], TOPIC)) for key in ("status", "orders") if row[key]}
    for topic in topics.values():
        messages.record(topic.type)
        check_qos(topic)
    if "status" not in topics:
        raise InterfaceError(f"{where}.status: a topic is needed")
    if row["arm"] not in ARM:
        raise InterfaceError(f"{where}.arm is {row['arm']!r}; legal: {', '.join(ARM)}")
    if row["arm"] == "ask" and "orders" not in topics:
        raise InterfaceError(f"{where}: arm is 'ask', but there is no topic for orders; legal then: never")
    for key in ("silent_after_s", "stream_s", "answer_s", "start_s"):
        if isinstance(row[key], bool) or not isinstance(row[key], (int, float)) or not 0 < row[key] < 60:
            raise InterfaceError(f"{where}.{key} is {row[key]!r}; a number of seconds above 0 and below 60 is needed")
    return Autopilot(**{**row, "status": topics["status"], "orders": topics.get("orders")})


def armed_by(interface: Interface, arm: str) -> Interface:
    """The interface with another answer to who arms its autopilot; legal: see :class:`Autopilot`."""
    autopilot = interface.autopilot
    if autopilot is None:
        raise InterfaceError(f"interface {interface.name!r} has no autopilot: there is nothing to arm")
    if arm not in ARM:
        raise InterfaceError(f"arm is {arm!r}; legal: {', '.join(ARM)}")
    if arm == "ask" and autopilot.orders is None:
        raise InterfaceError(f"interface {interface.name!r}: its autopilot takes no orders from us; legal: never")
    return replace(interface, autopilot=replace(autopilot, arm=arm))


def keys(where: str, row: Mapping[str, Any], legal: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """``row`` if it has exactly the ``legal`` keys, and perhaps ``optional`` ones."""
    if not isinstance(row, Mapping) or set(row) - set(optional) != set(legal):
        got = sorted(row) if isinstance(row, Mapping) else repr(row)
        more = f", and perhaps {sorted(optional)}" if optional else ""
        raise InterfaceError(f"{where}: keys are {got}, expected exactly {sorted(legal)}{more}")
    return dict(row)


def check_qos(row: StateTopic | CommandTopic | Topic) -> None:
    """A known quality of service."""
    if row.qos not in QOS:
        raise InterfaceError(f"{row.topic}: unknown QoS {row.qos!r}; legal: {', '.join(QOS)}")


def check(
    robot: RobotSpec, specs: Mapping[str, SignalSpec], states: tuple[StateTopic, ...],
    commands: Mapping[str, CommandTopic], pictures: tuple[PictureTopic, ...] = (),
) -> dict[str, SignalSpec]:
    """Codecs, QoS, types and names exist, and what states carry are signals of ``specs``; returns those."""
    carried: dict[str, SignalSpec] = {}
    companions = [row for command in commands.values() for row in command.also]
    rows: list[StateTopic | CommandTopic] = [*states, *pictures, *commands.values(), *companions]
    for row in rows:
        check_qos(row)
        messages.record(row.type)
    if not states or not states[0].rate_hz > 0 or any(state.rate_hz < 0 for state in states):
        raise InterfaceError("states: a first topic with a rate_hz above 0 paces the controller, others have 0 or more")
    for state in (*states, *pictures):
        codec = codecs.named(codecs.STATES, state.codec)
        codecs.check_type(codec, state.codec, state.type)
        if (codec.picture is not None) != isinstance(state, PictureTopic):
            raise InterfaceError(f"{state.topic}: codec {state.codec!r} is for " + (
                "pictures: it stands under `pictures`" if codec.picture else "no pictures: it stands under `states`"))
        for name in codec.signals(state.options):
            if name not in specs:
                raise InterfaceError(f"{state.topic}: there is no signal {name!r}; known: {', '.join(specs)}")
            if name in carried:
                raise InterfaceError(f"{state.topic}: another topic carries {name!r} already")
            carried[name] = specs[name]
        # the home state there and back: a wrong or missing option shows here, not in flight
        home = at_home(robot, {name: specs[name] for name in codec.signals(state.options)})
        try:
            if codec.picture is not None:
                codec.picture(specs[codec.signals(state.options)[0]], state.options)
            found = codec.decode(codec.encode(home, 0, ("world", robot.name), state.options), state.options)
            for name, value in found.items():
                check_signal(specs[name], value)
        except (codecs.CodecError, SignalError) as error:
            raise InterfaceError(f"{state.topic}: {error}") from error
    for name, command in commands.items():
        codec = codecs.named(codecs.COMMANDS, command.codec)
        codecs.check_type(codec, command.codec, command.type)
        if name not in robot.commands:
            raise InterfaceError(f"commands: robot {robot.name!r} has no {name!r}; known: {', '.join(robot.commands)}")
        if codec.decode is None:
            raise InterfaceError(f"commands.{name}: codec {command.codec!r} carries no command; it goes under `also`")
        codec.decode(codec.encode(np.array(robot.commands[name].high), command.options), command.options)
    for row in companions:
        codec = codecs.named(codecs.COMMANDS, row.codec)
        codecs.check_type(codec, row.codec, row.type)
        if codec.decode is not None:
            raise InterfaceError(f"{row.topic}: codec {row.codec!r} carries a command: under `also` stand companions")
        codec.encode(np.zeros(0), row.options)
    return carried


def at_home(robot: RobotSpec, specs: Mapping[str, SignalSpec]) -> dict[str, np.ndarray]:
    """A value of each signal: the robot's home, zeros where that says nothing, no rotation."""
    zeros = {name: np.eye(4)[0] if spec.unit == "wxyz" else np.zeros(spec.shape, dtype=spec.dtype)
             for name, spec in specs.items()}
    return {name: np.array(robot.home[name], dtype=float).reshape(spec.shape) if name in robot.home else zeros[name]
            for name, spec in specs.items()}


def encode_all(
    topic: CommandTopic, command: np.ndarray, stamp_ns: int, onward: Course | None = None
) -> list[tuple[str, bytes]]:
    """What one command makes: (topic, CDR bytes) of its companions, in order, then of itself; all with one stamp.

    ``onward``: the way to rest after it, where the message can say that: then it goes in the command's place.
    """
    made = [(row, codecs.COMMANDS[row.codec].encode(command, row.options, stamp_ns)) for row in topic.also]
    codec = codecs.COMMANDS[topic.codec]
    own = (codec.encode(command, topic.options, stamp_ns) if onward is None or codec.encode_course is None else
           codec.encode_course(onward, topic.options))
    return [(row.topic, messages.encode(row.type, message)) for row, message in (*made, (topic, own))]
