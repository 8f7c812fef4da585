"""Columns as signals: names of vectors' components, renames, headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from temporeal.policies.cli.traces.table import Numbers
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec

_COLUMN = re.compile(r"([^\W\d]\w*)(?:\.(\d+|[wxyz])|\[(\d+)\])?$")


def group(columns: Sequence[str], source: str) -> dict[str, list[int]]:
    """Signal -> the indices of its columns, by component; a scalar has one. Columns that are no signal are dropped."""
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
    """Whether these columns are components, even if there is only one."""
    return len(numbers) > 1 or columns[numbers[0]] != name


def specs_of(groups: Mapping[str, Sequence[int]], columns: Sequence[str]) -> dict[str, SignalSpec]:
    out = {}
    for name, numbers in groups.items():
        unit = "wxyz" if columns[numbers[0]] == f"{name}.w" else ""
        shape = (len(numbers),) if is_vector(columns, numbers, name) else ()
        out[name] = SignalSpec(name, shape, unit, dtype="float64")
    return out


def stacked(columns: Sequence[Numbers], vector: bool) -> Numbers:
    return np.stack(columns, -1) if vector else columns[0]


def renamed(columns: Sequence[str], renames: Mapping[str, str], source: str) -> list[str]:
    """The columns under the names of ``--rename``; components of a vector follow it."""
    out = list(columns)
    for old, new in renames.items():
        mine = [k for k, column in enumerate(columns) if re.split(r"[.\[]", column)[0] == old or column == old]
        if not mine:
            raise BadInput(f"{source}: --rename {old}={new}: there is no column {old!r}; columns: {', '.join(columns)}")
        for k in mine:
            out[k] = new + columns[k][len(old):]
    return out


def check_header(header: Sequence[str], source: str) -> None:
    """The header has names, no numbers and no duplicates."""
    for k, name in enumerate(header):
        if name and name in header[:k]:
            raise BadInput(f"{source}: row 1: two columns are called {name!r}")
    if any(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", name) for name in header):
        raise BadInput(f"{source}: row 1 has numbers; the first row names the columns, such as t,height,p.0,p.1,p.2")
