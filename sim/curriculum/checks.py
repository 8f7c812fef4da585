"""Numbers of a curriculum's settings, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from typing import Any


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def number(where: str, value: Any) -> float:
    """``value`` as a finite number."""
    if not is_number(value):
        raise ValueError(f"{where} is a finite number, got {value!r}")
    return float(value)


def pair(where: str, value: Any) -> tuple[float, float]:
    """``value`` as [least, greatest]; one number is both."""
    ends = value if isinstance(value, (list, tuple)) else (value, value)
    if len(ends) != 2:
        raise ValueError(f"{where} is a number or [least, greatest], got {value!r}")
    low, high = number(where, ends[0]), number(where, ends[1])
    if low > high:
        raise ValueError(f"{where} is [least, greatest], got {value!r}")
    return low, high


def check_settings(settings: Any, shares: Sequence[str] = ()) -> None:
    """The fields of a dataclass are numbers, or pairs of them, as annotated; those called ``shares`` are 0 to 1."""
    for f in fields(settings):
        value, is_pair, whole = getattr(settings, f.name), str(f.type).startswith("tuple"), "int" in str(f.type)
        numbers = value if is_pair and isinstance(value, tuple) else (value,)
        if len(numbers) != (2 if is_pair else 1) or not all(map(is_number, numbers)):
            legal = "[least, greatest]" if is_pair else "a finite number"
            raise ValueError(f"curriculum.{f.name} is {legal}, got {value!r}")
        if whole and not all(isinstance(x, int) for x in numbers):
            raise ValueError(f"curriculum.{f.name} is a whole number{' each' if is_pair else ''}, got {value!r}")
        if f.name in shares and not 0 <= value <= 1:
            raise ValueError(f"curriculum.{f.name} is a share, 0 to 1, got {value!r}")
