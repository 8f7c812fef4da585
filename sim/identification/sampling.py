"""Draws from the posterior itself, where it is not normal: an ensemble of walkers with stretch moves.

J. Goodman and J. Weare, Comm. in Applied Mathematics and Computational Science 5(1), 2010 (eq. 7): a walker moves along
the line through another one; half of the ensemble moves at once, so that the simulator flies many vectors in one call.
The likelihood counts correlated samples as if they were more than they are, so draws are stretched about the fit by
what :mod:`.uncertainty` widens the normal posterior by (curvature adjustment: Ribatet, Cooley and Davison, Statistica
Sinica 22, 2012).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from temporeal.sim.identification.fit import Fit, Problem, posterior
from temporeal.sim.identification.noise import autocorrelation_time
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.uncertainty import Laplace

STRETCH = 2.0  # Goodman and Weare's a
LEAST_STEPS = 30


@dataclass(frozen=True)
class Draws:
    """theta: [D, Q]. accepted: share of moves. independent: draws that the worst parameter's are worth."""

    theta: Numbers
    accepted: float
    independent: float


def draws(problem: Problem, fit: Fit, around: Laplace, steps: int, seed: int) -> Draws:
    """An ensemble of four walkers a parameter after ``steps`` moves each, of which the first third is left out."""
    rng = np.random.default_rng(seed)
    count = len(fit.theta)
    walkers = 4 * count
    here = rng.multivariate_normal(fit.theta, around.plain, walkers, method="eigh")
    value = posterior(problem, fit.noise, fit.weight, here)
    chain, moved = np.empty((steps, walkers, count)), 0
    for step in range(steps):
        order = rng.permutation(walkers)
        for ours, others in ((order[: walkers // 2], order[walkers // 2 :]), (order[walkers // 2 :],
                                                                              order[: walkers // 2])):
            z = (1 + (STRETCH - 1) * rng.random(len(ours))) ** 2 / STRETCH
            partner = here[rng.choice(others, len(ours))]
            tried = partner + z[:, None] * (here[ours] - partner)
            found = posterior(problem, fit.noise, fit.weight, tried)
            ratio = (count - 1) * np.log(z) + found - value[ours]
            taken = np.log(rng.random(len(ours))) < np.where(np.isfinite(ratio), ratio, -np.inf)
            here[ours[taken]], value[ours[taken]] = tried[taken], found[taken]
            moved += int(taken.sum())
        chain[step] = here
    kept = chain[steps // 3 :]
    slowest = max(autocorrelation_time(kept[:, :, k].mean(1)) for k in range(count))
    if len(kept) < LEAST_STEPS:  # too few to see how long they hang together
        slowest = len(kept)
    return Draws(stretched(kept.reshape(-1, count), fit.theta, around), moved / (steps * walkers),
                 len(kept) * walkers / slowest)


def stretched(theta: Numbers, centre: Numbers, around: Laplace) -> Numbers:
    """theta [D, Q] of the plain likelihood, so that a normal one's covariance becomes the widened one."""
    scale = np.sqrt(np.diag(around.plain))
    a, b = (root(each / np.outer(scale, scale)) for each in (around.plain, around.covariance))
    return np.asarray(centre + ((theta - centre) / scale) @ np.linalg.solve(a, b) * scale)


def root(matrix: Numbers) -> Numbers:
    """The symmetric root of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 1e-12))) @ vectors.T)
