"""``temporeal bench data``: datasets, import, learning from them, and how far their estimates can be trusted.

Its parts (:mod:`temporeal_benchmarks.parts`) are the modules of ``benchmarks/data``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.rows import Row

PARTS = Parts("data")
HELP = (
    "datasets on disk against a raw numpy gather and LeRobot's loader, killed writers, damage; import, imitation, "
    "offline learning and off-policy evaluation, as far as each has a part"
)
OPTIONS = PARTS.options()
NARROWING = ("parts",)
STUDY = PARTS.study_file


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    return PARTS.run(quick, out, parts)
