"""Safetensors files, read with numpy: eight bytes with the header's length, a JSON header, raw numbers.

Format: https://github.com/huggingface/safetensors (README, "Format"). Nothing in such a file can run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.handed_over.files import Refused, opened
from temporeal.robots.handed_over.texts import from_json

HEADER = 64 << 20  # bytes, at most: the largest public models have some thousand tensors
LARGEST = 1 << 40  # bytes of a model
MOST = 1 << 24  # bytes of a tensor, unless its reader says otherwise
NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}


def header(path: Path) -> dict[str, dict[str, Any]]:
    """Name of each tensor -> ``dtype``, ``shape``, ``data_offsets``."""
    with opened(path, LARGEST) as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= HEADER:
            raise Refused(f"{path} is no safetensors file: its header would have {size:,} bytes")
        found = from_json(file.read(size), str(path))
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise Refused(f"{path} is no safetensors file: its header is no table of tensors")
    found.pop("__metadata__", None)
    return found


def tensors(
    path: Path, wanted: Callable[[str], bool] = lambda name: True, most: int = MOST
) -> dict[str, np.ndarray]:
    """The tensors whose names are ``wanted``, of at most ``most`` bytes each, as float64."""
    entries = {name: entry for name, entry in header(path).items() if wanted(name)}
    with opened(path, LARGEST) as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        return {name: tensor(file, begin, name, entry, path, most) for name, entry in entries.items()}


def tensor(file: Any, begin: int, name: str, entry: dict[str, Any], path: Path, most: int = MOST) -> np.ndarray:
    """One tensor of at most ``most`` bytes; ``begin``: where the numbers begin."""
    try:
        kind, shape = np.dtype(NUMBERS[entry["dtype"]]), tuple(int(size) for size in entry["shape"])
        first, last = (int(offset) for offset in entry["data_offsets"])
        count = int(np.prod(shape, dtype=np.int64))
        if last - first != count * kind.itemsize or first < 0 or last - first > most:
            raise ValueError(f"{last - first} bytes for shape {list(shape)}")
        file.seek(begin + first)
        found: np.ndarray = np.frombuffer(file.read(last - first), kind).reshape(shape).astype(np.float64)
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path}: the tensor {name!r} cannot be read ({type(error).__name__}: {error})") from error
