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
What flies is a data description (:mod:`temporeal.policies.training.apg.flight`), so that hovering and tracking are the
same code.

One update is a few thousand world-steps, so per-call overhead dominates. Hence numpy's matrix products with a backward
pass written out, between fused simulation kernels (:mod:`temporeal.sim.physics.quadrotor.flight`). On small machines
set OPENBLAS_NUM_THREADS=1 before numpy is imported: products this small do not share well. """

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.training.apg.flight import Array, Flight
from temporeal.policies.training.apg.networks import Adam, Mlp, backward, forward, weight_gradient
from temporeal.policies.training.apg.worlds import Worlds
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.sim.compiler.llvm import LANES
from temporeal.sim.physics.quadrotor import flight as kernels

if TYPE_CHECKING:
    from torch import nn


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
    """The result of a training."""

    actor: Actor
    history: tuple[Progress, ...]


class DivergedError(RuntimeError):
    """The gradient or the cost is not finite."""


def train(
    flight: Flight, config: APGConfig, *, seed: int = 0, on_update: Callable[[Progress, Actor], None] | None = None
) -> Result:
    """Learn to fly ``flight``. The result depends on the arguments only.

    ``on_update`` is called after every update with its figures and the current actor, which changes later: copy it to
    keep it.
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
    """Expected discounted cost to come, from the simulation's full state (:attr:`Worlds.features`)."""

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
        """Fit the network to the window's returns and move the target network; mean squared error before the fit."""
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
    data = read_npz(path)
    return Actor(Mlp.of([int(s) for s in data["sizes"]], data["flat"]))


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"true or false, not {text!r}")
    return text == "true"


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


READERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _switch, "tuple[int, ...]": _sizes}


def main(argv: Sequence[str] | None = None) -> int:
    """Train the hover task and write the actor."""
    p = argparse.ArgumentParser("python -m temporeal.policies.algos.apg",
                                description="Train L2F's hover task; write actor.npz.")
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
