"""A bus inside one process whose clock is advanced explicitly: for deterministic tests and replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import (
    GUID_PREFIX,
    Callback,
    Capabilities,
    Endpoint,
    Peer,
    QoS,
    Received,
    full_name,
    mismatch,
    resolve_name,
    unconnected,
)


@dataclass(eq=False)
class Writer:
    """A publisher: its node and the QoS that it offers."""

    node: str
    qos: QoS
    participant: bytes


@dataclass(eq=False)
class QueuedSubscription:
    """A subscription: its node, the QoS that it requests, and its queue."""

    node: str
    qos: QoS
    participant: bytes
    callback: Callback
    queue: deque[Received]


@dataclass
class Topic:
    """Subscriptions and publishers of one topic, and its last latched message."""

    type: str
    readers: list[QueuedSubscription] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    last: Received | None = None


class Bus:
    """The topics and the clock that transports share: ``seconds`` is monotonic, stamps count from ``epoch_ns``."""

    def __init__(self, epoch_ns: int = 1_700_000_000_000_000_000) -> None:
        self.seconds, self.epoch_ns = 0.0, epoch_ns
        self.topics: dict[tuple[str, str], Topic] = {}
        self.nodes: list[str] = []
        self.joined = 0  # transports so far

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self.seconds += seconds

    def topic(self, name: str, type: str) -> Topic:
        """The topic, made at first use. Endpoints of different types on one name do not connect, as on a real bus."""
        messages.record(type)
        return self.topics.setdefault((name, type), Topic(type))


class MemoryTransport:
    """One node on a :class:`Bus`. :meth:`wait` with nothing to deliver advances the clock by its time-out."""

    capabilities = Capabilities(deterministic=True)
    active = True

    def __init__(self, bus: Bus, node: str, namespace: str = "/", remaps: Sequence[tuple[str, str]] = ()) -> None:
        self.bus, self.node, self.namespace, self.remaps = bus, node, namespace, tuple(remaps)
        self.readers: list[QueuedSubscription] = []
        self.endpoints: list[Endpoint] = []
        self.name = full_name("/" + namespace.strip("/"), node)
        bus.nodes.append(self.name)
        bus.joined += 1
        self.participant = bus.joined.to_bytes(GUID_PREFIX, "big")

    def resolve(self, topic: str) -> str:
        """See :class:`Transport`."""
        return resolve_name(topic, self.namespace, self.node, self.remaps)

    def advertise(self, topic: str, type: str, qos: QoS) -> Endpoint:
        """See :class:`Transport`."""
        name = self.resolve(topic)
        writer = Writer(self.name, qos, self.participant)
        self.bus.topic(name, type).writers.append(writer)
        return self._keep(Endpoint(name, type, qos, writer))

    def subscribe(self, topic: str, type: str, qos: QoS, callback: Callback) -> Endpoint:
        """See :class:`Transport`."""
        name = self.resolve(topic)
        reader = QueuedSubscription(self.name, qos, self.participant, callback, deque(maxlen=qos.depth))
        where = self.bus.topic(name, type)
        where.readers.append(reader)
        if qos.latched and where.last is not None:
            reader.queue.append(where.last)
        self.readers.append(reader)
        return self._keep(Endpoint(name, type, qos, reader))

    def _keep(self, endpoint: Endpoint) -> Endpoint:
        self.endpoints.append(endpoint)
        return endpoint

    def publish(self, endpoint: Endpoint, data: bytes) -> None:
        """See :class:`Transport`."""
        where = self.bus.topic(endpoint.topic, endpoint.type)
        sample = Received(endpoint.topic, endpoint.type, bytes(data), self.bus.seconds)
        if endpoint.qos.latched:
            where.last = sample
        for reader in where.readers:
            if not mismatch(endpoint.qos, reader.qos):
                reader.queue.append(sample)

    def wait(self, timeout_s: float) -> int:
        """See :class:`Transport`."""
        count = self._deliver()
        if not count and timeout_s > 0:
            self.bus.advance(timeout_s)
        return count

    def _deliver(self) -> int:
        count = 0
        for reader in self.readers:
            for _ in range(len(reader.queue)):
                reader.callback(reader.queue.popleft())
                count += 1
        return count

    def matched(self, endpoint: Endpoint) -> int:
        """See :class:`Transport`."""
        where = self.bus.topic(endpoint.topic, endpoint.type)
        if isinstance(endpoint.handle, QueuedSubscription):
            return sum(not mismatch(writer.qos, endpoint.qos) for writer in where.writers)
        return sum(not mismatch(endpoint.qos, reader.qos) for reader in where.readers)

    def publishers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`."""
        return self._peers(self.resolve(topic), "writers")

    def subscribers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`."""
        return self._peers(self.resolve(topic), "readers")

    def _peers(self, name: str, side: str) -> list[Peer]:
        own = [endpoint.handle for endpoint in self.endpoints]
        return [Peer(entity.node, type, messages.type_hash(type), entity.qos, entity in own, entity.participant)
                for (topic, type), where in self.bus.topics.items() if topic == name
                for entity in getattr(where, side)]

    def nodes(self) -> list[str]:
        """See :class:`Transport`."""
        return list(self.bus.nodes)

    def incompatible(self, endpoint: Endpoint) -> str:
        """See :class:`Transport`."""
        publishes = isinstance(endpoint.handle, Writer)
        peers = self._peers(endpoint.topic, "readers" if publishes else "writers")
        return unconnected(endpoint, publishes, peers, self.matched(endpoint))

    def now(self) -> int:
        """See :class:`Transport`."""
        return self.bus.epoch_ns + round(self.bus.seconds * 1e9)

    def monotonic(self) -> float:
        """See :class:`Transport`."""
        return self.bus.seconds

    def close(self) -> None:
        """See :class:`Transport`."""
        for endpoint in self.endpoints:
            where = self.bus.topic(endpoint.topic, endpoint.type)
            side: list[Any] = where.readers if isinstance(endpoint.handle, QueuedSubscription) else where.writers
            side.remove(endpoint.handle)
        self.endpoints, self.readers = [], []
        if self.name:
            self.bus.nodes.remove(self.name)
            self.name = ""
