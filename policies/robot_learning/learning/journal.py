"""What the learner has received, in the order it came: one file that only grows, on the disk before an episode is
acknowledged.

A record is ``MAGIC``, the size of its bytes, the bytes of the episode's message, and the SHA-256 of these. A kill in
the middle of one leaves a torn end, of an episode that was not acknowledged: it is cut off when the file is opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from temporeal.policies.robot_learning.wire.messages import DIGEST, LARGEST, ROOM, MessageError
from temporeal.policies.runs.errors import BadInput

NAME = "received.episodes"  # in a run's folder
MAGIC = b"TPRE"
HEAD = struct.Struct("<4sQ")


class Journal:
    """The file ``path``; one learner at a time has it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.lock, self.count = path, threading.Lock(), 0
        new = not path.exists()
        self.file = open(path, "a+b", buffering=0)  # what a failed write leaves in a buffer would come later
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.file.close()
            raise BadInput(f"{path} is another learner's, which is running") from error
        if new:
            _sync(path.parent)
        self.end, self.torn = 0, 0  # bytes of whole records; bytes behind them that were cut off
        self.places = list[tuple[int, int]]()  # of what :meth:`records` gave: first byte and size

    def records(self) -> Iterator[bytes]:
        """The bytes of all episodes, in order; to be read once, before :meth:`append`. A torn end is cut off."""
        self.file.seek(0)
        self.end = self.count = 0
        self.places = []
        size = os.fstat(self.file.fileno()).st_size
        while (data := _record(self.file, self.path, self.end, size)) is not None:
            self.places.append((self.end + HEAD.size, len(data)))
            self.end += HEAD.size + len(data) + DIGEST
            self.count += 1
            yield data
        self.torn = size - self.end
        if self.torn:
            self.file.truncate(self.end)
            os.fsync(self.file.fileno())

    def again(self, number: int) -> bytes:
        """The bytes of an episode that :meth:`records` gave, read anew."""
        place, size = self.places[number]
        return os.pread(self.file.fileno(), size, place)

    def append(self, data: bytes) -> int:
        """Keep an episode for good; its number. After a failure, such as a full disk, the file is as before."""
        with self.lock:
            try:
                left = memoryview(HEAD.pack(MAGIC, len(data)) + data + hashlib.sha256(data).digest())
                while left:
                    left = left[self.file.write(left) :]
                os.fsync(self.file.fileno())
            except OSError:
                os.ftruncate(self.file.fileno(), self.end)
                raise
            self.end += HEAD.size + len(data) + DIGEST
            self.count += 1
            return self.count - 1

    def close(self) -> None:
        """Give the file back."""
        self.file.close()


def _record(file: IO[bytes], path: Path, at: int, size: int) -> bytes | None:
    """The record at byte ``at``; None: what is there is no whole one, and nothing is behind it."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    magic, length = HEAD.unpack(head)
    if magic != MAGIC or length > LARGEST + ROOM:
        raise MessageError(f"{path} is damaged at byte {at:,}: no record begins there; what is before it is whole: "
                           f"truncate -s {at} {path}")
    data, digest = file.read(length), file.read(DIGEST)
    whole = len(digest) == DIGEST and hashlib.sha256(data).digest() == digest
    if not whole and at + HEAD.size + length + DIGEST < size:
        raise MessageError(f"{path} is damaged at byte {at:,}: a record there is not what was written")
    return data if whole else None


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
