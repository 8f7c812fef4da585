"""Flights of a Crazyflie with motion capture, each predicted by what the others say: NanoBench, leave one flight out.

Of each of the six flights stretches of half a second are flown open loop from measured states: position, attitude and
velocity of motion capture, rates of the gyro, and the logged commands. From the other five are identified the
simulator's parameters, and learned residual dynamics on top of them, a linear model, and an LSTM (350 updates, as
the residual: about 30 s of a core); compared with what ``temporeal validate`` compares with, by the same functions. A
flight in which something is wrong even after its clocks were made one is left out, and named.

A fold that was measured is kept in the output's folder, and is not measured again as long as what it rests on is the
same: about two minutes of a core each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from temporeal.policies.evaluate import flight_candidates, flight_prediction
from temporeal.policies.evaluate.flight_candidates import HOLD, IDENTIFIED, LINEAR, LSTM, NOMINAL, RESIDUAL
from temporeal.policies.evaluate.flight_prediction import HONEST, worst
from temporeal.policies.training.flight_models import learned, lstm
from temporeal.policies.training.flight_models.descent import Descent
from temporeal.sim.identification import identified_file
from temporeal.sim.identification.identify import identify
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.validation.model import model_of
from temporeal_benchmarks.code_digest import code_digest
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

RATIO, SECONDS, OF_LSTM, UPDATES = 2.0, 60.0, 1.0, 350
NAMES = ("reality.nanobench.of_datasheet", "reality.nanobench.of_lstm", "reality.nanobench.covered",
         "reality.nanobench.seconds")
TARGETS = (RATIO, OF_LSTM, f"{HONEST[0]} to {HONEST[1]}", SECONDS)
PEER = ("an LSTM of the same flights (one network and seed; it is told neither the voltage nor the accelerometer, "
        "which the simulator and its residual, a mean of five networks, use)")
SIMULATORS = (RESIDUAL, IDENTIFIED)
CODE = ("sim/identification", "sim/physics/quadrotor", "policies/training/flight_models", "policies/data/flight_logs",
        "policies/evaluate/flight_candidates.py", "policies/evaluate/flight_prediction.py", "robots/crazyflie")


def rows(quick: bool, out: Path) -> list[Row]:
    """The targets: of the simulator with residual dynamics, of all flights together; without it, rows beside them."""
    paths = logs.files("nanobench")
    if len(paths) < 2:
        return [not_measured(name, unit, target, logs.absent("nanobench"))
                for name, unit, target in zip(NAMES, ("1", "1", "1", "s"), TARGETS)]
    read = [logs.read(path) for path in (paths[:3] if quick else paths)]
    wrong = [found.log.name for found, _, _ in read if found.of("wrong")]
    records = [record for found, record, _ in read if not found.of("wrong")]
    alone = kept(out / "alone.json", records[:1], lambda: costs(records[0]))
    folds = {each.name: kept(out / f"{each.name.split('.')[0]}.json", records,
                             lambda each=each: fold(each, [other for other in records if other is not each], quick))
             for each in records}
    said = "; left out as wrong: " + ", ".join(wrong) if wrong else ""
    return [*error_rows(folds, said), *covered_rows(folds),
            at_most(NAMES[3], alone["seconds"], "s", SECONDS, f"of a core's time, {records[0].name}, "
                    f"{records[0].seconds:.0f} s of flight, a sampler of {Settings().steps} steps and compiling "
                    "included: of two cores at most as much")]


def kept(path: Path, records: Sequence[FlightRecord], measure: Any) -> dict[str, Any]:
    """What ``measure`` gives, or gave with the same flights and the same code."""
    stamp = {"code": code_digest(CODE, lambda name: name.endswith(".py") and "/joints/" not in name),
             "logs": [each.digest for each in records]}
    if path.exists():
        found = json.loads(path.read_text())
        if found["stamp"] == stamp:
            return dict(found["result"])
    result = dict(measure())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"stamp": stamp, "result": result}, indent=1))
    return result


def costs(record: FlightRecord) -> dict[str, float]:
    """Seconds of a core to identify one flight."""
    begin = time.process_time()
    identify([record], logs.robot(), slow_commands=True)
    return {"seconds": time.process_time() - begin}


def fold(record: FlightRecord, others: Sequence[FlightRecord], quick: bool) -> dict[str, Any]:
    """All errors in ``record``, by who predicts it from ``others``."""
    begin = time.process_time()
    found = identify(others, logs.robot(), Settings(steps=0), slow_commands=True)
    model = model_of(identified_file.content(found, ""), logs.robot(), "the fold")
    spent = [time.process_time() - begin]
    descent = Descent(updates=60 if quick else UPDATES)
    residual = learned.learned(model, others, True, descent)
    spent.append(time.process_time() - begin - sum(spent))
    network = lstm.trained(others, descent)
    spent.append(time.process_time() - begin - sum(spent))
    given = flight_candidates.Sources(logs.robot(), model.reference_v, model, residual, tuple(others), network)
    result = flight_prediction.compared([record], flight_candidates.candidates(given)[0])
    return {**result, "spent_s": dict(zip(("identified", "residual", "LSTM"), spent))}


def last(result: Mapping[str, Any], who: str, channel: str = "position") -> float:
    """Root mean square after half a second."""
    value = result["errors"][who][channel][-1]
    return float("inf") if value is None else float(value)


def error_rows(folds: Mapping[str, Mapping[str, Any]], said: str) -> list[Row]:
    """The worst flight's ratio to the datasheet; the median flight's to the LSTM; medians of all."""
    out, seconds = [], next(iter(folds.values()))
    after = f"RMS error of position after {seconds['steps'][-1] * seconds['step_s']:.2g} s"
    for who in SIMULATORS:
        end = "" if who == RESIDUAL else "_without_residual"
        best = {name: last(each, NOMINAL) / last(each, who) for name, each in folds.items()}
        peer = {name: last(each, who) / last(each, LSTM) for name, each in folds.items()}
        words = (f"{after} with the spec's parameters, over that of {who}, the worst of: {listed(best)}{said}",
                 f"{after} of {who}, over that of {PEER}, the median of: {listed(peer)}")
        ratio, middle = min(best.values()), median(peer.values())
        out += [at_least(NAMES[0], ratio, "1", RATIO, words[0]), at_most(NAMES[1], middle, "1", OF_LSTM, words[1])
                ] if not end else [Row(NAMES[0] + end, ratio, "1", peer=words[0]),
                                   Row(NAMES[1] + end, middle, "1", peer=words[1])]
    for who in (*SIMULATORS, NOMINAL, HOLD, LINEAR, LSTM):
        name = who.replace(" + ", "_with_").replace("LSTM", "lstm")
        out.append(Row(f"reality.nanobench.error_{name}", median(last(each, who) for each in folds.values()), "m",
                       peer=f"RMS of a flight, median of {len(folds)}"))
        times = [each["believed_s"][who] for each in folds.values() if who in each["believed_s"]]
        out.append(Row(f"reality.nanobench.believed_{name}", median(times) if times else None, "s",
                       peer="until position is off by 10 cm, median of two-second starts, median of flights"))
    return out


def listed(values: Mapping[str, float]) -> str:
    """Flights with their numbers."""
    return ", ".join(f"{name.split('_rep')[0]} {value:.2f}" for name, value in values.items())


def covered_rows(folds: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Share of components within 90 % intervals after half a second, of the channel (position, velocity, attitude,
    rates) that is furthest from the target."""
    out = []
    for who in SIMULATORS:
        by_flight = {channel: [each["coverage"][who][channel][-1] for each in folds.values()]
                     for channel in next(iter(folds.values()))["coverage"][who]}
        name, value = worst({channel: float(np.mean(shares)) for channel, shares in by_flight.items()})
        words = f"the worst channel, {name}, of (means, least and most of flights): " + ", ".join(
            f"{channel} {np.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"
            for channel, shares in by_flight.items())
        out.append(Row(NAMES[2], value, "1", TARGETS[2], f"of {who}, after half a second, {words}",
                       bool(HONEST[0] <= value <= HONEST[1])) if who == RESIDUAL else
                   Row(f"{NAMES[2]}_without_residual", value, "1", peer=f"of {who}, {words}"))
    return out
