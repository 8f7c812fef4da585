"""One training in several processes of this machine: started, watched and ended together.

Each process runs ``python -m temporeal.policies.cli.worker`` in a session of its own: Ctrl-C at the terminal reaches
only their starter, which passes it on. A worker whose starter is gone is killed. """

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from temporeal.policies.runs.errors import BAD_INPUT, BadInput
from temporeal.policies.runs.interrupts import Interrupted, stop_asked

RESULT = "result.json"  # in a run's folder: the result of the first worker
# environment variables of a worker: the starter's process id; the run's settings as JSON, which in a resumed run may
# differ from those in its folder
STARTED_BY, SETTINGS = "TEMPOREAL_STARTED_BY", "TEMPOREAL_SETTINGS"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
POLL_S = 0.05
OTHERS_S = 5.0  # for the others to end by themselves after one failed


@dataclass
class Worker:
    """A process of the training and what it writes to its standard error."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def error_text(self) -> str:
        """What it wrote to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()


def train(settings: Mapping[str, Any], folder: Path, quiet: bool) -> dict[str, Any]:
    """The result of the run in ``folder``, which is set up, trained in as many processes as the settings say."""
    (folder / RESULT).unlink(missing_ok=True)
    with stop_asked() as asked, started({**settings, "out": str(folder)}, quiet) as workers:
        failed = wait_for(workers, asked)
    if failed is not None:
        raise BadInput(why(failed, workers.index(failed), folder))
    if asked:
        raise Interrupted(asked[0])
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


@contextmanager
def started(settings: Mapping[str, Any], quiet: bool) -> Iterator[list[Worker]]:
    """The workers; whatever happens inside, none of them is left afterwards."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # they meet at this process: as under torchrun, no port must be guessed
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
              "WORLD_SIZE": str(settings["processes"]), "TORCHELASTIC_USE_AGENT_STORE": "True",
              "TORCHELASTIC_RESTART_COUNT": "0",
              "OMP_NUM_THREADS": "1",  # one thread in each operation: the processes share the cores
              STARTED_BY: str(os.getpid()), SETTINGS: json.dumps(settings)}
    words = ["--quiet"] if quiet else []
    workers: list[Worker] = []
    try:
        for rank in range(settings["processes"]):
            errors = tempfile.TemporaryFile()
            workers.append(Worker(subprocess.Popen(
                [sys.executable, "-m", "temporeal.policies.cli.worker", *words], stderr=errors, start_new_session=True,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}), errors))
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


def wait_for(workers: Sequence[Worker], asked: Sequence[int]) -> Worker | None:
    """Wait for all to end; the one that failed first, if any. What is ``asked`` meanwhile is passed on once.

    A worker without its fellows waits for them in vain, and not always where a signal reaches it: from the end of the
    first that does not succeed, the others have :data:`OTHERS_S`.
    """
    passed_on, until, failed = False, float("inf"), None
    while any(worker.process.poll() is None for worker in workers) and time.monotonic() < until:
        if asked and not passed_on:
            passed_on = True
            for worker in workers:
                worker.process.send_signal(asked[0])
        if until == float("inf") and any(worker.process.poll() for worker in workers):
            until = time.monotonic() + OTHERS_S
        failed = failed or first_failed(workers, asked)
        time.sleep(POLL_S)
    return failed or first_failed(workers, asked)


def first_failed(workers: Sequence[Worker], asked: Sequence[int]) -> Worker | None:
    """A worker that ended with an error; to end as it was ``asked`` is none."""
    fine = {None, 0, *(status for number in asked for status in (-number, 128 + number))}
    return next((worker for worker in workers if worker.process.poll() not in fine), None)


def why(failed: Worker, rank: int, folder: Path) -> str:
    """Why the training ended: its own message where the worker left one, else how it ended."""
    status, text = failed.process.returncode, failed.error_text()
    if status == BAD_INPUT:
        return text.removeprefix("temporeal: ")
    if text:
        print(text, file=sys.stderr, flush=True)
    ended = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"training: process {rank} {ended}; resume=true goes on from the last checkpoint of {folder}, if any"


def end_without(starter: int) -> None:
    """Let this process be killed as soon as ``starter``, its parent, is no more (kill -9): nobody would ever stop it.

    Linux does that (prctl(2)), whatever this process is busy with. It counts as gone where the *thread* that started
    this process ends: it is to wait for it. Elsewhere a thread of this process looks each second.
    """
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:
        threading.Thread(target=end_with, args=(starter,), daemon=True).start()
    elif prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        print(f"temporeal: this process outlives its starter if that is killed: {os.strerror(ctypes.get_errno())}",
              file=sys.stderr, flush=True)
    if os.getppid() != starter:  # gone before that
        os._exit(1)


def end_with(starter: int) -> None:
    """End this process as soon as its parent is no longer ``starter``."""
    while os.getppid() == starter:
        time.sleep(1.0)
    os._exit(1)
