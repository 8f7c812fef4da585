"""Benchmarks made of parts: a folder of modules, each of which measures one thing.

A part is a module ``benchmarks/<bench>/<part>.py`` with ``rows(quick, out) -> list[Row]``; its file's first line says
what it measures. A study (:mod:`temporeal_benchmarks.data.studies`: a part ``...-study``, or one with a function
``study``) takes hours: it is measured where it is named, and goes on where it was stopped; else its rows are of the
trials that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.options import among
from temporeal_benchmarks.rows import Row


@dataclass(frozen=True)
class Parts:
    """The parts of the benchmark ``bench``; ``called``: as one writes it, where that is another name."""

    bench: str
    called: str = ""

    @property
    def folder(self) -> Path:
        """Of its modules."""
        return Path(__file__).parent / self.bench

    @property
    def studies(self) -> tuple[str, ...]:
        """Those that take hours."""
        return tuple(sorted(path.stem.replace("_", "-") for path in self.folder.glob("*.py")
                            if path.stem.endswith("_study") or "\ndef study(" in path.read_text()))

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        measuring = [path.stem.replace("_", "-") for path in self.folder.glob("*.py")
                     if "\ndef rows(" in path.read_text()]
        return tuple(sorted((*self.studies, *measuring)))

    def options(self) -> dict[str, str]:
        """What ``--parts`` takes."""
        return {"parts": f"{', '.join(self.names)} (default: all; studies, which take hours, are measured only where "
                         "named)"}

    def run(self, quick: bool, out: Path, parts: list[str] | None) -> list[Row]:
        """The parts that are asked for."""
        rows = list[Row]()
        for part in among("parts", parts, self.names):
            module = import_module(f"temporeal_benchmarks.{self.bench}.{part.replace('-', '_')}")
            if part not in self.studies:
                rows += module.rows(quick, out / part)
            elif parts is None or quick:
                rows += module.judged(studies.read(out / part))
            else:
                rows += studies.measured(part, module, out / part, self.called or self.bench)
        return rows

    def study_file(self, options: Mapping[str, list[str] | None]) -> str | None:
        """The file that is kept of a run with these options, if it was of one study."""
        parts = options.get("parts") or []
        return f"{parts[0]}/{studies.KEPT}" if len(parts) == 1 and parts[0] in self.studies else None
