"""How far a fit can be believed: intervals that stay honest where residuals are correlated and the model is not true.

The information of a likelihood that is not the truth is H M^-1 H (Godambe; White, Econometrica 50(1), 1982), with H the
curvature and M the covariance of scores. Scores of neighbouring stretches are correlated, so M is their long-run
covariance (Newey and West, Econometrica 55(3), 1987). It is never taken to be less than H: intervals are widened, and
not narrowed. With a prior of precision P the posterior's covariance is (H + P)^-1 (M + P) (H + P)^-1: where the log
says nothing, H and M are zero and the prior is left as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.sim.identification.fit import Fit, Problem
from temporeal.sim.identification.record import CannotTell, Numbers

LONG_S = 2.0
"""Beyond which scores are taken to be independent."""
SHRUNK = 0.5
"""Of a prior's standard deviation: a parameter whose posterior is wider is not identifiable by the log."""


@dataclass(frozen=True)
class Laplace:
    """A normal posterior around a fit. theta: [Q]. covariance: [Q, Q] widened; plain: [Q, Q] if samples were
    independent. widened: [Q] by how much each was, as a ratio of standard deviations. shrink: [Q] posterior's
    standard deviation over the prior's."""

    theta: Numbers
    covariance: Numbers
    plain: Numbers
    widened: Numbers
    shrink: Numbers

    @property
    def sd(self) -> Numbers:
        """[Q]."""
        return np.sqrt(np.diag(self.covariance))


def laplace(problem: Problem, fit: Fit) -> Laplace:
    """The posterior around ``fit``, in units of the prior's standard deviations meanwhile. Raises :class:`CannotTell`
    where the fit's neighbours are no numbers, so that nothing is known of it."""
    _, sd = problem.prior
    with np.errstate(over="ignore", invalid="ignore"):
        curvature, slopes = fit.information() * np.outer(sd, sd), fit.scores() * sd
    if not np.isfinite(curvature).all() or not np.isfinite(slopes).all():
        raise CannotTell("the fit ended where what the simulator predicts are no numbers: is it the robot that it is "
                         "said to be?")
    lags = max(int(round(LONG_S / (problem.length * problem.records[0].step))), 1)
    scores = widest(curvature, long_run(slopes, lags))
    count = len(sd)
    plain = np.linalg.inv(curvature + np.eye(count))
    covariance = plain @ (scores + np.eye(count)) @ plain
    covariance = 0.5 * (covariance + covariance.T)
    size, before = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(plain))
    scale = np.outer(sd, sd)
    return Laplace(fit.theta, covariance * scale, plain * scale, size / before, size)


def long_run(scores: Numbers, lags: int) -> Numbers:
    """Covariance [Q, Q] of the sum of scores [S, Q], with the correlation of up to ``lags`` neighbours (Bartlett's
    weights, so that it has no negative direction), and S / (S - 1) for few stretches."""
    scores = scores - scores.mean(0)
    out = scores.T @ scores
    for lag in range(1, min(lags, len(scores) - 1) + 1):
        cross = scores[lag:].T @ scores[:-lag]
        out += (1 - lag / (lags + 1)) * (cross + cross.T)
    return out * len(scores) / max(len(scores) - 1, 1)


def widest(curvature: Numbers, scores: Numbers) -> Numbers:
    """``scores`` [Q, Q], but in no direction less than ``curvature`` [Q, Q]."""
    values, vectors = np.linalg.eigh(curvature)
    known = values > 1e-9 * max(float(values.max()), 1e-300)
    root = vectors[:, known] * np.sqrt(values[known])
    inverse = vectors[:, known] / np.sqrt(values[known])
    ratio, turn = np.linalg.eigh(inverse.T @ scores @ inverse)
    return np.asarray((root @ turn) * np.maximum(ratio, 1.0) @ (root @ turn).T)
