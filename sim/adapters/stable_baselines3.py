"""stable-baselines3's view of N worlds of a task.

    from temporeal.sim.adapters.stable_baselines3 import make_vec_env
    env = make_vec_env("hover", n_envs=64, history=4)
    PPO("MlpPolicy", env).learn(1_000_000)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

try:
    import gymnasium
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError("temporeal.sim.adapters.stable_baselines3 needs stable-baselines3 2 (pip install "
                              f"stable-baselines3): {error}", name=error.name) from error

from temporeal.sim.adapters.gymnasium import Draw, View, action_space, row, single_space
from temporeal.sim.adapters.worlds import (
    Recipe,
    check_actions,
    check_seed,
    close,
    host,
    outcomes,
    random_seed,
    recipe,
    shown,
)
from temporeal.sim.env import Env
from temporeal.sim.types import Step

Indices = None | int | Iterable[int]


class TaskVecEnv(View, VecEnv):
    """N worlds of a task, stepped at once.

    A world whose episode ends begins its next one in the same step. Its info then holds ``terminal_observation`` (the
    true successor), ``TimeLimit.truncated`` (the clock ended it: SB3 bootstraps from that successor's value),
    ``episode`` (return ``r``, length ``l``, seconds ``t``, as SB3's ``Monitor`` writes them: no ``VecMonitor`` is
    needed), ``is_success`` and ``finite``; all other infos are empty.

    The worlds are one simulation, not N objects: attributes and methods are of that one, and cannot be set or called
    for a part of the worlds. Arguments as of `temporeal.sim.adapters.gymnasium.TaskEnv`.
    """

    def __init__(
        self, env: Env, *, observation: str = "actor", render_mode: str | None = None, draw: Draw | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.open(env, observation, (), render_mode, draw, recipe)
        metadata = self.metadata
        VecEnv.__init__(self, env.num_worlds, single_space(self._next, observation), action_space(env))
        self.metadata = {**metadata, **self.metadata}
        self._seed: int | None = None
        self._actions: torch.Tensor | None = None
        self._shape, self._started = (env.num_worlds, env.action_dim), time.time()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Key the episodes from the next ``reset`` on by ``seed``: one number, because the world is part of the key."""
        self._seed = random_seed() if seed is None else check_seed(seed)
        return [self._seed] * self.num_envs

    def reset(self) -> Any:
        """First observations of a new episode in every world."""
        if any(self._options):
            raise ValueError("a reset takes no options: starts are set by the task and randomize")
        obs, self._seed = self.restart(self._seed), None
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return host(shown(obs, self.observation))

    def step_async(self, actions: np.ndarray) -> None:
        """Take ``actions`` [N, A]."""
        self._actions = torch.from_numpy(check_actions(actions, self._shape))

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step the worlds: observations, rewards [N], dones [N], infos."""
        if self._actions is None:
            raise RuntimeError("step_wait() without step_async(): there are no actions to step with")
        step, self._actions, self._fresh = self.worlds.step(self._actions), None, False
        self._latest = step.obs
        done = host(step.terminated | step.truncated)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if done.any():
            self._fill(infos, step, np.flatnonzero(done))
        return host(shown(step.obs, self.observation)), host(step.reward), done, infos

    def _fill(self, infos: list[dict[str, Any]], step: Step, ended: np.ndarray) -> None:
        """Fill the infos of the worlds that ``ended``."""
        last, truncated = host(shown(step.final_obs, self.observation)), host(step.truncated)
        info, seconds = outcomes(step.info), round(time.time() - self._started, 6)
        for i in ended:
            values = {k: v[i].item() for k, v in info.items()}
            episode = {"r": values.pop("return"), "l": int(values.pop("length")), "t": seconds}
            infos[i] = {"terminal_observation": row(last, i), "TimeLimit.truncated": bool(truncated[i]),
                        "episode": episode, **values}

    def close(self) -> None:
        """Give the simulator back."""
        close(self.worlds)

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture uint8 [H, W, 3] of each world."""
        return [None if self.render_mode is None else self.frame(i) for i in range(self.num_envs)]

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """The attribute of this view or of the environment, once for each of ``indices``."""
        owner = self if attr_name in self.__dict__ or hasattr(type(self), attr_name) else self.worlds
        if not hasattr(owner, attr_name):
            raise AttributeError(f"neither the view nor temporeal.sim.env.Env has an attribute {attr_name!r}")
        return [getattr(owner, attr_name)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set the attribute for all worlds."""
        self._all(indices, f"set {attr_name!r}")
        setattr(self if attr_name in self.__dict__ or not hasattr(self.worlds, attr_name) else self.worlds,
                attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call the method of this view or of the environment once; its result for each world."""
        self._all(indices, f"call {method_name!r}")
        method = self.get_attr(method_name, 0)[0]
        return [method(*method_args, **method_kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Indices = None) -> list[bool]:
        """Whether the worlds do what the wrapper does: that of ``Monitor`` (``info["episode"]``), and no other's."""
        return [wrapper_class is Monitor] * len(self._chosen(indices))

    def _chosen(self, indices: Indices) -> list[int]:
        chosen = [int(i) for i in self._get_indices(indices)]
        if bad := [i for i in chosen if not -self.num_envs <= i < self.num_envs]:
            raise IndexError(f"there are worlds 0 to {self.num_envs - 1}, not {bad}")
        return chosen

    def _all(self, indices: Indices, what: str) -> None:
        if len(set(self._chosen(indices))) != self.num_envs:
            raise ValueError(f"cannot {what} for some of the worlds: they are one environment; leave indices out")


def make_vec_env(
    task: str, n_envs: int = 1, *, seed: int | None = None, observation: str = "actor", render_mode: str | None = None,
    draw: Draw | None = None, **settings: Any,
) -> TaskVecEnv:
    """``n_envs`` worlds of ``task``; ``settings`` as of `temporeal.sim.adapters.worlds.recipe`; without
    ``seed`` a random one."""
    made = recipe(task, **settings)
    env = made.build(n_envs, random_seed() if seed is None else seed)
    return TaskVecEnv(env, observation=observation, render_mode=render_mode, draw=draw, recipe=made)
