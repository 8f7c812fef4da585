"""The drift detector on flights of a real Crazyflie with motion capture (NanoBench), predicted by another flight.

Thrust per mass over the logged motor commands is fitted to one flight's accelerometer (least squares, motor lag 70 ms),
and with it the other flights are predicted and watched, each of the flights by each of the others: no machine changed,
so alarms are false. Then 15 % of the predicted thrust, or the share that 20 % more mass would take, is taken out of the
velocity of motion capture from a moment on. The controller of these flights did not feel that: the commands are the
flown ones. A flight in which something is wrong is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal.sim.identification.record import FlightRecord
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.reality.drift import FAULTS, WITHIN_S
from temporeal_benchmarks.rows import Row, at_least, not_measured
from temporeal_bridge.monitor.drift.detector import Detector, Drift
from temporeal_bridge.monitor.drift.gate import flown, settling_s
from temporeal_bridge.monitor.drift.thrust import NOMINAL, PredictedThrust
from temporeal_bridge.monitor.drift.watch import up

SOURCE = "nanobench"
LAG_S = (0.05, 0.07, 0.09)  # s, of the rotors: fits to logs of other Crazyflies gave 0.055 to 0.07
DELAY_S, DRAG = (0.0, 0.01, 0.02), (0.0, 0.0075, 0.015)  # s; N s/m, half of the spec's range
RANGE = (0.95, 1.0, 1.05)  # of thrust per mass: how far batteries and decks move it from flight to flight, assumed
NOISE = 0.02  # m/s, as in training; motion capture's is less
MASS = 0.0319  # kg, of the spec: only thrust over mass acts
CHANGED_S = (8.0, 13.0, 18.0)  # s of usable flight after which the machine changes
BELIEVED = (0.0, 0.0, 1.0)  # of collective commands, which these flights have not


def lagged(command: np.ndarray, step: float) -> np.ndarray:
    """Commands [T, 4] behind a first-order lag."""
    out, share = command.copy(), 1 - np.exp(-step / LAG_S[1])
    for k in range(1, len(out)):
        out[k] = out[k - 1] + share * (command[k - 1] - out[k - 1])
    return out


def fitted(record: FlightRecord) -> DriftSpec:
    """What one flight says of the robot."""
    speed = lagged(record.command, record.step)[record.usable]
    columns = np.stack([speed.sum(axis=1), (speed**2).sum(axis=1)], axis=1)
    curve, *_ = np.linalg.lstsq(columns, record.force[record.usable, 2], rcond=None)
    thrust = (0.0, float(MASS * curve[0]), float(MASS * curve[1]))
    return DriftSpec(record.name, MASS, thrust, BELIEVED, LAG_S, LAG_S, DELAY_S, DRAG, RANGE, NOISE)


def watched(spec: DriftSpec, record: FlightRecord, changes: Sequence[tuple[float, float]]) -> list[list[Drift]]:
    """What is noticed of ``record``, once for each of ``changes``: factor of the thrust per mass, and the second of
    usable flight from which it acts. Times are of usable flight."""
    count, step = len(changes), record.step
    factor, when = np.array(changes).T
    thrust, detector = PredictedThrust(spec, "motor_cmd", count), Detector(spec, count)
    assert record.quat is not None and record.velocity is not None and record.position is not None
    axis, velocity = up(record.quat), record.velocity
    found: list[list[Drift]] = [[] for _ in changes]
    seconds = 0.0
    for k in range(len(axis) - 1):
        thrust.tell(k * step, np.tile(record.command[k], (count, 1)))
        force = thrust.advance((k + 1) * step)
        lost = (seconds >= when) * (factor - 1) * force[NOMINAL]
        usable = flown(np.full(count, record.position[k, 2]), force, step)
        usable &= bool(record.usable[k] and record.usable[k + 1]) and k * step >= settling_s(spec)
        seconds += step * usable[0]
        begin, end = (np.tile(each, (count, 1)) for each in (velocity[k], velocity[k + 1]))
        end = end + lost[:, None] * axis[k]
        axes = tuple(np.tile(each, (count, 1)) for each in (axis[k], axis[k + 1]))
        for n, drift in detector.take(seconds, step, force, (begin, end), (axes[0], axes[1]), usable):
            found[n].append(drift)
    return found


def rows(quick: bool, out: Path) -> list[Row]:
    """False alarms, and delays of thrust that is taken away."""
    files = logs.files(SOURCE)
    if len(files) < 2:
        return [not_measured("reality.drift.flown.false_alarms", "1", None, logs.absent(SOURCE))]
    read = [logs.read(file) for file in (files[:3] if quick else files)]
    records = [record for found, record, _ in read if not found.of("wrong")]
    changes = [(1.0, np.inf)] + [(factor if name == "motor_gain" else 1 / factor, when)
                                 for name, factor in FAULTS.values() for when in CHANGED_S]
    pairs = [(one, other) for one in records for other in records if one is not other]
    every = [watched(fitted(one), other, changes) for one, other in pairs]
    minutes = sum(other.seconds for _, other in pairs) / 60
    what = f"{len(pairs)} pairs of {len(records)} flights, {len(read) - len(records)} left out as wrong"
    found = [Row("reality.drift.flown.false_alarms", sum(bool(each[0]) for each in every), "1",
                 peer=f"in {minutes:.0f} min, {what}")]
    for k, fault in enumerate(FAULTS):
        columns = range(1 + k * len(CHANGED_S), 1 + (k + 1) * len(CHANGED_S))
        delay = np.array([first(each[n], changes[n][1]) for each in every for n in columns])
        found += [at_least(f"reality.drift.flown.{fault}.within_2_s", float(np.mean(delay <= WITHIN_S)), "1", 0.95,
                           f"of {len(delay)}: {what}, {len(CHANGED_S)} moments each"),
                  Row(f"reality.drift.flown.{fault}.delay.median", float(np.median(delay)), "s"),
                  Row(f"reality.drift.flown.{fault}.delay.95", float(np.quantile(delay, 0.95, method="higher")), "s")]
    return found


def first(found: Sequence[Drift], when: float) -> float:
    """Time from the change to the first alarm after it, s; inf: none."""
    return min((each.at - when for each in found if each.at > when), default=np.inf)
