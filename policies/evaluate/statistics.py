"""Statistics of a finite number of episodes: intervals for a probability, quantiles for a quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.sim.stl.analysis.binomial import clopper_pearson

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Proportion:
    """``successes`` of ``trials``: the estimate and the interval that covers the truth with ``confidence``."""

    successes: int
    trials: int
    estimate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Summary:
    """Statistics of the finite ones of some values, ``count`` of them. ``quantiles`` by probability. NaN if there are
    none."""

    count: int
    mean: float
    std: float
    quantiles: dict[float, float]

    @property
    def median(self) -> float:
        """The 50 % quantile."""
        return self.quantiles[0.5]


def proportion(flags: np.ndarray, confidence: float = 0.95) -> Proportion:
    """How often ``flags`` [E] are true."""
    successes, trials = int(np.count_nonzero(flags)), len(flags)
    low, high = clopper_pearson(successes, trials, confidence)
    return Proportion(successes, trials, successes / trials, low, high, confidence)


def summarize(values: np.ndarray, probabilities: Sequence[float] = QUANTILES) -> Summary:
    """Mean, deviation and quantiles (linear interpolation) of the finite ones of ``values`` [E]."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Summary(0, np.nan, np.nan, dict.fromkeys(probabilities, np.nan))
    found = np.quantile(finite, probabilities)
    return Summary(len(finite), float(finite.mean()), float(finite.std()), dict(zip(probabilities, found.tolist())))
