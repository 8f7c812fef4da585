"""Bags of somebody else's: what rosbags may open, and how far it may unpack.

A recording is an MCAP or SQLite file, or a folder with ``metadata.yaml`` and such files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from temporeal.robots.handed_over.arrays import SHARE, UNPACKED
from temporeal.robots.handed_over.files import MIB, Refused, check, inside, member, opened, read_text
from temporeal.robots.handed_over.texts import from_yaml

METADATA = "metadata.yaml"
LARGEST = 1 << 40  # bytes of a recording, which is read in parts
CHUNK = 128 * MIB  # bytes that a chunk, or a message packed alone, unpacks to; recorders write chunks of some MiB
SUFFIXES = (".mcap", ".db3", ".zstd")


def check_bag(path: Path) -> None:
    """Refuse a recording that names files outside its folder, is no regular file, or holds a program; bound what
    rosbags unpacks from now on.

    Raises:
        Refused: what is wrong.
        OSError: it is not there.
    """
    bound_unpacking()
    files = [path]
    if path.is_dir():
        files = [inside(path, file) for file in sorted(path.iterdir()) if file.suffix in SUFFIXES]
        if (metadata := path / METADATA).exists() or metadata.is_symlink():
            check_metadata(path, metadata)
    for file in files:
        check_file(file, file.suffix == ".db3")


def check_metadata(folder: Path, file: Path) -> None:
    """Refuse a description that unfolds to much, or that names files elsewhere or such that unfold to much: rosbags
    unpacks them to the disk first."""
    import yaml

    try:
        said = from_yaml(read_text(file, 4 * MIB, within=folder), str(file))
    except yaml.YAMLError:
        return  # its reader says so, or does without
    about = said.get("rosbag2_bagfile_information") if isinstance(said, dict) else None
    if not isinstance(about, dict):
        return  # its reader says what is missing
    names = about.get("relative_file_paths")
    packed = str(about.get("compression_mode", "")).lower() == "file"
    for name in names if isinstance(names, list) else ():
        place = member(folder, name)
        if not (place.exists() or place.is_symlink()):
            continue
        tables = about.get("storage_identifier") == "sqlite3"
        if packed:
            check_packed(place, tables)
        else:
            check_file(place, tables)


def check_file(file: Path, tables: bool) -> None:
    """Refuse what is no regular file, or, if it is one of SQLite's ``tables``, holds a program."""
    check(file, LARGEST)
    if tables:
        check_tables(file)


def check_packed(file: Path, tables: bool) -> None:
    """Refuse a file that is packed as a whole and unpacks to more than :data:`SHARE` times its size, or to programs."""
    zstd = import_module("rosbags.rosbag2.storage_mcap").zstd
    with opened(file, LARGEST) as raw, NamedTemporaryFile() as copy:
        most, size = max(UNPACKED, SHARE * file.stat().st_size), 0
        try:
            with zstd.open(raw, "rb") as unpacked:
                while size <= most and (part := unpacked.read(MIB)):
                    size += copy.write(part) if tables else len(part)
        except (zstd.ZstdError, EOFError) as error:
            raise Refused(f"{file} cannot be unpacked: {error}") from error
        if size > most:
            raise Refused(f"{file} unpacks to more than {most:,} bytes; at most {most:,} are read of one of its size")
        copy.flush()
        if tables:
            check_tables(Path(copy.name), str(file))


def check_tables(file: Path, where: str = "") -> None:
    """Refuse an SQLite file with views, triggers or computed columns: they are programs. ``where``: its name in
    messages."""
    where = where or str(file)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)) as base:
            base.execute("PRAGMA trusted_schema = OFF")
            for kind, name, text in base.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
                if kind not in ("table", "index") or "virtual" in str(text).lower().split()[:2]:
                    raise Refused(f"{where} has the {kind} {name!r}: a recording has tables of data alone")
                if kind == "table" and computed(base, name):
                    raise Refused(f"{where}: table {name!r} has a computed column: a recording has data alone")
    except sqlite3.Error as error:
        raise Refused(f"{where} is no SQLite file that can be read: {error}") from error


def computed(base: sqlite3.Connection, table: str) -> bool:
    """Whether a column of ``table`` is computed when it is read."""
    rows = base.execute("SELECT hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
    return any(hidden != 0 for (hidden,) in rows)


@cache
def bound_unpacking() -> None:
    """Let rosbags unpack no chunk and no message beyond :data:`CHUNK`: it takes whatever comes otherwise."""
    reader, storage = (import_module(f"rosbags.rosbag2.{name}") for name in ("reader", "storage_mcap"))
    lz4, zstd = import_module("lz4.frame"), storage.zstd

    def bounded(make: Callable[[], Any], data: bytes, size: int) -> bytes:
        if size > CHUNK:
            raise Refused(f"a chunk unpacks to {size:,} bytes; at most {CHUNK:,} are read")
        unpacking = make()
        found: bytes = unpacking.decompress(data, max_length=size)
        if not unpacking.eof and unpacking.decompress(b"", max_length=1):
            raise Refused(f"a chunk unpacks to more than the {size:,} bytes that it states")
        return found

    storage.DECOMPRESSORS["zstd"] = lambda data, size: bounded(zstd.ZstdDecompressor, data, size)
    storage.DECOMPRESSORS["lz4"] = lambda data, size: bounded(lz4.LZ4FrameDecompressor, data, size)
    reader.zstd = SimpleNamespace(  # type: ignore[attr-defined]  # of messages packed alone: nothing states their size
        open=zstd.open, decompress=lambda data: bounded(zstd.ZstdDecompressor, data, CHUNK))
