"""The UDP sockets of this process, and how to hold them to one interface. Linux only: it reads ``/proc``.

Cyclone DDS 11.0.1 binds its receiving sockets to every address of the machine, whatever interfaces it is configured
with (``src/core/ddsi/src/ddsi_init.c``: ``m_interface = NULL``): a bus that was asked to stay on this machine could be
written to from the network. The kernel is therefore told to give those sockets packets of the loopback only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

ANY = {"00000000", "0" * 32}  # 0.0.0.0 and ::, as /proc writes them


@dataclass(frozen=True)
class UdpSocket:
    """One of this process's UDP sockets: its descriptor, whether it hears every address, its port."""

    descriptor: int
    every_address: bool
    port: int


def udp_sockets() -> Iterator[UdpSocket]:
    """The UDP sockets that this process has open."""
    mine = dict(descriptors())
    for table in ("udp", "udp6"):
        path = Path("/proc/self/net") / table
        # columns: sl, local address, remote address, st, queues, timer, retransmits, uid, timeout, inode
        for row in path.read_text().splitlines()[1:] if path.exists() else ():
            columns = row.split()
            if columns[9] in mine:
                address, port = columns[1].split(":")
                yield UdpSocket(mine[columns[9]], address in ANY, int(port, 16))


def descriptors() -> Iterator[tuple[str, int]]:
    """Inode and descriptor of each open socket."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:  # closed meanwhile: by the listing itself, or by a thread
            continue
        if target.startswith("socket:["):
            yield target[len("socket:["):-1], int(entry.name)


def confine(ports: Container[int], interface: str, others: Container[UdpSocket] = ()) -> int:
    """Let the UDP sockets on these ports that hear every address hear ``interface`` only; how many they were.

    ``others`` are left alone: those of another middleware in this process, which may be bound to the same ports and
    talk to itself by an address of another interface, as rmw_cyclonedds of ROS 2 Jazzy does: deafened, it never ends.

    ``SO_BINDTODEVICE`` (socket(7)) needs no privilege since Linux 5.7; before, an OSError says so.
    """
    count = 0
    for found in udp_sockets():
        if found.every_address and found.port in ports and found not in others:
            with socket.socket(fileno=os.dup(found.descriptor)) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
            count += 1
    return count
