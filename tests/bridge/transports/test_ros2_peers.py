"""A real ROS 2 as the other side: its serializer, its nodes and its command line against both transports.

Runs where a ROS 2 is sourced, with `cyclonedds` and `rosbags` beside it; skipped everywhere else.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rclpy") is None, reason="needs a sourced ROS 2: rclpy cannot be imported")

TYPES = (
    "std_msgs/msg/Empty", "std_msgs/msg/UInt64", "std_msgs/msg/Header", "std_msgs/msg/Float32MultiArray",
    "geometry_msgs/msg/Twist", "geometry_msgs/msg/PoseStamped", "nav_msgs/msg/Odometry", "sensor_msgs/msg/JointState",
    "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image", "trajectory_msgs/msg/JointTrajectory",
    "diagnostic_msgs/msg/DiagnosticArray",
)
WITHIN_S = 10.0  # generous: discovery takes a tenth of a second on an idle machine
HASH_WARNING = "type hash"  # of rmw, when an endpoint's USER_DATA lacks it


def ros_class(name: str) -> Any:
    """ROS's own class of a message type."""
    package, kind, message = name.split("/")
    return getattr(importlib.import_module(f"{package}.{kind}"), message)


def filled(name: str, start: int = 1) -> Any:
    """A message of ROS's own class in which every field has a value of its own."""
    message, value = ros_class(name)(), start
    for field, kind in message.get_fields_and_field_types().items():
        value += 1
        setattr(message, field, field_value(kind, value))
    return message


def field_value(kind: str, value: int) -> Any:
    """A value of the IDL type ``kind``."""
    if kind.startswith("sequence<"):
        inner = kind[len("sequence<"):-1].split(",")[0]
        return [field_value(inner, value + i) for i in range(3)]
    if kind.endswith("]"):
        inner, _, count = kind[:-1].partition("[")
        return [field_value(inner, value + i) for i in range(int(count))]
    if kind in ("float", "double"):
        return value + 0.5
    if kind in ("string", "wstring"):
        return f"text {value}"
    if kind == "boolean":
        return bool(value % 2)
    if kind == "octet":
        return bytes([value % 256])
    if "/" in kind:
        package, message = kind.split("/")
        return filled(f"{package}/msg/{message}", value)
    return value % 100


class Ros:
    """A plain node of the real ROS 2 and its executor."""

    def __init__(self, domain: int) -> None:
        import rclpy
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor

        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("peer", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def until(self, done: Callable[[], Any], also: Callable[[], Any] = lambda: None) -> None:
        """Spin, calling ``also``, until ``done()``."""
        end = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < end, f"nothing within {WITHIN_S} s"
            also()
            self.executor.spin_once(timeout_sec=0.02)

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.shutdown()


@pytest.fixture(scope="module")
def domain() -> Iterator[int]:
    """A DDS domain of this module's own, on this machine only, for it and for the processes it starts."""
    from temporeal_bridge.transports.dds import free_domain

    number = free_domain()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_DOMAIN_ID", str(number))
        patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        yield number
        command("ros2", "daemon", "stop")  # some commands start one, and it would stay


@pytest.fixture(scope="module")
def ros(domain: int) -> Iterator[Ros]:
    peer = Ros(domain)
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def dds(domain: int) -> Iterator[Any]:
    from temporeal_bridge.transports.dds import DdsTransport

    transport = DdsTransport("robot", "/cf1", domain=domain, loopback=True)
    yield transport
    transport.close()


def command(*words: str, timeout: float = 40.0, status: int = 0) -> str:
    """What a ROS 2 command printed, on both streams; its status must be ``status``."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=timeout, cwd=ROOT, stdin=subprocess.DEVNULL)
    text = done.stdout + done.stderr
    assert done.returncode == status, f"{' '.join(words)}: status {done.returncode}\n{text}"
    return text


class Serving:
    """Calls ``wait`` of a transport in a thread, as a node's loop does."""

    def __init__(self, transport: Any, each: Callable[[], Any] = lambda: None) -> None:
        self.transport, self.each, self.stop = transport, each, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.stop.is_set():
            self.transport.wait(0.01)
            self.each()

    def __enter__(self) -> Serving:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


# bytes


@pytest.mark.parametrize("name", TYPES)
def test_bytes_are_those_of_ros(name: str) -> None:
    from rclpy.serialization import deserialize_message, serialize_message

    from temporeal_bridge.transports import messages

    message = filled(name)
    theirs = serialize_message(message)
    ours = messages.encode(name, messages.decode(name, theirs))
    assert ours == theirs
    assert deserialize_message(ours, ros_class(name)) == message


@pytest.mark.parametrize("name", TYPES)
def test_fields_have_the_values_that_ros_wrote(name: str) -> None:
    from rclpy.serialization import serialize_message

    from temporeal_bridge.transports import messages

    def same(record: Any, message: Any) -> None:
        for field in message.get_fields_and_field_types():
            ours, theirs = getattr(record, field), getattr(message, field)
            if hasattr(theirs, "get_fields_and_field_types"):
                same(ours, theirs)
            elif isinstance(theirs, list) and theirs and hasattr(theirs[0], "get_fields_and_field_types"):
                assert len(ours) == len(theirs)
                for one, other in zip(ours, theirs):
                    same(one, other)
            elif isinstance(theirs, bytes):
                assert bytes([ours]) == theirs
            elif hasattr(theirs, "__len__") and not isinstance(theirs, str):
                assert list(ours) == list(theirs)
            else:
                assert ours == theirs

    message = filled(name)
    same(messages.decode(name, serialize_message(message)), message)


# topics over the dds transport, the other side a plain ROS 2 node


@pytest.mark.parametrize("name", TYPES)
def test_ros_hears_the_dds_transport(name: str, ros: Ros, dds: Any) -> None:
    from rclpy.serialization import serialize_message

    from temporeal_bridge.transports.transport import QOS

    topic, message, heard = "out_" + name.split("/")[-1].lower(), filled(name), list[Any]()
    subscription = ros.node.create_subscription(ros_class(name), f"/cf1/{topic}", heard.append, 10)
    endpoint = dds.advertise(topic, name, QOS["default"])
    ros.until(lambda: heard, lambda: dds.publish(endpoint, serialize_message(message)))
    assert heard[0] == message
    ros.node.destroy_subscription(subscription)


@pytest.mark.parametrize("qos", ["default", "sensor"])
@pytest.mark.parametrize("name", TYPES)
def test_the_dds_transport_hears_ros(name: str, qos: str, ros: Ros, dds: Any) -> None:
    from rclpy.serialization import serialize_message

    from temporeal_bridge.transports import messages
    from temporeal_bridge.transports.transport import QOS

    topic, message, heard = f"in_{qos}_" + name.split("/")[-1].lower(), filled(name), list[Any]()
    publisher = ros.node.create_publisher(ros_class(name), f"/cf1/{topic}", 10)
    dds.subscribe(topic, name, QOS[qos], heard.append)
    ros.until(lambda: heard, lambda: (publisher.publish(message), dds.wait(0.01)))
    assert messages.encode(name, messages.decode(name, heard[0].data)) == serialize_message(message)
    assert (heard[0].topic, heard[0].type) == (f"/cf1/{topic}", name)
    ros.node.destroy_publisher(publisher)


def test_a_latched_message_reaches_the_ros_node_that_comes_later(ros: Ros, dds: Any) -> None:
    from rclpy.qos import DurabilityPolicy, QoSProfile

    from temporeal_bridge.transports import messages
    from temporeal_bridge.transports.transport import QOS

    endpoint = dds.advertise("latched", "std_msgs/msg/Header", QOS["latched"])
    dds.publish(endpoint, messages.encode("std_msgs/msg/Header", messages.header(5, "early")))
    heard: list[Any] = []
    late = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    ros.node.create_subscription(ros_class("std_msgs/msg/Header"), "/cf1/latched", heard.append, late)
    ros.until(lambda: heard)
    assert heard[0].frame_id == "early"


# the graph


@pytest.mark.parametrize("name", TYPES)
def test_ros_sees_the_endpoint_with_its_node_and_the_hash_of_its_own_type(name: str, ros: Ros, dds: Any) -> None:
    from temporeal_bridge.transports.transport import QOS

    topic = "hash_" + name.split("/")[-1].lower()
    dds.advertise(topic, name, QOS["default"])
    own = ros.node.create_publisher(ros_class(name), f"/cf1/{topic}", 10)

    def found() -> dict[str, Any]:
        return {info.node_name: info for info in ros.node.get_publishers_info_by_topic(f"/cf1/{topic}")}

    ros.until(lambda: {"robot", "peer"} <= set(found()))
    mine, theirs = found()["robot"], found()["peer"]
    assert mine.node_namespace == "/cf1"
    assert mine.topic_type == theirs.topic_type == name
    assert mine.topic_type_hash == theirs.topic_type_hash
    ros.node.destroy_publisher(own)


def test_the_command_line_sees_a_dds_node(dds: Any) -> None:
    from temporeal_bridge.transports import messages
    from temporeal_bridge.transports.transport import QOS

    twist = "geometry_msgs/msg/Twist"
    endpoint = dds.advertise("seen", twist, QOS["command"])
    dds.subscribe("heard", "nav_msgs/msg/Odometry", QOS["sensor"], lambda _: None)
    vector = messages.record("geometry_msgs/msg/Vector3")
    data = messages.encode(twist, messages.record(twist)(vector(x=1.25, y=2.0, z=3.0), vector(x=0.0, y=0.0, z=-4.5)))
    with Serving(dds, lambda: dds.publish(endpoint, data)):
        options = ("--no-daemon", "--spin-time", "2")
        nodes = command("ros2", "node", "list", *options)
        info = command("ros2", "node", "info", *options, "/cf1/robot")
        topics = command("ros2", "topic", "list", "-t", *options)
        echo = command("ros2", "topic", "echo", "--once", *options, "/cf1/seen", twist)
    assert "/cf1/robot" in nodes.splitlines()
    assert "/cf1/seen: geometry_msgs/msg/Twist" in info
    assert "/cf1/heard: nav_msgs/msg/Odometry" in info
    assert "/cf1/seen [geometry_msgs/msg/Twist]" in topics
    assert "x: 1.25" in echo and "z: -4.5" in echo
    for text in (nodes, info, topics, echo):
        assert HASH_WARNING not in text.lower()


# the rclpy transport


@pytest.fixture
def managed(domain: int) -> Iterator[Any]:
    from temporeal_bridge.transports.rclpy_transport import RclpyTransport

    transport = RclpyTransport("pilot", "/cf1", domain=domain, loopback=True, ros_args=["-p", "autostart:=false"])
    yield transport
    transport.close()


def test_a_node_activates_itself(domain: int) -> None:
    from temporeal_bridge.transports.rclpy_transport import RclpyTransport

    transport = RclpyTransport("alone", domain=domain, loopback=True)
    assert transport.active
    transport.close()


def test_lifecycle_and_parameters_from_the_command_line(managed: Any) -> None:
    assert not managed.active
    with Serving(managed):
        assert "unconfigured [1]" in command("ros2", "lifecycle", "get", "/cf1/pilot")
        command("ros2", "lifecycle", "set", "/cf1/pilot", "configure")
        assert not managed.active
        command("ros2", "lifecycle", "set", "/cf1/pilot", "activate")
        assert managed.active
        assert "active [3]" in command("ros2", "lifecycle", "get", "/cf1/pilot")
        assert "False" in command("ros2", "param", "get", "/cf1/pilot", "autostart")
        command("ros2", "lifecycle", "set", "/cf1/pilot", "deactivate")
        assert not managed.active


def test_ros_arguments_reach_ros(domain: int) -> None:
    from temporeal_bridge.transports.rclpy_transport import RclpyTransport
    from temporeal_bridge.transports.transport import QOS

    words = ["-r", "__ns:=/cf7", "-r", "__node:=other", "-r", "odom:=state", "--log-level", "warn"]
    transport = RclpyTransport("pilot", "/cf1", domain=domain, loopback=True, ros_args=words)
    assert (transport.node, transport.namespace) == ("other", "/cf7")
    assert transport.advertise("odom", "nav_msgs/msg/Odometry", QOS["sensor"]).topic == "/cf7/state"
    transport.close()


def test_simulated_time_is_followed(domain: int, ros: Ros) -> None:
    from temporeal_bridge.transports.rclpy_transport import RclpyTransport

    clock = ros_class("rosgraph_msgs/msg/Clock")()
    clock.clock.sec = 12
    publisher = ros.node.create_publisher(type(clock), "/clock", 1)
    transport = RclpyTransport("timed", domain=domain, loopback=True, ros_args=["-p", "use_sim_time:=true"])
    ros.until(lambda: transport.now() == 12_000_000_000, lambda: (publisher.publish(clock), transport.wait(0.01)))
    transport.close()


def test_a_type_that_is_not_built_is_named_with_the_way_out(managed: Any) -> None:
    from temporeal_bridge.transports.transport import QOS, TransportError

    with pytest.raises(TransportError, match="no_such_msgs/msg/Thing.*source no_such_msgs.*dds"):
        managed.advertise("thing", "no_such_msgs/msg/Thing", QOS["default"])
    with pytest.raises(TransportError, match="is not a topic name"):
        managed.advertise("7up", "std_msgs/msg/Empty", QOS["default"])


def test_bad_arguments_are_an_error_that_shows_them(domain: int) -> None:
    from temporeal_bridge.transports.rclpy_transport import RclpyTransport
    from temporeal_bridge.transports.transport import TransportError

    with pytest.raises(TransportError, match="-p.*nonsense"):
        RclpyTransport("pilot", domain=domain, loopback=True, ros_args=["-p", "nonsense"])


def test_a_callback_that_raises_is_not_swallowed(managed: Any, ros: Ros) -> None:
    from temporeal_bridge.transports.transport import QOS

    def fail(_: object) -> None:
        raise KeyError("from the callback")

    managed.subscribe("boom", "std_msgs/msg/Empty", QOS["default"], fail)
    publisher = ros.node.create_publisher(ros_class("std_msgs/msg/Empty"), "/cf1/boom", 10)
    with pytest.raises(KeyError, match="from the callback"):
        ros.until(lambda: False, lambda: (publisher.publish(publisher.msg_type()), managed.wait(0.01)))
    ros.node.destroy_publisher(publisher)


# launch


def test_the_launch_folder_does_not_hide_the_launch_package() -> None:
    where = command(sys.executable, "-c", "import launch, launch.actions; print(launch.__file__)").strip()
    assert not Path(where).is_relative_to(ROOT / "launch")


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "launch").glob("*.launch.py")))
def test_ros_reads_the_launch_file(file: str) -> None:
    assert "Arguments" in command("ros2", "launch", os.fspath(ROOT / "launch" / file), "--show-args")
