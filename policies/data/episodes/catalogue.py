"""The rows of ``meta/episodes``: which episodes there are, where they lie, and what was said about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.layout import EPISODES, TASKS
from temporeal.robots.handed_over import files
from temporeal.robots.handed_over.endings import truncated
from temporeal.robots.handed_over.texts import from_json

Place = tuple[int, int]
INFO_BYTES = 1 << 20


@dataclass(frozen=True)
class VideoPlace:
    """Where an episode's frames are: file, first frame's time [s] in it, SHA-256 of the file ("": unknown)."""

    place: Place
    begin_s: float
    end_s: float
    sha256: str = ""


@dataclass(frozen=True)
class Record:
    """One episode.

    Args:
        index: its number; ``length``: S samples, from sample ``start`` of the set on.
        place: chunk and file of its rows.
        success: None: nobody judged. ``language``: the instruction.
        has_reward, has_policy_action: whether these columns hold something; else NaN.
        sha256: of its values (:func:`arrow_columns.checksum`); "": unknown.
        videos: by column.
    """

    index: int
    length: int
    start: int
    place: Place
    language: str = ""
    success: bool | None = None
    terminated: bool = False
    has_reward: bool = True
    has_policy_action: bool = True
    info: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)


def schema(video_keys: Sequence[str]) -> Any:
    """Arrow's schema of the rows, without figures."""
    fields = [("episode_index", pa.int64()), ("tasks", pa.list_(pa.string())), ("length", pa.int64()),
              ("data/chunk_index", pa.int64()), ("data/file_index", pa.int64()),
              ("dataset_from_index", pa.int64()), ("dataset_to_index", pa.int64()),
              ("meta/episodes/chunk_index", pa.int64()), ("meta/episodes/file_index", pa.int64())]
    for key in video_keys:
        fields += [(f"videos/{key}/chunk_index", pa.int64()), (f"videos/{key}/file_index", pa.int64()),
                   (f"videos/{key}/from_timestamp", pa.float64()), (f"videos/{key}/to_timestamp", pa.float64()),
                   (f"videos/{key}/sha256", pa.string())]
    return pa.schema([*fields, ("temporeal/success", pa.bool_()), ("temporeal/terminated", pa.bool_()),
                      ("temporeal/has_reward", pa.bool_()), ("temporeal/has_policy_action", pa.bool_()),
                      ("temporeal/info", pa.string()), ("temporeal/sha256", pa.string())])


def row(record: Record, meta_place: Place) -> dict[str, Any]:
    """A record as a row of the file ``meta_place``."""
    out = {"episode_index": record.index, "tasks": [record.language], "length": record.length,
           "data/chunk_index": record.place[0], "data/file_index": record.place[1],
           "dataset_from_index": record.start, "dataset_to_index": record.start + record.length,
           "meta/episodes/chunk_index": meta_place[0], "meta/episodes/file_index": meta_place[1],
           "temporeal/success": record.success, "temporeal/terminated": record.terminated,
           "temporeal/has_reward": record.has_reward, "temporeal/has_policy_action": record.has_policy_action,
           "temporeal/info": json.dumps(dict(record.info), allow_nan=False), "temporeal/sha256": record.sha256}
    for key, video in record.videos.items():
        out |= {f"videos/{key}/chunk_index": video.place[0], f"videos/{key}/file_index": video.place[1],
                f"videos/{key}/from_timestamp": video.begin_s, f"videos/{key}/to_timestamp": video.end_s,
                f"videos/{key}/sha256": video.sha256}
    return out


def paths(folder: Path) -> list[Path]:
    """The files of rows, in order."""
    return sorted((folder / EPISODES).glob("chunk-*/file-*.parquet"))


def read(folder: Path, video_keys: Sequence[str]) -> list[Record]:
    """All records in order, checked to be one row of samples without gaps."""
    records: list[Record] = []
    for path in paths(folder):
        records += read_file(path, folder, video_keys)
    records.sort(key=lambda record: record.index)
    check(records, folder)
    return records


def read_file(path: Path, folder: Path, video_keys: Sequence[str]) -> list[Record]:
    """The records of one file."""
    files.check(path, within=folder)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        names = [name for name in file.schema_arrow.names if not name.startswith("stats/")]
        columns = file.read(columns=names).to_pydict()
        return [record(columns, k, video_keys, f"{path}, row {k}") for k in range(file.metadata.num_rows)]
    except (pa.ArrowException, OSError) as error:
        raise DataError(truncated(path) or f"{path} cannot be read: {error}") from error
    except KeyError as error:
        raise DataError(f"{path} has no column {error}") from error


def record(columns: Mapping[str, list[Any]], k: int, video_keys: Sequence[str], where: str) -> Record:
    """Row ``k`` as a record; of a foreign set what it does not say is unknown."""

    def whole(key: str) -> int:
        value = columns[key][k]
        if not isinstance(value, int) or not 0 <= value < 2**62:
            raise DataError(f"{where}: {key} is {value!r}; a whole number from 0 on is needed")
        return value

    def ours(key: str, default: Any) -> Any:
        return columns[f"temporeal/{key}"][k] if f"temporeal/{key}" in columns else default

    tasks = columns["tasks"][k] if "tasks" in columns else None
    info = ours("info", None)
    return Record(
        index=whole("episode_index"), length=whole("length"), start=whole("dataset_from_index"),
        place=(whole("data/chunk_index"), whole("data/file_index")), language=str(tasks[0]) if tasks else "",
        success=ours("success", None), terminated=bool(ours("terminated", False)),
        has_reward=bool(ours("has_reward", True)), has_policy_action=bool(ours("has_policy_action", True)),
        info=dict(from_json(info, where)) if info else {}, sha256=str(ours("sha256", "") or ""),
        videos={key: VideoPlace(
            (whole(f"videos/{key}/chunk_index"), whole(f"videos/{key}/file_index")),
            float(columns[f"videos/{key}/from_timestamp"][k]), float(columns[f"videos/{key}/to_timestamp"][k]),
            str(columns[f"videos/{key}/sha256"][k] or "") if f"videos/{key}/sha256" in columns else "")
            for key in video_keys})


def instructions(folder: Path) -> dict[str, int]:
    """The number of each instruction; none where the file is missing."""
    path = folder / TASKS
    if not path.exists():
        return {}
    files.check(path, within=folder)
    try:
        columns = pq.read_table(path).to_pydict()
        numbers = columns.pop("task_index")
        return {str(text): int(number) for text, number in zip(next(iter(columns.values())), numbers)}
    except (pa.ArrowException, OSError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise DataError(f"{path} is no list of instructions: {error}") from error


def check(records: Sequence[Record], folder: Path) -> None:
    """Episodes are numbered from 0 on and their samples follow each other."""
    start = 0
    for number, one in enumerate(records):
        if one.index != number:
            what = "is there twice" if number and one.index == records[number - 1].index else f"follows {number - 1}"
            raise DataError(f"{folder}: episode {one.index} {what}: episodes are numbered from 0 on, none left out")
        if one.start != start or one.length < 1:
            raise DataError(f"{folder}: episode {number} has {one.length} samples from {one.start} on; at least one is "
                            f"needed, and the one before ends at {start}")
        start += one.length
