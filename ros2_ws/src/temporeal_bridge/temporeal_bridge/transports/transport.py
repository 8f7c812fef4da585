"""The interface of transports: they move the CDR bytes of messages between nodes, wait, and have a clock.

A transport belongs to one node of the ROS graph. Three implementations pass the same conformance tests:

- :mod:`temporeal_bridge.transports.dds`: Cyclone DDS from PyPI, speaking ROS 2's wire conventions; needs no ROS;
- :mod:`temporeal_bridge.transports.rclpy_transport`: inside a sourced ROS 2, a managed (lifecycle) node;
- :mod:`temporeal_bridge.transports.memory_bus`: in this process, with a clock that is advanced explicitly, for tests
  and replay.

Callbacks run only inside :meth:`Transport.wait`, in the calling thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from temporeal_bridge.transports import messages

GUID_PREFIX = 12  # bytes at the beginning of a GUID: its participant's; four more are of the entity (DDSI-RTPS 9.3.1)
MAX_DOMAIN = 232  # the port of a higher one exceeds 65535 (DDSI-RTPS 9.6.1.1)


class TransportError(RuntimeError):
    """The bus cannot be used as requested; the message says why and what to do."""


@dataclass(frozen=True)
class QoS:
    """Quality of service. History is always KEEP_LAST ``depth``: a stopped reader must never block a writer.

    ``latched`` keeps the last message for readers that come later (ROS: transient local).
    """

    reliable: bool = True
    depth: int = 10
    latched: bool = False


QOS = {
    "sensor": QoS(reliable=False, depth=5),  # ROS's sensor data profile
    "default": QoS(),
    "command": QoS(depth=1),  # matches readers with system defaults; an old command is never sent late
    "latched": QoS(depth=1, latched=True),
    # for readers that may fall behind and must lose nothing: best effort matches every publisher and blocks none
    "deep": QoS(reliable=False, depth=1000),
    "best_effort": QoS(reliable=False, depth=10),  # the same for rare messages
}


def qos_named(name: str) -> QoS:
    """The profile called ``name``."""
    if name not in QOS:
        raise TransportError(f"unknown QoS {name!r}; legal: {', '.join(QOS)}")
    return QOS[name]


def is_action(type: str) -> bool:
    """Whether ``type`` is an action's (``control_msgs/action/GripperCommand``): then a message is a goal.

    Whoever advertises it sends goals and does not look at their results; whoever subscribes is its server, and accepts
    them all. The memory bus and rclpy have them. Over plain DDS the request of a goal differs between vendors.
    """
    return "/action/" in type


class Received(NamedTuple):
    """A received message: CDR bytes and the monotonic time [s] at which this process took it."""

    topic: str
    type: str
    data: bytes
    at: float


Callback = Callable[[Received], None]


@dataclass(frozen=True, eq=False)
class Endpoint:
    """A publisher or a subscription: the topic's full name, its message type, and the transport's own handle.

    Its codec is compiled with it, so that the first message of a mission does not wait for that.
    """

    topic: str
    type: str
    qos: QoS
    handle: object

    def __post_init__(self) -> None:
        messages.prepare(self.type)


@dataclass(frozen=True)
class Peer:
    """A publisher or a subscription on the bus, as discovery reports it.

    Attributes:
        node: full name of its node (``/cf1/robot``); empty if unknown (plain DDS programs, PX4's agent, a node that
            has just joined).
        type: message type (``geometry_msgs/msg/Twist``), or the DDS name if it is no ROS type.
        hash: ``RIHS01_...``; empty if it is not announced (before ROS 2 Iron, plain DDS programs).
        qos: as announced; ``depth`` is 0 if it is not announced, which DDS does not require.
        own: whether this transport made it.
        participant: DDS participant (usually one per process) that it belongs to; it tells two nodes of one name in two
            processes apart. Empty if unknown.
    """

    node: str
    type: str
    hash: str
    qos: QoS
    own: bool
    participant: bytes = b""


@dataclass(frozen=True)
class Capabilities:
    """Optional features of a transport."""

    discovery: bool = False  # other processes see this node and its topics
    parameters: bool = False
    lifecycle: bool = False
    deterministic: bool = False  # its clock is simulated


class Transport(Protocol):
    """One node on a bus."""

    node: str
    namespace: str
    capabilities: Capabilities

    @property
    def active(self) -> bool:
        """False while a managed node is not active: actuators then get nothing but the end of a stop."""

    def resolve(self, topic: str) -> str:
        """The full name of ``topic`` for this node: relative names are in its namespace, remappings apply."""

    def advertise(self, topic: str, type: str, qos: QoS) -> Endpoint:
        """A publisher on ``topic`` (relative names are in the node's namespace)."""

    def subscribe(self, topic: str, type: str, qos: QoS, callback: Callback) -> Endpoint:
        """A subscription; ``callback`` runs inside :meth:`wait`."""

    def publish(self, endpoint: Endpoint, data: bytes) -> None:
        """Send the CDR bytes of one message. Never blocks for more than 5 ms."""

    def wait(self, timeout_s: float) -> int:
        """Deliver received messages, waiting up to ``timeout_s`` for the first; returns their number."""

    def matched(self, endpoint: Endpoint) -> int:
        """Number of peers that are connected to this endpoint."""

    def publishers(self, topic: str) -> list[Peer]:
        """All publishers on ``topic`` of any type and QoS; this node's are marked as its own.

        The first call starts discovery, so names of nodes may come later; see the transports for the cost.
        """

    def subscribers(self, topic: str) -> list[Peer]:
        """All subscriptions to ``topic``, as :meth:`publishers`."""

    def nodes(self) -> list[str]:
        """Full names of all nodes on the bus, this one included; a name of two nodes is listed twice."""

    def incompatible(self, endpoint: Endpoint) -> str:
        """Why peers are not connected to this endpoint (type, QoS policy); empty if all are."""

    def now(self) -> int:
        """Time for message stamps, ns since the epoch."""

    def monotonic(self) -> float:
        """Time for intervals, s."""

    def close(self) -> None:
        """Leave the bus."""


def mismatch(offered: QoS, requested: QoS) -> str:
    """The policies that make a publisher and a subscription incompatible; empty if none does.

    DDS compares what is requested with what is offered (DDS 1.4, 2.2.3); these are the policies that ROS nodes set.
    """
    found = []
    if requested.reliable and not offered.reliable:
        found.append("reliability (offered: best effort, requested: reliable)")
    if requested.latched and not offered.latched:
        found.append("durability (offered: volatile, requested: transient local)")
    return " and ".join(found)


def unconnected(endpoint: Endpoint, publishes: bool, peers: Sequence[Peer], matched: int, other: str = "") -> str:
    """The text of :meth:`Transport.incompatible` for an endpoint and its ``peers``.

    Args:
        publishes: whether the endpoint is a publisher.
        matched: number of connected ``peers``.
        other: incompatible policy that the middleware names and :class:`QoS` does not have.
    """
    found, fitting = [], 0
    for peer in peers:
        who = peer.node or "a node without a name"
        if peer.type != endpoint.type:
            found.append(f"{who}: type ({peer.type} against {endpoint.type})")
        elif why := mismatch(endpoint.qos, peer.qos) if publishes else mismatch(peer.qos, endpoint.qos):
            found.append(f"{who}: {why}")
        else:
            fitting += 1
    if matched < fitting:
        why = other or "another policy (deadline, liveliness, partition)"
        found.append(f"{fitting - matched} of {fitting} that fit otherwise: {why}")
    return "; ".join(found)


def full_name(namespace: str, node: str) -> str:
    """``/cf1/robot`` from a node's namespace and name."""
    return f"{namespace.rstrip('/')}/{node}"


def resolve_name(name: str, namespace: str = "/", node: str = "", remaps: Sequence[tuple[str, str]] = ()) -> str:
    """The full name of a topic by ROS's rules: relative to the namespace, ``~`` to the node; remappings apply first.

    A remapping matches the written name or the full one.
    """
    def full(text: str) -> str:
        if text.startswith("~"):
            text = f"{node}/{text[1:].lstrip('/')}"
        return text if text.startswith("/") else f"{namespace.rstrip('/')}/{text}"

    if namespace and not namespace.startswith("/"):
        namespace = f"/{namespace}"
    for old, new in remaps:
        if old == name or full(old) == full(name):
            name = new
            break
    out = full(name)
    parts = out[1:].split("/")
    if not all(part.isidentifier() and part.isascii() for part in parts):
        raise TransportError(f"{out!r} is not a topic name: letters, digits and _ between slashes, no digit first")
    return out


def domain_id(value: int | str | None) -> int:
    """The DDS domain of the configuration, else of ``$ROS_DOMAIN_ID``, else 0; checked."""
    source = "domain" if value is not None else "ROS_DOMAIN_ID"
    text = str(value) if value is not None else os.environ.get("ROS_DOMAIN_ID") or "0"
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= MAX_DOMAIN:
        raise TransportError(f"{source} is {text!r}; a DDS domain is a whole number from 0 to {MAX_DOMAIN}")
    return number


def require_peer(transport: Transport, endpoint: Endpoint, timeout_s: float) -> None:
    """Wait until a peer is connected to ``endpoint``; a :class:`TransportError` after ``timeout_s``."""
    until = transport.monotonic() + timeout_s
    while not transport.matched(endpoint):
        left = until - transport.monotonic()
        if left <= 0:
            hint = getattr(transport, "no_peer_hint", lambda _: "")(endpoint)
            raise TransportError(
                f"no peer on the bus for {endpoint.topic} ({endpoint.type}) after {timeout_s:g} s{hint}. "
                "Is the other node running, on the same domain, in the same namespace?")
        transport.wait(min(left, 0.05))
