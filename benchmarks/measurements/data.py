"""``temporeal bench data``: datasets, import, learning from them, and how far their estimates can be trusted.

A part is a module ``benchmarks/data/<part>.py`` with ``rows(quick, out) -> list[Row]``; its file's first line says what
it measures.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from temporeal_benchmarks.options import among
from temporeal_benchmarks.rows import Row

FOLDER = Path(__file__).parents[1] / "data"
PARTS = tuple(sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.py") if "\ndef rows(" in path.read_text()))
HELP = (
    "datasets on disk against a raw numpy gather and LeRobot's loader, killed writers, damage; import, imitation, "
    "offline learning and off-policy evaluation, as far as each has a part"
)
OPTIONS = {"parts": f"{', '.join(PARTS)} (default: all)"}
NARROWING = ("parts",)


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    rows = list[Row]()
    for part in among("parts", parts, PARTS):
        module = import_module(f"temporeal_benchmarks.data.{part.replace('-', '_')}")
        rows += module.rows(quick, out / part)
    return rows
