"""Gymnasium's view of a task: one world as ``gymnasium.Env``, N worlds as ``gymnasium.vector.VectorEnv``.

Importing this module registers ``temporeal/<task>-v0`` for every task of ``sim/tasks``:

    gymnasium.make("temporeal.sim.adapters.gymnasium:temporeal/hover-v0", history=4)
    gymnasium.make_vec("temporeal.sim.adapters.gymnasium:temporeal/hover-v0", num_envs=1024, randomize="default")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError(f"temporeal.sim.adapters.gymnasium needs Gymnasium (pip install gymnasium): {error}",
                              name=error.name) from error

from temporeal.robots.registry import names
from temporeal.sim.adapters.worlds import (
    Recipe,
    check_actions,
    check_observation,
    check_seed,
    check_view,
    close,
    critic_of,
    host,
    outcomes,
    random_seed,
    recipe,
    reseed,
    shown,
)
from temporeal.sim.env import Env
from temporeal.sim.types import Obs, Step

NAMESPACE, VERSION = "temporeal", 0
Draw = Callable[[Env, int], np.ndarray]
"""``draw(env, world)``: a picture of one world now, uint8 [H, W, 3]."""


def single_space(obs: Obs, observation: str) -> spaces.Space[Any]:
    """Space of one world's part of ``obs``: unbounded, because signals have no largest value; images are bytes."""
    seen = shown(obs, observation)
    if isinstance(seen, torch.Tensor):
        return box(seen)
    return spaces.Dict({name: box(value) for name, value in seen.items()})


def box(value: torch.Tensor) -> spaces.Box:
    """Space of one row of ``value`` [N, ...]."""
    if value.dtype == torch.uint8:
        return spaces.Box(0, 255, tuple(value.shape[1:]), np.uint8)
    return spaces.Box(-np.inf, np.inf, tuple(value.shape[1:]), np.float32)


def action_space(env: Env) -> spaces.Box:
    """Actions of one world: the nominal range of the task's action map."""
    return spaces.Box(-1.0, 1.0, (env.action_dim,), np.float32)


class View:
    """What the single and the vector view share: N worlds, what is shown of them, their pictures."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def open(
        self, env: Env, observation: str, signals: Sequence[str], render_mode: str | None, draw: Draw | None,
        recipe: Recipe | None,
    ) -> None:
        """Take ``env`` and reset it: what an observation looks like is read off the first one."""
        check_view(env.task)
        self.worlds, self.recipe, self.observation = env, recipe, check_observation(observation)
        self.signals, self._draw = tuple(signals), draw
        known = env.true_signals()
        if unknown := [name for name in self.signals if name not in known]:
            raise ValueError(f"signals {unknown} are not among those of the task: {', '.join(known)}")
        self._latest = self._next = env.reset()
        self._fresh = True  # `_next` begins an episode that no step has touched
        drawn = draw is not None or self._offered() is not None or self._picture(0) is not None
        self.metadata = {**self.metadata, "render_modes": ["rgb_array"] if drawn else [],
                         "render_fps": round(1 / env.task.control_dt)}
        self._check_render(render_mode)
        self.render_mode = render_mode

    def _check_render(self, mode: str | None) -> None:
        if mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={mode!r}: rgb_array, or leave it out")
        if mode is not None and not self.metadata["render_modes"]:
            raise ValueError("render_mode='rgb_array': this environment has no camera and draws nothing; give "
                             "draw=function(env, world) -> uint8 [H, W, 3], or leave render_mode out")

    def _offered(self) -> Callable[[int], Any] | None:
        offered = getattr(self.worlds, "render", None)
        cameras = isinstance(self.worlds, Env) and "render" not in vars(self.worlds)  # its own gives those pictures
        return offered if callable(offered) and not cameras else None

    def frame(self, world: int) -> np.ndarray:
        """A picture uint8 [H, W, 3] of ``world``."""
        if self._draw is not None:
            return np.asarray(self._draw(self.worlds, world))
        if (offered := self._offered()) is not None:
            return np.asarray(offered(world))
        picture = self._picture(world)
        assert picture is not None  # else render_mode was refused
        return picture

    def _picture(self, world: int) -> np.ndarray | None:
        """The first colour camera's latest image of ``world``."""
        for image in getattr(self._latest, "images", {}).values():
            if image.dtype == torch.uint8:
                return image[world].to("cpu", copy=True).numpy()
        return None

    def restart(self, seed: int | None) -> Obs:
        """First observations after ``reset(seed)``."""
        if seed is not None:
            reseed(self.worlds, seed)
        if seed is not None or not self._fresh:
            self._next = self.worlds.reset()
        self._fresh, self._latest = False, self._next
        return self._next

    def _info(self, obs: Obs, signals: dict[str, Any]) -> dict[str, Any]:
        """Info [N, ...] of every step: the critic's observation (unless it is shown) and the signals asked for."""
        info = {} if self.observation == "dict" else {"critic": host(critic_of(obs))}
        if self.signals:
            info["signals"] = {k: signals[k].to("cpu", copy=True).numpy() for k in self.signals}
        return info


class TaskEnv(View, gymnasium.Env):
    """One world of a task.

    ``reset(seed=s)`` begins episode 0 of world 0 of ``s``, the same as `temporeal.sim.env.make_env(..., seed=s)` shows;
    each
    ``reset()`` after it the next episode. ``info`` holds ``critic`` (the privileged observation, unless it is part of
    the observation), ``signals`` (those asked for, true values) and, at an episode's end, ``is_success``, ``return``,
    ``length`` and ``finite``.

    Args:
        env: with one world. It is reset here.
        observation: ``actor``, or ``dict`` for a dictionary with the privileged observation under ``critic``. With
            cameras it is a dictionary in any case.
        signals: names of true signals to put into ``info["signals"]``.
        draw: a picture of a world, for ``render_mode="rgb_array"``; else the environment's ``render(world)`` or its
            first colour camera.
        recipe: how ``env`` was made: an export needs it.
    """

    def __init__(
        self, env: Env, *, observation: str = "actor", signals: Sequence[str] = (), render_mode: str | None = None,
        draw: Draw | None = None, recipe: Recipe | None = None,
    ) -> None:
        if env.num_worlds != 1:
            raise ValueError(f"a gymnasium.Env is one world, the environment has {env.num_worlds}: use TaskVectorEnv")
        self.open(env, observation, signals, render_mode, draw, recipe)
        self.observation_space, self.action_space = single_space(self._next, observation), action_space(env)
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """First observation and info of a new episode."""
        refuse_options(options)
        gymnasium.Env.reset(self, seed=None if seed is None else check_seed(seed))
        obs = self.restart(seed)
        self._over = False
        return row(host(shown(obs, self.observation))), row(self._info(obs, self.worlds.true_signals()))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One control step with ``action`` [A]."""
        if self._over:
            raise RuntimeError("no episode is running: call reset() before the first step and after an episode's end")
        batch = check_actions(action, (self.worlds.action_dim,))[None]
        step = self.worlds.step(torch.from_numpy(batch))
        self._over = self._fresh = bool(step.terminated[0] | step.truncated[0])
        self._next, self._latest = step.obs, step.final_obs
        info = row(self._info(step.final_obs, step.info["signals"]))  # type: ignore[arg-type]
        if self._over:
            info.update({k: v[0].item() for k, v in outcomes(step.info).items()})
        return (row(host(shown(step.final_obs, self.observation))), float(step.reward[0]), bool(step.terminated[0]),
                bool(step.truncated[0]), info)

    def render(self) -> np.ndarray | None:
        """A picture uint8 [H, W, 3] of the world, None without a render mode."""
        return None if self.render_mode is None else self.frame(0)

    def close(self) -> None:
        """Give the simulator back."""
        close(self.worlds)


class TaskVectorEnv(View, VectorEnv):
    """N worlds of a task, stepped at once.

    A world whose episode ends begins its next one in the same step (``AutoresetMode.SAME_STEP``): the observation is
    the new episode's first, ``infos["final_obs"]`` [N] holds the true successor where ``infos["_final_obs"]`` says so,
    and ``infos["final_info"]`` what :class:`TaskEnv` says at an episode's end. Arguments as there.
    """

    metadata = {**View.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self, env: Env, *, observation: str = "actor", signals: Sequence[str] = (), render_mode: str | None = None,
        draw: Draw | None = None, recipe: Recipe | None = None,
    ) -> None:
        self.open(env, observation, signals, render_mode, draw, recipe)
        self.num_envs = env.num_worlds
        self.single_observation_space = single_space(self._next, observation)
        self.single_action_space = action_space(env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """First observations and infos of a new episode in every world; ``seed`` is one number for all of them."""
        refuse_options(options)
        VectorEnv.reset(self, seed=None if seed is None else check_seed(seed))
        obs = self.restart(seed)
        return host(shown(obs, self.observation)), masked(self._info(obs, self.worlds.true_signals()), self.num_envs)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control step with ``actions`` [N, A]."""
        self._fresh = False
        batch = check_actions(actions, (self.num_envs, self.worlds.action_dim))
        step = self.worlds.step(torch.from_numpy(batch))
        self._latest = step.obs
        terminated, truncated = host(step.terminated), host(step.truncated)
        ended = terminated | truncated
        some = bool(ended.any())
        now = self.worlds.true_signals() if some and self.signals else step.info["signals"]
        infos = masked(self._info(step.obs, now), self.num_envs)  # type: ignore[arg-type]
        if some:
            infos.update(self._final(step, ended))
        return host(shown(step.obs, self.observation)), host(step.reward), terminated, truncated, infos

    def _final(self, step: Step, ended: np.ndarray) -> dict[str, Any]:
        """What Gymnasium says of the worlds that ``ended`` [N]."""
        last = host(shown(step.final_obs, self.observation))
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            final[i] = row(last, int(i))
        told = {**self._info(step.final_obs, step.info["signals"]), **outcomes(step.info)}  # type: ignore[arg-type]
        return {"final_obs": final, "_final_obs": ended.copy(), "final_info": masked(told, self.num_envs, ended),
                "_final_info": ended.copy()}

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of each world, None without a render mode."""
        return None if self.render_mode is None else tuple(self.frame(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Give the simulator back."""
        close(self.worlds)


def row(value: Any, world: int = 0) -> Any:
    """One world's part, a copy where it is cut out of many."""
    if isinstance(value, dict):
        return {k: row(v, world) for k, v in value.items()}
    return value[world] if len(value) == 1 else value[world].copy()


def masked(info: dict[str, Any], num: int, where: np.ndarray | None = None) -> dict[str, Any]:
    """``info`` as Gymnasium's vector environments have it: beside each key, ``_key`` [N] says for which worlds."""
    out: dict[str, Any] = {}
    for key, value in info.items():
        out[key] = masked(value, num, where) if isinstance(value, dict) else value
        out[f"_{key}"] = np.ones(num, dtype=bool) if where is None else where.copy()
    return out


def refuse_options(options: dict[str, Any] | None) -> None:
    """There are none: what an episode begins with is drawn from the seed."""
    if options:
        raise ValueError(f"reset() takes no options, got {sorted(options)}: a world resets itself when its episode "
                         "ends, and starts are set by the task and randomize")


def make_env(
    task: str, *, seed: int | None = None, observation: str = "actor", signals: Sequence[str] = (),
    render_mode: str | None = None, draw: Draw | None = None, **settings: Any,
) -> TaskEnv:
    """One world of ``task`` as a ``gymnasium.Env``; ``settings`` as of `temporeal.sim.adapters.worlds.recipe`.

    ``seed``: of the first episode, where ``reset`` is not given one; None: a random one.
    """
    made = recipe(task, **{"threads": 1, **settings})
    env = made.build(1, random_seed() if seed is None else seed)
    return TaskEnv(env, observation=observation, signals=signals, render_mode=render_mode, draw=draw, recipe=made)


def make_vector_env(
    task: str, *, num_envs: int = 1, num_worlds: int | None = None, seed: int | None = None, observation: str = "actor",
    signals: Sequence[str] = (), render_mode: str | None = None, draw: Draw | None = None, **settings: Any,
) -> TaskVectorEnv:
    """``num_envs`` (or ``num_worlds``, as the rest of the project says) worlds of ``task``; the rest as `make_env`."""
    made = recipe(task, **settings)
    env = made.build(num_envs if num_worlds is None else num_worlds, random_seed() if seed is None else seed)
    return TaskVectorEnv(env, observation=observation, signals=signals, render_mode=render_mode, draw=draw, recipe=made)


def register() -> list[str]:
    """Register every task of ``sim/tasks`` and return the identifiers. Done once, when this module is imported."""
    made = []
    for task in names("temporeal.sim.tasks"):
        made.append(identifier := f"{NAMESPACE}/{task}-v{VERSION}")
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point=f"{__name__}:make_env", kwargs={"task": task},
                               vector_entry_point=f"{__name__}:make_vector_env")
    return made


register()
