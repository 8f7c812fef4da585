"""Residual dynamics of a quadrotor: a small ensemble of networks on top of its physics. The reference, in numpy.

Each of M members maps what the robot does to what its physics does not explain:

    x [10]  velocity through the air in body axes [m/s], body rates [rad/s], rotor speeds [1]
    z = W (x - mean)              whitened by the training data, W lower triangular
    y [6] = bound * squash(W3 squash(W2 squash(W1 z + b1) + b2) + b3),   squash(v) = v / sqrt(1 + v^2)
    acceleration [m/s^2], angular acceleration [rad/s^2], body axes = fade(|z|^2) * y

A robot can hurt somebody, so that what is learned ends where its data does: outputs cannot exceed ``bound``, which is
of the size that was seen, and ``fade`` falls from 1 to 0 between the squared distances ``near`` and ``far`` from the
middle of the data. The battery's voltage is no input, since the simulator has none: what it does is in rotor speeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.physics.quadrotor.residual.scalar import INPUTS, OUTPUTS

Numbers = NDArray[np.float64]
MOST_MEMBERS, MOST_HIDDEN = 16, 32
INPUT_NAMES = ("velocity_x", "velocity_y", "velocity_z", "rate_x", "rate_y", "rate_z", "rotor_1", "rotor_2", "rotor_3",
               "rotor_4")
GREATEST = np.array([5.0] * 3 + [100.0] * 3)
"""Legal bounds, m/s^2 and rad/s^2: half of gravity; a quarter of what a small robot's rotors turn it with."""


@dataclass(frozen=True)
class Ensemble:
    """M members of H hidden units. ``mean`` [10], ``whiten`` [10, 10], ``near``, ``far`` squared, ``bound`` [6];
    ``weights`` and ``biases`` of the three layers: [M, H, 10], [M, H]; [M, H, H], [M, H]; [M, 6, H], [M, 6]."""

    mean: Numbers
    whiten: Numbers
    near: float
    far: float
    bound: Numbers
    weights: tuple[Numbers, Numbers, Numbers]
    biases: tuple[Numbers, Numbers, Numbers]

    @property
    def members(self) -> int:
        """M."""
        return len(self.biases[0])

    @property
    def hidden(self) -> int:
        """H."""
        return self.biases[0].shape[1]

    def packed(self) -> Numbers:
        """The flat array of :mod:`.scalar`."""
        parts = [self.mean, self.whiten.ravel(), [self.near, 1.0 / (self.far - self.near)], self.bound]
        for m in range(self.members):
            for weight, bias in zip(self.weights, self.biases):
                parts += [weight[m].ravel(), bias[m]]
        return np.concatenate(parts)

    @property
    def scratch(self) -> int:
        """Numbers that :func:`.scalar.accelerations` needs of a scratch array."""
        return INPUTS + 2 * self.hidden + self.members + 2 * OUTPUTS


def squash(x: Numbers) -> Numbers:
    """Within (-1, 1)."""
    return np.asarray(x / np.sqrt(1 + x * x))


def fade(ensemble: Ensemble, x: Numbers) -> Numbers:
    """[...] by which outputs at ``x`` [..., 10] count: 1 where there was data, 0 far from it."""
    far = (((x - ensemble.mean) @ ensemble.whiten.T) ** 2).sum(-1)
    return np.clip((ensemble.far - far) / (ensemble.far - ensemble.near), 0.0, 1.0)


def accelerations(ensemble: Ensemble, x: Numbers) -> Numbers:
    """[M, T, 6] of each member at ``x`` [T, 10]."""
    z = np.broadcast_to((x - ensemble.mean) @ ensemble.whiten.T, (ensemble.members, *x.shape))
    for weight, bias in zip(ensemble.weights, ensemble.biases):
        z = squash(z @ weight.swapaxes(1, 2) + bias[:, None])
    return np.asarray(z * fade(ensemble, x)[:, None] * ensemble.bound)


def whitening(x: Numbers, floor: Numbers) -> tuple[Numbers, Numbers]:
    """Mean [10] and lower triangular whitening [10, 10] of data ``x`` [T, 10] to which noise ``floor`` [10] is added,
    so that no direction in which there was no change is blown up."""
    mean = x.mean(0)
    covariance = np.cov(x.T) + np.diag(floor**2)
    return mean, np.tril(np.linalg.inv(np.linalg.cholesky(covariance)))  # LAPACK leaves 1e-17 above the diagonal
