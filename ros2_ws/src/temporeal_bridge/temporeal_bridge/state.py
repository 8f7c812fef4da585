"""The newest state of the robot by signal name, from as many topics as its interface has.

Pictures of cameras are given beside it, to who asks for them. Nobody waits for one: a picture is read (a JPEG of
640x480: some 2 ms) between two steps, and only the newest; and the age of the state is not theirs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalSpec, check_signal
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface import Interface, StateTopic
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Endpoint, Received, Transport, qos_named

Listener = Callable[[int, int, dict[str, np.ndarray]], None]
"""``listener(topic number, stamp [ns], signals)``: called for every message that was taken."""


REORDERED_NS = 1_000_000_000
AGAIN = 3  # so many stamps that went back, each later than the one before, are those of a clock that was set. Chosen:
# at 50 Hz they are 60 ms, in which no state is stale
MARKED_BYTES = 4096  # of a message, header included: a picture has its stamp there


def mark(data: bytes) -> int:
    """CRC-32 of a message's beginning: finds the message in a recording that another process made, by what it says."""
    return zlib.crc32(memoryview(data)[:MARKED_BYTES])


@dataclass(frozen=True, eq=False)
class Unread:
    """A picture as it came: its message, when it was taken [s, monotonic], its stamp [ns] and its :func:`mark`."""

    message: Any
    at: float
    stamp: int
    mark: int


@dataclass(eq=False)
class Source:
    """What came last on one topic: signals, when it was taken [s, monotonic], its stamp [ns] and its :func:`mark`; and
    a picture that nobody has looked at yet."""

    topic: StateTopic
    signals: dict[str, np.ndarray]
    at: float = -inf
    stamp: int = 0
    mark: int = 0
    unread: Unread | None = None
    behind: int = 0  # the last stamp that went back
    again: int = 0  # how many of these have come in a row, each later than the one before

    def repeats(self, stamp: int) -> bool:
        """Whether a message of this stamp, which has just come, says again what has come already: it repeats the last
        stamp, or came late. Stamps that went back and go on from there are those of a clock that was set."""
        last = self.unread.stamp if self.unread is not None else self.stamp
        if stamp and stamp == last:
            return True
        if not stamp or not 0 < last - stamp < REORDERED_NS:
            self.again = 0
            return False
        self.again = self.again + 1 if self.again and stamp > self.behind else 1
        self.behind = stamp
        if self.again < AGAIN:
            return True
        self.again = 0
        return False


def trimmed(options: Mapping[str, Any], wanted: Collection[str] | None) -> Mapping[str, Any]:
    """Options of a state's codec without the parts of ``tool`` that nobody wants: an arm's kinematics for each message
    cost more than all else that is done with it. Everything that the message says is still read and checked."""
    if wanted is None or "tool" not in options:
        return options
    tool = {key: name for key, name in options["tool"].items() if key == "chain" or name in wanted}
    return {**{key: value for key, value in options.items() if key != "tool"}, **({"tool": tool} if tool.keys() > {
        "chain"} else {})}


class Reader:
    """Reads the messages of a state topic; it raises whatever bytes from anywhere make a codec raise. ``wanted``: see
    :class:`StateInput`."""

    def __init__(
        self, topic: StateTopic, specs: Mapping[str, SignalSpec], wanted: Collection[str] | None = None
    ) -> None:
        self.codec, self.options, self.specs = STATE_CODECS[topic.codec], trimmed(topic.options, wanted), specs

    def message(self, type: str, data: bytes) -> tuple[Any, int]:
        """The message in CDR bytes, and its stamp [ns]."""
        message = messages.decode(type, data)
        return message, self.codec.stamp(message)

    def signals(self, message: Any) -> dict[str, np.ndarray]:
        """What it says, by name: most of the work."""
        return {n: check_signal(self.specs[n], v) for n, v in self.codec.decode(message, self.options).items()}


class StateInput:
    """Subscribes to the state topics. A message that cannot be right is dropped and counted, never used.

    So is one that repeats a stamp or comes after a newer one: its arrival does not make the state any fresher. A stamp
    that goes back by more than a second, or the third in a row that goes back and each time on, is that of a clock that
    was set, and a stamp of 0 is none.

    ``qos`` replaces the quality of service that the interface names, but for topics that are sent when they change:
    those are latched. ``listener`` hears every message, not only the newest; of ``wanted`` signals alone are those
    given that cost much (None: all are). ``pictures``: signals of cameras that are wanted; others' topics are not
    subscribed to.
    """

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, qos: str | None = None,
        listener: Listener | None = None, wanted: Collection[str] | None = None, pictures: Collection[str] = (),
    ) -> None:
        self.transport, self.robot, self.listener = transport, robot, listener
        self.specs = interface.carried
        self.sources = [Source(topic, {}) for topic in interface.states]
        self.endpoints: list[Endpoint] = [
            transport.subscribe(s.topic.topic, s.topic.type, qos_named(
                qos if qos and s.topic.rate_hz > 0 else s.topic.qos), self._taker(s, wanted))
            for s in self.sources]
        self.pictures = [Source(topic, {}) for topic in interface.pictures]
        self.limits = {topic.topic: topic.max_age_s for topic in interface.pictures}  # s
        self.cameras: list[tuple[Source, Reader]] = []
        for source in self.pictures:
            reader = Reader(source.topic, self.specs)
            if set(reader.codec.signals(reader.options)) & set(pictures):
                self.cameras.append((source, reader))
                self.endpoints.append(transport.subscribe(
                    source.topic.topic, source.topic.type, qos_named(qos or source.topic.qos),
                    self._photographer(source, reader)))
        self.rejected, self.last_rejection, self.repeated = 0, "", 0
        self.last: tuple[Reader, Received] | None = None  # message of the source that paces

    def _taker(self, source: Source, wanted: Collection[str] | None) -> Any:
        reader = Reader(source.topic, self.specs, wanted)

        def take(received: Received) -> None:
            try:
                message, stamp = reader.message(received.type, received.data)
                signals = reader.signals(message)
            except Exception as error:  # what a message from anywhere makes a codec raise must not end its reader
                return self._reject(received.topic, error)
            if source.repeats(stamp):
                self.repeated += 1
                return
            source.at, source.stamp, source.signals = received.at, stamp, signals
            source.mark = mark(received.data)
            if source is self.paced:
                self.last = reader, received
            if self.listener is not None:
                self.listener(self.sources.index(source), source.stamp, source.signals)

        return take

    def _photographer(self, source: Source, reader: Reader) -> Any:
        def take(received: Received) -> None:
            try:
                message, stamp = reader.message(received.type, received.data)
            except Exception as error:  # as for a state
                return self._reject(received.topic, error)
            if source.repeats(stamp):
                self.repeated += 1
            else:
                source.unread = Unread(message, received.at, stamp, mark(received.data))

        return take

    def _reject(self, topic: str, error: Exception) -> None:
        self.rejected += 1
        self.last_rejection = f"{topic}: {error}"

    def rehearse(self) -> None:
        """Read the last message of the source that paces once more, for nothing: see
        :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        if self.last is not None:
            reader, received = self.last
            reader.signals(reader.message(received.type, received.data)[0])

    def look(self) -> None:
        """Read the pictures that have come. One that cannot be right is dropped, and the one before it stays."""
        for source, reader in self.cameras:
            new, source.unread = source.unread, None
            if new is not None:
                try:
                    source.signals = reader.signals(new.message)
                except Exception as error:  # as for a state
                    self._reject(source.topic.topic, error)
                else:
                    source.at, source.stamp, source.mark = new.at, new.stamp, new.mark

    def picture_age(self, source: Source, now: float) -> float:
        """Seconds since a camera's picture was taken, by its stamp, but not less than since it came; infinite: none.
        ``now``: [s, monotonic]."""
        since = self.transport.monotonic() - now
        by_stamp = 1e-9 * (self.transport.now() - source.stamp) - since if source.stamp else -inf
        return max(now - source.at, by_stamp)

    def overdue(self, now: float) -> str:
        """Which picture, of those looked at, is older ``now`` than it may be, in words; empty: none is."""
        for source, _ in self.cameras:
            limit, age = self.limits[source.topic.topic], self.picture_age(source, now)
            if age > limit:
                return (f"no picture on {source.topic.topic}" if age == inf else
                        f"the picture on {source.topic.topic} is {age:.3f} s old, {limit:g} s is allowed")
        return ""

    @property
    def marks(self) -> list[int]:
        """Which message of each topic state and pictures are made of; 0: none yet, or one that was not asked for."""
        return [source.mark for source in (*self.sources, *self.pictures)]

    @property
    def complete(self) -> bool:
        """Whether every topic has brought something."""
        if not all(source.at > -inf for source in self.sources):
            return False
        self.look()
        return all(source.at > -inf for source, _ in self.cameras)

    @property
    def missing(self) -> list[str]:
        """Topics that have brought nothing yet."""
        return [source.topic.topic for source in (*self.sources, *(camera for camera, _ in self.cameras))
                if source.at == -inf]

    @property
    def paced(self) -> Source:
        """The source whose arrival paces the controller: the first of the interface."""
        return self.sources[0]

    def age(self, now: float) -> float:
        """Age [s] of the oldest part of the state; infinite while a part is missing.

        What is sent only when it changes (``rate_hz`` 0) has no age, once it came.
        """
        return now - self.since

    @property
    def since(self) -> float:
        """When the oldest part of the state arrived [s, monotonic]; see :meth:`age`."""
        return min((s.at for s in self.sources if s.topic.rate_hz > 0 or s.at == -inf), default=inf)

    def newest(self) -> dict[str, np.ndarray]:
        """The state by signal name, and the pictures that were asked for."""
        self.look()
        out: dict[str, np.ndarray] = {}
        for source in (*self.sources, *(source for source, _ in self.cameras)):
            out.update(source.signals)
        return out
