"""Makes trials, several at once, each in a process of its own (:mod:`temporeal_benchmarks.stl_study.trial`)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from temporeal.policies.cli.deployment.exclusive_folder import Lock
from temporeal.policies.evaluate.suite import averages, catalog
from temporeal.policies.evaluate.suite.averages import Trial
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.runs.interrupts import Interrupted, on_signals
from temporeal.policies.runs.workers import STARTED_BY
from temporeal_benchmarks.machine import machine, short_revision
from temporeal_benchmarks.stl_study.digests import code_digest
from temporeal_benchmarks.stl_study.formula_files import formula_digest
from temporeal_benchmarks.stl_study.items import Item
from temporeal_benchmarks.stl_study.progress import GIVEN_UP, Progress
from temporeal_benchmarks.stl_study.study import read

WORKER = "temporeal_benchmarks.stl_study.trial"
HEEDS = 1.0  # s, chosen: a trial that is ended has them to end by itself, for nothing of it is kept


def work_off(
    todo: Sequence[Item], folder: Path, progress: Progress, write: Callable[[], object],
    before: Mapping[str, dict[str, Any]] = MappingProxyType({}), lock: Lock = (),
) -> int:
    """Make the trials ``todo``, some at once, ``write`` after each; how many no time was left for. ``before``:
    :func:`policies_of`."""
    stop, left = threading.Event(), 0

    def halt(number: int, _: object) -> None:  # once: ending trials takes a second or two, however often it is asked
        if not stop.is_set():
            stop.set()
            raise Interrupted(number)

    def make(number: int) -> dict[str, Any] | None:
        limit = progress.limit(todo[number])
        if limit <= 0.0 or stop.is_set():
            return None
        progress.begin(number)
        found = made(todo[number], folder, limit, stop, progress.at_once, before.get(todo[number].name, {}), lock)
        if found["status"] == averages.FAILED and progress.cut_short(found):  # which says nothing of the method
            (folder / f"{todo[number].name}.json").unlink(missing_ok=True)
            return None
        return found

    with on_signals([signal.SIGINT, signal.SIGTERM], halt), ThreadPoolExecutor(progress.at_once) as pool:
        try:
            numbers = {pool.submit(make, number): number for number in range(len(todo))}
            waiting = set(numbers)
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in finished:
                    number, found = numbers[future], future.result()
                    left += found is None
                    if found is not None:
                        progress.done(number, outcome(found))
                        write()
                progress.draw()
        finally:  # also where something interrupts: what runs is ended, what waits is not begun
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return left


def made(
    item: Item, folder: Path, limit_s: float, stop: threading.Event, at_once: int, before: Mapping[str, Any],
    lock: Lock = (),
) -> dict[str, Any]:
    """Make one trial in a process of its own, of ``at_once``; what became of it, also where that failed. Kept in
    ``folder``. ``before``: of a policy that is there already (:func:`policies_of`)."""
    from temporeal.robots.atomic_files import write_whole

    file, log, order_file = (folder / f"{item.name}.{end}" for end in ("json", "log", "order"))
    run_folder = folder / "runs" / item.name
    order = {**asdict(item), "system": item.system, "words": item.words, "episodes": item.episodes,
             "budget_s": item.budget_s, "run": str(run_folder), "file": str(file), "code": code_digest(item),
             "formula_file": formula_digest(item.task), "revision": short_revision(),
             "machine": machine(), "command": command(item), "parallel": at_once, "began": time.time(),
             **before}
    for old in (file, log):
        old.unlink(missing_ok=True)
    write_whole(order_file, json.dumps(order).encode())
    error = worked([sys.executable, "-m", WORKER, str(order_file)], log, limit_s, stop, lock)
    found = read(file)
    if found is None:
        found = {**order, "status": averages.FAILED, "reason": error or "it wrote no result"}
        write_whole(file, (json.dumps(found) + "\n").encode())
    else:
        log.unlink(missing_ok=True)
    order_file.unlink(missing_ok=True)
    shutil.rmtree(run_folder / "events", ignore_errors=True)
    return found


def command(item: Item) -> str:
    """What makes it by hand: trains it, or plans, which this benchmark alone does."""
    words = [f"task=stl/{item.task}", *item.words, f"seed={item.seed}"]
    if METHODS[item.method].kind == catalog.PLANNER:
        return f"temporeal bench stl-tasks --tasks {item.task} --methods {item.method} --seeds {item.seed}"
    return f"temporeal train {shlex.join(words)}"


def worked(words: Sequence[str], log: Path, limit_s: float, stop: threading.Event, lock: Lock = ()) -> str:
    """Run a process until it ends, for ``limit_s`` at most; what it complained of, empty where all is well. ``stop``
    ends it, and so does whatever interrupts this one: then there is no answer. It has the ``lock`` as long as it
    lives."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", STARTED_BY: str(os.getpid()),
                   "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    until = time.monotonic() + limit_s
    with open(log, "wb") as out:
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   pass_fds=lock, start_new_session=True)  # what interrupts is for the study to heed
    try:
        while process.poll() is None:
            if time.monotonic() > until:
                return f"{GIVEN_UP} {limit_s:.0f} s"
            if stop.is_set():
                raise Interrupted(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
    finally:
        ended(process)
    if process.returncode == 0:
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip(" ^~")]
    last = [line for line in lines if "please report it" not in line][-3:]
    return f"exit status {process.returncode}: {'; '.join([*last[-1:], *last[:-1]])[:600]}"


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, by force if it does not heed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(HEEDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def outcome(found: Trial) -> str:
    """One trial in words."""
    if found["status"] != averages.DONE:
        return f"{found['status']}: {found['reason'].splitlines()[0][:160]}"
    estimate, low, high = found["success"]
    few = f" ({found['episodes']} starts)" if found.get("few_starts") else ""
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]{few}"
