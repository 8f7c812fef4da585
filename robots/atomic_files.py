"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Write ``parts``, one after the other, to ``path`` atomically.

    After a kill or an :class:`OSError` (a full disk) at any moment the file is the old one or the new one. A kill
    leaves ``.<name>.<pid>`` beside it. The error names ``path``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        _forget(temporary)


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` that takes its name if the block succeeds, and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield folder
        folder.chmod(0o755)
        _take_place(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_place(folder: Path, path: Path) -> None:
    """Rename ``folder`` to ``path``; an older one there is moved aside first, and restored on failure."""
    if not path.exists():
        folder.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    path.rename(old)
    try:
        folder.rename(path)
    except BaseException:  # Ctrl-C, too
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _forget(path: Path) -> None:
    """Remove ``path`` if it exists; a missing folder has nothing to remove."""
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
