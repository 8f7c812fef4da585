"""CSV files, an episode each: a file, or a folder of them.

A header names the columns: ``t`` [s], the signals (``joint_pos.0``, ``joint_pos.1``: the components of one), the
command (``action.0``, ``action.1``), perhaps ``reward``. Times increase by one period; each row has its command. Cells
are numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.even_times import check_times, rate_of
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.handed_over.files import read_text
from temporeal.robots.signals import SignalSpec, schema

TIME, ACTION, REWARD = "t", "action", "reward"
LARGEST = 1 << 28  # bytes of a file
Columns = dict[str, list[int]]
"""Name -> the places of its components, in their order; one without a dot has one place."""


def read(path: Path, *, rate_hz: float | None = None, robot: str = "") -> Reading:
    """The episodes of a file or a folder.

    Args:
        rate_hz: samples per second; None: that of the times.
        robot: its name; "": unknown.
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    home = path if path.is_dir() else path.parent
    heads = {file: header(file, home) for file in files}
    usual = Counter(tuple(head) for head in heads.values()).most_common(1)[0][0]
    first = next(file for file in files if tuple(heads[file]) == usual)
    columns = columns_of(list(usual), first)
    tables = (table for file in files if (table := numbers_or_none(file, home, usual)) is not None)
    low, high = checks.limits((table[:, columns[ACTION]] for table in tables), len(columns[ACTION]))
    if rate_hz is None:
        rate_hz = rate_of(table_of(first, home, usual)[:, columns[TIME][0]], str(first))
    specs = [SignalSpec(name, (len(places),) if "." in usual[places[0]] else ())
             for name, places in columns.items() if name not in (TIME, ACTION, REWARD)]
    interface = Interface(robot or checks.UNKNOWN_ROBOT, schema(*specs), ActionSpec(ACTION, low, high), rate_hz,
                          about={"source": path.name, "format": "csv"})
    return Reading(interface, episodes(files, home, interface, usual, columns))


def header(file: Path, home: Path) -> list[str]:
    """The names in the first line."""
    line = read_text(file, LARGEST, within=home).partition("\n")[0]
    return [name.strip().strip('"') for name in line.split(",")]


def columns_of(names: list[str], file: Path) -> Columns:
    """The columns of each signal, of the command and of the time."""
    out: Columns = {}
    for place, name in enumerate(names):
        signal, dot, component = name.partition(".")
        if not signal.isidentifier() or (dot and component != str(len(out.get(signal, ())))):
            raise DataError(f"{file}: column {name!r}; names, or name.0, name.1 and so on in their order, are needed")
        if not dot and signal in out:
            raise DataError(f"{file}: column {name!r} is there twice")
        out.setdefault(signal, []).append(place)
    if missing := [name for name in (TIME, ACTION) if name not in out]:
        raise DataError(f"{file} has no column {missing[0]!r}; it has: {', '.join(names)}")
    if not set(out) - {TIME, ACTION, REWARD}:
        raise DataError(f"{file} has no signal beside time, action and reward")
    return out


def table_of(file: Path, home: Path, usual: tuple[str, ...]) -> np.ndarray:
    """The numbers [rows, columns] of a file."""
    lines = read_text(file, LARGEST, within=home).splitlines()
    if (found := tuple(header(file, home))) != usual:
        differ = next((pair for pair in zip(found, usual) if pair[0] != pair[1]), (len(found), len(usual)))
        raise DataError(f"its columns are not those of the other files: {differ[0]!r}, where {differ[1]!r} is needed")
    if len(lines) < 3:
        raise DataError(f"it has {max(len(lines) - 1, 0)} rows; two at least are needed")
    try:
        return np.loadtxt(lines, delimiter=",", skiprows=1, ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"its rows are no numbers in {len(usual)} columns: {error}") from error


def numbers_or_none(file: Path, home: Path, usual: tuple[str, ...]) -> np.ndarray | None:
    """The same; None where it cannot be read, which is said when its turn comes."""
    try:
        return table_of(file, home, usual)
    except checks.DAMAGED:
        return None


def episodes(
    files: list[Path], home: Path, interface: Interface, usual: tuple[str, ...], columns: Columns
) -> Iterator[Episode | Rejected]:
    """The episodes one by one."""
    for file in files:
        yield checks.attempted(str(file), partial(episode, file, home, interface, usual, columns), interface)


def episode(file: Path, home: Path, interface: Interface, usual: tuple[str, ...], columns: Columns) -> Episode:
    """One episode."""
    table = table_of(file, home, usual)
    check_times(table[:, columns[TIME][0]], 1.0 / interface.rate_hz)
    signals = {name: table[:, columns[name]].reshape(len(table), *spec.shape)
               for name, spec in interface.signals.items()}
    reward = table[:, columns[REWARD][0]] if REWARD in columns else None
    return Episode(signals, table[:, columns[ACTION]], None, reward, info={"source": file.name})
