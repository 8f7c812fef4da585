"""Node processes: started in sessions of their own, watched, ended together. None outlives the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

END_S = 30.0  # to bring a quadrotor down (RESCUE_S of guard_node), to write summaries and to finish the bag
LAUNCHED_END_S = END_S + 2.0  # the same under ros2 launch, which would kill a guard that stops its robot after 10 s
LINGER_S = END_S - 2.0  # of that a recorder may wait for the guards, at most: then it finishes its bag
LOG_LINES = 15
WITHOUT = {
    "monitor_node": "the robot flies on, and nobody judges its flights: nothing stops it for its formula",
    "recorder": "the robot flies on, and nothing is recorded any more"}
"""What is so once a process has ended that no flight needs. Any other process's end is that of the flight."""
STARTED_BY = "TEMPOREAL_STARTED_BY"  # in a node's environment: process id of the starter


class Process(subprocess.Popen[bytes]):
    """A node process: its module, and where it logs (None: what it prints goes where ours does)."""

    name: str = ""
    log: Path | None = None


def start(
    module: str, options: Sequence[str], log: Path | None = None, pass_fds: Sequence[int] = ()
) -> Process:
    """A node process in a session of its own: a Ctrl-C at the terminal comes to us, and we stop it in order. It gets
    the descriptors ``pass_fds``, too."""
    paths = [str(Path(__file__).parents[2]), str(Path(sys.modules["temporeal"].__path__[0]).parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
           "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", STARTED_BY: str(os.getpid())}
    command = [sys.executable, "-m", f"temporeal_bridge.{module}", *options]
    if log is None:
        process = Process(command, stdin=subprocess.DEVNULL, env=env, start_new_session=True, pass_fds=pass_fds)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = Process(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=env,
                              start_new_session=True, pass_fds=pass_fds)
    process.name, process.log = module, log
    return process


def fresh(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that is not there: nothing of an earlier flight is lost."""
    number, out = 1, path
    while out.exists():
        number += 1
        out = path.with_name(f"{path.name}-{number}")
    return out


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def orphaned() -> Callable[[], bool]:
    """A check for a node: whether the one that started it is no more. Always False where nobody watches over it."""
    starter = os.environ.get(STARTED_BY)
    return (lambda: False) if starter is None else (lambda: os.getppid() != int(starter))


def ask(processes: Sequence[Process]) -> None:
    """Ask those that run to stop: they write their summaries first."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def end(processes: Sequence[Process]) -> None:
    """Ask all to stop, in order, wait for their summaries, then insist."""
    ask(processes)
    until = time.monotonic() + END_S
    for process in processes:
        try:
            process.wait(timeout=max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def how_ended(process: Process) -> str:
    """``policy_node was killed by SIGKILL``, ``recorder ended with status 2: recorder: error: the disk is full``."""
    status = process.returncode
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    last = last_words(process).rpartition("\n")[2]
    return f"{process.name} {how}: {last}" if last and status > 0 else f"{process.name} {how}"


def last_words(process: Process) -> str:
    """The end of what a process printed into its log."""
    if process.log is None or not process.log.exists():
        return ""
    return "\n".join(process.log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:])
