"""Importance sampling: returns of the data, weighted by how much likelier the judged policy makes each episode.

Episodes of unequal length are padded to T steps: a finished episode earns nothing and keeps its ratio.

* ``trajectory``: the whole return by the whole ratio (Precup, Sutton and Singh 2000).
* ``per_decision``: each reward by the ratio of the actions up to it (same).
* ``doubly_robust``: a fitted Q as control variate (Jiang and Li 2016; Thomas and Brunskill 2016, eq. 7):
  ``V(s_0) + sum_t gamma^t rho_0:t (r_t + gamma V(s_t+1) - Q(s_t, a_t))``. Unbiased if either the ratios or Q are right.
* each self-normalized ("weighted"): ratios over their mean at each step; consistent, and bounded by the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from temporeal.policies.evaluate.ope.estimates import Weighted

LARGEST_LOG = 300.0  # of a cumulative ratio: e^300 is far beyond use, and its products are finite


@dataclass(frozen=True)
class Logged:
    """Episodes as padded tables.

    Args:
        log_ratio: [E, T], log of the judged policy's density over that of the data's, of each action; 0 after the end.
        reward: [E, T]; 0 after the end.
        q, v: [E, T], Q of the data's action and V of the state, by a fitted model; 0 after the end. None: no model.
        discount: gamma.
    """

    log_ratio: np.ndarray
    reward: np.ndarray
    discount: float = 1.0
    q: np.ndarray | None = None
    v: np.ndarray | None = None

    @property
    def discounts(self) -> np.ndarray:
        """gamma^t [T]."""
        return self.discount ** np.arange(self.reward.shape[1])

    def ratios(self, relative: bool = False) -> np.ndarray:
        """rho_0:t [E, T], up to and including step t; ``relative``: over the greatest of the step, which then does not
        underflow, and cancels where weights are normalized."""
        summed = np.cumsum(self.log_ratio, axis=1)
        return np.exp(summed - summed.max(0) if relative else np.minimum(summed, LARGEST_LOG))


def trajectory(logged: Logged, normalized: bool = False) -> Weighted:
    """Trajectory-wise."""
    returns = (logged.reward * logged.discounts).sum(1, keepdims=True)
    return Weighted(returns, logged.ratios(normalized)[:, -1:], np.zeros(len(returns)), normalized)


def per_decision(logged: Logged, normalized: bool = False) -> Weighted:
    """Per-decision."""
    return Weighted(logged.reward * logged.discounts, logged.ratios(normalized), np.zeros(len(logged.reward)),
                    normalized)


def doubly_robust(logged: Logged, normalized: bool = False) -> Weighted:
    """Doubly robust; ``logged`` needs ``q`` and ``v``."""
    if logged.q is None or logged.v is None:
        raise ValueError("doubly_robust needs a fitted Q: logged.q and logged.v")
    after = np.concatenate((logged.v[:, 1:], np.zeros((len(logged.v), 1))), axis=1)
    residual = logged.reward + logged.discount * after - logged.q
    return Weighted(residual * logged.discounts, logged.ratios(normalized), logged.v[:, 0], normalized)


ESTIMATORS: dict[str, Callable[[Logged, bool], Weighted]] = {
    "trajectory": trajectory, "per_decision": per_decision, "doubly_robust": doubly_robust}


def padded(steps: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Steps [M] of episodes that begin at ``starts`` [E + 1] as a table [E, T], with 0 after the end."""
    lengths = np.diff(starts)
    column = np.arange(int(lengths.max()))
    inside = column < lengths[:, None]
    out = np.zeros(inside.shape)
    out[inside] = steps
    return out
