"""Fields of messages as signals: what ``--map`` names, such as ``pose.pose.position.z`` or ``position[elbow]``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.policies.cli.traces.table import Numbers
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.registry import guess

WRITE = ("write signal=/topic:field.path, such as height=/odom:pose.pose.position.z or "
         "elbow=/joint_states:position[elbow_joint]")
NAMES = ("name", "joint_names")
"""Fields in which messages name the entries of their other fields: of JointState, of all others of control_msgs and
trajectory_msgs."""


class MissingValue(Exception):
    """This message has the field, and no value in it."""


class NoSample(Exception):
    """This message is not about these joints: another one of the topic is."""


@dataclass(frozen=True)
class Field:
    """A field of a topic's messages. ``steps``: names of fields, places in a sequence, and names of joints."""

    topic: str
    path: str
    steps: tuple[str | int | tuple[str, ...], ...]

    def value(self, message: Any) -> Numbers:
        """The field as numbers; :class:`MissingValue`, :class:`NoSample`, or a BadInput where no message has it."""
        at, named = message, message
        for step in self.steps:
            if isinstance(step, str):
                named, at = (at if any(names_of(at, key) for key in NAMES) else named), self.entry(at, step)
            elif isinstance(step, int):
                at = self.at_place(at, step)
            else:
                at = self.of_joints(named, at, step)
        return self.numbers(at)

    def entry(self, at: Any, name: str) -> Any:
        """The field ``name`` of a message."""
        if name not in fields_of(at):
            told = f"fields: {', '.join(fields_of(at))}" if fields_of(at) else f"it is {at!r:.60}"
            raise BadInput(f"{self.topic}: no {name!r} in {self.path!r}; {told}")
        return getattr(at, name)

    def at_place(self, at: Any, place: int) -> Any:
        """Entry ``place`` of a sequence."""
        if not hasattr(at, "__len__"):
            raise BadInput(f"{self.topic}: no '[{place}]' in {self.path!r}; it is {at!r:.60}")
        if place >= len(at):
            raise MissingValue(f"no '[{place}]' in {self.path!r}; it has {len(at)} entries")
        return at[place]

    def of_joints(self, named: Any, at: Any, joints: Sequence[str]) -> Any:
        """The entries of ``joints`` in a sequence beside their names; of one joint its entry alone."""
        names = next((found for key in NAMES if (found := names_of(named, key))), [])
        if not hasattr(at, "__len__") or not any(key in fields_of(named) for key in NAMES):
            raise BadInput(f"{self.topic}: {self.path!r}: joints are selected from a sequence in a message with "
                           f"{' or '.join(NAMES)}, such as position of JointState")
        if lacks := [joint for joint in joints if joint not in names]:
            raise NoSample(f"no joint {lacks[0]!r}; joints: {', '.join(names) or 'none'}")
        if twice := [joint for joint in joints if names.count(joint) > 1]:
            raise MissingValue(f"joint {twice[0]!r} is there more than once")
        if len(at) != len(names):
            raise MissingValue(f"{len(names)} joints and {len(at)} values of {self.path!r}")
        found = [at[names.index(joint)] for joint in joints]
        return found[0] if len(found) == 1 else found

    def numbers(self, at: Any) -> Numbers:
        """A number, a sequence, or a message with x, y, z (and w, which comes first) as an array."""
        parts = [name for name in ("w", "x", "y", "z") if hasattr(at, name)]
        try:
            array = np.array([getattr(at, n) for n in parts] if parts else at, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadInput(f"{self.topic}: {self.path!r} is no number and no vector; fields: "
                           f"{', '.join(fields_of(at)) or 'none'}") from None
        if array.size == 0:
            raise MissingValue(f"{self.path!r} is empty")
        return array

    def unit(self, message: Any) -> str:
        """``wxyz`` of a quaternion."""
        at = message
        for step in self.steps:
            if not isinstance(step, str):
                return ""
            at = getattr(at, step)
        return "wxyz" if hasattr(at, "w") else ""


def fields_of(message: Any) -> list[str]:
    """Names of a message's fields; none of what is no message."""
    return [name for name in getattr(message, "__dataclass_fields__", {}) if not name.startswith("_")]


def names_of(message: Any, key: str) -> list[str]:
    """The names of joints under ``key``; none where there is no such list."""
    found = getattr(message, key, None)
    return list(found) if isinstance(found, (list, tuple)) and all(isinstance(name, str) for name in found) else []


def read_maps(maps: Sequence[str], kinds: Mapping[str, str], path: object, topics: str) -> dict[str, dict[str, Field]]:
    """By topic and signal, the fields that ``--map`` names; ``kinds``: the topics of the bag, in words ``topics``."""
    fields: dict[str, dict[str, Field]] = {}
    seen: set[str] = set()
    for text in maps:
        found = re.fullmatch(r"([A-Za-z_]\w*)=(/[^:]*):(\S.*)", text)
        if not found or not (steps := steps_of(found[3])):
            raise BadInput(f"--map {text}: {WRITE}")
        name, topic, field = found.groups()
        if name in seen:
            raise BadInput(f"--map: signal {name!r} is mapped twice")
        if topic not in kinds:
            near = guess(topic, kinds)
            raise BadInput(f"--map {text}: {path} has no topic {topic}; {near}topics: {topics}")
        seen.add(name)
        fields.setdefault(topic, {})[name] = Field(topic, field, steps)
    return fields


def steps_of(path: str) -> tuple[str | int | tuple[str, ...], ...]:
    """The steps of a path ``a.b[2]`` or ``a[joint, joint]``; none if it is no path."""
    if not re.fullmatch(r"\w+(?:\.\w+|\[[^\[\]]+\])*", path):
        return ()
    steps: list[str | int | tuple[str, ...]] = []
    for word in re.findall(r"\w+(?![^\[]*\])|\[[^\[\]]+\]", path):
        inner = word[1:-1].strip()
        if not word.startswith("["):
            steps.append(word)
        elif inner.isdecimal():
            steps.append(int(inner))
        else:
            steps.append(tuple(joint.strip().strip("'\"") for joint in inner.split(",")))
    return tuple(steps)
