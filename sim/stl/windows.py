"""Sliding windows over axis 0 by doubling: time O(T log w), memory O(T), for every array library and lattice.

A window that reaches past the end is clipped to the trace; one that lies wholly past it is empty and gives the
neutral element (+inf for a minimum, -inf for a maximum), which is rtamt's convention.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isinf
from typing import Any

import numpy as np

from sim.stl.syntax import FormulaError, Window, number_text

Array = Any
Combine = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Lattice:
    """Truth values and how they combine: real margins (min, max, negation) or Booleans (and, or, not).

    ``concat`` joins along axis 0; ``rows(like, n, fill)`` makes ``n`` rows like those of ``like``;
    ``where(mask, x, fill)`` keeps ``x`` where ``mask``.
    """

    meet: Combine
    join: Combine
    complement: Callable[[Array], Array]
    top: float | bool
    bottom: float | bool
    concat: Callable[[Sequence[Array]], Array]
    rows: Callable[[Array, int, float | bool], Array]
    where: Callable[[Array, Array, float | bool], Array]


def dual(lattice: Lattice) -> Lattice:
    """The lattice with meet and join, top and bottom exchanged."""
    return replace(lattice, meet=lattice.join, join=lattice.meet, top=lattice.bottom, bottom=lattice.top)


def _numpy_rows(like: Array, count: int, fill: float | bool) -> Array:
    return np.full((count, *like.shape[1:]), fill, dtype=like.dtype)


def _numpy_where(mask: Array, x: Array, fill: float | bool) -> Array:
    return np.where(mask, x, np.asarray(fill, dtype=x.dtype))


NUMPY_MARGINS = Lattice(
    np.minimum, np.maximum, operator.neg, inf, -inf, np.concatenate, _numpy_rows, _numpy_where)
NUMPY_TRUTHS = Lattice(
    np.logical_and, np.logical_or, np.logical_not, True, False, np.concatenate, _numpy_rows, _numpy_where)


def steps(seconds: float, dt: float) -> int:
    """``seconds`` in samples. Exact up to 1e-9 (the rounding of decimal fractions), or a :class:`FormulaError`."""
    if not dt > 0:
        raise FormulaError(f"the sample period must be positive, got dt = {dt} s")
    count = round(seconds / dt)
    if abs(seconds / dt - count) > 1e-9 * max(1.0, count):
        raise FormulaError(
            f"window bound {number_text(seconds)} s is no multiple of the sample period dt = {number_text(dt)} s "
            f"({seconds / dt:.6g} samples)")
    return count


def window_steps(window: Window, dt: float) -> tuple[int, int | None]:
    """A window in samples; ``None``: to the end of the trace."""
    return steps(window.lo, dt), None if isinf(window.hi) else steps(window.hi, dt)


def sliding(x: Array, lo: int, hi: int | None, combine: Combine, neutral: float | bool, lattice: Lattice) -> Array:
    """``combine`` over ``x[t+lo .. t+hi]`` for each t, clipped at the end; ``neutral`` where that is empty."""
    length = len(x)
    if lo >= length:
        return lattice.rows(x, length, neutral)
    width = (length if hi is None else min(hi, length - 1) + 1) - lo
    out, size = x[lo:], 1
    while 2 * size <= width:
        out = _shifted(out, size, combine, lattice)
        size *= 2
    if width > size:
        out = _shifted(out, width - size, combine, lattice)
    return lattice.concat([out, lattice.rows(x, lo, neutral)]) if lo else out


def _shifted(x: Array, by: int, combine: Combine, lattice: Lattice) -> Array:
    """``combine(x[t], x[t+by])``, and ``x[t]`` where there is no ``x[t+by]``."""
    return lattice.concat([combine(x[:-by], x[by:]), x[-by:]]) if by < len(x) else x


def until(left: Array, right: Array, lo: int, hi: int | None, lattice: Lattice) -> Array:
    """``left U[lo,hi] right`` for each t: max over t' in [t+lo, t+hi] of min(right[t'], min of left[t .. t'-1]).

    With f_t(u) = max(right[t], min(left[t], u)), the untimed until from t is f_t after f_t+1 after ...; a
    composition of such functions is one again, so doubling works. The window is met by the identity
    ``left U[a,b] right = F[a,b] right & G[0,a-1] left & (left U right)(t+a)``, which holds for any until that
    looks at least to b.
    """
    length = len(right)
    if lo >= length:
        return lattice.rows(right, length, lattice.bottom)
    width = (length if hi is None else min(hi, length - 1) + 1) - lo
    keep, reach, size = left[lo:], right[lo:], 1
    while size < width:
        if size < len(reach):
            ahead = lattice.meet(keep[:-size], reach[size:])
            reach = lattice.concat([lattice.join(reach[:-size], ahead), reach[-size:]])
        keep = _shifted(keep, size, lattice.meet, lattice)
        size *= 2
    if size > width:
        reach = lattice.meet(reach, sliding(right[lo:], 0, width - 1, lattice.join, lattice.bottom, lattice))
    if lo:
        reach = lattice.concat([reach, lattice.rows(right, lo, lattice.bottom)])
        reach = lattice.meet(reach, sliding(left, 0, lo - 1, lattice.meet, lattice.top, lattice))
    return reach
