"""The time grid: uniform samples, their period, gaps and resampling. Which samples count, and how long one holds:
:mod:`temporeal.sim.stl.samples`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from temporeal.policies.cli.traces.ordering import clock, in_order
from temporeal.policies.cli.traces.table import MAX_ROWS, TOLERANCE, Numbers, Options, Shape, Table, Trace
from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.samples import missing as missing_values
from temporeal.sim.stl.samples.times import CLOCK_SET_S, held_by, hold_s


def on_own_grid(table: Table, wanted: Mapping[str, Shape], options: Options) -> Trace:
    """The signals ``wanted`` of samples that lie on a uniform grid."""
    table = in_order(table, options)
    values = {name: table.load(name) for name in wanted}
    times = _rows_of(values, table, options) if table.times is None else table.times
    rows = _cut(times, options, table.source)
    times, offset = times[rows], int(rows.start or 0)

    def place(k: int) -> str:
        return table.place(k + offset, options.time)

    for name, array in values.items():
        _complete(array[rows], name, offset, table, options.missing)
    values = {name: array[rows] for name, array in values.items()}
    start = table.epoch_s + float(times[0])
    if options.missing == missing_values.ERROR or len(times) < 2:
        return Trace(values, period(times, options.dt, place, table.source), start, len(times), table.notes)
    dt = simplest_period(times) if options.dt is None else options.dt
    index = np.floor((times - times[0]) / dt + 0.5)
    _uniform(times, index, dt, options.dt is not None, place, table.source)
    count = _bounded(float(index[-1]) + 1, table.source)
    return Trace({name: _spread(array, index, count) for name, array in values.items()}, dt, start, count, table.notes)


def _rows_of(values: Mapping[str, Numbers], table: Table, options: Options) -> Numbers:
    """The times of samples without a time of their own, each ``dt``."""
    if options.dt is None:
        raise BadInput(f"{table.source}: no time column {options.time!r}; columns: {', '.join(table.columns)}. "
                       "--time NAME names another, --dt S says the period of the rows")
    count = len(next(iter(values.values()))) if values else 0
    if count == 0:
        raise BadInput(f"{table.source}: the trace is empty: it has no sample")
    return np.asarray(np.arange(count) * options.dt, dtype=np.float64)


def _spread(values: Numbers, index: Numbers, count: int) -> Numbers:
    """``values`` at the rows ``index`` of ``count``, NaN at the others, whose samples were lost."""
    out = np.full((count, *values.shape[1:]), np.nan)
    out[index.astype(np.int64)] = values
    return out


def _bounded(count: float, source: str) -> int:
    if not count <= MAX_ROWS:
        raise BadInput(f"{source}: the trace would have {count:.4g} samples on the grid of its period; at most "
                       f"{MAX_ROWS} are taken: a longer --dt, or --from and --to")
    return int(count)


def resampled(tables: Sequence[Table], wanted: Mapping[str, Shape], options: Options) -> Trace:
    """The signals ``wanted``, put on the grid of ``dt``: from where all topics have a sample to the last one of any
    that is not latched, or with ``linear`` to where the first of these ends."""
    if options.dt is None:
        raise BadInput("--resample needs the period: --dt S")
    for table in tables:
        if table.times is None:
            raise BadInput(f"{table.source}: no time column {options.time!r}: there is nothing to resample by")
    check_clocks(tables)
    tables = [in_order(table, options) for table in tables]
    grid, start = _common_grid(tables, options)
    signals: dict[str, Numbers] = {}
    for table in tables:
        for name in wanted:
            if name in table.schema:
                signals[name] = _on_grid(grid, table, name, options)
    notes = tuple(note for table in tables for note in table.notes)
    return Trace(signals, options.dt, start, len(grid), notes)


def _common_grid(tables: Sequence[Table], options: Options) -> tuple[Numbers, float]:
    """The grid, and its first time by the files' own clock."""
    dt, source, clocks = float(options.dt or 0.0), tables[0].source, [table.times for table in tables]
    first = max(float(times[0]) for times in clocks if times is not None)
    moving = [table for table in tables if not math.isinf(hold_of(table, options))] or tables
    ends = [float(table.times[-1]) for table in moving if table.times is not None]
    last = min(ends) if options.resample == "linear" else max(ends)
    if min(ends) < first:
        over = moving[int(np.argmin(ends))].topic
        raise BadInput(f"{source}: the topics have no time in common: {over} has ended when another one begins; "
                       f"--stale-after {over}=inf says that its last sample holds")
    # a last sample that rounding puts a hair before its grid point still counts
    count = _bounded((last - first) / dt + 1e-6, source) + 1
    grid: Numbers = first + dt * np.arange(count, dtype=np.float64)
    grid = grid[_cut(grid, options, source)]
    return grid, tables[0].epoch_s + float(grid[0])


def check_clocks(tables: Sequence[Table]) -> None:
    """Refuse topics whose times are of clocks that differ: nothing says how much."""
    lags = {table.topic: table.lag_s for table in tables if not table.latched and table.times is not None
            and len(table.times) > 1}
    apart = max(lags.values(), default=0.0) - min(lags.values(), default=0.0) > CLOCK_SET_S
    if len({table.epoch_s for table in tables}) > 1 or (apart and not tables[0].epoch_s):
        lags = {table.topic: table.lag_s for table in tables}
        told = ", ".join(f"{name}: {'of the receipt' if lag == 0 else f'stamps {lag:.3g} s before it'}"
                         for name, lag in lags.items())
        raise BadInput(f"{tables[0].source}: the topics have clocks that nothing relates ({told}): read one by one")


def _on_grid(grid: Numbers, table: Table, name: str, options: Options) -> Numbers:
    """The signal ``name`` at the times ``grid``: the last value before (to a millionth of dt), or interpolated. Where
    the newest sample has ceased to hold, it is lost."""
    times, dt, values = table.times, float(options.dt or 0.0), table.load(name)
    assert times is not None
    newest, hold = np.maximum(held_by(grid, times, 1e-6 * dt), 0), hold_of(table, options)
    after = newest if options.resample == "hold" else np.minimum(newest + 1, len(times) - 1)
    _complete(values[newest[0] : after[-1] + 1], name, int(newest[0]), table, options.missing)
    if options.resample == "hold" or len(times) == 1:
        out, since = np.array(values[newest]), grid - times[newest]
    else:
        flat = values.reshape(len(values), -1)
        columns = [np.interp(grid, times, flat[:, k]) for k in range(flat.shape[1])]
        out, since = np.stack(columns, -1).reshape(len(grid), *values.shape[1:]), times[after] - times[newest]
    gone = since > hold + 1e-6 * dt
    if gone.any() and options.missing == missing_values.ERROR:
        raise BadInput(_silence(table, grid, int(np.argmax(gone)), int(newest[np.argmax(gone)]), hold))
    out[gone] = np.nan
    return out


def hold_of(table: Table, options: Options) -> float:
    """How long a sample of ``table`` holds [s]: as long as is said of its topic, for ever if it is latched, else by the
    rule."""
    told = options.stale_s.get(table.topic, None if table.latched else options.stale_s.get(""))
    assert table.times is not None
    return math.inf if table.latched and told is None else hold_s(table.times, told)


def _silence(table: Table, grid: Numbers, k: int, newest: int, hold: float) -> str:
    """The error of grid point ``k``, at which the sample ``newest`` does not hold any more."""
    assert table.times is not None
    return (f"{table.source}: {table.place(newest, 't')}: it holds {hold:.3g} s, and no sample follows its time "
            f"{clock(table.times[newest])} until {clock(grid[k])}; --missing unknown takes what lies between as lost, "
            "--stale-after S says how long a sample holds, --to S ends the trace before")


def _cut(times: Numbers, options: Options, source: str) -> slice:
    """The samples between ``begin`` and ``end``."""
    since = times - times[0]
    begin = 0 if options.begin is None else int(np.searchsorted(since, options.begin - 1e-9))
    end = len(times) if options.end is None else int(np.searchsorted(since, options.end + 1e-9))
    if begin >= end:
        raise BadInput(f"{source}: no sample from {options.begin or 0:g} to "
                       f"{since[-1] if options.end is None else options.end:g} s; it lasts {since[-1]:g} s")
    return slice(begin, end)


def _complete(values: Numbers, name: str, offset: int, table: Table, missing: str) -> None:
    holes = missing_values.lost(values)
    if missing == missing_values.ERROR and holes.any():
        k = int(np.argmax(holes)) + offset
        raise BadInput(hole(table.source, table.place(k, name)))


def hole(source: str, place: str) -> str:
    """The error of a missing value."""
    return (f"{source}: {place} is empty or NaN, and the formula reads it; --missing unknown takes such samples as "
            "lost")


def period(times: Numbers, given: float | None, place: Callable[[int], str], source: str) -> float:
    """The period of ``times`` [T] in s: ``given``, or the simplest number that fits; they must be uniform."""
    if given is None and len(times) < 2:
        raise BadInput(f"{source}: one sample has no period; --dt S says it")
    dt = simplest_period(times) if given is None else given
    _uniform(times, np.arange(len(times), dtype=np.float64), dt, given is not None, place, source)
    return dt


def _uniform(
    times: Numbers, index: Numbers, dt: float, given: bool, place: Callable[[int], str], source: str
) -> None:
    """Refuse ``times`` [T] that are not at the points ``index`` [T] of the grid of ``dt``, one each."""
    residual = times - times[0] - dt * index
    # the first time may be off the grid as any other; with a gap early on the middle is beyond it
    middle = float(np.median(residual))
    middle = 0.0 if abs(middle) > TOLERANCE * dt else middle
    off = np.abs(residual - middle) > TOLERANCE * dt
    off[1:] |= np.diff(index) < 1
    if off.any():
        k = int(np.argmax(off))
        stated = f"the period is {dt:.6g} s" + (" by --dt or the formula's file" if given else "")
        raise BadInput(
            f"{source}: {place(k)}: t = {clock(times[k])} is off the uniform grid; {clock(times[0] + index[k] * dt)} "
            f"is expected ({stated}, tolerance {TOLERANCE:.0%} of it){_gap(times, k, dt)}; --dt S --resample hold (or "
            "linear) puts the samples on a grid")


def _gap(times: Numbers, k: int, dt: float) -> str:
    """Name the gap before sample ``k``, if there is one."""
    step = float(times[k] - times[k - 1]) / dt if k else 0.0
    lost = round(step) - 1
    if lost < 1 or abs(step - lost - 1) > 2 * TOLERANCE:
        return ""
    return (f": {lost} sample{'s are' if lost > 1 else ' is'} missing between {clock(times[k - 1])} and "
            f"{clock(times[k])}; --missing unknown takes them as lost")


def simplest_period(times: Numbers) -> float:
    """The period as the shortest decimal, or one over a whole number, that fits; near the median step if the times have
    gaps.

    Windows must be whole numbers of periods: 0.01, not the 0.010000000000000002 of a mean. With jitter, the mean is so
    far off that the misfit of the true period may be twice that of the mean; so much is allowed.
    """
    count = len(times) - 1
    usual = float(np.median(np.diff(times)))
    mean = float(times[-1] - times[0]) / count
    since = times - times[0]
    if abs(mean - usual) > TOLERANCE * usual:  # gaps: what is regular are the steps
        steps = np.concatenate([[0.0], np.maximum(1, np.rint(np.diff(times) / usual)).cumsum()])
        mean = float(since[-1] / steps[-1])
    else:
        steps = np.arange(count + 1, dtype=np.float64)

    def misfit(dt: float) -> float:
        residual = since - dt * steps
        return float(np.ptp(residual)) / 2

    # what the float of the largest time cannot resolve is no misfit
    allowed = 2 * misfit(mean) + 1e-9 * mean + 4 * float(np.spacing(np.abs(times).max()))
    digits = [float(f"{mean:.{n}g}") for n in range(1, 10)]
    whole = round(min(1 / mean, 1e9))
    candidates = [*digits[:2], *([1 / whole] if whole else []), *digits[2:]]
    return next((dt for dt in candidates if dt > 0 and misfit(dt) <= allowed), mean)
