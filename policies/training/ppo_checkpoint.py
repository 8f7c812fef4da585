"""Checkpoints of PPO runs: their content, resumption, and the policy in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from temporeal.policies.nets.actor import Actor, make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.nets.sets import widths as set_widths
from temporeal.policies.training import checkpoint, renamed
from temporeal.policies.training.ppo_state import Learner, PPOConfig
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.compiler.devices import moved
from temporeal.sim.renamed import with_current_names
from temporeal.sim.types import Obs, VecEnv

MAY_CHANGE = ("total_steps", "max_seconds", "clock", "checkpoint_seconds")  # between a run and its resumption
KIND = "temporeal ppo 2"
ABSENT_DEFAULTS = {"stagger": False, "hide": [], "keypoints": 16, "shift": 0, "critic_sees": False,
                   "adapt": "", "adapters": 0, "modulate": False, "curriculum": 0.0}
"""Settings that older checkpoints lack, and their values then."""
MODULES = ("actor", "critic", "normalizer", "critic_normalizer", "return_moments", "optimizer")
"""What learns, by its name in a learner."""
C = TypeVar("C", bound=PPOConfig)


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint of this process and remove older ones except the last."""
    folder, ranks = Path(out) / "checkpoints", learner.ranks
    cuda = torch.cuda.get_rng_state(learner.device) if learner.device.type == "cuda" else None
    checkpoint.save(checkpoint.file_of(folder, learner.iteration, ranks.index, ranks.size), {
        "kind": KIND, "config": _plain(learner.config), "sizes": _sizes(learner), "seed": learner.seed,
        **modules_of(learner), "learning_rate": learner.learning_rate, "iteration": learner.iteration,
        "steps": learner.steps, "seconds": learner.seconds, "history": learner.history,
        "generator": learner.generator.get_state(), "torch_rng": torch.get_rng_state(), "cuda_rng": cuda,
        "env": learner.env.state_dict(), "obs": list(learner.obs), "hidden": learner.hidden,
        "running_return": learner.running_return, "began": learner.began,
        "companion": None if learner.companion is None else learner.companion.state_dict()})
    ranks.wait()  # all processes have this iteration before any forgets an older one
    checkpoint.prune(folder, ranks.index, ranks.size)


def restore(learner: Learner, path: Path) -> None:
    """Set ``learner`` to the state of the checkpoint ``path``."""
    state = _read(path)
    checkpoint.require_same(path, "environment", state["sizes"], _sizes(learner), MAY_CHANGE)
    checkpoint.require_same(path, "configuration", complete(state["config"], learner.config), _plain(learner.config),
                            MAY_CHANGE)
    checkpoint.require_same(path, "run", {"seed": state["seed"]}, {"seed": learner.seed}, MAY_CHANGE)
    checkpoint.require_same(path, "device", {"device": "cpu" if state["cuda_rng"] is None else "cuda"},
                            {"device": learner.device.type}, MAY_CHANGE)
    for name in MODULES:
        getattr(learner, name).load_state_dict(state[name])
    for name in ("learning_rate", "iteration", "steps", "seconds", "history", "began"):
        setattr(learner, name, state[name])
    if learner.companion is not None:
        learner.companion.load_state_dict(state["companion"])
    device = learner.device
    learner.generator.set_state(state["generator"])
    torch.set_rng_state(state["torch_rng"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda_rng"], device)
    try:
        learner.env.load_state_dict(moved(state["env"], device))
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    learner.obs = Obs(*moved(state["obs"], device))
    learner.hidden, learner.running_return = moved([state["hidden"], state["running_return"]], device)


def policy_of(state: Mapping[str, Any], kind: type[C], device: str) -> tuple[Actor, Normalizer, C]:
    """Actor, normalizer and configuration, a ``kind``, of the checkpoint ``state``."""
    config = config_of(state, kind)
    for layers in (widths(config, state["sizes"]), *eyes(config.keypoints, state["sizes"].get("pictures", {}))):
        checkpoint.require_held(state["path"], layers, state["actor"])
    actor = make_actor(
        state["sizes"]["obs_dim"], state["sizes"]["action_dim"], config.actor_hidden, name=config.activation,
        init_std=config.init_std, hidden_dim=config.memory, pictures=state["sizes"].get("pictures"),
        keypoints=config.keypoints, elements=state["sizes"].get("elements"))
    normalizer = Normalizer(state["sizes"]["obs_dim"])
    actor.load_state_dict(state["actor"])
    normalizer.load_state_dict(state["normalizer"])
    return actor.to(device), normalizer.to(device), config


def widths(config: PPOConfig, sizes: Mapping[str, Any]) -> list[int]:
    """Widths of the actor's layers, a recurrent one's as often as it is fed back."""
    memory = [config.memory] * 2 if config.memory else []
    seen = 2 * config.keypoints * len(sizes.get("pictures", {}))
    read = set_widths(sizes["obs_dim"], sizes.get("elements"))
    return [read + seen, *config.actor_hidden, *memory, sizes["action_dim"]]


def eyes(keypoints: int, pictures: Mapping[str, Any]) -> list[list[int]]:
    """Of each of the ``pictures`` numbers whose products its eye's weights and places exceed."""
    found: list[list[int]] = []
    for rows, columns, colours in pictures.values():
        found += [[-(-rows // 4), -(-columns // 4)], [colours, keypoints]]
    return found


def read_last(path: Path) -> dict[str, Any]:
    """The state in a checkpoint file, or in the last one of a run's folder."""
    path = Path(path)
    if path.is_dir():
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        files = sorted(folder.glob("*.rank0of*.pt"))
        if not files:
            raise checkpoint.CheckpointError(f"{path} holds no checkpoint: train first, or name another folder")
        path = files[-1]
    return {**_read(path), "path": str(path)}


def config_of(state: Mapping[str, Any], kind: type[C]) -> C:
    """The configuration, a ``kind``, of the checkpoint ``state``."""
    known, config = {f.name for f in fields(kind)}, complete(state["config"], kind)
    if set(config) != known:
        raise checkpoint.CheckpointError(
            f"{state['path']} was written by another version: settings {sorted(set(config) ^ known)} differ")
    return kind(**config)


def complete(config: Mapping[str, Any], kind: PPOConfig | type[PPOConfig]) -> dict[str, Any]:
    """``config`` of a ``kind`` with the settings that it lacks because it is older."""
    known = {f.name for f in fields(kind)}
    return {**{name: value for name, value in ABSENT_DEFAULTS.items() if name in known}, **config}


def _read(path: Path) -> dict[str, Any]:
    state = checkpoint.load(path)  # to the CPU: random states stay there, load_state_dict moves the rest
    if state.get("kind") != KIND:
        raise checkpoint.CheckpointError(f"{path} is not of this PPO: its kind is {state.get('kind')!r}, not {KIND!r}")
    companion = state.get("companion") and with_current_names(state["companion"], renamed.COMPANION)
    config = with_current_names(state["config"], renamed.SETTINGS)
    history = [with_current_names(row, renamed.FIGURES) for row in state["history"]]
    return {"began": "", **state, "config": config, "companion": companion, "history": history}


def latest(out: Path, ranks: Ranks) -> Path:
    """This process' last checkpoint of the run in ``out``."""
    return checkpoint.latest(out / "checkpoints", ranks.index, ranks.size)


def modules_of(learner: Learner) -> dict[str, Any]:
    """The state of all learned modules, by name."""
    return {name: getattr(learner, name).state_dict() for name in MODULES}


def _plain(config: PPOConfig) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def _sizes(learner: Learner) -> dict[str, Any]:
    """What the networks and the worlds are made for; the shapes of pictures and of sets where there are some."""
    env: VecEnv = learner.env
    numbers = {k: int(getattr(env, k)) for k in ("num_worlds", "obs_dim", "critic_dim", "action_dim")}
    pictures = {name: list(shape) for name, shape in getattr(learner.actor, "pictures", {}).items()}
    elements = getattr(learner.actor, "elements", None)
    return {**numbers, **({"pictures": pictures} if pictures else {}),
            **({} if elements is None else {"elements": list(elements)})}
