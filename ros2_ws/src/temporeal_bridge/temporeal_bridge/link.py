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
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from temporeal_bridge.transports.transport import domain_id

HELLO, BEGIN, COMMAND, END, FAIL, TAKEOVER = range(6)
"""Kinds: the controller is there (text: digest of its artifact) · a mission begins (stamp: its time zero) · a command
(values) · the mission is over (text: what then) · the controller cannot go on (text: why) · this one asks to take over
from the controller in charge (text: :func:`temporeal_bridge.controller.artifact_swap.offer` of its artifact)."""

MAGIC = b"TPL2"
HEAD = struct.Struct("<4sB3xqqqdddII")
ANSWER = struct.Struct("<4sqqII")
LARGEST = 1 << 16
MOST = 64  # datagrams that are taken at a time: one who sends without end must not keep the guard from its checks
LONGEST_TEXT = 4096  # bytes; what a policy raises may have any length
LONGEST_PATH = 100  # bytes: a Unix socket's address holds 104 (macOS) or 108 (Linux)


class LinkError(RuntimeError):
    """The line cannot be used; the message says why and what to do."""


class Proposal(NamedTuple):
    """What the controller says.

    Args:
        kind: one of HELLO, BEGIN, COMMAND, END, FAIL.
        flight: number of the mission; -1 outside one.
        step: control step that this is, from 0.
        stamp_ns: time zero of the mission, ns since the epoch.
        seen: when the state that was acted on arrived: of the topic that paces the controller.
        oldest: when the oldest part of that state arrived, of all topics that are sent again and again.
        at: when this was sent.
        values: the command [A] in its own units.
        text: see the kinds.
        heir: whether the successor says it, not the controller in charge. The guard's end of the line knows; it is not
            sent.
    """

    kind: int
    flight: int = -1
    step: int = -1
    stamp_ns: int = 0
    seen: float = 0.0
    at: float = 0.0
    values: Any = ()
    text: str = ""
    heir: bool = False
    oldest: float = inf


@dataclass(frozen=True)
class Answer:
    """What the guard says: its mode, the mission it is in (number and time zero), and why it is in that mode.

    To a successor: ``blending`` (propose from now on), ``refused``, or as to the one in charge, which it is then. To
    the one whom it succeeded: ``relieved``.
    """

    mode: str
    flight: int = -1
    stamp_ns: int = 0
    reason: str = ""


def pack(p: Proposal) -> bytes:
    """A proposal as a datagram."""
    values, text = np.asarray(p.values, dtype="<f8").reshape(-1), p.text.encode()
    if p.kind != TAKEOVER:
        text = text[:LONGEST_TEXT]
    head = HEAD.pack(MAGIC, p.kind, p.flight, p.step, p.stamp_ns, p.seen, p.at, p.oldest, len(values), len(text))
    return head + values.tobytes() + text


def unpack(data: bytes) -> Proposal:
    """The proposal in a datagram, or :class:`LinkError`."""
    if len(data) < HEAD.size or data[:4] != MAGIC:
        raise LinkError(f"{len(data)} bytes are not a proposal")
    _, kind, flight, step, stamp, seen, at, oldest, values, text = HEAD.unpack_from(data)
    if kind > TAKEOVER or len(data) != HEAD.size + 8 * values + text:
        raise LinkError(f"{len(data)} bytes are not a proposal of kind {kind}, {values} values and a text of {text}")
    end = HEAD.size + 8 * values
    return Proposal(kind, flight, step, stamp, seen, at, np.frombuffer(data[HEAD.size : end], dtype="<f8"),
                    data[end:].decode(errors="replace"), oldest=oldest)


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
        """What has come from the controller in charge, and from a successor that asked (:data:`TAKEOVER`)."""

    def answer(self, answer: Answer, heir: bool = False) -> None:
        """Tell the controller in charge, or the successor; nobody waits if it does not listen."""

    def promote(self) -> None:
        """The successor is in charge; who was is a stranger."""

    def dismiss(self) -> None:
        """The successor is a stranger again."""

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
    name = namespace.strip("/").replace("/", ".") or "no-namespace"  # which no namespace is called: of the -
    return folder / f"{domain_id(domain)}-{name}.sock"


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


def take(path: Path) -> int:
    """The lock of who is the guard at ``path``, as a descriptor; refused while another guard has it."""
    own_folder(path)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise LinkError(f"another guard has {path}: end it, or give this one another namespace (a single node: or "
                        "--link)") from error
    return lock


BUSY = pack_answer(Answer("refused", reason="another takeover is under way"))


class Parties:
    """Whom the guard listens to: the controller in charge, which spoke first, and one that asked to succeed it."""

    def __init__(self) -> None:
        self.peer: str | None = None
        self.heir: str | None = None
        self.malformed = self.strangers = 0

    def said(self, data: bytes, who: str, tell: Callable[[bytes, str], None]) -> Proposal | None:
        """What ``who`` says, None if it is not listened to; ``tell(answer, who)`` refuses a second successor."""
        try:
            found: Proposal | None = unpack(data)
        except LinkError:
            found = None
        if found is not None and found.kind == TAKEOVER and who != self.peer:
            if self.heir not in (None, who):
                tell(BUSY, who)
            self.heir = self.heir or who
        elif self.peer is None and who != self.heir:
            self.peer = who
        if who not in (self.peer, self.heir):
            self.strangers += 1
        elif found is None:
            self.malformed += 1
        else:
            return found._replace(heir=True) if who == self.heir else found
        return None

    def promote(self) -> None:
        """See :class:`GuardEnd`."""
        self.peer, self.heir = self.heir, None

    def dismiss(self) -> None:
        """See :class:`GuardEnd`."""
        self.heir = None

    def release(self) -> None:
        """See :class:`GuardEnd`."""
        self.peer = self.heir = None


class SocketGuard(Parties):
    """:class:`GuardEnd` over a socket called ``path``. One guard only: a second one is refused."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.lock = path, take(path)
        self.socket = datagram_socket(path)
        self.buffer = memoryview(bytearray(LARGEST))  # one for all: a new one costs more than to read

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        out: list[Proposal] = []
        for _ in range(MOST):
            try:
                size, peer = self.socket.recvfrom_into(self.buffer)
            except BlockingIOError:
                break
            said = self.said(bytes(self.buffer[:size]), peer, self._tell)
            if said is not None:
                out.append(said)
        return out

    def answer(self, answer: Answer, heir: bool = False) -> None:
        """See :class:`GuardEnd`."""
        self._tell(pack_answer(answer), self.heir if heir else self.peer)

    def _tell(self, data: bytes, who: str | None) -> None:
        if who:
            with suppress(OSError):  # the controller has ended or does not read: it will be seen by its silence
                self.socket.sendto(data, who)

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        select.select([self.socket], [], [], max(timeout_s, 0.0))  # to the microsecond; poll counts milliseconds

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


class MemoryLink(Parties):
    """The guard's end inside one process, for tests and replay. ``pass_on(seconds)`` lets the fake clock go on."""

    def __init__(self, pass_on: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self.up: deque[tuple[str, bytes]] = deque()
        self.down: dict[str, deque[bytes]] = {}
        self.pass_on, self.guarded = pass_on, True

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        heard = [self.said(data, who, self._tell) for who, data in (self.up.popleft() for _ in range(len(self.up)))]
        return [p for p in heard if p is not None]

    def answer(self, answer: Answer, heir: bool = False) -> None:
        """See :class:`GuardEnd`."""
        self._tell(pack_answer(answer), self.heir if heir else self.peer)

    def _tell(self, data: bytes, who: str | None) -> None:
        if who is not None and who in self.down:
            self.down[who].append(data)

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        if not self.up and self.pass_on is not None:
            self.pass_on(timeout_s)

    def close(self) -> None:
        """See :class:`GuardEnd`."""


class MemoryController:
    """A controller's end of a :class:`MemoryLink`; each has a name of its own."""

    def __init__(self, link: MemoryLink) -> None:
        self.link, self.name = link, f"controller {len(link.down)}"
        link.down[self.name] = deque()

    def send(self, proposal: Proposal) -> bool:
        """See :class:`ControllerEnd`."""
        if self.link.guarded:
            self.link.up.append((self.name, pack(proposal)))
        return self.link.guarded

    def receive(self) -> list[Answer]:
        """See :class:`ControllerEnd`."""
        down = self.link.down[self.name]
        return [unpack_answer(down.popleft()) for _ in range(len(down))]

    def close(self) -> None:
        """See :class:`ControllerEnd`."""


def line(pass_on: Callable[[float], None] | None = None) -> tuple[MemoryController, MemoryLink]:
    """Controller's and guard's end of a line in this process."""
    link = MemoryLink(pass_on)
    return MemoryController(link), link
