"""Flights of a Crazyflie with motion capture, each predicted by what the others say: NanoBench, leave one flight out.

Of each flight half a second is flown open loop from a measured state, again and again: from position, attitude and
velocity of motion capture, rates of the gyro, and the logged commands. Compared are the simulator with the parameters
that the other flights gave, with the nominal ones of the robot's spec, and going on at the measured velocity. A flight
in which something is wrong even after its clocks were made one is left out, and named.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np

from temporeal.sim.identification import prediction
from temporeal.sim.identification.identify import identify
from temporeal.sim.identification.record import FlightRecord, Numbers, starts
from temporeal.sim.identification.settings import Settings
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

HORIZON_S, RATIO, SECONDS = 0.5, 2.0, 60.0
NAMES = ("reality.nanobench.of_datasheet", "reality.nanobench.seconds")


def rows(quick: bool, out: Path) -> list[Row]:
    """How much smaller the error is than that of nominal parameters, the worst flight judged; what a flight costs."""
    paths = logs.files("nanobench")
    if len(paths) < 2:
        return [not_measured(NAMES[0], "1", RATIO, logs.absent("nanobench")),
                not_measured(NAMES[1], "s", SECONDS, logs.absent("nanobench"))]
    read = [logs.read(path) for path in (paths[:3] if quick else paths)]
    wrong = [found.log.name for found, _, _ in read if found.of("wrong")]
    records = [record for found, record, _ in read if not found.of("wrong")]
    begin = time.process_time()
    identify(records[:1], logs.robot(), slow_commands=True)
    seconds = time.process_time() - begin
    errors = {record.name: compared(record, [each for each in records if each is not record]) for record in records}
    said = "; left out as wrong: " + ", ".join(wrong) if wrong else ""
    return [*error_rows(errors, said),
            at_most(NAMES[1], seconds, "s", SECONDS, f"of a core's time, {records[0].name}, "
                    f"{records[0].seconds:.0f} s of flight, a sampler of {Settings().steps} steps and compiling "
                    "included: of two cores at most as much")]


def compared(record: FlightRecord, others: list[FlightRecord]) -> Mapping[str, float]:
    """Root mean squares of the position's errors [m] in ``record``, by who predicts."""
    found = identify(others, logs.robot(), Settings(steps=0), slow_commands=True)
    voltage = found.problem.reference_v
    errors = {"identified": prediction.position_error(
        prediction.identified(found.asked, found.posterior.theta), record, HORIZON_S, voltage),
        "datasheet": prediction.position_error(prediction.datasheet(logs.robot()), record, HORIZON_S, voltage),
        "hold": held(record)}
    return {name: float(np.sqrt((error**2).mean())) for name, error in errors.items()}


def held(record: FlightRecord) -> Numbers:
    """[S] m: the error of going on at the measured velocity."""
    assert record.position is not None and record.velocity is not None
    count = int(round(HORIZON_S / record.step))
    begin = starts(record, count + 1)
    said = record.position[begin] + record.velocity[begin] * count * record.step
    return np.asarray(np.linalg.norm(said - record.position[begin + count], axis=-1))


def error_rows(errors: Mapping[str, Mapping[str, float]], said: str) -> list[Row]:
    """The worst flight's ratio, which is judged, and the medians."""
    ratios = {name: each["datasheet"] / each["identified"] for name, each in errors.items()}
    each = ", ".join(f"{name.split('_rep')[0]} {value:.2f}" for name, value in ratios.items())
    return [at_least(NAMES[0], min(ratios.values()), "1", RATIO, f"RMS error of position after {HORIZON_S:g} s with "
                     f"the spec's parameters, over that with identified ones, the worst of: {each}{said}"),
            *(Row(f"reality.nanobench.error_{who}", median(found[who] for found in errors.values()), "m",
                  peer=f"RMS of a flight, median of {len(errors)}") for who in ("identified", "datasheet", "hold"))]
