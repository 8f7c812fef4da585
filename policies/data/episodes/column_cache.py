"""Columns as flat files that are mapped into memory, built once from a set's Parquet and MP4 files.

A column's file holds the rows of all parts (data files, or episodes of a video) in order, and grows as the set does; a
manifest beside it says which parts its first rows are. It is replaced as a whole after the rows are on disk, so a
reader sees rows of whole parts only. A part is known by size, times and inode of its file, and by its episodes'
checksums: where one of them has changed, the column is built anew under another name, and whoever has the old one
mapped keeps it. A manifest counts only with the very file (inode) it was written for: one that was copied or handed
over is built anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import Refused, inside, read_text

FOLDER = "cache"
FORMAT = 1
TRIES = 10
MANIFEST_BYTES = 1 << 28
DISTINCT = re.compile(r"[0-9A-Za-z._-]+")


@dataclass(frozen=True)
class Part:
    """Rows of a column that come from one file.

    Args:
        path: the file; ``rows``: of this part.
        tag: what else it is known by: where in the file, and checksums.
        read: its rows [rows, *shape].
    """

    path: Path
    rows: int
    tag: str
    read: Callable[[], np.ndarray]

    def identity(self) -> list[Any]:
        """What changes where the file does."""
        try:
            found = os.stat(self.path)
        except OSError:
            self.read()  # its error names the episodes
            raise
        return [self.path.name, self.rows, self.tag, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def place(folder: Path) -> Path:
    """The folder of a set's columns: in the set, or in the user's cache where the set may not be written."""
    own = folder / FOLDER
    if own.is_dir() and os.access(own, os.W_OK) or not own.exists() and os.access(folder, os.W_OK):
        inside(folder, own)
        own.mkdir(exist_ok=True)
        return own
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    other = home / "temporeal" / "columns" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    other.mkdir(parents=True, exist_ok=True)
    return other


def mapped(folder: Path, key: str, dtype: str, shape: tuple[int, ...], parts: Sequence[Part]) -> np.ndarray:
    """The column [sum of rows, *shape], read-only, mapped from its file, which is written first where it lacks rows."""
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError):  # somebody removes the cache meanwhile
            return mapped_once(folder, key, dtype, shape, parts)
    return mapped_once(folder, key, dtype, shape, parts)


def mapped_once(folder: Path, key: str, dtype: str, shape: tuple[int, ...], parts: Sequence[Part]) -> np.ndarray:
    """As :func:`mapped`; an error where a file of the cache is removed meanwhile."""
    home, name = place(folder), file_name(key)
    kind = {"format": FORMAT, "key": key, "dtype": dtype, "shape": list(shape)}
    whole = (sum(part.rows for part in parts), *shape)
    with locked(home / f".{name}.lock"):
        wanted = [part.identity() for part in parts]
        told = manifest(home / f"{name}.json", kind)
        kept = common(told["parts"], wanted) if told else 0
        if told is None or kept < len(told["parts"]):  # none, or of a set that has changed since
            kept, raw = 0, home / f"{name}.{secrets.token_hex(6)}.raw"
        else:
            raw = home / told["raw"]
        if told is None or kept < len(wanted):
            written(raw, parts, kept, dtype, shape)
            content = {**kind, "raw": raw.name, "inode": os.stat(raw).st_ino, "parts": wanted}
            write_whole(home / f"{name}.json", json.dumps(content).encode())
            forget_others(home, name, raw)
        return mapping(raw, dtype, whole)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def file_name(key: str) -> str:
    """A column's name as a file's: a hash beside what of it can be read."""
    return f"{'_'.join(DISTINCT.findall(key))[:60]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def manifest(path: Path, kind: dict[str, Any]) -> dict[str, Any] | None:
    """What a manifest says, if it is of this kind and of the file beside it; else None."""
    try:
        told = json.loads(read_text(path, MANIFEST_BYTES, within=path.parent))
        raw = path.parent / str(told["raw"])
        found = os.stat(raw, follow_symlinks=False)
        if any(told[key] != value for key, value in kind.items()) or found.st_ino != told["inode"]:
            return None
        if Path(told["raw"]).name != told["raw"] or not isinstance(told["parts"], list):
            return None
    except (OSError, ValueError, KeyError, TypeError, Refused):
        return None
    return dict(told)


def common(there: Sequence[Any], wanted: Sequence[Any]) -> int:
    """How many parts at the beginning are the same."""
    for number, (a, b) in enumerate(zip(there, wanted)):
        if a != b:
            return number
    return min(len(there), len(wanted))


def written(raw: Path, parts: Sequence[Part], kept: int, dtype: str, shape: tuple[int, ...]) -> None:
    """Append the rows of ``parts[kept:]``, or write a new file. What was mapped before keeps its rows."""
    row = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if not kept else 0)
    with os.fdopen(os.open(raw, flags, 0o644), "r+b") as file:
        file.seek(sum(part.rows for part in parts[:kept]) * row)
        for part in parts[kept:]:
            values = part.read()
            if values.shape != (part.rows, *shape) or values.dtype != np.dtype(dtype):
                raise DataError(f"{part.path}: {values.dtype} {values.shape} was read; {dtype} {(part.rows, *shape)} "
                                "is needed")
            file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())


def forget_others(home: Path, name: str, raw: Path) -> None:
    """Remove files of a column that no manifest names any more; who has one mapped keeps it."""
    for old in home.glob(f"{name}.*.raw"):
        if old.name != raw.name:
            with suppress(OSError):
                old.unlink()


def mapping(raw: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A file's first numbers as an array, read-only."""
    size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, dtype)
    with open(raw, "rb") as file:
        if os.fstat(file.fileno()).st_size < size:
            raise DataError(f"{raw} has fewer than {size} bytes: remove it, and it is built anew")
        view = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    return np.frombuffer(view, dtype).reshape(shape)
