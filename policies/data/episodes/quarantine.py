"""Damaged episodes are moved aside; the good ones are numbered anew and stay usable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from temporeal.policies.data.episodes import catalogue, data_files, layout, statistics
from temporeal.policies.data.episodes.catalogue import Place, Record
from temporeal.policies.data.episodes.checking import Finding
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.metadata import Metadata, pictures_of, write_json
from temporeal.policies.data.episodes.writer import locked
from temporeal.robots.atomic_files import staged, write_whole

FOLDER = "quarantine"


def quarantine(path: Path | str, findings: Sequence[Finding]) -> Path:
    """Move the episodes that ``findings`` name into the set's folder ``quarantine``; the folder of this time in it.

    The set's new files are written beside it and take its place in one step; videos are linked, not written. Only a
    set of ours: another program's is only read.
    """
    dataset = Dataset.open(path)
    if dataset.foreign:
        raise DataError(f"{path} was written by another program: it is only read, and nothing in it is moved")
    bad = {one.episode for one in findings if one.episode is not None}
    lock = locked(dataset.folder)
    try:
        with staged(dataset.folder) as new:
            aside = put_aside(dataset, bad, findings, new)
            write_good(dataset, bad, new)
    finally:
        lock.close()
    return dataset.folder / aside.relative_to(new)


def put_aside(dataset: Dataset, bad: set[int], findings: Sequence[Finding], new: Path) -> Path:
    """The files of the damaged episodes, and a report, in ``new``."""
    before = dataset.folder / FOLDER
    if before.is_dir():
        shutil.copytree(before, new / FOLDER, copy_function=linked)
    (new / FOLDER).mkdir(exist_ok=True)
    aside = new / FOLDER / f"{len(list((new / FOLDER).iterdir())):03d}"
    records = [record for record in dataset.records if record.index in bad]
    write_json(aside / "report.json", {"findings": [asdict(one) for one in findings],
                                       "episodes": [asdict(record) for record in records]})
    for path in {path for record in records for path in files_of(dataset, record)}:
        if path.is_file():
            target = aside / path.relative_to(dataset.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            linked(path, target)
    return aside


def files_of(dataset: Dataset, record: Record) -> list[Path]:
    """The files that an episode is in."""
    return [dataset.data_path(record.place),
            *(dataset.video_path(key, video.place) for key, video in record.videos.items())]


def linked(source: str | Path, target: str | Path) -> None:
    """The same file under another name; a copy where the disk has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_good(dataset: Dataset, bad: set[int], new: Path) -> None:
    """The other episodes as a set in ``new``."""
    meta = Metadata.new(new, dataset.interface, pictures_of(dataset))
    rows = {row["episode_index"]: row for path in catalogue.paths(dataset.folder)
            for row in pq.read_table(path).to_pylist()}
    for place, inside in dataset.by_file():
        good = [record for record in inside if record.index not in bad]
        if good:
            columns = of_file(dataset, meta, place, inside, good)
            meta.add(columns, [statistics.of_row(rows[record.index]) for record in good])
            for path in {path for record in good for path in files_of(dataset, record)[1:]}:
                target = new / path.relative_to(dataset.folder)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    linked(path, target)
    meta.finish()


def of_file(dataset: Dataset, meta: Metadata, place: Place, inside: Sequence[Record],
            good: Sequence[Record]) -> list[Record]:
    """Write the good episodes of a data file as the next one of ``meta``; their new records."""
    path = dataset.data_path(place)
    file = data_files.opened(path, inside)
    begins = dict(zip([record.index for record in inside], np.cumsum([0, *(record.length for record in inside)])))
    records, start = [], meta.samples
    for number, record in enumerate(good, meta.episodes):
        records.append(replace(record, index=number, start=start, place=meta.next_place))
        start += record.length
    columns = {}
    for key, spec in meta.data_columns.items():
        whole = data_files.arrow_column(file, path, key)
        columns[key] = np.concatenate([
            data_files.numbers(whole.slice(begins[record.index], record.length), key, spec, spec.dtype, str(path))
            for record in good])
    columns["index"] = np.arange(meta.samples, start)
    columns["episode_index"] = np.repeat([one.index for one in records], [one.length for one in records])
    columns["task_index"] = np.repeat([meta.task_index(one.language) for one in records],
                                      [one.length for one in records])
    write_whole(layout.file_path(meta.folder, layout.DATA_PATH, meta.next_place),
                memoryview(data_files.written(columns, meta.data_columns)))
    return records
