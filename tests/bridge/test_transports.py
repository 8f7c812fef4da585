"""One conformance suite for every transport. The rclpy ones need a sourced ROS 2 and are skipped elsewhere."""

from __future__ import annotations

import importlib.util
import time

import pytest

from temporeal_bridge import messages
from temporeal_bridge.memory import Bus, MemoryTransport
from temporeal_bridge.transport import QOS, QoS, TransportError, choose, qos_named, require_peer, resolve_name

STRING = "std_msgs/msg/String"
PATIENCE_S = 5.0
ROS = pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="rclpy is not importable: no sourced ROS 2")


def make(kind: str, shared: dict, node: str, namespace: str, remaps=()):
    if kind == "memory":
        return MemoryTransport(shared.setdefault("bus", Bus()), node, namespace, remaps)
    from temporeal_bridge.dds import free_domain

    domain = shared.setdefault("domain", free_domain())
    ros_args = [word for old, new in remaps for word in ("-r", f"{old}:={new}")]
    if kind == "dds":
        from temporeal_bridge.dds import DdsTransport as Kind
    else:
        from temporeal_bridge.rclpy_transport import RclpyTransport as Kind
    return Kind(node, namespace, domain=domain, loopback=True, ros_args=ros_args)


PAIRS = ["memory-memory", "dds-dds", *(pytest.param(p, marks=ROS) for p in ("rclpy-rclpy", "rclpy-dds", "dds-rclpy"))]


@pytest.fixture(params=PAIRS)
def join(request):
    """``join(index, node, namespace)``: a transport; index 0 publishes, 1 subscribes in these tests."""
    kinds, shared, opened = request.param.split("-"), {}, []

    def new(index: int, node: str = "node", namespace: str = "/", remaps=()):
        opened.append(make(kinds[index], shared, f"{node}{index}", namespace, remaps))
        return opened[-1]

    yield new
    for transport in opened:
        transport.close()


def text(word: str) -> bytes:
    return messages.encode(STRING, messages.record(STRING)(data=word))


def words(received) -> list[str]:
    return [messages.decode(STRING, r.data).data for r in received]


def listen(transport, got, count: int) -> None:
    until = transport.monotonic() + PATIENCE_S
    while len(got) < count and transport.monotonic() < until:
        transport.wait(0.05)


def connect(a, b, qos=QOS["default"], topic="words"):
    got = []
    reader = b.subscribe(topic, STRING, qos, got.append)
    writer = a.advertise(topic, STRING, qos)
    require_peer(a, writer, PATIENCE_S)
    require_peer(b, reader, PATIENCE_S)
    return writer, reader, got


def test_messages_arrive_in_order_and_whole(join):
    a, b = join(0), join(1)
    writer, _, got = connect(a, b)
    for i in range(8):
        a.publish(writer, text(f"grüß {i}"))
    listen(b, got, 8)
    assert words(got) == [f"grüß {i}" for i in range(8)]
    assert {r.topic for r in got} == {"/words"} and {r.type for r in got} == {STRING}


def test_one_wait_delivers_all_that_has_arrived(join):
    a, b = join(0), join(1)
    writer, _, got = connect(a, b)
    for i in range(5):
        a.publish(writer, text(str(i)))
    if not a.capabilities.deterministic:
        time.sleep(0.3)
    assert b.wait(0.0) == 5 and words(got) == ["0", "1", "2", "3", "4"]


def test_the_bytes_are_not_touched(join):
    a, b = join(0), join(1)
    writer, _, got = connect(a, b)
    a.publish(writer, text("abc"))
    listen(b, got, 1)
    assert got[0].data[: len(text("abc"))] == text("abc")  # a middleware may pad to four bytes


def test_a_large_message(join):
    a, b = join(0), join(1)
    writer, _, got = connect(a, b)
    a.publish(writer, text("x" * 300_000))
    listen(b, got, 1)
    assert words(got) == ["x" * 300_000]


def test_a_late_reader_gets_the_latched_message(join):
    a, b = join(0), join(1)
    writer = a.advertise("words", STRING, QOS["latched"])
    for word in ("old", "new"):
        a.publish(writer, text(word))
    got = []
    b.subscribe("words", STRING, QOS["latched"], got.append)
    listen(b, got, 1)
    assert words(got) == ["new"]


def test_a_reliable_reader_never_hears_a_best_effort_writer(join):
    a, b = join(0), join(1)
    got = []
    best_effort, reliable = QoS(reliable=False, depth=5), QOS["default"]
    reader = b.subscribe("words", STRING, reliable, got.append)
    writer = a.advertise("words", STRING, best_effort)
    heard: list = []
    require_peer(b, b.subscribe("words", STRING, best_effort, heard.append), PATIENCE_S)
    require_peer(a, writer, PATIENCE_S)
    a.publish(writer, text("x"))
    listen(b, heard, 1)
    assert words(heard) == ["x"] and got == [] and b.matched(reader) <= 1


def test_keep_last_drops_the_oldest(join):
    a, b = join(0), join(1)
    writer, _, got = connect(a, b, QoS(depth=2))
    for i in range(6):
        a.publish(writer, text(str(i)))
        a.wait(0.0)
    if not a.capabilities.deterministic:
        time.sleep(0.3)  # all six have arrived in the reader's history, which keeps two
    listen(b, got, 2)
    assert words(got) == ["4", "5"]


def test_namespaces_and_remappings(join):
    a = join(0, namespace="/cf1", remaps=(("state", "/shared/odom"),))
    b = join(1, namespace="/cf2")
    assert a.advertise("cmd", STRING, QOS["default"]).topic == "/cf1/cmd"
    assert a.advertise("state", STRING, QOS["default"]).topic == "/shared/odom"
    assert b.advertise("/diagnostics", STRING, QOS["default"]).topic == "/diagnostics"


def test_two_robots_do_not_hear_each_other(join):
    a, b = join(0, namespace="/cf1"), join(1, namespace="/cf2")
    got = []
    b.subscribe("cmd", STRING, QOS["default"], got.append)
    a.publish(a.advertise("cmd", STRING, QOS["default"]), text("x"))
    b.wait(0.2)
    assert got == []


def test_no_peer_is_an_error_that_names_the_topic(join):
    b = join(1, namespace="/cf1")
    reader = b.subscribe("odom", "nav_msgs/msg/Odometry", QOS["sensor"], lambda r: None)
    with pytest.raises(TransportError, match=r"no peer on the bus for /cf1/odom \(nav_msgs/msg/Odometry\) after 0.2 s"):
        require_peer(b, reader, 0.2)


def test_matched_counts_down_when_the_peer_leaves(join):
    a, b = join(0), join(1)
    _, reader, _ = connect(a, b)
    a.close()
    until = b.monotonic() + PATIENCE_S
    while b.matched(reader) and b.monotonic() < until:
        b.wait(0.05)
    assert b.matched(reader) == 0


def test_waiting_takes_its_time_and_no_more_on_the_own_clock(join):
    b = join(1)
    b.subscribe("words", STRING, QOS["default"], lambda r: None)
    before = b.monotonic()
    assert b.wait(0.1) == 0
    assert b.monotonic() - before >= 0.1 or not b.capabilities.deterministic
    assert b.now() > 1_600_000_000_000_000_000


def test_stamps_and_intervals_agree_on_the_memory_bus():
    transport = MemoryTransport(Bus(), "a")
    start = transport.now()
    transport.bus.advance(1.5)
    assert (transport.now() - start, transport.monotonic()) == (1_500_000_000, 1.5)
    with pytest.raises(ValueError, match="does not go back"):
        transport.bus.advance(-1.0)


@pytest.mark.parametrize(("name", "namespace", "full"), [
    ("odom", "/cf1", "/cf1/odom"), ("odom", "cf1", "/cf1/odom"), ("odom", "/", "/odom"), ("/odom", "/cf1", "/odom"),
    ("~/state", "/cf1", "/cf1/node/state"), ("mission/start", "/cf1", "/cf1/mission/start")])
def test_names(name, namespace, full):
    assert resolve_name(name, namespace, "node") == full


@pytest.mark.parametrize("name", ["my topic", "1st", "a//b", "grün", ""])
def test_illegal_names(name):
    with pytest.raises(TransportError, match="not a topic name"):
        resolve_name(name, "/cf1", "node")


def test_unknown_words_list_the_legal_ones():
    with pytest.raises(TransportError, match="legal: auto, dds, rclpy"):
        choose("ros1")
    with pytest.raises(TransportError, match="legal: sensor, default"):
        qos_named("best")
