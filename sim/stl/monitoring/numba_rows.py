"""Functions of rows as loops, from which numba makes vector instructions. `numpy_rows` has the same as numpy calls.

A *row* is a one-dimensional array with one number per lane, that is per world. ``most`` True is the maximum, False the
minimum; NaN wins over every number. A *map* is a pair of rows (p, q) that stands for ``u -> max(p, min(q, u))``, with
min and max swapped without ``most``; maps compose: ``(p1, q1) after (p2, q2) = (max(p1, min(q1, p2)), min(q1, q2))``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.sim.stl.monitoring.instructions import ABS, ADD, COPY, DIV, GREATEST, LEAST, MUL, NEG, SQRT, SUB
from temporeal.sim.stl.monitoring.numpy_rows import Row, Rows, Times


def least(a: Any, b: Any) -> Any:
    return a if (a < b) | (a != a) else b


def greatest(a: Any, b: Any) -> Any:
    return a if (a > b) | (a != a) else b


def copy(a: Row, out: Row) -> None:
    for i in range(out.size):
        out[i] = a[i]


def fill(out: Row, value: float) -> None:
    for i in range(out.size):
        out[i] = value


def arithmetic(op: int, a: Row, b: Row, out: Row) -> None:
    n = out.size
    if op == COPY:
        for i in range(n):
            out[i] = a[i]
    elif op == ADD:
        for i in range(n):
            out[i] = a[i] + b[i]
    elif op == SUB:
        for i in range(n):
            out[i] = a[i] - b[i]
    elif op == MUL:
        for i in range(n):
            out[i] = a[i] * b[i]
    elif op == DIV:
        for i in range(n):
            # by zero: 0 / 0, which is NaN in the type of the numbers
            out[i] = a[i] / b[i] if b[i] != 0 else (b[i] - b[i]) / (b[i] - b[i])
    elif op == LEAST:
        for i in range(n):
            out[i] = least(a[i], b[i])
    elif op == GREATEST:
        for i in range(n):
            out[i] = greatest(a[i], b[i])
    elif op == NEG:
        for i in range(n):
            out[i] = -a[i]
    elif op == ABS:
        for i in range(n):
            out[i] = abs(a[i])
    elif op == SQRT:
        for i in range(n):
            out[i] = np.sqrt(a[i])


def join(most: bool, a: Row, b: Row, out: Row) -> None:
    """The maximum or minimum of ``a`` and ``b``."""
    if most:
        for i in range(out.size):
            out[i] = greatest(a[i], b[i])
    else:
        for i in range(out.size):
            out[i] = least(a[i], b[i])


def into(most: bool, acc: Row, x: Row) -> None:
    """The maximum or minimum of ``acc`` and ``x``, into ``acc``."""
    if most:
        for i in range(acc.size):
            acc[i] = greatest(acc[i], x[i])
    else:
        for i in range(acc.size):
            acc[i] = least(acc[i], x[i])


def gather(most: bool, acc: Row, rows: Rows, first: int, count: int) -> None:
    """The maximum or minimum of acc and ``count`` rows, into acc."""
    for r in range(first, first + count):
        if most:
            for i in range(acc.size):
                acc[i] = greatest(acc[i], rows[r, i])
        else:
            for i in range(acc.size):
                acc[i] = least(acc[i], rows[r, i])


def merge(most: bool, rows: Rows, a: int, b: int, dst: int, count: int) -> None:
    """Row dst+x becomes the maximum or minimum of the rows a+x and b+x, for x below ``count``."""
    for x in range(count):
        if most:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = greatest(rows[a + x, i], rows[b + x, i])
        else:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = least(rows[a + x, i], rows[b + x, i])


def suffixes(most: bool, rows: Rows, src: int, dst: int, count: int) -> None:
    """Row dst+x becomes the maximum or minimum of the rows src+x .. src+count-1 and dst+count."""
    for x in range(count - 1, -1, -1):
        if most:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = greatest(rows[src + x, i], rows[dst + x + 1, i])
        else:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = least(rows[src + x, i], rows[dst + x + 1, i])


def started(x: Row, start: Times, time: int, fill: float, out: Row) -> None:
    """``x`` where the lane has started by ``time``, else ``fill``."""
    for i in range(out.size):
        out[i] = x[i] if start[i] <= time else fill


def apply_map(most: bool, p1: Row, q1: Row, p2: Row, out: Row) -> None:
    """The map (p1, q1) applied to ``p2``."""
    if most:
        for i in range(out.size):
            out[i] = greatest(p1[i], least(q1[i], p2[i]))
    else:
        for i in range(out.size):
            out[i] = least(p1[i], greatest(q1[i], p2[i]))


def append(most: bool, p: Row, q: Row, p2: Row, q2: Row) -> None:
    """The map (p, q) becomes (p, q) after (p2, q2)."""
    if most:
        for i in range(p.size):
            p[i] = greatest(p[i], least(q[i], p2[i]))
            q[i] = least(q[i], q2[i])
    else:
        for i in range(p.size):
            p[i] = least(p[i], greatest(q[i], p2[i]))
            q[i] = greatest(q[i], q2[i])


def prepend(most: bool, p1: Row, q1: Row, p: Row, q: Row) -> None:
    """The map (p, q) becomes (p1, q1) after (p, q)."""
    if most:
        for i in range(p.size):
            p[i] = greatest(p1[i], least(q1[i], p[i]))
            q[i] = least(q[i], q1[i])
    else:
        for i in range(p.size):
            p[i] = least(p1[i], greatest(q1[i], p[i]))
            q[i] = greatest(q[i], q1[i])


def known(margin: Row, sign: float, tie: float, unknown: float, out: Row) -> None:
    """``sign * margin``, ``tie`` where the margin is 0, ``unknown`` where it is NaN."""
    for i in range(out.size):
        m = margin[i]
        out[i] = unknown if m != m else tie if m == 0 else sign * m


def within(most: bool, acc: Row, x: Row, start: Times, time: int, first: int, last: int) -> None:
    """:func:`into` for lanes whose own sample count at ``time`` is in first .. last."""
    for i in range(acc.size):
        index = time - start[i]
        value = greatest(acc[i], x[i]) if most else least(acc[i], x[i])
        acc[i] = value if (first <= index) & (index <= last) else acc[i]


def append_within(
    most: bool, p: Row, q: Row, p2: Row, q2: Row, start: Times, time: int, first: int, last: int
) -> None:
    """:func:`append` for lanes whose own sample count at ``time`` is in first .. last."""
    for i in range(p.size):
        index = time - start[i]
        if (first <= index) & (index <= last):
            if most:
                p[i], q[i] = greatest(p[i], least(q[i], p2[i])), least(q[i], q2[i])
            else:
                p[i], q[i] = least(p[i], greatest(q[i], p2[i])), greatest(q[i], q2[i])


def prepend_within(most: bool, p1: Row, q1: Row, p: Row, start: Times, time: int, first: int, last: int) -> None:
    """``p`` becomes the map (p1, q1) applied to it, for lanes whose own count at ``time`` is in first .. last."""
    for i in range(p.size):
        index = time - start[i]
        if (first <= index) & (index <= last):
            p[i] = greatest(p1[i], least(q1[i], p[i])) if most else least(p1[i], greatest(q1[i], p[i]))
