"""How one vector of three axes is related to another that should be equal: axes changed, signs turned, other units.

Of two measurements of the same vector, x [T, 3] and y [T, 3], the correlations of all pairs of axes say which axis of
one is which of the other: of all 48 signed permutations the one with the largest sum is taken, and the sum of the
identity is beside it. The ratio of their spreads says the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from temporeal.policies.data.flight_logs.flight_log import Numbers

AXES = "xyz"
CLEAR = 0.5
"""By how much another permutation's sum of three correlations must be larger than the identity's to be believed."""
TOLD = 0.5
"""Correlation above which an axis of one is told by the other."""
RATIOS = {
    180 / np.pi: "deg for rad", np.pi / 180: "rad for deg", 1000.0: "mm for m", 0.001: "m for mm", 100.0: "cm for m",
    0.01: "m for cm", 9.80665: "m/s^2 for g", 1 / 9.80665: "g for m/s^2"}
NEAR = 1.4
"""Factor by which a ratio may be off and still be known: noise lowers it, sensors are off by some percent."""
ACCEPTED = (0.4, 1.7)
"""Ratios of spreads that pass for equal units; noise in either of both changes them."""


@dataclass(frozen=True)
class Relation:
    """y[:, i] follows signs[i] * x[:, order[i]].

    Args:
        correlation: of each axis of y with its axis of x [3], signs applied.
        identity: [3] the same of the identity.
        ratio: spread of y by that of x over the axes that are told; NaN: none is.
    """

    order: tuple[int, ...]
    signs: tuple[int, ...]
    correlation: tuple[float, ...]
    identity: tuple[float, ...]
    ratio: float

    @property
    def known(self) -> bool:
        """Whether at least one axis is told, and two of a wrong order."""
        return sum(c > TOLD for c in self.correlation) >= (1 if self.straight else 2)

    @property
    def straight(self) -> bool:
        """Whether the axes are the same, or nothing clearly says otherwise."""
        return sum(self.correlation) - sum(self.identity) < CLEAR

    @property
    def mirrored(self) -> bool:
        """Whether all axes are in their places and turned."""
        return self.order == (0, 1, 2) and self.signs == (-1, -1, -1)

    def said(self) -> str:
        """What the axes are, in words: ``x is y, y is x``."""
        return ", ".join(f"{AXES[i]} is {'-' if sign < 0 else ''}{AXES[k]}"
                         for i, (k, sign) in enumerate(zip(self.order, self.signs)) if (k, sign) != (i, 1))

    def told(self) -> str:
        """The axes that the identity tells, with their correlations."""
        return ", ".join(f"{AXES[i]} {c:.2f}" for i, c in enumerate(self.identity) if c > TOLD) or "no axis"


def related(x: Numbers, y: Numbers) -> Relation:
    """How ``y`` [T, 3] follows ``x`` [T, 3]; both are centred first."""
    x, y = x - x.mean(0), y - y.mean(0)
    spread_x, spread_y = x.std(0), y.std(0)
    table = (y.T @ x) / len(x) / np.maximum(np.outer(spread_y, spread_x), 1e-12)
    # an axis that does not move, beside those that do, is noise: it is not asked
    table *= np.outer(spread_y > 0.02 * spread_y.max(), spread_x > 0.02 * spread_x.max())
    order = max(permutations(range(3)), key=lambda each: sum(abs(table[i, k]) for i, k in enumerate(each)))
    signs = tuple(-1 if table[i, k] < 0 else 1 for i, k in enumerate(order))
    correlation = tuple(float(abs(table[i, k])) for i, k in enumerate(order))
    ratios = [float(spread_y[i] / max(spread_x[k], 1e-12)) for i, k in enumerate(order) if correlation[i] > TOLD]
    return Relation(tuple(order), signs, correlation, tuple(float(table[i, i]) for i in range(3)),
                    float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan"))


def unit_of(ratio: float) -> str:
    """What a ratio of spreads says: "" equal units, else their names or the factor."""
    if ACCEPTED[0] <= ratio <= ACCEPTED[1]:
        return ""
    near = min(RATIOS, key=lambda each: abs(np.log(ratio / each)))
    known = 1 / NEAR / 1.5 < ratio / near < NEAR
    return f"{RATIOS[near]}: {ratio:.3g} times too large" if known else f"{ratio:.3g} times too large, of no unit known"


