"""Minari's Arrow layout: a folder per episode with ``part-0.arrow``, the observations and actions as nested columns.

Rows are samples; of actions, rewards and ends the last row is padding (minari/dataset/_storages/arrow_storage.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.found import Rejected
from temporeal.policies.data.formats.jpeg import pictures
from temporeal.policies.data.formats.minari_spaces import Contents, Leaf
from temporeal.robots.handed_over.files import check, inside


def episodes(folder: Path, contents: Contents) -> Iterator[Episode | Rejected]:
    """The episodes one by one."""
    places = sorted((place for place in folder.iterdir() if place.name.isdigit() and place.is_dir()),
                    key=lambda place: int(place.name))
    if not places:
        raise DataError(f"{folder} is empty: it has no episode")
    for place in places:
        yield checks.attempted(f"{folder}, episode {place.name}", partial(episode, folder, place, contents),
                               contents.interface)


def episode(folder: Path, place: Path, contents: Contents) -> Episode:
    """One episode."""
    table = table_of(folder, place)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    signals = {name: leaf_of(columns["observations"], contents.signals[name], contents.jpeg)
               for name in contents.interface.signals}
    action = np.concatenate([part.reshape(len(part), -1) for part in (
        leaf_of(columns["actions"], leaf, False)[:-1] for leaf in contents.action)], axis=1)
    ends = numbers(columns["terminations"])[:-1]
    return Episode(signals, action, None, numbers(columns["rewards"])[:-1], bool(len(ends) and ends[-1]),
                   info={"source": folder.name, "episode": place.name})


def table_of(folder: Path, place: Path) -> Any:
    """The one file of an episode."""
    import pyarrow
    from pyarrow import ipc

    files = sorted(place.glob("*.arrow"))
    if len(files) != 1:
        raise DataError(f"{place} has {len(files)} .arrow files; one is needed")
    check(inside(folder, files[0]))
    try:
        with pyarrow.memory_map(str(files[0])) as source, ipc.open_file(source) as reader:
            table = reader.read_all()
            table.validate(full=True)
            return table
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{files[0]} cannot be read: {error}") from error


def leaf_of(column: Any, leaf: Leaf, jpeg: bool) -> np.ndarray:
    """The numbers of one part of a space."""
    for key in leaf.path:
        name = key.removeprefix("_index_")
        index = column.type.get_field_index(name) if hasattr(column.type, "get_field_index") else -1
        if index < 0:
            raise DataError(f"the column {column.type} has no {name!r}")
        column = column.field(index)
    if jpeg and leaf.is_picture:
        packed = [np.frombuffer(each.as_py(), np.uint8) for each in column]
        return pictures(packed, leaf.shape, leaf.name or "observation")
    flat = column.flatten() if hasattr(column.type, "list_size") else column
    found = numbers(flat)
    if found.size != len(column) * leaf.size:
        raise DataError(f"{leaf.name or 'observation'}: {found.size} numbers in {len(column)} rows; {leaf.size} a row "
                        "are needed")
    return found.reshape(len(column), *leaf.shape)


def numbers(column: Any) -> np.ndarray:
    """A column without nulls as numbers."""
    if column.null_count:
        raise DataError(f"a column has {column.null_count} empty values")
    found = np.asarray(column.to_numpy(zero_copy_only=False))
    if found.dtype.kind not in "biuf":
        raise DataError(f"a column is of {column.type}; numbers are needed")
    return found
