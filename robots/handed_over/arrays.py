"""NPZ archives of somebody else's: their unpacked size is known, and bounded, before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.handed_over.files import MIB, Refused, read

UNPACKED = 256 * MIB  # bytes of all members of an archive
SHARE = 20  # or so many times the archive's own size
MEMBERS = 10_000
OTHERWISE = "is packed otherwise than NumPy packs (stored or deflated)"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def archive(data: bytes, where: str) -> zipfile.ZipFile:
    """The archive in ``data``, if what its directory states stays within bounds, no member unpacks to more than that,
    and each is packed as NumPy packs."""
    found = bounded(data, where)
    if other := [entry.filename for entry in found.infolist() if entry.compress_type not in METHODS]:
        raise Refused(f"{where}: {other[0]!r} {OTHERWISE}")
    return found


def bounded(data: bytes, where: str) -> zipfile.ZipFile:
    """The archive in ``data``, if what its directory states stays within bounds."""
    try:
        found = zipfile.ZipFile(io.BytesIO(data))
    except Exception as error:  # its parser of foreign bytes raises any exception
        raise Refused(f"{where} is no ZIP archive: {error}") from error
    entries = found.infolist()
    size, most = sum(entry.file_size for entry in entries), max(UNPACKED, SHARE * len(data))
    if len(entries) > MEMBERS or size > most:
        raise Refused(f"{where} unpacks to {len(entries):,} members of {size:,} bytes; at most {MEMBERS:,} members and "
                      f"{most:,} bytes are read")
    return found


def members(data: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the members of the archive in ``data``."""
    for name, content in each_member(data, where):
        if isinstance(content, Refused):
            raise content
        yield name, content


def each_member(data: bytes, where: str) -> Iterator[tuple[str, bytes | Refused]]:
    """Names and contents of the members of the archive in ``data``; of one that cannot be unpacked, why: it matters to
    whoever reads it."""
    with bounded(data, where) as found:
        for entry in found.infolist():
            yield entry.filename, unpacked(found, entry, where)


def unpacked(found: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> bytes | Refused:
    """The content of a member, or why it cannot be unpacked."""
    if entry.compress_type not in METHODS:
        return Refused(f"{where}: {entry.filename!r} {OTHERWISE}")
    try:
        with found.open(entry) as member:
            return member.read(entry.file_size)  # without a size it would unpack whatever comes
    except Exception as error:  # zlib, lzma, bz2 and zipfile have an exception each, and some more
        return Refused(f"{where}: {entry.filename!r} cannot be unpacked: {error}")


def array(content: bytes, where: str) -> np.ndarray:
    """The array of numbers or texts that a file in NumPy's format holds; no more than ``content`` has."""
    file = io.BytesIO(content)
    try:
        major, minor = np.lib.format.read_magic(file)
        reader: Any = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[major]
        shape, _, dtype = reader(file)
        size = dtype.itemsize
        for side in shape:
            size *= side
        if dtype.hasobject or size != len(content) - file.tell() or any(side < 0 for side in shape):
            raise ValueError(f"{dtype} {shape} needs {size} bytes, {len(content) - file.tell()} are there")
        found: np.ndarray = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        return found
    except Exception as error:  # its header is Python text: tokenizer, parser and evaluation each raise their own
        raise Refused(f"{where} is no plain array in NumPy's format: {error}") from error


def read_npz(source: Path | bytes, where: str = "", within: Path | None = None) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file by name; :class:`Refused` for any other content.

    Args:
        source: the file, or its bytes.
        where: its name in messages.
        within: folder that the file must lie in.

    Raises:
        OSError: it is not there, or may not be read.
    """
    where = where or str(source)
    data = source if isinstance(source, bytes) else read(source, within=within)
    out = {}
    for name, content in members(data, where):
        if not name.endswith(".npy"):
            raise Refused(f"{where}: {name!r} is no array of NumPy's")
        out[name.removesuffix(".npy")] = array(content, f"{where}: {name!r}")
    return out
