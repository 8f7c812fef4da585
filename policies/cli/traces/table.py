"""Tables and traces: signals that share their samples, and how a file is to be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.samples import missing

Numbers = NDArray[np.float64]
Shape = tuple[int, ...]
TOLERANCE = 0.05
"""Share of the period by which a sample may be off the uniform grid."""

SUFFIXES = (".csv", ".tsv", ".txt", ".npz", ".parquet", ".mcap", ".db3")
MISSING, RESAMPLE, REPEATED = missing.CHOICES, ("hold", "linear"), ("error", "drop")
MAX_ROWS = 20_000_000
"""Samples that a trace may have once it is on its grid."""


@dataclass(frozen=True)
class Table:
    """Signals that share their samples.

    Args:
        source: the file, for messages.
        times: [T] seconds as the file has them; None: it has no time.
        schema: the signals that can be loaded.
        load: values [T, *shape] of one signal by name; NaN where a value is missing.
        place: ``place(k, name)`` says where sample k of signal ``name`` stands in the file.
        columns: what the file has, for messages.
        epoch_s: what ``times`` lack of the file's own clock, s: kept apart where they would lose digits with it.
        unread: signals that cannot be loaded, and why: an error only if a formula reads one.
        lag_s: of a bag, how much later than ``times`` the samples were received; 0: ``times`` are the receipt's.
        topic: of a bag. latched: a sample of it holds until the next one.
        notes: what became of the samples, for the reader of the verdict.
    """

    source: str
    times: Numbers | None
    schema: Mapping[str, SignalSpec]
    load: Callable[[str], Numbers]
    place: Callable[[int, str], str]
    columns: Sequence[str]
    epoch_s: float = 0.0
    unread: Mapping[str, str] = field(default_factory=dict)
    lag_s: float = 0.0
    topic: str = ""
    latched: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unread:
    """A column that cannot be read as numbers, and why; an error only if a formula reads it."""

    reason: str


@dataclass(frozen=True)
class Trace:
    """Signals [T, *shape] each ``dt`` seconds; the first sample is at ``start_s`` of the file's clock. ``notes``: what
    became of the file's samples."""

    signals: Mapping[str, Numbers]
    dt: float
    start_s: float
    count: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How a file is to be read.

    Args:
        time: name of the time column.
        dt: period in s; None: that of the time column.
        resample: ``hold`` or ``linear``: put the samples on the grid of ``dt``; ``""``: they must lie on it.
        missing: ``error``: a missing value is refused; ``unknown``: it is kept as NaN.
        repeated: ``error``: a time that repeats or goes back is refused; ``drop``: it is left out and counted.
        stale_s: by topic, how long a sample holds when it is resampled, s; "" all others; else three of its periods.
        begin, end: part of the file to take, seconds since its first sample; None: all.
        maps: signal -> ``/topic:field.path``, for bags.
        robot, interface, namespace: whose topics to decode, for bags.
        renames: column -> the name of its signal; also that of a vector's components.
    """

    time: str = "t"
    dt: float | None = None
    resample: str = ""
    missing: str = missing.ERROR
    repeated: str = "error"
    stale_s: Mapping[str, float] = field(default_factory=dict)
    begin: float | None = None
    end: float | None = None
    maps: tuple[str, ...] = ()
    robot: str = ""
    interface: str | None = None
    namespace: str | None = None
    renames: Mapping[str, str] = field(default_factory=dict)


def schema_of(tables: Sequence[Table]) -> dict[str, SignalSpec]:
    """Every signal that can be read; one that two topics carry is refused."""
    out: dict[str, SignalSpec] = {}
    for table in tables:
        for name, spec in table.schema.items():
            if name in out:
                raise BadInput(f"{table.source}: signal {name!r} comes from two topics")
            out[name] = spec
    return out


def unread_of(tables: Sequence[Table]) -> dict[str, str]:
    """Every signal that cannot be read, and why."""
    return {name: reason for table in tables for name, reason in table.unread.items()}


def one_line(error: Exception) -> str:
    """A library's error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text[:200]}"
