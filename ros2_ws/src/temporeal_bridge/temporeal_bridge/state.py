"""The newest state of the robot by signal name, from as many topics as its interface has."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from robots.signals import SignalSpec, check_signal
from robots.spec import RobotSpec
from temporeal_bridge import codecs, messages
from temporeal_bridge.interface import Interface, StateTopic
from temporeal_bridge.transport import Endpoint, Received, Transport, qos_named

Listener = Callable[[int, int, dict[str, np.ndarray]], None]
"""``listener(topic number, stamp [ns], signals)``: called for every message that was taken."""


REORDERED_NS = 1_000_000_000
MARKED_BYTES = 4096  # of a message, header included: a picture has its stamp there


def mark(data: bytes) -> int:
    """CRC-32 of a message's beginning: finds the message in a recording that another process made, by what it says."""
    return zlib.crc32(memoryview(data)[:MARKED_BYTES])


@dataclass(eq=False)
class Source:
    """What came last on one topic: signals, when it was taken [s, monotonic], its stamp [ns] and its :func:`mark`."""

    topic: StateTopic
    signals: dict[str, np.ndarray]
    at: float = -inf
    stamp: int = 0
    mark: int = 0


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
        self.codec, self.options, self.specs = codecs.STATES[topic.codec], trimmed(topic.options, wanted), specs

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
    that goes back by more is that of a clock that was set, and a stamp of 0 is none.

    ``qos`` replaces the quality of service that the interface names, but for topics that are sent when they change:
    those are latched. ``listener`` hears every message, not only the newest; of ``wanted`` signals alone are those
    given that cost much (None: all are).
    """

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, qos: str | None = None,
        listener: Listener | None = None, wanted: Collection[str] | None = None,
    ) -> None:
        self.transport, self.robot, self.listener = transport, robot, listener
        self.specs = interface.carried
        self.sources = [Source(topic, {}) for topic in interface.states]
        self.endpoints: list[Endpoint] = [
            transport.subscribe(s.topic.topic, s.topic.type, qos_named(
                qos if qos and s.topic.rate_hz > 0 else s.topic.qos), self._taker(s, wanted))
            for s in self.sources]
        self.rejected, self.last_rejection, self.repeated = 0, "", 0

    def _taker(self, source: Source, wanted: Collection[str] | None) -> Any:
        reader = Reader(source.topic, self.specs, wanted)

        def take(received: Received) -> None:
            try:
                message, stamp = reader.message(received.type, received.data)
                signals = reader.signals(message)
            except Exception as error:  # what a message from anywhere makes a codec raise must not end its reader
                self.rejected += 1
                self.last_rejection = f"{received.topic}: {error}"
                return
            if stamp and 0 <= source.stamp - stamp < REORDERED_NS:
                self.repeated += 1
                return
            source.at, source.stamp, source.signals = received.at, stamp, signals
            source.mark = mark(received.data)
            if self.listener is not None:
                self.listener(self.sources.index(source), source.stamp, source.signals)

        return take

    @property
    def marks(self) -> list[int]:
        """Which message of each topic the state is made of; 0: none yet."""
        return [source.mark for source in self.sources]

    @property
    def complete(self) -> bool:
        """Whether every topic has brought something."""
        return all(source.at > -inf for source in self.sources)

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
        """The state by signal name."""
        out: dict[str, np.ndarray] = {}
        for source in self.sources:
            out.update(source.signals)
        return out
