"""Functions of rows by numpy calls. `numba_rows` has the same as loops, and describes them.

Minimum, maximum and arithmetic are exact or rounded the same way in both, so that the numbers are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.monitoring.instructions import ABS, ADD, COPY, DIV, GREATEST, LEAST, MUL, NEG, SQRT, SUB

Row = NDArray[Any]
Rows = NDArray[Any]
Times = NDArray[np.int64]


def copy(a: Row, out: Row) -> None:
    out[:] = a


def fill(out: Row, value: float) -> None:
    out[:] = value


def arithmetic(op: int, a: Row, b: Row, out: Row) -> None:
    _NUMPY_ARITHMETIC[op](a, b, out=out)


def divide(a: Row, b: Row, out: Row) -> None:
    """The quotients; NaN where the divisor is zero."""
    zero = b == 0  # first: ``out`` may be ``b``
    np.divide(a, b, out=out)
    out[zero] = np.nan


_NUMPY_ARITHMETIC: dict[int, Callable[..., Any]] = {
    COPY: lambda a, b, out: np.copyto(out, a), ADD: np.add, SUB: np.subtract, MUL: np.multiply, DIV: divide,
    LEAST: np.minimum, GREATEST: np.maximum, NEG: lambda a, b, out: np.negative(a, out=out),
    ABS: lambda a, b, out: np.abs(a, out=out), SQRT: lambda a, b, out: np.sqrt(a, out=out)}


def join(most: bool, a: Row, b: Row, out: Row) -> None:
    (np.maximum if most else np.minimum)(a, b, out=out)


def into(most: bool, acc: Row, x: Row) -> None:
    (np.maximum if most else np.minimum)(acc, x, out=acc)


def gather(most: bool, acc: Row, rows: Rows, first: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        operation(acc, operation.reduce(rows[first : first + count], axis=0), out=acc)


def merge(most: bool, rows: Rows, a: int, b: int, dst: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        operation(rows[a : a + count], rows[b : b + count], out=rows[dst : dst + count])


def suffixes(most: bool, rows: Rows, src: int, dst: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        found = operation.accumulate(np.vstack([rows[dst + count], rows[src : src + count][::-1]]), axis=0)
        rows[dst : dst + count] = found[:0:-1]


def started(x: Row, start: Times, time: int, fill: float, out: Row) -> None:
    out[:] = np.where(start <= time, x, np.asarray(fill, dtype=out.dtype))


def apply_map(most: bool, p1: Row, q1: Row, p2: Row, out: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p1, inner(q1, p2), out=out)


def append(most: bool, p: Row, q: Row, p2: Row, q2: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p, inner(q, p2), out=p)
    inner(q, q2, out=q)


def prepend(most: bool, p1: Row, q1: Row, p: Row, q: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p1, inner(q1, p), out=p)
    inner(q, q1, out=q)


def known(margin: Row, sign: float, tie: float, unknown: float, out: Row) -> None:
    out[:] = np.where(np.isnan(margin), unknown, np.where(margin == 0, tie, sign * margin))


def within(most: bool, acc: Row, x: Row, start: Times, time: int, first: int, last: int) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    acc[inside] = (np.maximum if most else np.minimum)(acc, x)[inside]


def append_within(
    most: bool, p: Row, q: Row, p2: Row, q2: Row, start: Times, time: int, first: int, last: int
) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    new_p, new_q = p.copy(), q.copy()
    append(most, new_p, new_q, p2, q2)
    p[inside], q[inside] = new_p[inside], new_q[inside]


def prepend_within(
    most: bool, p1: Row, q1: Row, p: Row, start: Times, time: int, first: int, last: int
) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    new = p.copy()
    apply_map(most, p1, q1, p, new)
    p[inside] = new[inside]
