"""How residuals of a stretch hang together, by channel, and how they are made independent.

A stretch starts from a measured state, so that the sensor's noise at its first sample stays in all later residuals of
what is integrated (rates, velocity, attitude). There what the model leaves out accumulates: what is quick (vibration,
turbulence) as a random walk, what is slow (air that pushes, ever otherwise) as a ramp or an integrated random walk. A
controller answers the slow part with commands that cancel it, so that commands and what they seem to do have the wrong
sign; slow terms that are free keep this out of the parameters. Such a channel's covariance over the samples of a
stretch at times t is

    white^2 I + start^2 1 1^T + ramp^2 t t^T + walk^2 min(t, t') + wander^2 min^2 (3 max - min) / 6,

whose five numbers are those of the largest likelihood for the residuals at hand. Of a direct reading (specific force)
it is white^2 I: its slow part says what thrust is. Whitened residuals that are still alike over time count as fewer: a
channel is divided by the root of its integrated autocorrelation time (Geyer, Statistical Science 7(4), 1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from temporeal.sim.identification.record import Numbers

TERMS = ("white", "start", "ramp", "walk", "wander")
LEAST, MOST = 1e-2, 1e1
"""Of a term, relative to the residuals' size."""


@dataclass(frozen=True)
class Noise:
    """Of C channels. terms: [C, 5] in the order of :data:`TERMS`; whitening: [C, L, L] lower triangular; alike: [C]
    how many whitened samples count as one."""

    terms: Numbers
    whitening: Numbers
    alike: Numbers

    def white(self, residual: Numbers) -> Numbers:
        """residual [..., L, C] -> independent ones, of variance 1 / alike."""
        out = np.empty_like(residual)
        for c, matrix in enumerate(self.whitening):
            out[..., c] = residual[..., c] @ matrix.T
        return out


def fitted(residual: Numbers, times: Numbers, started: tuple[bool, ...], weight: Numbers, alike: Numbers | None = None
           ) -> Noise:
    """The noise of residuals [S, L, C].

    Args:
        times: [L] s behind the start. started: [C] whether a channel is integrated from a measured start. weight: [S]
            of stretches. alike: [C] how many samples count as one; None: as the residuals say.
    """
    terms, whitening, found_alike = [], [], []
    for c, integrated in enumerate(started):
        found = residual[:, :, c]
        spread = (found * weight[:, None]).T @ found / weight.sum()
        one, covariance = of_channel(spread, times, integrated)
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        count = (autocorrelation_time((found @ root.T * np.sqrt(weight)[:, None]).ravel()) if alike is None
                 else float(alike[c]))
        terms.append(one)
        whitening.append(root / np.sqrt(count))
        found_alike.append(count)
    return Noise(np.array(terms), np.array(whitening), np.array(found_alike))


def autocorrelation_time(series: Numbers) -> float:
    """Of a series [T], in samples, at least 1: 1 + 2 (sum of autocorrelations), up to where a pair of them is no more
    above 0 (Geyer's initial positive sequence)."""
    count = len(series)
    power = np.abs(np.fft.rfft(series - series.mean(), 2 * count)) ** 2
    correlation = np.fft.irfft(power)[:count]
    correlation /= correlation[0] + 1e-300
    pairs = correlation[: count // 2 * 2].reshape(-1, 2).sum(1)
    end = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    return max(1.0, float(2 * pairs[:end].sum() - 1))


def bases(times: Numbers) -> Numbers:
    """[5, L, L] covariances of the terms, each of size 1."""
    first, last = np.minimum.outer(times, times), np.maximum.outer(times, times)
    return np.stack([np.eye(len(times)), np.ones_like(first), np.outer(times, times), first,
                     first**2 * (3 * last - first) / 6])


def of_channel(spread: Numbers, times: Numbers, integrated: bool) -> tuple[Numbers, Numbers]:
    """The five terms of a channel whose residuals' second moment is ``spread`` [L, L], and their covariance."""
    size = float(np.trace(spread) / len(spread)) + 1e-18
    if not integrated:
        return np.array([np.sqrt(size), 0.0, 0.0, 0.0, 0.0]), size * np.eye(len(times))
    basis = bases(times)
    units = np.sqrt(np.trace(basis, axis1=1, axis2=2) / len(times))
    basis *= size / units[:, None, None] ** 2

    def cost(logs: Numbers) -> tuple[float, Numbers]:
        shares = np.exp(2 * logs)
        covariance = np.tensordot(shares, basis, 1)
        inverse = np.linalg.inv(covariance)
        both = inverse @ spread
        slope = np.tensordot(basis, (inverse - both @ inverse).T, 2) * shares
        return 0.5 * float(np.linalg.slogdet(covariance)[1] + np.trace(both)), slope

    best = minimize(cost, np.log([0.3, 0.3, 0.3, 0.3, 0.3]), jac=True, method="L-BFGS-B",
                    bounds=[(np.log(LEAST), np.log(MOST))] * 5)
    shares = np.exp(best.x)
    return shares * np.sqrt(size) / units, np.tensordot(shares**2, basis, 1)
