"""Checks of the machine: processor, disk, clock."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from temporeal.policies.cli.preflight.findings import Check


def cpu_model() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> Iterator[Check]:
    """Cores and load."""
    cores, load = usable_cores(), os.getloadavg()[0]
    busy = load > 1.5 * cores
    yield Check("processor", "warn" if busy else "ok", f"{cores} cores, load {load:.1f}, {cpu_model()}",
                "other programs keep the cores busy: training takes longer, flights may miss deadlines" if busy else "")


def disk() -> Iterator[Check]:
    """Free disk space."""
    free = shutil.disk_usage(".").free / 1e9
    writable = os.access(".", os.W_OK)
    if not writable:
        yield Check("disk", "fail", f"cannot write to {Path.cwd()}", "go to a folder of yours, or give out=<folder>")
    elif free < 0.2:
        yield Check("disk", "fail", f"{free:.2f} GB free here", "a run needs about 0.2 GB: make room")
    else:
        yield Check("disk", "warn" if free < 2 else "ok", f"{free:.1f} GB free here",
                    "recordings and runs fill that soon" if free < 2 else "")


def clock() -> Iterator[Check]:
    """The clock is monotonic; how late a process that sleeps for 2 ms wakes up."""
    times = [time.monotonic_ns() for _ in range(20_000)]
    if any(b < a for a, b in zip(times, times[1:])):
        yield Check("clock", "fail", "the monotonic clock went backwards", "no control loop can run on this machine")
        return
    late = []
    for _ in range(250):
        started = time.perf_counter()
        time.sleep(0.002)
        late.append(1e3 * (time.perf_counter() - started) - 2.0)
    late.sort()
    median, worst = late[125], late[247]
    found = f"monotonic; wakes up late by {median:.2f} ms (median), {worst:.2f} ms (p99)"
    if worst > 5.0:
        yield Check("clock", "warn", found, "a loop at 100 Hz will miss deadlines: stop other programs")
    else:
        yield Check("clock", "ok", found)
