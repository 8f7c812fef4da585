"""Where the public flights are, and how they become records."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from temporeal.policies.data.flight_logs import inspection, kinds, records
from temporeal.policies.data.flight_logs.inspection import Inspection
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.identification.record import FlightRecord

VARIABLE = "TEMPOREAL_FLIGHT_LOGS"
BLOCK_S = 2.0
SOURCES = {
    "nanobench": "github.com/syediu/nanobench-iros2026 at 0ae7d68, datasets/dataset/*.csv",
    "usdlog": "github.com/arplaboratory/data-driven-system-identification at 2d267dd, logs_crazyflie/log10 and log15"}


def folder(source: str) -> Path:
    """Of one source's files."""
    return Path(os.environ.get(VARIABLE, "outputs/flight_logs")) / source


def files(source: str) -> list[Path]:
    """Of a source, by name; none where they were not put there."""
    return sorted(path for path in folder(source).glob("*")
                  if path.name.endswith((".csv", ".csv.gz")) or path.name.startswith("log"))


def absent(source: str) -> str:
    """Why a part cannot be measured."""
    return f"no flights in {folder(source)}: {SOURCES[source]}; {VARIABLE} names the folder of both sources"


def robot() -> RobotSpec:
    """Whose flights all of these are."""
    return load_robot("crazyflie")


def read(path: Path) -> tuple[Inspection, FlightRecord, bool]:
    """A log, its clocks made one where they are two; its record; whether its commands were logged slowly."""
    found = inspection.align(inspection.inspect(kinds.READERS[kinds.kind_of(path)](path), robot()), robot())
    return found, *records.record_of(found)


def halves(record: FlightRecord) -> tuple[FlightRecord, FlightRecord]:
    """The first and the second half of its flight."""
    at = np.flatnonzero(record.usable)
    first = np.arange(len(record.usable)) < at[len(at) // 2]
    return record.only(first), record.only(~first)


def alternating(record: FlightRecord) -> tuple[FlightRecord, FlightRecord]:
    """Every other :data:`BLOCK_S`, and the rest."""
    even = np.arange(len(record.usable)) * record.step // BLOCK_S % 2 == 0
    return record.only(even), record.only(~even)
