"""Files of somebody else's, before they are read: regular, of bounded size, and inside the folder that was handed over.

What is handed over is an artifact, a run, a bag, a robot's folder: data of which the reader knows nothing. A device or
a pipe would block or never end, a link may lead to any file of the reader's, and a large file takes its memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

MIB = 1 << 20
LARGEST = 1 << 30  # bytes of a file that is read whole, unless its reader says otherwise
KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
         (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


class Refused(ValueError):
    """Something handed over breaks a rule of safe reading; the message names the file, the value and the rule."""


def opened(path: Path, largest: int = LARGEST, within: Path | None = None) -> IO[bytes]:
    """The regular file ``path`` of at most ``largest`` bytes, open for reading; :class:`Refused` names what else it is.

    Args:
        within: a folder that the file must lie in, links followed.

    Raises:
        OSError: it is not there, or may not be read.
    """
    if within is not None:
        inside(within, path)
    check_kind(path, os.stat(path).st_mode)
    # nobody can put a pipe there meanwhile: opening one would not wait for its writer
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        found = os.fstat(handle)
        check_kind(path, found.st_mode)
        if found.st_size > largest:
            raise Refused(f"{path} has {found.st_size:,} bytes; at most {largest:,} are read")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, largest: int = LARGEST, within: Path | None = None) -> bytes:
    """The bytes of a file, as :func:`opened`."""
    with opened(path, largest, within) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1)  # a size is given, for its memory is taken at once
    if len(data) > size:  # it grew
        raise Refused(f"{path} is being written: it grew while it was read")
    return data


def read_text(path: Path, largest: int = MIB, within: Path | None = None) -> str:
    """The UTF-8 text of a file, as :func:`opened`."""
    try:
        return read(path, largest, within).decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not text in UTF-8: {error}") from error


def check(path: Path, largest: int = LARGEST, within: Path | None = None) -> Path:
    """``path``, if :func:`opened` opens it: for a parser that opens its files itself."""
    with opened(path, largest, within):
        return path


def check_kind(path: Path, mode: int) -> None:
    """A file's ``mode`` is that of a regular one."""
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in KINDS if test(mode)), "no file")
        raise Refused(f"{path} is {kind}; a regular file is needed")


def inside(folder: Path, path: Path) -> Path:
    """``path``, if it leads to a place in ``folder``, links followed."""
    try:
        found = lies_in(path, folder)
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a null byte
        raise Refused(f"{path} leads nowhere: {error}") from error
    if not found:
        raise Refused(f"{path} leads out of {folder}, to {path.resolve()}: what is handed over names no file but its "
                      "own")
    return path


def lies_in(path: Path, *homes: Path) -> bool:
    """Whether ``path`` leads to one of the folders ``homes`` or below, links followed."""
    place = path.resolve()
    return any(home.resolve() in (place, *place.parents) for home in homes)


def member(folder: Path, name: object) -> Path:
    """The place in ``folder`` that a file of it calls ``name``: relative, without ``..``."""
    text = str(name)
    parts = {*PurePosixPath(text).parts, *PureWindowsPath(text).parts}
    if not isinstance(name, str) or not text or "\0" in text or ".." in parts or os.path.isabs(text) or (
            PureWindowsPath(text).drive or text.startswith(("/", "\\", "~"))):
        raise Refused(f"{folder} names the file {name!r}: a path inside the folder is needed, without '..'")
    return inside(folder, folder / text)
