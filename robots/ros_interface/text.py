"""Numbers and lines of a ``ros.yaml`` as people would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import Any

import yaml


class TemplateError(ValueError):
    """The robot's spec lacks what a template needs; the message says what, and what is legal."""


def rounded(value: float, digits: int = 4) -> float:
    """``value`` with so many significant digits."""
    return float(f"{value:.{digits}g}")


def inside(value: float, digits: int = 3) -> float:
    """``value`` with so many significant digits, never larger: for margins that must not exceed another's."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (floor(log10(value)) - digits + 1)
    return rounded(floor(value / unit + 1e-9) * unit, digits)


def shared(values: Iterable[float]) -> float | list[float]:
    """One number if all are equal, else the list."""
    listed = [rounded(value) for value in values]
    return listed[0] if len(set(listed)) == 1 else listed


def flow(value: Any) -> str:
    """``value`` in one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=2**31)
    return text.removesuffix("\n").removesuffix("\n...")


def indented(lines: Iterable[str], by: int) -> list[str]:
    """The lines, ``by`` spaces further right."""
    return [" " * by + line if line else line for line in lines]


def comment(*sentences: str, width: int = 117) -> list[str]:
    """A comment, in as many lines as it needs."""
    lines, words = [""], " ".join(sentences).split()
    for word in words:
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}"
    return [f"#{line}" for line in lines]


def named(names: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(names) or "none"
