"""With which priority the processes of a benchmark run, and how busy the machine is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from temporeal.policies.runs.errors import BadInput

PRIORITY = "normal (default), or realtime: robot, guard and controller ahead of all else, as on a robot"


def asked(given: Sequence[str] | None) -> str:
    """The priority that was asked for."""
    kind = ",".join(given or ["normal"])
    if kind not in ("normal", "realtime"):
        raise BadInput(f"--priority is {kind!r}; legal: normal, realtime")
    return kind


def ordinary(pid: int) -> None:
    """Take real-time priority from a process: all that has it shares 95 % of a core, and waits for 50 ms when that is
    used up."""
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def load() -> str:
    """How busy the machine is, and with which priority this process runs."""
    real = "real-time" if os.sched_getscheduler(0) == os.SCHED_FIFO else "normal"
    apart = len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
    return (f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {real} priority"
            f"{', guard and controller on a core of their own' if apart else ''}")
