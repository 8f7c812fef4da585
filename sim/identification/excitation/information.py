"""How well an excitation will tell each parameter, before it is flown: Fisher's information, and what it means.

For measurements y = f(theta) + noise of covariance R, the information of stretch k is J_k^T R^-1 J_k, J_k the
sensitivities of what sensors would say. Stretches add up; with a prior of precision P, what is known after them has the
covariance (sum + P)^-1 (Cramer and Rao's bound, if the noise is as assumed and the model is true: what is left of a
real flight is correlated and the model is not true, so that real intervals are wider). A longer excitation of the same
kind has information in proportion to its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.sim.identification.excitation.waves import Numbers

LONGEST = 100.0
"""Times the excitation: who does not come to a precision by then does not by this excitation."""
TOLD = 0.5
"""Of a prior's standard deviation: a parameter that stays wider is not told by the excitation."""
TANGLED = 4.0
"""Times wider than if all others were known: from here on a parameter is limited by what it is mixed up with."""
PARTNER = 0.5
"""Correlation from which on another parameter is named."""


@dataclass(frozen=True)
class Asked:
    """One parameter. ``value``: in its unit; ``relative``: standard deviations are of its logarithm, so relative.
    ``prior``: the prior's standard deviation; ``scale``: what a precision is a share of: 1 of the relative ones, else
    the width of the prior's 90 %."""

    name: str
    unit: str
    value: float
    relative: bool
    prior: float
    scale: float


@dataclass(frozen=True)
class Information:
    """Of Q parameters in K stretches.

    Args:
        each: [K, Q, Q] information of a stretch. ends: [K] s at which it is over. seconds: of the whole excitation.
    """

    asked: tuple[Asked, ...]
    each: Numbers
    ends: Numbers
    seconds: float

    @property
    def prior(self) -> Numbers:
        """[Q, Q] precision."""
        return np.diag([one.prior**-2.0 for one in self.asked])

    def known(self, seconds: float) -> Numbers:
        """[Q, Q] information of the log after so much time, without the prior."""
        if seconds >= self.seconds:
            return np.asarray(self.each.sum(0) * (seconds / self.seconds))
        return np.asarray(self.each[self.ends <= seconds + 1e-9].sum(0))

    def covariance(self, seconds: float) -> Numbers:
        """[Q, Q] of what is known after so much time."""
        sd = np.array([one.prior for one in self.asked])  # scaled by it, so that the inverse is well conditioned
        inside = np.linalg.inv(self.known(seconds) * np.outer(sd, sd) + np.eye(len(sd)))
        return np.asarray(inside * np.outer(sd, sd))

    def sd(self, seconds: float) -> Numbers:
        """[Q] of what is known after so much time."""
        return np.sqrt(np.diag(self.covariance(seconds)))


@dataclass(frozen=True)
class Expected:
    """Of one parameter.

    Args:
        sd: after the excitation; alone: if all other parameters were known. needed: s of excitation until ``precision``
            is reached; infinite: not by this one. mixed: the parameters that it is mixed up with.
        told: whether the excitation tells it at all.
    """

    asked: Asked
    sd: float
    alone: float
    needed: float
    mixed: tuple[str, ...]
    told: bool


def expected(found: Information, precision: float) -> list[Expected]:
    """Of each parameter, in their order."""
    covariance, names = found.covariance(found.seconds), [one.name for one in found.asked]
    sd = np.sqrt(np.diag(covariance))
    alone = 1.0 / np.sqrt(np.diag(found.known(found.seconds) + found.prior))
    like = np.abs(covariance / np.outer(sd, sd)) - np.eye(len(sd))
    out = []
    for k, one in enumerate(found.asked):
        tangled = sd[k] > TANGLED * alone[k]
        mixed = tuple(names[j] for j in np.argsort(-like[k]) if like[k, j] > PARTNER)[:3] if tangled else ()
        out.append(Expected(one, float(sd[k]), float(alone[k]), needed(found, k, precision * one.scale), mixed,
                            bool(sd[k] < TOLD * one.prior)))
    return out


def needed(found: Information, k: int, wanted: float) -> float:
    """Seconds until the standard deviation of parameter ``k`` is ``wanted``; infinite: not by this excitation."""
    if found.asked[k].prior <= wanted:
        return 0.0
    for end in found.ends:
        if found.sd(float(end))[k] <= wanted:
            return float(end)
    low, high = found.seconds, LONGEST * found.seconds
    if found.sd(high)[k] > wanted:
        return float("inf")
    while high / low > 1.02:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if found.sd(middle)[k] <= wanted else (middle, high)
    return high


def whitening(times: Numbers, terms: Sequence[float]) -> Numbers:
    """[L, L] that makes a channel's noise independent, of unit size: ``white`` in each sample, ``start`` in all of a
    stretch alike, ``ramp`` growing with ``times`` [L] s from its start; both from the noise of the state it starts
    with."""
    white, start, ramp = terms
    covariance = white**2 * np.eye(len(times)) + start**2 + ramp**2 * np.outer(times, times)
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))


def gathered(sensitivity: Numbers, whiten: Sequence[Numbers]) -> Numbers:
    """[K, Q, Q] of sensitivities [Q, K, L, C] and whitening matrices [L, L] of the C channels."""
    out = np.zeros((sensitivity.shape[1], len(sensitivity), len(sensitivity)))
    for c, matrix in enumerate(whiten):
        one = np.einsum("ml,qkl->kqm", matrix, sensitivity[..., c], optimize=True)
        out += one @ np.moveaxis(one, 1, 2)
    return out
