"""What an interface is: topics that carry a robot's signals and commands, as checked, frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalSpec
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.transports.transport import resolve_name

ARM = ("never", "ask")


class InterfaceError(ValueError):
    """``ros.yaml`` is wrong; the message says where, and what is legal."""


@dataclass(frozen=True)
class StateTopic:
    """A topic that carries signals. ``rate_hz`` 0: published on change, so the age of its signals means nothing."""

    topic: str
    type: str
    codec: str
    rate_hz: float
    qos: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class PictureTopic(StateTopic):
    """A camera's topic. It is no part of the state: nobody waits for a picture, and guard and monitor do without.

    ``max_age_s``: greatest age of a picture that a policy may act on.
    """

    max_age_s: float


@dataclass(frozen=True)
class CommandTopic:
    """A topic that carries one command to the robot.

    ``also``: companions (heartbeats), published in order just before the command, in the same step and nowhere else: a
    robot that watches only the heartbeat must lose it when commands stop. A companion with ``components`` carries these
    of the command, for example those of a gripper with a driver of its own; the command's own topic then the others.
    """

    topic: str
    type: str
    codec: str
    qos: str
    options: Mapping[str, Any]
    also: tuple[CommandTopic, ...] = ()
    components: tuple[int, ...] = ()

    def part(self, values: np.ndarray) -> np.ndarray:
        """Those of the command's components ``values`` [..., A] that this topic carries."""
        return values[..., list(self.components)] if self.components else values

    @property
    def parts(self) -> tuple[CommandTopic, ...]:
        """The topics that carry the command, this one first."""
        return (self, *(row for row in self.also if row.components))


@dataclass(frozen=True)
class Topic:
    """A topic that carries neither state nor command."""

    topic: str
    type: str
    qos: str


@dataclass(frozen=True)
class Autopilot:
    """The autopilot between commands and motors: it arms them and switches modes
    (:mod:`temporeal_bridge.guard.px4`).

    Args:
        status: its mode comes here.
        orders: requests to arm and to switch go here; None: it takes none.
        arm: ``"never"``: a pilot arms and switches; ``"ask"``: we do, when and only when the operator asks for it.
        silent_after_s: an older status counts as none.
        stream_s: duration of heartbeats before a switch is requested.
        answer_s: time limit for arming and switching.
        start_s: time limit without commands after that.
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
    """The topics of one robot.

    Args:
        states: in order; the arrival of the first one paces the controller.
        commands: by the name of the command.
        safety, simulation: sections of ``ros.yaml`` for the guard and for the simulated robot.
        carried: by name, the signals that the topics carry: the robot's, or some of them, and those of extra topics.
        autopilot: None: commands go to the motors directly.
        offers: by command, the robot's interfaces that have it.
        pictures: the cameras' topics.
        rivals: other topics on which the robot takes commands: nobody may publish there, either.
        cameras: by name, position and properties of the simulated cameras, as in the file.
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
        """States, then pictures: the order of the message marks in what nodes publish."""
        return (*self.states, *self.pictures)

    @property
    def state(self) -> dict[str, SignalSpec]:
        """The carried signals that are no pictures."""
        seen = {name for row in self.pictures for name in carried_by(row)}
        return {name: spec for name, spec in self.carried.items() if name not in seen}

    def command(self, name: str) -> CommandTopic:
        """The topic of command ``name``."""
        if name not in self.commands:
            others = ", ".join(self.offers.get(name, ())) or "none of the robot's"
            raise InterfaceError(f"interface {self.name!r} has no topic for {name!r}; it has: "
                                 f"{', '.join(self.commands)}. Interfaces that have it: {others}")
        return self.commands[name]

    def rivals_of(self, name: str) -> tuple[str, ...]:
        """Topics by which others could command a robot that gets command ``name``: the rivals, and the topics of the
        interface's other commands."""
        mine = {resolve_name(row.topic) for row in rows_of(self.command(name))}
        others = [row.topic for key, other in self.commands.items() if key != name for row in rows_of(other)]
        return (*self.rivals, *dict.fromkeys(topic for topic in others if resolve_name(topic) not in mine))


def carried_by(row: StateTopic) -> tuple[str, ...]:
    """Names of the signals on a topic."""
    return STATE_CODECS[row.codec].signals(row.options)


def rows_of(command: CommandTopic) -> tuple[CommandTopic, ...]:
    """The companions' topics and the command's own, in the order of publication."""
    return (*command.also, command)


def armed_by(interface: Interface, arm: str) -> Interface:
    """The interface with another rule for arming its autopilot; legal: see :class:`Autopilot`."""
    autopilot = interface.autopilot
    if autopilot is None:
        raise InterfaceError(f"interface {interface.name!r} has no autopilot: there is nothing to arm")
    if arm not in ARM:
        raise InterfaceError(f"arm is {arm!r}; legal: {', '.join(ARM)}")
    if arm == "ask" and autopilot.orders is None:
        raise InterfaceError(f"interface {interface.name!r}: its autopilot takes no orders from us; legal: never")
    return replace(interface, autopilot=replace(autopilot, arm=arm))
