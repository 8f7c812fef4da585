"""What every transport can do: move the CDR bytes of messages between nodes, wait, tell the time.

A transport belongs to one node of the ROS graph. Three implementations pass the same conformance tests:

- :mod:`temporeal_bridge.dds`: Cyclone DDS from PyPI, speaking ROS 2's wire conventions; needs no ROS;
- :mod:`temporeal_bridge.rclpy_transport`: inside a sourced ROS 2, a managed (lifecycle) node;
- :mod:`temporeal_bridge.memory`: in this process, with a clock that only moves when told to: tests and replay.

Callbacks run inside :meth:`Transport.wait`, in the thread that calls it, and nowhere else.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_DOMAIN = 232  # the port of a higher one exceeds 65535 (DDSI-RTPS 9.6.1.1)


class TransportError(RuntimeError):
    """The bus cannot be used as asked; the message says why and what to do."""


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
    "command": QoS(depth=1),  # matches readers with system defaults; an old command is never worth sending
    "latched": QoS(depth=1, latched=True),
    # for those who must not lose what they are behind with: best effort matches every publisher, and holds none up
    "deep": QoS(reliable=False, depth=1000),
}


def qos_named(name: str) -> QoS:
    """The profile called ``name``."""
    if name not in QOS:
        raise TransportError(f"unknown QoS {name!r}; legal: {', '.join(QOS)}")
    return QOS[name]


@dataclass(frozen=True)
class Received:
    """One message as it came in: CDR bytes and the monotonic time [s] at which this process took it."""

    topic: str
    type: str
    data: bytes
    at: float


Callback = Callable[[Received], None]


@dataclass(frozen=True, eq=False)
class Endpoint:
    """A publisher or a subscription: the topic's full name, its message type, and the transport's own handle."""

    topic: str
    type: str
    qos: QoS
    handle: object


@dataclass(frozen=True)
class Capabilities:
    """What a transport has beyond topics."""

    discovery: bool = False  # other processes see this node and its topics
    parameters: bool = False
    lifecycle: bool = False
    deterministic: bool = False  # its clock is a fake one


class Transport(Protocol):
    """One node on a bus."""

    node: str
    namespace: str
    capabilities: Capabilities

    @property
    def active(self) -> bool:
        """False while a managed node is not activated: then nothing may be sent to an actuator."""

    def advertise(self, topic: str, type: str, qos: QoS) -> Endpoint:
        """A publisher on ``topic`` (relative names are in the node's namespace)."""

    def subscribe(self, topic: str, type: str, qos: QoS, callback: Callback) -> Endpoint:
        """A subscription; ``callback`` runs inside :meth:`wait`."""

    def publish(self, endpoint: Endpoint, data: bytes) -> None:
        """Send the CDR bytes of one message. Never blocks for more than 5 ms."""

    def wait(self, timeout_s: float) -> int:
        """Deliver what has arrived, waiting for the first message for at most ``timeout_s``; how many came."""

    def matched(self, endpoint: Endpoint) -> int:
        """Number of endpoints on the other side that are connected to this one."""

    def now(self) -> int:
        """Time for message stamps, ns since the epoch."""

    def monotonic(self) -> float:
        """Time for intervals, s."""

    def close(self) -> None:
        """Leave the bus."""


def resolve_name(name: str, namespace: str = "/", node: str = "", remaps: Sequence[tuple[str, str]] = ()) -> str:
    """The full name of a topic by ROS's rules: relative to the namespace, ``~`` to the node; remappings apply first.

    A remapping matches the name as it is written or its full form.
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
    """A DDS domain from configuration, else from ``$ROS_DOMAIN_ID``, else 0; checked."""
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
    """Wait until something is connected to ``endpoint``; after ``timeout_s`` without, say so and what to check."""
    until = transport.monotonic() + timeout_s
    while not transport.matched(endpoint):
        left = until - transport.monotonic()
        if left <= 0:
            hint = getattr(transport, "no_peer_hint", lambda _: "")(endpoint)
            raise TransportError(
                f"no peer on the bus for {endpoint.topic} ({endpoint.type}) after {timeout_s:g} s{hint}. "
                "Is the other node running, on the same domain, in the same namespace?")
        transport.wait(min(left, 0.05))


def choose(kind: str) -> str:
    """``auto`` is ``rclpy`` where it can be imported, else ``dds``; anything else is itself, if it is known."""
    legal = ("auto", "dds", "rclpy")
    if kind not in legal:
        raise TransportError(f"unknown transport {kind!r}; legal: {', '.join(legal)}")
    if kind != "auto":
        return kind
    return "rclpy" if importlib.util.find_spec("rclpy") else "dds"


def open_transport(
    kind: str, node: str, namespace: str = "/", *, domain: int | str | None = None, loopback: bool = False,
    ros_args: Sequence[str] = (),
) -> Transport:
    """Join the bus as ``node``.

    Args:
        kind: ``"dds"``, ``"rclpy"`` or ``"auto"``.
        domain: DDS domain 0..232; None: ``$ROS_DOMAIN_ID``, or 0.
        loopback: talk to this machine only.
        ros_args: what followed ``--ros-args`` on the command line.
    """
    if choose(kind) == "rclpy":
        from temporeal_bridge.rclpy_transport import RclpyTransport

        return RclpyTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
    from temporeal_bridge.dds import DdsTransport

    return DdsTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
