"""Work that takes longer than a control step may, done some of it in each.

A function that works in pieces is a generator: before each piece it yields what that costs, and it returns the result.
A cost is a count of small pieces, of which one takes a tenth to a fifth of a millisecond on a core of 2025; no clock is
read, so that a flight, its replay and a simulation of it go on with the result at the same sample.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")
Pieces = Generator[float, None, T]


class Work(Generic[T]):
    """Pieces under way. ``result``: once :meth:`go_on` says that it is done."""

    result: T

    def __init__(self, pieces: Pieces[T]) -> None:
        self.pieces, self.cost = pieces, 0.0

    def go_on(self, most: float = inf) -> bool:
        """Do pieces that cost ``most`` together, at least one; whether all is done. What a piece raises is raised."""
        spent = 0.0
        while spent == 0.0 or spent + self.cost <= most:
            spent += self.cost
            try:
                self.cost = next(self.pieces)
            except StopIteration as end:
                self.result = end.value
                return True
        return False


def whole(pieces: Pieces[T]) -> T:
    """The result of all pieces, at once."""
    work = Work(pieces)
    work.go_on()
    return work.result
