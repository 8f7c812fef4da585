"""The clean excerpts of the tests, read once, and how a defect gets into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import FlightLog, Numbers, Stream
from temporeal.policies.data.flight_logs.kinds import READERS, kind_of
from temporeal_benchmarks.machine import ROOT

FOLDER = ROOT / "tests/data/flight_logs"
NANOBENCH = FOLDER / "nanobench/B7_oval_fast_rep2_excerpt.csv.gz"
USDLOG = FOLDER / "usdlog/log15_excerpt"
Change = Callable[[FlightLog], FlightLog]


@cache
def clean(path: Path) -> FlightLog:
    """An excerpt as it is."""
    return READERS[kind_of(path)](path)


def values(signal: str, change: Callable[[Numbers], Numbers]) -> Change:
    """Other values of one signal."""
    def changed(log: FlightLog) -> FlightLog:
        stream = log.stream_of(signal)
        assert stream is not None
        found = np.array(change(stream.values[signal].copy()))
        return with_stream(log, replace(stream, values={**stream.values, signal: found}))
    return changed


def times(name: str, change: Callable[[Numbers], Numbers]) -> Change:
    """Other times of one source."""
    return lambda log: with_stream(log, replace(log.streams[name], times=change(log.streams[name].times.copy())))


def without(name: str, first: int, last: int) -> Change:
    """One source without its samples ``first`` to ``last``."""
    def changed(log: FlightLog) -> FlightLog:
        stream = log.streams[name]
        kept = np.r_[0:first, last : len(stream.times)]
        return with_stream(log, Stream(name, stream.times[kept], {k: v[kept] for k, v in stream.values.items()}))
    return changed


def both(*changes: Change) -> Change:
    """One after the other."""
    def changed(log: FlightLog) -> FlightLog:
        for change in changes:
            log = change(log)
        return log
    return changed


def with_stream(log: FlightLog, stream: Stream) -> FlightLog:
    """The log with ``stream`` in the place of that of its name."""
    return replace(log, streams={**log.streams, stream.name: stream})
