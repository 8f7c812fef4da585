"""A process binds to what it is told to: a bus on the loopback opens nothing that the network could reach."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from temporeal_bridge.transports import dds, messages
from temporeal_bridge.transports.dds import DdsTransport, free_domain, ports
from temporeal_bridge.transports.sockets import confine, descriptors, udp_sockets
from temporeal_bridge.transports.transport import QOS, TransportError, require_peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")

STRING = "std_msgs/msg/String"
INTERFACE_NAME = 16  # bytes: IFNAMSIZ


def held_to(descriptor: int) -> str:
    """The interface that a socket hears; empty: all."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return same.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, INTERFACE_NAME).rstrip(b"\0").decode()


def local_address(descriptor: int) -> str:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return str(same.getsockname()[0])


def not_udp(inodes: set[str]) -> list[str]:
    """Tables of /proc/net, other than those of UDP, in which one of the sockets stands."""
    tables = [Path("/proc/self/net") / name for name in ("tcp", "tcp6", "raw", "raw6", "packet", "icmp")]
    return [table.name for table in tables if table.exists()
            for row in table.read_text().splitlines()[1:] if inodes & set(row.split())]


def opened(domain: int, loopback: bool) -> tuple[list[tuple[str, str, int]], list[str]]:
    """What a transport with endpoints opens: (address, interface, port) of each UDP socket, and sockets of others."""
    before = dict(descriptors())
    transport = DdsTransport("node", domain=domain, loopback=loopback)
    try:
        transport.subscribe("a", STRING, QOS["default"], lambda _: None)
        transport.publish(transport.advertise("b", STRING, QOS["latched"]), bytes.fromhex("000100000100000000"))
        transport.wait(0.05)
        new = {inode: number for inode, number in descriptors() if inode not in before}
        udp = [(local_address(s.descriptor), held_to(s.descriptor), s.port) for s in udp_sockets()
               if s.descriptor in new.values()]
        return udp, not_udp(set(new))
    finally:
        transport.close()


def test_a_loopback_bus_opens_nothing_that_the_network_reaches():
    domain = free_domain()
    udp, others = opened(domain, loopback=True)
    assert set(ports(domain, 0)) <= {port for _, _, port in udp}  # those that messages come in by were looked at
    assert [one for one in udp if one[0] != "127.0.0.1" and one[1] != "lo"] == []
    assert others == []


def test_a_bus_that_is_not_on_the_loopback_is_open(monkeypatch):
    """The other way round: what the test above looks at does tell the two apart."""
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    monkeypatch.delenv("CYCLONEDDS_URI", raising=False)
    udp, _ = opened(free_domain(), loopback=False)
    assert any(address not in ("127.0.0.1", "::1") and interface != "lo" for address, interface, _ in udp)


def test_an_interface_that_is_named_to_cyclone_is_what_it_sends_by_and_not_what_it_listens_on(monkeypatch):
    """As docs/reference/transports.md says. The loopback is the interface that every machine has; others are treated
    alike."""
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    monkeypatch.setenv("CYCLONEDDS_URI", dds.loopback_config())
    domain = free_domain()
    udp, others = opened(domain, loopback=False)
    into = {(address, interface) for address, interface, port in udp if port in ports(domain, 0)}
    out = {(address, interface) for address, interface, port in udp if port not in ports(domain, 0)}
    assert into == {("0.0.0.0", "")} and out == {("127.0.0.1", "")} and others == []


def test_a_loopback_bus_does_not_join_one_that_was_only_told_to_cyclone(monkeypatch):
    """The settings are the same, and the sockets are not confined."""
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    monkeypatch.setenv("CYCLONEDDS_URI", dds.loopback_config())
    domain = free_domain()
    told = DdsTransport("told", domain=domain)
    try:
        with pytest.raises(TransportError, match="with another configuration"):
            DdsTransport("asked", domain=domain, loopback=True)
    finally:
        told.close()


@pytest.mark.parametrize("wrong", ["<CycloneDDS><Nonsense/></CycloneDDS>", "file:///tmp/käfig.xml"])
def test_what_cyclone_is_told_wrong_is_an_error(wrong, monkeypatch):
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    monkeypatch.setenv("CYCLONEDDS_URI", wrong)
    with pytest.raises(TransportError, match="is CYCLONEDDS_URI valid"):
        DdsTransport("node", domain=free_domain())


def test_nothing_is_opened_in_another_domain():
    domain = free_domain()
    udp, _ = opened(domain, loopback=True)
    first, last = ports(domain, 0)[0], ports(domain, 119)[1]
    own = [port for address, _, port in udp if address == "0.0.0.0"]
    assert own and all(first <= port <= last for port in own)


def own_address() -> str | None:
    """An address of this machine that is not the loopback's, if it has one: the one towards a documentation network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing: RFC 5737, TEST-NET-2
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def arrives(receiver: socket.socket, address: str) -> bool:
    """Whether a datagram to the socket's port at ``address`` comes in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", (address, receiver.getsockname()[1]))
    try:
        return receiver.recv(1) == b"x"
    except TimeoutError:
        return False


def test_a_confined_socket_hears_the_loopback_and_nothing_else():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("", 0))
        receiver.settimeout(0.3)
        outside, port = own_address(), receiver.getsockname()[1]
        assert held_to(receiver.fileno()) == "" and arrives(receiver, "127.0.0.1")
        assert outside is None or arrives(receiver, outside)
        assert confine({port}, "lo") == 1
        assert held_to(receiver.fileno()) == "lo" and arrives(receiver, "127.0.0.1")
        assert outside is None or not arrives(receiver, outside)


def test_only_the_named_ports_are_confined():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        assert confine({other.getsockname()[1] + 1}, "lo") == 0 and held_to(other.fileno()) == ""


def test_sockets_that_were_there_before_are_left_alone():
    """Another middleware's on the same ports, which talks to itself over another interface."""
    domain = free_domain()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", ports(domain, 0)[0]))
        transport = DdsTransport("node", domain=domain, loopback=True)
        try:
            assert held_to(other.fileno()) == ""
            own = [s for s in udp_sockets() if s.port in ports(domain, 1)]
            assert [held_to(s.descriptor) for s in own] == ["lo", "lo"]
        finally:
            transport.close()


def test_a_bus_that_cannot_be_kept_here_is_not_opened(monkeypatch):
    """An old kernel: no transport is better than one that others can write to; and the domain is free again."""
    def refused(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    domain = free_domain()
    with monkeypatch.context() as patch:
        patch.setattr(dds, "confine", refused)
        with pytest.raises(TransportError, match=f"DDS domain {domain} cannot be restricted to lo: .* Linux 5.7"):
            DdsTransport("node", domain=domain, loopback=True)
        patch.setattr(dds, "confine", lambda *_: 0)
        with pytest.raises(TransportError, match="were not found in /proc"):
            DdsTransport("node", domain=domain, loopback=True)
    DdsTransport("node", domain=domain, loopback=True).close()


def test_confined_processes_still_find_each_other():
    domain, got = free_domain(), []
    one, other = (DdsTransport(name, domain=domain, loopback=True) for name in ("one", "other"))
    try:
        reader = other.subscribe("a", STRING, QOS["default"], got.append)
        writer = one.advertise("a", STRING, QOS["default"])
        require_peer(one, writer, 10.0)
        require_peer(other, reader, 10.0)
        one.publish(writer, messages.encode(STRING, messages.record(STRING)(data="here")))
        other.wait(5.0)
        assert [messages.decode(STRING, r.data).data for r in got] == ["here"]
    finally:
        one.close()
        other.close()
