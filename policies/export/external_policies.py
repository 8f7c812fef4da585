"""Policies that other libraries trained, as what our exporter takes: stable-baselines3 and rsl_rl to an artifact.

    graph = from_sb3(model, env)                   # PolicyGraph: raw signals in, raw commands out
    artifact = export_sb3(model, "artifact", env)  # ... as a folder that tests itself

What is wrapped is the library's own deterministic policy (its feature extractor, network, squashing and scaling) and
the statistics by which it normalized observations, so that there is no second copy of either to drift.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from copy import deepcopy
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.export.policy import export_policy
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.adapters.worlds import Recipe, check_view
from temporeal.sim.env import Env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.task import Task

NEUTRAL_VEC_WRAPPERS = ("VecMonitor", "VecCheckNan", "VecVideoRecorder")
NEUTRAL_WRAPPERS = ("Monitor", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics",
                    "RecordVideo", "Autoreset")
"""Wrappers that change neither observations nor actions; any other would have to be in the artifact and is not."""


class NotExportable(ValueError):
    """A policy or an environment that an artifact cannot hold; the message says which part and what can be done."""


class Standardize(nn.Module):
    """``clip((x - mean) / sqrt(var + epsilon), -limit, limit)`` in double precision, as SB3's ``VecNormalize``."""

    def __init__(self, mean: np.ndarray, var: np.ndarray, epsilon: float, limit: float) -> None:
        super().__init__()
        self.limit = float(limit)
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("std", torch.as_tensor(np.sqrt(np.asarray(var, np.float64) + epsilon)))
        self.mean: Tensor
        self.std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Normalized ``x`` [..., O], float32."""
        return ((x.double() - self.mean) / self.std).clamp(-self.limit, self.limit).float()


class Sb3Actor(nn.Module):
    """The deterministic action [N, A] of an SB3 policy: what ``predict(deterministic=True)`` computes."""

    hidden_dim = 0

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy
        space = policy.action_space
        self.squash = bool(policy.squash_output)
        self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))
        self.low: Tensor
        self.high: Tensor

    def forward(self, obs: Tensor) -> Tensor:
        """Action [N, A] of (normalized) ``obs`` [N, O]."""
        action: Tensor = self.policy._predict(obs, deterministic=True)
        if self.squash:
            return self.low + 0.5 * (action + 1.0) * (self.high - self.low)
        return torch.minimum(torch.maximum(action, self.low), self.high)


class RecurrentActor(nn.Module):
    """The deterministic action of rsl_rl's ``RNNModel``, with its memory as an input and an output.

    Args:
        model: what its ``as_onnx`` gives: normalization, ``torch.nn.GRU`` or ``LSTM``, network, output.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.input_size = model, model.input_size
        self.layers, self.size = int(model.num_layers), int(model.hidden_size)
        self.is_lstm: bool = model.rnn_type == "lstm"
        self.hidden_dim: int = self.layers * self.size * (2 if self.is_lstm else 1)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Action [N, A] and the next memory for ``obs`` [N, O] and ``hidden`` [N, D]: by layer h, of an LSTM then c."""
        x, after = self.model.obs_normalizer(obs), []
        for layer, old in enumerate(hidden.chunk(self.layers, -1)):
            new = self.cell(layer, x, old)
            x = new[:, : self.size]
            after.append(new)
        action: Tensor = self.model.deterministic_output(self.model.mlp(x))
        return action, torch.cat(after, -1)

    def cell(self, layer: int, x: Tensor, old: Tensor) -> Tensor:
        """The memory [N, D / L] of one layer after input ``x``: as torch.nn.GRU and LSTM compute it, step by step."""
        rnn, h = self.model.rnn, old[:, : self.size]
        weights = [getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        gates = 4 if self.is_lstm else 3
        given: tuple[Tensor, ...] = nn.functional.linear(x, weights[0], weights[2]).chunk(gates, -1)
        kept: tuple[Tensor, ...] = nn.functional.linear(h, weights[1], weights[3]).chunk(gates, -1)
        if not self.is_lstm:
            reset, update = ((a + b).sigmoid() for a, b in zip(given[:2], kept[:2]))
            return (1 - update) * (given[2] + reset * kept[2]).tanh() + update * h
        enter, forget, new, out = (a + b for a, b in zip(given, kept))
        c = forget.sigmoid() * old[:, self.size :] + enter.sigmoid() * new.tanh()
        return torch.cat([out.sigmoid() * c.tanh(), c], -1)


# ---- the policies


def from_sb3(model: Any, env: Any = None, *, normalize: Any = None) -> PolicyGraph:
    """The deterministic policy of an SB3 model (PPO, A2C, SAC, TD3, DDPG, or a subclass) between signals and commands.

    Args:
        model: with a ``MlpPolicy`` over the actor's observation.
        env: what it was trained in: ours, wrapped by ``VecNormalize`` and ``VecMonitor`` or not, a
            ``gymnasium.make("temporeal/...")``, or a `temporeal.sim.adapters.worlds.Recipe`. None: ``model.env``.
        normalize: the ``VecNormalize``, or the file that its ``save`` wrote, where ``env`` is not wrapped by it; False:
            there was none. It must be said where neither the model nor ``env`` shows it: a file has no statistics.

    Raises :class:`NotExportable` for what an artifact cannot hold: recurrent policies, discrete actions, images,
    privileged observations, wrappers that change observations or actions.
    """
    env = env if env is not None else model.get_env()
    found = origin(env)
    check_sb3(model, found.task)
    statistics = statistics_of(model, found, normalize)
    policy = copied(model.policy)
    return graph_of(found.task, sb3_normalizer(statistics, found.task), Sb3Actor(policy))


def copied(policy: Any) -> Any:
    """A copy of an SB3 policy on the CPU, through its own save and load: it keeps tensors that no deepcopy takes."""
    buffer = io.BytesIO()
    policy.save(buffer)
    buffer.seek(0)
    with torch.no_grad():  # state-dependent exploration draws a matrix here, which the exporter could not copy
        found = type(policy).load(buffer, device="cpu")
    found.set_training_mode(False)
    return found


def from_rsl_rl(policy: Any, env: Any) -> PolicyGraph:
    """The deterministic policy of rsl_rl's ``OnPolicyRunner`` (or of its actor model) between signals and commands.

    The empirical normalization is part of it. What a recurrent one (``RNNModel``) remembers is memory of the artifact,
    zeros at mission start. ``env`` as of :func:`from_sb3`.
    """
    task = origin(env).task
    model = policy.alg.get_policy() if hasattr(policy, "alg") else policy
    groups = list(getattr(model, "obs_groups", ()))
    if not hasattr(model, "as_onnx") or groups != ["policy"]:
        raise NotExportable(f"the actor reads the groups {groups}; an artifact reads what a robot measures: "
                            "obs_groups={'actor': ['policy'], 'critic': ['critic']}")
    actor = model.as_onnx(verbose=False).to("cpu").eval()
    if getattr(model, "is_recurrent", False):
        actor = RecurrentActor(actor)
    check_sizes(task, actor.input_size, model.distribution.output_dim if model.distribution else task.act.action_dim)
    return graph_of(task, nn.Identity(), actor)


def graph_of(task: Task, normalizer: nn.Module, actor: nn.Module) -> PolicyGraph:
    """The policy between raw signals and raw commands, on the CPU, with maps of its own."""
    if not hasattr(actor, "hidden_dim"):
        actor.hidden_dim = 0  # type: ignore[assignment]
    host = torch.device("cpu")
    graph = PolicyGraph(deepcopy(task.observe).to(host), normalizer, actor, deepcopy(task.act).to(host)).eval()
    for parameter in graph.parameters():
        parameter.requires_grad_(False)
    return graph


# ---- the artifacts


def export_sb3(
    model: Any, path: str | Path, env: Any = None, *, normalize: Any = None, seed: int | None = None,
    name: str | None = None,
) -> Artifact:
    """Write an SB3 ``model`` as an artifact to the folder ``path``; arguments as of :func:`from_sb3`.

    ``model`` may be the file that its ``save`` wrote. The golden trace is recorded in a new environment of the same
    recipe, so ``env`` must have been made by ``make_vec_env``, ``gymnasium.make`` or be a recipe.
    """
    if isinstance(model, (str, Path)):
        model = load_sb3(model)
    env = env if env is not None else model.get_env()
    graph = from_sb3(model, env, normalize=normalize)
    algo = {"name": f"stable_baselines3.{type(model).__name__}", "total_steps": int(model.num_timesteps),
            "version": metadata.version("stable_baselines3")}
    return write(graph, path, origin(env).recipe, algo, model.seed if seed is None else seed, name)


def export_rsl_rl(
    runner: Any, path: str | Path, env: Any = None, *, seed: int = 0, name: str | None = None
) -> Artifact:
    """Write the policy of an ``OnPolicyRunner`` as an artifact to the folder ``path``; see :func:`export_sb3`."""
    env = runner.env if env is None else env
    algo = {"name": f"rsl_rl.{type(runner.alg).__name__}", "iterations": int(runner.current_learning_iteration),
            "version": metadata.version("rsl-rl-lib")}
    return write(from_rsl_rl(runner, env), path, origin(env).recipe, algo, seed, name)


def write(
    graph: PolicyGraph, path: str | Path, recipe: Recipe | None, algo: Mapping[str, Any], seed: int | None,
    name: str | None,
) -> Artifact:
    """Record the golden trace in one world of the recipe and write the artifact."""
    if recipe is None:
        raise NotExportable(
            "how the environment was made is not known, so that no golden trace can be recorded in one "
            "like it: make it with make_vec_env or gymnasium.make, or pass env=recipe(task, ...); or "
            "record one yourself: temporeal.policies.export.policy.export_policy(from_sb3(...), task, ...)"
        )
    seed = 0 if seed is None else int(seed)
    env = recipe.build(1, seed, compiled=False, device="cpu", threads=1)
    training = {**recipe.described(), "robot": {"name": env.task.robot.name}, "algo": dict(algo), "seed": seed}
    return export_policy(graph, env.task, path, env, training=training, seed=seed, name=name)


def load_sb3(path: str | Path) -> Any:
    """The model in a file that SB3's ``save`` wrote; the class is found by the policy that is in it.

    SB3 unpickles parts of such a file, which can run code: load only what you or people you trust saved.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as file:
            data = json.loads(file.read("data"))
    except (OSError, KeyError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise NotExportable(f"{path} is no model that stable-baselines3 saved: {error}") from error
    sb3 = imported("stable_baselines3")
    module = str(data.get("policy_class", {}).get("__module__", ""))
    known = {"stable_baselines3.common.policies": "PPO" if "clip_range" in data else "A2C",
             "stable_baselines3.sac.policies": "SAC",
             "stable_baselines3.td3.policies": "DDPG" if is_ddpg(data) else "TD3"}
    if module not in known or "cg_max_steps" in data:  # TRPO of sb3-contrib has the policy of PPO
        raise NotExportable(f"{path} holds a policy of {module or 'an unknown module'}, trained by none of PPO, A2C, "
                            "SAC, TD3, DDPG: load it yourself and give the model")
    return getattr(sb3, known[module]).load(path, device="cpu")


def is_ddpg(data: Mapping[str, Any]) -> bool:
    """Whether a saved TD3 is what SB3's ``DDPG`` makes of it: one critic, no delay, no smoothing of the target."""
    return (data.get("policy_delay"), data.get("target_noise_clip"),
            (data.get("policy_kwargs") or {}).get("n_critics")) == (1, 0.0, 1)


def imported(package: str) -> Any:
    """The package, or how to get it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"this needs {package} (pip install {package.replace('_', '-')}): {error}",
                                  name=error.name) from error


# ---- where a policy was trained


class Origin:
    """The task an environment is of, how it was made, and the statistics it normalizes observations by."""

    def __init__(self, task: Task, recipe: Recipe | None, normalize: Any = None) -> None:
        check_view(task)
        self.task, self.recipe, self.normalize = task, recipe, normalize


def origin(env: Any) -> Origin:
    """What lies under the wrappers of ``env``."""
    if isinstance(env, Recipe):
        return Origin(env.load(), env)
    if isinstance(env, Env):
        return Origin(env.task, None)
    normalize = None
    while "worlds" not in getattr(env, "__dict__", {}):  # no hasattr: SB3's wrappers answer for what they wrap
        kind = type(env).__name__
        if kind == "VecNormalize":
            if normalize is not None:
                raise NotExportable("two VecNormalize on top of each other: only one is exported")
            normalize, env = env, env.venv
        elif kind == "DummyVecEnv":
            env = env.envs[0]
        elif kind in NEUTRAL_VEC_WRAPPERS:
            env = env.venv
        elif kind in NEUTRAL_WRAPPERS:
            env = env.env
        else:
            raise NotExportable(refusal(env))
    return Origin(env.worlds.task, env.recipe, normalize)


def refusal(env: Any) -> str:
    """Why no policy can be exported from ``env``."""
    if env is None:
        return "the model has no environment (it was loaded from a file): give env=, or env=recipe(task, ...)"
    if hasattr(env, "venv") or hasattr(env, "env"):
        return (f"the wrapper {type(env).__name__} changes what the policy sees or does, and an artifact does not have "
                "it: put what it does into the task's observation or action map (VecNormalize is known)")
    return (
        f"{type(env).__name__} is no environment of temporeal.sim.adapters, and its worlds cannot be looked into: give "
        "env=recipe(task, ...)"
    )


def check_sb3(model: Any, task: Task) -> None:
    """Whether an artifact can hold the policy of ``model``, and it is for ``task``."""
    from gymnasium import spaces

    policy = model.policy
    if hasattr(policy, "lstm_actor"):
        raise NotExportable("a recurrent policy (sb3-contrib) is not exported: give the task a history instead")
    if not isinstance(policy.action_space, spaces.Box):
        raise NotExportable(f"actions are {policy.action_space}; a command needs a Box")
    if not isinstance(policy.observation_space, spaces.Box):
        raise NotExportable(f"the policy reads {policy.observation_space}; an artifact reads what a robot measures: "
                            "train with observation='actor' and without cameras")
    if not (np.all(policy.action_space.low == -1.0) and np.all(policy.action_space.high == 1.0)):
        raise NotExportable(f"actions are in {policy.action_space}, the action maps of tasks take [-1, 1]")
    check_sizes(task, int(np.prod(policy.observation_space.shape)), int(np.prod(policy.action_space.shape)))


def check_sizes(task: Task, reads: int, gives: int) -> None:
    """Whether a policy of these sizes is one for ``task``."""
    wanted = (int(task.observe.obs_dim), int(task.act.action_dim))  # type: ignore[arg-type]
    if (reads, gives) != wanted:
        raise NotExportable(f"the policy reads {reads} numbers and gives {gives}, task {task.name!r} with these "
                            f"settings shows {wanted[0]} and takes {wanted[1]}: give the settings it was trained with")


def statistics_of(model: Any, found: Origin, normalize: Any) -> Any:
    """The ``VecNormalize`` the model was trained under, None if there was none; an error where that is not known."""
    if normalize is False:
        return None
    if normalize is not None:
        return load_statistics(normalize)
    carried = found.normalize or model.get_vec_normalize_env()
    was = was_normalized(model)
    if carried is None and (was or (was is None and model.get_env() is None)):
        detail = "was trained under VecNormalize" if was else "does not say whether it was trained under VecNormalize"
        raise NotExportable(f"the model {detail}, whose statistics are not in its file: give normalize=FILE, which "
                            "VecNormalize.save wrote (--normalize FILE), or, if observations were not normalized, "
                            "normalize=False (--no-normalize)")
    return carried


def was_normalized(model: Any) -> bool | None:
    """Whether the model learned under ``VecNormalize``: it then keeps observations as they were before. None: unknown.

    ``_last_original_obs`` is among what SB3's ``save`` writes, the ``VecNormalize`` itself is not. Algorithms with a
    replay buffer (SAC, TD3, DDPG) write it in any case.
    """
    if hasattr(model, "replay_buffer"):
        return None
    if getattr(model, "_last_original_obs", None) is not None:
        return True
    return None if getattr(model, "_last_obs", None) is None else False


# all that a pickle of a VecNormalize names (stable-baselines3 2.9, numpy 1.26 and 2): data, and constructors of data
STATISTICS = {
    "stable_baselines3.common.vec_env.vec_normalize": ("VecNormalize",),
    "stable_baselines3.common.running_mean_std": ("RunningMeanStd",),
    "gymnasium.spaces.box": ("Box",),
    "gymnasium.spaces.dict": ("Dict",),
    "collections": ("OrderedDict",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy.random._pickle": ("__bit_generator_ctor", "__generator_ctor"),
    "numpy.random._pcg64": ("PCG64",),
    "numpy.random.bit_generator": ("SeedSequence", "__pyx_unpickle_SeedSequence"),
}


class StatisticsUnpickler(pickle.Unpickler):
    """Reads what ``VecNormalize.save`` writes and nothing else: a pickle can name any function to call."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or constructor, if statistics are made of it."""
        if name not in STATISTICS.get(module, ()):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which statistics are not made of")
        return super().find_class(module, name)


def load_statistics(normalize: Any) -> Any:
    """A ``VecNormalize`` from the file that its ``save`` wrote, or as it is."""
    found = normalize
    if isinstance(normalize, (str, Path)):
        try:
            with Path(normalize).open("rb") as file:
                found = StatisticsUnpickler(file).load()
        except Exception as error:  # bytes from anywhere: an unpickler raises anything
            raise NotExportable(f"{normalize} is no file that VecNormalize.save wrote: {error}") from error
    if not hasattr(found, "norm_obs"):
        raise NotExportable(f"normalize={normalize!r}: a VecNormalize, the file that its save wrote, or False")
    return found


def sb3_normalizer(statistics: Any, task: Task) -> nn.Module:
    """The layer that does to observations what SB3's ``VecNormalize`` did in training."""
    if statistics is None or not statistics.norm_obs:
        return nn.Identity()
    rms = statistics.obs_rms
    size = int(task.observe.obs_dim)  # type: ignore[arg-type]
    if isinstance(rms, dict) or rms.mean.shape != (size,):
        detail = "several observations" if isinstance(rms, dict) else f"{rms.mean.shape} numbers"
        raise NotExportable(f"VecNormalize holds statistics of {detail}, task {task.name!r} shows {size}")
    return Standardize(rms.mean, rms.var, statistics.epsilon, statistics.clip_obs)
