"""The interpreter of the bounds' instructions: what every continuation of the trace agrees on.

*Sequences* are nodes at many samples, *points* nodes at one sample of each lane's own count. Bound to a set of row
functions by `kernels`, like `stream_interpreter`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from temporeal.sim.stl.monitoring.instructions import (
    AHEAD,
    BASE,
    CLIP,
    DEPTH,
    FOREVER,
    NEED,
    P_INTO,
    P_JOIN,
    P_OUT,
    P_SHIFT,
    P_UNTIL,
    P_WINDOW,
    PERIOD,
    R_FIXED,
    R_FOLD,
    R_HOLD,
    R_INTO,
    R_JOIN,
    R_LEAF,
    R_SCAN,
    R_SLIDE,
    RUNNING,
    SETTLED,
    STRONG,
    WEAK,
    Table,
)
from temporeal.sim.stl.monitoring.numpy_rows import (
    Rows,
    Times,
    append,
    append_within,
    apply_map,
    copy,
    fill,
    gather,
    into,
    join,
    known,
    merge,
    prepend_within,
    started,
    suffixes,
    within,
)
from temporeal.sim.stl.monitoring.stream_interpreter import calculate, fold, slide


class Clock(NamedTuple):
    """When an instruction runs, and for which bound.

    Args:
        t: time of the newest sample.
        advance: False: the instruction ran at this time before, and is asked again for another ``end``.
        end: what lies after time t: RUNNING, CLIP, STRONG or WEAK.
        side: 0: what is unknown is -inf, 1: inf.
        start: [lanes] time of each lane's first sample; ``earliest`` and ``latest`` are its extremes.
    """

    t: int
    advance: bool
    end: int
    side: int
    start: Times
    earliest: int
    latest: int


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


def last_row(nodes: Any, i: int, clock: Clock) -> int:
    """The time, counted from now, whose row stands for all later times of sequence ``i``; 0 if none come."""
    return 0 if clock.end == CLIP else int(nodes[i][AHEAD + clock.side] + 1)


# ---------------------------------------------------------------- sequences


def sequence(ins: Any, nodes: Any, clock: Clock, work: Rows, rows: Rows, tie: float) -> None:
    """One instruction of a sequence: its values from the newest settled one to that of all times further ahead.

    Values that may still change are left out as long as NEED says that nothing reads them.
    """
    code, i = ins[0], ins[1]
    here = row_of(nodes, i, clock.t)
    if code == R_LEAF:
        unknown = np.inf if clock.side else -np.inf
        if clock.advance:
            known(work[ins[2]], float(ins[5]), ins[6] * tie, unknown, rows[here])
        fill(rows[here + 1], unknown)
    elif code == R_FIXED:
        value = np.inf if ins[4] > 0 else -np.inf
        fill(rows[here], value)
        fill(rows[here + 1], value)
    else:
        lazy = clock.end == RUNNING and clock.t - clock.earliest < nodes[i][NEED + clock.side]
        if code == R_JOIN or code == R_INTO:
            join_sequences(ins, nodes, clock, rows, here, lazy)
        elif code == R_SLIDE and ins[9] > 0:
            slide_past(ins, nodes, clock, rows, here)
        elif code == R_SLIDE:
            slide_ahead(ins, nodes, clock, rows, here, lazy)
        elif code == R_HOLD or code == R_SCAN:
            recur(ins, nodes, clock, rows, here)
        elif code == R_FOLD:
            fold_ahead(ins, nodes, clock, rows, here, lazy)


def join_sequences(ins: Any, nodes: Any, clock: Clock, rows: Rows, here: int, lazy: bool) -> None:
    """R_JOIN, R_INTO: maximum or minimum of two sequences, or of the own values and one."""
    a, b, most = ins[2], ins[3], ins[4] > 0
    settled, top = nodes[ins[1]][SETTLED], last_row(nodes, ins[1], clock)
    at_a, top_a = row_of(nodes, a, clock.t), last_row(nodes, a, clock)
    at_b, top_b = row_of(nodes, b, clock.t), last_row(nodes, b, clock)
    k = -settled
    if not lazy and ins[0] == R_JOIN:
        k = min(top, top_a, top_b) + 1  # before it no argument's last row must be repeated
        merge(most, rows, at_a - settled, at_b - settled, here - settled, k + settled)
    while k <= top:
        if ins[0] == R_JOIN:
            join(most, rows[at_a + min(k, top_a)], rows[at_b + min(k, top_b)], rows[here + k])
        else:
            into(most, rows[here + k], rows[at_a + min(k, top_a)])
        k = top if lazy and k < top else k + 1


def slide_past(ins: Any, nodes: Any, clock: Clock, rows: Rows, here: int) -> None:
    """R_SLIDE into the past. ins: 5 and 6 first and last sample from now, 7 sign of an empty window, 8 scratch rows."""
    a, most, empty, spare = ins[2], ins[4] > 0, ins[7] * np.inf, ins[8]
    settled, top = nodes[ins[1]][SETTLED], last_row(nodes, ins[1], clock)
    at_a, top_a = row_of(nodes, a, clock.t), last_row(nodes, a, clock)
    width, begin = ins[6] - ins[5] + 1, ins[5] - settled
    count, src = max(top_a, 0) - begin + 1, at_a + begin
    if clock.latest > clock.t + begin or top_a < 0:  # lanes younger than the window; a last row to spread
        for x in range(count):
            at = at_a + min(begin + x, top_a)
            started(rows[at], clock.start, clock.t + begin + x, empty, rows[spare + 1 + x])
        src = spare + 1
    sliding(most, rows, src, count, here - settled, settled + top + 1, width, empty, spare)


def slide_ahead(ins: Any, nodes: Any, clock: Clock, rows: Rows, here: int, lazy: bool) -> None:
    """R_SLIDE into the future; ins as in :func:`slide_past`."""
    a, most, empty, spare = ins[2], ins[4] > 0, ins[7] * np.inf, ins[8]
    settled, top = nodes[ins[1]][SETTLED], last_row(nodes, ins[1], clock)
    at_a, top_a = row_of(nodes, a, clock.t), last_row(nodes, a, clock)
    width, begin = ins[6] - ins[5] + 1, ins[5] - settled
    if clock.advance:
        slide(most, rows[at_a - nodes[a][SETTLED]], rows, spare + 1, width, clock.t, rows[here - settled])
    wanted = settled + top
    if clock.end != CLIP:
        copy(rows[at_a + top_a], rows[here + top])
        wanted = 0 if lazy else wanted - 1
    if wanted > 0:
        sliding(most, rows, at_a + begin + 1, top_a - begin, here - settled + 1, wanted, width, empty, spare)


def recur(ins: Any, nodes: Any, clock: Clock, rows: Rows, here: int) -> None:
    """R_HOLD, R_SCAN: unbounded recursions from the past."""
    a, b, most = ins[2], ins[3], ins[4] > 0
    settled, top = nodes[ins[1]][SETTLED], last_row(nodes, ins[1], clock)
    at_a, top_a = row_of(nodes, a, clock.t), last_row(nodes, a, clock)
    at_b, top_b = row_of(nodes, b, clock.t), last_row(nodes, b, clock)
    neutral = -np.inf if most else np.inf
    before, now = rows[ins[8]], rows[ins[8] + 1]
    for k in range(-settled, top + 1):
        started(rows[here + k - 1], clock.start, clock.t + k - 1, neutral, before)
        if ins[0] == R_SCAN:
            apply_map(most, rows[at_b + min(k, top_b)], rows[at_a + min(k, top_a)], before, rows[here + k])
        else:
            started(rows[at_a + min(k, top_a)], clock.start, clock.t + k, neutral, now)
            join(most, before, now, rows[here + k])


def fold_ahead(ins: Any, nodes: Any, clock: Clock, rows: Rows, here: int, lazy: bool) -> None:
    """R_FOLD: a timed until. ins: 5 sequence of ``reach`` within the window, 6 samples in it, 8 rows of the blocks."""
    a, b, c, most = ins[2], ins[3], ins[5], ins[4] > 0
    settled, top = nodes[ins[1]][SETTLED], last_row(nodes, ins[1], clock)
    at_a, top_a = row_of(nodes, a, clock.t), last_row(nodes, a, clock)
    at_b, top_b = row_of(nodes, b, clock.t), last_row(nodes, b, clock)
    if clock.advance:
        newest = ins[6] - 1 - settled
        fold(most, False, rows[at_a + newest], rows[at_b + newest], rows, ins[8], ins[6], clock.t, rows[here - settled])
    copy(rows[at_b + min(top, top_b)], rows[here + top])
    if lazy:
        return
    # the recursion looks beyond the window: what it finds there is cut off by requiring ``reach`` within the window
    for k in range(top - 1, -settled, -1):
        apply_map(most, rows[at_b + min(k, top_b)], rows[at_a + min(k, top_a)], rows[here + k + 1], rows[here + k])
    at_c, top_c = row_of(nodes, c, clock.t), last_row(nodes, c, clock)
    for k in range(1 - settled, top + 1):
        into(not most, rows[here + k], rows[at_c + min(k, top_c)])


# ---------------------------------------------------------------- points


def point(ins: Any, nodes: Any, clock: Clock, rows: Rows, out: Any) -> None:
    """One instruction of a point."""
    code, dst, a, b, most = ins[0], ins[1], ins[2], ins[3], ins[4] > 0
    if code == P_JOIN:
        join(most, rows[a], rows[b], rows[dst])
    elif code == P_INTO:
        into(most, rows[dst], rows[a])
    elif code == P_OUT:
        copy(rows[a], out[dst])
    elif code != P_SHIFT:
        window_point(ins, nodes, clock, rows)
    elif clock.end == CLIP:
        started(rows[a], clock.start, clock.t - ins[5], -np.inf if most else np.inf, rows[dst])
    else:
        copy(rows[a], rows[dst])


def window_point(ins: Any, nodes: Any, clock: Clock, rows: Rows) -> None:
    """P_WINDOW, P_UNTIL, P_SINCE over the samples 5 first .. 6 final.

    ins: 7 the row of what is settled, with that of the maps after it; 8 and 9 (lower and upper bounds) the time from
    which on more matters than what is settled and what is wholly unknown.
    """
    code, a, b, most, t = ins[0], ins[2], ins[3], ins[4] > 0, clock.t
    first, final, state = ins[5], ins[6], ins[7]
    delay = max(nodes[a][SETTLED], nodes[b][SETTLED])
    at_a, top_a = row_of(nodes, a, t), last_row(nodes, a, clock)
    at_b, top_b = row_of(nodes, b, t), last_row(nodes, b, clock)
    lazy = clock.end == RUNNING and t - clock.earliest < ins[8 + clock.side]
    top = max(top_a, top_b)
    p, q = rows[ins[1]], rows[ins[1] + 1]
    begin_point(ins, clock, delay, rows)
    if t - delay - clock.latest > final:
        return
    # whether every lane is inside its window at all unsettled times but the last one
    whole = code == P_WINDOW and t + 1 - delay - clock.latest >= first and t + top - 1 - clock.earliest <= final
    k = -delay if clock.advance else 1 - delay
    while k <= top:
        # the last row stands for all later times: for the window too, if it goes on there
        low = -FOREVER if k == top and clock.end != CLIP else first
        if whole and not lazy and k == 1 - delay:
            gather(most, p, rows, at_a + 1 - delay, delay + top - 1)
            lazy = True
        youngest, oldest = t + k - clock.latest, t + k - clock.earliest
        if oldest >= low and youngest <= final and not (lazy and -delay < k < top):
            x, y = rows[at_a + min(k, top_a)], rows[at_b + min(k, top_b)]
            every = youngest >= low and oldest <= final
            if code == P_WINDOW and every:
                into(most, p, x)
            elif code == P_WINDOW:
                within(most, p, x, clock.start, t + k, low, final)
            elif code == P_UNTIL and every:
                append(most, p, q, y, x)
            elif code == P_UNTIL:
                append_within(most, p, q, y, x, clock.start, t + k, low, final)
            else:
                prepend_within(most, y, x, p, clock.start, t + k, low, final)
        if k == -delay:
            copy(p, rows[state])
            if code == P_UNTIL:
                copy(q, rows[state + 1])
        k = top if lazy and k < top else k + 1


def begin_point(ins: Any, clock: Clock, delay: int, rows: Rows) -> None:
    """What is settled, into the point's rows; neutral for lanes whose window begins now."""
    most, first, final, state = ins[4] > 0, ins[5], ins[6], ins[7]
    p, q = rows[ins[1]], rows[ins[1] + 1]
    settled = clock.t - delay
    if clock.advance and settled - clock.latest <= final:
        neutral = -np.inf if most else np.inf
        started(rows[state], clock.start, settled - first - 1, neutral, p)
        if ins[0] == P_UNTIL:
            started(rows[state + 1], clock.start, settled - first - 1, -neutral, q)
    else:
        copy(rows[state], p)
        if ins[0] == P_UNTIL:
            copy(rows[state + 1], q)


def run_bounds(
    margins: Table, table: Table, nodes: Table, t: int, advance: bool, end: int, inputs: Rows, start: Times,
    earliest: int, latest: int, work: Rows, memory: Any, out: Any,
) -> None:
    """Take the sample of time ``t`` into all lanes, and the bounds at each lane's own time 0 into ``out``.

    Args:
        nodes: the table of sequences.
        t, advance, end, earliest, latest: as in :class:`Clock`.
        inputs, start, work: as in `stream_interpreter.run_stream`.
        memory: [tiles, 2, rows, lanes of a tile]: for lower and upper bounds.
        out: [2, outputs, lanes].
    """
    lanes = work.shape[1]
    tie = np.finfo(work.dtype).tiny
    for tile in range(memory.shape[0]):
        lo, hi = tile * lanes, (tile + 1) * lanes
        if advance:
            calculate(margins, inputs, lo, hi, work)
        for bound in range(2):
            rows, side = memory[tile, bound], 0 if end == STRONG else 1 if end == WEAK else bound
            clock = Clock(t, advance, end, side, start[lo:hi], earliest, latest)
            if advance:
                rewind(nodes, t, rows)
            for k in range(len(table)):
                ins = table[k]
                if ins[0] >= P_WINDOW:
                    point(ins, nodes, clock, rows, out[bound, :, lo:hi])
                else:
                    sequence(ins, nodes, clock, work, rows, tie)
