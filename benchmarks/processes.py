"""A Python module run as a process of its own, and what it took: wall time, processor time, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A process that has ended well, with those that it started and waited for."""

    began: float  # Unix time, s
    wall: float  # s, until its exit
    cpu: float  # s, of all threads
    memory: float  # B, peak of what they take of the machine, checked ten times a second; shared pages count once


def run_module(module: str, arguments: Sequence[str], quiet: bool = False) -> Run:
    """Run ``python -m module`` and wait for it; another exit status than 0 is an error that names it."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    began, clock = time.time(), time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment,
                               stdout=subprocess.DEVNULL if quiet else None)
    memory, next_check = 0.0, 0.0
    while True:
        if time.perf_counter() >= next_check:
            memory = max(memory, sum(_taken(p) for p in _family(process.pid)))
            next_check = time.perf_counter() + 0.1
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    wall = time.perf_counter() - clock
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python -m {module} {' '.join(arguments)} ended with exit status {process.returncode}")
    return Run(began, wall, usage.ru_utime + usage.ru_stime, memory)


def _family(process: int) -> Iterator[int]:
    """A process and all that it started, as far as they run."""
    yield process
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:  # gone
        return
    for child in children:
        yield from _family(int(child))


def _taken(process: int) -> float:
    """Memory [B] of a running process, shared pages divided among those that share them (PSS, proc(5)); 0 once it is
    gone.

    wait4 reports another figure: it begins with the memory of this process, which the child was forked from.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0.0)
