"""Run a policy, deterministically, over one fresh episode in each world, and keep what the formula is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.training.acting import Act
from temporeal.sim.types import Obs, Step

if TYPE_CHECKING:
    from temporeal.sim.task import Task


class RolloutEnv(Protocol):
    """The part of `temporeal.sim.env.Env` that a rollout uses."""

    task: Task
    num_worlds: int

    @property
    def seed(self) -> int:
        """The seed of its worlds."""

    def reset(self) -> Obs:
        """A new episode in every world."""

    def step(self, action: Tensor) -> Step:
        """One control step; ``info["signals"]`` are the true signals of the step just made, before any reset."""

    def true_signals(self) -> Mapping[str, Tensor]:
        """The true signals now."""


@dataclass(frozen=True)
class Rollout:
    """E episodes. Sample k is the state at time ``k * dt``; after an episode's end its last sample is repeated.

    Args:
        signals: name -> float32 [T+1, E, ...], true values (not what the sensors measured).
        actions: float32 [T, E, A], in [-1, 1]; zero after an episode's end.
        lengths: int64 [E], samples that an episode really has (at least 1, at most T+1).
        terminated: bool [E], ended by the task's termination (a crash, a left fence), or a recorded flight by its
            guard, and not by the clock.
        finite: bool [E], no sample had a value that is not a number.
        dt: control period, s.
        ended_s: float [E], when it was that those ended, s; None: with their last sample.
        commands: float32 [T, E, U], what the robot was told, in the command's units; NaN or None where unknown.
    """

    signals: Mapping[str, np.ndarray]
    actions: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    finite: np.ndarray
    dt: float
    seed: int = 0
    ended_s: np.ndarray | None = None
    commands: np.ndarray | None = None

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.lengths)


@torch.no_grad()
def rollout(
    env: RolloutEnv, policy: Act, *, keep: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rollout:
    """One episode of every world: build ``env`` with as many worlds as episodes are wanted, and a fresh seed.

    ``keep`` names the signals to store; by default all that a formula of the task may name. ``progress(done, of)`` is
    called after each control step. Worlds whose episode is over go on with a new one until the last world is done;
    nothing of that is kept.
    """
    names = tuple(keep) if keep is not None else tuple(env.task.schema)
    steps, worlds = env.task.steps, env.num_worlds
    obs = env.reset()
    trace = {name: [host(value)] for name, value in pick(env.true_signals(), names).items()}
    alive, finite = np.ones(worlds, bool), np.ones(worlds, bool)
    terminated, lengths = np.zeros(worlds, bool), np.ones(worlds, np.int64)
    actions, commands = [], list[np.ndarray]()
    for k in range(steps):
        action = policy(obs.actor).clamp(-1.0, 1.0)
        step = env.step(action)
        obs, info = step.obs, cast("Mapping[str, Any]", step.info)
        actions.append(np.where(alive[:, None], host(action), np.float32(0)))
        if (command := getattr(env, "command", None)) is not None:
            commands.append(host(command))
        for name, value in pick(info["signals"], names).items():
            trace[name].append(np.where(column(alive, value.dim()), host(value), trace[name][-1]))
        lengths += alive
        terminated |= alive & host(step.terminated)
        finite &= ~alive | host(info["finite"])
        alive &= ~host(step.terminated | step.truncated)
        if progress is not None:
            progress(k + 1, steps)
        if not alive.any():
            break
    return Rollout({name: np.stack(values) for name, values in trace.items()}, np.stack(actions), lengths, terminated,
                   finite, env.task.control_dt, env.seed, commands=np.stack(commands) if commands else None)


def from_flights(
    flights: Sequence[Mapping[str, np.ndarray]], dt: float, commands: Sequence[np.ndarray | None] = (), seed: int = 0
) -> Rollout:
    """Recorded flights as episodes: each a mapping name -> [T_i, ...] sampled every ``dt`` s from mission start.

    Flights may differ in length. Actions are unknown, so effort is NaN. ``commands``: of each flight, [T_i, U], None
    where they are unknown.
    """
    lengths = [{len(values) for values in flight.values()} for flight in flights]
    bad = [i for i, found in enumerate(lengths) if len(found) != 1 or 0 in found]
    if bad or not flights:
        raise ValueError(f"every flight has signals of one length, at least one sample; not so in flights {bad}")
    count = np.array([found.pop() for found in lengths], dtype=np.int64)
    names = set(flights[0]).intersection(*flights)
    signals = {name: np.stack([held(np.asarray(f[name], np.float32), int(count.max())) for f in flights], axis=1)
               for name in sorted(names)}
    actions = np.full((int(count.max()) - 1, len(flights), 1), np.nan, np.float32)
    return Rollout(signals, actions, count, np.zeros(len(flights), bool), np.ones(len(flights), bool), dt, seed,
                   commands=together(commands, int(count.max())))


def together(commands: Sequence[np.ndarray | None], samples: int) -> np.ndarray | None:
    """The flights' commands as [samples, E, U], NaN where they are unknown; None where all are, or they differ."""
    known = [each for each in commands if each is not None]
    if len({each.shape[1] for each in known}) != 1:
        return None
    unknown = np.full((1, known[0].shape[1]), np.nan, np.float32)
    return np.stack([held(unknown if each is None else each[:samples], samples) for each in commands], axis=1)


def held(values: np.ndarray, samples: int) -> np.ndarray:
    """``values`` [T, ...] continued with its last sample to ``samples``."""
    return np.concatenate([values, np.repeat(values[-1:], samples - len(values), axis=0)])


def resample(times: np.ndarray, values: np.ndarray, dt: float, duration_s: float) -> np.ndarray:
    """A signal received at ``times`` [M] s (sorted), as known at 0, dt, 2 dt, ...: [T, ...].

    The value at an instant is the newest one received by then, as a controller would have it; before the first one, the
    first. The samples end with the last one received, or after ``duration_s``.
    """
    end = min(duration_s, float(times[-1]))
    wanted = dt * np.arange(int(end / dt + 1e-6) + 1)
    newest = np.searchsorted(times, wanted + 1e-9, side="right") - 1
    return np.asarray(values)[np.maximum(newest, 0)]


def pick(signals: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """The named signals; a missing name lists the existing ones."""
    missing = [name for name in names if name not in signals]
    if missing:
        raise ValueError(f"no signals {missing}; the environment has: {', '.join(signals)}")
    return {name: signals[name] for name in names}


def host(value: Tensor) -> np.ndarray:
    """A copy as a numpy array: the simulator may reuse the memory."""
    array: np.ndarray = value.detach().cpu().numpy().copy()
    return array


def column(flags: np.ndarray, dim: int) -> np.ndarray:
    """``flags`` [E] so that it broadcasts against [E, ...] of ``dim`` dimensions."""
    return flags.reshape(-1, *[1] * (dim - 1))
