"""Analytic policy gradient: a quadrotor policy learned by differentiating through the simulation.

    flight = Flight()                                # hover as in "Learning to Fly in Seconds"
    result = train(flight, APGConfig(), seed=1)      # numpy and numba only: no torch
    actor = result.actor.to_actor()                  # the same function as a torch module

The physics is known and smooth, so the gradient of a cost along a flight is computed, not estimated from samples:

    every world flies ``window`` steps from where the last window left it
    the cost of the window, and what the critic expects after it, is differentiated back through policy and physics
    one Adam step on the actor; the critic is fitted to TD(lambda) returns of the window
    worlds that left the fence or reached the end of their episode start anew

This is the short-horizon actor-critic of Xu et al. (2022, arXiv 2204.07137), with the critic as an option: without it
the gradient ends at the window's end, which a window that is long against the closed loop's time constants can afford.
What flies is a data description, :class:`Flight`: parameters, disturbances, starts, sensor noise, and a reference
trajectory with the weights of the cost (:class:`Cost`), so that hovering and tracking are the same code.

One update is a few thousand world-steps: per-call overhead, not arithmetic, is what costs. Hence numpy's matrix
products with a backward pass written out, between fused simulation kernels
(:mod:`temporeal.sim.physics.quadrotor.flight`).
On small machines set OPENBLAS_NUM_THREADS=1 before numpy is imported: products this small do not share well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import pi
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.robots.crazyflie.spec import GRAVITY, L2F_PARAMETERS
from temporeal.sim.compiler.llvm import LANES
from temporeal.sim.physics.quadrotor import flight as kernels
from temporeal.sim.physics.quadrotor.adjoint import pack_params
from temporeal.sim.physics.quadrotor.dynamics import FORCE_X, N0, PARAM_SIZE, QW, STATE_SIZE, TORQUE_X, VX, WX

if TYPE_CHECKING:
    from torch import nn

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
    """What is flown. The defaults are the hover task of *Learning to Fly in Seconds* (L2F), from its public code.

    Positions are relative to wherever the origin is put: there is no ground.
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
        """Numbers of the policy's observation (order: :mod:`temporeal.sim.physics.quadrotor.flight`)."""
        return kernels.SENSED + 3 * len(self.preview) + 4 * self.history

    @property
    def feature_dim(self) -> int:
        """Numbers that the critic sees."""
        return kernels.SENSED + kernels.HIDDEN + 3 * len(self.preview)

    def objective(self) -> Array:
        """The numbers of the cost and the task in the order of the kernels."""
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


@dataclass(frozen=True)
class APGConfig:
    """Settings of the learner. ``configs/algo/apg.yaml`` has the same names."""

    worlds: int = 64  # simulated in parallel, a multiple of 16
    window: int = 40  # control steps that the gradient goes back
    updates: int = 300
    hidden: tuple[int, ...] = (64, 64)  # tanh layers of the actor
    learning_rate: float = 6e-3  # of Adam, falls linearly ...
    learning_rate_end: float = 0.0  # ... to this
    grad_norm: float = 0.3  # the actor's gradient is scaled down to at most this length
    discount: float = 0.99
    past_gradient: bool = True  # also back through the past actions in the observation
    initial_action: float = 0.35  # bias of the output before its tanh: near hover from the start
    initial_gain: float = 0.1  # factor on the initial weights of the output layer
    critic: bool = False  # a learned value of the window's last state, differentiated like the rest
    critic_hidden: tuple[int, ...] = (64, 64)
    critic_learning_rate: float = 3e-3
    critic_steps: int = 4  # Adam steps on the window's TD(lambda) returns per update
    td_lambda: float = 0.95
    target_rate: float = 0.2  # how far the target network moves to the critic at each update
    leave_cost: float = 20.0  # what leaving the fence costs, as the critic sees it

    def __post_init__(self) -> None:
        if self.worlds < LANES or self.worlds % LANES:
            raise ValueError(f"worlds is {self.worlds}; it must be a multiple of {LANES}")
        for name in ("window", "updates", "critic_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("discount", "td_lambda", "target_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie in [0, 1]")
        for name in ("learning_rate", "critic_learning_rate", "grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be > 0")


# --- networks: tanh layers, written out because a window needs only this much ---------------------------------------


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron: tanh between the layers; ``weights`` [in, out] and ``biases`` are views of ``flat``."""

    flat: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    @staticmethod
    def of(sizes: Sequence[int], flat: Array | None = None) -> Mlp:
        """Layers of these sizes over ``flat``, or over zeros."""
        shapes = list(zip(sizes[:-1], sizes[1:]))
        count = sum((i + 1) * o for i, o in shapes)
        flat = np.zeros(count, np.float32) if flat is None else flat
        if flat.shape != (count,):
            raise ValueError(f"layers {tuple(sizes)} have {count} parameters, got an array of shape {flat.shape}")
        weights, biases, at = [], [], 0
        for i, o in shapes:
            weights.append(flat[at : at + i * o].reshape(i, o))
            biases.append(flat[at + i * o : at + (i + 1) * o])
            at += (i + 1) * o
        return Mlp(flat, tuple(weights), tuple(biases))

    @staticmethod
    def drawn(sizes: Sequence[int], rng: np.random.Generator) -> Mlp:
        """Uniform within +-1/sqrt(inputs), weights and biases."""
        net = Mlp.of(sizes)
        for w, b in zip(net.weights, net.biases):
            bound = 1 / np.sqrt(len(w))
            w[:], b[:] = rng.uniform(-bound, bound, w.shape), rng.uniform(-bound, bound, b.shape)
        return net

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs, hidden units, outputs."""
        return (*(len(w) for w in self.weights), self.weights[-1].shape[1])

    def like(self, flat: Array) -> Mlp:
        """The same layers over other numbers."""
        return Mlp.of(self.sizes, flat)


def forward(net: Mlp, x: Array, hidden: Sequence[Array], out: Array) -> None:
    """Outputs of ``net`` for the rows ``x`` [N, in] into ``out`` [N, out], no final tanh; ``hidden``: the layers."""
    for w, b, h in zip(net.weights, net.biases, (*hidden, out)):
        np.matmul(x, w, out=h)
        h += b
        if h is not out:
            np.tanh(h, out=h)
        x = h


def backward(net: Mlp, slopes: Sequence[Array], deltas: Sequence[Array], columns: int, d_x: Array | None) -> None:
    """From ``deltas[-1]`` (the cotangent of the outputs) those before each hidden tanh, and of the first inputs.

    ``slopes`` are the derivatives 1 - h^2 of the hidden layers; ``d_x`` [N, in] receives its first ``columns``.
    """
    for layer in range(len(slopes), 0, -1):
        np.matmul(deltas[layer], net.weights[layer].T, out=deltas[layer - 1])
        deltas[layer - 1] *= slopes[layer - 1]
    if d_x is not None:
        if columns == d_x.shape[1]:
            np.matmul(deltas[0], net.weights[0].T, out=d_x)
        else:
            d_x[:, :columns] = deltas[0] @ net.weights[0][:columns].T


def weight_gradient(net: Mlp, inputs: Sequence[Array], deltas: Sequence[Array]) -> Array:
    """Gradient of all parameters from the layers' ``inputs`` and ``deltas`` over any leading dimensions."""
    grad = net.like(np.empty_like(net.flat))
    for w, b, x, d in zip(grad.weights, grad.biases, inputs, deltas):
        d = d.reshape(-1, d.shape[-1])
        np.matmul(x.reshape(-1, x.shape[-1]).T, d, out=w)
        np.sum(d, axis=0, out=b)
    return grad.flat


class Adam:
    """Adam (Kingma, Ba 2015) on one flat array, in place."""

    def __init__(self, size: int) -> None:
        self.mean, self.square, self.steps = np.zeros(size, np.float32), np.zeros(size, np.float32), 0

    def step(self, value: Array, grad: Array, rate: float) -> None:
        """Move ``value`` against ``grad``."""
        self.steps += 1
        self.mean += np.float32(0.1) * (grad - self.mean)
        self.square += np.float32(0.001) * (grad * grad - self.square)
        scale = np.float32(rate / (1 - 0.9**self.steps))
        value -= scale * self.mean / (np.sqrt(self.square / np.float32(1 - 0.999**self.steps)) + np.float32(1e-8))


# --- worlds ---------------------------------------------------------------------------------------------------------


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


# --- the learner ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Actor:
    """A learned policy: action = tanh(net(observation)), deterministic."""

    net: Mlp

    def act(self, obs: Array) -> Array:
        """Actions [N, 4] in [-1, 1] for observations [N, O]."""
        hidden = [np.empty((len(obs), h), np.float32) for h in self.net.sizes[1:-1]]
        out = np.empty((len(obs), 4), np.float32)
        forward(self.net, np.asarray(obs, np.float32), hidden, out)
        return np.tanh(out)

    def to_actor(self) -> nn.Sequential:
        """The same function as a torch module."""
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        for w, b in zip(self.net.weights, self.net.biases):
            linear = nn.Linear(*w.shape)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(w.T.copy()))
                linear.bias.copy_(torch.from_numpy(b.copy()))
            layers += [linear, nn.Tanh()]
        return nn.Sequential(*layers)


@dataclass(frozen=True)
class Progress:
    """One update."""

    update: int
    cost: float  # mean over the steps of living worlds
    grad_norm: float  # of the actor, before clipping
    episode_length: float  # mean of the episodes that ended in this window, control steps; nan if none did
    critic_loss: float  # nan without a critic


@dataclass(frozen=True)
class Result:
    """What training gives."""

    actor: Actor
    history: tuple[Progress, ...]


class DivergedError(RuntimeError):
    """The gradient or the cost is not finite."""


def train(
    flight: Flight, config: APGConfig, *, seed: int = 0, on_update: Callable[[Progress, Actor], None] | None = None
) -> Result:
    """Learn to fly ``flight``. The result depends on the arguments only.

    ``on_update`` is called after every update with its figures and the actor as it is (copy what must last).
    """
    rng = np.random.default_rng(seed)
    actor = Mlp.drawn((flight.obs_dim, *config.hidden, 4), rng)
    actor.weights[-1][:] *= config.initial_gain
    actor.biases[-1][:] = config.initial_action
    worlds, optimizer = Worlds(flight, config, rng), Adam(actor.flat.size)
    critic = Critic(flight, config, rng) if config.critic else None
    window = Window(worlds, actor, config)
    log = []
    for update in range(config.updates):
        left = 1 - update / config.updates
        window.fly()
        grad = window.gradient(critic)
        norm = float(np.sqrt(grad @ grad))
        if not np.isfinite(norm):
            raise DivergedError(f"update {update}: the gradient is not finite; lower learning_rate or window")
        rate = config.learning_rate_end + (config.learning_rate - config.learning_rate_end) * left
        optimizer.step(actor.flat, grad * np.float32(min(1.0, config.grad_norm / (norm + 1e-12))), rate)
        loss = critic.fit(worlds, left) if critic else float("nan")
        living = worlds.alive[:-1]
        cost = float((living * worlds.cost).sum() / living.sum())
        worlds.carry()
        length = float(np.mean(worlds.lengths)) if worlds.lengths else float("nan")
        log.append(Progress(update, cost, norm, length, loss))
        if on_update:
            on_update(log[-1], Actor(actor))
    return Result(Actor(actor), tuple(log))


class Window:
    """The actor's forward and backward pass over one window of flight."""

    def __init__(self, worlds: Worlds, actor: Mlp, config: APGConfig) -> None:
        self.worlds, self.actor, self.config = worlds, actor, config
        t, n = config.window, config.worlds
        self.hidden = [np.empty((t, n, h), np.float32) for h in config.hidden]
        self.deltas = [np.empty((t, n, h), np.float32) for h in (*config.hidden, 4)]
        self.d_obs = np.zeros((n, worlds.flight.obs_dim), np.float32)
        self.columns = worlds.flight.obs_dim if config.past_gradient else kernels.SENSED
        self.past = np.zeros((n, 4 * worlds.flight.history), np.float32)
        self.decay = (config.discount ** np.arange(t + 1)).astype(np.float32)[:, None] / np.float32(n * t)

    def fly(self) -> None:
        """Let all worlds fly ``window`` steps with the actor."""

        def act(t: int) -> None:
            action = self.worlds.action[t]
            forward(self.actor, self.worlds.obs[t], [h[t] for h in self.hidden], action)
            np.tanh(action, out=action)

        self.worlds.fly(act, self.worlds.flight.dt)

    def gradient(self, critic: Critic | None) -> Array:
        """Gradient of mean(sum_t discount^t cost[t] + discount^T value(end)) / T by the actor's parameters."""
        w = self.worlds
        weight = self.decay[:-1] * w.alive[:-1]
        slopes = [1 - h * h for h in self.hidden]
        squash = 1 - w.action * w.action
        grads = np.zeros_like(w.states[0])
        if critic:
            d_features = critic.slope(w.features[-1]) * (self.decay[-1] * w.alive[-1])[:, None]
            kernels.features_vjp(w.states[-1], d_features, grads)
        self.d_obs[:] = 0
        self.past[:] = 0
        d_action = np.empty((w.n, 4), np.float32)
        for t in range(w.t - 1, -1, -1):
            kernels.fly_vjp(
                t, w.states, w.params, w.action, np.float32(w.flight.dt), w.objective, w.reference, w.steps, weight,
                w.cost, self.d_obs, self.past, grads, d_action, w.flight.history,
            )  # fmt: skip
            np.multiply(d_action, squash[t], out=self.deltas[-1][t])
            backward(self.actor, [s[t] for s in slopes], [d[t] for d in self.deltas], self.columns, self.d_obs)
        return weight_gradient(self.actor, (w.obs[:-1], *self.hidden), self.deltas)


class Critic:
    """Expected discounted cost to come, from what the simulation knows (:attr:`Worlds.features`)."""

    def __init__(self, flight: Flight, config: APGConfig, rng: np.random.Generator) -> None:
        self.config = config
        self.net = Mlp.drawn((flight.feature_dim, *config.critic_hidden, 1), rng)
        self.target = self.net.like(self.net.flat.copy())
        self.optimizer = Adam(self.net.flat.size)

    def value(self, net: Mlp, features: Array) -> tuple[Array, list[Array]]:
        """Values [K] of the rows ``features`` [K, F], and the hidden layers."""
        hidden = [np.empty((len(features), h), np.float32) for h in self.config.critic_hidden]
        out = np.empty((len(features), 1), np.float32)
        forward(net, features, hidden, out)
        return out[:, 0], hidden

    def back(self, net: Mlp, hidden: list[Array], d_value: Array, d_features: Array | None) -> list[Array]:
        """Deltas of the layers from the cotangent of the values [K]."""
        deltas = [np.empty_like(h) for h in hidden] + [d_value[:, None]]
        columns = 0 if d_features is None else d_features.shape[1]
        backward(net, [1 - h * h for h in hidden], deltas, columns, d_features)
        return deltas

    def slope(self, features: Array) -> Array:
        """Derivative [N, F] of the target network's value with respect to its features [N, F]."""
        _, hidden = self.value(self.target, features)
        out = np.empty_like(features)
        self.back(self.target, hidden, np.ones(len(features), np.float32), out)
        return out

    def returns(self, cost: Array, alive: Array, values: Array) -> Array:
        """TD(lambda) returns [T, N] of ``cost`` [T, N]; ``alive`` and ``values`` [T + 1, N]."""
        c = self.config
        out, follows = np.empty_like(cost), values[-1]
        for t in range(len(cost) - 1, -1, -1):
            ahead = (1 - c.td_lambda) * values[t + 1] + c.td_lambda * follows
            follows = cost[t] + c.discount * np.where(alive[t + 1] > 0, ahead, c.leave_cost)
            out[t] = follows
        return out

    def fit(self, worlds: Worlds, left: float) -> float:
        """Fit the network to the window's returns, move the target network; mean squared error before that."""
        c, features = self.config, worlds.features
        values, _ = self.value(self.target, features.reshape(-1, features.shape[-1]))
        goal = self.returns(worlds.cost, worlds.alive, values.reshape(worlds.alive.shape)).reshape(-1)
        rows, mask = features[:-1].reshape(-1, features.shape[-1]), worlds.alive[:-1].reshape(-1)
        mask = mask / mask.sum()
        loss = float("nan")
        for step in range(c.critic_steps):
            value, hidden = self.value(self.net, rows)
            error = value - goal
            loss = float(mask @ (error * error)) if step == 0 else loss
            grad = weight_gradient(self.net, (rows, *hidden), self.back(self.net, hidden, mask * error, None))
            norm = float(np.sqrt(grad @ grad))
            grad *= np.float32(min(1.0, c.grad_norm / (norm + 1e-12)))
            self.optimizer.step(self.net.flat, grad, c.critic_learning_rate * left)
        self.target.flat[:] += np.float32(c.target_rate) * (self.net.flat - self.target.flat)
        return loss


# --- files and a command of its own: training as a process that never loads torch ------------------------------------


def save(
    path: Path, actor: Actor, settings: Mapping[str, Any], snapshots: Sequence[tuple[int, float, Array]] = ()
) -> None:
    """Write the actor, the ``settings`` of its training, and ``snapshots`` (update, Unix time, parameters): .npz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(
            file, flat=actor.net.flat, sizes=np.array(actor.net.sizes),
            settings=np.array(json.dumps(settings)),
            snapshot_update=np.array([s[0] for s in snapshots]), snapshot_time=np.array([s[1] for s in snapshots]),
            snapshot_flat=np.array([s[2] for s in snapshots], np.float32),
        )  # fmt: skip


def load(path: Path) -> Actor:
    """The actor that :func:`save` wrote."""
    with np.load(path, allow_pickle=False) as data:
        return Actor(Mlp.of([int(s) for s in data["sizes"]], data["flat"].copy()))


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"true or false, not {text!r}")
    return text == "true"


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


READERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _switch, "tuple[int, ...]": _sizes}


def main(argv: Sequence[str] | None = None) -> int:
    """Train the hover task and write the actor."""
    p = argparse.ArgumentParser("python -m temporeal.policies.algos.apg", description="Train L2F's hover task; write actor.npz.")
    p.add_argument("--out", type=Path, required=True, help="file of the actor, .npz")
    p.add_argument("--seed", type=int, default=0, help="of everything random (%(default)s)")
    p.add_argument("--every", type=int, default=0, help="keep the actor of every so many updates (%(default)s: none)")
    for f in fields(APGConfig):
        p.add_argument("--" + f.name.replace("_", "-"), type=READERS[str(f.type)], default=f.default,
                       help="%(default)s")
    options = vars(p.parse_args(argv))
    out, every, seed = options.pop("out"), options.pop("every"), options.pop("seed")
    flight, config, snapshots = Flight(), APGConfig(**options), []

    def keep(progress: Progress, actor: Actor) -> None:
        if every and (progress.update + 1) % every == 0:
            snapshots.append((progress.update + 1, time.time(), actor.net.flat.copy()))

    result = train(flight, config, seed=seed, on_update=keep)
    save(out, result.actor, {"flight": asdict(flight), "config": asdict(config), "seed": seed}, snapshots)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
