"""Results that are kept in the repository, ``benchmarks/results/*.json``: what a file says, and which figure counts.

A file holds one run of a benchmark, or several under ``runs``. A run says its ``bench``, ``command``, ``revision``,
``date``, ``machine`` and ``rows`` (:class:`temporeal_benchmarks.rows.Row`); a study has ``revisions``, those of its
trials, and the ``trials``. Several files may be of one benchmark: of each figure the newest that was measured counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from temporeal_benchmarks.machine import git, machine, short_revision
from temporeal_benchmarks.rows import Row

RESULTS = Path(__file__).parent / "results"
STALE = 300
"""Commits after which a figure is stale."""
FIELDS = ("bench", "command", "revision", "date", "machine")
"""What each run has to say."""
HASH = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Run:
    """A run of a benchmark. ``revisions``: of the code that was measured; ``machine``: as text; ``note``: what a reader
    must know."""

    bench: str
    command: str
    revisions: tuple[str, ...]
    date: str
    machine: str
    rows: tuple[Row, ...]
    note: str
    file: str


def run_of(said: Mapping[str, Any], file: str) -> Run:
    """A run as it is written in ``file``."""
    return Run(said["bench"], said["command"], tuple(said.get("revisions") or [said["revision"]]), said["date"],
               machine_text(said["machine"]), tuple(Row(**row) for row in said.get("rows", ())),
               said.get("note") or said.get("left_out", ""), file)


def machine_text(machine: Mapping[str, Any]) -> str:
    """``AMD EPYC, 2 cores, load 1.9, Python 3.11.7``, a GPU first."""
    parts = [machine.get("device"), machine.get("cpu"), f"{machine['cores']} cores" if "cores" in machine else None,
             f"load {machine['load']:g}" if "load" in machine else None,
             f"Python {machine['python']}" if "python" in machine else None]
    return ", ".join(part for part in parts if part)


def all_runs(folder: Path = RESULTS) -> list[Run]:
    """Every run that is kept, the newest first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        said = json.loads(path.read_text())
        found += [run_of({"bench": said["bench"], **one}, path.name) for one in said.get("runs", [said])]
    return sorted(found, key=lambda run: run.date, reverse=True)


def runs_of(bench: str, folder: Path = RESULTS) -> list[Run]:
    """The runs of one benchmark that are kept, the newest first."""
    return [run for run in all_runs(folder) if run.bench == bench]


def current(runs: Iterable[Run]) -> dict[str, tuple[Row, Run]]:
    """By name, the newest row that was measured, and its run. ``runs``: the newest first."""
    found: dict[str, tuple[Row, Run]] = {}
    for run in runs:
        for row in run.rows:
            if row.name not in found or (found[row.name][0].value is None and row.value is not None):
                found[row.name] = row, run
    return found


@cache
def age(revision: str) -> int | None:
    """Commits since ``revision``; None where that is unknown: in an export, in a shallow clone, of a revision
    that this clone does not have."""
    found = HASH.match(revision)
    if found is None or git("rev-parse", "--is-shallow-repository") != "false":
        return None
    count = git("rev-list", "--count", f"{found[0]}..HEAD")
    return int(count) if count else None


def is_stale(run: Run) -> bool | None:
    """Whether the oldest code that was measured is older than STALE commits; None where that is unknown."""
    ages = [age(revision) for revision in run.revisions]
    known = [found for found in ages if found is not None]
    return any(found > STALE for found in known) or (False if len(known) == len(ages) else None)


# ---------------------------------------------------------------- studies


def study_document(bench: str, rows: Iterable[Row], trials: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """What a study of ``trials``, each with its ``revision``, keeps."""
    from temporeal.policies.cli.console import plain

    revisions = sorted({str(trial["revision"]) for trial in trials})
    return {"bench": bench, "command": f"temporeal bench {bench}", "revision": short_revision(), "revisions": revisions,
            "date": now(), "machine": machine(), **more, "rows": [plain(asdict(row)) for row in rows], "trials": trials}


def now() -> str:
    """The date, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def as_json(document: Mapping[str, Any], inline: Iterable[str] = ("curve",)) -> str:
    """``document`` as JSON; what is under a key of ``inline`` is on one line, in whatever depth."""
    lines: dict[str, str] = {}

    def marked(value: Any, key: str = "") -> Any:
        if key in inline:
            mark = f"\0{len(lines)}"
            lines[json.dumps(mark)] = json.dumps(value, separators=(",", ":"))
            return mark
        if isinstance(value, Mapping):
            return {name: marked(item, name) for name, item in value.items()}
        return [marked(item) for item in value] if isinstance(value, (list, tuple)) else value

    text = json.dumps(marked(document), indent=1)
    parts = re.split(r'("\\u0000\d+")', text)
    return "".join(lines.get(part, part) for part in parts) + "\n"
