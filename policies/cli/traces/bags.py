"""ROS 2 bags: fields of topics, or a robot's state as the nodes decode it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.cli.console import counter
from temporeal.policies.cli.traces.table import Numbers, Options, Table, one_line
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec


def read_bag(path: Path, options: Options) -> list[Table]:
    from rosbags.highlevel import AnyReader

    try:
        with AnyReader([path]) as reader:
            kinds = {c.topic: c.msgtype or "" for c in reader.connections}
            if not options.maps and not options.robot:
                raise BadInput(f"{path}: say what the signals are: --map height=/odom:pose.pose.position.z for each, "
                               f"or --robot NAME; topics: {_topics(kinds)}")
            wanted = [*_robot_topics(options, kinds, path), *_mapped_topics(options.maps, kinds, path)]
            return [_messages(reader, topic, path) for topic in wanted]
    except BadInput as error:
        raise BadInput(str(error) if str(error).startswith((str(path), "--map")) else f"{path}: {error}") from None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # a decoder of bytes from anywhere raises anything
        raise BadInput(f"{path} is no bag that can be read: {one_line(error)}") from None


def _topics(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{topic} ({kind})" for topic, kind in sorted(kinds.items())) or "none"


@dataclass(frozen=True)
class _Topic:
    """A topic and how its messages become signals; ``unit(name, message)`` is the unit of one of them."""

    name: str
    decode: Callable[[Any], dict[str, Any]]
    unit: Callable[[str, Any], str]


def _mapped_topics(maps: Sequence[str], kinds: Mapping[str, str], path: Path) -> list[_Topic]:
    fields: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for text in maps:
        found = re.fullmatch(r"([A-Za-z_]\w*)=(/[^:]*):(\S+)", text)
        if not found:
            raise BadInput(f"--map {text}: write signal=/topic:field.path, such as height=/odom:pose.pose.position.z")
        name, topic, field = found.groups()
        if name in seen:
            raise BadInput(f"--map: signal {name!r} is mapped twice")
        if topic not in kinds:
            raise BadInput(f"--map {text}: {path} has no topic {topic}; topics: {_topics(kinds)}")
        seen.add(name)
        fields.setdefault(topic, {})[name] = field

    def of(topic: str) -> _Topic:
        def decode(message: Any) -> dict[str, Any]:
            found = fields[topic].items()
            return {name: _numbers(_field(message, field, topic), field, topic) for name, field in found}

        def unit(name: str, message: Any) -> str:
            return "wxyz" if hasattr(_field(message, fields[topic][name], topic), "w") else ""

        return _Topic(topic, decode, unit)

    return [of(topic) for topic in fields]


def _field(message: Any, path: str, topic: str) -> Any:
    """The value at ``path`` of a message: ``pose.pose.position``, ``data[2]``."""
    at = message
    for word in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        try:
            at = at[int(word[1:-1])] if word.startswith("[") else getattr(at, word)
        except (AttributeError, IndexError, TypeError):
            has = [name for name in getattr(at, "__dataclass_fields__", {}) if not name.startswith("_")]
            fields = f"fields: {', '.join(has)}" if has else f"it is {at!r:.60}"
            raise BadInput(f"{topic}: no {word!r} in {path!r}; {fields}") from None
    return at


def _numbers(at: Any, path: str, topic: str) -> Numbers:
    """A number, a sequence, or a message with x, y, z (and w, which comes first) as an array."""
    names = [name for name in ("w", "x", "y", "z") if hasattr(at, name)]
    try:
        return np.array([getattr(at, n) for n in names] if names else at, dtype=np.float64)
    except (TypeError, ValueError):
        has = [name for name in getattr(at, "__dataclass_fields__", {}) if not name.startswith("_")]
        raise BadInput(f"{topic}: {path!r} is no number and no vector; fields: {', '.join(has) or 'none'}") from None


def _robot_topics(options: Options, kinds: Mapping[str, str], path: Path) -> list[_Topic]:
    """The topics of a robot's state, decoded as the nodes decode them."""
    if not options.robot:
        return []
    from temporeal.policies.cli.deployment.requirements import needs_bridge
    from temporeal.policies.runs import errors
    from temporeal.robots.spec import load_robot

    needs_bridge()
    from temporeal_bridge.codecs.codec import CodecError
    from temporeal_bridge.codecs.table import STATE_CODECS
    from temporeal_bridge.interface.loading import load_interface

    with errors.bad_input():
        robot = load_robot(options.robot)
        interface = load_interface(robot, options.interface)
    ends = [state.topic for state in interface.states]
    roots = {topic.removesuffix(f"/{ends[0]}") for topic in kinds if topic.endswith(f"/{ends[0]}")}
    if options.namespace is not None:
        root = f"/{options.namespace.strip('/')}".rstrip("/")
    elif len(roots) == 1:
        root = roots.pop()
    else:
        raise BadInput(f"{path}: --namespace says whose topics: {len(roots)} robots publish {ends[0]}; "
                       f"topics: {_topics(kinds)}")
    out = []
    for state in interface.states:
        topic = f"{root}/{state.topic}"
        if topic not in kinds:
            raise BadInput(f"{path}: robot {robot.name!r} needs the topic {topic}; topics: {_topics(kinds)}")
        codec = STATE_CODECS[state.codec]

        def decode(message: Any, codec: Any = codec, state: Any = state, topic: str = topic) -> dict[str, Any]:
            try:
                return dict(codec.decode(message, state.options))
            except CodecError as error:
                raise BadInput(f"{topic}: {error}") from None

        out.append(_Topic(topic, decode, lambda name, _: robot.signals[name].unit))
    return out


def _messages(reader: Any, topic: _Topic, path: Path) -> Table:
    """The messages of one topic as a table. Times are those of the headers, else of receipt, in seconds since the bag's
    start; a message that is not newer than the one before is dropped, as by the nodes."""
    connections = [c for c in reader.connections if c.topic == topic.name]
    count, progress = sum(c.msgcount for c in connections), counter(f"{path}, {topic.name}")
    stamps: list[int] = []
    rows: dict[str, list[Numbers]] = {}
    units: dict[str, str] = {}
    for k, (connection, received, data) in enumerate(reader.messages(connections), start=1):
        message = reader.deserialize(data, connection.msgtype)
        stamp = _stamp(message) or received
        if stamps and stamp <= stamps[-1]:
            continue
        stamps.append(stamp)
        for name, value in topic.decode(message).items():
            units.setdefault(name, topic.unit(name, message))
            rows.setdefault(name, []).append(np.asarray(value, dtype=np.float64))
        if k % 10_000 == 0:
            progress(k, count)
    if not stamps:
        raise BadInput(f"{path}: topic {topic.name} has no message")
    arrays: dict[str, Numbers] = {}
    for name, values in rows.items():
        if len(shapes := {v.shape for v in values}) > 1:
            raise BadInput(f"{path}: {name!r} of {topic.name} changes its shape: {sorted(shapes)}")
        arrays[name] = np.stack(values)
    schema = {name: SignalSpec(name, a.shape[1:], units[name], dtype="float64") for name, a in arrays.items()}
    times = (np.array(stamps, dtype=np.int64) - int(reader.start_time)) / 1e9
    return Table(str(path), times, schema, arrays.__getitem__, lambda k, _: f"{topic.name}, message {k}",
                 [f"{name} ({topic.name})" for name in arrays])


def _stamp(message: Any) -> int:
    """Nanoseconds of the header's stamp, 0 without one."""
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    return 0 if stamp is None else int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
