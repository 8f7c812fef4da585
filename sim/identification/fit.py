"""The most probable parameters: Gauss-Newton on whitened residuals and the prior, the noise fitted in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.identification.noise import Noise, fitted
from temporeal.sim.identification.record import Numbers

ROUNDS, STEPS, ALL_COUNT = 24, 4, 3
FROZEN = 12
"""Rounds, after which noise and weights stay: what is left is a descent of one function, which ends."""
MOVED = 0.02
"""Of a prior's standard deviation: a round that moves no parameter further is the last."""
DEGREES = 4.0
"""Of Student's t by which a stretch that the model cannot explain counts less (a touch, a gust, a lost marker)."""
NUDGE = 1e-3
"""Of a prior's standard deviation: for derivatives."""


class Record(Protocol):
    """A log on an even grid."""

    @property
    def name(self) -> str:
        """For people."""
    @property
    def digest(self) -> str:
        """SHA-256 of the log."""
    @property
    def step(self) -> float:
        """Of the grid [s]."""
    @property
    def seconds(self) -> float:
        """That can be used."""


class Problem(Protocol):
    """What is fitted: records cut into S stretches of L samples, whose C channels are explained by Q parameters."""

    @property
    def records(self) -> Sequence[Record]:
        """All of one step."""
    @property
    def length(self) -> int:
        """L."""
    @property
    def begins(self) -> Sequence[NDArray[np.int64]]:
        """Of each record, first samples of its stretches."""
    @property
    def times(self) -> Numbers:
        """[L'] s of the samples whose residuals are taken."""
    @property
    def channels(self) -> Sequence[str]:
        """[C] names."""
    @property
    def started(self) -> tuple[bool, ...]:
        """[C] whether a channel is integrated from a measured start."""
    @property
    def prior(self) -> tuple[Numbers, Numbers]:
        """Means and standard deviations [Q]."""
    def residuals(self, theta: Numbers) -> Numbers:
        """[P, S, L', C] of vectors theta [P, Q]."""


@dataclass(frozen=True)
class Fit:
    """Where a fit ended.

    Args:
        theta: [Q]. noise: of the residuals there. weight: [S] of stretches. jacobian: [S, M, Q] of whitened residuals
            (M numbers a stretch), weights not included. residual: [S, M], whitened.
        rounds: that it took. converged: the last round moved nothing.
    """

    theta: Numbers
    noise: Noise
    weight: Numbers
    jacobian: Numbers
    residual: Numbers
    rounds: int
    converged: bool

    def information(self) -> Numbers:
        """[Q, Q] of the log alone, if whitened residuals were independent."""
        return np.asarray(np.einsum("s,smq,smr->qr", self.weight, self.jacobian, self.jacobian, optimize=True))

    def scores(self) -> Numbers:
        """[S, Q] derivative of each stretch's log likelihood."""
        return np.asarray(-np.einsum("s,smq,sm->sq", self.weight, self.jacobian, self.residual, optimize=True))


def whitened(problem: Problem, noise: Noise, theta: Numbers) -> Numbers:
    """[P, S, M] of vectors theta [P, Q]."""
    found = noise.white(problem.residuals(theta))
    return found.reshape(*found.shape[:2], -1)


def log_likelihood(problem: Problem, noise: Noise, weight: Numbers, theta: Numbers) -> Numbers:
    """[P], up to a constant."""
    found = whitened(problem, noise, theta)
    return np.asarray(-0.5 * np.einsum("s,psm,psm->p", weight, found, found, optimize=True))


def log_prior(problem: Problem, theta: Numbers) -> Numbers:
    """[P], up to a constant."""
    mean, sd = problem.prior
    return np.asarray(-0.5 * (((theta - mean) / sd) ** 2).sum(1))


def weights(residual: Numbers) -> Numbers:
    """[S] by Student's t, of whitened residuals [S, M], a stretch as one number: (nu + 1) / (nu + mean square)."""
    return np.asarray((DEGREES + 1) / (DEGREES + (residual**2).mean(1)))


def linearized(problem: Problem, noise: Noise, theta: Numbers) -> tuple[Numbers, Numbers]:
    """Whitened residuals [S, M] at theta [Q], and their Jacobian [S, M, Q] by central differences."""
    _, sd = problem.prior
    step = NUDGE * sd
    around = np.concatenate([theta[None], theta + np.diag(step), theta - np.diag(step)])
    found = whitened(problem, noise, around)
    count = len(theta)
    slope = (found[1 : count + 1] - found[count + 1 :]) / (2 * step)[:, None, None]
    return found[0], np.moveaxis(slope, 0, -1)


def fit(problem: Problem, theta: Numbers | None = None, steps: int = STEPS) -> Fit:
    """Fit from ``theta`` [Q] on; from the prior's means where there is none. ``steps``: in a round, at most.

    In the first rounds all samples count, so that the slow parts are fitted, too; how many of them count as one is
    then taken of what is left, once: it would grow with a fit that it makes worse. Noise and weights follow the fit for
    :data:`FROZEN` rounds.
    """
    mean, sd = problem.prior
    here = mean.copy() if theta is None else theta.copy()
    times, started = problem.times, problem.started
    weight, alike = np.ones(sum(map(len, problem.begins))), np.ones(len(started))
    noise = fitted(problem.residuals(here[None])[0], times, started, weight, alike)
    converged = False
    for rounds in range(1, ROUNDS + 1):
        before = here.copy()
        here = descended(problem, noise, weight, here, steps)
        converged = rounds > ALL_COUNT and bool(np.abs((here - before) / sd).max() < MOVED)
        if rounds > FROZEN:
            if converged:
                break
            continue
        found = problem.residuals(here[None])[0]
        white = noise.white(found) * np.sqrt(noise.alike)
        weight = weights(white.reshape(len(white), -1))
        noise = fitted(found, times, started, weight, None if rounds == ALL_COUNT else alike)
        alike = noise.alike
        if converged:
            break
    with np.errstate(over="ignore", invalid="ignore"):  # as in its steps; laplace refuses what is no number
        residual, jacobian = linearized(problem, noise, here)
    return Fit(here, noise, weight, jacobian, residual, rounds, converged)


def descended(problem: Problem, noise: Noise, weight: Numbers, theta: Numbers, steps: int) -> Numbers:
    """A few Gauss-Newton steps from theta [Q], each halved until the posterior is no less."""
    mean, sd = problem.prior
    value = posterior(problem, noise, weight, theta[None])[0]
    for _ in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):  # neighbours of theta may leave all numbers behind
            residual, jacobian = linearized(problem, noise, theta)
            curvature = np.einsum("s,smq,smr->qr", weight, jacobian, jacobian, optimize=True) + np.diag(sd**-2.0)
            slope = np.einsum("s,smq,sm->q", weight, jacobian, residual, optimize=True) + (theta - mean) / sd**2
        if not np.isfinite(curvature).all() or not np.isfinite(slope).all():
            break
        step = -np.linalg.solve(curvature, slope)
        tried = theta + step * 0.5 ** np.arange(6)[:, None]
        values = posterior(problem, noise, weight, tried)
        best = int(np.argmax(values))
        if not values[best] > value:
            break
        gained, value, theta = values[best] - value, values[best], tried[best]
        if gained < 1e-3:
            break
    return theta


def posterior(problem: Problem, noise: Noise, weight: Numbers, theta: Numbers) -> Numbers:
    """Log of it [P], up to a constant; of flights that leave all numbers behind, minus infinity."""
    with np.errstate(over="ignore", invalid="ignore"):  # a step that was too long: it is halved
        found = log_likelihood(problem, noise, weight, theta) + log_prior(problem, theta)
    return np.where(np.isnan(found), -np.inf, found)
