"""The newest state of the robot by signal name, from as many topics as its interface has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from robots.signals import SignalError, check_signal
from robots.spec import RobotSpec
from temporeal_bridge import codecs, messages
from temporeal_bridge.interface import Interface, StateTopic
from temporeal_bridge.transport import Endpoint, Received, Transport, qos_named

Listener = Callable[[int, int, dict[str, np.ndarray]], None]
"""``listener(topic number, stamp [ns], signals)``: called for every message that was taken."""


REORDERED_NS = 1_000_000_000


@dataclass(eq=False)
class Source:
    """What came last on one topic: signals, when it was taken [s, monotonic] and its stamp [ns]."""

    topic: StateTopic
    signals: dict[str, np.ndarray]
    at: float = -inf
    stamp: int = 0


class StateInput:
    """Subscribes to the state topics. A message that cannot be right is dropped and counted, never used.

    So is one that repeats a stamp or comes after a newer one: its arrival does not make the state any fresher. A stamp
    that goes back by more is that of a clock that was set, and a stamp of 0 is none.

    ``qos`` replaces the quality of service that the interface names, but for topics that are sent when they change:
    those are latched. ``listener`` hears every message, not only the newest.
    """

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, qos: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.transport, self.robot, self.listener = transport, robot, listener
        self.specs = interface.carried
        self.sources = [Source(topic, {}) for topic in interface.states]
        self.endpoints: list[Endpoint] = [
            transport.subscribe(s.topic.topic, s.topic.type,
                                qos_named(qos if qos and s.topic.rate_hz > 0 else s.topic.qos), self._taker(s))
            for s in self.sources]
        self.rejected, self.last_rejection, self.repeated = 0, "", 0

    def _taker(self, source: Source) -> Any:
        codec = codecs.STATES[source.topic.codec]

        def take(received: Received) -> None:
            try:
                message = messages.decode(received.type, received.data)
                signals, stamp = codec.decode(message, source.topic.options), codec.stamp(message)
                signals = {n: check_signal(self.specs[n], v) for n, v in signals.items()}
            except (SignalError, codecs.CodecError, messages.MessageError) as error:
                self.rejected += 1
                self.last_rejection = f"{received.topic}: {error}"
                return
            if stamp and 0 <= source.stamp - stamp < REORDERED_NS:
                self.repeated += 1
                return
            source.at, source.stamp, source.signals = received.at, stamp, signals
            if self.listener is not None:
                self.listener(self.sources.index(source), source.stamp, source.signals)

        return take

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
        return max(now - source.at for source in self.sources if source.topic.rate_hz > 0 or source.at == -inf)

    def newest(self) -> dict[str, np.ndarray]:
        """The state by signal name."""
        out: dict[str, np.ndarray] = {}
        for source in self.sources:
            out.update(source.signals)
        return out
