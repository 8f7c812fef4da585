"""A robot's ``ros.yaml`` as checked, frozen data: which topics carry which signals and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """A topic that carries one command to the robot."""

    topic: str
    type: str
    codec: str
    qos: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Interface:
    """How one robot is talked to.

    Args:
        states: in order; the first is the one whose arrival paces the controller.
        commands: by the name of the command.
        safety, simulation: numbers of the stop behaviour and of the simulated robot.
    """

    name: str
    states: tuple[StateTopic, ...]
    commands: Mapping[str, CommandTopic]
    safety: Mapping[str, Any]
    simulation: Mapping[str, Any]

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
    keys(name, part, PARTS)
    messages.define(part["definitions"])
    states = tuple(StateTopic(**keys(f"{name}.states", row, STATE)) for row in part["states"])
    commands = {key: CommandTopic(**keys(f"{name}.commands.{key}", row, COMMAND))
                for key, row in part["commands"].items()}
    try:
        check(robot, states, commands)
    except KeyError as error:
        raise InterfaceError(f"{name}: the option {error} is missing") from error
    return Interface(name, states, commands, content["safety"], content["simulation"])


def keys(where: str, row: Mapping[str, Any], legal: tuple[str, ...]) -> dict[str, Any]:
    """``row`` if it has exactly the ``legal`` keys."""
    if set(row) != set(legal):
        raise InterfaceError(f"{where}: keys are {sorted(row)}, expected exactly {sorted(legal)}")
    return dict(row)


def check(robot: RobotSpec, states: tuple[StateTopic, ...], commands: Mapping[str, CommandTopic]) -> None:
    """Codecs, QoS, types and names exist, and together the topics carry every signal of the robot."""
    carried: set[str] = set()
    home = {name: np.array(robot.home[name], dtype=float).reshape(spec.shape) for name, spec in robot.signals.items()}
    rows: list[StateTopic | CommandTopic] = [*states, *commands.values()]
    for row in rows:
        if row.qos not in QOS:
            raise InterfaceError(f"{row.topic}: unknown QoS {row.qos!r}; legal: {', '.join(QOS)}")
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
        codec.decode(codec.encode(np.array(robot.commands[name].high), command.options), command.options)
    missing = sorted(set(robot.signals) - carried)
    if missing:
        raise InterfaceError(f"no topic carries the signals {missing} of robot {robot.name!r}")
