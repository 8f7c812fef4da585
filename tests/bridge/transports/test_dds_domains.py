"""DDS domains: bad numbers, ports in use, a private bus; and a second process that crosses it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from temporeal_bridge.transports import dds, messages
from temporeal_bridge.transports.dds import DdsTransport, domain_id, free_domain, ports
from temporeal_bridge.transports.transport import MAX_DOMAIN, QOS, QoS, TransportError, require_peer

STRING = "std_msgs/msg/String"


@pytest.mark.parametrize("value", ["233", "-1", "seven", "1.5", 233])
def test_a_domain_out_of_range(value):
    with pytest.raises(TransportError, match="a DDS domain is a whole number from 0 to 232"):
        domain_id(value)


def test_the_environment_names_the_domain(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "42")
    assert domain_id(None) == 42 and domain_id(7) == 7
    monkeypatch.setenv("ROS_DOMAIN_ID", "999")
    with pytest.raises(TransportError, match="ROS_DOMAIN_ID is '999'"):
        domain_id(None)
    monkeypatch.delenv("ROS_DOMAIN_ID")
    assert domain_id(None) == 0


def test_ports_by_the_standard():
    """DDSI-RTPS 9.6.1: 7400 + 250 domain + 10 or 11 + 2 participant."""
    assert ports(0, 0) == (7410, 7411) and ports(1, 3) == (7666, 7667)
    assert ports(MAX_DOMAIN, 0)[1] <= 65535 < ports(MAX_DOMAIN + 1, 0)[1]


def test_a_domain_in_use_is_a_clear_error():
    """Every port that this node may take is taken."""
    domain, taken = free_domain(), []
    try:
        for index in range(2):
            for port in ports(domain, index):
                taken.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                taken[-1].bind(("", port))
        with pytest.raises(TransportError, match=f"no free port on DDS domain {domain} .* another ROS_DOMAIN_ID"):
            DdsTransport("node", domain=domain, loopback=True, max_index=1)
    finally:
        for one in taken:
            one.close()
    again = DdsTransport("node", domain=domain, loopback=True, max_index=1)  # nothing of the failure stays behind
    again.close()


def test_one_process_has_one_configuration_per_domain(monkeypatch):
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)  # LOCALHOST makes both of them loopback
    domain = free_domain()
    first = DdsTransport("a", domain=domain, loopback=True)
    try:
        with pytest.raises(TransportError, match="in use in this process with another configuration"):
            DdsTransport("b", domain=domain, loopback=False)
    finally:
        first.close()


def test_free_domains_avoid_the_ports_of_ordinary_clients():
    for seed in range(20):
        assert 1 <= free_domain(seed) <= 101


def test_no_two_are_given_the_same_domain():
    """A claimed domain is not free for another process (here: for the same sign a second time)."""
    domain = free_domain()
    assert not dds.claim(domain)
    assert len({free_domain() for _ in range(6)}) == 6


def test_unknown_ros_arguments_are_refused():
    with pytest.raises(TransportError, match="--log-level"):
        DdsTransport("a", domain=free_domain(), loopback=True, ros_args=["--log-level", "debug"])


ECHO = """
import sys
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS
t = DdsTransport("echo", "/cf1", domain=int(sys.argv[1]), loopback=True)
out = t.advertise("pong", "std_msgs/msg/String", QOS["default"])
done = []
t.subscribe("ping", "std_msgs/msg/String", QOS["default"], lambda r: (t.publish(out, r.data), done.append(1)))
while len(done) < 20:
    t.wait(1.0)
while t.matched(out):
    t.wait(0.1)
"""


@pytest.mark.slow
def test_two_processes_exchange_messages():
    domain, got = free_domain(), []
    root = Path(__file__).parents[3]
    other = subprocess.Popen([sys.executable, "-c", ECHO, str(domain)], cwd=root, env={
        **os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'ros2_ws/src/temporeal_bridge'}"})
    transport = DdsTransport("ping", "/cf1", domain=domain, loopback=True)
    try:
        reader = transport.subscribe("pong", STRING, QOS["default"], got.append)
        writer = transport.advertise("ping", STRING, QOS["default"])
        require_peer(transport, writer, 20.0)
        require_peer(transport, reader, 20.0)
        for i in range(20):
            transport.publish(writer, messages.encode(STRING, messages.record(STRING)(data=str(i))))
            transport.wait(5.0)
        assert [messages.decode(STRING, r.data).data for r in got] == [str(i) for i in range(20)]
    finally:
        transport.close()
        other.wait(20.0)
    assert other.returncode == 0


def test_the_graph_says_which_node_has_which_endpoint():
    """What `ros2 node list` reads: the latched ros_discovery_info of each participant."""
    domain, got = free_domain(), []
    node = DdsTransport("policy_node", "/cf1", domain=domain, loopback=True)
    writer = node.advertise("cmd", STRING, QOS["default"])
    reader = node.subscribe("odom", STRING, QOS["default"], lambda r: None)
    listener = DdsTransport("listener", domain=domain, loopback=True)
    from cyclonedds.sub import DataReader

    entity = DataReader(listener.participant, listener._topic(dds.GRAPH_TOPIC, dds.GRAPH_TYPE),
                        dds.dds_qos(QoS(depth=100, latched=True), b"", False))  # no key: deep enough for all
    for _ in range(100):
        listener.wait(0.05)
        got += [messages.decode(dds.GRAPH_TYPE, s.data) for s in entity.take(N=10)]
        nodes = {(n.node_namespace, n.node_name): n for info in got for n in info.node_entities_info_seq}
        found = nodes.get(("/cf1", "policy_node"))
        if found is not None and len(found.writer_gid_seq) and len(found.reader_gid_seq):
            break
    assert [bytes(g.data) for g in found.writer_gid_seq] == [writer.handle.guid.bytes]
    assert [bytes(g.data) for g in found.reader_gid_seq] == [reader.handle.guid.bytes]
    entity.__del__()
    node.close()
    listener.close()
