"""The link as a local Unix datagram socket that only this user can open."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from temporeal_bridge.link.datagrams import LARGEST, Answer, LinkError, Proposal, pack, pack_answer, unpack_answer
from temporeal_bridge.link.ends import Parties
from temporeal_bridge.transports.transport import domain_id

MOST = 64  # datagrams taken at a time: a sender without end must not keep the guard from its checks
LONGEST_PATH = 100  # bytes: a Unix socket's address holds 104 (macOS) or 108 (Linux)


def default_path(domain: int | str | None, namespace: str) -> Path:
    """The socket of one robot: in a folder of this user only, one name per domain and namespace."""
    root = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(root) / "temporeal" if root else Path(tempfile.gettempdir()) / f"temporeal-{os.getuid()}"
    name = namespace.strip("/").replace("/", ".") or "no-namespace"  # no namespace has a "-" in it
    return folder / f"{domain_id(domain)}-{name}.sock"


def own_folder(path: Path) -> None:
    """Make the folder of ``path`` if it is missing; refuse a folder that others can write to."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LinkError(f"{path.parent} can be written by other users: choose another folder with --link, or make it "
                        "yours alone (chmod 700)")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise LinkError(f"{path} is longer than the {LONGEST_PATH} bytes that a socket's name may have: choose a "
                        "shorter one with --link")


def datagram_socket(path: Path) -> socket.socket:
    """A non-blocking datagram socket with the name ``path``."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    path.unlink(missing_ok=True)
    made.bind(os.fspath(path))
    path.chmod(0o600)
    return made


def lock_guard(path: Path) -> int:
    """Lock ``path`` for one guard, as a descriptor; refused while another guard holds it."""
    own_folder(path)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise LinkError(f"another guard has {path}: end it, or give this one another namespace (a single node: or "
                        "--link)") from error
    return lock


class SocketGuard(Parties):
    """:class:`~temporeal_bridge.link.ends.GuardEnd` over the socket ``path``. A second guard is refused."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.lock = path, lock_guard(path)
        self.socket = datagram_socket(path)
        self.buffer = memoryview(bytearray(LARGEST))  # one for all: a new one costs more than the read

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        out: list[Proposal] = []
        for _ in range(MOST):
            try:
                size, peer = self.socket.recvfrom_into(self.buffer)
            except BlockingIOError:
                break
            found = self.accept(bytes(self.buffer[:size]), peer, self._send)
            if found is not None:
                out.append(found)
        return out

    def answer(self, answer: Answer, successor: bool = False) -> None:
        """See :class:`GuardEnd`."""
        self._send(pack_answer(answer), self.successor if successor else self.peer)

    def _send(self, data: bytes, receiver: str | None) -> None:
        if receiver:
            with suppress(OSError):  # the controller has ended or does not read: its silence will be noticed
                self.socket.sendto(data, receiver)

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        select.select([self.socket], [], [], max(timeout_s, 0.0))  # to the microsecond; poll counts milliseconds

    def close(self) -> None:
        """See :class:`GuardEnd`."""
        self.socket.close()
        self.path.unlink(missing_ok=True)
        os.close(self.lock)


class SocketController:
    """:class:`~temporeal_bridge.link.ends.ControllerEnd` over a socket, to the guard at ``path``, which may come
    later."""

    def __init__(self, path: Path) -> None:
        own_folder(path)
        self.path, self.own = path, path.with_name(f"{path.name}.{os.getpid()}")
        self.socket = datagram_socket(self.own)

    def send(self, proposal: Proposal) -> bool:
        """See :class:`ControllerEnd`."""
        try:
            self.socket.sendto(pack(proposal), os.fspath(self.path))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN, errno.ENOBUFS):
                return False
            raise LinkError(f"cannot reach the guard at {self.path}: {error}") from error
        return True

    def receive(self) -> list[Answer]:
        """See :class:`ControllerEnd`."""
        out = []
        while True:
            try:
                out.append(unpack_answer(self.socket.recv(LARGEST)))
            except BlockingIOError:
                return out
            except LinkError:
                continue

    def close(self) -> None:
        """See :class:`ControllerEnd`."""
        self.socket.close()
        self.own.unlink(missing_ok=True)
