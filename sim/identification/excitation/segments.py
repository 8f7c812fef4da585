"""The parts of an excitation, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Segment:
    """A part of an excitation: its name, and the samples from ``first`` to before ``last``."""

    name: str
    first: int
    last: int


def segments_of(names: Sequence[str], counts: Sequence[int]) -> tuple[Segment, ...]:
    """Parts of so many samples each, one after the other."""
    ends = list(accumulate(counts))
    return tuple(Segment(name, end - count, end) for name, count, end in zip(names, counts, ends))
