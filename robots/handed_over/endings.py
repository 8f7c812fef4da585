"""Files that end too early: each kind says where it ends, so that a part of one is called truncated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

MCAP, PARQUET, SQLITE = b"\x89MCAP0\r\n", b"PAR1", b"SQLite format 3\0"
ZIP_BEGIN, ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
ZIP_TAIL = 65_557
"""Bytes that the end of a ZIP file takes at most: 22, and a comment of 2**16 - 1 (APPNOTE.TXT 4.3.16)."""


def truncated(path: Path) -> str:
    """In words, which file lacks its end: ``path``, or one in a bag's folder; empty: none that begins as its suffix
    says."""
    files = [file for file in sorted(path.glob("*")) if not file.is_symlink()] if path.is_dir() else [path]
    for file in files:
        lacks = ENDS.get(file.suffix.lower())
        if lacks is not None and file.is_file() and (lack := lacks(file, file.stat().st_size)):
            return f"{file} is truncated: it has {file.stat().st_size} bytes and {lack}"
    return ""


def begins(file: Path, magic: bytes) -> bool:
    """Whether the file begins so."""
    with file.open("rb") as opened:
        return opened.read(len(magic)) == magic


def last_bytes(file: Path, count: int) -> bytes:
    """The last ``count`` bytes, or as many as there are."""
    with file.open("rb") as opened:
        opened.seek(-min(count, file.stat().st_size), 2)
        return opened.read()


def of_mcap(file: Path, size: int) -> str:
    """MCAP ends with a footer and the magic of its beginning (mcap.dev/spec)."""
    if not begins(file, MCAP) or (size > 2 * len(MCAP) and last_bytes(file, len(MCAP)) == MCAP):
        return ""
    return "no footer: its recorder was killed, or a part was copied; `mcap recover` keeps the messages that are there"


def of_sqlite(file: Path, size: int) -> str:
    """SQLite has the size of a page, and their number, in its header (sqlite.org/fileformat)."""
    rest = file.with_name(f"{file.name}-wal")
    if rest.is_file() and rest.stat().st_size:
        return (f"its last messages are in {rest.name}: its recorder was killed; sqlite3 joins both when it opens the "
                "file")
    with file.open("rb") as opened:
        head = opened.read(100)
    if len(head) < 100 or not head.startswith(SQLITE):
        return ""
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    whole = (65_536 if page == 1 else page) * pages
    return f"its header says {whole}" if size < whole else ""


def of_parquet(file: Path, size: int) -> str:
    """Parquet ends with the magic of its beginning."""
    return "no footer" if begins(file, PARQUET) and last_bytes(file, len(PARQUET)) != PARQUET else ""


def of_zip(file: Path, size: int) -> str:
    """A ZIP file, such as NPZ, ends with its directory."""
    return "no directory" if begins(file, ZIP_BEGIN) and ZIP_END not in last_bytes(file, ZIP_TAIL) else ""


ENDS: dict[str, Callable[[Path, int], str]] = {
    ".mcap": of_mcap, ".db3": of_sqlite, ".parquet": of_parquet, ".npz": of_zip}
"""What a file of each suffix lacks at its end; empty: nothing."""
