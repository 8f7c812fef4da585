"""The time grid: uniform samples, their period, gaps and resampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from temporeal.policies.cli.traces.table import MAX_ROWS, TOLERANCE, Numbers, Options, Shape, Table, Trace
from temporeal.policies.runs.errors import BadInput


def on_own_grid(table: Table, wanted: Mapping[str, Shape], options: Options) -> Trace:
    values = {name: table.load(name) for name in wanted}
    if table.times is None:
        if options.dt is None:
            raise BadInput(f"{table.source}: no time column {options.time!r}; columns: {', '.join(table.columns)}. "
                           "--time NAME names another, --dt S says the period of the rows")
        count = len(next(iter(values.values()))) if values else 0
        times = np.asarray(np.arange(count) * options.dt, dtype=np.float64)
    else:
        times = table.times
    _increasing(times, table, options.time)
    rows = _cut(times, options, table.source)
    times = times[rows]
    offset = int(rows.start or 0)

    def place(k: int) -> str:
        return table.place(k + offset, options.time)

    for name, array in values.items():
        _complete(array[rows], name, offset, table, options.missing)
    values = {name: array[rows] for name, array in values.items()}
    start = table.epoch_s + float(times[0])
    if options.missing == "error" or len(times) < 2:
        return Trace(values, period(times, options.dt, place, table.source), start, len(times))
    dt = simplest_period(times) if options.dt is None else options.dt
    index = np.floor((times - times[0]) / dt + 0.5)
    _uniform(times, index, dt, options.dt is not None, place, table.source)
    count = _bounded(float(index[-1]) + 1, table.source)
    return Trace({name: _spread(array, index, count) for name, array in values.items()}, dt, start, count)


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
    if options.dt is None:
        raise BadInput("--resample needs the period: --dt S")
    clocks = []
    for table in tables:
        if table.times is None:
            raise BadInput(f"{table.source}: no time column {options.time!r}: there is nothing to resample by")
        _increasing(table.times, table, options.time)
        clocks.append(table.times)
    first, last = max(float(c[0]) for c in clocks), min(float(c[-1]) for c in clocks)
    if last < first:
        raise BadInput(f"{tables[0].source}: the topics have no time in common")
    # a last sample that rounding puts a hair before its grid point still counts
    count = _bounded((last - first) / options.dt + 1e-6, tables[0].source) + 1
    steps = np.arange(count, dtype=np.float64)
    grid: Numbers = first + options.dt * steps
    grid = grid[_cut(grid, options, tables[0].source)]
    signals: dict[str, Numbers] = {}
    for table, clock in zip(tables, clocks):
        for name in wanted:
            if name in table.schema:
                values = table.load(name)
                _complete(values, name, 0, table, options.missing)
                signals[name] = _on_grid(grid, clock, values, options.resample, options.dt)
    return Trace(signals, options.dt, tables[0].epoch_s + float(grid[0]), len(grid))


def _on_grid(grid: Numbers, times: Numbers, values: Numbers, how: str, dt: float) -> Numbers:
    """``values`` at the times ``grid``: the last one before (to a millionth of dt), or interpolated."""
    if how == "hold":
        newest = np.searchsorted(times, grid + 1e-6 * dt, side="right") - 1
        return np.asarray(values[np.maximum(newest, 0)])
    flat = values.reshape(len(values), -1)
    columns = [np.interp(grid, times, flat[:, k]) for k in range(flat.shape[1])]
    return np.stack(columns, -1).reshape(len(grid), *values.shape[1:])


def _cut(times: Numbers, options: Options, source: str) -> slice:
    """The samples between ``begin`` and ``end``."""
    since = times - times[0]
    begin = 0 if options.begin is None else int(np.searchsorted(since, options.begin - 1e-9))
    end = len(times) if options.end is None else int(np.searchsorted(since, options.end + 1e-9))
    if begin >= end:
        raise BadInput(f"{source}: no sample from {options.begin or 0:g} to "
                       f"{since[-1] if options.end is None else options.end:g} s; it lasts {since[-1]:g} s")
    return slice(begin, end)


def _increasing(times: Numbers, table: Table, name: str) -> None:
    if len(times) == 0:
        raise BadInput(f"{table.source}: the trace is empty: it has no sample")
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        place = table.place(int(bad[0]), name)
        raise BadInput(f"{table.source}: {place} is {times[bad[0]]}: every sample needs its time")
    bad = np.flatnonzero(np.diff(times) <= 0)
    if len(bad):
        k = int(bad[0]) + 1
        what = "is that of the sample before" if times[k] == times[k - 1] else f"is before {clock(times[k - 1])}"
        raise BadInput(f"{table.source}: {table.place(k, name)}: {name} = {clock(times[k])} {what}; time must increase")


def clock(t: float) -> str:
    """A time with enough digits to tell samples apart, also for seconds since 1970."""
    return f"{t:.9g}" if abs(t) < 1e6 else f"{t:.6f}".rstrip("0").rstrip(".")


def _complete(values: Numbers, name: str, offset: int, table: Table, missing: str) -> None:
    holes = np.isnan(values.reshape(len(values), -1)).any(axis=1)
    if missing == "error" and holes.any():
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
