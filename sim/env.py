"""The one vectorized environment: task, backend, sensors and randomization in the one step loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robots.registry import UnknownName, names, resolve
from sim.maps import initial_memory
from sim.random import stream, uniform
from sim.randomize import draw_parameters, parse_randomization
from sim.sensors import SensorConfig, Sensors
from sim.task import Task
from sim.types import Backend, Obs, Step


class Env:
    """N worlds of one task on one backend (``sim.types.VecEnv``).

    Everything random is keyed by (seed, world, episode), so that world i sees the same episodes whatever N is.
    The signals before a reset are in ``step.info``: ``info["signals"]`` are the true signals [N, ...] of the step
    just made, ``info["success"]``, ``info["length"]`` and ``info["return"]`` are valid where an episode ended.
    """

    def __init__(
        self, task: Task, backend: Backend, *, seed: int = 0, randomize: Mapping[str, Any] | None = None,
        sensors: Mapping[str, Any] | None = None, explore: float = 0.0,
    ) -> None:
        if not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore is the share of episodes that start mid-mission, 0 to 1; got {explore}")
        if explore and task.explore is None:
            raise ValueError(f"task {task.name!r} has no mid-mission starts: explore must be 0, got {explore}")
        self.task, self.backend, self.seed, self.explore = task, backend, seed, explore
        self.num_worlds, self.device = backend.num_worlds, backend.device
        self.randomization = parse_randomization(randomize, task.robot)
        names = tuple(task.observe.signals)
        config = SensorConfig.parse(sensors, tuple(task.robot.signals))
        self.sensors = Sensors(config, names, self.num_worlds, seed, self.device)
        self.observe, self.act = task.observe.to(self.device), task.act.to(self.device)
        self.objective = task.objective
        self.worlds = torch.arange(self.num_worlds, device=self.device)
        self.action_dim = len(task.robot.command(task.command).low)
        self.obs_dim = task.observe.obs_dim
        self.critic_dim = self.obs_dim + task.objective.privileged_dim
        self._clear()

    def _clear(self) -> None:
        n, device = self.num_worlds, self.device
        self.episode = torch.full((n,), -1, dtype=torch.int64, device=device)
        self.count = torch.zeros(n, dtype=torch.int64, device=device)
        self.episode_return = torch.zeros(n, device=device)
        self.memory = initial_memory(self.observe, n, device)
        self.progress = {k: torch.zeros(n, *s, device=device) for k, s in self.objective.memory.items()}
        self.starts: dict[str, dict[str, Tensor]] = {"params": {}, "state": {}, "memory": {}}
        self.ready = torch.zeros(n, dtype=torch.bool, device=device)

    def true_signals(self) -> dict[str, Tensor]:
        """The true signals now, [N, ...], with ``mission_time``."""
        return {**self.backend.signals(), "mission_time": self.count * self.task.control_dt}

    @torch.no_grad()
    def reset(self) -> Obs:
        """A new episode in every world. The first call starts at episode 0."""
        self._begin(self.worlds)
        self.truth = self.true_signals()
        return self._enter(self.worlds)

    def _begin(self, ids: Tensor) -> None:
        """Set a new episode for the worlds ``ids``.

        Starts are drawn ahead, for all worlds that have used theirs, as soon as one is missing: a step resets few
        worlds, and drawing for few costs as much as for all. They are keyed by episode, so when does not matter.
        """
        if not bool(self.ready[ids].all()):
            self._draw_starts((~self.ready).nonzero()[:, 0])
        self.ready[ids] = False
        self.episode[ids] += 1
        self.episode_return[ids] = 0.0
        start = {group: {k: v[ids] for k, v in table.items()} for group, table in self.starts.items()}
        if start["params"]:
            self.backend.set_params(ids, start["params"])
        for table in (self.memory, self.progress):
            for name, value in table.items():
                value[ids] = start["memory"][name] if name in start["memory"] else 0.0
        self.count[ids] = start["memory"]["tick"].long() if "tick" in start["memory"] else 0
        self.backend.reset(ids, start["state"])

    def _draw_starts(self, ids: Tensor) -> None:
        """Parameters, state and memory of the next episode of the worlds ``ids``."""
        episode = self.episode[ids] + 1

        def draw(name: str, count: int) -> Tensor:
            return uniform(self.seed, ids, episode, stream(name), count)

        params = draw_parameters(self.task.robot, self.randomization, self.seed, ids, episode)
        state, memory = self.task.initial(draw), dict[str, Tensor]()
        if self.explore and self.task.explore is not None:
            midway, memory = self.task.explore(draw)
            chosen = draw("explore", 1)[:, 0] < self.explore
            memory = {k: torch.where(_column(chosen, v), v, torch.zeros_like(v)) for k, v in memory.items()}
            state = {k: torch.where(_column(chosen, v), midway[k], v) for k, v in state.items()}
        for group, table in (("params", params), ("state", state), ("memory", memory)):
            for name, value in table.items():
                if name not in self.starts[group]:
                    self.starts[group][name] = value.new_zeros(self.num_worlds, *value.shape[1:])
                self.starts[group][name][ids] = value
        self.ready[ids] = True

    def _enter(self, ids: Tensor) -> Obs:
        """First observation [K, ...] of the worlds ``ids``, whose new state is in ``self.truth``."""
        self.sensors.reset(ids, self.episode[ids], self.truth)
        rows = {k: v[ids] for k, v in self.truth.items()}
        started = self.objective.start(rows, {k: v[ids] for k, v in self.progress.items()})
        for name, value in started.items():
            self.progress[name][ids] = value
        measured = self.sensors.measure(self.truth, self.episode, self.count, ids)
        obs, after = self.observe(measured, {k: v[ids] for k, v in self.memory.items()})
        for name, value in after.items():
            self.memory[name][ids] = value
        return Obs(obs, torch.cat([obs, self.objective.privileged(rows, started)], -1))

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        """One control step with ``action`` [N, A]."""
        action = action.clamp(-1.0, 1.0)
        self.memory.update(self.observe.record(self.memory, action))
        self.backend.step(self.act(action), self.task.substeps)
        self.count += 1
        truth = self.true_signals()
        # a sum is finite exactly where every term is (float32 sums of physical values do not overflow)
        finite = torch.isfinite(torch.cat([v.reshape(self.num_worlds, -1) for v in truth.values()], -1).sum(-1))
        if not finite.all():  # a world that blew up ends here, counted; it must not poison the others
            truth = {k: torch.nan_to_num(v, nan=0.0, posinf=0.0, neginf=0.0) for k, v in truth.items()}
        self.truth = truth
        reward, terminated, self.progress = self.objective.step(truth, action, self.progress)
        terminated = terminated | ~finite
        reward = torch.where(finite, reward, torch.zeros_like(reward))
        truncated = (self.count >= self.task.steps) & ~terminated
        self.sensors.push(truth)
        measured = self.sensors.measure(truth, self.episode, self.count)
        actor, self.memory = self.observe(measured, self.memory)
        final = Obs(actor, torch.cat([actor, self.objective.privileged(truth, self.progress)], -1))
        self.episode_return += reward
        if bool((terminated | truncated).any()):  # the backend's tensors: the resets below would overwrite them
            truth = {k: v.clone() for k, v in truth.items()}
        info = {
            "signals": truth, "success": self.objective.success(truth, self.progress) & ~terminated,
            "length": self.count.clone(), "return": self.episode_return.clone(), "finite": finite,
        }
        return Step(self._renew(terminated | truncated, final), reward, terminated, truncated, final, info)

    def _renew(self, done: Tensor, final: Obs) -> Obs:
        """Start new episodes where ``done``; the observation to act on next."""
        ids = done.nonzero()[:, 0]
        if not len(ids):
            return final
        self._begin(ids)
        self.truth = self.true_signals()
        first = self._enter(ids)
        obs = Obs(final.actor.clone(), final.critic.clone())
        obs.actor[ids], obs.critic[ids] = first.actor, first.critic
        return obs

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""
        return {
            "backend": self.backend.state(), "sensors": self.sensors.state_dict(),
            "episode": self.episode.clone(), "count": self.count.clone(), "return": self.episode_return.clone(),
            "memory": {k: v.clone() for k, v in self.memory.items()},
            "progress": {k: v.clone() for k, v in self.progress.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.backend.set_state(state["backend"])
        self.sensors.load_state_dict(state["sensors"])
        self.episode, self.count = state["episode"].clone(), state["count"].clone()
        self.episode_return = state["return"].clone()
        self.memory = {k: v.clone() for k, v in state["memory"].items()}
        self.progress = {k: v.clone() for k, v in state["progress"].items()}
        self.ready[:] = False  # starts drawn ahead are those of other episodes; they are drawn again
        self.truth = self.true_signals()


def _column(flags: Tensor, like: Tensor) -> Tensor:
    """``flags`` [K] so that it broadcasts against ``like`` [K, ...]."""
    return flags.reshape(-1, *[1] * (like.dim() - 1))


def backend_names() -> list[str]:
    """The modules of ``sim/backends`` that make one: those with a ``make`` function (found without importing them)."""
    folder = Path(__file__).parent / "backends"
    return [name for name in names("sim.backends") if "\ndef make(" in (folder / f"{name}.py").read_text()]


def make_env(
    task: Task, *, backend: str = "quadrotor", num_worlds: int = 1024, seed: int = 0, device: str = "cpu",
    randomize: Mapping[str, Any] | None = None, sensors: Mapping[str, Any] | None = None, threads: int = 0,
    explore: float = 0.0,
) -> Env:
    """The environment of ``task`` on the backend module ``sim/backends/<backend>.py``.

    ``explore``: share of episodes that start in the middle of the mission; for training, where it is faster.
    """
    if num_worlds < 1:
        raise ValueError(f"num_worlds is at least 1, got {num_worlds}")
    if backend not in backend_names():
        raise UnknownName(f"no backend {backend!r}; known: {', '.join(backend_names())}")
    built = resolve("sim.backends", backend).make(
        task.robot, num_worlds, task.command, dt=task.control_dt / task.substeps, device=device, seed=seed,
        threads=threads)
    return Env(task, built, seed=seed, randomize=randomize, sensors=sensors, explore=explore)
