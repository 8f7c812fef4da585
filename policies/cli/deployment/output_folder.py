"""The folder of one deployment, which no other process uses meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from temporeal.policies.cli.deployment.exclusive_folder import held

DEFAULT = Path("outputs/deploy")  # a folder in it for each


@contextmanager
def own_folder(given: Path | None) -> Iterator[Path]:
    """The folder of this deployment, locked while it lasts: the one ``given``, or a new one."""
    out = new_folder(time.strftime("%Y%m%d-%H%M%S")) if given is None else given
    try:
        with held(out, "temporeal deploy"):
            yield out
    finally:
        if given is None:
            with suppress(OSError):  # nothing came of it
                out.rmdir()


def new_folder(name: str) -> Path:
    """A new folder ``name``, or ``name-2``, ``name-3``, ... if another deployment started in the same second."""
    DEFAULT.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        with suppress(FileExistsError):
            out = DEFAULT / (name if number == 1 else f"{name}-{number}")
            out.mkdir()
            return out
    raise AssertionError("numbers do not end")
