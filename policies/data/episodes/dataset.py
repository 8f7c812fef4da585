"""A dataset on disk, opened for reading: columns mapped into memory, episodes by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import catalogue, column_cache, interface_file, layout, video
from temporeal.policies.data.episodes.catalogue import Place, Record
from temporeal.policies.data.episodes.data_files import read_column
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.robots.handed_over.files import Refused, member, read_text
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import SignalSpec

INFO_BYTES = 1 << 24


class Dataset:
    """Episodes on disk in LeRobotDataset v3's layout, ours or another's. Made by :meth:`open`.

    Attributes:
        folder: of the set. ``interface``: what its numbers mean; ``foreign``: somebody else's set, whose interface is
            inferred: ``interface.about["unknown"]`` says what cannot be known.
        records: per episode: length, language, success, terminated, info.
        starts: [E + 1] int64, the samples of episode e are ``starts[e]`` to ``starts[e + 1]``.
        columns: what there is, by name in the files, and what each sample of it is.
        signals: the column of each signal.
    """

    def __init__(self, folder: Path, interface: Interface, info: Mapping[str, Any], signals: Mapping[str, str],
                 columns: Mapping[str, SignalSpec], foreign: bool) -> None:
        self.folder, self.interface, self.foreign = folder, interface, foreign
        self.signals, self.columns = dict(signals), dict(columns)
        self._info = info
        self._mapped: dict[str, np.ndarray] = {}
        self.records: tuple[Record, ...] = ()
        self.starts = np.zeros(1, np.int64)
        self.refresh()

    @classmethod
    def open(cls, path: Path | str) -> Dataset:
        """The dataset in the folder ``path``; a :class:`DataError` says what it is instead."""
        folder = Path(path)
        try:
            return cls._opened(folder)
        except Refused as error:
            raise DataError(str(error)) from error

    @classmethod
    def _opened(cls, folder: Path) -> Dataset:
        info = read_info(folder)
        ours = folder / layout.OURS
        if ours.exists():
            told = from_json(read_text(ours, INFO_BYTES, within=folder), str(ours))
            interface = interface_file.from_json(told, str(ours))
            signals = {name: layout.key_of(spec) for name, spec in interface.signals.items()}
            columns = {**layout.columns_of(interface), **indices()}
            if missing := [key for key in columns if key not in info["features"]]:
                raise DataError(f"{folder}: info.json lacks the columns {', '.join(missing)} of the set's interface")
            if abs(interface_file.rate_of(info, folder) - interface.rate_hz) > 1e-6 * interface.rate_hz:
                raise DataError(f"{folder}: info.json says {info['fps']:g} samples per second, {layout.OURS} says "
                                f"{interface.rate_hz:g}: one of them was changed after the set was written")
            return cls(folder, interface, info, signals, columns, foreign=False)
        interface, signals = interface_file.inferred(info, folder)
        columns = interface_file.columns_of(info["features"], folder)
        return cls(folder, interface, info, signals, columns, foreign=True)

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.records)

    @property
    def samples(self) -> int:
        """Of all episodes."""
        return int(self.starts[-1])

    def refresh(self) -> int:
        """Take in the episodes that were added meanwhile; how many there are now. Arrays given before stay as they
        are."""
        keys = [key for key in self.columns if self.is_video(key)]
        records = tuple(catalogue.read(self.folder, keys))
        if records != self.records:
            self._mapped.clear()
        self.records = records
        self.starts = np.cumsum([0, *(record.length for record in records)], dtype=np.int64)
        return len(records)

    def is_video(self, key: str) -> bool:
        """Whether a column is kept as MP4."""
        return bool(self._info["features"][key]["dtype"] == "video")

    def key(self, name: str) -> str:
        """The column that ``name`` is: one of the files, or a signal."""
        if name in self.columns:
            return name
        if name in self.signals:
            return self.signals[name]
        raise DataError(f"{self.folder} has no column {name!r}; signals: {', '.join(self.signals)}; columns: "
                        f"{', '.join(self.columns)}")

    def column(self, name: str) -> np.ndarray:
        """All samples [samples, *shape] of a column or signal, mapped into memory, read-only.

        The first call writes them as a flat file into the set's ``cache`` folder (a video's decoded: samples * H * W *
        3 bytes; :meth:`frames` decodes some without).
        """
        key = self.key(name)
        if key not in self._mapped:
            spec = self.columns[key]
            parts = self._video_parts(key) if self.is_video(key) else self._data_parts(key)
            self._mapped[key] = column_cache.mapped(self.folder, key, spec.dtype, spec.shape, parts)
        return self._mapped[key]

    def _data_parts(self, key: str) -> list[column_cache.Part]:
        return [column_cache.Part(
            self.data_path(place), sum(record.length for record in inside),
            " ".join(record.sha256[:16] for record in inside),
            partial(read_column, self.data_path(place), key, self.columns[key], inside,
                    str(self.feature(key)["dtype"])))
            for place, inside in self.by_file()]

    def _video_parts(self, key: str) -> list[column_cache.Part]:
        return [column_cache.Part(self.video_path(key, record.videos[key].place), record.length,
                                  f"{record.videos[key].begin_s!r} {record.videos[key].sha256[:16]}",
                                  partial(self.decoded, key, record)) for record in self.records]

    def by_file(self) -> list[tuple[Place, list[Record]]]:
        """The data files in order, with the episodes in each."""
        return [(place, list(of)) for place, of in groupby(self.records, key=lambda record: record.place)]

    def data_path(self, place: Place) -> Path:
        """A data file."""
        return layout.file_path(self.folder, self._template("data_path"), place)

    def video_path(self, key: str, place: Place) -> Path:
        """A video file."""
        return layout.file_path(self.folder, self._template("video_path"), place, key)

    def _template(self, name: str) -> str:
        template = self._info.get(name)
        if not isinstance(template, str):
            raise DataError(f"{self.folder}: info.json says {name} {template!r}; a path's template is needed")
        return template

    def feature(self, key: str) -> Mapping[str, Any]:
        """A column as info.json describes it."""
        return dict(self._info["features"][key])

    def decoded(self, key: str, record: Record, first: int = 0, count: int | None = None) -> np.ndarray:
        """Frames [count, H, W, 3] of an episode, from its ``first`` on; all, unless said otherwise."""
        place, rate = record.videos[key], self.interface.rate_hz
        count = record.length - first if count is None else count
        path = self.video_path(key, place.place)
        try:
            return np.stack(list(video.decoded(path, round(place.begin_s * rate) + first, count,
                                               self.columns[key].shape, rate)))
        except DataError as error:
            raise DataError(f"episode {record.index}: {error}") from error

    def frames(self, name: str, samples: Sequence[int] | np.ndarray) -> np.ndarray:
        """Pictures [len(samples), H, W, 3] uint8 of a column or signal; those kept as video are decoded, not cached."""
        key, wanted = self.key(name), np.asarray(samples, np.int64)
        if not self.is_video(key):
            return self.column(key)[wanted]
        if len(wanted) and not (0 <= wanted.min() and wanted.max() < self.samples):
            raise DataError(f"{self.folder}: sample {wanted.min() if wanted.min() < 0 else wanted.max()} of {name}: "
                            f"there are {self.samples}")
        out = np.empty((len(wanted), *self.columns[key].shape), np.uint8)
        episode = np.searchsorted(self.starts, wanted, side="right") - 1
        for number in np.unique(episode):
            record, chosen = self.records[number], np.flatnonzero(episode == number)
            place = record.videos[key]
            first = round(place.begin_s * self.interface.rate_hz) - record.start
            out[chosen] = video.frames_at(self.video_path(key, place.place), wanted[chosen] + first,
                                          self.columns[key].shape, self.interface.rate_hz)
        return out

    def episode(self, index: int) -> Episode:
        """Episode ``index``: views of the columns; of a video only its own frames are decoded."""
        if not -self.episodes <= index < self.episodes:
            raise DataError(f"{self.folder}: there is no episode {index}; it has {self.episodes}")
        record = self.records[index]
        part = slice(record.start, record.start + record.length)
        steps = record.length
        if layout.HAS_ACTION in self.columns and not self.column(layout.HAS_ACTION)[part][-1]:
            steps -= 1
        signals = {name: self.decoded(key, record) if self.is_video(key) and key not in self._mapped
                   else self.column(key)[part] for name, key in self.signals.items()}

        def optional(key: str, there: bool) -> np.ndarray | None:
            return self.column(key)[part][:steps] if there and key in self.columns else None

        return Episode(
            signals=signals, action=self.column(layout.ACTION)[part][:steps],
            policy_action=optional(layout.POLICY_ACTION, record.has_policy_action),
            reward=optional(layout.REWARD, record.has_reward), terminated=record.terminated, success=record.success,
            language=record.language, info=record.info)


def indices() -> dict[str, SignalSpec]:
    """LeRobot's own columns."""
    return {key: SignalSpec(key, dtype=dtype) for key, dtype in layout.INDICES.items()}


def read_info(folder: Path) -> dict[str, Any]:
    """``info.json`` of a dataset."""
    path = folder / layout.INFO
    if folder.is_file():
        raise DataError(f"{folder} is a file; a dataset is a folder: `temporeal data import` reads files")
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    if not path.exists():
        raise DataError(f"{folder} is no dataset: it has no {layout.INFO} (temporeal data --help says what makes one)")
    info = from_json(read_text(path, INFO_BYTES, within=folder), str(path))
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise DataError(f"{path} has no features")
    layout.check_version(info, folder)
    member(folder, "data")
    return info
