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
state, and ``max_age_s``), where they are in simulation under ``cameras``
(:mod:`temporeal_bridge.simulated_robot.cameras`); a file has
these two parts or not. docs/how-to/deploying.md shows one.

What an artifact reads must be carried by some topic: :func:`check_reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from temporeal.robots.motion.smooth_trajectory import Course
from temporeal.robots.signals import SignalSpec, check_signal, is_number
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import Options, check_type
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS, named
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, TransportError, resolve_name


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
    """What stands between the commands and the motors, arms them and switches modes
    (:mod:`temporeal_bridge.guard.px4`).

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
        rivals: other topics on which the robot takes commands: nobody may publish there, either.
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
    rivals: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[StateTopic, ...]:
        """States, then pictures: the order in which nodes tell of what message of each topic something was made."""
        return (*self.states, *self.pictures)

    @property
    def state(self) -> dict[str, SignalSpec]:
        """Those of the carried signals that are no pictures."""
        seen = {name for row in self.pictures for name in STATE_CODECS[row.codec].signals(row.options)}
        return {name: spec for name, spec in self.carried.items() if name not in seen}

    def command(self, name: str) -> CommandTopic:
        """The topic of command ``name``."""
        if name not in self.commands:
            others = ", ".join(self.offers.get(name, ())) or "none of the robot's"
            raise InterfaceError(f"interface {self.name!r} has no topic for {name!r}; it has: "
                                 f"{', '.join(self.commands)}. Interfaces that have it: {others}")
        return self.commands[name]


    def rivals_of(self, name: str) -> tuple[str, ...]:
        """Topics on which somebody else could command a robot that is sent command ``name``: the rivals, and those of
        the interface's other commands."""
        mine = {resolve_name(row.topic) for row in rows_of(self.command(name))}
        others = [row.topic for key, other in self.commands.items() if key != name for row in rows_of(other)]
        return (*self.rivals, *dict.fromkeys(topic for topic in others if resolve_name(topic) not in mine))


TOP = ("default", "interfaces", "safety", "simulation")
PARTS = ("description", "definitions", "states", "commands")
MAY_HAVE = ("autopilot", "rivals")  # further parts of an interface
STATE = ("topic", "type", "codec", "rate_hz", "qos", "options")
COMMAND = ("topic", "type", "codec", "qos", "options")
EXTRA = ("definitions", "signals", "states")
PICTURE = (*STATE, "max_age_s")
PICTURES = ("pictures", "cameras")  # parts of a file of extra topics that has cameras
AUTOPILOT = tuple(each.name for each in fields(Autopilot))
TOPIC = tuple(each.name for each in fields(Topic))
ARM = ("never", "ask")
OURS = ("mission", "mission/start", "mission/stop", "mission/reset", "estop", "guard/command", "guard/event",
        "guard/swap", "guard/artifact", "policy/step", "policy/chunk", "policy/event", "monitor/robustness",
        "monitor/verdict", "sim/episode", "sim/reset", "sim/fault", "sim/fault_active", "/diagnostics")
"""Topics that the nodes themselves have, in the robot's namespace."""
RATES_HZ = (0.01, 1e5)  # chosen: what is sent more seldom is sent when it changes, and nothing is sent more often
SAYS = 1e-5  # of a command's range: a message that is farther off says another command; float32 rounds by 1e-7


def is_text(value: Any) -> bool:
    """Whether there is text."""
    return isinstance(value, str) and value != ""


def is_rate(value: Any) -> bool:
    """Whether it is how often messages come."""
    return is_number(value) and (value == 0 or RATES_HZ[0] <= value <= RATES_HZ[1])


def is_map(value: Any) -> bool:
    """Whether it is a mapping from names."""
    return isinstance(value, Mapping) and all(map(is_text, value))


def is_list(value: Any) -> bool:
    """Whether it is a list."""
    return isinstance(value, (list, tuple))


Rule = tuple[str, Callable[[Any], bool]]
TEXT: Rule = ("text", is_text)
MAP: Rule = ("a mapping from names", is_map)
LIST: Rule = ("a list of topics", is_list)
RULES: dict[str, Rule] = {  # by key: what it is, and whether a value is it
    **dict.fromkeys(("default", "topic", "type", "codec", "qos"), TEXT),
    **dict.fromkeys(("interfaces", "safety", "simulation", "commands", "options"), MAP),
    "rate_hz": (f"a number of Hz, 0 or from {RATES_HZ[0]:g} to {RATES_HZ[1]:g},", is_rate),
    "max_age_s": ("a number of seconds above 0", lambda v: is_number(v) and v > 0),
    "also": LIST}
OR_NOTHING: dict[str, Rule] = {  # the same, or null
    **dict.fromkeys(("states", "pictures", "rivals"), LIST), **dict.fromkeys(("signals", "cameras", "autopilot"), MAP),
    "definitions": ("a mapping from types to the text of their .msg files",
                    lambda v: is_map(v) and all(isinstance(text, str) for text in v.values()))}


def load_interface(
    robot: RobotSpec, name: str | None = None, extra: Path | str | Mapping[str, Any] | None = None
) -> Interface:
    """Interface ``name`` of ``robot`` (None: its default), and the topics of the file ``extra``, or its content.

    Types that plain ROS 2 lacks are defined on the way.
    """
    if robot.ros is None:
        raise InterfaceError(f"robot {robot.name!r} is a simulated one: nothing says how to speak to one over ROS 2")
    if not robot.ros.exists():
        raise InterfaceError(f"robot {robot.name!r} has no ros.yaml ({robot.ros})")
    given = isinstance(extra, (Path, str))
    more = read(Path(extra), EXTRA) if isinstance(extra, (Path, str)) else extra
    try:
        return build(robot, read(robot.ros), name, more)
    except InterfaceError as error:
        raise InterfaceError(f"{robot.ros}{f', with {extra}' if given else ''}: {error}") from error


def read(path: Path, legal: tuple[str, ...] = TOP) -> dict[str, Any]:
    """The YAML file."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InterfaceError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
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
    keys(name, part, PARTS, MAY_HAVE)
    define(name, part["definitions"])
    states = tuple(StateTopic(**keys(f"{name}.states", row, STATE)) for row in part["states"] or ())
    commands = {key: command_topic(f"{name}.commands.{key}", row) for key, row in part["commands"].items()}
    autopilot = autopilot_of(f"{name}.autopilot", part["autopilot"]) if part.get("autopilot") is not None else None
    specs, pictures = dict(robot.signals), tuple[PictureTopic, ...]()
    cameras: Mapping[str, Any] = {}
    if extra is not None:
        more, rows = extra_topics(robot, extra)
        specs, states = {**specs, **more}, (*states, *rows)
        pictures, cameras = picture_topics(extra)
    carried = check(robot, specs, states, commands, pictures)
    check_topics((*states, *pictures), commands, autopilot)
    rivals = rival_topics(f"{name}.rivals", part.get("rivals") or (), (*states, *pictures), commands, autopilot)
    lost = sorted(set(specs) - set(robot.signals) - set(carried))
    if lost:
        raise InterfaceError(f"extra signals: no topic carries {lost}")
    offers: dict[str, list[str]] = {}
    for key, other in known.items():
        for command in keys(key, other, PARTS, MAY_HAVE)["commands"]:
            offers.setdefault(command, []).append(key)
    return Interface(name, states, commands, content["safety"], content["simulation"], carried, autopilot, offers,
                     pictures, cameras, rivals)


def extra_topics(
    robot: RobotSpec, content: Mapping[str, Any]
) -> tuple[dict[str, SignalSpec], tuple[StateTopic, ...]]:
    """Signals and rows of a user's file of topics."""
    keys("extra", content, EXTRA, PICTURES)
    define("extra", content["definitions"])
    specs = {}
    for name, row in (content["signals"] or {}).items():
        if name in robot.signals:
            raise InterfaceError(f"extra signal {name!r} is one of robot {robot.name!r}, which declares it already")
        if not isinstance(row, Mapping) or not {"shape", "unit"} <= set(row) <= {"shape", "unit", "frame", "dtype"}:
            raise InterfaceError(f"extra signal {name!r} has {listed(row)}; shape and unit are needed, frame and dtype "
                                 f"are legal")
        with told(f"extra signal {name!r}"):
            specs[name] = SignalSpec(name, **{**row, "shape": shape_of(row["shape"])})
    return specs, tuple(StateTopic(**keys("extra.states", row, STATE)) for row in content["states"] or ())


def picture_topics(content: Mapping[str, Any]) -> tuple[tuple[PictureTopic, ...], Mapping[str, Any]]:
    """Rows and cameras of a user's file of topics."""
    rows, cameras = content.get("pictures") or (), content.get("cameras") or {}
    pictures = tuple(PictureTopic(**keys("extra.pictures", row, PICTURE)) for row in rows)
    for row in pictures:
        if row.rate_hz == 0:
            raise InterfaceError(f"{row.topic}: rate_hz is 0; a number above 0 is needed: pictures are sent anew")
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
    row = keys(where, row, COMMAND, ("also",))
    companions = tuple(CommandTopic(**keys(f"{where}.also", other, COMMAND)) for other in row.get("also", ()))
    return CommandTopic(**{**row, "also": companions})


def rows_of(command: CommandTopic) -> tuple[CommandTopic, ...]:
    """The command's topic after those of its companions, as they are published."""
    return (*command.also, command)


def rival_topics(
    where: str, names: Sequence[Any], states: Sequence[StateTopic], commands: Mapping[str, CommandTopic],
    autopilot: Autopilot | None,
) -> tuple[str, ...]:
    """Names of topics by which others could command the robot, each once, and none of the interface's or of ours."""
    between = () if autopilot is None else (autopilot.status, autopilot.orders)
    rows = [*states, *(row for each in commands.values() for row in rows_of(each)), *between]
    taken = {resolve_name(name) for name in (*OURS, *(row.topic for row in rows if row is not None))}
    found = dict[str, str]()
    for name in names:
        if not is_text(name):
            raise InterfaceError(f"{where}: {name!r} stands there; names of topics are needed")
        with told(where):
            full = resolve_name(name)
        if full in found:
            raise InterfaceError(f"{where}: topic {name!r} stands there twice; each is needed once")
        if full in taken:
            raise InterfaceError(f"{where}: topic {name!r} is one of the interface's, or of the nodes' own; others are "
                                 "needed on which the robot takes commands (those of the interface's other commands "
                                 "count by themselves)")
        found[full] = name
    return tuple(found.values())


def autopilot_of(where: str, row: Mapping[str, Any]) -> Autopilot:
    """The autopilot's row, checked."""
    row = keys(where, row, AUTOPILOT)
    topics = {key: Topic(**keys(f"{where}.{key}", row[key], TOPIC)) for key in ("status", "orders")
              if row[key] is not None}
    for topic in topics.values():
        check_row(topic)
    if "status" not in topics:
        raise InterfaceError(f"{where}.status: a topic is needed")
    if row["arm"] not in ARM:
        raise InterfaceError(f"{where}.arm is {row['arm']!r}; legal: {', '.join(ARM)}")
    if row["arm"] == "ask" and "orders" not in topics:
        raise InterfaceError(f"{where}: arm is 'ask', but there is no topic for orders; legal then: never")
    for key in ("silent_after_s", "stream_s", "answer_s", "start_s"):
        if not is_number(row[key]) or not 0 < row[key] < 60:
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
    """``row`` if it has exactly the ``legal`` keys, and perhaps ``optional`` ones, with values of their kind."""
    if not isinstance(row, Mapping) or set(row) - set(optional) != set(legal):
        more = f", and perhaps {sorted(optional)}" if optional else ""
        raise InterfaceError(f"{where}: keys are {listed(row)}, expected exactly {sorted(legal)}{more}")
    for key, value in row.items():
        wanted, good = RULES.get(key) or OR_NOTHING.get(key) or ("", lambda _: True)
        if not good(value) and not (key in OR_NOTHING and value is None):
            raise InterfaceError(f"{where}.{key}: {wanted} is needed, got {value!r}")
    return dict(row)


def listed(row: Any) -> str:
    """The keys of what should be a mapping."""
    return str(sorted(map(str, row))) if isinstance(row, Mapping) else repr(row)


def shape_of(value: Any) -> Any:
    """A shape as specs have it; what is none is left for them to refuse."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def define(where: str, definitions: Mapping[str, str] | None) -> None:
    """Add the message types."""
    with told(f"{where}.definitions"):
        messages.define(dict(definitions or {}))


@contextmanager
def told(where: str) -> Iterator[None]:
    """What goes wrong here is an error of the file at ``where``: options are whatever somebody wrote."""
    try:
        yield
    except InterfaceError:
        raise
    except KeyError as error:
        raise InterfaceError(f"{where}: the option {error} is missing") from error
    except (ValueError, TransportError) as error:
        raise InterfaceError(f"{where}: {error}") from error
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise InterfaceError(f"{where}: a value is of another kind than is needed: {error}") from error


class Noted(dict[str, Any]):
    """Options that note which of them are asked for, there or not."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.asked = set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of any mapping."""
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


@contextmanager
def all_read(row: StateTopic | CommandTopic) -> Iterator[Noted]:
    """Its options, while its codec does with them all that it ever does: one that it has not asked for then is written
    wrong, or belongs to another codec."""
    noted = Noted(row.options)
    yield noted
    if unread := [key for key in noted if key not in noted.asked]:
        raise InterfaceError(f"{row.topic}: codec {row.codec!r} has no option {unread[0]!r}; legal: "
                             f"{', '.join(sorted(noted.asked)) or 'none'}")


def check_row(row: StateTopic | CommandTopic | Topic) -> None:
    """A name that topics may have, a known quality of service, a known type."""
    with told(row.topic):
        resolve_name(row.topic)
        if row.qos not in QOS:
            raise InterfaceError(f"{row.topic}: unknown QoS {row.qos!r}; legal: {', '.join(QOS)}")
        messages.record(row.type)


def check(
    robot: RobotSpec, specs: Mapping[str, SignalSpec], states: tuple[StateTopic, ...],
    commands: Mapping[str, CommandTopic], pictures: tuple[PictureTopic, ...] = (),
) -> dict[str, SignalSpec]:
    """Codecs, QoS, types and names exist, and what states carry are signals of ``specs``; returns those."""
    if not states or not states[0].rate_hz > 0:
        raise InterfaceError("states: a first topic with a rate_hz above 0 paces the controller, others have 0 or more")
    carried: dict[str, SignalSpec] = {}
    for state in (*states, *pictures):
        check_row(state)
        with told(state.topic), all_read(state) as options:
            found = check_state(robot, specs, state, options)
        if twice := sorted(set(found) & set(carried)):
            raise InterfaceError(f"{state.topic}: another topic carries {twice[0]!r} already")
        carried.update(found)
    for name, command in commands.items():
        for row in (command, *command.also):
            check_row(row)
        with told(f"commands.{name}"), all_read(command) as options:
            check_command(robot, name, command, options)
        for row in command.also:
            with told(row.topic), all_read(row) as options:
                check_companion(row, options)
    return carried


def check_topics(
    states: Sequence[StateTopic], commands: Mapping[str, CommandTopic], autopilot: Autopilot | None
) -> None:
    """Each topic is one thing: a state, a command or what goes with it, or the nodes' own. Names count as in the
    namespace /, where those that begin with / and those that do not are the same."""
    said = {resolve_name(row.topic) for row in states}
    if twice := repeated(states):
        raise InterfaceError(f"states: topic {twice!r} stands twice; one row is needed for each topic, with all "
                             "signals that it carries")
    orders = [] if autopilot is None or autopilot.orders is None else [autopilot.orders]
    heard = said if autopilot is None else {*said, resolve_name(autopilot.status.topic)}
    ours = {resolve_name(name) for name in OURS}
    for key, command in commands.items():
        rows = [*command.also, command, *orders]
        for row in rows:
            if resolve_name(row.topic) in heard:
                raise InterfaceError(f"commands.{key}: topic {row.topic!r} is one that the robot's state comes on; "
                                     "commands need a topic of their own")
            if resolve_name(row.topic) in ours:
                raise InterfaceError(f"commands.{key}: topic {row.topic!r} is one of the nodes' own; commands need "
                                     f"another than {', '.join(OURS)}")
        if twice := repeated(rows):
            raise InterfaceError(f"commands.{key}: topic {twice!r} stands twice; the command, each companion under "
                                 "`also` and the autopilot's orders need one of their own")


def repeated(rows: Iterable[StateTopic | CommandTopic | Topic]) -> str:
    """A topic that stands there twice; "": none does."""
    seen = set[str]()
    for row in rows:
        name = resolve_name(row.topic)
        if name in seen:
            return row.topic
        seen.add(name)
    return ""


def check_state(
    robot: RobotSpec, specs: Mapping[str, SignalSpec], state: StateTopic, options: Options
) -> dict[str, SignalSpec]:
    """The signals that a topic carries. The home state there and back: a wrong or missing option shows here, not in
    flight."""
    codec = named(STATE_CODECS, state.codec)
    check_type(codec, state.codec, state.type)
    if (codec.picture is not None) != isinstance(state, PictureTopic):
        raise InterfaceError(f"{state.topic}: codec {state.codec!r} is for " + (
            "pictures: it stands under `pictures`" if codec.picture else "no pictures: it stands under `states`"))
    names = codec.signals(options)
    if unknown := [name for name in names if name not in specs]:
        raise InterfaceError(f"{state.topic}: there is no signal {unknown[0]!r}; known: {', '.join(specs)}")
    if len(set(names)) != len(names):
        raise InterfaceError(f"{state.topic}: a signal stands twice in {list(names)}")
    mine = {name: specs[name] for name in names}
    if codec.picture is not None:
        codec.picture(mine[names[0]], options)
    message = codec.encode(at_home(robot, mine), 0, ("world", robot.name), options)
    for name, value in codec.decode(message, options).items():
        check_signal(specs[name], value)
    return mine


def check_command(robot: RobotSpec, name: str, row: CommandTopic, options: Options) -> None:
    """The message says what the command is, at both ends of its range and in the middle: a wrong option shows here."""
    codec = named(COMMAND_CODECS, row.codec)
    check_type(codec, row.codec, row.type)
    if name not in robot.commands:
        raise InterfaceError(f"commands: robot {robot.name!r} has no {name!r}; known: {', '.join(robot.commands)}")
    if codec.decode is None:
        raise InterfaceError(f"commands.{name}: codec {row.codec!r} carries no command; it goes under `also`")
    spec = robot.commands[name]
    low, high = np.array(spec.low), np.array(spec.high)
    for command in (low, 0.5 * (low + high), high):
        found = np.asarray(codec.decode(codec.encode(command, options), options), dtype=float)
        if found.shape != command.shape:
            raise InterfaceError(
                f"commands.{name}: codec {row.codec!r} makes {found.size} components of {command.size}")
        wrong = ~(np.abs(found - command) <= SAYS * (high - low))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InterfaceError(
                f"commands.{name}: {command[i]:.6g} of component {i} would arrive as {found[i]:.6g}: codec "
                f"{row.codec!r} must say all from {low[i]:.6g} to {high[i]:.6g}, the robot's range, and with the "
                f"options {dict(row.options)} it does not")


def check_companion(row: CommandTopic, options: Options) -> None:
    """A companion of a command says nothing of it."""
    codec = named(COMMAND_CODECS, row.codec)
    check_type(codec, row.codec, row.type)
    if codec.decode is not None:
        raise InterfaceError(f"{row.topic}: codec {row.codec!r} carries a command: under `also` stand companions")
    codec.encode(np.zeros(0), options)


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
    made = [(row, COMMAND_CODECS[row.codec].encode(command, row.options, stamp_ns)) for row in topic.also]
    codec = COMMAND_CODECS[topic.codec]
    own = (codec.encode(command, topic.options, stamp_ns) if onward is None or codec.encode_course is None else
           codec.encode_course(onward, topic.options))
    return [(row.topic, messages.encode(row.type, message)) for row, message in (*made, (topic, own))]
