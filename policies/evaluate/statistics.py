"""Statistics of a finite number of episodes: intervals for a probability, quantiles for a quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

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


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934).

    Each side misses the true probability at most (1 - confidence) / 2 of the time, for any number of trials: it is
    never too narrow, which the normal approximation is near 0 and 1, where good policies live.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"0 <= successes <= trials and trials >= 1 are needed, got {successes} of {trials}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


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
