"""Simulated flights whose parameters are known: do intervals hold the truth, and is it said what a log cannot tell?

100 robots are drawn from the prior and flown for 20 s (``sim/identification/synthetic.py``: gusts, noise, an emptying
battery). Every fourth log has its motion capture taken away. Counted are 90 % intervals of all that is called
identified, beside them those of all else (mostly the prior's, of which the robots are), and the flags of what is clear
beforehand: ``HIDDEN`` acts through a sum or a ratio alone (and drag, where no velocity is logged), ``SHOWN`` is excited
in every flight. Biases of the gyro, the arm and the torque per thrust show in some flights and not in others, and are
in neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from temporeal.sim.identification.identify import Identified, identify
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.synthetic import Flights, flights
from temporeal.sim.identification.verdicts import IDENTIFIED, verdicts
from temporeal_benchmarks.reality import logs
from temporeal_benchmarks.rows import Row, at_least, at_most

COUNT, QUICK, SECONDS, SEED = 100, 6, 20.0, 50
COVERED, FLAGGED, WRONGLY = (0.85, 0.95), 0.95, 0.05
DRAG = tuple(f"drag_to_mass_{a}" for a in "xyz")
HIDDEN = ("mass", "centre_x", "centre_y", "gain_roll", "gain_pitch")
SHOWN = ("thrust_to_mass", "tau_up", "tau_down", "delay", *(f"torque_to_inertia_{a}" for a in "xyz"))
SHOWN_WITH_POSE = (*DRAG, "accelerometer_bias_x", "accelerometer_bias_y")


@dataclass(frozen=True)
class Counts:
    """covered of asked: intervals that hold the truth, of what is identified; left_covered of left: of what is not.
    flagged of hidden; wrongly of shown: flags."""

    covered: int = 0
    asked: int = 0
    flagged: int = 0
    hidden: int = 0
    wrongly: int = 0
    shown: int = 0
    left_covered: int = 0
    left: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self.numbers(), other.numbers())))

    def numbers(self) -> tuple[int, ...]:
        """In the order of the fields."""
        return (self.covered, self.asked, self.flagged, self.hidden, self.wrongly, self.shown, self.left_covered,
                self.left)


def rows(quick: bool, out: Path) -> list[Row]:
    """Coverage and flags; what is done of each robot is kept in ``out``, and not done again."""
    count = QUICK if quick else COUNT
    made = flights(logs.robot(), count, SECONDS, SEED)
    done = list(robots(made, out))
    total = sum((Counts(*each["counts"]) for each in done), Counts())
    return rows_of(total, done, quick)


def rows_of(total: Counts, done: Sequence[Mapping[str, object]], quick: bool) -> list[Row]:
    """The rows, judged of the whole number alone."""
    told = f"{len(done)} robots, {SECONDS:g} s each, seed {SEED}"
    share = total.covered / max(total.asked, 1)
    row = Row("reality.synthetic.coverage", share, "1", f"{COVERED[0]} to {COVERED[1]}",
              f"{total.covered} of {total.asked} 90 % intervals; {told}", bool(COVERED[0] <= share <= COVERED[1]))
    left = Row("reality.synthetic.coverage_of_the_rest", total.left_covered / max(total.left, 1), "1",
               peer=f"{total.left_covered} of {total.left} 90 % intervals of what is not identified; {told}")
    found = [row, left,
             at_least("reality.synthetic.flagged", total.flagged / max(total.hidden, 1), "1", FLAGGED,
                      f"{total.flagged} of {total.hidden} that cannot be told; {told}"),
             at_most("reality.synthetic.wrongly_flagged", total.wrongly / max(total.shown, 1), "1", WRONGLY,
                     f"{total.wrongly} of {total.shown} that can be told; {told}")]
    return [replace(each, ok=None) for each in found] if quick else found


def robots(made: Flights, out: Path) -> Iterator[Mapping[str, object]]:
    """Of each robot its counts and how far off each parameter was, as ``out`` has it, or measured."""
    out.mkdir(parents=True, exist_ok=True)
    for k, record in enumerate(made.records):
        file = out / f"{SEED}-{len(made.records)}-{k}.json"
        if not file.exists():
            pose = k % 4 != 3
            found = identify([record if pose else without_pose(record)], logs.robot(), Settings(steps=0))
            file.write_text(json.dumps({"counts": counted(found, made.truth[k], pose).numbers(),
                                        "off": off(found, made.truth[k])}))
        yield json.loads(file.read_text())


def without_pose(record: FlightRecord) -> FlightRecord:
    """The record without motion capture."""
    return replace(record, quat=None, velocity=None, position=None)


def counted(found: Identified, truth: np.ndarray, pose: bool) -> Counts:
    """Of one robot."""
    told = {each.quantity.name: each for each in verdicts(found)}
    true = {each.name: float(each.value(truth[k])) for k, each in enumerate(found.asked)}
    held, left = ([each.low <= true[name] <= each.high for name, each in told.items()
                   if (each.status == IDENTIFIED) is identified] for identified in (True, False))
    hidden = HIDDEN if pose else HIDDEN + DRAG
    shown = SHOWN + SHOWN_WITH_POSE if pose else SHOWN
    return Counts(sum(held), len(held), sum(told[name].status != IDENTIFIED for name in hidden), len(hidden),
                  sum(told[name].status != IDENTIFIED for name in shown), len(shown), sum(left), len(left))


def off(found: Identified, truth: np.ndarray) -> dict[str, list[float]]:
    """Of each parameter: error over the posterior's standard deviation, and this one over the prior's."""
    error = (found.posterior.theta - truth) / found.posterior.sd
    return {each.name: [round(float(error[k]), 3), round(float(found.posterior.shrink[k]), 4)]
            for k, each in enumerate(found.asked)}
