"""The streaming evaluators' kernels: two interpreters of instruction tables, compiled by numba or run by numpy.

A *row* is a one-dimensional array with one number per lane (a world). The interpreters, :func:`run_stream` and
:func:`run_bounds`, are written once, over functions of rows, of which there are two sets: loops that numba turns into
vector instructions, and numpy calls. Minimum, maximum and the arithmetic of ``ARITHMETIC`` are exact or rounded the
same way in both, so that compiled or not the numbers are equal bit for bit. They compile once per
float type (numba's cache on disk), never per formula. Row functions and interpreters stand in one file because that
cache notices a change of this file only.

``most`` True is the maximum, False the minimum; NaN wins over every number. A *map* is a pair of rows (p, q) that
stands for ``u -> max(p, min(q, u))`` (min and max swapped without ``most``); maps compose:
``(p1, q1) after (p2, q2) = (max(p1, min(q1, p2)), min(q1, q2))``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[Any]
Rows = NDArray[Any]
Times = NDArray[np.int64]
Table = Any
"""int64 [instructions, COLUMNS], or the same as lists for numpy."""

COLUMNS = 10
COPY, ADD, SUB, MUL, DIV, LEAST, GREATEST, NEG, ABS, SQRT = range(10)
"""Codes of arithmetic."""
LOAD, ARITHMETIC, JOIN, INTO, SINCE, DELAY, SLIDE, FOLD, HOLD, SCAN, OUT = range(11)
"""Codes of a stream's instructions."""
(R_LEAF, R_FIXED, R_JOIN, R_INTO, R_SLIDE, R_HOLD, R_SCAN, R_FOLD,
 P_WINDOW, P_UNTIL, P_SINCE, P_JOIN, P_INTO, P_SHIFT, P_OUT) = range(15)
"""Codes of the bounds' instructions: R for sequences (a node at many samples), P for points (a node at one)."""
BASE, DEPTH, PERIOD, SETTLED, AHEAD, NEED = 0, 1, 2, 3, 4, 6
"""Columns of the table of sequences; the last two are pairs: of lower and of upper bounds."""
RUNNING, CLIP, STRONG, WEAK = range(4)
"""What lies after the newest sample: anything, nothing, or samples at which every literal is false or true."""
FOREVER = 1 << 60


# ---------------------------------------------------------------- numpy


def _np_copy(a: Row, out: Row) -> None:
    out[:] = a


def _np_fill(out: Row, value: float) -> None:
    out[:] = value


def _np_arithmetic(op: int, a: Row, b: Row, out: Row) -> None:
    _NUMPY_ARITHMETIC[op](a, b, out=out)


_NUMPY_ARITHMETIC: dict[int, Callable[..., Any]] = {
    COPY: lambda a, b, out: np.copyto(out, a), ADD: np.add, SUB: np.subtract, MUL: np.multiply, DIV: np.divide,
    LEAST: np.minimum, GREATEST: np.maximum, NEG: lambda a, b, out: np.negative(a, out=out),
    ABS: lambda a, b, out: np.abs(a, out=out), SQRT: lambda a, b, out: np.sqrt(a, out=out)}


def _np_join(most: bool, a: Row, b: Row, out: Row) -> None:
    (np.maximum if most else np.minimum)(a, b, out=out)


def _np_into(most: bool, acc: Row, x: Row) -> None:
    (np.maximum if most else np.minimum)(acc, x, out=acc)


def _np_gather(most: bool, acc: Row, rows: Rows, first: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        operation(acc, operation.reduce(rows[first : first + count], axis=0), out=acc)


def _np_merge(most: bool, rows: Rows, a: int, b: int, dst: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        operation(rows[a : a + count], rows[b : b + count], out=rows[dst : dst + count])


def _np_suffixes(most: bool, rows: Rows, src: int, dst: int, count: int) -> None:
    if count > 0:
        operation = np.maximum if most else np.minimum
        found = operation.accumulate(np.vstack([rows[dst + count], rows[src : src + count][::-1]]), axis=0)
        rows[dst : dst + count] = found[:0:-1]


def _np_since(x: Row, start: Times, time: int, fill: float, out: Row) -> None:
    out[:] = np.where(start <= time, x, np.asarray(fill, dtype=out.dtype))


def _np_last(most: bool, p1: Row, q1: Row, p2: Row, out: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p1, inner(q1, p2), out=out)


def _np_append(most: bool, p: Row, q: Row, p2: Row, q2: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p, inner(q, p2), out=p)
    inner(q, q2, out=q)


def _np_prepend(most: bool, p1: Row, q1: Row, p: Row, q: Row) -> None:
    inner, outer = (np.minimum, np.maximum) if most else (np.maximum, np.minimum)
    outer(p1, inner(q1, p), out=p)
    inner(q, q1, out=q)


def _np_known(margin: Row, sign: float, tie: float, unknown: float, out: Row) -> None:
    out[:] = np.where(np.isnan(margin), unknown, np.where(margin == 0, tie, sign * margin))


def _np_within(most: bool, acc: Row, x: Row, start: Times, time: int, first: int, last: int) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    acc[inside] = (np.maximum if most else np.minimum)(acc, x)[inside]


def _np_append_within(
    most: bool, p: Row, q: Row, p2: Row, q2: Row, start: Times, time: int, first: int, last: int
) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    new_p, new_q = p.copy(), q.copy()
    _np_append(most, new_p, new_q, p2, q2)
    p[inside], q[inside] = new_p[inside], new_q[inside]


def _np_prepend_within(
    most: bool, p1: Row, q1: Row, p: Row, start: Times, time: int, first: int, last: int
) -> None:
    index = time - start
    inside = (first <= index) & (index <= last)
    new = p.copy()
    _np_last(most, p1, q1, p, new)
    p[inside] = new[inside]


# ---------------------------------------------------------------- loops, which numba makes vector instructions of


def _copy(a: Row, out: Row) -> None:
    for i in range(out.size):
        out[i] = a[i]


def _fill(out: Row, value: float) -> None:
    for i in range(out.size):
        out[i] = value


def _least(a: Any, b: Any) -> Any:
    return a if (a < b) | (a != a) else b


def _greatest(a: Any, b: Any) -> Any:
    return a if (a > b) | (a != a) else b


def _arithmetic(op: int, a: Row, b: Row, out: Row) -> None:
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
            out[i] = a[i] / b[i]
    elif op == LEAST:
        for i in range(n):
            out[i] = _least(a[i], b[i])
    elif op == GREATEST:
        for i in range(n):
            out[i] = _greatest(a[i], b[i])
    elif op == NEG:
        for i in range(n):
            out[i] = -a[i]
    elif op == ABS:
        for i in range(n):
            out[i] = abs(a[i])
    elif op == SQRT:
        for i in range(n):
            out[i] = np.sqrt(a[i])


def _join(most: bool, a: Row, b: Row, out: Row) -> None:
    if most:
        for i in range(out.size):
            out[i] = _greatest(a[i], b[i])
    else:
        for i in range(out.size):
            out[i] = _least(a[i], b[i])


def _into(most: bool, acc: Row, x: Row) -> None:
    if most:
        for i in range(acc.size):
            acc[i] = _greatest(acc[i], x[i])
    else:
        for i in range(acc.size):
            acc[i] = _least(acc[i], x[i])


def _gather(most: bool, acc: Row, rows: Rows, first: int, count: int) -> None:
    """The maximum or minimum of acc and ``count`` rows, into acc."""
    for r in range(first, first + count):
        if most:
            for i in range(acc.size):
                acc[i] = _greatest(acc[i], rows[r, i])
        else:
            for i in range(acc.size):
                acc[i] = _least(acc[i], rows[r, i])


def _merge(most: bool, rows: Rows, a: int, b: int, dst: int, count: int) -> None:
    """Row dst+x becomes the maximum or minimum of the rows a+x and b+x, for x below ``count``."""
    for x in range(count):
        if most:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = _greatest(rows[a + x, i], rows[b + x, i])
        else:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = _least(rows[a + x, i], rows[b + x, i])


def _suffixes(most: bool, rows: Rows, src: int, dst: int, count: int) -> None:
    """Row dst+x becomes the maximum or minimum of the rows src+x .. src+count-1 and dst+count."""
    for x in range(count - 1, -1, -1):
        if most:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = _greatest(rows[src + x, i], rows[dst + x + 1, i])
        else:
            for i in range(rows.shape[1]):
                rows[dst + x, i] = _least(rows[src + x, i], rows[dst + x + 1, i])


def _since(x: Row, start: Times, time: int, fill: float, out: Row) -> None:
    for i in range(out.size):
        out[i] = x[i] if start[i] <= time else fill


def _last(most: bool, p1: Row, q1: Row, p2: Row, out: Row) -> None:
    if most:
        for i in range(out.size):
            out[i] = _greatest(p1[i], _least(q1[i], p2[i]))
    else:
        for i in range(out.size):
            out[i] = _least(p1[i], _greatest(q1[i], p2[i]))


def _append(most: bool, p: Row, q: Row, p2: Row, q2: Row) -> None:
    if most:
        for i in range(p.size):
            p[i] = _greatest(p[i], _least(q[i], p2[i]))
            q[i] = _least(q[i], q2[i])
    else:
        for i in range(p.size):
            p[i] = _least(p[i], _greatest(q[i], p2[i]))
            q[i] = _greatest(q[i], q2[i])


def _prepend(most: bool, p1: Row, q1: Row, p: Row, q: Row) -> None:
    if most:
        for i in range(p.size):
            p[i] = _greatest(p1[i], _least(q1[i], p[i]))
            q[i] = _least(q[i], q1[i])
    else:
        for i in range(p.size):
            p[i] = _least(p1[i], _greatest(q1[i], p[i]))
            q[i] = _greatest(q[i], q1[i])


def _known(margin: Row, sign: float, tie: float, unknown: float, out: Row) -> None:
    for i in range(out.size):
        m = margin[i]
        out[i] = unknown if m != m else tie if m == 0 else sign * m


def _within(most: bool, acc: Row, x: Row, start: Times, time: int, first: int, last: int) -> None:
    for i in range(acc.size):
        index = time - start[i]
        value = _greatest(acc[i], x[i]) if most else _least(acc[i], x[i])
        acc[i] = value if (first <= index) & (index <= last) else acc[i]


def _append_within(
    most: bool, p: Row, q: Row, p2: Row, q2: Row, start: Times, time: int, first: int, last: int
) -> None:
    for i in range(p.size):
        index = time - start[i]
        if (first <= index) & (index <= last):
            if most:
                p[i], q[i] = _greatest(p[i], _least(q[i], p2[i])), _least(q[i], q2[i])
            else:
                p[i], q[i] = _least(p[i], _greatest(q[i], p2[i])), _greatest(q[i], q2[i])


def _prepend_within(most: bool, p1: Row, q1: Row, p: Row, start: Times, time: int, first: int, last: int) -> None:
    for i in range(p.size):
        index = time - start[i]
        if (first <= index) & (index <= last):
            p[i] = _greatest(p1[i], _least(q1[i], p[i])) if most else _least(p1[i], _greatest(q1[i], p[i]))


# ---------------------------------------------------------------- the two sets

_NAMES = ("copy", "fill", "arithmetic", "join", "into", "gather", "merge", "suffixes", "since", "last", "append",
          "prepend", "known", "within", "append_within", "prepend_within")
(copy, fill, arithmetic, join, into, gather, merge, suffixes, since, last, append, prepend, known, within,
 append_within, prepend_within) = (globals()[f"_np_{name}"] for name in _NAMES)


# ---------------------------------------------------------------- streams: one value per sample, some samples late


def calculate(front: Table, inputs: Rows, lo: int, hi: int, work: Rows) -> None:
    """Arithmetic of the predicates on lanes lo .. hi: ``inputs`` [rows, lanes] into the registers ``work``."""
    for k in range(len(front)):
        code, dst, a, b, op = front[k][0], front[k][1], front[k][2], front[k][3], front[k][4]
        if code == LOAD:
            copy(inputs[a, lo:hi], work[dst])
        else:
            arithmetic(op, work[a], work[b], work[dst])


def slide(most: bool, x: Row, rows: Rows, base: int, width: int, t: int, out: Row) -> None:
    """Maximum or minimum of the last ``width`` values of x, by blocks of ``width`` (van Herk; Gil and Werman).

    Row base+j holds the aggregate of the previous block's values j .. width-1 until the j-th value of this block
    replaces it; row base+width the aggregate of this block so far.
    """
    j = t % width
    running = rows[base + width]
    if j == 0:
        copy(x, running)
    else:
        into(most, running, x)
    copy(x, rows[base + j])
    if j < width - 1:
        join(most, rows[base + j + 1], running, out)
        return
    copy(running, out)
    for m in range(width - 2, 0, -1):
        into(most, rows[base + m], rows[base + m + 1])


def fold(
    most: bool, past: bool, keep: Row, reach: Row, rows: Rows, base: int, width: int, t: int, out: Row
) -> None:
    """The composition of the last ``width`` maps (reach, keep) on the neutral element, newest innermost.

    ``past``: newest outermost. Rows as in :func:`slide`: ``width`` of p, ``width`` of q, p and q of this block.
    """
    j = t % width
    q_base = base + width
    p, q = rows[base + 2 * width], rows[base + 2 * width + 1]
    if j == 0:
        copy(reach, p)
        copy(keep, q)
    elif past:
        prepend(most, reach, keep, p, q)
    else:
        append(most, p, q, reach, keep)
    copy(reach, rows[base + j])
    copy(keep, rows[q_base + j])
    if j < width - 1:
        if past:
            last(most, p, q, rows[base + j + 1], out)
        else:
            last(most, rows[base + j + 1], rows[q_base + j + 1], p, out)
        return
    copy(p, out)
    for m in range(width - 2, 0, -1):
        if past:
            prepend(most, rows[base + m + 1], rows[q_base + m + 1], rows[base + m], rows[q_base + m])
        else:
            append(most, rows[base + m], rows[q_base + m], rows[base + m + 1], rows[q_base + m + 1])


def run_stream(
    front: Table, table: Table, t: int, inputs: Rows, start: Times, work: Rows, ring: Any, out: Rows
) -> None:
    """Take the sample of time ``t`` into all lanes.

    Args:
        front, table: instructions.
        inputs: [input rows, lanes].
        start: [lanes] time of each lane's first sample.
        work: [registers, lanes of a tile], scratch; rows of constants are kept.
        ring: [tiles, rows, lanes of a tile], what is remembered.
        out: [outputs, lanes].
    """
    lanes = work.shape[1]
    for tile in range(ring.shape[0]):
        lo, hi = tile * lanes, (tile + 1) * lanes
        rows, begin = ring[tile], start[lo:hi]
        calculate(front, inputs, lo, hi, work)
        for k in range(len(table)):
            ins = table[k]
            code, most, base, width = ins[0], ins[4] > 0, ins[5], ins[6]
            dst, a, b = work[ins[1]], work[ins[2]], work[ins[3]]
            if code == JOIN:
                join(most, a, b, dst)
            elif code == INTO:
                into(most, dst, a)
            elif code == SINCE:
                since(a, begin, t - width, -np.inf if most else np.inf, dst)
            elif code == DELAY:
                kept = rows[base + t % width]
                copy(kept, dst)
                copy(a, kept)
            elif code == SLIDE:
                slide(most, a, rows, base, width, t, dst)
            elif code == FOLD:
                fold(most, ins[7] > 0, a, b, rows, base, width, t, dst)
            elif code == HOLD:
                into(most, rows[base], a)
                copy(rows[base], dst)
            elif code == SCAN:
                last(most, b, a, rows[base], dst)
                copy(dst, rows[base])
            elif code == OUT:
                since(a, begin, t - width, np.nan, out[base, lo:hi])


# ---------------------------------------------------------------- bounds: what every continuation agrees on


def sliding(
    most: bool, rows: Rows, src: int, count: int, dst: int, wanted: int, width: int, neutral: float, spare: int
) -> None:
    """Row dst+q: maximum or minimum of rows src+q .. src+q+width-1, of those that are among the ``count``.

    By blocks of ``width`` that are counted from the end, so that windows that reach the end need one pass.
    """
    for q in range(max(count, 0), wanted):
        fill(rows[dst + q], neutral)
    tmp = rows[spare]
    for final in range(count - 1, -1, -width):
        first, ready = max(0, final - width + 1), min(final, wanted - 1)
        if ready < first:
            continue
        copy(rows[src + final], rows[dst + ready])
        gather(most, rows[dst + ready], rows, src + ready, final - ready)
        suffixes(most, rows, src + first, dst + first, ready - first)
    before = (count - 1) % width  # the end of the first block
    for x in range(before + 1, count - 1):
        place = (x - before - 1) % width
        if place == 0:
            copy(rows[src + x], tmp)
        else:
            into(most, tmp, rows[src + x])
        q = x - width + 1
        if 0 <= q < wanted and place < width - 1:
            into(most, rows[dst + q], tmp)


def row_of(nodes: Any, i: int, t: int) -> int:
    """The row of sequence ``i`` that stands for time t; time t+k is k rows further."""
    node = nodes[i]
    return int(node[BASE] + node[DEPTH] + t % node[PERIOD])


def rewind(nodes: Any, t: int, rows: Rows) -> None:
    """Before time t: sequences that have come to the end of their rows go back to the first ones."""
    for i in range(len(nodes)):
        base, depth, period = nodes[i][BASE], nodes[i][DEPTH], nodes[i][PERIOD]
        if t % period == 0:
            for r in range(depth):
                copy(rows[base + period + r], rows[base + r])


def sequence(
    ins: Any, nodes: Any, t: int, advance: bool, end: int, side: int, work: Rows, start: Times, earliest: int,
    latest: int, rows: Rows, tie: float,
) -> None:
    """One instruction of a sequence: its values from the newest settled one to that of all times further ahead.

    The value at time t+AHEAD+1 stands for all later ones. With ``CLIP`` there is nothing after time t. ``side`` 0: what
    is unknown is -inf, 1: inf. Values that may still change are left out as long as NEED says that nobody asks.
    """
    code, i, a, b, most, clip = ins[0], ins[1], ins[2], ins[3], ins[4] > 0, end == CLIP
    here, settled = row_of(nodes, i, t), nodes[i][SETTLED]
    top = 0 if clip else nodes[i][AHEAD + side] + 1
    lazy = end == RUNNING and t - earliest < nodes[i][NEED + side]
    neutral = -np.inf if most else np.inf
    if code == R_LEAF:
        unknown = np.inf if side else -np.inf
        if advance:
            known(work[a], float(ins[5]), ins[6] * tie, unknown, rows[here])
        fill(rows[here + 1], unknown)
        return
    if code == R_FIXED:
        fill(rows[here], -neutral)
        fill(rows[here + 1], -neutral)
        return
    at_a, top_a = row_of(nodes, a, t), 0 if clip else nodes[a][AHEAD + side] + 1
    at_b, top_b = row_of(nodes, b, t), 0 if clip else nodes[b][AHEAD + side] + 1
    if code == R_JOIN or code == R_INTO:
        ready = -settled  # rows before this one are done: those at which no argument's last row must be repeated
        if not lazy and code == R_JOIN:
            ready = min(top, top_a, top_b) + 1
            merge(most, rows, at_a - settled, at_b - settled, here - settled, ready + settled)
        k = ready
        while k <= top:
            if code == R_JOIN:
                join(most, rows[at_a + min(k, top_a)], rows[at_b + min(k, top_b)], rows[here + k])
            else:
                into(most, rows[here + k], rows[at_a + min(k, top_a)])
            k = top if lazy and k < top else k + 1
    elif code == R_SLIDE:
        # ins: 5 and 6 the window's first and last sample from now, 7 sign of an empty one, 8 scratch, 9 looks back
        first, width, spare = ins[5], ins[6] - ins[5] + 1, ins[8]
        begin = first - settled
        if ins[9] > 0:
            count, src = max(top_a, 0) - begin + 1, at_a + begin
            if latest > t + begin or top_a < 0:  # lanes younger than the window; a last row to spread
                for x in range(count):
                    at = at_a + min(begin + x, top_a)
                    since(rows[at], start, t + begin + x, ins[7] * np.inf, rows[spare + 1 + x])
                src = spare + 1
            sliding(most, rows, src, count, here - settled, settled + top + 1, width, ins[7] * np.inf, spare)
            return
        if advance:
            slide(most, rows[at_a - nodes[a][SETTLED]], rows, spare + 1, width, t, rows[here - settled])
        wanted = settled + top
        if not clip:
            copy(rows[at_a + top_a], rows[here + top])
            wanted = 0 if lazy else wanted - 1
        if wanted > 0:
            sliding(most, rows, at_a + begin + 1, top_a - begin, here - settled + 1, wanted, width, ins[7] * np.inf,
                    spare)
    elif code == R_HOLD or code == R_SCAN:
        before, now = rows[ins[8]], rows[ins[8] + 1]
        for k in range(-settled, top + 1):
            since(rows[here + k - 1], start, t + k - 1, neutral, before)
            if code == R_SCAN:
                last(most, rows[at_b + min(k, top_b)], rows[at_a + min(k, top_a)], before, rows[here + k])
            else:
                since(rows[at_a + min(k, top_a)], start, t + k, neutral, now)
                join(most, before, now, rows[here + k])
    elif code == R_FOLD:
        # ins: 5 the sequence of ``reach`` within the window, 6 samples in it, 8 rows of the blocks
        if advance:
            newest = ins[6] - 1 - settled
            fold(most, False, rows[at_a + newest], rows[at_b + newest], rows, ins[8], ins[6], t, rows[here - settled])
        copy(rows[at_b + min(top, top_b)], rows[here + top])
        if lazy:
            return
        at_c, top_c = row_of(nodes, ins[5], t), 0 if clip else nodes[ins[5]][AHEAD + side] + 1
        # the recursion looks further than the window: what it finds there is cut by asking for ``reach`` within it
        for k in range(top - 1, -settled, -1):
            last(most, rows[at_b + min(k, top_b)], rows[at_a + min(k, top_a)], rows[here + k + 1], rows[here + k])
        for k in range(1 - settled, top + 1):
            into(not most, rows[here + k], rows[at_c + min(k, top_c)])


def point(
    ins: Any, nodes: Any, t: int, advance: bool, end: int, side: int, start: Times, earliest: int, latest: int,
    rows: Rows, out: Any,
) -> None:
    """One instruction of a point: the value of a node at one sample of each lane's own count."""
    code, dst, a, b, most, clip = ins[0], ins[1], ins[2], ins[3], ins[4] > 0, end == CLIP
    neutral, full = (-np.inf, np.inf) if most else (np.inf, -np.inf)
    if code == P_JOIN:
        join(most, rows[a], rows[b], rows[dst])
    elif code == P_INTO:
        into(most, rows[dst], rows[a])
    elif code == P_OUT:
        copy(rows[a], out[dst])
    elif code == P_SHIFT:
        if clip:
            since(rows[a], start, t - ins[5], neutral, rows[dst])
        else:
            copy(rows[a], rows[dst])
    else:
        # the samples 5 first .. 6 final; rows 7 of what is settled, with that of the maps behind it; 8 and 9: the time
        # from which on more matters than what is settled and what is wholly unknown
        first, final, state = ins[5], ins[6], ins[7]
        delay = max(nodes[a][SETTLED], nodes[b][SETTLED])
        at_a, top_a = row_of(nodes, a, t), 0 if clip else nodes[a][AHEAD + side] + 1
        at_b, top_b = row_of(nodes, b, t), 0 if clip else nodes[b][AHEAD + side] + 1
        lazy = end == RUNNING and t - earliest < ins[8 + side]
        top = max(top_a, top_b)
        p, q = rows[dst], rows[dst + 1]
        if advance and t - delay - latest <= final:
            since(rows[state], start, t - delay - first - 1, neutral, p)
            if code == P_UNTIL:
                since(rows[state + 1], start, t - delay - first - 1, full, q)
        else:
            copy(rows[state], p)
            if code == P_UNTIL:
                copy(rows[state + 1], q)
        if t - delay - latest > final:
            return
        # whether every lane is inside its window at all unsettled times but the last one
        whole = code == P_WINDOW and t + 1 - delay - latest >= first and t + top - 1 - earliest <= final
        k = -delay if advance else 1 - delay
        while k <= top:
            # the last row stands for all times after the sequences: for the window if it goes on there
            low = -FOREVER if k == top and not clip else first
            if whole and not lazy and k == 1 - delay:
                gather(most, p, rows, at_a + 1 - delay, delay + top - 1)
                lazy = True
            youngest, oldest = t + k - latest, t + k - earliest
            if oldest >= low and youngest <= final and not (lazy and -delay < k < top):
                x, y = rows[at_a + min(k, top_a)], rows[at_b + min(k, top_b)]
                every = youngest >= low and oldest <= final
                if code == P_WINDOW and every:
                    into(most, p, x)
                elif code == P_WINDOW:
                    within(most, p, x, start, t + k, low, final)
                elif code == P_UNTIL and every:
                    append(most, p, q, y, x)
                elif code == P_UNTIL:
                    append_within(most, p, q, y, x, start, t + k, low, final)
                else:
                    prepend_within(most, y, x, p, start, t + k, low, final)
            if k == -delay:
                copy(p, rows[state])
                if code == P_UNTIL:
                    copy(q, rows[state + 1])
            k = top if lazy and k < top else k + 1


def run_bounds(
    front: Table, table: Table, nodes: Table, t: int, advance: bool, end: int, inputs: Rows, start: Times,
    earliest: int, latest: int, work: Rows, memory: Any, out: Any,
) -> None:
    """Take the sample of time ``t`` into all lanes, and the bounds at each lane's own time 0 into ``out``.

    Args:
        nodes: the table of sequences.
        advance: False: ask again at time t, for another ``end``.
        end: what lies after time t.
        inputs, start, work: as in :func:`run_stream`; ``earliest`` and ``latest`` are the extremes of ``start``.
        memory: [tiles, 2, rows, lanes of a tile]: for lower and upper bounds.
        out: [2, outputs, lanes].
    """
    lanes = work.shape[1]
    tie = np.finfo(work.dtype).tiny
    for tile in range(memory.shape[0]):
        lo, hi = tile * lanes, (tile + 1) * lanes
        begin = start[lo:hi]
        if advance:
            calculate(front, inputs, lo, hi, work)
        for bound in range(2):
            rows, side = memory[tile, bound], 0 if end == STRONG else 1 if end == WEAK else bound
            if advance:
                rewind(nodes, t, rows)
            for k in range(len(table)):
                ins = table[k]
                if ins[0] >= P_WINDOW:
                    point(ins, nodes, t, advance, end, side, begin, earliest, latest, rows, out[bound, :, lo:hi])
                else:
                    sequence(ins, nodes, t, advance, end, side, work, begin, earliest, latest, rows, tie)


# ---------------------------------------------------------------- the two sets of interpreters


class Kernels(NamedTuple):
    """Interpreters; ``compiled``: by numba. ``table`` brings an instruction table into the form they take."""

    run_stream: Callable[..., None]
    run_bounds: Callable[..., None]
    compiled: bool
    table: Callable[[NDArray[np.int64]], Table]


NUMPY = Kernels(run_stream, run_bounds, False, lambda table: table.tolist())


@lru_cache(maxsize=1)
def numba() -> tuple[Any, str]:
    """numba's decorator, or None and why there is none. It is imported here and not before."""
    try:
        from numba import njit
    except ModuleNotFoundError as error:
        return None, "is not installed" if error.name == "numba" else f"cannot be imported: {error}"
    except Exception as error:  # of another version of numpy, without its library, half installed: anything may come
        return None, f"cannot be imported: {type(error).__name__}: {error}"
    return njit, ""


@lru_cache(maxsize=1)
def compiled_kernels() -> Kernels | None:
    """The interpreters over the loops, by numba; None where it does not work.

    Compiled code is cached on disk beside the package or, where that is read-only, in the user's folder for caches;
    where there is neither, it is compiled in each process anew.
    """
    njit, _ = numba()
    if njit is None:
        return None
    try:
        return _bound(njit, cache=True)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return _bound(njit, cache=False)


def _bound(njit: Any, cache: bool) -> Kernels:
    space = dict(globals())

    def bind(name: str, function: Any) -> None:
        copied = FunctionType(function.__code__, space, function.__name__)
        copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
        space[name] = njit(nogil=True, cache=cache, error_model="numpy")(copied)

    loops = [(name, globals()[f"_{name}"]) for name in _NAMES]
    parts: list[Any] = [calculate, slide, fold, sliding, row_of, rewind, sequence, point, run_stream, run_bounds]
    for name, function in [("_least", _least), ("_greatest", _greatest), *loops, *((f.__name__, f) for f in parts)]:
        bind(name, function)
    return Kernels(space["run_stream"], space["run_bounds"], True, np.ascontiguousarray)


def kernels(compiled: bool | None = None) -> Kernels:
    """The interpreters: compiled if numba is at hand, or as ``compiled`` says."""
    found = None if compiled is False else compiled_kernels()
    if compiled and found is None:
        raise ImportError(f"compiled kernels need numba, which {numba()[1] or 'is not installed'}; "
                          "compiled=None takes what is at hand")
    return found or NUMPY
