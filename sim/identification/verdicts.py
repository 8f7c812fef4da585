"""What of an identification the log tells, what it cannot tell, and why, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from temporeal.sim.identification.fit import Fit, Problem
from temporeal.sim.identification.parameters import Quantity
from temporeal.sim.identification.profile import Profile
from temporeal.sim.identification.sampling import Draws
from temporeal.sim.identification.uncertainty import SHRUNK, Laplace
from temporeal.sim.randomization.statuses import CONTRADICTS, GIVEN, IDENTIFIED, PRIOR

FAR = 3.0
"""Standard deviations by which a parameter lies beyond what published sources say, or a log beyond what was given."""
TOLD = 1e-3
"""Of a prior's variance, by which a log must shrink it for what the log alone says to be computed."""


class Identified(Protocol):
    """What was found of a quadrotor (:mod:`.identify`) or of joints (:mod:`.joints.identify`)."""

    @property
    def robot(self) -> str:
        """Its name."""
    @property
    def format(self) -> str:
        """Of its file (:mod:`.identified_file`)."""
    @property
    def setting(self) -> float:
        """That a fit of this format has alone."""
    @property
    def asked(self) -> Sequence[Quantity]:
        """What was looked for, Q parameters."""
    @property
    def problem(self) -> Problem:
        """That was fitted."""
    @property
    def fit(self) -> Fit:
        """Where it ended."""
    @property
    def posterior(self) -> Laplace:
        """Around the fit."""
    @property
    def profile(self) -> Profile:
        """Of the likelihood."""
    @property
    def draws(self) -> Draws | None:
        """From the posterior; None: no sampler was asked for."""
    def simulated(self, theta: np.ndarray) -> Mapping[str, np.ndarray]:
        """The simulator's parameters by name, [P, size] each, of vectors theta [P, Q]."""
    def hidden(self, quantity: Quantity) -> bool:
        """Whether a parameter cannot be told whatever the fit says."""
    def reason(self, quantity: Quantity, sides: str) -> str:
        """Why the log does not tell a parameter. ``sides``: of its fit, that its profile excludes."""


@dataclass(frozen=True)
class Verdict:
    """Of one parameter.

    Args:
        value, low, high: of the posterior (:func:`posterior_of`) in its unit, with 90 % between the last two. prior:
            its 90 %. shrink: posterior's standard deviation over the prior's, of what is fitted. status: one of
            :data:`~temporeal.sim.randomization.statuses.STATUSES`.
        why: in words, where the log does not tell it, or what it tells is odd.
    """

    quantity: Quantity
    value: float
    low: float
    high: float
    prior: tuple[float, float]
    shrink: float
    status: str
    why: str


def verdicts(found: Identified) -> list[Verdict]:
    """Of all parameters, in their order; values and intervals are those of the one posterior, whatever the status."""
    means, covariance = posterior_of(found)
    out = []
    for k, (quantity, sides) in enumerate(zip(found.asked, found.profile.sides())):
        mean, sd = float(means[k]), float(np.sqrt(covariance[k, k]))
        shrink = 1.0 if found.hidden(quantity) else float(found.posterior.shrink[k])
        status, why = judged(found, k, shrink, sides)
        out.append(Verdict(quantity, float(quantity.value(mean)), *quantity.interval(mean, sd),
                           quantity.interval(quantity.mean, quantity.sd), shrink, status, why))
    return out


def judged(found: Identified, k: int, shrink: float, sides: str) -> tuple[str, str]:
    """Status of the k-th parameter, and why. That a log contradicts a prior comes before how well it tells."""
    quantity, flat = found.asked[k], shrink > SHRUNK
    away = abs(float(found.posterior.theta[k]) - quantity.mean) / quantity.sd
    apart, alone = tension(found, k)
    if not found.hidden(quantity) and (away > FAR or apart > FAR):
        if quantity.given:
            return CONTRADICTS, (f"{apart:.1f} standard deviations from what was given: the log says "
                                 f"{float(quantity.value(alone)):.3g}")
        far = f"{max(away, apart):.1f} standard deviations of its prior away from it"
        if flat:
            return CONTRADICTS, f"{far}, and not told well: {BEYOND}"
        return IDENTIFIED, f"{far}: {BEYOND}" if away > FAR else ""
    if not flat:
        return IDENTIFIED, ""
    if quantity.given:
        told = float(quantity.value(alone))
        return GIVEN, ("as it was given; the log tells no more" if alone == float(found.posterior.theta[k]) else
                       f"mostly as it was given; the log alone says {told:.3g}, and not well")
    return PRIOR, found.reason(quantity, sides)


def tension(found: Identified, k: int) -> tuple[float, float]:
    """How far the k-th parameter is by the log alone from its prior, in standard deviations of their difference; and
    what the log alone says, with the others' priors in place. 0 and the posterior's where it says nothing.

    With s^2 the plain posterior's variance in units of the prior's, the log alone says prior + (mean - prior) /
    (1 - s^2), with the variance s^2 / (1 - s^2), times by how much correlated samples widen it: what the widened
    posterior (P M P + P P, :mod:`.uncertainty`) has beyond P P, over what the plain one has.
    """
    _, sd = found.problem.prior
    plain = found.posterior.plain / np.outer(sd, sd)
    s2, own = float(plain[k, k]), float(plain[k] @ plain[k])
    theta, quantity = float(found.posterior.theta[k]), found.asked[k]
    if 1 - s2 < TOLD:
        return 0.0, theta
    wide = (float(found.posterior.covariance[k, k]) / sd[k] ** 2 - own) / max(s2 - own, 1e-12)
    away = (theta - quantity.mean) / (1 - s2)
    return float(abs(away) / sd[k] / np.sqrt(1 + max(wide, 1.0) * s2 / (1 - s2))), quantity.mean + away


BEYOND = "no published source says so; is it the robot that it is said to be, and what does the model leave out?"


def posterior_of(found: Identified) -> tuple[np.ndarray, np.ndarray]:
    """Means [Q] and covariance [Q, Q] of what is fitted: the one posterior that the table, the file's covariance and
    the simulator's parameters are made of.

    Where correlated samples would widen a parameter's variance beyond its prior's, it is scaled back, with its
    correlations. One that is hidden is as its prior, and independent.
    """
    prior, sd = found.problem.prior
    mean, covariance = found.posterior.theta.copy(), found.posterior.covariance.copy()
    for k, quantity in enumerate(found.asked):
        scale = 0.0 if found.hidden(quantity) else 1.0 / max(float(found.posterior.shrink[k]), 1.0)
        covariance[k] *= scale
        covariance[:, k] *= scale
        if scale == 0.0:
            mean[k], covariance[k, k] = prior[k], sd[k] ** 2
    return mean, covariance
