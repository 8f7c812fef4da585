"""rsl_rl's view of N worlds of a task: torch tensors on the simulator's device, without copies.

Written for the contract of rsl-rl-lib 5 (``rsl_rl.env.VecEnv``: observations are a TensorDict of groups):

    from temporeal.sim.adapters.rsl_rl import make_vec_env
    env = make_vec_env("hover", num_envs=4096)
    OnPolicyRunner(env, settings, device=str(env.device)).learn(100)
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.adapters.worlds import (
    Recipe,
    check_action_tensor,
    check_view,
    close,
    critic_of,
    random_seed,
    recipe,
    reseed,
)
from temporeal.sim.env import Env
from temporeal.sim.types import Obs, Step

LOGGED = ("success", "return", "length")
PACKAGE, OLDEST = "rsl-rl-lib", 5
MISSING = f"temporeal.sim.adapters.rsl_rl needs {PACKAGE} {OLDEST} or newer (pip install '{PACKAGE}>={OLDEST}')"


def check_version(version: str) -> str:
    """``version`` of rsl-rl-lib, if its contract is the one written for here."""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < OLDEST:
        raise ImportError(f"{MISSING}; installed is {version}. Up to 2.x an environment gives (observations, extras) "
                          "instead of groups, 3.x and 4.x were not tried")
    return version


try:
    check_version(metadata.version(PACKAGE))
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict
except (metadata.PackageNotFoundError, ModuleNotFoundError) as error:  # pragma: no cover
    raise ModuleNotFoundError(f"{MISSING}: {error}", name="rsl_rl") from error


class TaskVecEnv(VecEnv):
    """N worlds of a task, stepped at once.

    Observation groups: ``policy`` [N, O], what the deployed policy sees; ``critic`` [N, C], with what only the
    simulator knows; and one for each camera. ``extras["time_outs"]`` [N] bool: the clock ended the episode;
    ``extras["log"]``, where episodes ended: their mean ``/success``, ``/return`` and ``/length``.

    Args:
        env: It is reset here.
        cfg: what rsl_rl's logger stores of the environment.
        recipe: how ``env`` was made: an export needs it.
    """

    def __init__(
        self, env: Env, *, cfg: Mapping[str, Any] | None = None, recipe: Recipe | None = None
    ) -> None:
        check_view(env.task)
        self.worlds, self.recipe = env, recipe
        self.num_envs, self.num_actions = env.num_worlds, env.action_dim
        self.max_episode_length, self.device = env.task.steps, env.device
        self.cfg = dict(cfg or (recipe.described() if recipe else {"task": {"name": env.task.name}}))
        self._ahead = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._staggered = False
        self._obs = env.reset()

    @property
    def unwrapped(self) -> Env:
        """The environment itself."""
        return self.worlds

    @property
    def episode_length_buf(self) -> Tensor:
        """Control steps [N] of the running episodes."""
        return self.worlds.count + self._ahead

    @episode_length_buf.setter
    def episode_length_buf(self, steps: Tensor) -> None:
        """Count the running episodes as ``steps`` [N] old: they end earlier, so that resets do not come together.

        Only their end moves. The mission's clock, which the task's maps may read, does not.
        """
        if tuple(steps.shape) != (self.num_envs,) or bool(((steps < 0) | (steps >= self.max_episode_length)).any()):
            raise ValueError(f"episode_length_buf is [{self.num_envs}], each from 0 to {self.max_episode_length - 1}; "
                             f"got shape {tuple(steps.shape)}, {int(steps.min())} to {int(steps.max())}")
        with torch.inference_mode(False):
            self._ahead = (steps.to(self.device, torch.int64) - self.worlds.count).clamp(min=0)
        self._staggered = True

    def get_observations(self) -> TensorDict:
        """The observations to act on next."""
        return self._groups(self._obs)

    def reset(self) -> tuple[TensorDict, dict[str, Any]]:
        """A new episode in every world."""
        with torch.inference_mode(False):
            self._ahead.zero_()
            self._staggered, self._obs = False, self.worlds.reset()
        return self.get_observations(), {}

    def seed(self, seed: int = -1) -> int:
        """Begin episode 0 of ``seed`` in every world; -1: a random one. Returns the seed."""
        chosen = random_seed() if seed == -1 else seed
        reseed(self.worlds, chosen)
        self.reset()
        return chosen

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards [N], dones [N] bool and extras after ``actions`` [N, A]."""
        check_action_tensor(actions, (self.num_envs, self.num_actions))
        # rsl_rl steps in inference mode; what the simulator keeps must be usable outside it, too
        with torch.inference_mode(False), torch.no_grad():
            step = self.worlds.step(actions)
            time_outs, info, self._obs = step.truncated, step.info, step.obs
            if self._staggered and bool((cut := self._due(step)).any()):
                time_outs = time_outs | cut
                info = {name: step.info[name].clone() for name in LOGGED}  # what follows may overwrite them
                self._obs = self.worlds.begin_next(step.obs, cut.nonzero()[:, 0])
            dones = step.terminated | time_outs
            extras: dict[str, Any] = {"time_outs": time_outs}
            if bool(dones.any()):
                extras["log"] = {f"/{name}": info[name][dones].float().mean() for name in LOGGED}
        return self.get_observations(), step.reward, dones, extras

    def _due(self, step: Step) -> Tensor:
        """Which of the staggered episodes [N] are old enough to be cut after ``step``."""
        over = step.terminated | step.truncated
        cut = ~over & (self._ahead > 0) & (self.episode_length_buf >= self.max_episode_length)
        self._ahead.masked_fill_(over | cut, 0)
        self._staggered = bool((self._ahead > 0).any())
        return cut

    def close(self) -> None:
        """Give the simulator back."""
        close(self.worlds)

    def _groups(self, obs: Obs) -> TensorDict:
        images = getattr(obs, "images", {})
        return TensorDict({"policy": obs.actor, "critic": critic_of(obs), **images}, batch_size=[self.num_envs],
                          device=self.device)


def make_vec_env(
    task: str, *, num_envs: int = 1024, seed: int | None = None, cfg: Mapping[str, Any] | None = None, **settings: Any
) -> TaskVecEnv:
    """``num_envs`` worlds of ``task``; ``settings`` as of `temporeal.sim.adapters.worlds.recipe` (``device="cuda"``
    included)."""
    made = recipe(task, **settings)
    return TaskVecEnv(made.build(num_envs, random_seed() if seed is None else seed), cfg=cfg, recipe=made)
