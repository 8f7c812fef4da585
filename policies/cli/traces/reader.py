"""Read traces from files: CSV, NPZ, Parquet and ROS 2 bags, as signals by name on a uniform grid of time.

A *column* is a signal's name, or ``name.0``, ``name.1`` for its components (also ``name.x``, ``.y``, ``.z``; for a
quaternion ``.w`` too, kept scalar first). The column ``t`` is the time in seconds. Only the columns that a formula
reads are converted, so the rest of a file does not matter. Every fault is a :class:`BadInput` that names row and
column. """

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from temporeal.policies.cli.traces.array_files import read_npz, read_parquet
from temporeal.policies.cli.traces.bags import read_bag
from temporeal.policies.cli.traces.csv_files import read_csv
from temporeal.policies.cli.traces.grid import on_own_grid, resampled
from temporeal.policies.cli.traces.table import SUFFIXES, Options, Shape, Table, Trace, schema_of, unread_of
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.handed_over.bags import check_bag
from temporeal.robots.handed_over.endings import truncated
from temporeal.robots.handed_over.files import Refused, check
from temporeal.robots.registry import guess_file


def open_tables(path: Path, options: Options) -> list[Table]:
    """The tables of a file: one, or one per topic of a bag."""
    if not path.exists():
        raise BadInput(f"{path} is not there{f'; {near}' if (near := guess_file(path).strip()) else ''}")
    kind = path.suffix.lower()
    bag = path.is_dir() or kind in (".mcap", ".db3")
    if told := truncated(path):
        raise BadInput(told)
    try:
        check_bag(path) if bag else check(path)
    except (OSError, Refused) as error:
        raise BadInput(str(error)) from error
    if not bag and (options.maps or options.robot):
        raise BadInput(f"--map and --robot are for bags (a folder or .mcap); {path} is none")
    if bag and options.renames:
        raise BadInput(f"--rename: {path} is a bag: --map gives its fields their names")
    if bag:
        return read_bag(path, options)
    if kind == ".npz":
        return [read_npz(path, options)]
    if kind == ".parquet":
        return [read_parquet(path, options)]
    if kind in (".csv", ".tsv", ".txt"):
        return [read_csv(path, options)]
    raise BadInput(f"{path}: a trace is {', '.join(SUFFIXES)} or the folder of a bag, not {kind or 'without suffix'!r}")


def read_trace(tables: Sequence[Table], wanted: Mapping[str, Shape], options: Options) -> Trace:
    """The signals ``wanted`` (name -> shape) on one uniform grid."""
    known, unread = schema_of(tables), unread_of(tables)
    source = tables[0].source
    for name, shape in wanted.items():
        if name in unread:
            raise BadInput(f"{source}: {unread[name]}")
        if name not in known:
            has = ", ".join(c for table in tables for c in table.columns) or "none"
            raise BadInput(f"{source}: no column for signal {name!r}; columns: {has}")
        if known[name].shape != shape:
            raise BadInput(f"{source}: signal {name!r} has shape {list(known[name].shape)}, its declaration says "
                           f"{list(shape)}")
    tables = [table for table in tables if table.schema] or tables
    used = [table for table in tables if any(name in table.schema for name in wanted)] or list(tables[:1])
    if len(used) > 1 and (options.dt is None or not options.resample):
        topics = len({table.topic for table in used})
        come = f"from {topics} topics" if topics > 1 else f"with different messages of {used[0].topic},"
        raise BadInput(f"{source}: the signals come {come} with times of their own: --dt S and --resample hold put "
                       "them on one grid")
    if options.resample:
        return resampled(used, wanted, options)
    return on_own_grid(used[0], wanted, options)
