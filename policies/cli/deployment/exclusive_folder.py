"""A folder that one process at a time writes to."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from temporeal.policies.cli.console import complain
from temporeal.policies.runs.errors import BadInput

Lock = Sequence[int]
"""The descriptor that locks a folder, for child processes that write there; empty without locks."""


@contextmanager
def held(folder: Path, command: str, grace_s: float = 0.0) -> Iterator[Lock]:
    """Inside, ``folder``, made if need be, is locked; another run of ``command`` is refused after ``grace_s``.

    The lock ends with the last process that has the descriptor, also if that is killed: nothing is left behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield [handle] if locked(handle, folder, command, grace_s) else []
    finally:
        os.close(handle)


def locked(handle: int, folder: Path, command: str, grace_s: float) -> bool:
    """Lock the open ``folder``, or refuse it; False if its file system has no locks."""
    until = time.monotonic() + grace_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BadInput(f"{folder}: another {command} writes there now: wait until it has ended, or choose "
                               "another folder with --out") from None
            time.sleep(0.05)
        except OSError as error:
            complain(f"temporeal: {folder} is on a file system without locks ({error.strerror}): another {command} "
                     "that writes there is not noticed")
            return False
