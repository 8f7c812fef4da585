"""A log of every control step of the running mission, so that a successor can live through it.

The controller in charge writes it (:class:`StepLog`); a second one that is to take over reads it
(:class:`StepLogReader`) from the mission's first step on. Its policy then remembers (histories, a recurrent state, a
clock, the progress of a formula) what it would have after flying the mission itself: no length of memory has to be
known, and no memory is too long. The log is a file in RAM (tmpfs) that only this user can open, and neither process
waits for the other. A log that cannot be written ends; the mission continues, and a takeover is refused.

A line of JSON (:class:`LogHead`), then rows: step, due time of the next one [s, monotonic], and, float32, the proposed
command (NaN: none) and the signals in the order of the head.
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
MOST_BYTES = 1 << 28  # of a log: an hour at 500 Hz with 36 numbers. Longer missions have no successor
LARGEST_SIGNAL = 4096  # components: pictures are not kept, and a policy that reads one cannot live through a mission


def step_log_path(link: Path) -> Path:
    """The log of the controller on this link: in RAM where there is such a folder."""
    name = hashlib.sha256(os.fsencode(link.absolute())).hexdigest()[:16] + ".steps"
    shm = Path("/dev/shm")
    return shm / f"temporeal-{os.getuid()}" / name if os.access(shm, os.W_OK) else link.with_name(name)


@dataclass(frozen=True)
class LogHead:
    """The mission's number, time zero [ns] and time of its first step [s, monotonic]; components of a command; name and
    shape of each signal."""

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
class LoggedStep:
    """One control step: see the module. ``missed``: number of steps before it that were not made in their time."""

    step: int
    missed: int
    due: float
    command: np.ndarray
    signals: dict[str, np.ndarray]


class StepLog:
    """The writer. ``fault``: why nothing is written, empty if it is."""

    def __init__(self, path: Path) -> None:
        own_folder(path)
        self.path, self.fault = path, ""
        self.file: Any = None
        self.head: LogHead | None = None
        self.written = 0

    def begin(self, flight: int, start_ns: int, first: float, command: int, signals: Mapping[str, Any]) -> None:
        """A new mission: a new file replaces the last one."""
        kept = tuple((name, np.shape(value)) for name, value in signals.items()
                     if np.asarray(value).dtype == np.float32 and np.size(value) <= LARGEST_SIGNAL)
        self.head, self.written, self.fault = LogHead(flight, start_ns, first, command, kept), 0, ""
        part = self.path.with_name(f".{os.getpid()}.{self.path.name}")
        try:
            self._close()
            part.unlink(missing_ok=True)
            self.file = part.open("ab", buffering=0)  # append: during a takeover two processes may write
            self._write(json.dumps(asdict(self.head)).encode() + b"\n")
            part.replace(self.path)
        except OSError as error:
            self._fail(error)

    def go_on(self, head: LogHead) -> None:
        """Continue the log of another controller."""
        self.head, self.fault = head, ""
        try:
            self._close()
            self.file = self.path.open("ab", buffering=0)
            self.written = self.path.stat().st_size
        except OSError as error:
            self._fail(error)

    def add(self, step: int, due: float, command: Any, signals: Mapping[str, Any]) -> None:
        """One control step: ``command`` (None: none) was made of ``signals``; the next one is ``due`` then."""
        if self.file is None or self.head is None:
            return
        given = np.full(self.head.command, np.nan) if command is None else command
        values = (np.asarray(v, dtype="<f4").tobytes() for v in (given, *(signals[n] for n, _ in self.head.signals)))
        data = ROW.pack(step, due) + b"".join(values)
        try:
            if len(data) != self.head.row_bytes or self.written > MOST_BYTES:
                raise OSError(f"the step log has {self.written} bytes, a row {len(data)}")
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
        """End; the file is removed, unless another controller continues it."""
        self._close()
        if not keep:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


class StepLogReader:
    """The reader: the rows of one mission, as they come."""

    def __init__(self, path: Path, flight: int, start_ns: int) -> None:
        self.path, self.flight, self.start_ns = path, flight, start_ns
        self.file: Any = None
        self.head: LogHead | None = None
        self.last = -1

    def ready(self) -> bool:
        """Whether the log of this mission exists."""
        if self.head is None:
            with suppress(OSError, ValueError, KeyError, TypeError):  # not there yet, or no log
                file = self.path.open("rb")
                content = json.loads(file.readline())
                signals = tuple((name, tuple(shape)) for name, shape in content.pop("signals"))
                head = LogHead(**content, signals=signals)
                if (head.flight, head.start_ns) == (self.flight, self.start_ns):
                    self.file, self.head = file, head
                else:
                    file.close()
        return self.head is not None

    def steps(self) -> Iterator[LoggedStep]:
        """The rows since the last call. A step that two controllers wrote, as one relieved the other, counts once."""
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
            yield LoggedStep(step, step - before - 1, due, command, signals)

    def close(self) -> None:
        """End."""
        if self.file is not None:
            self.file.close()
            self.file = None
