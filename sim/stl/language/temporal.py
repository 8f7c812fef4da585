"""Temporal operators, of the future and of the past, and their windows. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, isnan
from typing import ClassVar

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.text import number_text


@dataclass(frozen=True)
class Window:
    """Closed time window ``[lo, hi]`` in seconds from now; ``hi = inf`` reaches to the end of the trace."""

    lo: float = 0.0
    hi: float = inf

    def __post_init__(self) -> None:
        if isnan(self.lo) or isnan(self.hi) or isinf(self.lo):
            raise FormulaError(f"window [{self.lo},{self.hi}]: the bounds must be numbers, the lower one finite")
        if not 0 <= self.lo <= self.hi:
            shown = f"window [{number_text(self.lo)},{number_text(self.hi)}]"
            raise FormulaError(f"{shown} {'starts before now' if self.lo < 0 else 'is reversed'}: 0 <= lo <= hi")


ALL_TIME = Window()


def window_text(window: Window) -> str:
    """``[lo,hi]`` in seconds, nothing for all time."""
    return "" if window == ALL_TIME else f"[{number_text(window.lo)},{number_text(window.hi)}]"


# ---------------------------------------------------------------- the three forms


@dataclass(frozen=True)
class WindowedUnary(Formula):
    """A temporal operator over one formula: :class:`Always`, :class:`Eventually` and their mirrors in the past."""

    arg: Formula
    window: Window = ALL_TIME
    letter: ClassVar[str]
    binding = 6

    def _text(self, level: int) -> str:
        return self._enclosed(f"{self.letter}{window_text(self.window)} {self.arg._text(self.binding)}", level)


@dataclass(frozen=True)
class WindowedBinary(Formula):
    """A temporal operator over two formulas: :class:`Until`, :class:`Release`, :class:`WeakUntil`, :class:`Since`."""

    left: Formula
    right: Formula
    window: Window = ALL_TIME
    letter: ClassVar[str]
    binding = 5

    def _text(self, level: int) -> str:
        left, right = self.left._text(self.binding + 1), self.right._text(self.binding + 1)
        return self._enclosed(f"{left} {self.letter}{window_text(self.window)} {right}", level)


@dataclass(frozen=True)
class _OneSample(Formula):
    arg: Formula
    strong: bool = False
    words: ClassVar[tuple[str, str]]
    """In a text: weak, strong."""
    binding = 6

    def _text(self, level: int) -> str:
        return self._enclosed(f"{self.words[self.strong]} {self.arg._text(self.binding)}", level)


# ---------------------------------------------------------------- the future


class Always(WindowedUnary):
    """``arg`` at every sample of the window."""

    letter = "G"


class Eventually(WindowedUnary):
    """``arg`` at some sample of the window."""

    letter = "F"


class Until(WindowedBinary):
    """``right`` at some sample of the window, and ``left`` at every sample from now to the one before it."""

    letter = "U"


class Release(WindowedBinary):
    """At every sample of the window ``right``, or ``left`` at a sample from now to the one before it.

    The dual of until: ``!(!left U !right)``.
    """

    letter = "R"


class WeakUntil(WindowedBinary):
    """``left U[lo,hi] right``, or ``left`` at every sample from now to the end of the window: ``G[0,hi] left``."""

    letter = "W"


class Next(_OneSample):
    """``arg`` at the next sample. At the last sample of a trace it is true, with ``strong`` false."""

    words = "X", "s_next"


# ---------------------------------------------------------------- the past


class Historically(WindowedUnary):
    """``arg`` at every sample from ``hi`` to ``lo`` seconds ago; an unbounded window begins with the trace."""

    letter = "H"


class Once(WindowedUnary):
    """``arg`` at some sample from ``hi`` to ``lo`` seconds ago."""

    letter = "O"


class Since(WindowedBinary):
    """``right`` at some sample from ``hi`` to ``lo`` seconds ago, and ``left`` at every later one up to now."""

    letter = "S"


class Previous(_OneSample):
    """``arg`` at the sample before. At the first sample of a trace it is true, with ``strong`` false."""

    words = "Y", "s_prev"


FUTURE = (Always, Eventually, Until, Release, WeakUntil, Next)
PAST = (Historically, Once, Since, Previous)
