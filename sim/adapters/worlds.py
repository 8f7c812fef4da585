"""What the adapters share: recipes of environments, seeds, and which part of an observation a learner gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from temporeal.sim.backend_factory import backend_for
from temporeal.sim.env import Env, make_env
from temporeal.sim.env_config import EnvConfig
from temporeal.sim.task import Task, load_task
from temporeal.sim.types import Obs

OBSERVATIONS = ("actor", "dict")
"""``actor``: what the deployed policy sees. ``dict``: also, under ``critic``, what only the simulator knows."""
OPTIONS = tuple(name for name in (*(make_env.__kwdefaults__ or {}), *(f.name for f in fields(EnvConfig)))
                if name not in ("num_worlds", "seed"))
"""Keywords of `temporeal.sim.env.make_env`; every other keyword of :func:`recipe` is a setting of the task."""
AUTO = "auto"
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Recipe:
    """How to make an environment, again and again: for training, for evaluation, for an artifact's golden trace.

    Args:
        task: name of a module of ``sim/tasks``.
        settings: of the task, keywords of its ``make``.
        options: of `temporeal.sim.env.make_env`.
    """

    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Task:
        """A new task: its maps are modules, which no two environments should share."""
        return load_task(self.task, **self.settings)

    def build(self, num_worlds: int, seed: int = 0, **replaced: Any) -> Env:
        """A new environment; ``replaced`` are options that differ from the recipe's."""
        check_count(num_worlds)
        task = self.load()
        options = {"backend": default_backend(task), **self.options, **replaced}
        return make_env(task, num_worlds=num_worlds, seed=check_seed(seed), **options)

    def described(self) -> dict[str, Any]:
        """As the command line writes settings: what ``temporeal eval`` needs to judge an artifact."""
        o = self.options
        return {
            "task": {"name": self.task, "settings": dict(self.settings),
                     "mid_episode_starts": o.get("mid_episode_starts", 0.0)},
            "backend": {"name": o.get("backend") or default_backend(self.load()), **dict(o.get("options") or {})},
            "randomize": {"name": "given", "parameters": dict(o.get("randomize") or {}),
                          "sensors": dict(o.get("sensors") or {}),
                          **{k: v for k, v in o.items() if k in ("disturbances", "posterior")}},
            "device": "cpu", "threads": 0, "compiled": o.get("compiled") is not False}


def recipe(task: str, **keywords: Any) -> Recipe:
    """The recipe of ``task`` with ``keywords`` of `temporeal.sim.env.make_env` (:data:`OPTIONS`) and of the task's
    ``make``.

    ``randomize`` may be the name of a file of ``configs/randomize``, which holds distributions and sensors; ``sensors``
    given besides take the place of those. ``auto``: the one that the task's file in ``configs/task`` names, as for
    ``backend``, where it is the default. ``cameras``: by name as in configuration, ``{"chase": {"width": 64, "height":
    64}}``, or `temporeal.sim.rendering.cameras.Camera` objects.
    """
    options = {k: v for k, v in keywords.items() if k in OPTIONS and v not in (None, AUTO)}
    name = configured(task).get("randomize", "none") if keywords.get("randomize") == AUTO else options.get("randomize")
    if isinstance(name, str):
        options = {**named_randomization(name), **_without(options, "randomize")}
    if "cameras" in options:
        options["cameras"] = parse_given_cameras(options["cameras"])
    return Recipe(task, {k: v for k, v in keywords.items() if k not in OPTIONS}, options)


def parse_given_cameras(given: Any) -> tuple[Any, ...]:
    """The `temporeal.sim.rendering.cameras.Camera` objects that ``given`` holds, or describes by name as configuration
    does."""
    from temporeal.sim.rendering.cameras import Camera, parse_cameras

    if isinstance(given, Mapping):
        return parse_cameras(given)
    if isinstance(given, Sequence) and all(isinstance(camera, Camera) for camera in given):
        return tuple(given)
    raise ValueError('cameras are given by name, {"chase": {"width": 64, "height": 64}}, or as a list of '
                     f"temporeal.sim.rendering.cameras.Camera; got {given!r}")


def named_randomization(name: str) -> dict[str, Any]:
    """What ``configs/randomize/<name>.yaml`` holds, by the names of :data:`OPTIONS`: its parameters are randomize."""
    folder = files("temporeal.configs") / "randomize"
    known = sorted(p.name.removesuffix(".yaml") for p in folder.iterdir() if p.name.endswith(".yaml"))
    if name not in known:
        raise ValueError(f"randomize={name!r}: one of {', '.join(known)}, or distributions by name")
    content = _without(yaml.safe_load((folder / f"{name}.yaml").read_text()) or {}, "name")
    content = {"randomize": content.pop("parameters", {}), "sensors": content.pop("sensors", {}), **content}
    unknown = set(content) - set(OPTIONS)
    if unknown:
        raise ValueError(f"randomize={name!r} holds {', '.join(sorted(unknown))}, which only `temporeal train` "
                         "composes: give the distributions themselves")
    return content


def configured(task: str) -> dict[str, Any]:
    """The file ``configs/task/<task>.yaml``, empty for a task that has none."""
    file = files("temporeal.configs") / "task" / f"{task}.yaml"
    return yaml.safe_load(file.read_text()) or {} if file.is_file() else {}


def default_backend(task: Task) -> str:
    """The backend that the task's file names; else :func:`temporeal.sim.backend_factory.backend_for` its robot."""
    named = configured(task.name).get("backend")
    return str(named or backend_for(task.robot))


def check_seed(seed: Any) -> int:
    """A whole number that keys every draw."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"a seed is a whole number from 0 to 2^63 - 1 for all worlds together, got {seed!r}; "
                         "each world has episodes of its own, keyed by (seed, world, episode)")
    return int(seed)


def check_count(worlds: Any) -> int:
    """A whole number of worlds."""
    if isinstance(worlds, bool) or not isinstance(worlds, (int, np.integer)) or worlds < 1:
        raise ValueError(f"the number of worlds is a whole number from 1, got {worlds!r}")
    return int(worlds)


def random_seed() -> int:
    """A random seed."""
    return int(np.random.default_rng().integers(2**31))


def reseed(env: Env, seed: int) -> None:
    """The next ``env.reset()`` begins episode 0 of ``seed``, as in a new environment."""
    env.reseed(check_seed(seed))


def check_observation(observation: str) -> str:
    """One of :data:`OBSERVATIONS`."""
    if observation not in OBSERVATIONS:
        raise ValueError(f"observation={observation!r}: one of {', '.join(OBSERVATIONS)}")
    return observation


def check_view(task: Task) -> None:
    """A ValueError where the policy of ``task`` follows schedules: no learner of another library chooses them."""
    if task.schedules is not None:
        raise ValueError(f"task {task.name!r} is shown by the view of algo=tgpo, whose policy follows schedules that "
                         "only it chooses: give view='terminal_robustness' to the task, or 'tau_mdp' or 'f_mdp'")


def shown(obs: Obs, observation: str) -> Tensor | dict[str, Tensor]:
    """A learner's observation: one tensor [N, O], or a dictionary with cameras or where the critic's is asked for."""
    images = getattr(obs, "images", {})
    if observation == "actor" and not images:
        return obs.actor
    return {"actor": obs.actor, **({"critic": critic_of(obs)} if observation == "dict" else {}), **images}


def critic_of(obs: Obs) -> Tensor:
    """The critic's observation [N, C] in its own memory: a learner may write into it."""
    return obs.critic.clone() if obs.critic is obs.actor else obs.critic


def host(value: Tensor | dict[str, Tensor]) -> Any:
    """As numpy arrays. Images are copied, because a renderer reuses them; nothing else is on a CPU."""
    if isinstance(value, dict):
        return {k: host(v) if k in OWN else v.to("cpu", copy=True).numpy() for k, v in value.items()}
    return value.cpu().numpy()


OWN = ("actor", "critic")
"""Observations that are new tensors in every step."""


def outcomes(info: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The outcomes of episodes [N] in a step's ``info``; success under the name that other libraries read."""
    return {{"success": "is_success"}.get(k, k): host(v) for k, v in info.items() if isinstance(v, Tensor)}


def check_actions(actions: Any, shape: tuple[int, ...]) -> np.ndarray:
    """``actions`` as float32 of ``shape``, all finite: a NaN would end its world as a failure."""
    array = np.asarray(actions, dtype=np.float32)
    if array.shape != shape:
        raise ValueError(f"an action has shape {shape}, got {array.shape}")
    refuse_nonfinite(torch.from_numpy(array))
    return array


def check_action_tensor(actions: Any, shape: tuple[int, ...]) -> Tensor:
    """``actions`` uncopied, if they are a finite tensor of ``shape``."""
    if not isinstance(actions, Tensor):
        raise ValueError(f"actions are a torch.Tensor {list(shape)}, got {type(actions).__name__}")
    if tuple(actions.shape) != shape:
        raise ValueError(f"actions are {list(shape)}, got {tuple(actions.shape)}")
    refuse_nonfinite(actions)
    return actions


def refuse_nonfinite(actions: Tensor) -> None:
    """A ValueError that names the first worlds whose ``actions`` [N, A] (of one world [A]) are not finite."""
    if not bool(actions.isfinite().all()):
        raise ValueError(f"actions are finite, those of worlds {bad_rows(actions)} are not: the policy has diverged")


def bad_rows(actions: Tensor) -> list[int]:
    """The first rows of ``actions`` [N, A] (of one world [A]) that are not finite."""
    return (~actions.reshape(-1, actions.shape[-1]).isfinite().all(-1)).nonzero()[:8, 0].tolist()


def close(env: Env) -> None:
    """Release renderer and simulator."""
    if (pictures := getattr(env, "pictures", None)) is not None:
        pictures.rig.close()
    for owner in (env, env.backend):
        if callable(method := getattr(owner, "close", None)):
            method()
            return


def _without(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in table.items() if k not in names}
