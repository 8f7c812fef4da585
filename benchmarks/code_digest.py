"""Digests of sources and settings: a trial that is kept holds while what it depends on is the same."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from temporeal_benchmarks.machine import ROOT

KINDS = (".py", ".yaml", ".xml", ".npz")
EVERY_S = 5  # s after which files are read anew


def code_digest(parts: Sequence[str], needed: Callable[[str], bool]) -> str:
    """Of the files in ``parts`` of this repository whose path is ``needed``."""
    digest = hashlib.sha256()
    for path, content in sources(tuple(parts)):
        if needed(path):
            digest.update(f"{path} {content}\n".encode())
    return digest.hexdigest()[:16]


def sources(parts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Path and digest of each file in ``parts``, which are folders and files."""
    return _sources(parts, time.monotonic() // EVERY_S)


@lru_cache(maxsize=4)
def _sources(parts: tuple[str, ...], stamp: float) -> tuple[tuple[str, str], ...]:
    found = [ROOT / part for part in parts]
    if gone := [str(part) for part in found if not part.exists()]:
        raise FileNotFoundError(f"digested, and not there: {', '.join(gone)}")
    paths = [path for part in found for path in ([part] if part.is_file() else part.rglob("*"))]
    return tuple(sorted((path.relative_to(ROOT).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
                        for path in paths if path.suffix in KINDS))
