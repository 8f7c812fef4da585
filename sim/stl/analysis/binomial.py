"""Intervals of a binomial proportion."""

from __future__ import annotations

from math import lgamma, log

import numpy as np


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Exact two-sided interval of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934), by bisection."""
    tail = (1 - confidence) / 2

    def at_most(k: int, p: float) -> float:
        terms = [lgamma(trials + 1) - lgamma(i + 1) - lgamma(trials - i + 1) + i * log(p) + (trials - i) * log(1 - p)
                 for i in range(k + 1)]
        return float(np.exp(terms).sum())

    def root(k: int, target: float) -> float:
        a, b = 0.0, 1.0
        for _ in range(60):  # at_most(k, p) falls with p
            middle = 0.5 * (a + b)
            a, b = (middle, b) if at_most(k, middle) > target else (a, middle)
        return 0.5 * (a + b)

    low = 0.0 if successes == 0 else root(successes - 1, 1 - tail)
    return low, 1.0 if successes == trials else root(successes, tail)
