"""Windows in samples instead of seconds: exactly, or not at all."""

from __future__ import annotations

from math import inf, isinf

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.temporal import Window
from temporeal.sim.stl.language.text import number_text


def steps(seconds: float, dt: float) -> int:
    """``seconds`` in samples: exact up to 1e-9, the rounding of decimal fractions, or a :class:`FormulaError`."""
    if not 0 < dt < inf:
        raise FormulaError(f"the sample period must be positive and finite, got dt = {dt} s")
    count = round(seconds / dt)
    if abs(seconds / dt - count) > 1e-9 * max(1.0, count):
        raise FormulaError(
            f"window bound {number_text(seconds)} s is no multiple of the sample period dt = {number_text(dt)} s "
            f"({seconds / dt:.6g} samples)")
    return count


def window_steps(window: Window, dt: float) -> tuple[int, int | None]:
    """A window in samples; ``None``: to the end of the trace."""
    return steps(window.lo, dt), None if isinf(window.hi) else steps(window.hi, dt)
