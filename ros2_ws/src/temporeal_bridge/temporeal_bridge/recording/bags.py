"""Reads bags: their robots, and the messages of a topic as raw bytes in the order of their receipt.

A bag whose recorder was killed, or of which only a part was copied, is read as far as possible and reported as cut; it
is not changed. Every bag that rosbag2 writes can be read (MCAP or SQLite, compressed or not).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import Reader
from rosbags.rosbag2.storage_mcap import McapReader

from temporeal.robots.handed_over.bags import check_bag
from temporeal.robots.handed_over.endings import truncated
from temporeal.robots.handed_over.files import Refused
from temporeal.sim.stl.samples.receipts import set_back_s, storages, written
from temporeal_bridge.recording import records
from temporeal_bridge.recording.recovery import cut_and_close
from temporeal_bridge.recording.topics import SIMULATED
from temporeal_bridge.transports import messages

ARTIFACT = "guard/artifact"


class BagError(ValueError):
    """The bag cannot be read, or lacks what is needed; the message says what."""


@dataclass(frozen=True)
class Message:
    """One recorded message: when the recorder received it [ns since the epoch], topic, type and CDR bytes."""

    at: int
    topic: str
    type: str
    data: bytes

    def decode(self) -> Any:
        """The message itself."""
        return messages.decode(self.type, self.data)


@dataclass(frozen=True)
class Recording:
    """Messages by time of receipt; ``counts`` of all topics of the bag; ``cut``: why it is incomplete, or empty;
    ``set_back_s``: by how much the recorder's clock was set back meanwhile, which mixes messages; 0: it was not."""

    path: Path
    messages: list[Message]
    counts: dict[str, int]
    cut: str
    set_back_s: float = 0.0

    def of(self, topic: str) -> list[Message]:
        """The messages on one topic."""
        return [message for message in self.messages if message.topic == topic]


def read(
    path: Path, wanted: Callable[[str], bool] = lambda topic: True, renamed: Mapping[str, str] | None = None
) -> Recording:
    """The messages of the ``wanted`` topics (full names) of a bag: a folder, or an .mcap or .db3 file.

    ``renamed``: by full name, the topic's name in the bag, where it was remapped (:func:`flown`); its messages are
    returned under the full name.
    """
    if not path.exists():
        raise BagError(f"{path} is not there")
    names = renamed or {}  # messages in the bag under a name that was remapped are somebody else's
    plain = {**dict.fromkeys(names, ""), **{called: name for name, called in names.items()}}
    found: list[Message] = []
    counts: dict[str, int] = {}
    cut, back = "", 0.0
    with opened(path) as (readers, why):
        cut = why
        try:
            for reader, scan in readers:
                for connection in reader.connections:
                    counts.setdefault(connection.topic, 0)
                chosen = [c for c in reader.connections if wanted(plain.get(c.topic, c.topic))]
                messages_of = reader.messages_scan if scan else reader.messages
                for connection, at, data in messages_of(chosen) if chosen else ():
                    counts[connection.topic] += 1
                    topic = plain.get(connection.topic, connection.topic)
                    found.append(Message(at, topic, connection.msgtype, bytes(data)))
                back = max(back, clock_set_back(reader, scan, chosen, found))
        except Exception as error:  # a damaged chunk, or bytes that rosbags cannot read: keep what is before it
            if not found:
                raise BagError(f"{path} cannot be read: {error}") from error
            cut = f"damaged after {len(found)} messages: {error}"
    return Recording(path, sorted(found, key=lambda message: message.at), counts, cut, back)


def clock_set_back(reader: Any, scan: bool, chosen: Sequence[Any], found: Sequence[Message]) -> float:
    """By how much the recorder's clock was set back [s]: by the topic with most messages, in the order of writing."""
    if scan:  # it is that of the messages
        return set_back_s([message.at for message in found]) if found else 0.0
    topic = max(chosen, key=lambda connection: int(connection.msgcount), default=None)
    received = [] if topic is None else [at for one in storages(reader) for at in written(one, topic.topic)]
    return set_back_s(received) if received else 0.0


Opened = tuple[list[tuple[Any, bool]], str]
"""Readers, each with whether it must be scanned (it has no index), and why the bag is incomplete."""


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """The bag's readers: of rosbag2 where its index exists, else of its files, cut after their last whole record."""
    error: Exception | None = None
    lacks = truncated(path)
    files = [path] if path.suffix == ".mcap" else sorted(path.glob("*.mcap")) if path.is_dir() else []
    if lacks and not files:
        raise BagError(lacks)
    try:
        check_bag(path)
    except (OSError, Refused) as found:
        raise BagError(f"{path} is no bag that can be read: {found}") from found
    try:
        reader = Reader(path)
        reader.open()
    except Exception as found:  # rosbags' parsers raise any exception
        error = found
    if error is None:
        try:
            yield [(reader, False)], ""
        finally:
            reader.close()
        return
    if not files:
        raise BagError(f"{path} is no bag that can be read: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        readers = []
        try:
            for file in files:
                copy = Path(folder) / file.name
                shutil.copyfile(file, copy)
                cut_and_close(copy)
                readers.append(McapReader(copy))
                readers[-1].open()
        except Exception as found:
            raise BagError(f"{path} is no bag that can be read: {found}") from found
        try:
            yield [(each, True) for each in readers], (
                lacks or "not closed: its recorder was killed, or a part of it is missing")
        finally:
            for each in readers:
                each.close()


def flown(recording: Recording) -> dict[str, dict[str, Any]]:
    """By namespace, the guard's record of its artifact: the first one, for others may have replaced it in flight
    (:mod:`temporeal_bridge.guard.artifact_swap`)."""
    out: dict[str, dict[str, Any]] = {}
    wrong: dict[str, records.RecordError] = {}
    for message in recording.messages:
        if message.topic.endswith(f"/{ARTIFACT}"):
            try:
                out.setdefault(message.topic.removesuffix(f"/{ARTIFACT}") or "/", records.read(ARTIFACT, message))
            except records.RecordError as error:
                wrong.setdefault(message.topic, error)
    if not out:
        raise BagError(f"{recording.path} does not say what was flown: " + (
            "; ".join(f"no message on {topic} can be read ({error})" for topic, error in wrong.items()) or
            f"no message on */{ARTIFACT}. It was recorded without a guard, or by an older temporeal"))
    return out


def robot_of(path: Path, namespace: str | None = None) -> tuple[str, dict[str, Any]]:
    """Namespace of the bag's robot, and its guard's record of the artifact (:mod:`temporeal_bridge.guard_node`)."""
    found = flown(read(path, lambda topic: topic.endswith(f"/{ARTIFACT}")))
    if namespace is not None:
        name = f"/{namespace.strip('/')}"
        if name not in found:
            raise BagError(f"{path} has no robot in namespace {name}; it has: {', '.join(sorted(found))}")
        return name, found[name]
    if len(found) > 1:
        raise BagError(f"{path} has {len(found)} robots: choose one with --namespace: {', '.join(sorted(found))}")
    return next(iter(found.items()))


def simulated(recording: Recording, namespace: str) -> bool | None:
    """Whether the robot was :mod:`temporeal_bridge.robot_sim`, by its own word on ``sim/episode``, which ``recording``
    must have been read with. None: the bag does not say, because its recorder did not listen for it."""
    said = recording.counts.get(full_name(SIMULATED, namespace))
    return None if said is None else said > 0


def full_name(topic: str, namespace: str) -> str:
    """The full name of a robot's topic."""
    return topic if topic.startswith("/") else f"{namespace.rstrip('/')}/{topic}"
