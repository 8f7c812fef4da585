"""Writes MCAP bags that survive a full disk: what was flushed stays readable, and space is kept back for the index."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer

from temporeal_bridge.transports import messages

CHUNK_BYTES = 900_000  # the writer itself starts a new chunk at 1 MiB, unguarded
BALLAST_BYTES = 1 << 20  # freed for the index when the disk is full: definitions are about 10 kB, a flush 100 bytes


NEVER = QosTime(0, 0)
LATCHED = Qos(QosHistory.KEEP_LAST, 1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, NEVER, NEVER,
              QosLiveliness.AUTOMATIC, NEVER, False)


def is_latched(connection: Any) -> bool:
    """Whether a bag says that the publishers of a topic keep the last message."""
    return any(qos.durability == QosDurability.TRANSIENT_LOCAL for qos in connection.ext.offered_qos_profiles)


class RecorderError(RuntimeError):
    """Recording ended early; the message says where the recorded part is."""


class WholeFile:
    """A binary file whose :meth:`write` writes everything or raises: no buffer that could fail later."""

    def __init__(self, path: Path) -> None:
        self.fd, self.position = os.open(path, os.O_WRONLY), path.stat().st_size
        os.lseek(self.fd, self.position, os.SEEK_SET)

    def write(self, data: Any) -> int:
        """Write all bytes of ``data``."""
        view = memoryview(data).cast("B")
        total = len(view)
        while len(view):
            done = os.write(self.fd, view)
            self.position += done
            view = view[done:]
        return total

    def tell(self) -> int:
        """Bytes written so far."""
        return self.position

    def cut(self, position: int) -> None:
        """Drop everything from ``position`` on."""
        os.ftruncate(self.fd, position)
        os.lseek(self.fd, position, os.SEEK_SET)
        self.position = position

    def close(self) -> None:
        """Close."""
        os.close(self.fd)


class Bag:
    """An MCAP bag in folder ``path`` that is written chunk by chunk."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise RecorderError(f"{path} is there already; a bag is never overwritten")
        self.path = path
        self.writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        try:
            self._begin()
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise RecorderError(f"{path} cannot be begun: {error.strerror}") from error
        self.connections: dict[tuple[str, str], Any] = {}
        self.closed = False

    def _begin(self) -> None:
        self.writer.open()
        storage: Any = self.writer.storage
        storage.bio.close()
        storage.bio = self.file = WholeFile(storage.path)  # unbuffered: a failure shows in the write that causes it
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self.file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while it is written, see recovery.is_written
        self.storage = storage
        self.ballast = self.path / ".reserve"
        self.ballast.write_bytes(b"\0" * BALLAST_BYTES)

    def add(self, topic: str, type: str, latched: bool = False) -> None:
        """Declare a topic. ``latched``: its publishers keep the last message, so that a reader knows that it holds."""
        self.connections[topic, type] = self.writer.add_connection(
            topic, type, typestore=messages.store(), offered_qos_profiles=[LATCHED] if latched else [])

    def write(self, topic: str, type: str, stamp_ns: int, data: bytes) -> None:
        """Keep one message; it is on disk after the next :meth:`flush`."""
        if self.storage.chunk.bio.tell() + len(data) > CHUNK_BYTES:
            self.flush()
        keep = partial(self.writer.write, self.connections[topic, type], stamp_ns, data)
        if len(data) > CHUNK_BYTES:  # a picture
            self._guarded(keep)
        else:
            keep()

    def flush(self) -> None:
        """Write pending messages as one chunk. A full disk ends the recording; the bag stays readable."""
        if self.storage.chunk.msgs:
            self._guarded(self.storage.close_chunk)

    def _guarded(self, write: Callable[[], None]) -> None:
        """Run ``write``, which writes a chunk; close the bag in front of that chunk where the disk is full."""
        good, chunks = self.file.tell(), len(self.storage.chunks)
        stats = dict(self.storage.channel_stats)
        pending = {cid: len(rows) for cid, rows in self.storage.chunk.msgs.items()}
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            self._give_up(good, chunks, {c: n - pending.get(c, 0) for c, n in stats.items()}, error)

    def _give_up(self, good: int, chunks: int, stats: dict[int, int], error: OSError) -> None:
        """Cut off the torn chunk, close the bag with the space kept back, and raise."""
        self.file.cut(good)
        del self.storage.chunks[chunks:]
        self.storage.channel_stats = stats
        self.writer.counts = dict(stats)
        self.storage.chunk = type(self.storage.chunk)(2**63 - 1, 0, type(self.storage.chunk.bio)(), {})
        self.close()
        raise RecorderError(
            f"recording stopped: {error.strerror} while writing {self.path}; "
            f"the {sum(stats.values())} messages up to the last flush are kept and readable") from error

    def close(self) -> None:
        """Finish the bag: index, footer, metadata."""
        if self.closed:
            return
        self.closed = True
        self.ballast.unlink(missing_ok=True)
        self.writer.close()
