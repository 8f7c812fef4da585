"""Traces in files: CSV, NPZ, Parquet and ROS 2 bags, as signals by name on a uniform grid of time.

A *column* is a signal's name, or ``name.0``, ``name.1`` for its components (also ``name.x``, ``.y``, ``.z``; for a
quaternion ``.w`` too, kept scalar first). The column ``t`` is the time in seconds. Only the columns that a formula
reads are converted, so that what else stands in a file does not matter. Whatever is wrong is a :class:`BadInput` that
names the row and the column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.cli.console import counter
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec

Numbers = NDArray[np.float64]
Shape = tuple[int, ...]

TOLERANCE = 0.05
"""Share of the period by which a sample may be off the uniform grid."""
SUFFIXES = (".csv", ".tsv", ".txt", ".npz", ".parquet", ".mcap", ".db3")
MISSING, RESAMPLE = ("error", "unknown"), ("hold", "linear")
MAX_ROWS = 20_000_000
"""Samples that a trace may have once it is on its grid."""
_COLUMN = re.compile(r"([^\W\d]\w*)(?:\.(\d+|[wxyz])|\[(\d+)\])?$")


@dataclass(frozen=True)
class Table:
    """Signals that share their samples.

    Args:
        source: the file, for messages.
        times: [T] seconds as the file has them; None: it has no time.
        schema: the signals that can be loaded.
        load: values [T, *shape] of one signal by name; NaN where a value is missing.
        place: ``place(k, name)`` says where sample k of signal ``name`` stands in the file.
        columns: what the file has, for messages.
        epoch_s: what ``times`` lack of the file's own clock, s: kept apart where they would lose digits with it.
    """

    source: str
    times: Numbers | None
    schema: Mapping[str, SignalSpec]
    load: Callable[[str], Numbers]
    place: Callable[[int, str], str]
    columns: Sequence[str]
    epoch_s: float = 0.0


@dataclass(frozen=True)
class Unread:
    """A column that cannot be numbers, and why; no error as long as no formula reads it."""

    reason: str


@dataclass(frozen=True)
class Trace:
    """Signals [T, *shape] each ``dt`` seconds; the first sample is at ``start_s`` of the file's clock."""

    signals: Mapping[str, Numbers]
    dt: float
    start_s: float
    count: int


@dataclass(frozen=True)
class Options:
    """How a file is to be read.

    Args:
        time: name of the time column.
        dt: period in s; None: that of the time column.
        resample: ``hold`` or ``linear``: put the samples on the grid of ``dt``; ``""``: they must lie on it.
        missing: ``error``: a NaN or empty cell is refused; ``unknown``: it is kept as NaN.
        begin, end: part of the file to take, seconds since its first sample; None: all.
        maps: signal -> ``/topic:field.path``, for bags.
        robot, interface, namespace: whose topics to decode, for bags.
        renames: column -> the name of its signal; also that of a vector's components.
    """

    time: str = "t"
    dt: float | None = None
    resample: str = ""
    missing: str = "error"
    begin: float | None = None
    end: float | None = None
    maps: tuple[str, ...] = ()
    robot: str = ""
    interface: str | None = None
    namespace: str | None = None
    renames: Mapping[str, str] = field(default_factory=dict)


def open_tables(path: Path, options: Options) -> list[Table]:
    """The tables of a file: one, or one per topic of a bag."""
    if not path.exists():
        raise BadInput(f"{path} is not there")
    kind = path.suffix.lower()
    bag = path.is_dir() or kind in (".mcap", ".db3")
    if not bag and (options.maps or options.robot):
        raise BadInput(f"--map and --robot are for bags (a folder or .mcap); {path} is none")
    if bag and options.renames:
        raise BadInput(f"--rename: {path} is a bag: --map gives its fields their names")
    if bag:
        return _bag(path, options)
    if kind == ".npz":
        return [_npz(path, options)]
    if kind == ".parquet":
        return [_parquet(path, options)]
    if kind in (".csv", ".tsv", ".txt"):
        return [_csv(path, options)]
    raise BadInput(f"{path}: a trace is {', '.join(SUFFIXES)} or the folder of a bag, not {kind or 'without suffix'!r}")


def schema_of(tables: Sequence[Table]) -> dict[str, SignalSpec]:
    """Every signal that can be read; one that two topics carry is refused."""
    out: dict[str, SignalSpec] = {}
    for table in tables:
        for name, spec in table.schema.items():
            if name in out:
                raise BadInput(f"{table.source}: signal {name!r} comes from two topics")
            out[name] = spec
    return out


def read_trace(tables: Sequence[Table], wanted: Mapping[str, Shape], options: Options) -> Trace:
    """The signals ``wanted`` (name -> shape) on one uniform grid."""
    known = schema_of(tables)
    source = tables[0].source
    for name, shape in wanted.items():
        if name not in known:
            has = ", ".join(c for table in tables for c in table.columns) or "none"
            raise BadInput(f"{source}: no column for signal {name!r}; columns: {has}")
        if known[name].shape != shape:
            raise BadInput(f"{source}: signal {name!r} has shape {list(known[name].shape)}, its declaration says "
                           f"{list(shape)}")
    used = [table for table in tables if any(name in table.schema for name in wanted)] or list(tables[:1])
    if len(used) > 1 and (options.dt is None or not options.resample):
        raise BadInput(f"{source}: the signals come from {len(used)} topics with times of their own: --dt S and "
                       "--resample hold put them on one grid")
    if options.resample:
        return _resampled(used, wanted, options)
    return _as_it_is(used[0], wanted, options)


# ---------------------------------------------------------------- time


def _as_it_is(table: Table, wanted: Mapping[str, Shape], options: Options) -> Trace:
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
    """``values`` at the rows ``index`` of ``count``, NaN at the others: their samples were lost."""
    out = np.full((count, *values.shape[1:]), np.nan)
    out[index.astype(np.int64)] = values
    return out


def _bounded(count: float, source: str) -> int:
    if not count <= MAX_ROWS:
        raise BadInput(f"{source}: the trace would have {count:.4g} samples on the grid of its period; at most "
                       f"{MAX_ROWS} are taken: a longer --dt, or --from and --to")
    return int(count)


def _resampled(tables: Sequence[Table], wanted: Mapping[str, Shape], options: Options) -> Trace:
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
    """``values`` at the times ``grid``: the newest one not later (to a millionth of dt), or on the line between two."""
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
    """A time with the digits that tell samples apart, also seconds since 1970."""
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
    """Refuses ``times`` [T] that are not at the points ``index`` [T] of the grid of ``dt``, one each."""
    residual = times - times[0] - dt * index
    # the first time may be off the grid as any other; with a gap early on the middle is beyond it
    middle = float(np.median(residual))
    middle = 0.0 if abs(middle) > TOLERANCE * dt else middle
    off = np.abs(residual - middle) > TOLERANCE * dt
    off[1:] |= np.diff(index) < 1
    if off.any():
        k = int(np.argmax(off))
        said = f"the period is {dt:.6g} s" + (" by --dt or the formula's file" if given else "")
        raise BadInput(
            f"{source}: {place(k)}: t = {clock(times[k])} is off the uniform grid; {clock(times[0] + index[k] * dt)} "
            f"is expected ({said}, tolerance {TOLERANCE:.0%} of it){_gap(times, k, dt)}; --dt S --resample hold (or "
            "linear) puts the samples on a grid")


def _gap(times: Numbers, k: int, dt: float) -> str:
    """Names the gap before sample ``k``, if there is one."""
    step = float(times[k] - times[k - 1]) / dt if k else 0.0
    lost = round(step) - 1
    if lost < 1 or abs(step - lost - 1) > 2 * TOLERANCE:
        return ""
    return (f": {lost} sample{'s are' if lost > 1 else ' is'} missing between {clock(times[k - 1])} and "
            f"{clock(times[k])}; --missing unknown takes them as lost")


def simplest_period(times: Numbers) -> float:
    """The period as the shortest decimal, or one over a whole number, that fits; about that of the median step where
    the times have gaps.

    Windows must be whole numbers of periods: 0.01, not the 0.010000000000000002 of a mean. The mean of jittered times
    is off by so much that its grid fits up to twice as well as that of the true period; so much is allowed.
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


# ---------------------------------------------------------------- columns


def group(columns: Sequence[str], source: str) -> dict[str, list[int]]:
    """Signal -> the numbers of its columns, by component; a scalar has one. Other columns are left out."""
    parts: dict[str, dict[str, int]] = {}
    for k, column in enumerate(columns):
        found = _COLUMN.match(column)
        if found:
            entry = found[2] or found[3] or ""
            mine = parts.setdefault(found[1], {})
            if entry in mine:
                raise BadInput(f"{source}: two columns are called {column!r}")
            mine[entry] = k
    return {name: _ordered(name, entries, source) for name, entries in parts.items()}


def _ordered(name: str, entries: Mapping[str, int], source: str) -> list[int]:
    if "" in entries:
        if len(entries) > 1:
            raise BadInput(f"{source}: columns {name!r} and {name}.{max(entries)!s}: a signal is a scalar or a vector")
        return [entries[""]]
    letters = [c for c in ("w", "x", "y", "z") if c in entries]
    wanted = letters if letters and len(letters) == len(entries) else [str(i) for i in range(len(entries))]
    legal = ("xy", "xyz", "wxyz")
    if set(entries) != set(wanted) or (letters and "".join(letters) not in legal):
        raise BadInput(f"{source}: components {', '.join(f'{name}.{e}' for e in entries)}: they are numbered from "
                       f"{name}.0 without a gap, or x, y, z, or w, x, y, z")
    return [entries[e] for e in wanted]


def is_vector(columns: Sequence[str], numbers: Sequence[int], name: str) -> bool:
    """Whether these columns are components, also if there is only one."""
    return len(numbers) > 1 or columns[numbers[0]] != name


def _specs(groups: Mapping[str, Sequence[int]], columns: Sequence[str]) -> dict[str, SignalSpec]:
    out = {}
    for name, numbers in groups.items():
        unit = "wxyz" if columns[numbers[0]] == f"{name}.w" else ""
        shape = (len(numbers),) if is_vector(columns, numbers, name) else ()
        out[name] = SignalSpec(name, shape, unit, dtype="float64")
    return out


def _stacked(columns: Sequence[Numbers], vector: bool) -> Numbers:
    return np.stack(columns, -1) if vector else columns[0]


# ---------------------------------------------------------------- CSV


def text_of(raw: bytes, source: str, strict: bool = True) -> str:
    """UTF-8, with or without a byte order mark. Without ``strict`` other bytes are written out: ``\\xff``."""
    try:
        utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        return raw.decode("utf-8-sig", "strict" if strict or utf16 else "backslashreplace")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(f"{source}: row {line} is not UTF-8 text; write the file as UTF-8 CSV") from None


def delimiter_of(header: str, source: str) -> str:
    """Comma, semicolon or tab: the one that the header has. More than one is refused."""
    found = [c for c in ",;\t" if c in header]
    if len(found) > 1:
        raise BadInput(f"{source}: the header has {' and '.join(map(repr, found))}: one of them separates columns")
    return found[0] if found else ","


def cell(text: str, place: str) -> float:
    """The number in a cell; NaN where it is empty."""
    stripped = text.strip()
    if not stripped:
        return float("nan")
    try:
        if "_" in stripped:  # python's own way to write numbers
            raise ValueError
        return float(stripped)
    except ValueError:
        hint = "; the decimal separator is a point" if re.fullmatch(r"[-+]?\d+,\d+", stripped) else ""
        if re.search(r"\\x[89a-f][0-9a-f]", stripped):
            hint = ": it is not UTF-8 text"
        raise BadInput(f"{place}: {stripped[:40]!r} is no number{hint}") from None


def renamed(columns: Sequence[str], renames: Mapping[str, str], source: str) -> list[str]:
    """The columns with the names that ``--rename`` gives them; the components of a vector go with it."""
    out = list(columns)
    for old, new in renames.items():
        mine = [k for k, column in enumerate(columns) if re.split(r"[.\[]", column)[0] == old or column == old]
        if not mine:
            raise BadInput(f"{source}: --rename {old}={new}: there is no column {old!r}; columns: {', '.join(columns)}")
        for k in mine:
            out[k] = new + columns[k][len(old):]
    return out


def _csv(path: Path, options: Options) -> Table:
    time = options.time
    source, content = str(path), text_of(path.read_bytes(), str(path), strict=False)
    if not content.strip():
        raise BadInput(f"{source}: the file is empty; the first row names the columns")
    delimiter = delimiter_of(content.lstrip().split("\n")[0], source)
    lines = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    numbers: list[int] = []  # of the rows in the file, from 1
    try:
        for row in lines:
            if row and any(c.strip() for c in row):
                rows.append(row)
                numbers.append(lines.line_num)
    except csv.Error as error:
        raise BadInput(f"{source}: row {lines.line_num}: {error}") from None
    header, rows, numbers = [c.strip() for c in rows[0]], rows[1:], numbers[1:]
    header = renamed(header, options.renames, source)
    check_header(header, source)
    if not rows:
        raise BadInput(f"{source}: the trace is empty: there is no row below the header")
    for row, line in zip(rows, numbers):
        if len(row) != len(header):
            raise BadInput(f"{source}: row {line} has {len(row)} cells, the header {len(header)}")
    groups = group(header, source)

    def column(k: int) -> Numbers:
        progress = counter(f"{source}, column {header[k]}")
        out = np.empty(len(rows))
        for i, row in enumerate(rows):
            out[i] = cell(row[k], f"{source}: row {numbers[i]}, column {header[k]!r}")
            if (i + 1) % 100_000 == 0:
                progress(i + 1, len(rows))
        return out

    def load(name: str) -> Numbers:
        return _stacked([column(k) for k in groups[name]], is_vector(header, groups[name], name))

    def place(k: int, name: str) -> str:
        return f"row {numbers[k]}, column {name!r}"

    times = column(header.index(time)) if time in header else None
    groups.pop(time, None)
    return Table(source, times, _specs(groups, header), load, place, header)


def check_header(header: Sequence[str], source: str) -> None:
    """The first row names the columns: no numbers, no name twice."""
    for k, name in enumerate(header):
        if name and name in header[:k]:
            raise BadInput(f"{source}: row 1: two columns are called {name!r}")
    if any(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", name) for name in header):
        raise BadInput(f"{source}: row 1 has numbers; the first row names the columns, such as t,height,p.0,p.1,p.2")


@dataclass(frozen=True)
class Live:
    """Rows of a CSV as they come: ``rows`` yields (row number, time or None, sample by signal)."""

    schema: Mapping[str, SignalSpec]
    columns: Sequence[str]
    rows: Callable[[Sequence[str]], Iterator[tuple[int, float | None, dict[str, Any]]]]


def live(stream: TextIO, options: Options, source: str = "stdin") -> Live:
    """The header of a CSV on ``stream``, and its rows line by line."""
    first = stream.readline().removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    if not first.strip():
        raise BadInput(f"{source}: nothing came; the first line names the columns")
    delimiter = delimiter_of(first, source)
    header = [c.strip() for c in next(csv.reader([first], delimiter=delimiter))]
    header = renamed(header, options.renames, source)
    check_header(header, source)
    groups = group(header, source)
    groups.pop(options.time, None)
    if options.time not in header and options.dt is None:
        raise BadInput(f"{source}: no time column {options.time!r}; columns: {', '.join(header)}. --dt S says the "
                       "period of the rows")

    def rows(names: Sequence[str]) -> Iterator[tuple[int, float | None, dict[str, Any]]]:
        for number, line in enumerate(iter(stream.readline, ""), start=2):
            if not line.strip():
                continue
            row = next(csv.reader([line], delimiter=delimiter))
            if len(row) != len(header):
                raise BadInput(f"{source}: row {number} has {len(row)} cells, the header {len(header)}")

            def read(k: int, row: Sequence[str] = row, number: int = number) -> float:
                return cell(row[k], f"{source}: row {number}, column {header[k]!r}")

            time = read(header.index(options.time)) if options.time in header else None
            sample = {}
            for name in names:
                values = [read(k) for k in groups[name]]
                sample[name] = np.array(values) if is_vector(header, groups[name], name) else np.float64(values[0])
                if options.missing == "error" and np.isnan(values).any():
                    raise BadInput(hole(source, f"row {number}, column {name!r}"))
            yield number, time, sample

    return Live(_specs(groups, header), header, rows)


# ---------------------------------------------------------------- arrays and tables


def _array_table(
    source: str, options: Options, arrays: Mapping[str, Any], place: Callable[[int, str], str],
    epochs: Mapping[str, float] | None = None,
) -> Table:
    """A table of arrays by column name, the first axis being time; one that cannot be read is :class:`Unread`."""
    time = options.time
    columns = renamed(list(arrays), options.renames, source)
    epochs = {new: (epochs or {}).get(old, 0.0) for new, old in zip(columns, arrays)}
    arrays = dict(zip(columns, arrays.values()))
    check_header(columns, source)
    groups = group(columns, source)
    lengths = {name: len(a) for name, a in arrays.items() if not isinstance(a, Unread) and np.ndim(a) > 0}
    usual = lengths.get(time, next(iter(lengths.values()), 0))
    shapes: dict[str, Shape] = {}
    for name, numbers in groups.items():
        unread = any(isinstance(arrays[columns[k]], Unread) for k in numbers)
        if unread and name != time:
            shapes[name] = (len(numbers),) if is_vector(columns, numbers, name) else ()
        elif name != time and all(np.ndim(arrays[columns[k]]) > 0 for k in numbers):
            parts = [np.shape(arrays[columns[k]])[1:] for k in numbers]
            shapes[name] = parts[0] if not is_vector(columns, numbers, name) else (len(numbers),)

    def numeric(name: str) -> Numbers:
        if isinstance(arrays[name], Unread):
            raise BadInput(f"{source}: {name!r}: {arrays[name].reason}")
        array = np.asarray(arrays[name])
        if array.dtype.kind not in "fiub":
            raise BadInput(f"{source}: {name!r} is of type {array.dtype}: numbers are needed")
        if len(array) != usual:
            raise BadInput(f"{source}: {name!r} has {len(array)} samples, others {usual}")
        return array.astype(np.float64)

    def load(name: str) -> Numbers:
        numbers = groups[name]
        return _stacked([numeric(columns[k]) for k in numbers], is_vector(columns, numbers, name))

    times = numeric(time) if time in lengths or isinstance(arrays.get(time), Unread) else None
    if times is not None and times.ndim != 1:
        raise BadInput(f"{source}: {time!r} has shape {list(times.shape)}: time is [T]")
    if not lengths or usual == 0:
        raise BadInput(f"{source}: the trace is empty: it has no sample")
    unit = {name: "wxyz" if columns[n[0]] == f"{name}.w" else "" for name, n in groups.items()}
    specs = {name: SignalSpec(name, shape, unit[name], dtype="float64") for name, shape in shapes.items()}
    return Table(source, times, specs, load, place, columns, epochs.get(time, 0.0))


def _npz(path: Path, options: Options) -> Table:
    arrays: dict[str, Any] = {}
    # a decoder of bytes from anywhere raises anything
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                try:
                    found = file[name]  # bytes, if it is no array
                    arrays[name] = found if isinstance(found, np.ndarray) else Unread("no plain array of NPZ")
                except Exception as error:
                    arrays[name] = Unread(f"no plain array of NPZ: {told(error)}")
    except Exception as error:
        raise BadInput(f"{path} is no NPZ file of plain arrays: {told(error)}") from None
    return _array_table(str(path), options, arrays, lambda k, name: f"sample {k} of {name!r}")


def told(error: Exception) -> str:
    """An error of a library in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text[:200]}"


def _parquet(path: Path, options: Options) -> Table:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except Exception as error:
        raise BadInput(f"{path} is no Parquet file: {told(error)}") from None
    arrays, epochs = {}, {}
    for name, column in zip(table.column_names, table.columns):
        arrays[name], epochs[name] = _arrow_column(column)
    return _array_table(str(path), options, arrays, lambda k, name: f"row {k + 1}, column {name!r}", epochs)


def _arrow_column(column: Any) -> tuple[Any, float]:
    """A column as numbers: nulls are NaN, lists of one length are vectors, times are seconds since the first; and that.
    """
    import pyarrow.types as types

    kind = column.type
    if types.is_timestamp(kind) or types.is_duration(kind):
        scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[kind.unit]
        ticks = column.cast("int64").to_numpy()
        if not len(ticks) or ticks[0] != ticks[0]:
            return ticks * scale, 0.0
        return (ticks - ticks[0]) * scale, float(ticks[0]) * scale
    if types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_large_list(kind):
        return _arrow_lists(column), 0.0
    if types.is_decimal(kind):
        column, kind = column.cast("float64"), "float64"
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return Unread(f"it is of type {kind}: numbers, lists of numbers or time stamps are needed"), 0.0
    array = column.to_numpy()
    return (array if array.dtype.kind in "fiub" else np.array(array, dtype=float)), 0.0


def _arrow_lists(column: Any) -> Any:
    """Lists of numbers of one length as [T, length]."""
    rows = column.to_pylist()
    lengths = {len(row) for row in rows if row is not None}
    if len(lengths) > 1:
        return Unread(f"it has lists of {min(lengths)} to {max(lengths)} entries: a signal has one length")
    blank = [None] * (lengths.pop() if lengths else 1)
    try:
        return np.array([blank if row is None else row for row in rows], dtype=float)
    except (TypeError, ValueError):
        return Unread(f"it is of type {column.type}: lists of numbers are needed")


# ---------------------------------------------------------------- bags


def _bag(path: Path, options: Options) -> list[Table]:
    from rosbags.highlevel import AnyReader

    try:
        with AnyReader([path]) as reader:
            kinds = {c.topic: c.msgtype or "" for c in reader.connections}
            if not options.maps and not options.robot:
                raise BadInput(f"{path}: say what the signals are: --map height=/odom:pose.pose.position.z for each, "
                               f"or --robot NAME; topics: {_topics(kinds)}")
            wanted = [*_robot_topics(options, kinds, path), *_mapped_topics(options.maps, kinds, path)]
            return [_messages(reader, topic, path) for topic in wanted]
    except BadInput as error:
        raise BadInput(str(error) if str(error).startswith((str(path), "--map")) else f"{path}: {error}") from None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # a decoder of bytes from anywhere raises anything
        raise BadInput(f"{path} is no bag that can be read: {told(error)}") from None


def _topics(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{topic} ({kind})" for topic, kind in sorted(kinds.items())) or "none"


@dataclass(frozen=True)
class _Topic:
    """A topic and how its messages become signals; ``unit(name, message)`` is that of one of them."""

    name: str
    decode: Callable[[Any], dict[str, Any]]
    unit: Callable[[str, Any], str]


def _mapped_topics(maps: Sequence[str], kinds: Mapping[str, str], path: Path) -> list[_Topic]:
    fields: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for text in maps:
        found = re.fullmatch(r"([A-Za-z_]\w*)=(/[^:]*):(\S+)", text)
        if not found:
            raise BadInput(f"--map {text}: write signal=/topic:field.path, such as height=/odom:pose.pose.position.z")
        name, topic, field = found.groups()
        if name in seen:
            raise BadInput(f"--map: signal {name!r} is mapped twice")
        if topic not in kinds:
            raise BadInput(f"--map {text}: {path} has no topic {topic}; topics: {_topics(kinds)}")
        seen.add(name)
        fields.setdefault(topic, {})[name] = field

    def of(topic: str) -> _Topic:
        def decode(message: Any) -> dict[str, Any]:
            found = fields[topic].items()
            return {name: _numbers(_field(message, field, topic), field, topic) for name, field in found}

        def unit(name: str, message: Any) -> str:
            return "wxyz" if hasattr(_field(message, fields[topic][name], topic), "w") else ""

        return _Topic(topic, decode, unit)

    return [of(topic) for topic in fields]


def _field(message: Any, path: str, topic: str) -> Any:
    """What stands at ``path`` of a message: ``pose.pose.position``, ``data[2]``."""
    at = message
    for word in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        try:
            at = at[int(word[1:-1])] if word.startswith("[") else getattr(at, word)
        except (AttributeError, IndexError, TypeError):
            has = [name for name in getattr(at, "__dataclass_fields__", {}) if not name.startswith("_")]
            told = f"fields: {', '.join(has)}" if has else f"it is {at!r:.60}"
            raise BadInput(f"{topic}: no {word!r} in {path!r}; {told}") from None
    return at


def _numbers(at: Any, path: str, topic: str) -> Numbers:
    """A number, a sequence, or a message with x, y, z (and w, which comes first) as an array."""
    names = [name for name in ("w", "x", "y", "z") if hasattr(at, name)]
    try:
        return np.array([getattr(at, n) for n in names] if names else at, dtype=np.float64)
    except (TypeError, ValueError):
        has = [name for name in getattr(at, "__dataclass_fields__", {}) if not name.startswith("_")]
        raise BadInput(f"{topic}: {path!r} is no number and no vector; fields: {', '.join(has) or 'none'}") from None


def _robot_topics(options: Options, kinds: Mapping[str, str], path: Path) -> list[_Topic]:
    """The topics of a robot's state, decoded as the nodes decode them."""
    if not options.robot:
        return []
    from temporeal.policies.cli.deployment.requirements import needs_bridge
    from temporeal.policies.runs import errors
    from temporeal.robots.spec import load_robot

    needs_bridge()
    from temporeal_bridge.codecs.codec import CodecError
    from temporeal_bridge.codecs.table import STATE_CODECS
    from temporeal_bridge.interface.loading import load_interface

    with errors.bad_input():
        robot = load_robot(options.robot)
        interface = load_interface(robot, options.interface)
    ends = [state.topic for state in interface.states]
    roots = {topic.removesuffix(f"/{ends[0]}") for topic in kinds if topic.endswith(f"/{ends[0]}")}
    if options.namespace is not None:
        root = f"/{options.namespace.strip('/')}".rstrip("/")
    elif len(roots) == 1:
        root = roots.pop()
    else:
        raise BadInput(f"{path}: --namespace says whose topics: {len(roots)} robots publish {ends[0]}; "
                       f"topics: {_topics(kinds)}")
    out = []
    for state in interface.states:
        topic = f"{root}/{state.topic}"
        if topic not in kinds:
            raise BadInput(f"{path}: robot {robot.name!r} needs the topic {topic}; topics: {_topics(kinds)}")
        codec = STATE_CODECS[state.codec]

        def decode(message: Any, codec: Any = codec, state: Any = state, topic: str = topic) -> dict[str, Any]:
            try:
                return dict(codec.decode(message, state.options))
            except CodecError as error:
                raise BadInput(f"{topic}: {error}") from None

        out.append(_Topic(topic, decode, lambda name, _: robot.signals[name].unit))
    return out


def _messages(reader: Any, topic: _Topic, path: Path) -> Table:
    """The messages of one topic as a table. Its time is that of their headers, else that of their receipt, in seconds
    since the bag's start; a message that is not newer than the one before is left out, as the nodes do.
    """
    connections = [c for c in reader.connections if c.topic == topic.name]
    count, progress = sum(c.msgcount for c in connections), counter(f"{path}, {topic.name}")
    stamps: list[int] = []
    rows: dict[str, list[Numbers]] = {}
    units: dict[str, str] = {}
    for k, (connection, received, data) in enumerate(reader.messages(connections), start=1):
        message = reader.deserialize(data, connection.msgtype)
        stamp = _stamp(message) or received
        if stamps and stamp <= stamps[-1]:
            continue
        stamps.append(stamp)
        for name, value in topic.decode(message).items():
            units.setdefault(name, topic.unit(name, message))
            rows.setdefault(name, []).append(np.asarray(value, dtype=np.float64))
        if k % 10_000 == 0:
            progress(k, count)
    if not stamps:
        raise BadInput(f"{path}: topic {topic.name} has no message")
    arrays: dict[str, Numbers] = {}
    for name, values in rows.items():
        if len(shapes := {v.shape for v in values}) > 1:
            raise BadInput(f"{path}: {name!r} of {topic.name} changes its shape: {sorted(shapes)}")
        arrays[name] = np.stack(values)
    schema = {name: SignalSpec(name, a.shape[1:], units[name], dtype="float64") for name, a in arrays.items()}
    times = (np.array(stamps, dtype=np.int64) - int(reader.start_time)) / 1e9
    return Table(str(path), times, schema, arrays.__getitem__, lambda k, _: f"{topic.name}, message {k}",
                 [f"{name} ({topic.name})" for name in arrays])


def _stamp(message: Any) -> int:
    """Nanoseconds of the header's stamp, 0 without one."""
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    return 0 if stamp is None else int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
