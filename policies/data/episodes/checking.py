"""What is wrong with a dataset, by episode and index. Every value is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import catalogue, layout, video
from temporeal.policies.data.episodes.arrow_columns import RowError, checksum
from temporeal.policies.data.episodes.catalogue import Place, Record
from temporeal.policies.data.episodes.data_files import arrow_column, numbers, opened
from temporeal.policies.data.episodes.dataset import INFO_BYTES, Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import from_json

TOLERANCE = 0.02
"""Of a period, by which a time may be off its grid. (LeRobot: 0.1 ms.)"""
LARGEST = 1e12
"""Of a number: the square of a larger one, summed over a set, leaves float32."""
LOST_INTERFACE = (f"{layout.OURS} is missing, though the columns are those of a set with one: its limits, units, times "
                  "and successes are not known; copy the file back from where the set came from")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Args:
        what: in words. ``episode``: None: the set as a whole. ``index``: the sample in the episode.
        kind: missing, unreadable, checksum, shape, value, time, rate, index, frames, empty.
    """

    kind: str
    what: str
    episode: int | None = None
    index: int | None = None
    dataset: str = ""

    def __str__(self) -> str:
        where = "" if self.episode is None else f", episode {self.episode}"
        return f"{self.dataset}{where}{'' if self.index is None else f', index {self.index}'}: {self.what}"


def check(path: Path | str, progress: Callable[[int, int], None] = lambda done, of: None) -> list[Finding]:
    """All that is wrong with the dataset in the folder ``path``; a :class:`DataError` where it is none."""
    dataset = Dataset.open(path)
    found = of_set(dataset)
    videos: dict[Path, list[Any]] = {}
    for place, inside in dataset.by_file():
        found += of_file(dataset, place, inside)
        for record in inside:
            found += of_videos(dataset, record, videos)
            progress(record.index + 1, dataset.episodes)
    return found


def of_set(dataset: Dataset) -> list[Finding]:
    """What is wrong with the set as a whole, and with files that only LeRobot reads."""
    folder = dataset.folder
    found = [] if dataset.episodes else [Finding("empty", "there is no episode", dataset=str(folder))]
    if lost_interface(dataset):
        found.append(Finding("missing", LOST_INTERFACE, dataset=str(folder)))
    try:
        known = catalogue.instructions(folder)
        if missing := {record.language for record in dataset.records} - known.keys():
            found.append(Finding("missing", f"{layout.TASKS} lacks the instruction {sorted(missing)[0]!r}",
                                 dataset=str(folder)))
        if (folder / layout.STATS).exists():
            from_json(read_text(folder / layout.STATS, largest=INFO_BYTES, within=folder), layout.STATS)
    except (DataError, Refused) as error:
        found.append(Finding("unreadable", str(error), dataset=str(folder)))
    return found


def lost_interface(dataset: Dataset) -> bool:
    """Whether a set that was written with an interface has none now."""
    return dataset.foreign and {layout.HAS_ACTION, layout.DONE} <= dataset.columns.keys()


def of_file(dataset: Dataset, place: Place, inside: Sequence[Record]) -> list[Finding]:
    """What is wrong with a data file's episodes."""
    keys = [key for key in dataset.columns if not dataset.is_video(key)]
    try:
        path = dataset.data_path(place)
        file = opened(path, inside)
        columns = {key: arrow_column(file, path, key) for key in keys}
    except DataError as error:
        return [Finding("unreadable", str(error), record.index, dataset=str(dataset.folder)) for record in inside]
    found: list[Finding] = []
    start = 0
    for record in inside:
        rows = {}
        for key in keys:
            try:
                rows[key] = numbers(columns[key].slice(start, record.length), key, dataset.columns[key],
                                    str(dataset.feature(key)["dtype"]), str(path))
            except DataError as error:
                index = error.row if isinstance(error, RowError) else None
                found.append(Finding("shape", str(error), record.index, index, str(dataset.folder)))
        start += record.length
        found += of_episode(dataset, record, rows, complete=len(rows) == len(keys))
    return found


def of_episode(dataset: Dataset, record: Record, rows: Mapping[str, np.ndarray], complete: bool) -> Iterator[Finding]:
    """What is wrong with the values of an episode."""
    def finding(kind: str, what: str, index: int | None = None) -> Finding:
        return Finding(kind, what, record.index, index, str(dataset.folder))

    yield from (finding(*one) for one in of_values(record, rows))
    yield from (finding(*one) for one in of_indices(record, rows))
    if "timestamp" in rows:
        yield from (finding(*one) for one in of_times(rows["timestamp"].astype(np.float64), dataset.interface.rate_hz))
    if record.sha256 and complete and checksum(rows) != record.sha256:
        yield finding("checksum", "its values are not those that were written: the checksum differs")


def of_values(record: Record, rows: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, int]]:
    """Values that are not finite, or huge."""
    absent = {layout.REWARD: not record.has_reward, layout.POLICY_ACTION: not record.has_policy_action}
    for key, values in rows.items():
        if values.dtype.kind != "f" or absent.get(key):
            continue
        bad = ~(np.abs(values.reshape(len(values), -1)) <= LARGEST)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            column = int(np.argmax(bad[row]))
            yield "value", f"{key}, component {column}, is {values.reshape(len(values), -1)[row, column]}", row


def of_indices(record: Record, rows: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, int]]:
    """LeRobot's numbers of episode and sample."""
    count = np.arange(record.length)
    wanted = {"episode_index": np.full(record.length, record.index), "frame_index": count,
              "index": count + record.start}
    for key, should in wanted.items():
        if key in rows and (bad := rows[key] != should).any():
            row = int(np.argmax(bad))
            yield "index", f"{key} is {rows[key][row]}; {should[row]} is needed", row


def of_times(times: np.ndarray, rate_hz: float) -> Iterator[tuple[str, str, int | None]]:
    """Times that go back, gaps, another rate. ``times`` [S] in seconds."""
    steps, period = np.diff(times), 1 / rate_hz
    if not len(steps) or not np.isfinite(steps).all():
        return
    if (steps <= 0).any():
        row = int(np.argmax(steps <= 0))
        yield "time", f"time goes back, from {times[row]:.6g} s to {times[row + 1]:.6g} s", row + 1
        return
    slack = TOLERANCE * period + 4 * np.spacing(np.float32(times[-1]))
    middle = float(np.median(steps))
    if abs(middle - period) > slack:
        yield "rate", f"its samples come at {1 / middle:.6g} Hz, the set's at {rate_hz:g} Hz", None
    elif (off := np.abs(steps - period) > slack).any():
        row = int(np.argmax(off))
        yield "time", f"a gap of {steps[row]:.6g} s; the period is {period:.6g} s", row + 1


def of_videos(dataset: Dataset, record: Record, seen: dict[Path, list[Any]]) -> Iterator[Finding]:
    """Frames that are missing, another rate or size, a changed file."""
    for key, place in record.videos.items():
        path = dataset.video_path(key, place.place)
        if path not in seen:
            seen[path] = list(of_video_file(path, dataset, place.sha256))
        found = seen[path] or list(of_frames(dataset, key, record))
        for kind, what in found:
            yield Finding(kind, f"{key}: {what}", record.index, dataset=str(dataset.folder))


def of_video_file(path: Path, dataset: Dataset, sha256: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a file as a whole."""
    if not path.exists():
        yield "missing", f"{path} is missing"
        return
    try:
        frames, rate = video.described(path)
    except DataError as error:
        yield "unreadable", str(error)
        return
    if abs(rate - dataset.interface.rate_hz) > 1e-3 * rate:
        yield "rate", f"{path} has {rate:g} frames per second; the set has {dataset.interface.rate_hz:g}"
    if sha256 and digest(path) != sha256:
        yield "checksum", f"{path} is not what was written: the checksum differs"


def of_frames(dataset: Dataset, key: str, record: Record) -> Iterator[tuple[str, str]]:
    """The frames of one episode, all decoded."""
    try:
        dataset.decoded(key, record)
    except DataError as error:
        yield "frames", str(error).removeprefix(f"episode {record.index}: ")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()
