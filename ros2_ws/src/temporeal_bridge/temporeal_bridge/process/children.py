"""Node processes as children: started in sessions of their own, watched, ended together. None outlives its starter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

END_S = 30.0  # to bring a quadrotor down (RESCUE_S of the guard), to write summaries and to finish the bag
LAUNCHED_END_S = END_S + 2.0  # the same under ros2 launch, whose default kills a guard that stops its robot after 10 s
LINGER_S = END_S - 2.0  # longest that a recorder waits for the guards before it finishes its bag
LOG_LINES = 15
WITHOUT = {
    "monitor_node": "the robot continues unmonitored: nothing stops it when the formula is violated",
    "recorder": "the robot continues and is no longer recorded"}
"""What follows from the end of a process that a flight can do without. The end of any other ends the flight."""
STARTED_BY = "TEMPOREAL_STARTED_BY"  # in a node's environment: process id of the starter


class Process(subprocess.Popen[bytes]):
    """A node process: its module, and its log file (None: it prints to our output)."""

    name: str = ""
    log: Path | None = None


def start(
    module: str, options: Sequence[str], log: Path | None = None, pass_fds: Sequence[int] = ()
) -> Process:
    """A node process in a session of its own: Ctrl-C at the terminal reaches only us, and we stop it in order. It
    inherits the descriptors ``pass_fds``."""
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
    """For a node: a check whether its starter has ended. Always False where nobody supervises it."""
    starter = os.environ.get(STARTED_BY)
    return (lambda: False) if starter is None else (lambda: os.getppid() != int(starter))


def ask(processes: Sequence[Process]) -> None:
    """Ask the running ones to stop; they write their summaries first."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def end(processes: Sequence[Process]) -> None:
    """Ask all to stop, wait for their summaries for up to END_S, then kill."""
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
    """The last lines of a process's log."""
    if process.log is None or not process.log.exists():
        return ""
    return "\n".join(process.log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:])
