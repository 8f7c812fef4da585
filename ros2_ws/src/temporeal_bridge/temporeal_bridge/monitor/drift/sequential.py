"""A sequential test: cumulative sums of log likelihood ratios. For N robots at once.

Page's CUSUM (Biometrika 41, 1954; Basseville and Nikiforov, Detection of Abrupt Changes, 1993, 2.2): of the ratio of
"k is beyond, by as much as matters" to "k is at the edge of what does not matter", the sum restarts where it falls
below 0, and is an alarm above h. Under any k on this side of the edge exp of an increment has a mean of at most 1 (the
ratio of two normal densities is monotone in k). Then the Shiryaev-Roberts statistic, which is never below exp of the
CUSUM, less the number of increments is a supermartingale (Pollak, Annals of Statistics 13, 1985), and the mean number
of increments to a false alarm is at least exp(h) (Lorden 1971). So h = log(tests * mean time / block).

No single increment counts for more than ``h / MOST_SHARE``, which only lowers those means: one bump, which is in two
blocks at the most, is no drift.
"""

from __future__ import annotations

from math import log

import numpy as np

from temporeal_bridge.monitor.drift.thrust import Array

MOST_SHARE = 3


def threshold(mean_time_s: float, block_s: float, tests: int) -> float:
    """The bound h with which ``tests`` tests together give a false alarm in ``mean_time_s`` at the most often."""
    return log(tests * mean_time_s / block_s)


class Cusum:
    """One-sided, of ``count`` robots.

    Args:
        sign: -1: is k less? 1: is it more?

    Attributes:
        total: the sums [N].
        since: [N], time at which each was last at 0: where the change is, by maximum likelihood.
        cross, information: [N], of the blocks since then: their estimate of k is cross / information.
    """

    def __init__(self, sign: int, bound: float, count: int = 1) -> None:
        self.sign, self.bound, self.count = sign, bound, count
        self.total, self.since, self.cross, self.information = (np.zeros(count) for _ in range(4))

    def take(
        self, begin: float, share: Array, information: Array, edge: Array, beyond: Array, which: np.ndarray
    ) -> np.ndarray:
        """A block of the robots ``which`` (bool [N]); whether their sums are beyond the bound, bool [N].

        Args:
            begin: of the block, s.
            share, information: [N] k by this block, and 1 / variance.
            edge: [N] the k farthest out that does not matter. beyond: [N] the k that should be noticed.
        """
        gain = (beyond - edge) * information * (share - (beyond + edge) / 2)
        gain = np.minimum(gain, self.bound / MOST_SHARE)
        fresh = which & (self.total <= 0.0)
        self.since[fresh] = begin
        for total, more in ((self.cross, share * information), (self.information, information)):
            total[fresh] = 0.0
            total[which] += more[which]
        self.total[which] = np.maximum(self.total + gain, 0.0)[which]
        return which & (self.total > self.bound)
