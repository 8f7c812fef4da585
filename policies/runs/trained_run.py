"""What a training leaves: its run with figures, its events, and the word on where it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.interrupts import Interrupted

if TYPE_CHECKING:
    from temporeal.policies.training.progress import Logger


@dataclass(frozen=True)
class TrainedRun:
    """A run that was trained.

    Args:
        folder: settings, checkpoints and events.
        seconds: wall time of the whole training, s.
        rank: of this process among those that trained together.
        figures: those of the last iteration, and the run's diverged worlds, warnings and overflow.
        notes: sentences about what went wrong in the worlds.
    """

    folder: Path
    seconds: float
    rank: int
    figures: Mapping[str, float]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.figures, "run": str(self.folder), "seconds": self.seconds, "rank": self.rank}


@contextmanager
def events(folder: Path) -> Iterator[Logger]:
    """TensorBoard events in ``folder``. A full disk is one line: their writer is a thread that would show a traceback,
    while the error it dies of is raised here, too.
    """
    from temporeal.policies.training.progress import tensorboard

    show = threading.excepthook
    threading.excepthook = lambda error: None if isinstance(error.exc_value, OSError) else show(error)
    try:
        with tensorboard(folder) as logger:
            yield logger
    except OSError as error:
        raise BadInput(f"events cannot be written to {folder}: {error.strerror}; resume=true continues the run from "
                       "its last checkpoint, if there is one") from error
    finally:
        threading.excepthook = show


@contextmanager
def naming_checkpoint(folder: Path, processes: int, again: str) -> Iterator[None]:
    """An interruption inside names the last checkpoint, and the command that continues from it."""
    from temporeal.policies.training.checkpoint import iterations

    try:
        yield
    except Interrupted as stop:
        kept = iterations(folder / run_folders.CHECKPOINTS, processes)
        if not kept:
            raise Interrupted(stop.number, f"{stop} before the first checkpoint; --overwrite starts anew") from None
        where = f"{stop}; iteration {kept[-1]} is kept in {folder / run_folders.CHECKPOINTS}"
        raise Interrupted(stop.number, f"{where}; go on with: {again}" if again else where) from None
