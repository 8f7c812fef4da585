"""Settings of this process's memory allocator (glibc's malloc)."""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt (glibc's malloc.h)
KEPT_BYTES = 2**28  # of freed memory at the heap's end that stay with the process
HEAP_BYTES = 2**25  # blocks up to this size come from the heap: the most that glibc takes
BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@cache
def keep_freed() -> bool:
    """Keep up to 256 MiB of freed memory in the process; whether that was possible.

    A step of thousands of worlds returns megabytes that are freed some steps later. glibc may give them back to the
    kernel each time, and then every page of the next ones faults, which can take longer than the computation. Settings
    of malloc in the environment are respected; other C libraries are left alone.
    """
    if any(name in os.environ for name in BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(MMAP_THRESHOLD, HEAP_BYTES) and mallopt(TRIM_THRESHOLD, KEPT_BYTES))
