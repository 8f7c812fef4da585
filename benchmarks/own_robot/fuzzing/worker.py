"""One process that reads cases: ``python -m temporeal_benchmarks.own_robot.fuzzing.worker EXAMPLES OUT SEED NUMBERS``.

Each case is a line of JSON on the standard output. A process that a case ends is missed by its starter.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from temporeal_benchmarks.own_robot.fuzzing.boundaries import KINDS, Place
from temporeal_benchmarks.own_robot.fuzzing.mutations import SECRET
from temporeal_benchmarks.own_robot.fuzzing.watch import GIVE_UP, Seen, Watch, limit_memory, watched


class Bench:
    """The folders of a process' cases: ``examples``, and in ``out`` the case, the folder outside and scratch room."""

    def __init__(self, examples: Path, out: Path) -> None:
        self.examples, self.out = examples, out
        self.case, self.outside, self.scratch = (out / name for name in ("case", "outside", "scratch"))
        for folder in (self.outside, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("secret.txt", "secret.yaml", "robot.xml"):
            (self.outside / name).write_text("secret: 1\n")
        os.environ[SECRET] = "the-secret-of-the-environment"
        self.watch = Watch(self.outside)

    def run(self, number: int, seed: int) -> Seen:
        """Case ``number``."""
        kind = list(KINDS)[number % len(KINDS)]
        shutil.rmtree(self.case, ignore_errors=True)
        self.case.mkdir(parents=True)
        KINDS[kind].make(Place(self.case, self.examples, self.outside), random.Random(f"{seed}-{number}"))
        before, tempfile.tempdir = tempfile.tempdir, str(self.scratch)
        try:
            with working_in(self.case), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seen = watched(self.watch, Seen(kind, number), self.case, self.scratch, KINDS[kind].read)
        finally:
            tempfile.tempdir = before
        if (self.case / "code-was-run").exists():
            seen.wrong.append("code run: it made its mark")
        return seen


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Inside, ``folder`` is the working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def cases(bench: Bench, numbers: Iterable[int], seed: int) -> Iterator[Seen]:
    """The cases ``numbers``, one after the other."""
    for number in numbers:
        yield bench.run(number, seed)


def warm(bench: Bench) -> None:
    """Import everything that readers import, so that no case pays for it: read the examples as they are."""
    for kind in KINDS.values():
        shutil.rmtree(bench.case, ignore_errors=True)
        shutil.copytree(bench.examples, bench.case)
        for name in ("formula.yaml", "space.yaml", "trace.npz", "ros.yaml", "arm.robot.yaml"):
            (bench.case / "which").write_text(name)
            kind.read(bench.case)
            if name == "formula.yaml" and kind is not KINDS["yaml"]:
                break


def main() -> int:
    """Read the cases that the arguments name."""
    examples, out, seed, *numbers = sys.argv[1:]
    logging.disable()
    bench = Bench(Path(examples), Path(out))
    lines = sys.stdout
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        warm(bench)
        limit_memory()
        for seen in cases(bench, map(int, numbers), int(seed)):
            print(json.dumps(seen.to_json()), file=lines, flush=True)
            faulthandler.dump_traceback_later(3 * GIVE_UP, exit=True)  # whatever the next one is busy with
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
