"""How much more or less thrust per mass was flown than predicted: independent, normalized estimates. For N robots.

Over an interval of ``dt`` seconds, with u the body's z axis and F the predicted integral of thrust over mass,

    y = u . (v1 - v0 + g dt) + drag u . v dt / m - F  =  k F + (n1 - n0) + w

where k is the share by which thrust per mass differs (-0.15: 15 % less), n the noise of a measured velocity (sd
``noise``) and w what no model has: gusts, and the uncertainty of lag and drag. Drag along the body's other axes does
not act on u. Neighbouring y share a sample of the noise, a moving average of first order, which the innovations
algorithm makes white (Brockwell and Davis, Time Series: Theory and Methods, 1991, section 5.2); k's regressor goes
through the same filter. Blocks of :data:`BLOCK_S` of what is left are estimates of k by least squares, independent of
each other where the model holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.thrust import GRAVITY, NOMINAL, QUICK, SLOW, Array

BLOCK_S = 0.2  # s. Chosen: twice the time that gusts and errors of the thrust curve last
GUST = 0.018  # (m/s^2)^2 s, two-sided spectral density of an acceleration that no model has: 0.3 m/s^2 that last 0.1 s
# (2 sd^2 time), or 0.15 for 0.4 s. Fits of thrust to public logs of Crazyflies leave 0.13 to 0.17 m/s^2
DRAG_S = 0.5  # s: how long a flight keeps its climb, which an error of the drag lasts


class Block(NamedTuple):
    """Estimates of k [N], their information [N] (1 / variance), and which robots have one (bool [N])."""

    share: Array
    information: Array
    done: np.ndarray


class Evidence:
    """Of ``count`` robots that ``spec`` describes."""

    def __init__(self, spec: DriftSpec, count: int = 1) -> None:
        self.spec, self.count = spec, count
        self.lag = max(spec.tau_up[2], spec.tau_down[2])
        self.drag_error = (spec.drag[2] - spec.drag[0]) ** 2 / 12 / spec.mass**2  # variance, uniform
        self.broken = np.ones(count, dtype=bool)  # no interval before
        self.last, self.slope, self.variance = np.zeros(count), np.zeros(count), np.ones(count)
        self.seconds, self.cross, self.information = (np.zeros(count) for _ in range(3))  # of the block so far

    def _clear(self, which: np.ndarray) -> None:
        for total in (self.seconds, self.cross, self.information):
            total[which] = 0.0

    def take(
        self, dt: float, thrust: Array, velocity: tuple[Array, Array], axis: tuple[Array, Array], usable: np.ndarray
    ) -> Block:
        """The next interval.

        Args:
            dt: s.
            thrust: the predicted integrals [3, N], m/s.
            velocity: measured [N, 3] at its begin and end, m/s, world.
            axis: the body's z axis in the world [N, 3] at both.
            usable: bool [N]; after an interval that is not, noise starts anew. What a block has so far is kept.
        """
        u = axis[0] + axis[1]
        u = u / np.linalg.norm(u, axis=-1, keepdims=True)
        climb = np.sum(u * (velocity[0] + velocity[1]), axis=-1) / 2
        change = np.sum(u * (velocity[1] - velocity[0]), axis=-1) + GRAVITY * dt * u[:, 2]
        force = thrust[NOMINAL]
        left = change + self.spec.drag[1] / self.spec.mass * climb * dt - force
        noise = self.spec.noise**2
        spread = (thrust[SLOW] - thrust[QUICK]) ** 2 / 12  # uniform between both, for as long as the lag
        unknown = GUST * dt + spread * 2 * self.lag / dt + self.drag_error * climb**2 * 2 * DRAG_S * dt
        carried = np.where(self.broken, 0.0, noise / self.variance)
        variance = 2 * noise + unknown - carried * noise
        residual, slope = left + carried * self.last, force + carried * self.slope
        self.last, self.slope = np.where(usable, residual, 0.0), np.where(usable, slope, 0.0)
        self.variance, self.broken = np.where(usable, variance, 1.0), ~usable
        self.seconds += usable * dt
        self.cross += usable * residual * slope / variance
        self.information += usable * slope**2 / variance
        done = usable & (self.seconds >= BLOCK_S - 1e-9)
        information = np.maximum(self.information, 1e-12)
        block = Block(self.cross / information, information, done)
        self._clear(done)
        return block
