"""How well P(satisfied), as told before a flight, agrees with what was flown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.evaluate.statistics import Proportion
from temporeal_benchmarks.any_formula.flights import Flight
from temporeal_benchmarks.any_formula.trials import share

BINS = 10
RESAMPLES, SEED = 500, 0


class Calibration(NamedTuple):
    """An expected calibration error and its 95 % interval, by resampling formulas."""

    error: float
    low: float
    high: float


def told(flights: Sequence[Flight]) -> list[Flight]:
    """Those with a forecast."""
    return [flight for flight in flights if flight.forecast is not None]


def calibration(flights: Sequence[Flight]) -> Calibration:
    """Of flights that all have a forecast. With few formulas the error is above 0 also where every forecast is true."""
    said = np.array([flight.forecast for flight in flights], float)
    done = np.array([flight.satisfied for flight in flights], float)
    if not ((said >= 0) & (said <= 1)).all():
        raise ValueError(f"a forecast is a probability, got {said.min():g} to {said.max():g}")
    rng = np.random.default_rng(SEED)
    again = [expected_error(said[rows], done[rows]) for rows in rng.integers(0, len(said), (RESAMPLES, len(said)))]
    return Calibration(expected_error(said, done), *(float(x) for x in np.quantile(again, (0.025, 0.975))))


def expected_error(said: NDArray[np.float64], done: NDArray[np.float64]) -> float:
    """The expected calibration error, with :data:`BINS` bins."""
    from temporeal.policies.training.generalist.forecast import calibration_error

    return calibration_error(said, done, BINS)


def flown(flights: Sequence[Flight], require: float) -> Proportion | None:
    """The share that is satisfied of those that are not refused; None where all are."""
    kept = [flight for flight in told(flights) if flight.forecast is not None and flight.forecast >= require]
    return share(kept) if kept else None
