"""A peer's process: it answers requests, one a line, in JSON."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from temporeal_benchmarks.peers.install import LARGE, PeerError, folder, how, install, installed


class Peer:
    """A running peer. Use it as a context manager.

    A request is an object with ``do``, the name of one of the functions of ``benchmarks/peers/NAME_worker.py``, and
    its arguments.
    """

    def __init__(self, name: str) -> None:
        if not installed(name):
            if name in LARGE:
                raise PeerError(f"{name} is not installed: {how(name)}")
            install(name)
        self.name = name
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # the peer's folder first: what it pins hides what the environment has of the same name
        path = os.pathsep.join([str(folder(name)), *(p for p in sys.path if p)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"temporeal_benchmarks.peers.{name}_worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **threads, "PYTHONPATH": path})

    def ask(self, do: str, **arguments: Any) -> Any:
        """The answer to a request; a :class:`PeerError` with what the peer says if it refuses."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"the process of {self.name} has ended, status {self._process.wait()}, asked to {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve(functions: Sequence[Callable[..., Any]]) -> None:
    """The life of a peer's process: answer requests with ``functions`` by their names until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    by_name = {function.__name__: function for function in functions}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": by_name[request.pop("do")](**request)}
        except Exception as error:  # whatever the library raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def seconds_of(work: Callable[[], float]) -> float:
    """Processor time [s] of a pass of ``work``, which measures one; where it is short, the mean of more after it."""
    first = work()
    count = int(5e-3 / max(first, 1e-6))
    return sum(work() for _ in range(count)) / count if count else first


def peak_beyond(work: Callable[[], object]) -> int:
    """Bytes that this process takes of the machine while ``work`` runs, at the peak, beyond what it has before."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # what was freed and kept would be used again, unseen
    begun = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, proc(5)
    work()
    return _resident("VmHWM") - begun


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
