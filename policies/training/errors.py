"""Reasons why a training does not begin or go on, shared by all algorithms."""

from __future__ import annotations

from collections.abc import Sequence


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
