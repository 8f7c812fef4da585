"""Reasons why a training does not begin or go on, shared by all algorithms."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Sequence
from typing import Any


class SettingsError(ValueError):
    """Settings that do not fit the environment."""


class NonFiniteError(RuntimeError):
    """A loss or gradient became NaN or infinite."""


def require(config: object, **ranges: str) -> None:
    """Refuse settings of ``config`` outside their ``ranges``, in the notation of intervals: ``gamma="[0, 1)"``.

    Of several numbers each lies inside; None is no number.
    """
    for name, text in ranges.items():
        value = getattr(config, name)
        for number in value if isinstance(value, Sequence) else [value]:
            if number is not None and not _inside(number, text):
                each = "each number of " if isinstance(value, Sequence) else ""
                raise SettingsError(f"{each}algo.{name} {WORDS.get(text, f'lies in {text}')}, got {number}")


WORDS = {"(0, inf)": "must be positive", "[0, inf)": "must not be negative", "[1, inf)": "is at least 1",
         "[2, inf)": "is at least 2"}


def _inside(number: float, text: str) -> bool:
    low, high = (float(end) for end in text[1:-1].split(","))
    return (low <= number if text[0] == "[" else low < number) and (number <= high if text[-1] == "]" else
                                                                    number < high)


def require_widths(config: object, *names: str) -> None:
    """Refuse settings of ``config`` that are no widths of layers: at least one, each at least 1."""
    for name in names:
        found = list(getattr(config, name))
        if not found or min(found) < 1:
            raise SettingsError(f"algo.{name} is a list of widths, at least one; got {found}")


def choose(config: object, **legal: Sequence[str]) -> None:
    """Refuse settings of ``config`` that are none of the ``legal`` words."""
    for name, words in legal.items():
        if getattr(config, name) not in words:
            raise SettingsError(f"algo.{name}={getattr(config, name)}: one of {', '.join(words)}")


def require_kinds(config: Any) -> None:
    """Refuse settings of the dataclass ``config`` that are not of their annotated kinds: before their ranges."""
    for name, hint in typing.get_type_hints(type(config)).items():
        if not fits(value := getattr(config, name), hint):
            wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("collections.abc.", "")
            raise SettingsError(f"algo.{name}={value!r}: expected {wanted}, finite")


def fits(value: object, hint: Any) -> bool:
    """Whether ``value`` is of the annotated type ``hint``: an int passes for a float, a list for a sequence of ints."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for choice in choices:
        kind = typing.get_origin(choice) or choice
        if kind is type(None):
            good = value is None
        elif kind in (int, float):
            good = isinstance(value, (int, kind)) and not isinstance(value, bool) and math.isfinite(value)
        elif kind in (bool, str):
            good = isinstance(value, kind)
        elif kind in (tuple, list, Sequence):
            item = (typing.get_args(choice) or (int,))[0]
            good = isinstance(value, (tuple, list)) and all(fits(each, item) for each in value)
        else:
            good = True  # the class itself must check what is no plain value
        if good:
            return True
    return False
