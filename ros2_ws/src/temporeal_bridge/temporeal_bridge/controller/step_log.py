"""What every control step of the running mission was made of, so that a successor can live through it.

The controller in charge writes it (:class:`Tape`), a second one that is to take over reads it (:class:`TapeReader`)
from the mission's first step on. Whatever its policy remembers (histories, a recurrent state, a clock, the progress of
a formula) is then what it would be, had it seen the mission from the start: no length of memory has to be known or
declared, and no memory is too long. It is a file in memory (tmpfs) that only this user can open; the two processes wait
for each other in nothing. A tape that cannot be written ends, the mission goes on, and a takeover is refused.

A line of JSON (:class:`Head`), then rows: step, when the next one is due [s, monotonic], and, float32, the command that
was proposed (NaN: none was) and the signals in the order of the head.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal_bridge.link.sockets import own_folder

ROW = struct.Struct("<qd")
MOST_BYTES = 1 << 28  # of a tape: an hour at 500 Hz with 36 numbers. What is longer has no successor
LARGEST_SIGNAL = 4096  # components: pictures are not kept, and a policy that reads one cannot live through a mission


def tape_path(link: Path) -> Path:
    """Where the tape of the controller on this line is: in memory where there is such a folder."""
    name = hashlib.sha256(os.fsencode(link.absolute())).hexdigest()[:16] + ".tape"
    shm = Path("/dev/shm")
    return shm / f"temporeal-{os.getuid()}" / name if os.access(shm, os.W_OK) else link.with_name(name)


@dataclass(frozen=True)
class Head:
    """Which mission: number, time zero [ns], when its first step was made [s, monotonic]; components of a command; name
    and shape of each signal."""

    flight: int
    start_ns: int
    first: float
    command: int
    signals: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return ROW.size + 4 * (self.command + sum(int(np.prod(shape, dtype=int)) for _, shape in self.signals))


@dataclass(frozen=True)
class Step:
    """One control step: see the module. ``missed``: how many before it were not made in their time."""

    step: int
    missed: int
    due: float
    command: np.ndarray
    signals: dict[str, np.ndarray]


class Tape:
    """The writer's side. ``fault``: why nothing is written, empty if it is."""

    def __init__(self, path: Path) -> None:
        own_folder(path)
        self.path, self.fault = path, ""
        self.file: Any = None
        self.head: Head | None = None
        self.written = 0

    def begin(self, flight: int, start_ns: int, first: float, command: int, signals: Mapping[str, Any]) -> None:
        """A new mission; the file of the one before vanishes whole."""
        kept = tuple((name, np.shape(value)) for name, value in signals.items()
                     if np.asarray(value).dtype == np.float32 and np.size(value) <= LARGEST_SIGNAL)
        self.head, self.written, self.fault = Head(flight, start_ns, first, command, kept), 0, ""
        part = self.path.with_name(f".{os.getpid()}.{self.path.name}")
        try:
            self._close()
            part.unlink(missing_ok=True)
            self.file = part.open("ab", buffering=0)  # to append: for a moment two may write
            self._write(json.dumps(asdict(self.head)).encode() + b"\n")
            part.replace(self.path)
        except OSError as error:
            self._fail(error)

    def go_on(self, head: Head) -> None:
        """Write on where another controller has ended."""
        self.head, self.fault = head, ""
        try:
            self._close()
            self.file = self.path.open("ab", buffering=0)
            self.written = self.path.stat().st_size
        except OSError as error:
            self._fail(error)

    def add(self, step: int, due: float, command: Any, signals: Mapping[str, Any]) -> None:
        """One control step: ``command`` (None: there was none) was made of ``signals``; the next is ``due`` then."""
        if self.file is None or self.head is None:
            return
        given = np.full(self.head.command, np.nan) if command is None else command
        values = (np.asarray(v, dtype="<f4").tobytes() for v in (given, *(signals[n] for n, _ in self.head.signals)))
        data = ROW.pack(step, due) + b"".join(values)
        try:
            if len(data) != self.head.row_bytes or self.written > MOST_BYTES:
                raise OSError(f"the tape has {self.written} bytes, a row {len(data)}")
            self._write(data)
        except OSError as error:
            self._fail(error)

    def _write(self, data: bytes) -> None:
        if self.file.write(data) != len(data):
            raise OSError("no space left")
        self.written += len(data)

    def _fail(self, error: OSError) -> None:
        self.fault = f"{self.path}: {error.strerror or error}"
        self._close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def close(self, keep: bool = False) -> None:
        """End; the file vanishes, unless another goes on with it."""
        self._close()
        if not keep:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


class TapeReader:
    """The reader's side: the rows of one mission, as they come."""

    def __init__(self, path: Path, flight: int, start_ns: int) -> None:
        self.path, self.flight, self.start_ns = path, flight, start_ns
        self.file: Any = None
        self.head: Head | None = None
        self.last = -1

    def ready(self) -> bool:
        """Whether the tape of this mission is there."""
        if self.head is None:
            with suppress(OSError, ValueError, KeyError, TypeError):  # not there yet, or no tape
                file = self.path.open("rb")
                content = json.loads(file.readline())
                signals = tuple((name, tuple(shape)) for name, shape in content.pop("signals"))
                head = Head(**content, signals=signals)
                if (head.flight, head.start_ns) == (self.flight, self.start_ns):
                    self.file, self.head = file, head
                else:
                    file.close()
        return self.head is not None

    def steps(self) -> Iterator[Step]:
        """The rows that were not read yet. A step that two wrote, as one relieved the other, counts once."""
        assert self.head is not None
        while True:
            at = self.file.tell()
            data = self.file.read(self.head.row_bytes)
            if len(data) < self.head.row_bytes:
                self.file.seek(at)
                return
            step, due = ROW.unpack_from(data)
            if step <= self.last:
                continue
            command = np.frombuffer(data, dtype="<f4", count=self.head.command, offset=ROW.size)
            signals, start = {}, ROW.size + command.nbytes
            for name, shape in self.head.signals:
                value = np.frombuffer(data, dtype="<f4", count=int(np.prod(shape, dtype=int)), offset=start)
                signals[name], start = value.reshape(shape), start + value.nbytes
            before, self.last = self.last, step
            yield Step(step, step - before - 1, due, command, signals)

    def close(self) -> None:
        """End."""
        if self.file is not None:
            self.file.close()
            self.file = None
