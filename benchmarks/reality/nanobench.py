"""Flights of a Crazyflie with motion capture, each predicted by what the others say: NanoBench, leave one flight out.

Of each of the six flights stretches of half a second are flown open loop from measured states: position, attitude and
velocity of motion capture, rates of the gyro, and the logged commands. From the other five are identified the
simulator's parameters, and learned residual dynamics on top of them, a linear model, and an LSTM (350 updates, as
the residual: about 30 s of a core); compared with what ``temporeal validate`` compares with, by the same functions. A
flight in which something is wrong even after its clocks were made one is left out, and named.

Who predicts is told the same: :data:`PEER` says what. Residual and LSTM are trained with three seeds each; targets are
judged by the median seed, and the worst is said.

A fold that was measured is kept in the output's folder, and is not measured again as long as what it rests on is the
same: about four minutes of a core each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
SEEDS = (0, 1, 2)
"""Of the networks: residual and LSTM."""
NAMES = ("reality.nanobench.of_datasheet", "reality.nanobench.of_lstm", "reality.nanobench.covered",
         "reality.nanobench.seconds")
TARGETS = (RATIO, OF_LSTM, f"{HONEST[0]} to {HONEST[1]}", SECONDS)
PEER = ("an LSTM of the same flights. Both are told commands and the logged voltage along a stretch (the residual as "
        "rotor speeds, which the simulator makes of both from the log's beginning on) and the measured state at its "
        "start; the LSTM also the accelerometer there, and state, accelerometer, commands and voltage of the 0.2 s "
        "before; neither any motion behind the start. The accelerometer is in the losses of identification and "
        "residual, not in the LSTM's. The residual is a mean of five networks, the LSTM is one; each has at most 350 "
        "updates")
SIMULATORS, SEEDED = (RESIDUAL, IDENTIFIED), (RESIDUAL, LSTM)
BY_NAME = ("errors", "coverage", "coverage_flights", "believed_s", "error_long_m")
"""What of a comparison is by who predicts."""
Folds = Mapping[str, Mapping[str, Any]]
"""By flight, what one seed's comparison says of it."""
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
    seeds, descent = (SEEDS[:1], Descent(updates=60)) if quick else (SEEDS, Descent(updates=UPDATES))
    folds = {each.name: kept(out / f"{each.name.split('.')[0]}.json", records, lambda each=each: fold(
        each, [other for other in records if other is not each], seeds, descent), [seeds, descent.updates])
        for each in records}
    said = "; left out as wrong: " + ", ".join(wrong) if wrong else ""
    by_seed = [{name: each["seeds"][k] for name, each in folds.items()} for k in range(len(seeds))]
    return [*target_rows(by_seed, said), *error_rows(by_seed), *covered_rows(by_seed),
            at_most(NAMES[3], alone["seconds"], "s", SECONDS, f"of a core's time, {records[0].name}, "
                    f"{records[0].seconds:.0f} s of flight, a sampler of {Settings().steps} steps and compiling "
                    "included: of two cores at most as much")]


def kept(path: Path, records: Sequence[FlightRecord], measure: Any, how: Any = None) -> dict[str, Any]:
    """What ``measure`` gives, or gave with the same flights, the same code, and ``how`` it is done."""
    stamp = {"code": code_digest(CODE, lambda name: name.endswith(".py") and "/joints/" not in name),
             "logs": [each.digest for each in records], "how": json.loads(json.dumps(how))}
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


def fold(record: FlightRecord, others: Sequence[FlightRecord], seeds: Sequence[int], descent: Descent
         ) -> dict[str, Any]:
    """All errors in ``record``, by who predicts it from ``others``: one result of each seed, in which what has no seed
    is the same."""
    begin = time.process_time()
    found = identify(others, logs.robot(), Settings(steps=0), slow_commands=True)
    model = model_of(identified_file.content(found, ""), logs.robot(), "the fold")
    spent, results = {"identified": time.process_time() - begin}, list[dict[str, Any]]()
    for seed in seeds:
        how, marks = replace(descent, seed=seed), [time.process_time()]
        residual = learned.learned(model, others, True, how)
        marks.append(time.process_time())
        network = lstm.trained(others, how)
        marks.append(time.process_time())
        given = flight_candidates.Sources(logs.robot(), model.reference_v, model, residual,
                                          () if results else tuple(others), network)
        who = [each for each in flight_candidates.candidates(given)[0] if not results or each.name in SEEDED]
        results.append(joined(results[0] if results else {}, flight_prediction.compared([record], who)))
        marks.append(time.process_time())
        spent |= {f"{what}, seed {seed}": after - before for what, before, after in
                  zip(("residual", "LSTM", "comparison"), marks, marks[1:])}
    return {"seeds": results, "spent_s": spent}


def joined(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The result ``other`` of some who predict, with that of those in ``first`` who are not among them."""
    return {**other, **{key: {**first.get(key, {}), **other[key]} for key in BY_NAME}}


def last(result: Mapping[str, Any], who: str, channel: str = "position") -> float:
    """Root mean square after half a second."""
    value = result["errors"][who][channel][-1]
    return float("inf") if value is None else float(value)


def target_rows(by_seed: Sequence[Folds], said: str) -> list[Row]:
    """The worst flight's ratio to the datasheet; the median flight's to the LSTM; of the median seed."""
    out, any_fold = [], next(iter(by_seed[0].values()))
    after = f"RMS error of position after {any_fold['steps'][-1] * any_fold['step_s']:.2g} s"
    for who in SIMULATORS:
        best = [ratios(folds, NOMINAL, who) for folds in by_seed]
        peer = [ratios(folds, who, LSTM) for folds in by_seed]
        worst_flight, middle = [min(each.values()) for each in best], [median(each.values()) for each in peer]
        words = (f"{after} with the spec's parameters, over that of {who}, the worst flight; "
                 f"{seeds_said(worst_flight, min)}; medians of seeds: {listed(medians(best))}{said}",
                 f"{after} of {who}, over that of {PEER}. The median flight; {seeds_said(middle, max)}; medians of "
                 f"seeds: {listed(medians(peer))}")
        value, ratio = median(worst_flight), median(middle)
        out += [at_least(NAMES[0], value, "1", RATIO, words[0]), at_most(NAMES[1], ratio, "1", OF_LSTM, words[1])
                ] if who == RESIDUAL else [Row(f"{NAMES[0]}_without_residual", value, "1", peer=words[0]),
                                           Row(f"{NAMES[1]}_without_residual", ratio, "1", peer=words[1])]
    return out


def ratios(folds: Folds, above: str, below: str) -> dict[str, float]:
    """By flight."""
    return {name: last(each, above) / last(each, below) for name, each in folds.items()}


def medians(by_seed: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of seeds, by flight."""
    return {name: median(each[name] for each in by_seed) for name in by_seed[0]}


def seeds_said(values: Sequence[float], worst_of: Callable[[Sequence[float]], float]) -> str:
    """The median seed and the worst one."""
    return (f"the median of {len(values)} seeds, the worst {worst_of(values):.3f} (" +
            ", ".join(f"{value:.3f}" for value in values) + ")")


def error_rows(by_seed: Sequence[Folds]) -> list[Row]:
    """Errors of all, and for how long they are believed: medians of seeds, then of flights."""
    out, words = list[Row](), f"median of {len(by_seed[0])}, each the median of {len(by_seed)} seeds"
    for who in (*SIMULATORS, NOMINAL, HOLD, LINEAR, LSTM):
        name = who.replace(" + ", "_with_").replace("LSTM", "lstm")
        far = [{flight: last(each, who) for flight, each in folds.items()} for folds in by_seed]
        out.append(Row(f"reality.nanobench.error_{name}", median(medians(far).values()), "m",
                       peer=f"RMS of a flight, {words}"))
        times = [{flight: each["believed_s"][who] for flight, each in folds.items()
                  if each["believed_s"].get(who) is not None} for folds in by_seed]
        out.append(Row(f"reality.nanobench.believed_{name}", median(medians(times).values()) if times[0] else None, "s",
                       peer=f"until position is off by 10 cm, median of two-second starts, of flights {words}"))
    return out


def listed(values: Mapping[str, float]) -> str:
    """Flights with their numbers."""
    return ", ".join(f"{name.split('_rep')[0]} {value:.2f}" for name, value in values.items())


def covered_rows(by_seed: Sequence[Folds]) -> list[Row]:
    """Share of components within 90 % intervals after half a second, of the channel (position, velocity, attitude,
    rates) that is furthest from the target: means of flights, medians of seeds."""
    out = []
    for who in SIMULATORS:
        shares = {channel: np.array([[each["coverage"][who][channel][-1] for each in folds.values()]
                                     for folds in by_seed])
                  for channel in next(iter(by_seed[0].values()))["coverage"][who]}
        middle = {channel: float(np.median(each.mean(1))) for channel, each in shares.items()}
        name, value = worst(middle)
        words = f"the worst channel, {name}, of (means of flights, medians of seeds; least and most of both): "
        words += ", ".join(f"{channel} {middle[channel]:.3f} ({each.min():.3f} to {each.max():.3f})"
                           for channel, each in shares.items())
        out.append(Row(NAMES[2], value, "1", TARGETS[2], f"of {who}, after half a second, {words}",
                       bool(HONEST[0] <= value <= HONEST[1])) if who == RESIDUAL else
                   Row(f"{NAMES[2]}_without_residual", value, "1", peer=f"of {who}, {words}"))
    return out
