"""``temporeal bench data``: datasets, import, learning from them, and how far their estimates can be trusted.

A part is a module ``benchmarks/data/<part>.py`` with ``rows(quick, out) -> list[Row]``; its file's first line says what
it measures. A part ``...-study`` (:mod:`temporeal_benchmarks.data.studies`) takes hours: it is measured where it is
named, and goes on where it was stopped; else its rows are of the trials that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.options import among
from temporeal_benchmarks.rows import Row

FOLDER = Path(__file__).parents[1] / "data"
STUDIES = tuple(sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*_study.py")))
PARTS = tuple(sorted((*STUDIES, *(path.stem.replace("_", "-") for path in FOLDER.glob("*.py")
                                  if "\ndef rows(" in path.read_text()))))
HELP = (
    "datasets on disk against a raw numpy gather and LeRobot's loader, killed writers, damage; import, imitation, "
    "offline learning and off-policy evaluation, as far as each has a part"
)
OPTIONS = {"parts": f"{', '.join(PARTS)} (default: all; studies, which take hours, are measured only where named)"}
NARROWING = ("parts",)


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    rows = list[Row]()
    for part in among("parts", parts, PARTS):
        module = import_module(f"temporeal_benchmarks.data.{part.replace('-', '_')}")
        if part not in STUDIES:
            rows += module.rows(quick, out / part)
        elif parts is None or quick:
            rows += module.judged(studies.read(out / part))
        else:
            rows += studies.measured(part, module, out / part)
    return rows


def study_file(options: Mapping[str, list[str] | None]) -> str | None:
    """The file that is kept of a run with these options, if it was of one study."""
    parts = options.get("parts") or []
    return f"{parts[0]}/{studies.KEPT}" if len(parts) == 1 and parts[0] in STUDIES else None


STUDY = study_file
