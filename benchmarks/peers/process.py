"""Other libraries for Signal Temporal Logic, to test and to measure against. No dependency of the project.

Their requirements clash with the project's (rtamt wants ANTLR 4.7, Hydra 4.9), so that each lives in a folder of its
own in the environment, ``peers/NAME``, and is run in a process of its own that answers requests line by line in JSON.
They are pure Python, so that the interpreter of the environment runs them.

rtamt declares Python < 3.13, for one name that ANTLR 4.7 imports, ``typing.io``, which Python 3.13 no longer has. The
process of rtamt gives it that name, so that there is no version of Python the project supports on which the peers,
and the tests that need them, are left out: where they are missing and cannot be installed, that is an error.

``python -m temporeal_benchmarks.peers`` (``make peers``) installs what is missing: seconds, from PyPI, the first time
only. Those of :data:`OPTIONAL` are large, no test needs them, and they are installed by name:
``python -m temporeal_benchmarks.peers envpool``.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

# what of PyPI each peer is, with everything it imports that the environment has not; the one place that pins it
PINS: Mapping[str, tuple[str, ...]] = {
    "rtamt": ("rtamt==0.4.10", "antlr4-python3-runtime==4.7"),
    "stlcgpp": ("stlcgpp==0.0.2",),
}
# only where they are asked for by name. EnvPool: 290 MB on disk, without the assets of tasks that are not measured
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "envpool": ("envpool==1.2.5", "envpool-assets==0.3.0", "dm-env==1.6", "dm-tree==0.1.10", "optree==0.20.0",
                "wrapt==2.5.2", "attrs==26.1.0"),
}


class PeerError(RuntimeError):
    """A peer cannot be had, or has refused what it was asked."""


def pins(name: str) -> tuple[str, ...]:
    """The packages of a peer."""
    known = {**PINS, **OPTIONAL}
    if name not in known:
        raise PeerError(f"no peer {name!r}; known: {', '.join(known)}")
    return known[name]


def how(name: str) -> str:
    """The command that installs a peer."""
    return "make peers" if name in PINS else f"python -m temporeal_benchmarks.peers {name}"


def folder(name: str) -> Path:
    """Where the packages of a peer are."""
    pins(name)
    return Path(sys.prefix) / "peers" / name


def installed(name: str) -> bool:
    """Whether the pinned versions of a peer are there."""
    try:
        return (folder(name) / "pins.txt").read_text() == _pins_text(name)
    except OSError:
        return False


def install(name: str) -> None:
    """Install a peer. A :class:`PeerError` says why it cannot be had here."""
    target = folder(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    except OSError as error:
        raise PeerError(f"{name} is not installed and {target} cannot be written: {error}") from None
    # the declared range of Python is not asked for (see above); nor the dependencies, which are in PINS or in here
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
               "--no-build-isolation", "--ignore-requires-python", "--target", str(fresh), *pins(name)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        if done.returncode:
            told = (done.stderr or done.stdout).strip()
            raise PeerError(f"{name} is not installed and pip cannot install it; needs PyPI once: {how(name)}\n"
                            f"{told}")
        (fresh / "pins.txt").write_text(_pins_text(name))
        fresh.chmod(0o755)  # a temporary folder is its maker's alone
        shutil.rmtree(target, ignore_errors=True)
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            if not installed(name):
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _pins_text(name: str) -> str:
    return "\n".join(pins(name)) + "\n"


class Peer:
    """A running peer. Use it as a context manager.

    A request is an object with ``do``, the name of one of the functions of ``benchmarks/peers/NAME_worker.py``, and
    its arguments.
    """

    def __init__(self, name: str) -> None:
        if not installed(name):
            if name in OPTIONAL:
                raise PeerError(f"{name} is not installed: {how(name)}")
            install(name)
        self.name = name
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # the peer's folder first: what it pins hides what the environment has of the same name
        path = os.pathsep.join([str(folder(name)), *(p for p in sys.path if p)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"temporeal_benchmarks.peers.{name}_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, **threads, "PYTHONPATH": path})

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


def install_missing(names: Sequence[str] = tuple(PINS)) -> None:
    """Install those of the named peers that are missing."""
    for name in names:
        if not installed(name):
            print(f"installing {' '.join(pins(name))} into {folder(name)}", flush=True)
            install(name)
