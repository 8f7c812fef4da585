"""The newest state of the robot by signal name, from all state topics of its interface.

Pictures of cameras are kept beside it for nodes that ask for them. Nobody waits for a picture: only the newest one is
decoded (a JPEG of 640x480 takes about 2 ms), between two steps, and pictures do not count for the age of the state.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalSpec, all_finite, check_signal
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.samples.missing import matters
from temporeal.sim.stl.samples.times import CLOCK_SET_S, TopicClock
from temporeal_bridge.codecs.codec import WANTED, CodecError
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface, StateTopic, carried_by
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Callback, Endpoint, Received, Transport, qos_named

Listener = Callable[[int, int, dict[str, np.ndarray]], None]
"""``listener(topic number, stamp [ns], signals)``: called for every accepted message."""


REORDERED_NS = round(1e9 * CLOCK_SET_S)
CLOCK_SET = 3  # stamps in a row that went back, each later than the one before, mean that a clock was set. Chosen: at
# 50 Hz they are 60 ms, in which no state gets stale
MARKED_BYTES = 4096  # of a message, header included: a picture's stamp is among them


def mark(data: bytes) -> int:
    """CRC-32 of a message's first bytes: identifies the message in a recording made by another process."""
    return zlib.crc32(memoryview(data)[:MARKED_BYTES])


@dataclass(frozen=True, eq=False)
class UnreadPicture:
    """A picture that was not decoded yet: its message, arrival [s, monotonic], stamp [ns] and :func:`mark`."""

    message: Any
    at: float
    stamp: int
    mark: int


@dataclass(eq=False)
class Source:
    """The last message of one topic: signals, arrival [s, monotonic], stamp [ns] and :func:`mark`; of a camera also the
    picture that was not decoded yet."""

    topic: StateTopic
    signals: dict[str, np.ndarray]
    at: float = -inf
    stamp: int = 0
    mark: int = 0
    unread: UnreadPicture | None = None
    behind: int = 0  # the last stamp that went back
    again: int = 0  # number of these in a row, each later than the one before
    clock: TopicClock = field(default_factory=TopicClock)

    def repeats(self, stamp: int) -> bool:
        """Whether a message with this stamp repeats the last one or is older. Stamps that went back and advance from
        there belong to a clock that was set, and are accepted."""
        last = self.unread.stamp if self.unread is not None else self.stamp
        began = self.clock.sets(stamp) or not self.clock.stamped
        if not began and stamp == last:
            return True
        if began or not 0 < last - stamp < REORDERED_NS:
            self.again = 0
            return False
        self.again = self.again + 1 if self.again and stamp > self.behind else 1
        self.behind = stamp
        if self.again < CLOCK_SET:
            return True
        self.again = 0
        return False


SPARED = 50  # messages for which only what is wanted is decoded, after one of which not all could be. Chosen


def affordable(topic: StateTopic, wanted: Collection[str] | None) -> Mapping[str, Any]:
    """A state codec's options without unwanted parts of ``tool``: an arm's kinematics cost more per message than all
    other decoding."""
    if wanted is None or "tool" not in topic.options:
        return topic.options
    tool = {key: name for key, name in topic.options["tool"].items() if key == "chain" or name in wanted}
    rest = {key: value for key, value in topic.options.items() if key != "tool"}
    return {**rest, "tool": tool} if tool.keys() > {"chain"} else rest


def trimmed(topic: StateTopic, wanted: Collection[str] | None) -> Mapping[str, Any]:
    """A state codec's options without what nobody wants: parts of ``tool`` (an arm's kinematics cost more per message
    than all other decoding), and a JointState's velocity and effort, which drivers may leave empty or not know. Other
    codecs are told what is wanted."""
    options = topic.options
    if wanted is None:
        return options
    if topic.codec != "joint_state":
        return {**options, WANTED: frozenset(wanted)}
    tool = {key: name for key, name in options.get("tool", {}).items() if key == "chain" or name in wanted}
    tool = tool if tool.keys() > {"chain"} else {}
    needed = {*wanted, *((options.get("velocity"),) if "velocity" in tool else ())}
    rest = {key: value for key, value in options.items()
            if key != "tool" and not (key in UNREAD and value not in needed)}
    return {**rest, "tool": tool} if tool else rest


UNREAD = ("velocity", "effort")  # fields of a JointState that are not read where nobody wants their signals


class StateReader:
    """Decodes the messages of a state topic. Bytes from anywhere may come, so any exception can be raised.

    ``wanted``: see :class:`StateInput`.
    """

    def __init__(
        self, topic: StateTopic, specs: Mapping[str, SignalSpec], wanted: Collection[str] | None = None
    ) -> None:
        self.codec, self.options, self.specs = STATE_CODECS[topic.codec], trimmed(topic, wanted), specs
        self.wanted, self.all, self.spared = wanted, affordable(topic, wanted), 0
        self.parts = None if self.codec.parts is None else self.codec.parts(self.options, topic.rate_hz)

    def message(self, type: str, data: bytes, at: float = 0.0) -> tuple[Any, int] | None:
        """The message in CDR bytes that arrived ``at`` [s], or that it completes, and its stamp [ns]; None: it is a
        part, and others are needed."""
        message = messages.decode(type, data)
        if self.parts is not None:
            message = self.parts.take(message, at)
        return None if message is None else (message, self.codec.stamp(message))

    def signals(self, message: Any) -> dict[str, np.ndarray]:
        """Its signals by name: most of the work. One that nobody wants is left out where it is wrong."""
        found = self._decoded(message)
        return {n: check_signal(self.specs[n], v) for n, v in found.items()
                if matters(n, self.wanted) or all_finite(np.asarray(v))}

    def _decoded(self, message: Any) -> Mapping[str, np.ndarray]:
        """All that is in the message; where that is not to be had, what is wanted."""
        if self.wanted is not None and self.spared > 0:
            self.spared -= 1
            return self.codec.decode(message, self.options)
        try:
            return self.codec.decode(message, self.all)
        except CodecError:
            if self.wanted is None:
                raise
            self.spared = SPARED
            return self.codec.decode(message, self.options)


class StateInput:
    """Subscribes to the state topics. Messages that cannot be right are dropped and counted.

    So are messages that repeat a stamp or are older than the last: they do not make the state fresher. A stamp that
    goes back by more than a second, or the third in a row that goes back and advances from there, belongs to a clock
    that was set; where no stamp of a topic is set, none repeats. Joints that come in several messages are put together
    (:mod:`temporeal_bridge.codecs.joint_parts`).

    Args:
        qos: replaces the interface's quality of service, except on topics published on change, which are latched.
        listener: gets every message, not only the newest.
        wanted: signals that are needed, of those that are costly to compute (None: all).
        pictures: wanted signals of cameras; other cameras' topics are not subscribed to.
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
                qos if qos and s.topic.rate_hz > 0 else s.topic.qos), self._state_callback(s, wanted))
            for s in self.sources]
        self.pictures = [Source(topic, {}) for topic in interface.pictures]
        self.limits = {topic.topic: topic.max_age_s for topic in interface.pictures}  # s
        self.cameras: list[tuple[Source, StateReader]] = []
        for source in self.pictures:
            if set(carried_by(source.topic)) & set(pictures):
                reader = StateReader(source.topic, self.specs)
                self.cameras.append((source, reader))
                self.endpoints.append(transport.subscribe(
                    source.topic.topic, source.topic.type, qos_named(qos or source.topic.qos),
                    self._picture_callback(source, reader)))
        self.rejected, self.last_rejection, self.repeated = 0, "", 0
        self.last: tuple[StateReader, Received, Any] | None = None  # last message of the source that paces

    def _state_callback(self, source: Source, wanted: Collection[str] | None) -> Callback:
        reader = StateReader(source.topic, self.specs, wanted)

        def take(received: Received) -> None:
            try:
                complete = reader.message(received.type, received.data, received.at)
                if complete is None:
                    return
                message, stamp = complete
                signals = reader.signals(message)
            except Exception as error:  # whatever bytes from anywhere make a codec raise
                return self._reject(received.topic, error)
            if source.repeats(stamp):
                self.repeated += 1
                return
            # what nobody wants and this message lacks stays: a log of steps has the same signals throughout
            source.at, source.stamp, source.signals = received.at, stamp, {**source.signals, **signals}
            source.mark = mark(received.data)
            if source is self.paced:
                self.last = reader, received, message
            if self.listener is not None:
                self.listener(self.sources.index(source), source.stamp, source.signals)

        return take

    def _picture_callback(self, source: Source, reader: StateReader) -> Callback:
        def take(received: Received) -> None:
            try:
                complete = reader.message(received.type, received.data, received.at)
            except Exception as error:  # as for a state
                return self._reject(received.topic, error)
            if complete is None:
                return
            message, stamp = complete
            if source.repeats(stamp):
                self.repeated += 1
            else:
                source.unread = UnreadPicture(message, received.at, stamp, mark(received.data))

        return take

    def _reject(self, topic: str, error: Exception) -> None:
        self.rejected += 1
        self.last_rejection = f"{topic}: {error}"

    def rehearse(self) -> None:
        """Decode the last message of the source that paces again, without effect: see
        :class:`temporeal_bridge.process.rehearsal.Rehearsal`."""
        if self.last is not None:
            reader, received, message = self.last
            messages.decode(received.type, received.data)
            reader.signals(message)

    def read_pictures(self) -> None:
        """Decode the pictures that have arrived. A wrong one is dropped, and the one before it stays."""
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
        """Age [s] of a camera's picture by its stamp, at least the time since its arrival; infinite: there is none.
        ``now``: [s, monotonic]."""
        since = self.transport.monotonic() - now
        by_stamp = 1e-9 * (self.transport.now() - source.stamp) - since if source.stamp else -inf
        return max(now - source.at, by_stamp)

    def overdue(self, now: float) -> str:
        """Which of the decoded pictures is too old at ``now``, in words; empty: none."""
        for source, _ in self.cameras:
            limit, age = self.limits[source.topic.topic], self.picture_age(source, now)
            if age > limit:
                return (f"no picture on {source.topic.topic}" if age == inf else
                        f"the picture on {source.topic.topic} is {age:.3f} s old, {limit:g} s is allowed")
        return ""

    @property
    def marks(self) -> list[int]:
        """Marks of the messages behind state and pictures, by topic; 0: none yet, or not subscribed to."""
        return [source.mark for source in (*self.sources, *self.pictures)]

    @property
    def complete(self) -> bool:
        """Whether every topic has delivered a message."""
        if not all(source.at > -inf for source in self.sources):
            return False
        self.read_pictures()
        return all(source.at > -inf for source, _ in self.cameras)

    @property
    def missing(self) -> list[str]:
        """Topics that have delivered nothing yet."""
        return [source.topic.topic for source in (*self.sources, *(camera for camera, _ in self.cameras))
                if source.at == -inf]

    @property
    def paced(self) -> Source:
        """The source whose arrival paces the controller: the first of the interface."""
        return self.sources[0]

    def age(self, now: float) -> float:
        """Age [s] of the oldest part of the state; infinite while a part is missing.

        Signals published on change (``rate_hz`` 0) have no age, once they arrived.
        """
        return now - self.since

    @property
    def since(self) -> float:
        """Arrival of the oldest part of the state [s, monotonic]; see :meth:`age`."""
        return min((s.at for s in self.sources if s.topic.rate_hz > 0 or s.at == -inf), default=inf)

    def newest(self) -> dict[str, np.ndarray]:
        """The state by signal name, and the wanted pictures."""
        self.read_pictures()
        out: dict[str, np.ndarray] = {}
        for source in (*self.sources, *(source for source, _ in self.cameras)):
            out.update(source.signals)
        return out
