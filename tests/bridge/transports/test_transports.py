"""One conformance suite for every transport. The rclpy ones need a sourced ROS 2 and are skipped elsewhere."""

from __future__ import annotations

import importlib.util
import time

import pytest

from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.selection import choose
from temporeal_bridge.transports.transport import (
    QOS,
    Endpoint,
    Peer,
    QoS,
    TransportError,
    mismatch,
    qos_named,
    require_peer,
    resolve_name,
    unconnected,
)

STRING = "std_msgs/msg/String"
PATIENCE_S = 5.0
PAUSES_S = (0.0, 0.01, 0.1, 1.0, 5.0)  # for messages to arrive: the next one only where the one before was too short
ROS = pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="rclpy is not importable: no sourced ROS 2")


def make(kind: str, shared: dict, node: str, namespace: str, remaps=()):
    if kind == "memory":
        return MemoryTransport(shared.setdefault("bus", Bus()), node, namespace, remaps)
    from temporeal_bridge.transports.dds import free_domain

    domain = shared.setdefault("domain", free_domain())
    ros_args = [word for old, new in remaps for word in ("-r", f"{old}:={new}")]
    if kind == "dds":
        from temporeal_bridge.transports.dds import DdsTransport as Kind
    else:
        from temporeal_bridge.transports.rclpy_transport import RclpyTransport as Kind
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
    for pause_s in PAUSES_S:  # until five were there before it waited
        for i in range(5):
            a.publish(writer, text(str(i)))
        time.sleep(0.0 if a.capabilities.deterministic else pause_s)
        if b.wait(0.0) == 5:
            break
        listen(b, got, 5)
        got.clear()
    assert words(got) == ["0", "1", "2", "3", "4"]


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
    for pause_s in PAUSES_S:  # until all six had arrived in the reader's history, which keeps two, before it waited
        got.clear()
        for i in range(6):
            a.publish(writer, text(str(i)))
            a.wait(0.0)
        time.sleep(0.0 if a.capabilities.deterministic else pause_s)
        listen(b, got, 2)
        if words(got) == ["4", "5"]:
            break
        settled(b, lambda: words(got)[-1:], ["5"])  # the rest
    assert words(got) == ["4", "5"]


def test_namespaces_and_remappings(join):
    a = join(0, namespace="/cf1", remaps=(("state", "/shared/odom"),))
    b = join(1, namespace="/cf2")
    assert a.advertise("cmd", STRING, QOS["default"]).topic == "/cf1/cmd"
    assert a.advertise("state", STRING, QOS["default"]).topic == "/shared/odom"
    assert b.advertise("/diagnostics", STRING, QOS["default"]).topic == "/diagnostics"
    assert (a.resolve("cmd"), a.resolve("state"), b.resolve("state")) == ("/cf1/cmd", "/shared/odom", "/cf2/state")


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


def settled(transport, look, wanted):
    """What ``look()`` gives once it is ``wanted``, or after all patience."""
    until = transport.monotonic() + PATIENCE_S
    while look() != wanted and transport.monotonic() < until:
        transport.wait(0.05)
    return look()


def test_publishers_are_seen_with_node_type_and_own_ones_marked(join):
    a, b, c = join(0, "robot", "/cf1"), join(1, "guard", "/cf1"), join(0, "intruder")
    own = b.advertise("cmd", STRING, QOS["command"])
    a.advertise("/elsewhere", STRING, QOS["command"])

    def publishers(topic="cmd"):
        return sorted((peer.node, peer.type, peer.own) for peer in b.publishers(topic))

    mine = ("/cf1/guard1", STRING, True)
    assert settled(b, publishers, [mine]) == [mine]
    c.advertise("/cf1/cmd", STRING, QOS["sensor"])
    both = [mine, ("/intruder0", STRING, False)]
    assert settled(b, publishers, both) == both == publishers(own.topic)
    assert [peer.hash for peer in b.publishers("cmd")] == [messages.type_hash(STRING)] * 2
    assert [peer.qos.reliable for peer in b.publishers("cmd") if not peer.own] == [False]
    c.close()
    assert settled(b, publishers, [mine]) == [mine]
    assert b.subscribers("cmd") == []


def test_subscribers_are_seen_whatever_their_type_and_qos(join):
    a, b = join(0, "robot", "/cf1"), join(1, "guard", "/cf1")
    a.subscribe("cmd", STRING, QOS["latched"], lambda r: None)
    a.subscribe("cmd", "std_msgs/msg/Empty", QOS["sensor"], lambda r: None)

    def subscribers():
        return sorted((p.node, p.type, p.qos.reliable, p.qos.latched, p.own) for p in b.subscribers("cmd"))

    wanted = [("/cf1/robot0", "std_msgs/msg/Empty", False, False, False), ("/cf1/robot0", STRING, True, True, False)]
    assert settled(b, subscribers, wanted) == wanted and b.publishers("cmd") == []


def test_nodes_are_counted_even_if_two_bear_one_name(join):
    a, b = join(0, "same", "/cf1"), join(1, "other")
    wanted = ["/cf1/same0", "/other1"]
    assert settled(b, lambda: sorted(b.nodes()), wanted) == wanted
    twin = join(0, "same", "/cf1")
    wanted = ["/cf1/same0", "/cf1/same0", "/other1"]
    assert settled(b, lambda: sorted(b.nodes()), wanted) == wanted
    twin.close()
    a.close()
    assert settled(b, b.nodes, ["/other1"]) == ["/other1"]


def test_a_second_publisher_of_the_own_name_still_counts_as_somebody_else(join):
    a, b = join(0, "guard", "/cf1"), join(0, "guard", "/cf1")
    own, twin = b.advertise("cmd", STRING, QOS["command"]), a.advertise("cmd", STRING, QOS["command"])
    assert settled(b, lambda: sorted(p.own for p in b.publishers("cmd")), [False, True]) == [False, True]
    assert own.topic == twin.topic


def test_two_nodes_of_one_name_are_two_participants_and_two_publishers_of_one_node_are_one(join):
    a, twin, b = join(0, "pendant", "/cf1"), join(0, "pendant", "/cf1"), join(1, "guard", "/cf1")
    for transport, topic in ((a, "estop"), (a, "estop"), (a, "battery"), (twin, "estop")):
        transport.advertise(topic, STRING, QOS["default"])
    wanted = ["/cf1/pendant0"] * 3
    assert settled(b, lambda: [peer.node for peer in b.publishers("estop")], wanted) == wanted
    found = [peer.participant for peer in b.publishers("estop")]
    assert sorted(found.count(each) for each in set(found)) == [1, 2] and {len(each) for each in found} == {12}
    battery, = b.publishers("battery")
    assert found.count(battery.participant) == 2


def test_incompatible_names_the_policy_and_the_node(join):
    a, b = join(0, "robot"), join(1, "node")
    reader = b.subscribe("words", STRING, QOS["default"], lambda r: None)
    latched = b.subscribe("words", STRING, QoS(reliable=False, depth=1, latched=True), lambda r: None)
    fitting = b.subscribe("words", STRING, QOS["sensor"], lambda r: None)
    assert b.incompatible(reader) == ""
    writer = a.advertise("words", STRING, QOS["sensor"])
    why = "/robot0: reliability (offered: best effort, requested: reliable)"
    assert settled(b, lambda: b.incompatible(reader), why) == why
    why = "/robot0: durability (offered: volatile, requested: transient local)"
    assert settled(b, lambda: b.incompatible(latched), why) == why
    assert settled(b, lambda: b.incompatible(fitting), "") == ""
    settled(a, lambda: a.incompatible(writer).count("/node1: "), 2)
    assert {part.split(" (")[0] for part in a.incompatible(writer).split("; ")} == {
        "/node1: reliability", "/node1: durability"}


def test_incompatible_names_the_type(join):
    a, b = join(0, "robot"), join(1, "node")
    reader = b.subscribe("words", STRING, QOS["sensor"], lambda r: None)
    a.advertise("words", "std_msgs/msg/Empty", QOS["default"])
    why = "/robot0: type (std_msgs/msg/Empty against std_msgs/msg/String)"
    assert settled(b, lambda: b.incompatible(reader), why) == why


@pytest.mark.parametrize(("offered", "requested", "words"), [
    (QoS(), QoS(), ""), (QoS(), QoS(reliable=False), ""), (QoS(latched=True), QoS(), ""),
    (QoS(reliable=False), QoS(), "reliability"), (QoS(), QoS(latched=True), "durability"),
    (QoS(reliable=False), QoS(latched=True), "reliability and durability")])
def test_a_reader_gets_nothing_where_it_requests_more_than_is_offered(offered, requested, words):
    assert " and ".join(part.split(" (")[0] for part in mismatch(offered, requested).split(" and ")) == words


def test_what_fits_and_is_not_connected_is_blamed_on_the_policy_that_the_middleware_names():
    endpoint, peer = Endpoint("/cmd", STRING, QoS(), None), Peer("/robot", STRING, "", QoS(), False)
    assert unconnected(endpoint, True, [peer, peer], 2) == ""
    assert unconnected(endpoint, True, [peer, peer], 1, "deadline") == "1 of 2 that fit otherwise: deadline"
    assert "another policy" in unconnected(endpoint, True, [peer], 0)


def test_dds_names_a_policy_that_ros_profiles_do_not_have():
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.sub import DataReader
    from cyclonedds.util import duration

    from temporeal_bridge.transports import dds

    domain = dds.free_domain()
    robot, node = (dds.DdsTransport(name, domain=domain, loopback=True) for name in ("robot", "node"))
    asking = Qos(Policy.Deadline(duration(milliseconds=10)), base=dds.dds_qos(QOS["default"], b"", False))
    reader = DataReader(robot.participant, robot._topic("rt/cmd", STRING), asking)
    writer = node.advertise("cmd", STRING, QOS["command"])
    why = "1 of 1 that fit otherwise: deadline"
    assert settled(node, lambda: node.incompatible(writer), why) == why
    # a plain DDS program: nobody announces its node or its type's hash
    assert [(peer.node, peer.hash) for peer in node.subscribers("cmd")] == [("", "")]
    reader.__del__()
    for transport in (robot, node):
        transport.close()


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
