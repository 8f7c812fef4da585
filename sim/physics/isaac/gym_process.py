"""The process that runs Isaac Gym, seen from here: its interpreter, the arrays it shares with us, its two pipes.

Arrays go through a memory-mapped file, messages through the pipes. The worker ends when this process ends.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.sim.physics.mujoco.model import Array

PYTHON = "TEMPOREAL_ISAACGYM_PYTHON"
WORKER = Path(__file__).with_name("gym_worker.py")
PROTOCOL = 1


class IsaacGymError(RuntimeError):
    """The worker failed, died or did not answer."""


class NoInterpreter(IsaacGymError, ValueError):
    """The Python that has Isaac Gym is not named, or cannot be run: the user's to correct."""


def interpreter(python: str | None) -> str:
    """The Python that has isaacgym."""
    given = python or os.environ.get(PYTHON)
    if not given:
        raise NoInterpreter(
            "backend isaacgym needs a Python 3.8 that has Isaac Gym Preview 4 (NVIDIA's download, not on PyPI): give "
            f"python=..., or set {PYTHON} to that interpreter, e.g. {PYTHON}=$HOME/miniconda3/envs/rlgpu/bin/python")
    found = shutil.which(os.path.expanduser(given))
    if found is None:
        raise NoInterpreter(f"{given!r} is not an interpreter that can be run; {PYTHON} or python= names the Python "
                            "that has isaacgym")
    return found


Layout = dict[str, tuple[str, tuple[int, ...], int]]
"""Array -> type, shape, offset in the file."""


def lay_out(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[Layout, int]:
    """Offsets of arrays in one file, each at a multiple of 64 bytes; and the file's size."""
    layout, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        layout[name] = (dtype, shape, at)
        at += -(-int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize // 64) * 64
    return layout, max(at, 64)


def map_file(path: Path, layout: Layout, size: int) -> dict[str, Array]:
    """A new file, mapped as arrays of zeros."""
    with path.open("w+b") as file:
        file.truncate(size)
        memory = mmap(file.fileno(), size)
    return {name: np.frombuffer(memory, dtype, int(np.prod(shape, dtype=int)), at).reshape(shape)
            for name, (dtype, shape, at) in layout.items()}


class Process:
    """The worker process with its two pipes."""

    def __init__(self, python: str, folder: Path, timeout: float) -> None:
        self.python, self.log = python, folder / "log.txt"
        theirs, self._write = os.pipe()
        self._read, ours = os.pipe()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(WORKER), str(theirs), str(ours), str(os.getpid())], pass_fds=(theirs, ours), cwd=folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment(python))
        os.close(theirs)
        os.close(ours)
        try:
            self.versions = self._answer(timeout, "start (import isaacgym)")
        except IsaacGymError:
            self.kill()
            raise
        if self.versions.get("protocol") != PROTOCOL:
            self.kill()
            raise IsaacGymError(f"the worker speaks protocol {self.versions.get('protocol')}, this side {PROTOCOL}")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request and wait for its answer; whatever goes wrong ends the worker and is an IsaacGymError."""
        if self._process.returncode is not None:
            raise IsaacGymError("the worker has ended; make a new backend")
        data = json.dumps(message).encode()
        try:
            data = struct.pack("<I", len(data)) + data
            while data:
                data = data[os.write(self._write, data):]
            return self._answer(timeout, str(message["do"]))
        except BrokenPipeError:
            error = self._ended()
            self.kill()
            raise error from None
        except BaseException:  # also when interrupted: an answer that comes late would be taken for the next one
            self.kill()
            raise

    def _answer(self, timeout: float, doing: str) -> dict[str, Any]:
        end = time.monotonic() + timeout
        (size,) = struct.unpack("<I", self._exactly(4, end, doing))
        answer: dict[str, Any] = json.loads(self._exactly(size, end, doing))
        if "error" in answer:
            raise self._failed(doing, answer["error"])
        return answer

    def _exactly(self, count: int, end: float, doing: str) -> bytes:
        data = b""
        while len(data) < count:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise IsaacGymError(f"the Isaac Gym worker did not answer in time ({doing}). Its log ends:\n"
                                    f"{self.tail()}")
            part = os.read(self._read, count - len(data))
            if not part:
                raise self._ended()
            data += part
        return data

    def _failed(self, doing: str, text: str) -> IsaacGymError:
        advice = ""
        if doing.startswith("start"):
            advice = (f"\n{self.python} could not import isaacgym, numpy and torch. Try: {self.python} -c "
                      "'import isaacgym, torch'. Isaac Gym Preview 4 needs Python 3.6 to 3.8, numpy < 1.24, and "
                      "libpython on LD_LIBRARY_PATH.")
        return IsaacGymError(f"the Isaac Gym worker failed ({doing}):\n{text}{advice}")

    def _ended(self) -> IsaacGymError:
        try:
            code: object = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = "unknown"
        return IsaacGymError(f"the Isaac Gym worker died (exit status {code}). Its log ends:\n{self.tail()}")

    def tail(self) -> str:
        """The end of what it printed."""
        try:
            return self.log.read_bytes()[-4000:].decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Ask it to end, then make it."""
        if self._process.returncode is None and self._process.poll() is None:
            try:
                self.ask({"do": "close"}, 10.0)
                self._process.wait(10)
            except (IsaacGymError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def kill(self) -> None:
        """End it with SIGTERM, then SIGKILL, and leave no zombie."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(how)
                try:
                    self._process.wait(5)
                except subprocess.TimeoutExpired:
                    continue
        self._process.wait()
        for fd in (self._read, self._write):
            if fd >= 0:
                os.close(fd)
        self._read = self._write = -1


def end(worker: Process, folder: Path) -> None:
    """End the worker and remove its folder."""
    worker.close()
    shutil.rmtree(folder, ignore_errors=True)


def environment(python: str) -> dict[str, str]:
    """The worker's environment: Isaac Gym's library needs libpython of its interpreter on LD_LIBRARY_PATH."""
    out = dict(os.environ)
    library = str(Path(python).resolve().parent.parent / "lib")
    out["LD_LIBRARY_PATH"] = os.pathsep.join(x for x in (library, out.get("LD_LIBRARY_PATH")) if x)
    return out
