"""Studies of learning: trials that take hours, one JSON line each, resumable.

A study is a part ``<name>_study`` of a benchmark such as ``temporeal bench data``, measured where ``--parts`` names it
and else read. Its module has ``study(out)``, which makes the trials that are missing, and ``judged(trials) ->
list[Row]``, one row per target, ``not measured`` where trials are missing. Its trials are in ``trials.jsonl`` of its
folder: each says its name, ``trial``, and the revision and the date of its measurement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from temporeal_benchmarks.machine import short_revision
from temporeal_benchmarks.results import as_json, now, study_document
from temporeal_benchmarks.rows import Row, not_measured

FILE, KEPT = "trials.jsonl", "kept.json"

Trial = Mapping[str, Any]


def read(folder: Path) -> dict[str, Trial]:
    """The trials in a study's folder, by name."""
    file = folder / FILE
    lines = file.read_text().splitlines() if file.exists() else []
    return {found["trial"]: found for found in map(json.loads, filter(None, lines))}


def add(folder: Path, name: str, found: Trial) -> Trial:
    """Write a trial to the folder's file; returns it as it is written."""
    trial = {"trial": name, **found, "revision": short_revision(), "date": now()}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(trial) + "\n")
    return trial


def missing(
    row: str, unit: str, target: float | str | None, part: str, there: str, bench: str = "data"
) -> Row:
    """A row whose trials are not all there: ``there`` says which are."""
    return not_measured(row, unit, target, f"{there}; temporeal bench {bench} --parts {part}")


def measured(part: str, module: ModuleType, out: Path, bench: str = "data") -> list[Row]:
    """Make the trials that are missing, and write with their rows what is kept of the study."""
    from temporeal.robots.atomic_files import write_whole

    module.study(out)
    trials = read(out)
    rows: list[Row] = module.judged(trials)
    document = study_document(bench, rows, [dict(trial) for trial in trials.values()],
                              command=f"temporeal bench {bench} --parts {part}")
    write_whole(out / KEPT, as_json(document, inline=("estimates", "gated", "each")).encode())
    return rows
