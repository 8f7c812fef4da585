"""Between controller and inference worker: the newest observation one way, chunks the other way. Nobody waits.

They meet in a folder that only this user can enter:

- ``observation``: the newest observation, whole. The controller writes a new file and renames it to this name: a
  reader has the old one or the new one, never a mixture (POSIX, rename). There is no queue, no lock that a killed
  process could hold, and no dependence on the order in which a processor's stores become visible, as of a counter
  beside shared memory on ARM. On a RAM disk (``/dev/shm``) a picture of 640x480 took 0.35 ms (p50); it is written when
  a chunk is requested, not in each control step.
- ``controller``: a datagram socket to which the worker sends its chunks.
- ``worker``: a datagram socket to which the controller sends one byte, "look". Losing it costs :data:`LOOK_S`.

Files and datagrams begin with the artifact's identity: processes with different artifacts reject each other's. Times
are CLOCK_MONOTONIC of this machine [s]; the worker only returns the controller's.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal_bridge.link.sockets import LONGEST_PATH, datagram_socket

OBSERVATION, CONTROLLER, WORKER = "observation", "controller", "worker"
BOX = struct.Struct("<4s32sQdd")  # magic, identity, sequence number, times of the observation and of the reset before
REPLY = struct.Struct("<4s32sddII")  # magic, identity, time of the observation, seconds of inference, K, A
BOX_MAGIC, REPLY_MAGIC = b"TPO2", b"TPC1"
LARGEST = 1 << 16  # bytes of a datagram; Linux carries 200 kB by default (net.core.wmem_default)
AT_ONCE = 32  # datagrams read in one control step: a worker that sends without end cannot hold it up
LOOK_S = 0.1  # longest interval between the worker's looks into the folder


class MailboxError(RuntimeError):
    """The folder or its content cannot be used; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Observation:
    """What the policy acts on: its time, and its signals by name. ``since``: when the controller was reset last: what
    was seen before that is of another mission."""

    at: float
    signals: Mapping[str, np.ndarray]
    since: float = 0.0


@dataclass(frozen=True, eq=False)
class Reply:
    """A chunk as received: of the observation made at ``observed``, inferred in ``seconds``; rows [K, A], unchecked."""

    observed: float
    seconds: float
    rows: np.ndarray


class WorkerLink(Protocol):
    """The controller's end. Neither call blocks, whatever the worker does. ``since``: time of the last reset."""

    since: float

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """Request a chunk of this observation, made at ``at``."""

    def take(self) -> list[Reply]:
        """The chunks since the last call, in the order of arrival."""

    def close(self) -> None:
        """End."""


def key_of(manifest: Manifest) -> bytes:
    """32 bytes: the artifact's identity."""
    return bytes.fromhex(identity(manifest))


def pack_reply(key: bytes, reply: Reply) -> bytes:
    """A chunk as a datagram: its head, then K * A float32."""
    rows = np.asarray(reply.rows, dtype="<f4")
    return REPLY.pack(REPLY_MAGIC, key, reply.observed, reply.seconds, *rows.shape) + rows.tobytes()


def unpack_reply(key: bytes, data: bytes) -> Reply:
    """The chunk in a datagram, or :class:`MailboxError`."""
    if len(data) < REPLY.size or data[:4] != REPLY_MAGIC:
        raise MailboxError(f"{len(data)} bytes that are no chunk")
    _, other, observed, seconds, steps, size = REPLY.unpack_from(data)
    if other != key:
        raise MailboxError("a chunk of another artifact: start the worker with the controller's one")
    if len(data) != REPLY.size + 4 * steps * size:
        raise MailboxError(f"a chunk of {steps} x {size} numbers in {len(data)} bytes")
    return Reply(observed, seconds, np.frombuffer(data[REPLY.size :], dtype="<f4").reshape(steps, size))


def own_folder(folder: Path) -> Path:
    """``folder``, made if it is missing; refused if other users can enter it, or a socket's name there is too long."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise MailboxError(f"{folder} is open to other users: make it yours alone (chmod 700), or name another folder")
    if len(os.fsencode(folder / CONTROLLER)) > LONGEST_PATH:
        raise MailboxError(f"{folder / CONTROLLER} is longer than the {LONGEST_PATH} bytes that a socket's name may "
                           "have: name a folder with a shorter path")
    return folder


def new_folder() -> Path:
    """A folder of this user alone, in RAM where the system has such a place."""
    shm = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="temporeal-", dir=shm if shm.is_dir() else None))


class MailboxEnd:
    """One end: its socket, and a lock that only one process can hold and that ends with it."""

    def __init__(self, folder: Path, own: str, other: str) -> None:
        self.folder, self.own, self.other = own_folder(folder), folder / own, os.fspath(folder / other)
        self.lock = os.open(folder / f"{own}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.lock)
            raise MailboxError(f"{folder} has a {own} already: end it, or name another folder") from error
        self.socket = datagram_socket(self.own)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)

    def send(self, data: bytes) -> bool:
        """Send; False where nobody is there, or the other end does not read."""
        try:
            self.socket.sendto(data, self.other)
        except OSError:
            return False
        return True

    def receive(self) -> list[bytes]:
        """Datagrams since the last call, up to :data:`AT_ONCE`."""
        out: list[bytes] = []
        with suppress(BlockingIOError):
            while len(out) < AT_ONCE:
                out.append(self.socket.recv(LARGEST))
        return out

    def close(self) -> None:
        """End; the name is free again."""
        self.socket.close()
        self.own.unlink(missing_ok=True)
        os.close(self.lock)


class ControllerMailbox(MailboxEnd):
    """:class:`WorkerLink` to the worker that uses ``folder``, now or later.

    ``rejected`` counts datagrams that are no chunk of this artifact, ``unwritten`` observations that could not be
    written; ``last_rejection`` says why.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, CONTROLLER, WORKER)
        self.schema, self.key = {spec.name: spec for spec in manifest.signals}, key_of(manifest)
        self.box, self.part = folder / OBSERVATION, folder / f".{OBSERVATION}"
        self.box.unlink(missing_ok=True)
        self.sequence = time.monotonic_ns()  # none that an earlier controller used
        self.since = 0.0
        self.rejected, self.unwritten, self.last_rejection = 0, 0, ""

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """See :class:`WorkerLink`."""
        self.sequence += 1
        parts: list[Any] = [BOX.pack(BOX_MAGIC, self.key, self.sequence, at, self.since)]
        parts += [np.ascontiguousarray(signals[name], dtype=spec.dtype).reshape(-1).view(np.uint8).data
                  for name, spec in self.schema.items()]
        try:
            self._write(parts)
        except OSError as error:
            self.unwritten += 1
            self.last_rejection = f"the observation cannot be written: {error}"
            return
        self.send(b"!")

    def _write(self, parts: list[Any]) -> None:
        file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.writev(file, parts) != sum(len(part) for part in parts):
                raise OSError(f"{self.folder} is full")
        finally:
            os.close(file)
        os.replace(self.part, self.box)

    def take(self) -> list[Reply]:
        """See :class:`WorkerLink`."""
        out = []
        for data in self.receive():
            try:
                out.append(unpack_reply(self.key, data))
            except MailboxError as error:
                self.rejected += 1
                self.last_rejection = str(error)
        return out

    def close(self) -> None:
        """End. A worker that looks later finds no observation."""
        self.box.unlink(missing_ok=True)
        super().close()


class WorkerMailbox(MailboxEnd):
    """The worker's end: the newest observation, and a way back for its chunk."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, WORKER, CONTROLLER)
        self.schema, self.key = {spec.name: spec for spec in manifest.signals}, key_of(manifest)
        self.bytes = sum(spec.size * np.dtype(spec.dtype).itemsize for spec in manifest.signals)
        self.box, self.seen = folder / OBSERVATION, -1
        largest = REPLY.size + 4 * max(int(np.prod(manifest.given(c), dtype=int)) for c in manifest.commands)
        if largest > LARGEST:
            raise MailboxError(f"a chunk of {manifest.name} has {largest} bytes, a datagram carries {LARGEST}: "
                               "give fewer steps")

    def wait(self, timeout_s: float = LOOK_S) -> None:
        """Until there may be a new observation, for at most ``timeout_s``."""
        if self.poll.poll(max(timeout_s, 0.0) * 1e3):
            self.receive()

    def newest(self) -> Observation | None:
        """The newest observation, if it was not read before; :class:`MailboxError` if it is of another artifact."""
        try:
            file = self.box.open("rb")
        except FileNotFoundError:
            return None
        with file:
            head = file.read(BOX.size)
            if len(head) != BOX.size or head[:4] != BOX_MAGIC:
                raise MailboxError(f"{self.box} is no observation")
            _, key, sequence, at, since = BOX.unpack(head)
            if sequence == self.seen:
                return None
            self.seen = sequence
            if key != self.key or os.fstat(file.fileno()).st_size != BOX.size + self.bytes:
                raise MailboxError(f"{self.box} is of another artifact: start the worker with the controller's one")
            data = file.read()
        return Observation(at, self._signals(data), since)

    def _signals(self, data: bytes) -> dict[str, np.ndarray]:
        out, start = {}, 0
        for name, spec in self.schema.items():
            out[name] = np.frombuffer(data, dtype=spec.dtype, count=spec.size, offset=start).reshape(spec.shape)
            start += out[name].nbytes
        return out

    def reply(self, reply: Reply) -> bool:
        """Send a chunk; False if no controller takes it."""
        return self.send(pack_reply(self.key, reply))
