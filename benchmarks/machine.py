"""The machine that a benchmark runs on: what it is, its cores, and the revision of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
"""The clone."""
NO_GPU = "no GPU here"


def machine() -> dict[str, Any]:
    """Processor, cores, Python, and how busy the machine is."""
    from temporeal.policies.cli.preflight.machine import cpu_model

    return {"cpu": cpu_model(), "cores": os.cpu_count(), "usable_cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}


def has_gpu() -> bool:
    """Whether torch finds a CUDA device."""
    import torch

    return torch.cuda.is_available()


def git(*words: str) -> str:
    """What git says of this clone; empty where it fails, or where this is no repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def short_revision() -> str:
    """The short hash of this clone's commit, ``unknown`` where there is none."""
    return git("rev-parse", "--short", "HEAD") or "unknown"


@contextmanager
def one_core() -> Iterator[None]:
    """This thread, and what it starts, on one processor with one thread of each library."""
    import numba
    import torch

    processors, threads = os.sched_getaffinity(0), (torch.get_num_threads(), numba.get_num_threads())
    os.sched_setaffinity(0, {max(processors)})
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)
        torch.set_num_threads(threads[0])
        numba.set_num_threads(threads[1])


@contextmanager
def every_core() -> Iterator[None]:
    """What is started meanwhile may use all processors."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)
