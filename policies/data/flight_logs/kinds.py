"""Kinds of flight logs by name: how each is recognized and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs import nanobench, recorded, ulog, usdlog
from temporeal.policies.data.flight_logs.flight_log import FlightLog
from temporeal.policies.data.flight_logs.nanobench import text_of
from temporeal.policies.data.formats import kinds

READERS: Mapping[str, Callable[[Path], FlightLog]] = {
    nanobench.KIND: nanobench.read_log, usdlog.KIND: usdlog.read_log, ulog.KIND: ulog.read_log,
    recorded.KIND: recorded.read_episode}
KINDS = (*READERS, kinds.ROSBAG)
"""All kinds; bags need to be told their robot and its topics, and are read by who knows these."""


def kind_of(path: Path) -> str:
    """The kind of a file or folder; one of :data:`KINDS`."""
    if not path.exists():
        raise DataError(f"{path} is not there")
    if path.is_dir():
        if (path / layout.INFO).exists():
            return recorded.KIND
        if kinds.of_folder(path) == kinds.ROSBAG:
            return kinds.ROSBAG
        raise DataError(f"{path} is a folder of neither a dataset nor a bag")
    if path.suffix in kinds.BAGS:
        return kinds.ROSBAG
    if ulog.is_this(path):
        return ulog.KIND
    if usdlog.is_this(path):
        return usdlog.KIND
    if path.name.endswith((".csv", ".csv.gz")):
        header = text_of(path)[0].partition("\n")[0]
        if nanobench.is_this([name.strip() for name in header.split(",")]):
            return nanobench.KIND
        raise DataError(f"{path}: a CSV whose columns are not NanoBench's ({', '.join(nanobench.MUST)}); CSV files of "
                        "signals and commands: temporeal data import")
    raise DataError(f"{path} is of no kind of log that is read: {', '.join(KINDS)}")
