"""Core and priority of a process: real-time scheduling, a core of its own, and a core that never sleeps."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PRIORITIES = ("normal", "realtime", "auto")
FIFO_PRIORITY = 20  # below the kernel's own threads (50)
AHEAD = 5  # of the guard above that: a proposal is judged before the controller continues

# runs whenever no other process wants its core, until its parent ends
WAKING = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # at once: the parent may have real-time priority
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


def check_awake(awake: bool, core: Any, priority: str) -> None:
    """Whether a core may be kept awake: it must be reserved, and the nodes must have real-time priority."""
    if awake and priority == "normal":
        raise ValueError("awake needs real-time priority (priority realtime, or auto): SCHED_IDLE gives way within one "
                         "session only, and the process that keeps the core busy has its own")
    if awake and core is None:
        raise ValueError("awake keeps a core busy that is reserved for guard and controller: name it (core), or leave "
                         "awake out")
    if awake and not hasattr(os, "SCHED_IDLE"):
        raise ValueError("awake: this system has no SCHED_IDLE, and a process that keeps a core busy would slow down "
                         "the others; leave awake out")


def keep_awake() -> subprocess.Popen[bytes]:
    """A process that keeps this one's core busy, because a core that wakes up is late and has cold caches.

    It gives way to real-time processes, does not get Ctrl-C, and ends with this process.
    """
    made = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAKING, str(os.getpid())], stdin=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        os.sched_setscheduler(made.pid, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        made.kill()
        made.wait()
        raise RuntimeError(f"awake: SCHED_IDLE is not permitted here: {error}; leave awake out") from error
    return made


def check_priority(kind: Any) -> None:
    """Whether there is such a priority."""
    if kind not in PRIORITIES:
        raise ValueError(f"priority {kind}; legal: {', '.join(PRIORITIES)}")


def check_core(number: Any) -> None:
    """Whether this machine has the core; None: any core. Cores reserved by isolcpus are legal."""
    count = os.cpu_count() or 1
    if number is not None and (type(number) is not int or not 0 <= number < count):
        raise ValueError(f"core {number}: this machine has cores 0 to {count - 1}; leave it out for any")
    if number is not None and not hasattr(os, "sched_setaffinity"):
        raise ValueError(f"core {number}: this system cannot bind a process to a core; leave it out")


def take_core(number: int | None) -> None:
    """Bind this process to one core, if asked for."""
    check_core(number)
    if number is not None:
        try:
            os.sched_setaffinity(0, {number})
        except OSError as error:  # the core may belong to another container
            raise RuntimeError(f"core {number}: this process may not run there: {error}") from error


def take_priority(kind: str, ahead: int = 0) -> None:
    """Give all threads of this process real-time priority, if asked for, ``ahead`` above our other nodes.

    ``auto`` does without where that is not permitted.
    """
    if kind == "normal" or (kind == "auto" and not hasattr(os, "sched_setscheduler")):
        return
    try:
        schedule(os.SCHED_FIFO, FIFO_PRIORITY + ahead)
    except (PermissionError, OSError) as error:
        if kind == "realtime":
            raise RuntimeError(
                f"no real-time priority: {error}; allow it (rtprio in /etc/security/limits.conf) or leave --priority"
            ) from error


def load_behind() -> None:
    """Give up real-time priority until the next :func:`take_priority`: imports and loading take seconds and must not
    delay another robot in flight. Whether real-time priority is permitted is known by now."""
    if hasattr(os, "SCHED_FIFO") and os.sched_getscheduler(0) == os.SCHED_FIFO:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def give_way() -> None:
    """Lower this thread's real-time priority by one, below our other processes and the middleware's own threads."""
    if hasattr(os, "SCHED_FIFO") and os.sched_getscheduler(0) == os.SCHED_FIFO:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_getparam(0).sched_priority - 1))


def schedule(policy: int, priority: int) -> None:
    """Schedule all present threads of this process; later ones inherit it from the thread that starts them."""
    tasks = Path("/proc/self/task")
    others = [int(entry.name) for entry in tasks.iterdir()] if tasks.is_dir() else []
    os.sched_setscheduler(0, policy, os.sched_param(priority))  # this thread, even where /proc is missing
    for thread in others:
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setscheduler(thread, policy, os.sched_param(priority))
