"""Data files: Parquet with a row per sample, of one episode or of several."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from temporeal.policies.data.episodes.arrow_columns import RowError, to_arrow, to_numpy
from temporeal.policies.data.episodes.catalogue import Record
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.video import THREADS
from temporeal.robots.handed_over.endings import truncated
from temporeal.robots.handed_over.files import check
from temporeal.robots.signals import SignalSpec

ROWS = 1 << 26
"""Of a file: some bytes that say "the same again" must not take all memory. LeRobot's files have 100 MB at most."""
GROUP_BYTES = 64 << 20
"""Of a row group: what a reader that reads by groups must hold."""


def written(columns: Mapping[str, np.ndarray], specs: Mapping[str, SignalSpec]) -> Any:
    """The bytes of a data file with these columns, each [rows, *shape]: an Arrow buffer."""
    table = pa.table({key: to_arrow(columns[key], spec) for key, spec in specs.items()})
    row = max(1, sum(values[0].nbytes for values in columns.values()))
    sink = pa.BufferOutputStream()
    # numbers that are measured hardly repeat: a dictionary of them costs time and saves nothing
    pq.write_table(table, sink, compression="snappy", use_dictionary=False, write_page_checksum=True,
                   write_statistics=["episode_index", "index"], row_group_size=max(1, GROUP_BYTES // row))
    return sink.getvalue()


def opened(path: Path, episodes: Sequence[Record]) -> Any:
    """A data file, its rows counted: those of ``episodes``, which are all that are in it."""
    try:
        check(path, largest=1 << 44)
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(truncated(path) or f"{path} cannot be read: {error}") from error
    rows, wanted = file.metadata.num_rows, sum(episode.length for episode in episodes)
    if rows > ROWS:
        raise DataError(f"{path} says it has {rows:,} rows; at most {ROWS:,} of a file are read")
    if rows != wanted:
        raise DataError(f"{path} has {rows} rows; {wanted} are needed")
    return file


def arrow_column(file: Any, path: Path, key: str) -> Any:
    """A column of an open data file, as Arrow's."""
    if key not in file.schema_arrow.names:
        raise DataError(f"{path} has no column {key}; it has {', '.join(file.schema_arrow.names)}")
    try:
        return file.read(columns=[key]).column(key)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}, column {key} cannot be read: {error}") from error


def read_column(path: Path, key: str, spec: SignalSpec, episodes: Sequence[Record], kind: str) -> np.ndarray:
    """A column [rows, *shape] of a data file; the error names its episodes. ``kind``: its dtype in info.json."""
    try:
        return numbers(arrow_column(opened(path, episodes), path, key), key, spec, kind, str(path))
    except RowError as error:
        ends = np.cumsum([episode.length for episode in episodes])
        k = int(np.searchsorted(ends, error.row, side="right"))
        index = error.row - int(ends[k]) + episodes[k].length
        raise DataError(f"episode {episodes[k].index}, index {index}: {error}") from error
    except DataError as error:
        first, last = episodes[0].index, episodes[-1].index
        raise DataError(f"{f'episode {first}' if first == last else f'episodes {first} to {last}'}: {error}") from error


def numbers(column: Any, key: str, spec: SignalSpec, kind: str, where: str) -> np.ndarray:
    """An Arrow column as [rows, *shape]."""
    read = compressed if kind == "image" else to_numpy
    return read(column, spec, f"{where}, column {key}")


def compressed(column: Any, spec: SignalSpec, where: str) -> np.ndarray:
    """LeRobot's pictures in the data files (PNG or JPEG bytes), decoded; a path in them is not followed."""
    out = np.empty((len(column), *spec.shape), np.uint8)
    for row, cell in enumerate(column.to_pylist()):
        data = cell.get("bytes") if isinstance(cell, dict) else None
        if not isinstance(data, bytes):
            raise RowError(where, row, "the picture's bytes are missing")
        try:
            out[row] = picture(data, spec.shape)
        except DataError as error:
            raise RowError(where, row, str(error)) from error
    return out


def picture(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """A compressed picture as [H, W, 3] uint8."""
    kind = "png_pipe" if data.startswith(b"\x89PNG") else "jpeg_pipe" if data.startswith(b"\xff\xd8") else ""
    if not kind:
        raise DataError("the picture is neither PNG nor JPEG")
    try:
        container: Any
        with av.open(io.BytesIO(data), format=kind) as container:
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise DataError("the picture cannot be decoded")
            if (stream.height, stream.width, 3) != shape:  # before it is decoded: its memory is taken then
                raise DataError(f"the picture has {stream.height} x {stream.width} pixels; {shape[0]} x {shape[1]} are "
                                "needed")
            found: np.ndarray = next(container.decode(video=0)).to_ndarray(format="rgb24", threads=THREADS)
    except (av.error.FFmpegError, StopIteration, IndexError) as error:
        raise DataError(f"the picture cannot be decoded: {error}") from error
    return found
