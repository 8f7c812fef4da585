"""ROS 2 bags: fields of topics, or a robot's state as the nodes decode it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.cli.console import counter
from temporeal.policies.cli.traces.message_fields import Field, MissingValue, NoSample, read_maps
from temporeal.policies.cli.traces.messages import (
    Clock,
    Completed,
    Found,
    Samples,
    Topic,
    header_stamp,
    read_topic,
    tables,
)
from temporeal.policies.cli.traces.table import Options, Table, one_line
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.samples.receipts import storages, went_back, written


def read_bag(path: Path, options: Options) -> list[Table]:
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    try:  # bags of Humble carry no definitions of their types
        with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
            kinds = {c.topic: c.msgtype or "" for c in reader.connections}
            if not options.maps and not options.robot:
                raise BadInput(f"{path}: say what the signals are: --map height=/odom:pose.pose.position.z for each, "
                               f"or --robot NAME; topics: {in_words(kinds)}")
            wanted = [*robot_topics(options, kinds, path), *mapped_topics(options, kinds, path, latched_topics(reader))]
            return read_topics(reader, wanted, path)
    except BadInput as error:
        raise BadInput(str(error) if str(error).startswith((str(path), "--map")) else f"{path}: {error}") from None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # a decoder of bytes from anywhere raises anything
        raise BadInput(f"{path} is no bag that can be read: {one_line(error)}") from None


def in_words(kinds: Mapping[str, str]) -> str:
    """The topics of a bag."""
    return ", ".join(f"{topic} ({kind})" for topic, kind in sorted(kinds.items())) or "none"


def mapped_topics(options: Options, kinds: Mapping[str, str], path: Path, latched: Collection[str]) -> list[Topic]:
    """The topics whose fields ``--map`` names."""
    found = read_maps(options.maps, kinds, path, in_words(kinds))
    return [of_fields(topic, fields, topic in latched) for topic, fields in found.items()]


def latched_topics(reader: Any) -> set[str]:
    """The topics whose publishers keep the last message for whoever comes later: it holds until the next one."""
    return {c.topic for c in reader.connections for qos in c.ext.offered_qos_profiles
            if qos.durability.name == "TRANSIENT_LOCAL"}


def of_fields(name: str, fields: Mapping[str, Field], latched: bool) -> Topic:
    """A topic by its fields."""

    def value(field: Field, message: Any) -> Found:
        try:
            return field.value(message)
        except (MissingValue, NoSample, BadInput) as error:
            return error

    return Topic(name, tuple(fields),
                 lambda message, _: {signal: value(field, message) for signal, field in fields.items()},
                 lambda signal, message: fields[signal].unit(message), header_stamp, latched)


def robot_topics(options: Options, kinds: Mapping[str, str], path: Path) -> list[Topic]:
    """The topics of a robot's state, decoded as the nodes decode them. One that the bag lacks has no message."""
    if not options.robot:
        return []
    from temporeal.policies.cli.deployment.requirements import needs_bridge
    from temporeal.policies.runs import errors
    from temporeal.robots.spec import load_robot

    needs_bridge()
    from temporeal_bridge.interface.loading import load_interface

    with errors.bad_input():
        robot = load_robot(options.robot)
        interface = load_interface(robot, options.interface)
    root = namespace_of(options, [state.topic for state in interface.states], kinds, path)
    return [of_state(f"{root}/{state.topic}", state, {name: spec.unit for name, spec in robot.signals.items()},
                     f"robot {robot.name!r} needs the topic {root}/{state.topic}; topics: {in_words(kinds)}"
                     if f"{root}/{state.topic}" not in kinds else "") for state in interface.states]


def namespace_of(options: Options, ends: Sequence[str], kinds: Mapping[str, str], path: Path) -> str:
    """The namespace of the robot: the one that is given, else that of the only robot."""
    if options.namespace is not None:
        return f"/{options.namespace.strip('/')}".rstrip("/")
    roots = {topic.removesuffix(f"/{ends[0]}") for topic in kinds if topic.endswith(f"/{ends[0]}")}
    if len(roots) == 1:
        return roots.pop()
    raise BadInput(f"{path}: --namespace says whose topics: {len(roots)} robots publish {ends[0]}; "
                   f"topics: {in_words(kinds)}")


def of_state(name: str, state: Any, units: Mapping[str, str], lacks: str) -> Topic:
    """A state topic of a robot. A message that its codec cannot accept is decoded for each signal by itself: what is
    wrong matters only to the signals that are made of it."""
    from temporeal_bridge.codecs.codec import CodecError
    from temporeal_bridge.codecs.table import STATE_CODECS
    from temporeal_bridge.interface.state_input import trimmed

    codec = STATE_CODECS[state.codec]
    signals = codec.signals(state.options)
    alone = {signal: trimmed(state, [signal]) for signal in signals}
    parts = {signal: codec.parts(alone[signal], state.rate_hz) for signal in signals} if codec.parts else {}

    def one(signal: str, message: Any, received: int) -> Found:
        try:
            whole = parts[signal].take(message, 1e-9 * received) if parts else message
            if whole is None:
                return NoSample("no message completes it: joints come in several, and some in none")
            value = np.asarray(codec.decode(whole, alone[signal])[signal], dtype=np.float64)
            return value if whole is message else Completed(value, header_stamp(whole) or 0)
        except CodecError as error:
            return MissingValue(str(error))

    def decode(message: Any, received: int) -> Mapping[str, Found]:
        if not parts:  # one that comes in parts is put together for each signal: a part may lack fields
            with suppress(CodecError):
                return {name: np.asarray(x, np.float64) for name, x in codec.decode(message, state.options).items()}
        return {signal: one(signal, message, received) for signal in signals}

    def stamp(message: Any) -> int | None:
        try:
            return codec.stamp(message)
        except CodecError:  # a clock that nothing relates to the robot's: the receipt's is taken
            return None

    return Topic(name, signals, decode, lambda signal, _: units.get(signal, ""), stamp, state.rate_hz == 0, lacks)


def read_topics(reader: Any, wanted: Sequence[Topic], path: Path) -> list[Table]:
    """The tables of the ``wanted`` topics. Times are in seconds since the bag's start; those of clocks that are not the
    recorder's since the first of them."""
    found: list[tuple[Topic, Clock, dict[str, Samples]]] = []
    for topic in wanted:
        clock, samples = read_topic(topic, messages_of(reader, topic, path))
        if wrong := wrong_with(reader, topic, clock):
            samples = {name: Samples(wrong=wrong) for name in topic.signals}
        found.append((topic, clock, samples))
    far = [int(clock.times_ns.min()) for _, clock, _ in found if clock.far and len(clock.times_ns)]
    return [table for topic, clock, samples in found for table in tables(
        topic, clock, samples, min(far) if clock.far else int(reader.start_time), str(path))]


def wrong_with(reader: Any, topic: Topic, clock: Clock) -> str:
    """Why nothing on a topic can be read; empty: it can."""
    said, count = sum(c.msgcount for c in connections_of(reader, topic.name)), len(clock.times_ns)
    if topic.lacks or not count:
        return topic.lacks or "it has no message"
    if count < said:
        return f"the bag is truncated: it says that there are {said} messages, {count} are there"
    return receipt_goes_back(reader, topic.name) if clock.received else ""


def connections_of(reader: Any, topic: str) -> list[Any]:
    """The connections of one topic."""
    return [c for c in reader.connections if c.topic == topic]


def messages_of(reader: Any, topic: Topic, path: Path) -> Iterator[tuple[int, Any]]:
    """(receipt [ns], message) of one topic, by receipt."""
    connections = connections_of(reader, topic.name)
    count, progress = sum(c.msgcount for c in connections), counter(f"{path}, {topic.name}")
    for k, (connection, received, data) in enumerate(reader.messages(connections) if connections else (), start=1):
        yield received, reader.deserialize(data, connection.msgtype)
        if k % 10_000 == 0:
            progress(k, count)


def receipt_goes_back(reader: Any, topic: str) -> str:
    """Whether messages were written later than those that they were received before, in words: a reader sorts by
    receipt, and so mixes what came before the recorder's clock was set back with what came after."""
    back = went_back([at for one in reader.readers for storage in storages(one) for at in written(storage, topic)])
    if back is None:
        return ""
    return (f"message {back[0]} was received {back[1]:.3g} s before one that was written before it, and no stamp says "
            "when they are from: the recorder's clock was set back")
