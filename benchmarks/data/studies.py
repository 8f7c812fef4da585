"""Studies of learning from data: trials that take hours, one JSON line each, resumable; and the results that are kept.

    python -m temporeal_benchmarks.data.studies offline outputs/offline_study     keep what a study's folder holds

A study is a module ``benchmarks/data/<name>_study.py`` with ``judged(trials) -> list[Row]``, one row per target,
``not measured`` where trials are missing. Its trials are in ``trials.jsonl`` of its folder: each says its name,
``trial``, and the revision and the date of its measurement. ``temporeal bench data --kept`` prints the rows that are
kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from temporeal_benchmarks.machine import short_revision
from temporeal_benchmarks.results import RESULTS, as_json, now, study_document

FILE = "trials.jsonl"
STUDIES = tuple(sorted(path.stem.removesuffix("_study") for path in Path(__file__).parent.glob("*_study.py")))

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


def keep(study: str, folder: Path, results: Path = RESULTS) -> Path:
    """Write the trials of ``study`` in ``folder`` and their rows to the results that are kept."""
    from temporeal.robots.atomic_files import write_whole

    trials = read(folder)
    module = import_module(f"temporeal_benchmarks.data.{study}_study")
    document = study_document("data", module.judged(trials), [dict(trial) for trial in trials.values()])
    document["command"] = f"python -m {module.__name__} {{out}}"
    file = results / f"data-{study}.json"
    write_whole(file, as_json(document, inline=("estimates",)).encode())
    return file


def main(words: Sequence[str] | None = None) -> None:
    """Keep the results of a study."""
    found = list(sys.argv[1:] if words is None else words)
    if len(found) != 2 or found[0] not in STUDIES:
        sys.exit(f"usage: python -m temporeal_benchmarks.data.studies {{{','.join(STUDIES)}}} FOLDER")
    print(keep(found[0], Path(found[1])))


if __name__ == "__main__":
    main()
