"""``temporeal bench reality``: how far the simulator is from robots that others flew.

Its parts (:mod:`temporeal_benchmarks.parts`) are the modules of ``benchmarks/reality``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.rows import Row

PARTS = Parts("reality")
HELP = "identification from logs of real flights and of simulated ones whose parameters are known"
OPTIONS = PARTS.options()
NARROWING = ("parts",)
STUDY = PARTS.study_file


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    return PARTS.run(quick, out, parts)
