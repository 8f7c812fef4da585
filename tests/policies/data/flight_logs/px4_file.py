"""A ULog as PX4 writes one (docs.px4.io, ULog File Format), small: definitions, then messages in order of time."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Topic = tuple[Sequence[tuple[str, int]], np.ndarray, np.ndarray]
"""Its fields (name, how many floats), times [T] s, and values [T, all floats]."""


def message(kind: bytes, body: bytes) -> bytes:
    return struct.pack("<H", len(body)) + kind + body


def write(path: Path, topics: Mapping[str, Topic], start_us: int = 5_000_000) -> Path:
    out = bytearray(b"ULog\x01\x12\x35\x01" + struct.pack("<Q", start_us))
    out += message(b"B", bytes(8) + bytes(8) + bytes(24))
    rows = list[tuple[int, bytes]]()
    for number, (name, (fields, times, values)) in enumerate(topics.items()):
        told = ";".join(f"float{f'[{size}]' if size > 1 else ''} {field}" for field, size in fields)
        out += message(b"F", f"{name}:uint64_t timestamp;{told};".encode())
        rows += [(int(start_us + 1e6 * t), struct.pack("<H", number) + struct.pack("<Q", int(start_us + 1e6 * t))
                  + np.asarray(row, "<f4").tobytes()) for t, row in zip(times, values)]
    for number, name in enumerate(topics):
        out += message(b"A", struct.pack("<BH", 0, number) + name.encode())
    for _, body in sorted(rows, key=lambda row: row[0]):
        out += message(b"D", body)
    path.write_bytes(bytes(out))
    return path
