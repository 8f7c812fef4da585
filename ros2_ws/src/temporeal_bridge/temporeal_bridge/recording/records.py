"""Reads back what the nodes publish on topics of their own: the one place that knows the content of such a message.

Anybody may have published there. A message that no node of ours can have published is a :class:`RecordError` that says
why: readers of a bag skip such messages and count them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from temporeal.robots.artifact.manifest import canonical, digest, mission_digest
from temporeal_bridge.mission import MODES, ChunkRecord, CommandRecord, MissionStatus
from temporeal_bridge.transports import messages

FASTEST_HZ = 10_000.0  # of a controller. Chosen: a replay makes as many steps as a foreign number says
LONGEST_S = 1e8  # of a mission, three years: 1e9 times as much still fits 64 bits


class RecordError(ValueError):
    """The message is none that a node of ours publishes on this topic; says why."""


@dataclass(frozen=True)
class Row:
    """One control step of the controller, or one command of the guard.

    Args:
        step: of the controller; -1: a command of the guard's own.
        at: time [s].
        marks: of the message on each state topic behind it (:func:`temporeal_bridge.interface.state_input.mark`).
        missed: steps before it that were not made in their time (controller only).
    """

    step: int
    at: float
    marks: tuple[int, ...]
    missed: int = 0


class Step(NamedTuple):
    """``policy/step``: a control step of mission ``flight``."""

    flight: int
    row: Row


class Event(NamedTuple):
    """``guard/event``, ``policy/event``. ``since``: [s since the mission began]; None: there was no mission yet.
    ``mode``: of the publisher at that time; empty: not given."""

    flight: int
    since: float | None
    code: str
    reason: str
    mode: str = ""


class Mix(NamedTuple):
    """``guard/swap``: the mixed ``command`` [A], and the successor's ``weight`` in it, 0 to 1."""

    flight: int
    step: int
    weight: float
    command: np.ndarray


class Unread:
    """Messages on one topic that could not be read: how many, and why not the first."""

    def __init__(self, why: str) -> None:
        self.why, self.count = why, 0


class Encoded(Protocol):
    """A message in CDR bytes, from a bag or from the bus."""

    @property
    def type(self) -> str: ...

    @property
    def data(self) -> bytes: ...


def remarks(unread: Mapping[str, Unread]) -> list[str]:
    """The same for a person, one line for each topic."""
    return [f"{each.count} message{'s' * (each.count > 1)} on {topic} could not be read (the first: {each.why})"
            for topic, each in unread.items()]


def read(topic: str, message: Encoded) -> Any:
    """The content of a message on ``topic`` (in the robot's namespace), by :data:`READERS`."""
    try:
        return READERS[topic](messages.decode(message.type, message.data))
    except KeyError as error:
        raise RecordError(f"it has no {error}") from error
    except Exception as error:  # bytes, numbers and JSON from anywhere raise any exception
        raise RecordError(str(error) or type(error).__name__) from error


def step(message: Any) -> Step:
    """A step is made of at least one message, and not more steps preceded it than time allows."""
    flight, number, missed, at, *marks = (float(x) for x in message.data)
    row = Row(whole(number), seconds(at), tuple(whole(x) for x in marks), whole(missed))
    if not marks or not 0 <= row.missed <= row.step or row.step > FASTEST_HZ * (row.at + 1.0):
        raise RecordError(f"{len(message.data)} numbers are no record of a step")
    return Step(whole(flight), row)


def mission(message: Any) -> MissionStatus:
    """A mode of the guard, and the number of its mission."""
    mode, _, number = message.frame_id.partition(" ")
    if mode not in MODES:
        raise RecordError(f"{message.frame_id[:40]!r} begins with no mode of the guard: {', '.join(MODES)}")
    return MissionStatus(mode, int(number), messages.nanoseconds(message.stamp))


def event(message: Any) -> Event:
    """A stop, or another event."""
    content = json_object(message)
    since = content.get("t")
    return Event(whole(content["flight"]), None if since is None else seconds(since), text(content, "code"),
                 text(content, "reason"), text(content, "mode") if "mode" in content else "")


def mix(message: Any) -> Mix:
    """A command of an artifact swap."""
    flight, number, weight, *commands = (float(x) for x in message.data)
    if not commands or len(commands) % 2 or not 0.0 <= weight <= 1.0:
        raise RecordError(f"{len(message.data)} numbers are no record of a mix of two commands")
    old, other = np.split(np.array(commands), 2)
    return Mix(whole(flight), whole(number), weight, old + weight * (other - old))


def verdict(message: Any) -> dict[str, Any]:
    """The monitor's verdict; its bounds are numbers, or null for an infinite one."""
    content = json_object(message)
    bounds = {key: None if content.get(key) is None else finite(content[key]) for key in ("lower", "upper")}
    began = {"start_ns": whole(content["start_ns"])} if "start_ns" in content else {}  # older monitors did not write it
    return {**content, **bounds, **began, "flight": whole(content["flight"]), "verdict": text(content, "verdict")}


def drift(message: Any) -> dict[str, Any]:
    """What the monitor noticed of the machine."""
    content = json_object(message)
    numbers = {key: finite(content[key]) for key in ("ratio", "low", "high")}
    times = {key: seconds(content[key]) for key in ("since", "t")}
    return {**content, **numbers, **times, "flight": whole(content["flight"]), "start_ns": whole(content["start_ns"]),
            "kind": text(content, "kind"), "text": text(content, "text")}


def artifact(message: Any) -> dict[str, Any]:
    """The guard's record of its artifact: identity, name and robot must be those of the manifest in it."""
    content = json_object(message)
    manifest, folder = content["manifest"], content["folder"]
    for key in ("name", "identity", "robot", "interface"):
        text(content, key)
    if folder is not None:
        text(content, "folder")
    renamed = content.get("renamed", {})  # older guards did not write it
    if not isinstance(renamed, dict) or not all(isinstance(name, str) for name in renamed.values()):
        raise RecordError(f"renamed is {renamed!r}; names of topics by name are needed")
    if digest(canonical(manifest).encode()) != content["identity"]:
        raise RecordError("its identity is not that of its manifest")
    for key in ("name", "robot"):
        if content[key] != manifest[key]:
            raise RecordError(f"its {key} is {content[key]!r}, its manifest's {manifest[key]!r}")
    mission_digest(manifest)  # raises where a part of the manifest is missing
    return content


def instruction(message: Any) -> str:
    """The sentence that a controller's policy is told."""
    return text(json_object(message), "instruction")


def whole(value: Any) -> int:
    """A whole number of 64 bits, as messages and clocks have them."""
    if isinstance(value, bool) or not float(value).is_integer() or abs(value) >= 2**63:
        raise RecordError(f"{value!r} is no whole number below 2^63")
    return int(value)


def finite(value: Any) -> float:
    """A finite number."""
    if isinstance(value, (bool, str)) or not isfinite(value):
        raise RecordError(f"{value!r} is no finite number")
    return float(value)


def seconds(value: Any) -> float:
    """A time since a mission began."""
    if abs(finite(value)) > LONGEST_S:
        raise RecordError(f"no mission lasts {value:g} s")
    return float(value)


def text(content: Mapping[str, Any], key: str) -> str:
    """The text under ``key``."""
    value = content[key]
    if not isinstance(value, str):
        raise RecordError(f"its {key} is {value!r}, and not text")
    return value


def json_object(message: Any) -> dict[str, Any]:
    """The JSON object of a text message."""
    content = json.loads(message.data)
    if not isinstance(content, dict):
        raise RecordError(f"a JSON {type(content).__name__} is no object")
    return content


READERS: Mapping[str, Callable[[Any], Any]] = {
    "policy/step": step, "policy/chunk": lambda message: ChunkRecord.of(message.data), "policy/event": event,
    "guard/command": lambda message: CommandRecord.of(message.data), "guard/event": event, "guard/swap": mix,
    "guard/artifact": artifact, "policy/instruction": instruction, "mission": mission, "monitor/verdict": verdict,
    "monitor/drift": drift}
