"""Is this still the quadrotor that the policy was trained for? For N robots at once.

Two questions, each to both sides, of k, by which thrust per mass differs from the prediction
(:mod:`temporeal_bridge.monitor.drift.evidence`):

- **level**: is k outside what the policy was trained for (``DriftSpec.ratio``)?
- **change**: is k another one than at this flight's beginning? Training has robots whose thrust per mass differs by
  more than 15 %; one robot does not change by as much in a flight.

The first :data:`BASELINE_S` of usable flight are the beginning, and what follows adds to it, up to :data:`LONGEST_S`,
once it is :data:`RIPE_S` old: by then a change would have been noticed. A difference of less than :data:`IGNORED` does
not matter: gusts, ground effect and errors of the model can last longer than a block, and come to as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.evidence import BLOCK_S, Evidence
from temporeal_bridge.monitor.drift.sequential import Cusum, threshold
from temporeal_bridge.monitor.drift.thrust import Array

MEAN_TIME_S = 36_000.0  # between false alarms of a robot in the air, where the model holds: ten hours; one is demanded
BASELINE_S, LONGEST_S, RIPE_S = 2.0, 10.0, 3.0
IGNORED, NOTICED = 0.05, 0.12  # shares of the thrust per mass. Chosen: a gust of 1 m/s from below is 4 % (drag of a
# Crazyflie); 15 % less thrust, and 20 % more mass (17 % less per mass), have to be noticed
SLOW_ERROR = 0.015  # of a share: errors that last longer than a block, in the intervals that are told. Chosen
RECENT, FEWEST = 25, 5  # blocks that say how large the noise really is; with fewer it is taken to be as stated
MEDIAN = 0.4549  # of the square of a standard normal number
SIDE = 1.645  # standard deviations of a 90 % interval
TESTS = (("change", -1), ("change", 1), ("level", -1), ("level", 1))


@dataclass(frozen=True)
class Drift:
    """What was noticed.

    Args:
        kind: ``change`` or ``level``.
        ratio: thrust per mass over that of the flight's beginning (change), or over the nominal one (level).
        low, high: its 90 % interval.
        since, at: s, when it began and when it was noticed.
    """

    kind: str
    ratio: float
    low: float
    high: float
    since: float
    at: float


class Detector:
    """The tests of ``count`` robots. One alarm of each robot and side.

    Attributes:
        level, level_sd: [N] k at the flight's beginning, and its standard deviation; NaN until it is known.
    """

    def __init__(self, spec: DriftSpec, count: int = 1) -> None:
        self.spec, self.count = spec, count
        self.evidence = Evidence(spec, count)
        self.bound = threshold(MEAN_TIME_S, BLOCK_S, len(TESTS))
        self.tests = [Cusum(sign, self.bound, count) for _, sign in TESTS]
        self.level, self.level_sd = np.full(count, np.nan), np.full(count, np.nan)
        self.known = np.zeros(count, dtype=bool)
        self.cross, self.information, self.learned = (np.zeros(count) for _ in range(3))
        self.unripe = np.full((count, round(RIPE_S / BLOCK_S), 2), np.nan)  # share and information, the oldest first
        self.steps = np.full((count, RECENT), np.nan)  # squares of normalized steps from block to block
        self.before = np.full((2, count), np.nan)  # share and information of the block before
        self.said = {sign: np.zeros(count, dtype=bool) for sign in (-1, 1)}

    def take(
        self, at: float, dt: float, thrust: Array, velocity: tuple[Array, Array], axis: tuple[Array, Array],
        usable: np.ndarray,
    ) -> list[tuple[int, Drift]]:
        """The interval of ``dt`` that ends ``at`` [s]; see :meth:`Evidence.take`. What was noticed, by robot."""
        share, information, done = self.evidence.take(dt, thrust, velocity, axis, usable)
        if not done.any():
            return []
        information = information / self._noise(share, information, done)
        known = done & self.known  # before this block
        found = [each for test, (kind, sign) in zip(self.tests, TESTS)
                 for each in self._test(test, kind, sign, at, share, information, done if kind == "level" else known)]
        self._learn(share, information, done)
        return found

    def _noise(self, share: Array, information: Array, done: np.ndarray) -> Array:
        """The variance of the last blocks over what was expected, at least 1: half the median square of steps between
        neighbours (von Neumann 1941), which a change of k moves once."""
        last, weight = self.before
        step = (share - last) ** 2 / (1 / information + 1 / weight)
        row = np.flatnonzero(done)
        self.steps[row] = np.column_stack([self.steps[row, 1:], step[row]])
        self.before[:, row] = share[row], information[row]
        counted, ordered = np.isfinite(self.steps).sum(axis=-1), np.sort(self.steps, axis=-1)  # NaN comes last
        middle = ordered[np.arange(self.count), counted // 2]
        return np.where(counted >= FEWEST, np.maximum(middle / MEDIAN, 1.0), 1.0)

    def _learn(self, share: Array, information: Array, which: np.ndarray) -> None:
        """The flight's beginning: its first blocks at once, later ones when they are ripe."""
        first = which & ~self.known
        row = np.flatnonzero(which & self.known)
        ripe = self.unripe[row, 0].copy()
        self.unripe[row] = np.concatenate(
            [self.unripe[row, 1:], np.stack([share, information], -1)[row, None]], axis=1)
        taken = np.isfinite(ripe[:, 0]) & (self.learned[row] < LONGEST_S / BLOCK_S - 1e-9)
        more = np.stack([share, information], -1)
        more[row] = np.where(taken[:, None], ripe, 0.0)
        added = first.astype(float)
        added[row] = taken
        self.cross += added * more[:, 0] * more[:, 1]
        self.information += added * more[:, 1]
        self.learned += added
        self.known |= first & (self.learned >= BASELINE_S / BLOCK_S - 1e-9)
        self.level[self.known] = (self.cross / np.maximum(self.information, 1e-12))[self.known]
        self.level_sd[self.known] = 1 / np.sqrt(self.information[self.known])

    def _edges(self, kind: str, sign: int) -> tuple[Array, Array]:
        """The k [N] farthest out that does not matter, and the one that should be noticed."""
        if kind == "level":
            end = self.spec.ratio[1 + sign]
            edge, beyond = (np.full(self.count, end * (1 + sign * by) - 1.0) for by in (IGNORED, NOTICED))
            return edge, beyond
        scale = 1.0 + self.level
        edge = self.level + sign * np.hypot(IGNORED * scale, 2 * self.level_sd)
        return edge, edge + sign * (NOTICED - IGNORED) * scale

    def _test(
        self, test: Cusum, kind: str, sign: int, at: float, share: Array, information: Array, which: np.ndarray
    ) -> list[tuple[int, Drift]]:
        alarms = test.take(at - BLOCK_S, share, information, *self._edges(kind, sign), which) & ~self.said[sign]
        self.said[sign] |= alarms
        return [(int(n), self._told(test, kind, int(n), at)) for n in np.flatnonzero(alarms)]

    def _told(self, test: Cusum, kind: str, n: int, at: float) -> Drift:
        """The estimate behind an alarm of robot ``n``."""
        share, sd = test.cross[n] / test.information[n], 1 / np.sqrt(test.information[n])
        ratio = 1.0 + share
        if kind == "change":
            scale = 1.0 + self.level[n]
            ratio, sd = ratio / scale, hypot(sd, ratio / scale * self.level_sd[n]) / scale
        half = SIDE * hypot(sd, SLOW_ERROR)
        return Drift(kind, float(ratio), float(ratio - half), float(ratio + half), float(test.since[n]), at)
