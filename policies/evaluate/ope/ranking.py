"""How well estimates rank policies. P policies."""

from __future__ import annotations

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value [P], 0 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2.0)[inverse]


def rank_correlation(estimated: np.ndarray, true: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where all estimates, or all true values, are equal."""
    a, b = ranks(np.asarray(estimated)), ranks(np.asarray(true))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def top(estimated: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k policies with the greatest estimates, the best first; the earlier one of equals."""
    return np.argsort(-np.asarray(estimated), kind="stable")[:k]


def regret_at_k(estimated: np.ndarray, true: np.ndarray, k: int = 1) -> float:
    """What is lost by trying only the k best by the estimate."""
    true = np.asarray(true)
    return float(true.max() - true[top(estimated, k)].max())


def sharpe_ratio_at_k(estimated: np.ndarray, true: np.ndarray, behaviour: float, k: int) -> float:
    """(best true value of the top k - value of the behaviour policy) / standard deviation of the top k's true values.

    Kiyohara et al. 2024 (SCOPE-RL): how much is won by trying k policies on the robot, per risk of trying bad ones. The
    behaviour policy is a candidate itself: include it in the arrays. NaN for k < 2; no spread and no gain is 0.
    """
    if k < 2:
        return float("nan")
    tried = np.asarray(true)[top(estimated, k)]
    gain, risk = float(tried.max() - behaviour), float(tried.std())
    if risk == 0.0:
        return 0.0 if gain == 0.0 else float(np.copysign(np.inf, gain))
    return gain / risk
