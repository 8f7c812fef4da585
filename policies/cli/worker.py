"""One process of a training in several: ``python -m temporeal.policies.cli.worker [--quiet]``.

Its settings are in the environment: see :mod:`temporeal.policies.runs.workers`, which starts it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from temporeal.policies.cli.main import guarded
from temporeal.policies.runs import training, workers
from temporeal.policies.runs.errors import OK
from temporeal.robots.atomic_files import write_whole


def work(argv: Sequence[str]) -> int:
    """Train; the first process writes the result."""
    from torch import distributed

    workers.end_without(int(os.environ[workers.STARTED_BY]))
    settings = json.loads(os.environ[workers.SETTINGS])
    result = training.train(settings, quiet="--quiet" in argv, opened=True)
    if result.rank == 0:
        content = {**result.to_json(), "notes": list(result.notes)}
        write_whole(Path(settings["out"]) / workers.RESULT, (json.dumps(content) + "\n").encode())
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return OK


if __name__ == "__main__":
    status = guarded(work, sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it
            if stream is not None:
                stream.flush()
    # Not by the interpreter's end: a thread of the process group that is still there then aborts the process, now and
    # then even after it was destroyed, and a training that is done counts as failed. All files are written by now.
    os._exit(status)
