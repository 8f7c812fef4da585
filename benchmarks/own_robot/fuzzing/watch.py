"""What a case must not do, watched: programs and code, files outside, memory, time, and errors that are nobody's."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MEMORY, SECONDS = 1 << 30, 2.0  # issue's limits: a process with a case in it, and a case
ROOM = 1 << 30  # bytes of addresses that a case may ask for beyond those of the process
GIVE_UP = 20  # s: a case that takes so long is ended
PROGRAMS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.startfile",
            "pty.spawn", "ctypes.dlopen", "webbrowser.open", "socket.connect", "urllib.Request")
TRIAL = [sys.executable, "-m", "temporeal.robots.artifact.trial"]
"""The one program that reading may start: our own, which runs a stranger's network within bounds."""

IN_OPEN, IN_ACCESS = 0x20, 0x1  # linux/inotify.h


@dataclass
class Seen:
    """What one case did."""

    kind: str
    number: int
    outcome: str = ""
    seconds: float = 0.0
    memory: int = 0
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class TooLong(BaseException):
    """A case did not end."""


class Watch:
    """The audit hook of this process, and the kernel's notice of files that are opened in one folder.

    Args:
        outside: a folder of files that nothing may open, by whatever library.
    """

    def __init__(self, outside: Path) -> None:
        self.outside, self.active, self.events = outside, False, list[str]()
        self.homes: tuple[str, ...] = ()
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.notices = self.libc.inotify_init1(os.O_NONBLOCK)
        self.libc.inotify_add_watch(self.notices, str(outside).encode(), IN_OPEN | IN_ACCESS)
        root = Path(__file__).resolve().parents[3]
        self.known = tuple(map(os.path.realpath, (
            sys.prefix, sys.base_prefix, root, "/proc/self", "/sys", "/usr", "/lib", "/dev/null", "/dev/urandom",
            "/dev/shm", *sys.path[1:])))
        sys.addaudithook(self.audit)

    def audit(self, event: str, given: tuple[Any, ...]) -> None:
        """Keep what a case does that it must not."""
        if not self.active:
            return
        if event == "subprocess.Popen" and list(given[1])[:3] == TRIAL:
            return
        if event in PROGRAMS:
            self.events.append(f"code run: {event} {given!r:.200}")
        elif event in ("open", "sqlite3.connect") and isinstance(given[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(given[0]))
            if not path.startswith((*self.known, *self.homes)):
                self.events.append(f"outside: {event} {path}")

    @contextmanager
    def case(self, folder: Path, scratch: Path) -> Iterator[list[str]]:
        """Inside, only ``folder``, the ``scratch`` folder for copies and what is installed may be opened."""
        self.homes, self.events = (os.path.realpath(folder), os.path.realpath(scratch)), []
        self.noticed()
        self.active = True
        try:
            yield self.events
        finally:
            self.active = False
            if self.noticed():
                self.events.append(f"outside: a file in {self.outside} was opened")

    def noticed(self) -> bool:
        """Whether a file of the folder outside was opened since the last call."""
        with suppress(BlockingIOError):
            return bool(os.read(self.notices, 1 << 16))
        return False


def reset_peak() -> None:
    """Let the peak of this process' memory begin anew (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def status(key: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    return 0


def limit_memory() -> None:
    """Let this process take :data:`ROOM` more addresses than it has."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + ROOM, hard))


@contextmanager
def ended_after(seconds: int) -> Iterator[None]:
    """Inside, :class:`TooLong` is raised after so many seconds."""

    def stop(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def watched(watch: Watch, seen: Seen, folder: Path, scratch: Path, read: Any) -> Seen:
    """``seen`` with what ``read(folder)`` did."""
    from temporeal.policies.runs.errors import BadInput, bad_input

    reset_peak()
    began = time.process_time()  # another process' load is no fault of the case; one that waits does not end
    with watch.case(folder, scratch) as events:
        try:
            with ended_after(GIVE_UP), bad_input():
                read(folder)
            seen.outcome = "read"
        except BadInput as error:
            seen.outcome = f"refused: {error!s:.300}"
            if foreign := foreign_error(error):
                seen.wrong.append(f"traceback: {foreign}")
        except OSError as error:
            seen.outcome = f"refused: {error!s:.300}"
        except TooLong:
            seen.outcome = "did not end"
            seen.wrong.append(f"slow: it did not end in {GIVE_UP} s")
        except Exception as error:
            seen.outcome = "traceback"
            seen.wrong.append(f"traceback: {place_of(error)}")
    seen.seconds, seen.memory = time.process_time() - began, status("VmHWM")
    seen.wrong += list(dict.fromkeys(events))
    return judged(seen)


def judged(seen: Seen) -> Seen:
    """``seen`` with what is wrong about its time, memory and words."""
    from temporeal_benchmarks.own_robot.fuzzing.mutations import SECRET

    if seen.seconds > SECONDS:
        seen.wrong.append(f"slow: {seen.seconds:.1f} s")
    if seen.memory > MEMORY:
        seen.wrong.append(f"memory: {seen.memory >> 20} MiB")
    if os.environ.get(SECRET, "-") in seen.outcome:
        seen.wrong.append("outside: a variable of the environment was read")
    return seen


def foreign_error(error: BaseException) -> str:
    """Where an error that is nobody's (a parser's own ``ValueError``) became bad input; empty where the project raised
    it."""
    cause = error.__cause__
    if cause is None or type(cause) is not ValueError:
        return ""
    last = traceback.extract_tb(cause.__traceback__)[-1]
    return "" if "/temporeal" in last.filename else place_of(cause)


def place_of(error: BaseException) -> str:
    """Error and place, as a line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames[-4:]]
    return f"{type(error).__name__}: {error!s:.200} at {' < '.join(reversed(lines))}"
