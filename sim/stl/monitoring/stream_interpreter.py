"""The interpreter of a stream's instructions: one value per sample and node, at a fixed delay.

It is written over functions of rows, of which there are two sets (`numpy_rows`, `numba_rows`): `kernels` binds it to
either. It is compiled once per float type, never per formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.sim.stl.monitoring.instructions import (
    DELAY,
    FOLD,
    HOLD,
    INTO,
    JOIN,
    LOAD,
    OUT,
    SCAN,
    SINCE,
    SLIDE,
    Table,
)
from temporeal.sim.stl.monitoring.numpy_rows import (
    Row,
    Rows,
    Times,
    append,
    apply_map,
    arithmetic,
    copy,
    into,
    join,
    prepend,
    started,
)


def calculate(margins: Table, inputs: Rows, lo: int, hi: int, work: Rows) -> None:
    """Arithmetic of the predicates on lanes lo .. hi: ``inputs`` [rows, lanes] into the registers ``work``."""
    for k in range(len(margins)):
        code, dst, a, b, op = margins[k][0], margins[k][1], margins[k][2], margins[k][3], margins[k][4]
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
            apply_map(most, p, q, rows[base + j + 1], out)
        else:
            apply_map(most, rows[base + j + 1], rows[q_base + j + 1], p, out)
        return
    copy(p, out)
    for m in range(width - 2, 0, -1):
        if past:
            prepend(most, rows[base + m + 1], rows[q_base + m + 1], rows[base + m], rows[q_base + m])
        else:
            append(most, rows[base + m], rows[q_base + m], rows[base + m + 1], rows[q_base + m + 1])


def run_stream(
    margins: Table, table: Table, t: int, inputs: Rows, start: Times, work: Rows, ring: Any, out: Rows
) -> None:
    """Take the sample of time ``t`` into all lanes.

    Args:
        margins, table: instructions.
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
        calculate(margins, inputs, lo, hi, work)
        for k in range(len(table)):
            ins = table[k]
            code, most, base, width = ins[0], ins[4] > 0, ins[5], ins[6]
            dst, a, b = work[ins[1]], work[ins[2]], work[ins[3]]
            if code == JOIN:
                join(most, a, b, dst)
            elif code == INTO:
                into(most, dst, a)
            elif code == SINCE:
                started(a, begin, t - width, -np.inf if most else np.inf, dst)
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
                apply_map(most, b, a, rows[base], dst)
                copy(dst, rows[base])
            elif code == OUT:
                started(a, begin, t - width, np.nan, out[base, lo:hi])
