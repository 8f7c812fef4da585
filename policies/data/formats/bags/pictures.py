"""Pictures of a bag that are decoded while they are written: ten minutes of a camera do not fit into memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats.bags.rows import Rows, walk

THREADS, AHEAD = 2, 8
"""Decoders, which leave Python's lock alone, and pictures that wait for the writer. Chosen."""


@dataclass(frozen=True, eq=False)
class BagPictures:
    """[S, H, W, 3] uint8 of a topic, in the order of time; iterating decodes them one by one.

    Args:
        path: of the bag; topic: the topic's name in it.
        rows: its messages' times of receipt.
        numbers: [S] which message each sample shows, increasing.
        decode: bytes of a message -> the picture.
        size: [H, W, 3].
    """

    path: Path
    topic: str
    rows: Rows
    numbers: np.ndarray
    decode: Callable[[bytes], np.ndarray]
    size: tuple[int, ...]
    dtype = np.dtype("uint8")

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """(S, H, W, 3)."""
        return (len(self.numbers), *self.size)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.stack(list(self))

    def __iter__(self) -> Iterator[np.ndarray]:
        ahead: deque[tuple[Future[np.ndarray], int, int]] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            for data, number, count in self._messages():
                ahead.append((pool.submit(self.decode, data), number, count))
                if len(ahead) == AHEAD:
                    yield from self._shown(*ahead.popleft())
            while ahead:
                yield from self._shown(*ahead.popleft())

    def _messages(self) -> Iterator[tuple[bytes, int, int]]:
        """Bytes of each message that is shown, its number, and of how many samples."""
        shown, counts = np.unique(self.numbers, return_counts=True)
        first_ns = self.rows.received[int(shown[0])]
        number = int(np.searchsorted(np.array(self.rows.received), first_ns)) - 1
        place = 0
        for data in walk(self.path, self.topic, first_ns):
            number += 1
            if number == shown[place]:
                yield bytes(data), number, int(counts[place])
                place += 1
                if place == len(shown):
                    return
        raise DataError(f"{self.rows.topic}, message {shown[place]}: the bag was changed while it was read")

    def _shown(self, found: Future[np.ndarray], number: int, count: int) -> Iterator[np.ndarray]:
        try:
            picture = found.result()
        except ValueError as error:
            raise DataError(f"{self.rows.topic}, message {number}: {error}") from error
        if picture.shape != self.size:
            raise DataError(
                f"{self.rows.topic}, message {number}: the picture is {picture.shape}; {self.size} is needed")
        for _ in range(count):
            yield picture
