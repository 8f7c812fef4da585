"""``temporeal bench residual``: off-policy learning and residual policies.

Its parts (:mod:`temporeal_benchmarks.parts`) are the modules of ``benchmarks/residual``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.rows import Row

PARTS = Parts("residual")
HELP = "off-policy learning and residual policies: updates per second, as far as each has a part"
OPTIONS = PARTS.options()
NARROWING = ("parts",)
STUDY = PARTS.study_file


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    return PARTS.run(quick, out, parts)
