"""Restricts UDP sockets of this process to one interface. Linux only: it reads ``/proc``.

Cyclone DDS 11.0.1 binds its receiving sockets to every address, whatever interfaces are configured
(``src/core/ddsi/src/ddsi_init.c``: ``m_interface = NULL``), so a bus on loopback could be written to from the network.
The kernel is therefore asked to deliver only packets of the loopback to these sockets.
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
    """A UDP socket of this process: its descriptor, whether it is bound to every address, its port."""

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
    """Restrict UDP sockets on ``ports`` that are bound to every address to ``interface``; returns their number.

    ``others`` are left alone: another middleware of this process may use the same ports and an address of another
    interface. rmw_cyclonedds of ROS 2 Jazzy does, and never ends if its own packets are lost.

    ``SO_BINDTODEVICE`` (socket(7)) needs no privilege since Linux 5.7; before, it raises an OSError.
    """
    count = 0
    for found in udp_sockets():
        if found.every_address and found.port in ports and found not in others:
            with socket.socket(fileno=os.dup(found.descriptor)) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
            count += 1
    return count
