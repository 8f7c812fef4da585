"""A quadrotor of round numbers, and streams of it that are made by hand."""

from __future__ import annotations

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.thrust import NOMINAL, Array

G = 9.81
DT = 0.02


def spec(**changes: object) -> DriftSpec:
    """One kilogram, four rotors of 10 n^2 newtons: it hovers at n^2 = 0.24525; no delay, no drag."""
    given = {"source": "by hand", "mass": 1.0, "thrust_curve": (0.0, 0.0, 10.0), "believed_curve": (0.0, 0.0, 10.0),
             "tau_up": (0.1, 0.1, 0.1), "tau_down": (0.1, 0.1, 0.1), "delay": (0.0, 0.0, 0.0), "drag": (0.0, 0.0, 0.0),
             "ratio": (0.9, 1.0, 1.1), "noise": 0.02}
    return DriftSpec(**{**given, **changes})  # type: ignore[arg-type]


def hover(count: int, force: float = G) -> Array:
    """Predicted integrals [3, N] over an interval of ``force`` over mass, the same on all tracks."""
    return np.full((3, count), force * DT)


def velocities(share: Array, steps: int, noise: float, density: float, rng: np.random.Generator) -> Array:
    """Measured velocities [T + 1, N, 3] of level robots whose thrust per mass is g (1 + share) [T, N] where g was
    predicted: true steps with white accelerations of this density, and noise on what is measured."""
    count = share.shape[1]
    step = G * share * DT + rng.normal(0.0, np.sqrt(density * DT), (steps, count))
    true = np.concatenate([np.zeros((1, count)), np.cumsum(step, axis=0)])
    out = rng.normal(0.0, noise, (steps + 1, count, 3))
    out[..., 2] += true
    return out


def level(count: int) -> Array:
    """The body's z axis, upright."""
    return np.tile([0.0, 0.0, 1.0], (count, 1))


__all__ = ["DT", "G", "NOMINAL", "hover", "level", "spec", "velocities"]
