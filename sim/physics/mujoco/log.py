"""MuJoCo's own log and warnings: switched off while worlds are stepped, counted instead.

MuJoCo would write to stderr and to MUJOCO_LOG.TXT of each world that diverges or has no room for contacts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import mujoco
import numpy as np

KINDS = tuple(k for k in mujoco.mjtWarning.__members__ if k != "mjNWARNING")
_SAVED: list[Any] = []  # the log's configuration before the first of the calls that run now
_CALLS = [0]
_LOCK = threading.Lock()


def silence() -> None:
    """MuJoCo prints and logs nothing until :func:`restore`. One setting for the process; calls nest."""
    with _LOCK:
        _CALLS[0] += 1
        if _CALLS[0] == 1:
            _SAVED[:] = [mujoco.MjLogConfig.get()]
            _silent().set()


def restore() -> None:
    """The end of as many calls of :func:`silence`."""
    with _LOCK:
        _CALLS[0] -= 1
        if _CALLS[0] == 0:
            _SAVED.pop().set()


@cache
def _silent() -> Any:
    silent = mujoco.MjLogConfig.get()
    silent.logto_console = silent.logto_file = False
    return silent


@contextmanager
def quiet() -> Iterator[None]:
    """MuJoCo prints and logs nothing meanwhile."""
    silence()
    try:
        yield
    finally:
        restore()


def counted(warnings: np.ndarray) -> dict[str, int]:
    """Counts [kinds] of warnings by name, as :class:`temporeal.sim.types.Status` has them."""
    return {kind.removeprefix("mjWARN_").lower(): int(count) for kind, count in zip(KINDS, warnings)}
