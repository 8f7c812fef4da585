"""Checks of an interface: topics, types and codecs exist, options are complete, and every codec works both ways.

The robot's home state and the ends of each command's range pass through their codecs, so that a wrong or missing option
is found here and not in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from temporeal.robots.registry import guess
from temporeal.robots.signals import CommandSpec, SignalSpec, check_signal
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import Options, check_type
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS, named
from temporeal_bridge.interface.interface import (
    Autopilot,
    CommandTopic,
    Interface,
    InterfaceError,
    PictureTopic,
    StateTopic,
    Topic,
)
from temporeal_bridge.interface.rows import located
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, resolve_name

NODE_TOPICS = (
    "mission", "mission/start", "mission/stop", "mission/reset", "mission/instruction", "estop", "guard/command",
    "guard/event", "guard/swap", "guard/artifact", "policy/step", "policy/chunk", "policy/event", "policy/forecast",
    "policy/instruction", "monitor/robustness", "monitor/drift", "monitor/verdict", "sim/episode", "sim/instruction",
    "sim/reset", "sim/fault", "sim/fault_active", "/diagnostics")
"""Topics of the nodes themselves, in the robot's namespace."""
BY_NAME = ("joint_state",)  # codecs whose rows may share a topic: each finds its own values by name
ROUND_TRIP = 1e-5  # of a command's range: largest change by encode and decode; float32 rounds by 1e-7


def check_reads(interface: Interface, signals: Iterable[SignalSpec], own: Collection[str] = ("mission_time",)) -> None:
    """Refuse an artifact that reads ``signals`` (its manifest's) of which one is carried by no topic.

    ``own``: signals that the node itself makes. Shape, unit, frame and dtype must be those of the topics' signals.
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


class NotedOptions(dict[str, Any]):
    """Options that note which keys are asked for, present or not."""

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
def all_read(row: StateTopic | CommandTopic) -> Iterator[NotedOptions]:
    """The row's options, for a block in which its codec reads all options that it ever reads. An option that it did not
    read is misspelt, or belongs to another codec."""
    noted = NotedOptions(row.options)
    yield noted
    if unread := [key for key in noted if key not in noted.asked]:
        raise InterfaceError(f"{row.topic}: codec {row.codec!r} has no option {unread[0]!r}; legal: "
                             f"{', '.join(sorted(noted.asked)) or 'none'}")


def check_row(row: StateTopic | CommandTopic | Topic) -> None:
    """The topic's name is legal, its quality of service and its type are known."""
    with located(row.topic):
        resolve_name(row.topic)
        if row.qos not in QOS:
            raise InterfaceError(f"{row.topic}: unknown QoS {row.qos!r}; {guess(row.qos, QOS)}legal: {', '.join(QOS)}")
        messages.record(row.type)


def carried_signals(
    robot: RobotSpec, specs: Mapping[str, SignalSpec], states: tuple[StateTopic, ...],
    commands: Mapping[str, CommandTopic], pictures: tuple[PictureTopic, ...] = (),
) -> dict[str, SignalSpec]:
    """The signals of ``specs`` that the topics carry; all rows are checked on the way."""
    if not states or not states[0].rate_hz > 0:
        raise InterfaceError("states: a first topic with a rate_hz above 0 paces the controller, others have 0 or more")
    carried: dict[str, SignalSpec] = {}
    for state in (*states, *pictures):
        check_row(state)
        with located(state.topic), all_read(state) as options:
            found = check_state(robot, specs, state, options)
        if twice := sorted(set(found) & set(carried)):
            raise InterfaceError(f"{state.topic}: another topic carries {twice[0]!r} already")
        carried.update(found)
    for name, command in commands.items():
        for row in (command, *command.also):
            check_row(row)
        if name in robot.commands:  # else below
            check_components(robot.commands[name], command)
        for row in (command, *command.also):
            with located(f"commands.{name}" if row is command else row.topic), all_read(row) as options:
                if row in command.parts:
                    check_command(robot, name, row, options)
                else:
                    check_companion(row, options)
    return carried


def check_topics(
    states: Sequence[StateTopic], commands: Mapping[str, CommandTopic], autopilot: Autopilot | None
) -> None:
    """Each topic has one use: a state, a command with its companions, or one of the nodes' own. Names are compared in
    the namespace /, where absolute and relative ones are the same."""
    read = {resolve_name(row.topic) for row in states}
    others = {resolve_name(row.topic) for row in states if row.codec not in BY_NAME}
    if twice := repeated([row for row in states if resolve_name(row.topic) in others]):
        raise InterfaceError(f"states: topic {twice!r} is listed twice; one row is needed for each topic, with all "
                             f"signals that it carries (two only with {', '.join(BY_NAME)}, for different joints)")
    orders = [] if autopilot is None or autopilot.orders is None else [autopilot.orders]
    read = read if autopilot is None else {*read, resolve_name(autopilot.status.topic)}
    ours = {resolve_name(name) for name in NODE_TOPICS}
    for key, command in commands.items():
        rows = [*command.also, command, *orders]
        for row in rows:
            if resolve_name(row.topic) in read:
                raise InterfaceError(f"commands.{key}: topic {row.topic!r} carries the robot's state; commands need a "
                                     "topic of their own")
            if resolve_name(row.topic) in ours:
                raise InterfaceError(f"commands.{key}: topic {row.topic!r} is one of the nodes' own; commands need "
                                     f"another than {', '.join(NODE_TOPICS)}")
        if twice := repeated(rows):
            raise InterfaceError(f"commands.{key}: topic {twice!r} is listed twice; the command, each companion under "
                                 "`also` and the autopilot's orders need one of their own")


def repeated(rows: Iterable[StateTopic | CommandTopic | Topic]) -> str:
    """A topic that two rows have; "": none."""
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
    """The signals that a topic carries, after the home state has passed its codec both ways."""
    codec = named(STATE_CODECS, state.codec)
    check_type(codec, state.codec, state.type)
    if (codec.picture is not None) != isinstance(state, PictureTopic):
        raise InterfaceError(f"{state.topic}: codec {state.codec!r} is for " + (
            "pictures: it belongs under `pictures`" if codec.picture else "no pictures: it belongs under `states`"))
    names = codec.signals(options)
    if unknown := [name for name in names if name not in specs]:
        raise InterfaceError(f"{state.topic}: there is no signal {unknown[0]!r}; known: {', '.join(specs)}")
    if len(set(names)) != len(names):
        raise InterfaceError(f"{state.topic}: a signal is listed twice in {list(names)}")
    mine = {name: specs[name] for name in names}
    if codec.picture is not None:
        codec.picture(mine[names[0]], options)
    message = codec.encode(at_home(robot, mine), 0, ("world", robot.name), options)
    for name, value in codec.decode(message, options).items():
        check_signal(specs[name], value)
    return mine


def check_command(robot: RobotSpec, name: str, row: CommandTopic, options: Options) -> None:
    """Both ends and the middle of the command's range pass the codec unchanged."""
    codec = named(COMMAND_CODECS, row.codec)
    check_type(codec, row.codec, row.type)
    if name not in robot.commands:
        raise InterfaceError(f"commands: robot {robot.name!r} has no {name!r}; known: {', '.join(robot.commands)}")
    if codec.decode is None:
        raise InterfaceError(f"commands.{name}: codec {row.codec!r} carries no command; it goes under `also`")
    spec = robot.commands[name]
    low, high = row.part(np.array(spec.low)), row.part(np.array(spec.high))
    for command in (low, 0.5 * (low + high), high):
        found = np.asarray(codec.decode(codec.encode(command, options), options), dtype=float)
        if found.shape != command.shape:
            raise InterfaceError(
                f"commands.{name}: codec {row.codec!r} makes {found.size} components of {command.size}")
        wrong = ~(np.abs(found - command) <= ROUND_TRIP * (high - low))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InterfaceError(
                f"commands.{name}: {command[i]:.6g} of component {i} would arrive as {found[i]:.6g}: codec "
                f"{row.codec!r} must carry all values from {low[i]:.6g} to {high[i]:.6g}, the robot's range, and with "
                f"the options {dict(row.options)} it does not")


def check_components(spec: CommandSpec, command: CommandTopic) -> None:
    """Each component of the command is on one of its topics."""
    rows = command.parts
    told = [i for row in rows for i in row.components]
    if (told or len(rows) > 1) and sorted(told) != list(range(spec.size)):
        raise InterfaceError(f"commands.{spec.name}: its topics carry the components "
                             f"{[list(row.components) for row in rows]}; each of 0 to {spec.size - 1} is needed once")


def check_companion(row: CommandTopic, options: Options) -> None:
    """A companion carries nothing of the command."""
    codec = named(COMMAND_CODECS, row.codec)
    check_type(codec, row.codec, row.type)
    if codec.decode is not None:
        raise InterfaceError(f"{row.topic}: codec {row.codec!r} carries a command; `also` is for companions")
    codec.encode(np.zeros(0), options)


def at_home(robot: RobotSpec, specs: Mapping[str, SignalSpec]) -> dict[str, np.ndarray]:
    """A value of each signal: the robot's home, else zeros, else the identity rotation."""
    zeros = {name: np.eye(4)[0] if spec.unit == "wxyz" else np.zeros(spec.shape, dtype=spec.dtype)
             for name, spec in specs.items()}
    return {name: np.array(robot.home[name], dtype=float).reshape(spec.shape) if name in robot.home else zeros[name]
            for name, spec in specs.items()}
