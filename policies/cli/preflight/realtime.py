"""Checks of real-time scheduling and of the CPU governor."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from temporeal.policies.cli.preflight.findings import Check
from temporeal_bridge.process.scheduling import AHEAD, FIFO_PRIORITY


def realtime(allowed: bool) -> Check:
    """Whether nodes may use real-time scheduling."""
    if allowed:
        return Check("real-time", "ok", "SCHED_FIFO is permitted: the nodes' --priority auto takes it")
    return Check("real-time", "warn", "SCHED_FIFO is not permitted: other programs can delay the control loop",
                 "a line `<user> - rtprio 50` in /etc/security/limits.conf, then log in again")


def governor(found: Mapping[str, int]) -> Check:
    """CPU frequency governors, with the number of cores of each; empty if unreadable."""
    text = ", ".join(f"{name} on {count} cores" for name, count in found.items()) or "not readable (a virtual machine?)"
    if set(found) <= {"performance"}:
        return Check("CPU governor", "ok", text)
    return Check("CPU governor", "warn", text, "cores that sleep wake late: sudo cpupower frequency-set -g performance")


def machine() -> Iterator[Check]:
    """Whether this machine may run in real time, and its governors."""
    yield realtime(may_be_realtime())
    files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    yield governor(Counter(file.read_text().strip() for file in files))


def may_be_realtime() -> bool:
    """Tried, and reverted."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY + AHEAD))  # the guard's
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True
