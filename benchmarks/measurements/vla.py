"""``temporeal bench vla``: vision-language-action policies: inference, tuning, reinforcement learning, progress models.

Its parts (:mod:`temporeal_benchmarks.parts`) are the modules of ``benchmarks/vla``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.rows import Row

PARTS = Parts("vla")
HELP = (
    "vision-language-action policies: time of an inference, overlap of rendering and learning, tuning by "
    "demonstrations and by reinforcement learning, progress models, missions by typed instructions"
)
OPTIONS = PARTS.options()
NARROWING = ("parts",)
STUDY = PARTS.study_file


def run(quick: bool, *, out: Path, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    return PARTS.run(quick, out, parts)
