"""``temporeal bench any-formula``: formulas that nobody has seen, flown in closed loop.

Its parts (:mod:`temporeal_benchmarks.parts`) are the modules of ``benchmarks/any_formula``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.rows import Row

PARTS = Parts("any_formula", called="any-formula")
HELP = ("one policy per robot on held-out formulas, one closed-loop rollout each, beside planners, TGPO trained on "
        "single formulas, and what others published")
OPTIONS = PARTS.options()
NARROWING = ("parts",)
STUDY = PARTS.study_file


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    return PARTS.run(quick, out, parts)
