"""Figures that others published, beside ours: nothing is measured."""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.any_formula.targets import PUBLISHED
from temporeal_benchmarks.rows import Row


def rows(quick: bool, out: Path) -> list[Row]:
    """A row each, without a target."""
    return [Row(f"any_formula.published.{name}", value, unit, peer=said) for name, value, unit, said in PUBLISHED]
