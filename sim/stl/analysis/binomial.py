"""Intervals of a binomial proportion."""

from __future__ import annotations


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934).

    Each side misses the true probability at most (1 - confidence) / 2 of the time, for any number of trials. The normal
    approximation is too narrow near 0 and 1, where good policies are.
    """
    from scipy.special import betaincinv  # not on the robot, which imports sim.stl too

    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"0 <= successes <= trials and trials >= 1 are needed, got {successes} of {trials}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high
