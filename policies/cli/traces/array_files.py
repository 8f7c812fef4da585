"""NPZ and Parquet: tables of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.cli.traces.columns import check_header, group, is_vector, renamed, stacked
from temporeal.policies.cli.traces.table import Numbers, Options, Shape, Table, Unread, one_line
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.handed_over.arrays import SHARE, UNPACKED, array, each_member
from temporeal.robots.handed_over.files import Refused, check, read
from temporeal.robots.signals import SignalSpec

VALUES = UNPACKED // 8  # of a Parquet file, or SHARE times as many as it has bytes


def _array_table(
    source: str, options: Options, arrays: Mapping[str, Any], place: Callable[[int, str], str],
    epochs: Mapping[str, float] | None = None,
) -> Table:
    """A table of arrays by column name, time first; a column that cannot be read is :class:`Unread`."""
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
        return stacked([numeric(columns[k]) for k in numbers], is_vector(columns, numbers, name))

    times = numeric(time) if time in lengths or isinstance(arrays.get(time), Unread) else None
    if times is not None and times.ndim != 1:
        raise BadInput(f"{source}: {time!r} has shape {list(times.shape)}: time is [T]")
    if not lengths or usual == 0:
        raise BadInput(f"{source}: the trace is empty: it has no sample")
    unit = {name: "wxyz" if columns[n[0]] == f"{name}.w" else "" for name, n in groups.items()}
    specs = {name: SignalSpec(name, shape, unit[name], dtype="float64") for name, shape in shapes.items()}
    return Table(source, times, specs, load, place, columns, epochs.get(time, 0.0))


def read_npz(path: Path, options: Options) -> Table:
    arrays: dict[str, Any] = {}
    try:
        for member, content in each_member(read(path), str(path)):
            arrays[member.removesuffix(".npy")] = _member(member, content)
    except (OSError, Refused) as error:
        raise BadInput(f"{path} is no NPZ file of plain arrays: {one_line(error)}") from None
    return _array_table(str(path), options, arrays, lambda k, name: f"sample {k} of {name!r}")


def _member(name: str, content: bytes | Refused) -> Any:
    """The array of a member of an archive, or that it is none."""
    try:
        if not name.endswith(".npy"):
            return Unread("no plain array of NPZ")
        if isinstance(content, Refused):
            raise content
        return array(content, name.removesuffix(".npy"))
    except Refused as error:
        return Unread(f"no plain array of NPZ: {one_line(error)}")


def read_parquet(path: Path, options: Options) -> Table:
    import pyarrow
    import pyarrow.parquet

    try:
        content = check(path)
        about = pyarrow.parquet.read_metadata(content)
        if (values := values_in(about)) > max(VALUES, SHARE * content.stat().st_size):
            raise Refused(f"it unpacks to {values:,} values of {content.stat().st_size:,} bytes")
        table = pyarrow.parquet.read_table(content)
    except Exception as error:  # a decoder of bytes from anywhere raises anything
        raise BadInput(f"{path} is no Parquet file: {one_line(error)}") from None
    arrays, epochs = {}, {}
    for name, column in zip(table.column_names, table.columns):
        arrays[name], epochs[name] = _arrow_column(column)
    return _array_table(str(path), options, arrays, lambda k, name: f"row {k + 1}, column {name!r}", epochs)


def values_in(about: Any) -> int:
    """How many values the columns of a Parquet file unpack to, by its directory."""
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    return sum(group.column(j).num_values for group in groups for j in range(group.num_columns))


def _arrow_column(column: Any) -> tuple[Any, float]:
    """A column as numbers, and the epoch of its times, s: nulls are NaN, lists of one length are vectors, times are
    seconds since the first."""
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
