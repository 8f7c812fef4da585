"""CSV: files, and rows as they come."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from temporeal.policies.cli.console import counter
from temporeal.policies.cli.traces.columns import check_header, group, is_vector, renamed, specs_of, stacked
from temporeal.policies.cli.traces.grid import hole
from temporeal.policies.cli.traces.table import Numbers, Options, Table
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec


def text_of(raw: bytes, source: str, strict: bool = True) -> str:
    """Decode UTF-8, with or without a byte order mark. Without ``strict``, other bytes are escaped: ``\\\\xff``."""
    try:
        utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        return raw.decode("utf-8-sig", "strict" if strict or utf16 else "backslashreplace")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInput(f"{source}: row {line} is not UTF-8 text; write the file as UTF-8 CSV") from None


def delimiter_of(header: str, source: str) -> str:
    """The delimiter in the header: comma, semicolon or tab. More than one is refused."""
    found = [c for c in ",;\t" if c in header]
    if len(found) > 1:
        raise BadInput(f"{source}: the header has {' and '.join(map(repr, found))}: one of them separates columns")
    return found[0] if found else ","


def cell(text: str, place: str) -> float:
    """The number in a cell; NaN if it is empty."""
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


def read_csv(path: Path, options: Options) -> Table:
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
        return stacked([column(k) for k in groups[name]], is_vector(header, groups[name], name))

    def place(k: int, name: str) -> str:
        return f"row {numbers[k]}, column {name!r}"

    times = column(header.index(time)) if time in header else None
    groups.pop(time, None)
    return Table(source, times, specs_of(groups, header), load, place, header)


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

    return Live(specs_of(groups, header), header, rows)
