"""The profile of the likelihood: how much worse the log is explained with a parameter held elsewhere.

For each value all other parameters follow along the ridge of the likelihood (Venzon and Moolgavkar, Applied Statistics
37(1), 1988), with the curvature of the best fit as the curvature everywhere; they are not fitted anew, so that the true
profile may be flatter than this, never steeper. The prior holds the others where the log does not, and says nothing of
the parameter itself. A profile that stays flat over the prior's range is of a parameter that the log cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.sim.identification.fit import Fit, Problem, log_likelihood
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.uncertainty import Laplace

SIDES = (-2.0, -1.0, 1.0, 2.0)
"""Where a profile is looked at, in standard deviations of the prior from its middle."""
DROP_90 = 1.3527727
"""Half the 90 % quantile of chi squared with one degree: what excludes a value."""


BOUNDED = {"none": "the likelihood is flat over the prior's range",
           "one": "the likelihood bounds it on one side only",
           "both": "the likelihood bounds it less than the prior does"}
"""In words, of a parameter that stays wide, by how many of its sides a profile excludes."""


@dataclass(frozen=True)
class Profile:
    """fit: [Q]. at: [Q, 4] values over the prior's range. drop: [Q, 4] of the log likelihood there, corrected for
    correlated samples."""

    fit: Numbers
    at: Numbers
    drop: Numbers

    def sides(self) -> list[str]:
        """For each parameter: "both", "one" or "none" of the sides of its fit are excluded within the prior's range."""
        out = self.drop > DROP_90
        below, above = (out & side for side in (self.at < self.fit[:, None], self.at > self.fit[:, None]))
        return [("none", "one", "both")[int(low) + int(high)] for low, high in zip(below.any(1), above.any(1))]


def profile(problem: Problem, fit: Fit, around: Laplace) -> Profile:
    """All parameters at once."""
    mean, sd = problem.prior
    count = len(mean)
    curvature = fit.information()
    at = mean[:, None] + np.outer(sd, SIDES)
    best = log_likelihood(problem, fit.noise, fit.weight, fit.theta[None])[0]
    held = np.repeat(np.arange(count), len(SIDES))
    theta = np.repeat(fit.theta[None], len(held), 0)
    for row, k in enumerate(held):
        others = np.delete(np.arange(count), k)
        move = at[k, row % len(SIDES)] - fit.theta[k]
        inner = curvature[np.ix_(others, others)] + np.diag(sd[others] ** -2.0)
        theta[row, others] -= np.linalg.solve(inner, curvature[others, k] * move)
        theta[row, k] += move
    drop = best - log_likelihood(problem, fit.noise, fit.weight, theta)
    drop = np.where(np.isfinite(drop), drop, np.inf).reshape(count, len(SIDES))
    return Profile(fit.theta, at, np.maximum(drop, 0.0) / around.widened[:, None] ** 2)
