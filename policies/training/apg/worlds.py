"""The worlds of one window of flight, and their starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from temporeal.policies.training.apg.flight import Array, Flight
from temporeal.sim.compiler.llvm import LANES
from temporeal.sim.physics.quadrotor import flight as kernels
from temporeal.sim.physics.quadrotor.adjoint import pack_params
from temporeal.sim.physics.quadrotor.dynamics import FORCE_X, N0, PARAM_SIZE, QW, STATE_SIZE, TORQUE_X, VX, WX

if TYPE_CHECKING:
    from temporeal.policies.algos.apg import APGConfig


class Worlds:
    """States, parameters and observations of all worlds over one window [T + 1, N, ...]."""

    def __init__(self, flight: Flight, config: APGConfig, rng: np.random.Generator) -> None:
        n, t, blocks = config.worlds, config.window, config.worlds // LANES
        self.flight, self.rng, self.n, self.t = flight, rng, n, t
        self.objective = flight.objective()
        self.reference = np.ascontiguousarray(flight.reference, np.float32)
        self.preview = np.array(flight.preview, np.int64)
        self.states = np.zeros((t + 1, blocks * STATE_SIZE * LANES), np.float32)
        self.params = np.zeros(blocks * PARAM_SIZE * LANES, np.float32)
        self.obs = np.zeros((t + 1, n, flight.obs_dim), np.float32)
        self.features = np.zeros((t + 1, n, flight.feature_dim), np.float32)
        self.action = np.zeros((t, n, 4), np.float32)
        self.cost = np.zeros((t, n), np.float32)
        self.alive = np.ones((t + 1, n), np.float32)
        self.steps = np.zeros(n, np.int64)  # of the reference, at the window's first step
        self.count = np.zeros(n, np.int64)  # of the episode, at the window's first step
        self.lengths: list[int] = []  # of the episodes that ended in the last window
        std = (flight.noise_position, flight.noise_rotation, flight.noise_velocity, flight.noise_rate)
        self.std = np.repeat(np.array(std, np.float32), (3, 9, 3, 3))
        self.restart(np.arange(n))

    def restart(self, ids: Array) -> None:
        """New episodes in the worlds ``ids`` [K], at the beginning of the window."""
        flight, rng, k = self.flight, self.rng, len(ids)
        params = {
            name: np.asarray(value) * (1 + flight.spread.get(name, 0.0) * rng.uniform(-1, 1, (k, np.size(value))))
            for name, value in flight.params.items()
        }
        packed = pack_params(params, k)
        packed[:, FORCE_X : FORCE_X + 3] = rng.normal(0, 1, (k, 3)) * flight.force_std
        packed[:, TORQUE_X : TORQUE_X + 3] = rng.normal(0, 1, (k, 3)) * flight.torque_std
        length = len(self.reference)
        self.steps[ids] = rng.integers(0, length, k) if flight.cyclic else 0
        self.count[ids] = 0
        row = self.reference[self.steps[ids]]
        off = (rng.uniform(size=k) >= flight.guidance)[:, None]
        state = np.empty((k, STATE_SIZE), np.float32)
        state[:, :3] = row[:, :3] + off * rng.uniform(-1, 1, (k, 3)) * flight.start_position
        state[:, QW : QW + 4] = np.where(off, rotations(rng, k, flight.start_angle), row[:, 3:7])
        state[:, VX : VX + 3] = row[:, 7:10] + off * rng.uniform(-1, 1, (k, 3)) * flight.start_velocity
        state[:, WX : WX + 3] = row[:, 10:] + off * rng.uniform(-1, 1, (k, 3)) * flight.start_rate
        state[:, N0:] = flight.start_rotor
        block, lane = ids // LANES, ids % LANES
        self.states[0].reshape(-1, STATE_SIZE, LANES)[block, :, lane] = state
        self.params.reshape(-1, PARAM_SIZE, LANES)[block, :, lane] = packed
        self.obs[0, ids, self.flight.obs_dim - 4 * flight.history :] = 2 * flight.start_rotor - 1

    def fly(self, act: Callable[[int], None], dt: float) -> None:
        """One window: ``act(t)`` fills ``action[t]`` from ``obs[t]``."""
        noise = self.rng.standard_normal((self.t + 1, self.n, kernels.SENSED), np.float32) * self.std
        self.alive[0] = 1.0
        common = (self.objective, self.reference, self.steps, self.preview)
        kernels.observe(self.states[0], self.params, *common, noise[0], self.obs[0], self.features[0])
        for t in range(self.t):
            act(t)
            kernels.fly(
                t, self.states, self.params, self.action, np.float32(dt), *common, noise, self.obs, self.features,
                self.cost, self.alive, self.flight.history,
            )  # fmt: skip

    def carry(self) -> None:
        """The window's end becomes the beginning of the next; episodes that ended start anew."""
        self.states[0], self.obs[0] = self.states[-1], self.obs[-1]
        lengths = self.count + self.alive[:-1].sum(0).astype(np.int64)
        self.steps += self.t
        self.count += self.t
        over = (self.alive[-1] == 0) | (self.count >= self.flight.episode_steps)
        self.lengths = np.minimum(lengths[over], self.flight.episode_steps).tolist()
        if over.any():
            self.restart(np.flatnonzero(over))


def rotations(rng: np.random.Generator, count: int, largest: float) -> Array:
    """Quaternions [count, 4] uniform on SO(3) among the rotations by at most ``largest`` [rad].

    Uniform rotations have uniform axes and angles of density (1 - cos(angle)) / pi; the angle is drawn by
    inverting its distribution function angle - sin(angle) on a table.
    """
    table = np.linspace(0, largest, 1025)
    mass = table - np.sin(table)
    angle = np.interp(rng.uniform(0, mass[-1], count), mass, table)[:, None]
    axis = rng.normal(size=(count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    return np.concatenate([np.cos(angle / 2), np.sin(angle / 2) * axis], 1)
