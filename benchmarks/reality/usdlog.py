"""Two flights of a Crazyflie's SD card at 1 kHz, motors and IMU: the motors' lag, and what thrust explains.

Parameters are identified from one half of each flight by itself: every other two seconds, so that both halves have the
whole range of a battery whose voltage nobody logged, and of which no two flights had the same. Of the other half the
vertical acceleration is predicted from commands alone, and compared with each sample of the accelerometer at 1 kHz, in
no way smoothed. An independent fit of these flights (a first-order lag, as fast up as down) had lags of 0.055 to 0.07
s and R^2 of 0.84 to 0.86, without lag 0.64 to 0.73; so that the lag here is the geometric mean of the two. Of the
second half by what the first half gave there is a row without a target: it extrapolates how the battery empties; and
so there is of both flights together, for which one thrust cannot be right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import ACCELERATION
from temporeal.policies.data.flight_logs.inspection import Inspection
from temporeal.sim.identification.identify import Identified, identify
from temporeal.sim.identification.parameters import SIDE_90
from temporeal.sim.identification.prediction import explained, vertical
from temporeal.sim.identification.prediction import identified as as_flown
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.settings import Settings
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.rows import Row, at_least, not_measured

Read = tuple[Inspection, FlightRecord, bool]
LAG_S, EXPLAINED = (0.055, 0.07), 0.86
NAMES = ("reality.usdlog.motor_lag", "reality.usdlog.explained")
TARGETS = (f"{LAG_S[0]} to {LAG_S[1]}", EXPLAINED)


def rows(quick: bool, out: Path) -> list[Row]:
    """The lag and its interval; R^2 of each flight's held-out half, the worse judged."""
    paths = logs.files("usdlog")
    if not paths:
        return [not_measured(name, unit, target, logs.absent("usdlog"))
                for name, unit, target in zip(NAMES, ("s", "1"), TARGETS)]
    read = [logs.read(path) for path in (paths[-1:] if quick else paths)]
    alone = [split([each], logs.alternating) for each in read]
    lags = [lag_row(found, name) for found, shares in alone for name in shares]
    out_rows = [*lags, worst(NAMES[1], "the other half", [shares for _, shares in alone], EXPLAINED)]
    if not quick:
        later = [split([each], logs.halves)[1] for each in read]
        together = split(read, logs.alternating)[1]
        out_rows += [worst(f"{NAMES[1]}_later", "the second half", later),
                     worst(f"{NAMES[1]}_together", "the other half, one fit of all flights", [together])]
    return out_rows


def worst(name: str, what: str, shares: Sequence[Mapping[str, float]], target: float | None = None) -> Row:
    """R^2 of the flight of which least is explained."""
    found = {flight: share for each in shares for flight, share in each.items()}
    value = min(found.values())
    return Row(name, value, "1", peer=said(what, found)) if target is None else at_least(
        name, value, "1", target, said(what, found))


def split(read: Sequence[Read], by: Callable[[FlightRecord], tuple[FlightRecord, FlightRecord]]
          ) -> tuple[Identified, dict[str, float]]:
    """What one part of all flights gives, and R^2 of the other part of each."""
    parts = [by(record) for _, record, _ in read]
    found = identify([first for first, _ in parts], logs.robot(), Settings(steps=0))
    return found, {record.name: held_out(found, inspection, second)
                   for (inspection, record, _), (_, second) in zip(read, parts)}


def said(what: str, shares: Mapping[str, float]) -> str:
    """The flights, in words."""
    return f"R^2 of {what} at 1 kHz: " + ", ".join(f"{name} {share:.3f}" for name, share in shares.items())


def lag_row(found: Identified, flight: str) -> Row:
    """The geometric mean of both time constants, with its 90 % interval."""
    names = [each.name for each in found.asked]
    along = np.zeros(len(names))
    along[[names.index("tau_up"), names.index("tau_down")]] = 0.5
    mean, sd = float(along @ found.posterior.theta), float(np.sqrt(along @ found.posterior.covariance @ along))
    low, value, high = np.exp([mean - SIDE_90 * sd, mean, mean + SIDE_90 * sd])
    up, down = (float(np.exp(found.posterior.theta[names.index(name)])) for name in ("tau_up", "tau_down"))
    delay = float(found.posterior.theta[names.index("delay")])
    return Row(f"{NAMES[0]}.{flight}", float(value), "s", TARGETS[0], f"90 %: {low:.4f} to {high:.4f}; rise {up:.4f}, "
               f"fall {down:.4f}, behind a delay of {delay:.4f}", bool(LAG_S[0] <= value <= LAG_S[1]))


def held_out(found: Identified, inspection: Inspection, record: FlightRecord) -> float:
    """R^2 of the accelerometer's own samples while ``record`` is usable."""
    names = [each.name for each in found.asked]
    bias = float(found.posterior.theta[names.index("accelerometer_bias_z")])
    said = vertical(as_flown(found.asked, found.posterior.theta), bias, record, found.problem.reference_v)
    stream, even = inspection.log.stream_of(ACCELERATION), inspection.even
    assert stream is not None and even is not None
    where = np.interp(stream.times, even.times, record.usable.astype(float), 0.0, 0.0) == 1.0
    return explained(np.interp(stream.times, even.times, said), stream.values[ACCELERATION][:, 2], where)
