"""The order of samples: their times increase, by the rule of :mod:`temporeal.sim.stl.samples.times`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from temporeal.policies.cli.traces.table import Numbers, Options, Table
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.samples import times as rule


def in_order(table: Table, options: Options) -> Table:
    """The table with times that increase: as it is, or with ``repeated="drop"`` without samples that repeat a time or
    go back, and with a note that counts them."""
    if table.times is None:
        return table
    if len(table.times) == 0:
        raise BadInput(f"{table.source}: the trace is empty: it has no sample")
    bad = np.flatnonzero(~np.isfinite(table.times))
    if len(bad):
        place = table.place(int(bad[0]), options.time)
        raise BadInput(f"{table.source}: {place} is {table.times[bad[0]]}: every sample needs its time")
    late = rule.late(table.times)
    if not late.any():
        return table
    if options.repeated == "drop" and rule.clock_set(table.times) is None:
        return without(table, late, options)
    k = int(np.flatnonzero(late)[0])
    raise BadInput(f"{table.source}: {table.place(k, options.time)}: {not_after(options.time, table.times, k)}")


def not_after(name: str, times: Numbers, k: int) -> str:
    """The error of sample ``k``, whose time is not after the newest before it."""
    newest, back = float(rule.newest_before(times)[k]), rule.clock_set(times)
    what = "is that of the sample before" if times[k] == newest else f"is before {clock(newest)}"
    remedy = "--repeated drop leaves such samples out" if back is None else (
        f"a clock was set back to {clock(times[back])} s, so that no order of the samples is known to be right")
    return f"{name} = {clock(times[k])} {what}; time must increase: {remedy}"


def without(table: Table, late: np.ndarray, options: Options) -> Table:
    """The table without its ``late`` samples."""
    kept, first = np.flatnonzero(~late), int(np.flatnonzero(late)[0])
    note = (f"{int(late.sum())} of {len(late)} samples were dropped: their time repeats or goes back, first at "
            f"{table.place(first, options.time)}")
    assert table.times is not None
    return replace(table, times=table.times[kept], load=lambda name: table.load(name)[kept],
                   place=lambda k, name: table.place(int(kept[k]), name), notes=(*table.notes, note))


def clock(t: float) -> str:
    """A time with enough digits to tell samples apart, also for seconds since 1970."""
    return f"{t:.9g}" if abs(t) < 1e6 else f"{t:.6f}".rstrip("0").rstrip(".")


class LiveOrder:
    """The order of rows as they come: what :func:`in_order` is to a whole file.

    Args:
        notes: gets the number of dropped rows, in words.
    """

    def __init__(self, options: Options, notes: list[str]) -> None:
        self.options, self.notes, self.newest, self.dropped = options, notes, -math.inf, 0

    def drops(self, number: int, time: float) -> bool:
        """Whether row ``number`` is to be left out; an error where it may not be."""
        if not math.isfinite(time):
            raise BadInput(f"stdin: row {number}, column {self.options.time!r} is {time}: every sample needs its time")
        if time > self.newest:
            self.newest = time
            return False
        both = np.array([self.newest, time])
        if self.options.repeated != "drop" or rule.clock_set(both) is not None:
            raise BadInput(f"stdin: row {number}: {not_after(self.options.time, both, 1)}")
        self.dropped += 1
        rows = "1 row was" if self.dropped == 1 else f"{self.dropped} rows were"
        self.notes[:] = [f"{rows} dropped: their time repeats or goes back"]
        return True
