"""A robot's ``ros.yaml`` as checked, frozen data: which topics carry which signals and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from robots.spec import RobotSpec
from temporeal_bridge import codecs, messages
from temporeal_bridge.transport import QOS


class InterfaceError(ValueError):
    """``ros.yaml`` is wrong; the message says where, and what is legal."""


@dataclass(frozen=True)
class StateTopic:
    """A topic that carries signals of the robot."""

    topic: str
    type: str
    codec: str
    rate_hz: float
    qos: str
    options: Mapping[str, Any]


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
        autopilot: what must be asked before commands count; None: nothing.
    """

    name: str
    states: tuple[StateTopic, ...]
    commands: Mapping[str, CommandTopic]
    safety: Mapping[str, Any]
    simulation: Mapping[str, Any]
    autopilot: Autopilot | None = None

    def command(self, name: str) -> CommandTopic:
        """The topic of command ``name``."""
        if name not in self.commands:
            raise InterfaceError(
                f"interface {self.name!r} has no topic for {name!r}; it has: {', '.join(self.commands)}")
        return self.commands[name]


TOP = ("default", "interfaces", "safety", "simulation")
PARTS = ("description", "definitions", "states", "commands")
STATE = ("topic", "type", "codec", "rate_hz", "qos", "options")
COMMAND = ("topic", "type", "codec", "qos", "options")
AUTOPILOT = tuple(field.name for field in fields(Autopilot))
TOPIC = tuple(field.name for field in fields(Topic))
ARM = ("never", "ask")


def load_interface(robot: RobotSpec, name: str | None = None) -> Interface:
    """Interface ``name`` of ``robot`` (None: its default). Types that plain ROS 2 lacks are defined on the way."""
    if robot.ros is None or not robot.ros.exists():
        raise InterfaceError(f"robot {robot.name!r} has no ros.yaml ({robot.ros})")
    return build(robot, read(robot.ros), name)


def read(path: Path) -> dict[str, Any]:
    """The YAML file."""
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise InterfaceError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise InterfaceError(f"{path}: a mapping with {', '.join(TOP)} is needed")
    return content


def build(robot: RobotSpec, content: Mapping[str, Any], name: str | None) -> Interface:
    """The interface from the file's content."""
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
    try:
        check(robot, states, commands)
    except KeyError as error:
        raise InterfaceError(f"{name}: the option {error} is missing") from error
    return Interface(name, states, commands, content["safety"], content["simulation"], autopilot)


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


def check(robot: RobotSpec, states: tuple[StateTopic, ...], commands: Mapping[str, CommandTopic]) -> None:
    """Codecs, QoS, types and names exist, and together the topics carry every signal of the robot."""
    carried: set[str] = set()
    home = {name: np.array(robot.home[name], dtype=float).reshape(spec.shape) for name, spec in robot.signals.items()}
    companions = [row for command in commands.values() for row in command.also]
    rows: list[StateTopic | CommandTopic] = [*states, *commands.values(), *companions]
    for row in rows:
        check_qos(row)
        messages.record(row.type)
    for state in states:
        codec = codecs.named(codecs.STATES, state.codec)
        codecs.check_type(codec, state.codec, state.type)
        # the home state there and back: a wrong or missing option shows here, not in flight
        carried |= set(codec.decode(codec.encode(home, 0, ("world", robot.name), state.options), state.options))
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
    missing = sorted(set(robot.signals) - carried)
    if missing:
        raise InterfaceError(f"no topic carries the signals {missing} of robot {robot.name!r}")


def encode_all(topic: CommandTopic, command: np.ndarray, stamp_ns: int) -> list[tuple[str, bytes]]:
    """What one command makes: (topic, CDR bytes) of its companions, in order, then of itself; all with one stamp."""
    return [(row.topic, messages.encode(row.type, codecs.COMMANDS[row.codec].encode(command, row.options, stamp_ns)))
            for row in (*topic.also, topic)]
