"""The description of a flight as data: parameters, disturbances, starts, noise, reference and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import pi
from typing import Any

import numpy as np

from temporeal.robots.crazyflie.spec import GRAVITY, L2F_PARAMETERS
from temporeal.sim.physics.quadrotor import flight as kernels

Array = np.ndarray
L2F_WEIGHT = L2F_PARAMETERS["mass"][0] * GRAVITY  # N
HOLD = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Reference row: at the origin, level, at rest."""


@dataclass(frozen=True)
class Cost:
    """Weights of the cost of one control step, of the state after it relative to the reference row.

    cost = position |p - p_ref|^2 + attitude (1 - <q, q_ref>^2) + velocity |v - v_ref|^2 + rate |w - w_ref|^2
    + action |a - hover|^2, at most ``ceiling`` (beyond it the gradient is zero).
    """

    position: float = 5.0  # per m^2
    attitude: float = 2.0  # <q, q_ref> is the cosine of half the angle between them
    velocity: float = 0.05  # per (m/s)^2
    rate: float = 0.002  # per (rad/s)^2
    action: float = 0.05  # actions are in [-1, 1]
    hover: float = 0.334  # action at which L2F's quadrotor hovers
    ceiling: float = 20.0


@dataclass(frozen=True)
class Flight:
    """Description of a flight. The defaults are the hover task of *Learning to Fly in Seconds* (L2F), from its public
    code.

    Positions are relative to the origin, wherever it is: there is no ground.
    """

    params: Mapping[str, Any] = field(default_factory=lambda: dict(L2F_PARAMETERS))  # by the backend's names
    spread: Mapping[str, float] = field(default_factory=dict)  # relative half-width of each episode's uniform draw
    dt: float = 0.01  # s, control step
    episode_steps: int = 500
    fence: float = 0.6  # m, an episode ends when a coordinate of p - p_ref goes beyond
    reference: tuple[tuple[float, ...], ...] = (HOLD,)  # rows: p (3), q wxyz (4), v (3), w (3), one per control step
    cyclic: bool = False  # after the last row: the first, and episodes begin anywhere; otherwise the last for ever
    preview: tuple[int, ...] = ()  # control steps ahead of which the policy sees the reference position
    history: int = 32  # past actions in the observation (the rotor speeds are hidden from the policy)
    noise_position: float = 0.001  # m, standard deviation
    noise_rotation: float = 0.001  # of each entry of the rotation matrix
    noise_velocity: float = 0.002  # m/s
    noise_rate: float = 0.002  # rad/s
    force_std: float = L2F_WEIGHT / 20  # N per axis, constant over an episode
    torque_std: float = L2F_WEIGHT / 10000  # N m per axis, constant over an episode
    guidance: float = 0.1  # probability of a start on the reference
    start_position: float = 0.2  # m, uniform within +- about the reference
    start_angle: float = pi / 2  # rad, rotations uniform on SO(3) up to this angle
    start_velocity: float = 1.0  # m/s
    start_rate: float = 1.0  # rad/s
    start_rotor: float = 0.5  # normalized rotor speed; the past actions are those that hold it
    cost: Cost = Cost()

    def __post_init__(self) -> None:
        rows = np.asarray(self.reference, np.float64)
        if rows.ndim != 2 or rows.shape[1] != kernels.REFERENCE or not len(rows):
            raise ValueError(f"reference has shape {rows.shape}, not [steps, {kernels.REFERENCE}] (p, q wxyz, v, w)")
        if not np.isfinite(rows).all() or np.abs(np.linalg.norm(rows[:, 3:7], axis=1) - 1).max() > 1e-3:
            raise ValueError("reference: every number must be finite and every quaternion of unit length")
        for name, least in (("episode_steps", 1), ("history", 0), ("fence", 1e-6), ("force_std", 0), ("torque_std", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if any(ahead < 1 for ahead in self.preview):
            raise ValueError(f"preview is {self.preview}; every entry must be at least 1 control step")
        if not 0 < self.start_angle <= pi:
            raise ValueError(f"start_angle is {self.start_angle} rad; it must lie in (0, pi]")

    @property
    def obs_dim(self) -> int:
        """Size of the policy's observation (order: :mod:`temporeal.sim.physics.quadrotor.flight`)."""
        return kernels.SENSED + 3 * len(self.preview) + 4 * self.history

    @property
    def feature_dim(self) -> int:
        """Size of the critic's input."""
        return kernels.SENSED + kernels.HIDDEN + 3 * len(self.preview)

    def objective(self) -> Array:
        """Parameters of cost and task in the order of the kernels."""
        c = self.cost
        out = [c.position, c.attitude, c.velocity, c.rate, c.action, c.hover, c.ceiling, self.fence, float(self.cyclic)]
        scales = [1 / s if s else 0.0 for s in (self.force_std, self.torque_std)]
        return np.array(out + scales, np.float32)


def flat_reference(positions: Array, dt: float, *, cyclic: bool = False) -> tuple[tuple[float, ...], ...]:
    """Reference rows along ``positions`` [L, 3] m, one per control step of ``dt`` s, heading along world x.

    A quadrotor's attitude follows from its acceleration (differential flatness, Mellinger and Kumar 2011): body z
    points along acceleration plus gravity; velocity, acceleration and body rates are central differences.
    """
    p = np.asarray(positions, np.float64)
    if p.ndim != 2 or p.shape[1] != 3 or len(p) < 3:
        raise ValueError(f"positions have shape {p.shape}, expected [L, 3] with at least 3 rows")

    def slope(x: Array) -> Array:
        return (np.roll(x, -1, 0) - np.roll(x, 1, 0)) / (2 * dt) if cyclic else np.gradient(x, dt, axis=0)

    velocity = slope(p)
    z = slope(velocity) + np.array([0.0, 0.0, GRAVITY])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    y = np.cross(z, [1.0, 0.0, 0.0])
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    turn = np.stack([np.cross(y, z), y, z], -1)  # [L, 3, 3] body -> world
    spin = np.swapaxes(turn, 1, 2) @ slope(turn)  # skew matrix of the body rates
    rates = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], -1)
    rows = np.concatenate([p, _quaternions(turn), velocity, rates], 1)
    return tuple(tuple(row) for row in rows.tolist())


def _quaternions(turn: Array) -> Array:
    """Unit quaternions wxyz [L, 4] of rotations ``turn`` [L, 3, 3] by less than half a turn."""
    w = 0.5 * np.sqrt(np.maximum(1 + np.trace(turn, axis1=1, axis2=2), 1e-12))
    skew = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], -1)
    q = np.concatenate([w[:, None], skew / (4 * w[:, None])], 1)
    return q / np.linalg.norm(q, axis=1, keepdims=True)
