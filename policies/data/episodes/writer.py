"""Writing a dataset: an episode is on disk, with its files' footers and its checksum, once ``add`` or ``end`` returns.

A writer that is killed loses the open episode and nothing else: files are written under another name and renamed, and
the row in ``meta/episodes`` comes last. The next writer removes what the killed one left over, and says so.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from temporeal.policies.data.episodes import checked_episode, data_files, interface_file, layout, statistics
from temporeal.policies.data.episodes.arrow_columns import checksum
from temporeal.policies.data.episodes.catalogue import Record, VideoPlace
from temporeal.policies.data.episodes.checked_episode import Where
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface, require_same
from temporeal.policies.data.episodes.metadata import Metadata
from temporeal.policies.data.episodes.open_episode import OpenEpisode
from temporeal.policies.data.episodes.video import CODECS, VideoWriter, pixels
from temporeal.robots.atomic_files import write_whole

BATCH_BYTES = 64 << 20
"""Of the values that :meth:`DatasetWriter.add_many` gathers for one file."""
BATCH = 500
"""Episodes that it gathers for one file."""
RAW = "raw"


@dataclass(frozen=True)
class Prepared:
    """An episode that was checked, before it is written.

    Args:
        columns: [S, *shape] by column, those kept as video left out.
        pictures: [S, H, W, 3] by column of those kept as video, or the file that holds them already.
    """

    record: Record
    columns: Mapping[str, np.ndarray]
    pictures: Mapping[str, np.ndarray | VideoWriter]
    figures: Mapping[str, statistics.Figures]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(values.nbytes for values in self.columns.values()) + sum(
            values.nbytes for values in self.pictures.values() if isinstance(values, np.ndarray))


class DatasetWriter:
    """Writes episodes of one interface into a folder; a context manager.

    Args:
        path: the folder; it must be empty or absent unless ``append``.
        interface: of every episode.
        append: add to the set that is there; another interface is refused by the name of what differs.
        pictures: how they are kept: ``h264`` (small, not exact), ``av1`` (smaller, slow), ``lossless`` (video, exact),
            ``raw`` (numbers in the Parquet file). A set that is appended to keeps its own.

    Raises:
        DataError: an episode, or the folder, is not what it must be. Nothing of that episode is written.
    """

    def __init__(self, path: Path | str, interface: Interface, append: bool = False, *, pictures: str = "h264") -> None:
        self.folder, self.interface = Path(path), interface
        interface_file.check(interface, str(path))
        if pictures not in (*CODECS, RAW):
            raise DataError(f"pictures={pictures!r}: legal are {', '.join((*CODECS, RAW))}")
        for spec in interface.signals.values():
            if pictures in CODECS and layout.is_picture(spec):
                pixels(CODECS[pictures], spec.shape)  # refused before there is a folder
        there = self.folder.is_dir() and any(self.folder.iterdir())
        if there and not append:
            raise DataError(f"{path} is not empty: name another folder, or append")
        (self.folder / "meta").mkdir(parents=True, exist_ok=True)
        self._lock = locked(self.folder)
        try:
            self._meta = self._continued() if there and (self.folder / layout.INFO).exists() else Metadata.new(
                self.folder, interface, pictures)
        except BaseException:
            self._lock.close()
            raise
        self._open: OpenEpisode | None = None

    def _continued(self) -> Metadata:
        """The metadata of the set that is there."""
        found = Dataset.open(self.folder)
        if found.foreign:
            raise DataError(f"{self.folder} was written by another program ({layout.OURS} is missing): it is only "
                            "read; temporeal data merge copies it into a set of your own")
        require_same(self.interface, found.interface, str(self.folder))
        if left := left_over(found):
            for path in left:
                path.unlink()
            warnings.warn(f"{self.folder}: removed what a writer that was killed left of its open episode: "
                          f"{', '.join(str(path.relative_to(self.folder)) for path in left)}", stacklevel=4)
        return Metadata.of(found)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.close(failed=kind is not None)

    @property
    def episodes(self) -> int:
        """On disk."""
        return self._meta.episodes

    def close(self, failed: bool = False) -> None:
        """Drop the open episode and write the set's figures."""
        if self._lock.closed:
            return
        if self._open is not None:
            steps = self._open.samples
            self.discard()
            if steps and not failed:
                warnings.warn(f"{self.folder}: episode {self.episodes} was not ended; its {steps} steps are dropped",
                              stacklevel=3)
        try:
            self._meta.finish()
        finally:
            self._lock.close()

    def add(self, episode: Episode) -> None:
        """Write an episode."""
        self._write([self._prepared(episode, self.episodes)])

    def add_many(self, episodes: Iterable[Episode]) -> int:
        """Write episodes, up to :data:`BATCH` in a file, which is many times faster than :meth:`add` of small ones; how
        many. A writer that is killed loses those of one batch."""
        batch: list[Prepared] = []
        before, size = self.episodes, 0
        try:
            for episode in episodes:
                batch.append(self._prepared(episode, self.episodes + len(batch)))
                size += batch[-1].size
                if len(batch) == BATCH or size > BATCH_BYTES:
                    full, batch, size = batch, [], 0  # whatever interrupts the writing: it is not written twice
                    self._write(full)
        finally:  # those before one that was refused are kept
            if batch:
                self._write(batch)
        return self.episodes - before

    def _prepared(self, episode: Episode, number: int) -> Prepared:
        if self._open is not None:
            raise DataError(f"{self.folder}: episode {number} is open: end or discard it first")
        where = f"{self.folder}, episode {number}"
        columns = checked_episode.columns(episode, self.interface, where)
        pictures = {key: columns.pop(key) for key in self._meta.videos}
        figures = {key: of for key, values in pictures.items() if (of := figures_of(key, values)) is not None}
        return self._described(episode, columns, pictures, figures, where)

    def _described(self, episode: Episode, columns: dict[str, np.ndarray],
                   pictures: Mapping[str, np.ndarray | VideoWriter], figures: dict[str, statistics.Figures],
                   where: str) -> Prepared:
        samples = len(columns[layout.DONE])
        columns["timestamp"] = (np.arange(samples) / self.interface.rate_hz).astype(np.float32)
        columns["frame_index"] = np.arange(samples)
        for key, values in columns.items():
            if key not in statistics.LEFT_OUT and (of := figures_of(key, values)) is not None:
                figures[key] = of
        record = Record(0, samples, 0, (0, 0), episode.language, episode.success, episode.terminated,
                        episode.reward is not None, episode.policy_action is not None, plain(episode.info, where),
                        checksum(columns))
        return Prepared(record, columns, pictures, figures)

    def _write(self, batch: list[Prepared]) -> None:
        """Write a file of episodes: pictures, then values, then the rows that make them exist."""
        place = self._meta.next_place
        videos = {key: self._write_video(key, place, batch) for key in self._meta.videos}
        records: list[Record] = []
        columns: list[dict[str, np.ndarray]] = []
        start = self._meta.samples
        for number, one in enumerate(batch, self.episodes):
            records.append(replace(one.record, index=number, start=start, place=place,
                                   videos={key: of[len(records)] for key, of in videos.items()}))
            columns.append({**one.columns, **self._indices(records[-1])})
            start += one.record.length
        specs = self._meta.data_columns
        whole = {key: np.concatenate([of[key] for of in columns]) for key in specs}
        write_whole(layout.file_path(self.folder, layout.DATA_PATH, place),
                    memoryview(data_files.written(whole, specs)))
        self._meta.add(records, [one.figures for one in batch])

    def _indices(self, record: Record) -> dict[str, np.ndarray]:
        rows = np.arange(record.length)
        return {"episode_index": np.full(record.length, record.index), "index": rows + record.start,
                "task_index": np.full(record.length, self._meta.task_index(record.language))}

    def _write_video(self, key: str, place: tuple[int, int], batch: list[Prepared]) -> list[VideoPlace]:
        """The pictures of some episodes as one file; where each episode's are in it."""
        path = layout.file_path(self.folder, layout.VIDEO_PATH, place, key)
        given = batch[0].pictures[key]
        writer = given if isinstance(given, VideoWriter) else self._video(key)
        ends = [0]
        try:
            for one in batch:
                pictures = one.pictures[key]
                if not isinstance(pictures, VideoWriter):
                    for picture in pictures:
                        writer.write(picture)
                ends.append(writer.frames)
            writer.close()
            digest = moved(writer.path, path)
        finally:
            writer.path.unlink(missing_ok=True)
        rate = self.interface.rate_hz
        return [VideoPlace(place, a / rate, b / rate, digest) for a, b in zip(ends, ends[1:])]

    def _video(self, key: str) -> VideoWriter:
        """A video that is being written, beside its later place, where no reader looks."""
        path = layout.file_path(self.folder, layout.VIDEO_PATH, self._meta.next_place, key)
        spec = self._meta.videos[key]
        return VideoWriter(path.with_name(f".{path.name}.{os.getpid()}"), spec.shape, self.interface.rate_hz,
                           CODECS[self._meta.pictures])

    def begin(self, language: str = "", info: Mapping[str, Any] | None = None) -> None:
        """Open an episode whose samples come one by one."""
        if self._open is not None:
            raise DataError(f"{self.folder}: episode {self.episodes} is open already: end or discard it first")
        where = f"{self.folder}, episode {self.episodes}"
        self._open = OpenEpisode(where, language, plain(info or {}, where),
                                 {key: self._video(key) for key in self._meta.videos})

    def step(self, signals: Mapping[str, Any], action: Any, policy_action: Any = None,
             reward: float | None = None) -> None:
        """A sample and the action that followed it. One that is refused is not in the episode, which stays open."""
        now = self._opened()
        if now.samples and (policy_action is None, reward is None) != now.lacks:
            raise DataError(f"{now.where}, index {now.samples}: reward and policy_action are given in every step or in "
                            "none")
        one = Episode({name: np.asarray(value)[None] for name, value in signals.items()}, np.asarray(action)[None],
                      None if policy_action is None else np.asarray(policy_action)[None],
                      None if reward is None else np.asarray([reward], np.float32))
        row = checked_episode.columns(one, self.interface, Where(now.where, now.samples))
        now.lacks = policy_action is None, reward is None
        now.take(row)

    def _opened(self) -> OpenEpisode:
        if self._open is None:
            raise DataError(f"{self.folder}: no episode is open: begin one first")
        return self._open

    def end(self, final_signals: Mapping[str, Any] | None = None, terminated: bool = False,
            success: bool | None = None) -> None:
        """Write the open episode. ``final_signals``: the sample after the last action."""
        now = self._opened()
        if not now.samples:
            raise DataError(f"{now.where} has no step: discard it")
        steps = now.samples
        if final_signals is not None:
            now.take(self._final(now, final_signals))
        columns = now.columns()
        columns[layout.DONE] = np.arange(now.samples) == now.samples - 1
        columns[layout.HAS_ACTION] = np.arange(now.samples) < steps
        told = Episode({}, columns[layout.ACTION], None if now.lacks[0] else columns[layout.POLICY_ACTION],
                       None if now.lacks[1] else columns[layout.REWARD], terminated, success, now.language, now.info)
        figures = {key: statistics.of_pictures(np.concatenate(some), now.samples) for key, some in now.some.items()}
        prepared = self._described(told, columns, now.videos, figures, now.where)
        self._open = None
        self._write([prepared])

    def _final(self, now: OpenEpisode, signals: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The row of the final state: the last action again, no reward."""
        one = Episode({name: np.asarray(value)[None] for name, value in signals.items()}, now.last(layout.ACTION))
        row = checked_episode.columns(one, self.interface, Where(now.where, now.samples))
        if layout.POLICY_ACTION in row:
            row[layout.POLICY_ACTION] = now.last(layout.POLICY_ACTION)
        row[layout.REWARD] = np.where(np.isnan(now.last(layout.REWARD)), np.nan, 0.0).astype(np.float32)
        return row

    def discard(self) -> None:
        """Drop the open episode."""
        for writer in self._opened().videos.values():
            writer.discard()
        self._open = None


def figures_of(key: str, values: np.ndarray) -> statistics.Figures | None:
    """The figures of an episode's column; None where no value is finite."""
    if key.startswith(layout.PICTURES):
        return statistics.of_pictures(values[statistics.chosen(len(values))], len(values))
    return statistics.of_column(values)


def plain(info: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``info`` as JSON can hold it."""
    import json

    try:
        out: dict[str, Any] = json.loads(json.dumps(dict(info), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: info {dict(info)!r}: {error}; plain figures and words are needed") from error
    return out


def moved(source: Path, target: Path) -> str:
    """Give a complete file its place, on disk; its SHA-256."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
        os.fsync(file.fileno())
    os.replace(source, target)
    return digest.hexdigest()


def locked(folder: Path) -> IO[bytes]:
    """The only writer of a set, until the file is closed (a writer that is killed lets go, too)."""
    import fcntl

    file = open(folder / "meta" / ".writer.lock", "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise DataError(f"{folder} is being written by another process") from error
    return file


def left_over(found: Dataset) -> list[Path]:
    """Files of episodes that do not exist: of a writer that was killed before it wrote their row."""
    known = {found.data_path(record.place) for record in found.records}
    known |= {found.video_path(key, place.place) for record in found.records for key, place in record.videos.items()}
    out = []
    for top, suffix in (("data", ".parquet"), ("videos", ".mp4"), ("meta", "")):
        for path in (found.folder / top).rglob("*"):
            begun = path.name.startswith(".") and path.name != ".writer.lock"
            with suppress(OSError):
                if path.is_file() and (begun or (suffix and path.suffix == suffix and path not in known)):
                    out.append(path)
    return sorted(out)
