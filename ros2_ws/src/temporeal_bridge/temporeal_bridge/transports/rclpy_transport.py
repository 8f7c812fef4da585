"""The transport inside a sourced ROS 2: one managed (lifecycle) node of ``rclpy``, whatever middleware is set.

Messages cross as the CDR bytes they are on the wire (``rclpy`` calls them raw), so codecs are the same as on every
other transport. Everything happens inside :meth:`RclpyTransport.wait`, in the thread that calls it: messages are waited
for and taken as ``rclpy.wait_for_message`` does it, with a wait set that is kept; lifecycle transitions, parameters and
``/clock`` go through rclpy's executor, when one is there. (The executor makes its wait set anew for
each message, which at the 1 kHz of an arm's joint states is most of a node's work.)

The node configures and activates itself, unless the ROS parameter ``autostart`` is false: then it waits for a launch
file or for ``ros2 lifecycle set``. A node that is not active commands nothing, but for the end of a stop.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from temporeal_bridge.transports.transport import (
    GUID_PREFIX,
    Callback,
    Capabilities,
    Endpoint,
    Peer,
    QoS,
    Received,
    TransportError,
    domain_id,
    full_name,
    is_action,
    resolve_name,
    unconnected,
)

try:
    import rclpy
    from rcl_interfaces.msg import ParameterDescriptor
    from rclpy.context import Context
    from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor, TimeoutException
    from rclpy.impl.implementation_singleton import rclpy_implementation
    from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    from temporeal_bridge.transports import rclpy_actions as actions
except ImportError as error:
    raise TransportError(
        "the transport rclpy needs a sourced ROS 2 (source /opt/ros/<distro>/setup.bash) and the Python that it was "
        f"built for: {error}. Without ROS, use the transport dds") from error

WAIT_SLICE_S = 0.1  # so that signals are seen: Python handles them between calls into C
ROUND_S = 1.0  # period of executor rounds, for what is in no wait set: events, such as incompatible QoS
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"  # rmw_dds_common's name for the node of an endpoint that no node announces
GUIDS = ("rmw_cyclonedds_cpp", "rmw_fastrtps_cpp", "rmw_fastrtps_dynamic_cpp")  # ROS's gids are DDS's GUIDs there
AUTOSTART = "autostart"  # ROS parameter: false if another process configures and activates this node
# keep to this machine: ROS reads its environment when a context is initialized. Humble has the older name, which newer
# ones warn about
LOOPBACK = {"ROS_LOCALHOST_ONLY": "1"} if os.environ.get("ROS_DISTRO") == "humble" else (
    {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"})


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def message_class(name: str) -> Any:
    """The class that this ROS generated for ``geometry_msgs/msg/Twist``."""
    package, _, kind = name.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise TransportError(
            f"the sourced ROS 2 has no message type {name!r} ({error}): build and source {package or 'its package'}, "
            "choose an interface of the robot that does not need it, or use the transport dds, which needs only the "
            "text of its definition") from error


def ros_qos(qos: QoS) -> QoSProfile:
    """The ROS profile of an endpoint."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=qos.depth,
        reliability=ReliabilityPolicy.RELIABLE if qos.reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if qos.latched else DurabilityPolicy.VOLATILE)


def announced(profile: QoSProfile) -> QoS:
    """The announced QoS of an endpoint; a depth that is not announced is 0."""
    return QoS(profile.reliability == ReliabilityPolicy.RELIABLE, int(profile.depth or 0),
               profile.durability == DurabilityPolicy.TRANSIENT_LOCAL)


def type_hash(info: Any) -> str:
    """``RIHS01_...`` of an endpoint; empty if it is not announced (before ROS 2 Iron there is none)."""
    text = str(getattr(info, "topic_type_hash", ""))
    return text if text.startswith("RIHS") else ""


def participant_of(info: Any) -> bytes:
    """The DDS participant of an endpoint; empty over a middleware whose identifiers are no GUIDs (Zenoh)."""
    return bytes(info.endpoint_gid)[:GUID_PREFIX] if rclpy.get_rmw_implementation_identifier() in GUIDS else b""


class ManagedNode(LifecycleNode):  # type: ignore[misc]
    """A lifecycle node that knows whether it is active. Every transition but activation makes it inactive first."""

    active = False

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Allow commands."""
        done = super().on_activate(state)
        self.active = done == TransitionCallbackReturn.SUCCESS
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop commands."""
        self.active = False
        return super().on_deactivate(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop commands for good."""
        self.active = False
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop commands."""
        self.active = False
        return super().on_error(state)


class WaitSet:
    """What a node waits for: messages of its ``own`` subscriptions, and everything else, which the executor handles."""

    def __init__(self, node: ManagedNode, context: Context, own: Sequence[Any]) -> None:
        self.others = [subscription for subscription in node.subscriptions if subscription not in own]
        self.subscriptions, self.services = [*own, *self.others], list(node.services)
        self.other = {entity.handle.pointer for entity in self.others}
        self.set = rclpy_implementation.WaitSet(
            len(self.subscriptions), 0, 0, 0, len(self.services), 0, context.handle)

    def wait(self, timeout_s: float) -> tuple[set[int], bool]:
        """The ready subscriptions (pointers of their handles), and whether there is work for the executor."""
        self.set.clear_entities()
        for subscription in self.subscriptions:
            self.set.add_subscription(subscription.handle)
        for service in self.services:
            self.set.add_service(service.handle)
        self.set.wait(int(timeout_s * 1e9))
        ready = set(self.set.get_ready_entities("subscription"))
        return ready, bool(ready & self.other or self.set.get_ready_entities("service"))


class RclpyTransport:
    """One node of a sourced ROS 2. See :class:`temporeal_bridge.transports.transport.Transport`."""

    capabilities = Capabilities(discovery=True, parameters=True, lifecycle=True)

    def __init__(
        self, node: str, namespace: str = "/", *, domain: int | str | None = None, loopback: bool = False,
        ros_args: Sequence[str] = (),
    ) -> None:
        self.context, self.received, domain = Context(), 0, domain_id(domain)
        arguments = ["--ros-args", *ros_args] if ros_args else []
        try:
            with environment(LOOPBACK if loopback else {}):
                rclpy.init(args=arguments, context=self.context, domain_id=domain)
            self.ros = ManagedNode(node, namespace=namespace, context=self.context)
        except Exception as error:  # rclpy raises classes of its C extension, and others for bad arguments
            self.context.try_shutdown()
            raise TransportError(
                f"cannot join ROS 2 as {node!r} on domain {domain} with the arguments {arguments}: {error}") from error
        self.node, self.namespace = self.ros.get_name(), self.ros.get_namespace()
        self.endpoints: list[Endpoint] = []
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.ros)
        self.subscriptions: list[tuple[Any, int]] = []  # of the transport's user, with their depth
        self.waitset: WaitSet | None = None
        self.next_round = time.monotonic()
        if self.ros.declare_parameter(AUTOSTART, True).value:
            self.ros.trigger_configure()
            self.ros.trigger_activate()

    @property
    def active(self) -> bool:
        """See :class:`Transport`."""
        return self.ros.active

    def declare(self, settings: Mapping[str, Any]) -> None:
        """Show the node's settings as parameters. They are read when the node starts and cannot be changed later."""
        for name, value in settings.items():
            if value is not None and not self.ros.has_parameter(name):
                plain = value if isinstance(value, (bool, int, float, str)) else str(value)
                self.ros.declare_parameter(name, plain, ParameterDescriptor(read_only=True, dynamic_typing=True))

    def resolve(self, topic: str) -> str:
        """See :class:`Transport`."""
        self._check(topic)
        return str(self.ros.resolve_topic_name(topic))

    def advertise(self, topic: str, type: str, qos: QoS) -> Endpoint:
        """See :class:`Transport`.

        Not a lifecycle publisher, which drops messages while the node is inactive: a deactivated guard still brakes or
        lands its robot.
        """
        self._check(topic)
        if is_action(type):
            return self._keep(actions.client(self.ros, topic, type, qos))
        publisher = self.ros.create_publisher(message_class(type), topic, ros_qos(qos))
        return self._keep(Endpoint(publisher.topic_name, type, qos, publisher))

    def subscribe(self, topic: str, type: str, qos: QoS, callback: Callback) -> Endpoint:
        """See :class:`Transport`."""
        self._check(topic)

        def deliver(data: bytes) -> None:
            self.received += 1
            callback(Received(name, type, data, time.monotonic()))

        if is_action(type):
            name = self.resolve(topic)
            return self._keep(actions.server(self.ros, topic, type, qos, deliver))

        subscription = self.ros.create_subscription(message_class(type), topic, deliver, ros_qos(qos), raw=True)
        name = subscription.topic_name
        self.subscriptions.append((subscription, qos.depth))
        self.waitset = None
        return self._keep(Endpoint(name, type, qos, subscription))

    def _check(self, topic: str) -> None:
        """Refuse what is no topic name with the same words as every transport."""
        resolve_name(topic, self.namespace, self.node)

    def _keep(self, endpoint: Endpoint) -> Endpoint:
        self.endpoints.append(endpoint)
        return endpoint

    def publish(self, endpoint: Endpoint, data: bytes) -> None:
        """See :class:`Transport`. Histories are KEEP_LAST, so a stopped reader does not block a writer."""
        publisher: Any = endpoint.handle
        try:
            if is_action(endpoint.type):
                actions.send(publisher, data)
            else:
                publisher.publish(bytes(data))
        except Exception as error:  # classes of rclpy's C extension
            raise TransportError(f"cannot publish on {endpoint.topic}: {error}") from error

    def wait(self, timeout_s: float) -> int:
        """See :class:`Transport`."""
        before, until = self.received, time.monotonic() + timeout_s
        while self.context.ok():
            left = until - time.monotonic()
            if self._take(max(min(left, WAIT_SLICE_S), 0.0)) or time.monotonic() >= self.next_round:
                self._serve()
            if self.received > before or left <= 0:
                break
        return self.received - before

    def _take(self, timeout_s: float) -> bool:
        """Wait, and deliver received messages; returns whether there is work for the executor.

        Of each topic at most as many as its history holds: a flood of messages must not block the caller.
        """
        if self.waitset is None:
            self.waitset = WaitSet(self.ros, self.context, [subscription for subscription, _ in self.subscriptions])
        ready, others = self.waitset.wait(timeout_s)
        for subscription, depth in self.subscriptions:
            if subscription.handle.pointer in ready:
                for _ in range(depth):
                    taken = subscription.handle.take_message(subscription.msg_type, True)
                    if taken is None:
                        break
                    subscription.callback(taken[0])
        return others

    def _serve(self) -> None:
        """One round of the executor: services, /clock, events. These may change what the wait set must hold."""
        while self._serve_one():
            pass
        self.waitset, self.next_round = None, time.monotonic() + ROUND_S

    def _serve_one(self) -> bool:
        """The next callback of the executor's round; whether there was one."""
        try:
            handler, _, _ = self.executor.wait_for_ready_callbacks(0.0)
        except (TimeoutException, ShutdownException, ExternalShutdownException):
            return False
        handler()
        handler.result()  # raises what the callback raised
        return True

    def matched(self, endpoint: Endpoint) -> int:
        """See :class:`Transport`."""
        entity: Any = endpoint.handle
        if is_action(endpoint.type):
            return int(entity.service_is_ready())
        if hasattr(entity, "get_subscription_count"):
            return int(entity.get_subscription_count())
        if hasattr(entity, "get_publisher_count"):
            return int(entity.get_publisher_count())
        return int(self.ros.count_publishers(endpoint.topic))  # Humble: whoever is there, whether the QoS fits or not

    def publishers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`. From the middleware's own cache of the graph."""
        return self._peers(self.resolve(topic), self.ros.get_publishers_info_by_topic(topic), publishes=True)

    def subscribers(self, topic: str) -> list[Peer]:
        """See :class:`Transport`."""
        return self._peers(self.resolve(topic), self.ros.get_subscriptions_info_by_topic(topic), publishes=False)

    def _peers(self, topic: str, infos: Sequence[Any], publishes: bool) -> list[Peer]:
        """Peers of an endpoint.

        ROS gives the name of an endpoint's node, and rclpy no identity of an own one. As many endpoints of this node's
        name are marked as its own as it has made: another node of the same name still counts.
        """
        made = sum(hasattr(endpoint.handle, "publish") == publishes and endpoint.topic == topic
                   for endpoint in self.endpoints)
        found = []
        for info in infos:
            node = "" if UNKNOWN_NODE in info.node_name else full_name(info.node_namespace, info.node_name)
            own = made > 0 and node == full_name(self.namespace, self.node)
            made -= own
            found.append(Peer(node, info.topic_type, type_hash(info), announced(info.qos_profile), own,
                              participant_of(info)))
        return found

    def nodes(self) -> list[str]:
        """See :class:`Transport`."""
        return [full_name(namespace, name) for name, namespace in self.ros.get_node_names_and_namespaces()
                if UNKNOWN_NODE not in name]

    def incompatible(self, endpoint: Endpoint) -> str:
        """See :class:`Transport`."""
        publishes = hasattr(endpoint.handle, "publish")
        peers = self.subscribers(endpoint.topic) if publishes else self.publishers(endpoint.topic)
        return unconnected(endpoint, publishes, peers, self.matched(endpoint))

    def no_peer_hint(self, endpoint: Endpoint) -> str:
        """The domain that was searched, and endpoints whose type or QoS is incompatible."""
        where, why = f" on ROS domain {self.context.get_domain_id()}", self.incompatible(endpoint)
        return f"{where}; incompatible: {why}" if why else where

    def now(self) -> int:
        """See :class:`Transport`. Simulated time if the parameter ``use_sim_time`` is set."""
        return int(self.ros.get_clock().now().nanoseconds)

    def monotonic(self) -> float:
        """See :class:`Transport`."""
        return time.monotonic()

    def close(self) -> None:
        """See :class:`Transport`."""
        if not self.context.ok():
            return
        self.waitset = None
        self.executor.shutdown(timeout_sec=0)
        self.ros.destroy_node()
        # it keeps the node alive, and destroy_node (rclpy 7.1.3) does not release it: others would see this node and
        # its publishers until its lease ends after 10 s
        self.ros._state_machine.destroy_when_not_in_use()
        self.context.try_shutdown()
