"""What the nodes say on topics of their own, read back: the one place that knows what such a message is.

Anybody may have published there. What no node of ours can have said is a :class:`RecordError` that says why, whatever
its bytes made a parser raise: who reads a bag skips such a message and counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import canonical, digest, mission_digest
from temporeal_bridge.mission import MODES, ChunkRecord, CommandRecord, MissionStatus
from temporeal_bridge.transports import messages

if TYPE_CHECKING:
    from temporeal_bridge.recording.bags import Said
    from temporeal_bridge.transports.transport import Received

FASTEST_HZ = 10_000.0  # of a controller, chosen: a replay would make as many steps as a foreign number says
LONGEST_S = 1e8  # of a mission, three years: what may be multiplied by 1e9 and be a number of 64 bits


class RecordError(ValueError):
    """The message is none that a node of ours says on this topic; says why."""


@dataclass(frozen=True)
class Row:
    """One control step of the controller, or one command of the guard.

    Args:
        step: of the controller; -1: a command of the guard's own.
        at: time [s].
        marks: of the message of each state topic that it was made of (:func:`temporeal_bridge.interface.state_input.mark`).
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
    """``guard/event``, ``policy/event``: ``since`` the mission began [s]; None: unsaid, for none was flown yet.
    ``mode``: that of who says it, by then; empty where it is unsaid."""

    flight: int
    since: float | None
    code: str
    reason: str
    mode: str = ""


class Mix(NamedTuple):
    """``guard/swap``: the ``command`` [A] that was asked for, and the successor's ``weight`` in it, 0 to 1."""

    flight: int
    step: int
    weight: float
    command: np.ndarray


class Unread:
    """Messages on one topic that could not be read: how many, and why not the first."""

    def __init__(self, why: str) -> None:
        self.why, self.count = why, 0


def remarks(unread: Mapping[str, Unread]) -> list[str]:
    """That for a person, a line for each topic."""
    return [f"{each.count} message{'s' * (each.count > 1)} on {topic} could not be read (the first: {each.why})"
            for topic, each in unread.items()]


def read(topic: str, said: Said | Received) -> Any:
    """What a message on ``topic`` (in the robot's namespace) says, by :data:`READERS`."""
    try:
        return READERS[topic](messages.decode(said.type, said.data))
    except KeyError as error:
        raise RecordError(f"it has no {error}") from error
    except Exception as error:  # bytes, numbers and JSON from anywhere raise anything
        raise RecordError(str(error) or type(error).__name__) from error


def step(message: Any) -> Step:
    """A step is made of at least one message, and there were not more before it than time allows."""
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
    """A stop, or what else the guard has to say."""
    said = json_object(message)
    since = said.get("t")
    return Event(whole(said["flight"]), None if since is None else seconds(since), text(said, "code"),
                 text(said, "reason"), text(said, "mode") if "mode" in said else "")


def mix(message: Any) -> Mix:
    """While an artifact is exchanged."""
    flight, number, weight, *commands = (float(x) for x in message.data)
    if not commands or len(commands) % 2 or not 0.0 <= weight <= 1.0:
        raise RecordError(f"{len(message.data)} numbers are no record of a mix of two commands")
    old, other = np.split(np.array(commands), 2)
    return Mix(whole(flight), whole(number), weight, old + weight * (other - old))


def verdict(message: Any) -> dict[str, Any]:
    """The monitor's word; its bounds are numbers, or null for an infinite one."""
    said = json_object(message)
    bounds = {key: None if said.get(key) is None else finite(said[key]) for key in ("lower", "upper")}
    began = {"start_ns": whole(said["start_ns"])} if "start_ns" in said else {}  # monitors of before did not say it
    return {**said, **bounds, **began, "flight": whole(said["flight"]), "verdict": text(said, "verdict")}


def artifact(message: Any) -> dict[str, Any]:
    """What the guard says of its artifact: the manifest is what its digest, its name and its robot are of."""
    said = json_object(message)
    manifest, folder = said["manifest"], said["folder"]
    for key in ("name", "identity", "robot", "interface"):
        text(said, key)
    if folder is not None:
        text(said, "folder")
    renamed = said.get("renamed", {})  # guards of before did not say it
    if not isinstance(renamed, dict) or not all(isinstance(name, str) for name in renamed.values()):
        raise RecordError(f"renamed is {renamed!r}; names of topics by name are needed")
    if digest(canonical(manifest).encode()) != said["identity"]:
        raise RecordError("its identity is not that of its manifest")
    for key in ("name", "robot"):
        if said[key] != manifest[key]:
            raise RecordError(f"its {key} is {said[key]!r}, its manifest's {manifest[key]!r}")
    mission_digest(manifest)  # all that it is of is there
    return said


def whole(value: Any) -> int:
    """A whole number of 64 bits, as messages and clocks have them."""
    if isinstance(value, bool) or not float(value).is_integer() or abs(value) >= 2**63:
        raise RecordError(f"{value!r} is no whole number below 2^63")
    return int(value)


def finite(value: Any) -> float:
    """A number."""
    if isinstance(value, (bool, str)) or not isfinite(value):
        raise RecordError(f"{value!r} is no finite number")
    return float(value)


def seconds(value: Any) -> float:
    """A time since a mission began."""
    if abs(finite(value)) > LONGEST_S:
        raise RecordError(f"no mission lasts {value:g} s")
    return float(value)


def text(said: Mapping[str, Any], key: str) -> str:
    """What ``said`` has under ``key``."""
    value = said[key]
    if not isinstance(value, str):
        raise RecordError(f"its {key} is {value!r}, and not text")
    return value


def json_object(message: Any) -> dict[str, Any]:
    """The JSON object of a text."""
    said = json.loads(message.data)
    if not isinstance(said, dict):
        raise RecordError(f"a JSON {type(said).__name__} is no object")
    return said


READERS: Mapping[str, Callable[[Any], Any]] = {
    "policy/step": step, "policy/chunk": lambda message: ChunkRecord.of(message.data), "policy/event": event,
    "guard/command": lambda message: CommandRecord.of(message.data), "guard/event": event, "guard/swap": mix,
    "guard/artifact": artifact, "mission": mission, "monitor/verdict": verdict}
