"""Rates of several programs, measured in interleaved rounds.

A round measures every program once, so that load and clock changes of the machine meet all of them. Two programs are
compared by the ratio of their rates within each round, and by the median of these ratios. A single fast round says
little: on a shared machine the median of a program is often half of its best round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import median

SLOW_S, SLOWEST_S = 0.5, 3.0  # s for a pass, from which on a program takes part in fewer rounds


@dataclass(frozen=True)
class Program:
    """What is measured.

    Attributes:
        seconds: makes one pass and returns the time it took [s].
        work: what a pass does: steps of worlds, signal-timesteps.
        signals: how many signals a pass is given, where its input is signals.
    """

    seconds: Callable[[], float]
    work: float
    signals: int = 0


Rates = Mapping[str, Sequence[float]]
"""Work per second of each program in each round; NaN in rounds that it left out."""


def repeated(
    work: Callable[[], object], clock: Callable[[], float] = time.process_time, span: float = 5e-3
) -> Callable[[], float]:
    """Time of one call of ``work`` by ``clock``, measured over calls of together ``span`` s or more."""
    work()  # compiles
    begin = time.perf_counter()
    work()
    count = max(1, round(span / max(time.perf_counter() - begin, 1e-6)))

    def seconds() -> float:
        work()  # brings its memory back into the caches
        begin = clock()
        for _ in range(count):
            work()
        return (clock() - begin) / count

    return seconds


def rates(programs: Mapping[str, Program], rounds: int, fewer_if_slow: bool = False) -> dict[str, list[float]]:
    """Work per second of each program in each round.

    ``fewer_if_slow``: a program of more than SLOW_S takes part in every third round, one of more than SLOWEST_S in the
    first only.
    """
    found: dict[str, list[float]] = {name: [] for name in programs}
    every = dict.fromkeys(programs, 1)
    for i in range(rounds):
        for name, program in programs.items():
            if i % every[name]:
                found[name].append(nan)
                continue
            seconds = program.seconds()
            found[name].append(program.work / seconds)
            if i == 0 and fewer_if_slow:
                every[name] = 1 if seconds < SLOW_S else 3 if seconds < SLOWEST_S else rounds
    return found


def measured(values: Iterable[float]) -> list[float]:
    """The rounds in which something was measured."""
    return [value for value in values if not isnan(value)]


def middle(values: Iterable[float]) -> float:
    """The median of the rounds in which something was measured."""
    return median(measured(values))


def ratios(found: Rates, ours: str, theirs: str) -> list[float]:
    """Our rate over theirs in each round in which both were measured."""
    return measured(a / b for a, b in zip(found[ours], found[theirs]))


def ratio(found: Rates, ours: str, theirs: str) -> float:
    """The median of our rate over theirs within a round."""
    return median(ratios(found, ours, theirs))
