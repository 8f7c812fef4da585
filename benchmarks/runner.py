"""Runs benchmarks and keeps their results.

A benchmark is a module or a package in ``benchmarks/measurements``, named with dashes for underscores:

- ``HELP``: what is measured, how, and against what.
- ``run(quick, *, out, **options) -> list[Row]``; ``out`` is a folder for what it makes.
- ``OPTIONS``, if it has any: name -> help. Each option is a list ``A,B`` or None.
- ``NARROWING``: those options by which only a part is measured. A result that is kept is named after them.
- ``STUDY``: the file in ``out`` that is kept in place of the rows alone, such as one with all trials; or a function of
  the options that gives it, or None.
- ``DAYS``: True if a whole run takes days.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from temporeal.policies.cli.console import plain, say
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.registry import names, resolve
from temporeal_benchmarks.machine import machine
from temporeal_benchmarks.results import RESULTS, now
from temporeal_benchmarks.rows import Row, Value

PACKAGE = "temporeal_benchmarks.measurements"
Options = Mapping[str, list[str] | None]


def bench_names() -> list[str]:
    """The benchmarks, as one writes them."""
    return [name.replace("_", "-") for name in names(PACKAGE)]


def benchmark(name: str) -> ModuleType:
    """The module of a benchmark."""
    return resolve(PACKAGE, name.replace("-", "_"))


def takes_days(name: str) -> bool:
    """Whether the benchmark is to be run by its name only."""
    return bool(getattr(benchmark(name), "DAYS", False))


def options_of(name: str) -> Mapping[str, str]:
    """The options that a benchmark has besides those of all, with their help."""
    found: Mapping[str, str] = getattr(benchmark(name), "OPTIONS", {})
    return found


def check_one_meaning(option: str, given: str | None, chosen: Sequence[str]) -> None:
    """An option that is given means the same to all benchmarks ``chosen`` that have it."""
    texts = {name: options_of(name)[option] for name in chosen if option in options_of(name)}
    if given is not None and len(set(texts.values())) > 1:
        meanings = "; ".join(f"{name}: {text}" for name, text in texts.items())
        raise BadInput(f"--{option} {given} means another thing to each ({meanings}): run them one by one")


def check_no_loss(out: Path, chosen: Sequence[str]) -> None:
    """Refuse a quick run that would overwrite the figures of a whole one."""
    if lost := [str(file) for file in (out / f"{name}.json" for name in chosen) if is_whole(file)]:
        raise BadInput(f"figures of whole runs, which a quick one would overwrite: {', '.join(lost)}; say another "
                       "folder with --out, or move them away")


def is_whole(file: Path) -> bool:
    """Whether ``file`` has figures of a run that was not quick."""
    try:
        return json.loads(file.read_text())["quick"] is False
    except (OSError, ValueError, KeyError, TypeError):
        return False  # no result of a run


def measure(name: str, quick: bool, out: Path, options: Options, command: str, quiet: bool = False) -> dict[str, Any]:
    """Run one benchmark and write ``out``/NAME.json. ``command``: what was typed; ``quiet``: nothing on standard
    output."""
    from temporeal.policies.export.provenance import revision

    if not quiet:
        say(f"{name}{' (quick)' if quick else ''} ...")
    own = {option: options.get(option) for option in options_of(name)}
    measured_on, code, began = machine(), revision(), time.perf_counter()
    with no_output() if quiet else redirect_stdout(sys.stdout):
        rows: list[Row] = benchmark(name).run(quick, out=out / name, **own)
    result = {
        "bench": name, "command": command, "revision": code, "quick": quick,
        "seconds": round(time.perf_counter() - began, 3),
        "date": now(),
        "machine": measured_on, "rows": [plain(asdict(row)) for row in rows],
    }
    write_whole(out / f"{name}.json", (json.dumps(result, indent=2) + "\n").encode())
    return result


def keep(name: str, out: Path, options: Options, folder: Path = RESULTS) -> Path:
    """Put the result in ``out`` into the repository; its file there."""
    study = getattr(benchmark(name), "STUDY", None)
    study = study(options) if callable(study) else study
    file = folder / f"{kept_name(name, options)}.json"
    write_whole(file, (out / f"{name}.json" if study is None else out / name / study).read_bytes())
    return file


def kept_name(name: str, options: Options) -> str:
    """``faults``, or ``faults-clean`` of a run with ``--parts clean``."""
    narrowing = [option for option in getattr(benchmark(name), "NARROWING", ()) if options.get(option)]
    words = [word for option in narrowing for word in options[option] or ()]
    return re.sub(r"[^a-z0-9]+", "-", "-".join([name, *words]).lower()).strip("-")


@contextmanager
def no_output() -> Iterator[None]:
    """What a benchmark and its processes print goes to standard error: standard output is for the result."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text."""
    head = ("figure", "value", "unit", "target", "peer", "")
    mark = {True: "ok", False: "MISSED", None: ""}
    cells = [head, *((r.name, number(r.value), r.unit, number(r.target), number(r.peer), mark[r.ok]) for r in rows)]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  " + "  ".join(f"{c:{w}}" for c, w in zip(row, width)).rstrip() for row in cells)


def number(value: Value) -> str:
    """A figure with four significant digits; text as it is."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
