"""How this process's allocator treats memory that is freed."""

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
    """Let freed memory stay with the process, up to 256 MiB, and say whether it does.

    A step of thousands of worlds returns megabytes that are freed some steps later. glibc may give them back to the
    kernel each time, so that every page of the next ones faults, which can take longer than computing what goes there.
    Whoever has set malloc in the environment is not overruled; other C libraries are left as they are.
    """
    if any(name in os.environ for name in BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(MMAP_THRESHOLD, HEAP_BYTES) and mallopt(TRIM_THRESHOLD, KEPT_BYTES))
