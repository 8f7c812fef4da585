"""The line between controller and guard: datagrams over a local Unix socket, which only this user can open.

The controller proposes; the guard alone publishes to the robot. What is proposed does not go over the bus: there,
anybody could propose, and a hop over DDS costs more than the whole of this line. All times are CLOCK_MONOTONIC of this
machine [s], which both processes read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

HELLO, BEGIN, COMMAND, END, FAIL = range(5)
"""Kinds: the controller is there (text: digest of its artifact) · a mission begins (stamp: its time zero) · a command
(values) · the mission is over (text: what then) · the controller cannot go on (text: why)."""

MAGIC = b"TPL1"
HEAD = struct.Struct("<4sB3xqqqddII")
ANSWER = struct.Struct("<4sqqII")
LARGEST = 1 << 16
MOST = 64  # datagrams that are taken at a time: one who sends without end must not keep the guard from its checks
LONGEST_TEXT = 4096  # bytes; what a policy raises may have any length
LONGEST_PATH = 100  # bytes: a Unix socket's address holds 104 (macOS) or 108 (Linux)


class LinkError(RuntimeError):
    """The line cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Proposal:
    """What the controller says.

    Args:
        kind: one of HELLO, BEGIN, COMMAND, END, FAIL.
        flight: number of the mission; -1 outside one.
        step: control step that this is, from 0.
        stamp_ns: time zero of the mission, ns since the epoch.
        seen: when the state that was acted on arrived.
        at: when this was sent.
        values: the command [A] in its own units.
        text: see the kinds.
    """

    kind: int
    flight: int = -1
    step: int = -1
    stamp_ns: int = 0
    seen: float = 0.0
    at: float = 0.0
    values: Any = ()
    text: str = ""


@dataclass(frozen=True)
class Answer:
    """What the guard says: its mode, the mission it is in (number and time zero), and why it is in that mode."""

    mode: str
    flight: int = -1
    stamp_ns: int = 0
    reason: str = ""


def pack(p: Proposal) -> bytes:
    """A proposal as a datagram."""
    values, text = np.asarray(p.values, dtype="<f8").reshape(-1), p.text.encode()[:LONGEST_TEXT]
    head = HEAD.pack(MAGIC, p.kind, p.flight, p.step, p.stamp_ns, p.seen, p.at, len(values), len(text))
    return head + values.tobytes() + text


def unpack(data: bytes) -> Proposal:
    """The proposal in a datagram, or :class:`LinkError`."""
    if len(data) < HEAD.size or data[:4] != MAGIC:
        raise LinkError(f"{len(data)} bytes are not a proposal")
    _, kind, flight, step, stamp, seen, at, values, text = HEAD.unpack_from(data)
    if kind > FAIL or len(data) != HEAD.size + 8 * values + text:
        raise LinkError(f"{len(data)} bytes are not a proposal of kind {kind}, {values} values and a text of {text}")
    end = HEAD.size + 8 * values
    return Proposal(kind, flight, step, stamp, seen, at, np.frombuffer(data[HEAD.size : end], dtype="<f8"),
                    data[end:].decode(errors="replace"))


def pack_answer(a: Answer) -> bytes:
    """An answer as a datagram."""
    mode, reason = a.mode.encode(), a.reason.encode()[:LONGEST_TEXT]
    return ANSWER.pack(MAGIC, a.flight, a.stamp_ns, len(mode), len(reason)) + mode + reason


def unpack_answer(data: bytes) -> Answer:
    """The answer in a datagram, or :class:`LinkError`."""
    if len(data) < ANSWER.size or data[:4] != MAGIC:
        raise LinkError(f"{len(data)} bytes are not an answer")
    _, flight, stamp, mode, reason = ANSWER.unpack_from(data)
    if len(data) != ANSWER.size + mode + reason:
        raise LinkError(f"an answer with {mode} and {reason} bytes of text has {len(data)} bytes")
    text = data[ANSWER.size :]
    return Answer(text[:mode].decode(errors="replace"), flight, stamp, text[mode:].decode(errors="replace"))


class GuardEnd(Protocol):
    """The guard's end of the line."""

    malformed: int

    def receive(self) -> list[Proposal]:
        """What has come from the one controller that is listened to."""

    def answer(self, answer: Answer) -> None:
        """Tell that controller; nobody waits if it does not listen."""

    def release(self) -> None:
        """Listen to whichever controller speaks next."""

    def wait(self, timeout_s: float) -> None:
        """Until something has come, for ``timeout_s`` at most."""

    def close(self) -> None:
        """End."""


class ControllerEnd(Protocol):
    """The controller's end of the line."""

    def send(self, proposal: Proposal) -> bool:
        """Propose; False where no guard takes it. Never blocks."""

    def receive(self) -> list[Answer]:
        """What the guard has said."""

    def close(self) -> None:
        """End."""


def default_path(domain: int | str | None, namespace: str) -> Path:
    """Where the processes of one robot meet: a folder of this user only, a name for each domain and namespace."""
    root = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(root) / "temporeal" if root else Path(tempfile.gettempdir()) / f"temporeal-{os.getuid()}"
    name = namespace.strip("/").replace("/", ".") or "robot"
    return folder / f"{domain if domain is not None else os.environ.get('ROS_DOMAIN_ID') or 0}-{name}.sock"


def own_folder(path: Path) -> None:
    """Make the folder of ``path`` if it is missing; refuse one that others could put a socket into."""
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


class SocketGuard:
    """:class:`GuardEnd` over a socket called ``path``. One guard only: a second one is refused."""

    def __init__(self, path: Path) -> None:
        own_folder(path)
        self.path, self.malformed, self.strangers = path, 0, 0
        self.lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.lock)
            raise LinkError(
                f"another guard has {path}: end it, or give this one another namespace or --link") from error
        self.socket = datagram_socket(path)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.peer: str | None = None

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        out: list[Proposal] = []
        for _ in range(MOST):
            try:
                data, peer = self.socket.recvfrom(LARGEST)
            except BlockingIOError:
                break
            if self.peer is None:
                self.peer = peer
            if peer != self.peer:
                self.strangers += 1
                continue
            try:
                out.append(unpack(data))
            except LinkError:
                self.malformed += 1
        return out

    def answer(self, answer: Answer) -> None:
        """See :class:`GuardEnd`."""
        if self.peer:
            with suppress(OSError):  # the controller has ended or does not read: it will be seen by its silence
                self.socket.sendto(pack_answer(answer), self.peer)

    def release(self) -> None:
        """See :class:`GuardEnd`."""
        self.peer = None

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        self.poll.poll(max(timeout_s, 0.0) * 1e3)

    def close(self) -> None:
        """See :class:`GuardEnd`."""
        self.socket.close()
        self.path.unlink(missing_ok=True)
        os.close(self.lock)


class SocketController:
    """:class:`ControllerEnd` over a socket, to the guard at ``path``, which may come later."""

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


@dataclass
class MemoryLink:
    """Both ends inside one process, for tests and replay. ``pass_on(seconds)`` lets the fake clock go on."""

    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)
    pass_on: Callable[[float], None] | None = None
    guarded: bool = True
    malformed: int = 0

    def send(self, proposal: Proposal) -> bool:
        """See :class:`ControllerEnd`."""
        if self.guarded:
            self.up.append(pack(proposal))
        return self.guarded

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        return [unpack(self.up.popleft()) for _ in range(len(self.up))]

    def answer(self, answer: Answer) -> None:
        """See :class:`GuardEnd`."""
        self.down.append(pack_answer(answer))

    def release(self) -> None:
        """See :class:`GuardEnd`."""

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        if not self.up and self.pass_on is not None:
            self.pass_on(timeout_s)

    def close(self) -> None:
        """See :class:`GuardEnd`."""


@dataclass
class MemoryController:
    """The controller's end of a :class:`MemoryLink`."""

    link: MemoryLink

    def send(self, proposal: Proposal) -> bool:
        """See :class:`ControllerEnd`."""
        return self.link.send(proposal)

    def receive(self) -> list[Answer]:
        """See :class:`ControllerEnd`."""
        down = self.link.down
        return [unpack_answer(down.popleft()) for _ in range(len(down))]

    def close(self) -> None:
        """See :class:`ControllerEnd`."""


def line(pass_on: Callable[[float], None] | None = None) -> tuple[MemoryController, MemoryLink]:
    """Controller's and guard's end of a line in this process."""
    link = MemoryLink(pass_on=pass_on)
    return MemoryController(link), link
