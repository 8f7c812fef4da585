"""The transport over Eclipse Cyclone DDS from PyPI: ROS 2's wire conventions, no ROS installation.

What ROS 2 tools and nodes need to see and hear this node:

- topic ``rt/<name>``, type ``pkg::msg::dds_::Name_``, little-endian XCDR1, KEEP_LAST QoS;
- the type's hash in each endpoint's USER_DATA, the enclave in the participant's;
- the topic ``ros_discovery_info``, which maps endpoints to nodes.

Limits of the binding, and what is done about them: its codec takes milliseconds for an image, so bytes are passed
through unread; listeners deadlock with Python's lock, so there is one wait set; a KEEP_ALL writer freezes the process
when a reader stops, so histories are bounded and a write blocks for at most 5 ms.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from cyclonedds.core import DDSException, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.core import InstanceState as Instance
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import make_idl_struct
from cyclonedds.idl.types import uint8
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds_graph import Graph, policy_name
from temporeal_bridge.transports.ros_arguments import parse
from temporeal_bridge.transports.sockets import UdpSocket, confine, udp_sockets
from temporeal_bridge.transports.transport import (
    Callback,
    Capabilities,
    Endpoint,
    Peer,
    QoS,
    Received,
    TransportError,
    domain_id,
    is_action,
    resolve_name,
    unconnected,
)

MAX_INDEX = 60  # participants per machine and domain that find each other without multicast
BLOCKING_MS = 5
WAIT_SLICE_S = 0.1  # so that signals are seen: Python handles them between calls into C
LOOPBACK = "lo"
GRAPH_TOPIC, GRAPH_TYPE = "ros_discovery_info", "rmw_dds_common/msg/ParticipantEntitiesInfo"
GRAPH_DEPTH = 1000  # the topic has no key: what all participants announce between two looks shares one history


def ports(domain: int, index: int) -> tuple[int, int]:
    """The two UDP ports of participant ``index`` (DDSI-RTPS 9.6.1): discovery and data."""
    base = 7400 + 250 * domain + 2 * index
    return base + 10, base + 11


CLAIM_INDEX = 119  # a bound second port, the domain's last but one, marks a claim: nobody has that many participants
CLAIMS: deque[socket.socket] = deque(maxlen=8)
"""Sockets that claim the newest domains of this process; older claims are released."""


def free_domain(seed: int | None = None) -> int:
    """A domain from 1 to 101 without participants on this machine, claimed against other callers of this function.

    Above 101, ports overlap the ephemeral ones of other programs.
    """
    order = list(range(1, 102))
    random.Random(seed).shuffle(order)
    for domain in order:
        if all(port_free(port) for index in range(4) for port in ports(domain, index)) and claim(domain):
            return domain
    raise TransportError("every DDS domain from 1 to 101 is in use on this machine")


def claim(domain: int) -> bool:
    """Claim the domain for this process; False if another process has claimed it."""
    sign = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sign.bind(("127.0.0.1", ports(domain, CLAIM_INDEX)[1]))
    except OSError:
        sign.close()
        return False
    CLAIMS.append(sign)  # the oldest is closed with its last reference
    return True


def port_free(port: int) -> bool:
    """Whether nobody on this machine listens on the UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def loopback_config(max_index: int = MAX_INDEX) -> str:
    """Cyclone DDS settings that keep a process on this machine: no other interface, no multicast."""
    interface = "lo0" if sys.platform == "darwin" else LOOPBACK
    return (
        "<CycloneDDS><Domain><General><Interfaces>"
        f'<NetworkInterface name="{interface}" multicast="false"/>'
        "</Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>"
        f"<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>{max_index}</MaxAutoParticipantIndex>"
        '<Peers><Peer address="localhost"/></Peers></Discovery></Domain></CycloneDDS>')


@dataclass
class Opened:
    """An open domain of this process: Cyclone keeps one per number, with one configuration."""

    domain: Domain
    config: str
    loopback: bool
    users: int


OPEN: dict[int, Opened] = {}


def enter_domain(number: int, loopback: bool, max_index: int) -> None:
    """Open the domain in this process, or share the one that is open with the same configuration.

    The configuration is that of the loopback or ``CYCLONEDDS_URI``; Cyclone itself reads that variable only for domains
    that it opens implicitly.
    """
    config = loopback_config(max_index) if loopback else os.environ.get("CYCLONEDDS_URI", "")
    opened = OPEN.get(number)
    if opened is None:
        others = set(udp_sockets()) if loopback and sys.platform == "linux" else set()
        try:
            domain = Domain(number, config or None)
        except (DDSException, UnicodeEncodeError) as error:
            raise TransportError(why_closed(number, max_index, error)) from error
        if loopback:
            keep_here(number, max_index, others)
        OPEN[number] = Opened(domain, config, loopback, 1)
    elif (opened.config, opened.loopback) != (config, loopback):
        raise TransportError(
            f"DDS domain {number} is in use in this process with another configuration: "
            "use the same loopback setting, or another domain")
    else:
        opened.users += 1


def keep_here(number: int, max_index: int, others: Container[UdpSocket] = ()) -> None:
    """Restrict the domain's sockets to this machine: Cyclone binds them to every address (see `sockets`).

    ``others``: sockets that were open before the domain was; they are left alone.
    """
    if sys.platform != "linux":  # the ports stay reachable from the network: docs/reference/security.md
        return
    try:
        held = confine({port for index in range(max_index + 1) for port in ports(number, index)}, LOOPBACK, others)
    except OSError as error:
        raise TransportError(
            f"loopback is set, but the sockets of DDS domain {number} cannot be restricted to {LOOPBACK}: {error}; "
            "this needs Linux 5.7, or CAP_NET_RAW. Without loopback they can be reached from the network") from error
    if not held:
        raise TransportError(f"loopback is set, but the sockets of DDS domain {number} were not found in /proc")


def why_closed(number: int, max_index: int, error: Exception) -> str:
    """Why a domain did not open: no free port, or a wrong configuration."""
    wanted = [port for index in range(max_index + 1) for port in ports(number, index)]
    if all(not port_free(first) or not port_free(second) for first, second in zip(wanted[::2], wanted[1::2])):
        return (f"no free port on DDS domain {number} (UDP {wanted[0]} to {wanted[-1]}): the domain is in use by "
                f"{max_index + 1} participants or other programs; choose another ROS_DOMAIN_ID")
    return f"DDS domain {number} cannot be opened: {error}; is CYCLONEDDS_URI valid?"


def leave_domain(number: int) -> None:
    """Release the domain; the last user closes it."""
    opened = OPEN[number]
    opened.users -= 1
    if not opened.users:
        del OPEN[number]


@cache
def raw_type(name: str) -> Any:
    """A DDS type that passes CDR bytes through unread. One class per type: Cyclone refuses subclasses.

    Its member is a placeholder: topics match by name and type name. ``deserialize_key`` is called when a publisher
    leaves.
    """
    made: Any = make_idl_struct("Raw", messages.dds_type(name), {"data": uint8})
    made.serialize = lambda self, *_, **__: self.data
    made.deserialize = classmethod(lambda cls, data, *_, **__: cls(data))
    made.deserialize_key = classmethod(lambda cls, data, *_, **__: cls(data))
    return made


def dds_qos(qos: QoS, user_data: bytes, writer: bool) -> Qos:
    """The DDS policies of an endpoint."""
    reliable = Policy.Reliability.Reliable(duration(milliseconds=BLOCKING_MS))
    policies = [
        reliable if qos.reliable else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if qos.latched else Policy.Durability.Volatile,
        Policy.History.KeepLast(qos.depth),
        Policy.DataRepresentation(use_cdrv0_representation=True),
        Policy.Userdata(user_data),
    ]
    if writer:
        policies.append(Policy.WriterDataLifecycle(autodispose=False))
        if qos.latched:  # the durability service has a history of its own for late readers
            policies.append(Policy.DurabilityService(
                0, Policy.History.KeepLast(qos.depth), qos.depth, qos.depth, qos.depth))
    return Qos(*policies)


@dataclass(eq=False)
class DdsSubscription:
    """A DDS reader, its wait condition and its callback."""

    entity: DataReader[Any]
    condition: ReadCondition
    callback: Callback
    topic: str
    type: str
    depth: int


def refuse_action(topic: str, type: str) -> None:
    """There are no actions over plain DDS."""
    if is_action(type):
        raise TransportError(f"{topic}: {type} is an action, whose requests differ between DDS vendors; use the "
                             "transport rclpy in a sourced ROS 2, or a controller that takes a topic")


class DdsTransport:
    """One ROS 2 node on a DDS domain. See :class:`temporeal_bridge.transports.transport.Transport`."""

    capabilities = Capabilities(discovery=True)
    active = True

    def __init__(
        self, node: str, namespace: str = "/", *, domain: int | str | None = None, loopback: bool = False,
        ros_args: Sequence[str] = (), max_index: int = MAX_INDEX,
    ) -> None:
        given = parse(ros_args)
        if given.unknown:
            raise TransportError(
                f"--ros-args {' '.join(given.unknown)}: only -r, -p and --params-file are understood without ROS 2")
        self.node, self.remaps = given.node or node, given.remaps
        self.namespace = "/" + (given.namespace or namespace).strip("/")
        self.domain = domain_id(domain)
        loopback = loopback or os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "").upper() == "LOCALHOST"
        self.loopback = loopback
        enter_domain(self.domain, loopback, max_index)
        try:
            self.participant = DomainParticipant(self.domain, qos=Qos(Policy.Userdata(b"enclave=/;")))
        except DDSException as error:
            leave_domain(self.domain)
            raise TransportError(why_closed(self.domain, max_index, error)) from error
        self.closed = False
        self.waitset = WaitSet(self.participant)
        self.readers: list[DdsSubscription] = []
        self.writers: list[Any] = []
        self.topics: dict[tuple[str, str], Topic[Any]] = {}
        self.own_graph = self._writer(GRAPH_TOPIC, GRAPH_TYPE, QoS(depth=1, latched=True))
        self.graph: Graph | None = None
        self._announce()

    def _topic(self, name: str, type: str) -> Topic[Any]:
        if (name, type) not in self.topics:
            self.topics[name, type] = Topic(self.participant, name, raw_type(type))
        return self.topics[name, type]

    def _writer(self, name: str, type: str, qos: QoS) -> Any:
        user_data = f"typehash={messages.type_hash(type)};".encode()
        return DataWriter(self.participant, self._topic(name, type), dds_qos(qos, user_data, True))

    def _reader(self, name: str, type: str, qos: QoS) -> Any:
        user_data = f"typehash={messages.type_hash(type)};".encode()
        return DataReader(self.participant, self._topic(name, type), dds_qos(qos, user_data, False))

    def _announce(self) -> None:
        """Publish the list of this node's endpoints; written anew after each new one."""
        gid = messages.record("rmw_dds_common/msg/Gid")

        def of(entity: Any) -> Any:
            return gid(data=np.frombuffer(entity.guid.bytes, dtype=np.uint8))

        entities = messages.record("rmw_dds_common/msg/NodeEntitiesInfo")(
            node_namespace=self.namespace, node_name=self.node,
            reader_gid_seq=[of(reader.entity) for reader in self.readers],
            writer_gid_seq=[of(writer) for writer in self.writers])
        info = messages.record(GRAPH_TYPE)(gid=of(self.participant), node_entities_info_seq=[entities])
        self.own_graph.write(raw_type(GRAPH_TYPE)(messages.encode(GRAPH_TYPE, info)))

    def resolve(self, topic: str) -> str:
        """See :class:`Transport`."""
        return resolve_name(topic, self.namespace, self.node, self.remaps)

    def advertise(self, topic: str, type: str, qos: QoS) -> Endpoint:
        """See :class:`Transport`."""
        refuse_action(topic, type)
        name = self.resolve(topic)
        writer = self._writer(f"rt{name}", type, qos)
        self.writers.append(writer)
        self._announce()
        return Endpoint(name, type, qos, writer)

    def subscribe(self, topic: str, type: str, qos: QoS, callback: Callback) -> Endpoint:
        """See :class:`Transport`."""
        refuse_action(topic, type)
        name = self.resolve(topic)
        entity = self._reader(f"rt{name}", type, qos)
        condition = ReadCondition(entity, ViewState.Any | Instance.Any | SampleState.Any)
        self.waitset.attach(condition)
        self.readers.append(DdsSubscription(entity, condition, callback, name, type, qos.depth))
        self._announce()
        return Endpoint(name, type, qos, entity)

    def publish(self, endpoint: Endpoint, data: bytes) -> None:
        """See :class:`Transport`. A reliable message is dropped if there is no room for it within 5 ms."""
        writer: Any = endpoint.handle
        try:
            writer.write(raw_type(endpoint.type)(data))
        except DDSException as error:
            if error.code != DDSException.DDS_RETCODE_TIMEOUT:
                raise TransportError(f"cannot publish on {endpoint.topic}: {error}") from error

    def wait(self, timeout_s: float) -> int:
        """See :class:`Transport`."""
        count = self._deliver()
        until = time.monotonic() + timeout_s
        while not count:
            left = until - time.monotonic()
            if left <= 0:
                break
            self.waitset.wait(duration(seconds=min(left, WAIT_SLICE_S)))
            count = self._deliver()
        return count

    def _deliver(self) -> int:
        count = 0
        for reader in self.readers:
            for sample in reader.entity.take(N=max(reader.depth, 1)):
                data = getattr(sample, "data", None)
                if isinstance(data, bytes) and sample.sample_info.valid_data:
                    reader.callback(Received(reader.topic, reader.type, data, time.monotonic()))
                    count += 1
        return count

    def matched(self, endpoint: Endpoint) -> int:
        """See :class:`Transport`."""
        entity: Any = endpoint.handle
        if isinstance(entity, DataReader):
            return len(entity.get_matched_publications())
        return len(entity.get_matched_subscriptions())

    def publishers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`. Read from this process's discovery data: microseconds, no message is sent."""
        return self._look().publishers("rt" + self.resolve(topic))

    def subscribers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`."""
        return self._look().subscribers("rt" + self.resolve(topic))

    def nodes(self) -> list[str]:
        """See :class:`Transport`."""
        return self._look().nodes()

    def _look(self) -> Graph:
        """The current graph. Its readers are made at the first call: nodes that never call this pay nothing."""
        if self.graph is None:
            discovery = self._reader(GRAPH_TOPIC, GRAPH_TYPE, QoS(depth=GRAPH_DEPTH, latched=True))
            self.graph = Graph(self.participant, discovery)
        self.graph.update()
        return self.graph

    def incompatible(self, endpoint: Endpoint) -> str:
        """See :class:`Transport`."""
        entity: Any = endpoint.handle
        publishes, graph, name = isinstance(entity, DataWriter), self._look(), f"rt{endpoint.topic}"
        peers = graph.subscribers(name) if publishes else graph.publishers(name)
        status = (entity.get_offered_incompatible_qos_status() if publishes
                  else entity.get_requested_incompatible_qos_status())
        return unconnected(endpoint, publishes, peers, self.matched(endpoint), policy_name(status.last_policy_id))

    def no_peer_hint(self, endpoint: Endpoint) -> str:
        """The domain that was searched, and endpoints whose QoS is incompatible."""
        where = f" on DDS domain {self.domain}{' (this machine only)' if self.loopback else ''}"
        why = self.incompatible(endpoint)
        return f"{where}; incompatible: {why}" if why else where

    def now(self) -> int:
        """See :class:`Transport`."""
        return time.time_ns()

    def monotonic(self) -> float:
        """See :class:`Transport`."""
        return time.monotonic()

    def close(self) -> None:
        """See :class:`Transport`."""
        if self.closed:
            return
        self.closed = True
        # the binding deletes an entity with its last reference; callers may still hold endpoints, so delete it now
        self.waitset.__del__()
        seen = self.graph.entities if self.graph else ()
        for entity in (*(r.condition for r in self.readers), *(r.entity for r in self.readers), *self.writers, *seen,
                       self.own_graph, *self.topics.values(), self.participant):
            entity.__del__()
        self.readers, self.writers, self.topics = [], [], {}
        leave_domain(self.domain)
