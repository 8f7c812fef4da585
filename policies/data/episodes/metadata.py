"""The files in ``meta`` while a set is written. Each is replaced as a whole; ``meta/episodes`` makes episodes exist."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from temporeal.policies.data.episodes import catalogue, interface_file, layout, statistics
from temporeal.policies.data.episodes.catalogue import Record
from temporeal.policies.data.episodes.dataset import Dataset, indices
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.episodes.video import CODECS, pixels
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.signals import SignalSpec

ROWS = 100
"""Rows of a file of ``meta/episodes`` up to which it is replaced by a longer one; then the next begins."""

INFO_EVERY = 2.0
"""Seconds from one writing of ``info.json`` to the next: its totals, which only LeRobot reads, may lag as long."""


class Metadata:
    """What is in ``meta``, and how it grows. Made by :meth:`new` and :meth:`of`."""

    def __init__(self, folder: Path, interface: Interface, pictures: str) -> None:
        self.folder, self.interface, self.pictures = folder, interface, pictures
        columns = layout.columns_of(interface)
        self.videos: dict[str, SignalSpec] = {
            key: spec for key, spec in columns.items() if layout.is_picture(spec) and pictures in CODECS}
        self.data_columns = {**{key: spec for key, spec in columns.items() if key not in self.videos}, **indices()}
        self.episodes = self.samples = 0
        self.next_place: catalogue.Place = (0, 0)
        self._tasks: dict[str, int] = {}
        self._place: catalogue.Place = (0, 0)
        self._rows: Any = None  # the last file of rows, Arrow's table
        self._total = statistics.Total()
        self._info_at = -math.inf
        self._tasks_written = -1
        self._columns = self._encoded([]).column_names  # a file that LeRobot wrote has others

    @classmethod
    def new(cls, folder: Path, interface: Interface, pictures: str) -> Metadata:
        """Of a set without an episode, written."""
        meta = cls(folder, interface, pictures)
        meta._write_interface()
        meta._write_tasks()
        meta._write_info()
        return meta

    @classmethod
    def of(cls, found: Dataset) -> Metadata:
        """Of a set that is there. What a writer that was killed had not brought up to date is."""
        meta = cls(found.folder, found.interface, pictures_of(found))
        shapes = {key: statistics.shape_of(key, spec) for key, spec in {**meta.data_columns, **meta.videos}.items()}
        for path in catalogue.paths(found.folder):
            meta._place = int(path.parent.name.split("-")[1]), int(path.stem.split("-")[1])
            try:
                meta._rows = pq.read_table(path)
                meta._total.add_table(meta._rows, shapes)
            except (pa.ArrowException, KeyError, ValueError) as error:
                raise DataError(f"{path}: figures of episodes cannot be read: {error}") from error
        meta._tasks = dict(catalogue.instructions(found.folder))
        for record in found.records:
            meta.task_index(record.language)
            meta.next_place = max(meta.next_place, layout.after(record.place))
        meta.episodes, meta.samples = found.episodes, found.samples
        meta._write_tasks()
        meta._write_info()
        return meta

    def task_index(self, language: str) -> int:
        """The number of an instruction."""
        if language not in self._tasks:
            self._tasks[language] = len(self._tasks)
        return self._tasks[language]

    def add(self, records: Sequence[Record], figures: Sequence[Mapping[str, statistics.Figures]]) -> None:
        """Make episodes exist whose other files are there."""
        self._write_tasks()
        if self._rows is not None and (len(self._rows) >= ROWS or self._rows.column_names != self._columns):
            self._place, self._rows = layout.after(self._place), None
        new = self._encoded([catalogue.row(record, self._place) | statistics.flat_row(of)
                             for record, of in zip(records, figures)])
        rows = new if self._rows is None else pa.concat_tables([self._rows, new]).combine_chunks()
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="snappy", use_dictionary=False, write_statistics=False,
                       write_page_checksum=True)
        write_whole(layout.file_path(self.folder, layout.EPISODES_PATH, self._place), memoryview(sink.getvalue()))
        self._rows = rows  # on disk: after a full disk the next episode must not bring the one that failed
        self.episodes += len(records)
        self.samples += sum(record.length for record in records)
        self.next_place = layout.after(self.next_place)
        self._total.add(figures)
        if time.monotonic() > self._info_at + INFO_EVERY:
            self._write_info()

    def _encoded(self, rows: list[dict[str, Any]]) -> Any:
        known = catalogue.schema(tuple(self.videos))
        cells = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in known}
        for key, spec in {**self.data_columns, **self.videos}.items():
            if key not in statistics.LEFT_OUT:
                for figure in (*statistics.NAMES, "count"):
                    name = f"stats/{key}/{figure}"
                    cells[name] = pa.array([row.get(name) for row in rows], statistics.arrow_type(spec, figure))
        return pa.table(cells).replace_schema_metadata(None)

    def finish(self) -> None:
        """Write the totals and figures of the whole set."""
        self._write_info()
        if self.episodes:
            write_json(self.folder / layout.STATS, self._total.to_json())

    def _write_interface(self) -> None:
        write_json(self.folder / layout.OURS, {**interface_file.to_json(self.interface), "pictures": self.pictures})

    def _write_tasks(self) -> None:
        path = self.folder / layout.TASKS
        if self._tasks_written == len(self._tasks):
            return
        self._tasks_written = len(self._tasks)
        table = pa.table({"task_index": pa.array(range(len(self._tasks)), pa.int64()),
                          "__index_level_0__": pa.array(list(self._tasks), pa.string())})
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(PANDAS)}), sink)
        write_whole(path, memoryview(sink.getvalue()))

    def _write_info(self) -> None:
        self._info_at = time.monotonic()
        rate = layout.plain_rate(self.interface.rate_hz)
        features: dict[str, Any] = {}
        for key, spec in {**layout.columns_of(self.interface), **indices()}.items():
            names = self.interface.action.components if key == layout.ACTION else ()
            features[key] = layout.feature(spec, names)
            if key in self.videos:
                codec = CODECS[self.pictures]
                features[key] = layout.video_feature(spec, rate, codec.name, pixels(codec, spec.shape))
        write_json(self.folder / layout.INFO, {
            "codebase_version": layout.VERSION, "robot_type": self.interface.robot, "total_episodes": self.episodes,
            "total_frames": self.samples, "total_tasks": len(self._tasks), "chunks_size": layout.CHUNK,
            "data_files_size_in_mb": 100, "video_files_size_in_mb": 200, "fps": rate,
            "splits": {"train": f"0:{self.episodes}"}, "data_path": layout.DATA_PATH,
            "video_path": layout.VIDEO_PATH if self.videos else None, "features": features})


PANDAS = {
    "index_columns": ["__index_level_0__"], "column_indexes": [], "pandas_version": "2.2.0",
    "columns": [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64",
         "metadata": None},
        {"name": None, "field_name": "__index_level_0__", "pandas_type": "unicode", "numpy_type": "object",
         "metadata": None}]}
"""How pandas, with which LeRobot reads the instructions, knows which column is its index."""


def pictures_of(found: Dataset) -> str:
    """How a set keeps its pictures."""
    told = json.loads((found.folder / layout.OURS).read_text())
    return str(told.get("pictures", "raw"))


def write_json(path: Path, content: Any) -> None:
    """A JSON file, replaced as a whole."""
    write_whole(path, json.dumps(content, indent=1).encode())
