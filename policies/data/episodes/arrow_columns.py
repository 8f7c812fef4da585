"""Columns of samples as numpy arrays [S, *shape] and as Arrow's, in the types that LeRobot's loader expects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.layout import INDICES
from temporeal.robots.signals import SignalSpec


class RowError(DataError):
    """A row of a column is not what it must be."""

    def __init__(self, where: str, row: int, what: str) -> None:
        super().__init__(f"{where}, row {row}: {what}")
        self.row = row


def arrow_type(spec: SignalSpec) -> Any:
    """A scalar for one number, a list of fixed size for a vector, nested lists for more dimensions."""
    kind = pa.from_numpy_dtype(np.dtype(spec.dtype))
    if spec.size == 1 and len(spec.shape) <= 1:
        return kind
    if len(spec.shape) == 1:
        return pa.list_(kind, spec.size)
    for _ in spec.shape:
        kind = pa.list_(kind)
    return kind


def to_arrow(values: np.ndarray, spec: SignalSpec) -> Any:
    """``values`` [S, *shape] as a column."""
    array = pa.array(np.ascontiguousarray(values, dtype=spec.dtype).reshape(-1))
    if spec.size == 1 and len(spec.shape) <= 1:
        return array
    if len(spec.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, spec.size)
    for size in reversed(spec.shape):
        array = pa.ListArray.from_arrays(pa.array(np.arange(0, len(array) + 1, size, dtype=np.int32)), array)
    return array


def to_numpy(column: Any, spec: SignalSpec, where: str) -> np.ndarray:
    """A column as [S, *shape]; the error names ``where`` and the row.

    Args:
        column: Arrow's chunked array.
    """
    parts = [flat(chunk, spec.shape, where) for chunk in column.chunks]
    values = np.concatenate(parts) if len(parts) != 1 else parts[0]
    if values.dtype != np.dtype(spec.dtype):
        raise DataError(f"{where} holds {values.dtype}; info.json says {spec.dtype}")
    return values.reshape(-1, *spec.shape)


def flat(array: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """All numbers of an Arrow array, its lists being of ``shape``."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    rows, depth = len(array), 0
    while pa.types.is_nested(array.type):
        if pa.types.is_struct(array.type) or depth == len(shape):
            raise DataError(f"{where} holds {array.type}; numbers of shape {shape} are needed")
        array = inner(array, shape, depth, where)
        depth += 1
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]) // max(prod(shape), 1)
        raise RowError(where, row, "a value is missing")
    if len(array) != rows * prod(shape):
        raise DataError(f"{where} has {len(array)} numbers in {rows} rows; {prod(shape)} a row are needed")
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values


def inner(array: Any, shape: tuple[int, ...], depth: int, where: str) -> Any:
    """The values of an array of lists, each list of ``shape[depth]`` items."""
    outer = prod(shape[:depth])
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]) // outer
        raise RowError(where, row, "a value is missing")
    if not pa.types.is_fixed_size_list(array.type):
        lengths = np.diff(array.offsets.to_numpy())
        wrong = np.flatnonzero(lengths != shape[depth])
        if len(wrong):
            raise RowError(where, int(wrong[0]) // outer, f"{int(lengths[wrong[0]])} items in dimension {depth}; shape "
                           f"{shape} is needed")
    elif array.type.list_size != shape[depth]:
        raise RowError(where, 0, f"{array.type.list_size} items in dimension {depth}; shape {shape} is needed")
    return array.flatten()


def checksum(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of an episode's values: of every column's name, type and bytes, whatever file they are in.

    The episode's number and the index of its samples are not covered: they change where sets are merged.
    """
    digest = hashlib.sha256()
    for key in sorted(set(columns) - (INDICES.keys() - {"timestamp"})):
        values = np.ascontiguousarray(columns[key])
        digest.update(f"{key} {values.dtype} {values.shape}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
