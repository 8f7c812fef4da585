"""The messages of a bag by topic: their times, and the bytes of those that are no pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.sim.stl.samples.times import Times, are_set, clock_set, late
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.recording import bags
from temporeal_bridge.transports import messages

HEAD = 12  # bytes: encapsulation, and the stamp of a std_msgs/Header
LITTLE = 1  # second byte of little-endian CDR
FAR_NS = 10**15
"""Stamps this far (11 days) from their receipt are of a clock of their own: a simulator's, or an old recording's."""
Stamp = Any
"""``stamp(message)`` -> ns; see StateCodec."""


@dataclass
class Rows:
    """The messages of one topic, in the order of receipt.

    Args:
        topic: its full name.
        type: of the messages.
        data: of each, CDR bytes; of pictures the first is whole, of the others :data:`HEAD` bytes are kept.
        picture: whether they are pictures.
    """

    topic: str
    type: str
    picture: bool
    latched: bool = False
    received: list[int] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)

    def take(self, at: int, data: bytes) -> None:
        """The next message."""
        self.received.append(at)
        self.data.append(bytes(data[:HEAD]) if self.picture and self.data else bytes(data))

    def decode(self, k: int) -> Any:
        """Message ``k``."""
        return messages.decode(self.type, self.data[k])


@dataclass(frozen=True)
class Bag:
    """What was read.

    Args:
        rows: by topic. start_ns, end_ns: the first and the last receipt.
        cut: why it is incomplete; "": it is whole.
        topics: all of the bag, with their types. called: by full name, what a topic is called in the bag.
    """

    path: Path
    rows: Mapping[str, Rows]
    start_ns: int
    end_ns: int
    cut: str
    topics: Mapping[str, str]
    called: Mapping[str, str]


def read(path: Path, pictures: Mapping[str, bool], called: Mapping[str, str]) -> Bag:
    """The messages of the topics in ``pictures`` (full name -> whether they are pictures).

    Args:
        called: by full name, the topic's name in the bag, where it was remapped.
    """
    plain = {**dict.fromkeys(called, ""), **{name: full for full, name in called.items()}}
    rows, topics, ends = dict[str, Rows](), dict[str, str](), list[int]()
    with bags.opened(path) as (readers, cut):
        try:
            for reader, scan in readers:
                for connection in reader.connections:
                    topics[plain.get(connection.topic, connection.topic)] = connection.msgtype
                chosen = [c for c in reader.connections if plain.get(c.topic, c.topic) in pictures]
                if hasattr(reader, "start_time") and reader.message_count:
                    ends += [reader.start_time, reader.end_time - 1]
                each = reader.messages_scan if scan else reader.messages
                for connection, at, data in each(chosen) if chosen else ():
                    topic = plain.get(connection.topic, connection.topic)
                    found = rows.get(topic)
                    if found is None:
                        found = rows[topic] = Rows(topic, connection.msgtype, pictures[topic], is_latched(connection))
                    found.take(at, data)
        except Exception as error:  # a damaged chunk, or bytes that rosbags cannot read: what is before it is kept
            if not rows:
                raise DataError(f"{path} cannot be read: {error}") from error
            cut = f"damaged: {error}"
    received = [at for found in rows.values() for at in (found.received[0], found.received[-1])]
    if not received:
        raise DataError(f"{path} has no message on {', '.join(pictures) or 'any topic'}; its topics: "
                        f"{', '.join(topics) or 'none'}" + (f"; it is incomplete: {cut}" if cut else ""))
    ends = received if cut or not ends else ends
    return Bag(path, rows, min(ends), max(ends), cut, topics, called)


def is_latched(connection: Any) -> bool:
    """Whether the publishers of a topic keep the last message: it holds until the next one."""
    return any(getattr(qos.durability, "name", "") == "TRANSIENT_LOCAL"
               for qos in getattr(connection.ext, "offered_qos_profiles", ()) or ())


def stamps_of(rows: Rows, stamp: Stamp | None) -> np.ndarray:
    """[T] stamps [ns] of all messages; 0 where there is none. Those of headers are read without decoding."""
    fields = list(getattr(messages.record(rows.type), "__dataclass_fields__", ()))
    heads = np.frombuffer(b"".join(data[:HEAD].ljust(HEAD, b"\0") for data in rows.data), np.uint8).reshape(-1, HEAD)
    if fields[:1] == ["header"] and (heads[:, 1] == LITTLE).all():
        seconds = heads[:, 4:8].copy().view("<i4").ravel().astype(np.int64)
        return np.asarray(seconds * 1_000_000_000 + heads[:, 8:12].copy().view("<u4").ravel())
    if stamp is None or rows.picture:
        return np.zeros(len(rows.data), np.int64)
    return np.array([one_stamp(rows, k, stamp) for k in range(len(rows.data))], np.int64)


def one_stamp(rows: Rows, k: int, stamp: Stamp) -> int:
    """The stamp of message ``k``; 0 where it has none, or cannot be read."""
    try:
        return int(stamp(rows.decode(k)))
    except (CodecError, messages.MessageError):
        return 0


@dataclass(frozen=True)
class Clock:
    """When the messages of a topic were.

    Args:
        times: [T] s since the bag's start.
        lag_s: how much later they were received, at least; 0 where these are the receipts themselves.
        good: [T] whether a message came in order: it neither repeats a time nor goes back.
    """

    times: Times
    lag_s: float
    good: np.ndarray


def clock_of(bag: Bag, rows: Rows, stamp: Stamp | None, receipt: bool) -> Clock:
    """The one clock of a topic (:mod:`temporeal.sim.stl.samples.times`); ``receipt``: never that of the headers."""
    received = np.array(rows.received, np.int64)
    stamps = np.zeros(0, np.int64) if receipt else stamps_of(rows, stamp)
    chosen = stamps if are_set(stamps) else received
    lag = int((received - chosen).min())
    base = bag.start_ns if abs(lag) <= FAR_NS else bag.start_ns - lag
    times = (chosen - base) / 1e9
    if (k := clock_set(times)) is not None:
        raise DataError(f"{rows.topic}, message {k}: its time goes back by {float(times[:k].max() - times[k]):.3g} s: "
                        "a clock was set, and no order of the samples is known")
    return Clock(times, lag * 1e-9, ~late(times))


def walk(path: Path, topic: str, first_ns: int) -> Iterator[bytes]:
    """The messages on ``topic``, as the bag calls it, that were received at ``first_ns`` or later."""
    with bags.opened(path) as (readers, _):
        for reader, scan in readers:
            chosen = [c for c in reader.connections if c.topic == topic]
            if chosen and scan:
                yield from (data for _, at, data in reader.messages_scan(chosen) if at >= first_ns)
            elif chosen:
                yield from (data for _, _, data in reader.messages(chosen, start=first_ns))
