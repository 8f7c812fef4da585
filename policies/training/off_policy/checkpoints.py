"""Checkpoints of learners from replay: their content, resumption, and the policy in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.settings import MAY_CHANGE, OffPolicyConfig, plain
from temporeal.policies.training.ppo_checkpoint import eyes
from temporeal.sim.types import Obs

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.learner import Learner
    from temporeal.policies.training.off_policy.replay import Replay

KIND = "temporeal off-policy 1"
ABSENT_DEFAULTS: Mapping[str, Any] = {
    "demonstration_bonus": None, "imitation": 0.0, "imitation_filter": True, "hide": [], "keypoints": 16, "shift": 3,
    "snapshots": 0.0, "snapshot_steps": None, "snapshot_length": None, "base_episodes": 0, "base_failures": 1.0,
    "critic_first": 0, "ramp_steps": 0, "value_range": None, "keep_best": False, "restraint": 0.0}
"""Settings that older checkpoints lack, and their values then."""
NUMBERS = ("update", "seconds", "owed", "evaluated", "history", "best")
C = TypeVar("C", bound=OffPolicyConfig)


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint, with all that is remembered, and remove older ones except the last."""
    folder = out / "checkpoints"
    checkpoint.save(checkpoint.file_of(folder, learner.update, 0, 1), {
        "kind": KIND, "config": plain(learner.config), "sizes": learner.sizes._asdict(), "seed": learner.seed,
        "worlds": learner.env.num_worlds, "data": digest(learner.demonstrations),
        "demonstrated": errors(learner.demonstrations), "updates": learner.algorithm.updates,
        **{name: getattr(learner, name) for name in NUMBERS},
        "generator": learner.generator.get_state(), "torch_rng": torch.get_rng_state(),
        "replay": learner.replay.state_dict(), "env": learner.env.state_dict(),
        "obs": [learner.obs.actor, learner.obs.critic, dict(learner.obs.images)],
        "normalizers": {name: each.state_dict() for name, each in learner.normalizers.items()},
        **{part: {name: thing.state_dict() for name, thing in getattr(learner.algorithm, part).items()}
           for part in ("modules", "optimizers")}})
    checkpoint.prune(folder, 0, 1)


def restore(learner: Learner, path: Path) -> None:
    """Set ``learner`` to the state of the checkpoint ``path``."""
    state = {"best": None, **offline_learner.read(path, KIND)}
    same = checkpoint.require_same
    same(path, "sizes", Sizes(**state["sizes"])._asdict(), learner.sizes._asdict(), MAY_CHANGE)
    same(path, "configuration", settings_of(state, type(learner.config)), plain(learner.config), MAY_CHANGE)
    mine, held = learner.demonstrations, state["demonstrated"]
    older = mine is not None and held is not None and state["data"] == _older_digest(mine, len(held["error"]))
    data = state["data"] if older else digest(mine)
    same(path, "run", {name: state[name] for name in ("seed", "worlds", "data")},
         {"seed": learner.seed, "worlds": learner.env.num_worlds, "data": data}, MAY_CHANGE)
    try:
        learner.env.load_state_dict(state["env"])
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    for part in ("modules", "optimizers"):
        for name, thing in getattr(learner.algorithm, part).items():
            thing.load_state_dict(state[part][name])
    for name, normalizer in learner.normalizers.items():
        normalizer.load_state_dict(state["normalizers"][name])
    learner.replay.load_state_dict(state["replay"])
    if mine is not None:
        _restore_errors(mine, held, older)
    for name in NUMBERS:
        setattr(learner, name, state[name])
    learner.algorithm.updates = state["updates"]
    actor, critic, *images = state["obs"]
    learner.obs = Obs(actor, actor if learner.shared else critic, *images)
    learner.generator.set_state(state["generator"])
    torch.set_rng_state(state["torch_rng"])


def latest(out: Path) -> Path:
    """The last checkpoint of the run in ``out``."""
    return checkpoint.latest(Path(out) / "checkpoints", 0, 1)


def digest(demonstrations: Replay | None) -> str:
    """SHA-256 of what was demonstrated, the oldest first, whatever room there is for more; "" without demonstrations.
    """
    if demonstrations is None:
        return ""
    count, times = demonstrations.count, demonstrations.times
    first, found = (demonstrations.at - count) % times, hashlib.sha256()
    for table in (demonstrations.pair, demonstrations.after, demonstrations.told):
        for rows in (table[first : first + count], table[: max(0, first + count - times)]):
            found.update(rows.numpy().data.cast("B") if len(rows) else b"")
    return found.hexdigest()


def _older_digest(demonstrations: Replay, times: int) -> str:
    """As checkpoints of before had it: of whole tables of ``times``, as they lie in memory, zeros where nothing is."""
    found, rows = hashlib.sha256(), min(times, demonstrations.times)
    for table in (demonstrations.pair, demonstrations.after, demonstrations.told):
        found.update(table[:rows].numpy().data.cast("B"))
        found.update(bytes((times - rows) * table[0].numel() * table.element_size()))
    return found.hexdigest()


def errors(demonstrations: Replay | None) -> dict[str, Any] | None:
    """What changes of demonstrations: their last errors [times], the oldest first."""
    if demonstrations is None:
        return None
    return {"error": demonstrations.error[_order(demonstrations)], "greatest": demonstrations.greatest}


def _order(demonstrations: Replay) -> Tensor:
    """Where the times are, the oldest first."""
    return (torch.arange(demonstrations.count) + demonstrations.at - demonstrations.count) % demonstrations.times


def _restore_errors(demonstrations: Replay, held: dict[str, Any], older: bool) -> None:
    """Set them to what :func:`errors` found; ``older``: of whole tables, as they lay in memory."""
    error, demonstrations.greatest = held["error"], held["greatest"]
    if older:
        rows = min(len(error), demonstrations.times)
        demonstrations.error[:rows] = error[:rows]
        return
    demonstrations.error[_order(demonstrations)] = error


def load_policy(
    path: Path, kind: type[C], make: Callable[[Sizes, C], nn.Module], device: str
) -> tuple[nn.Module, Normalizer, C]:
    """Actor, normalizer and configuration, a ``kind``, of the checkpoint or run in ``path``."""
    state = offline_learner.read(path, KIND)
    config, sizes = config_of(state, kind), Sizes(**state["sizes"])
    best = state.get("best")
    weights = state["modules"]["actor"] if best is None else best["actor"]
    widths = [sizes.obs_dim + sizes.found, *config.hidden, sizes.action_dim]
    for layers in (widths, *eyes(config.keypoints, sizes.pictures)):
        checkpoint.require_held(state["path"], layers, weights)
    actor, normalizer = make(sizes, config), Normalizer(sizes.obs_dim)
    actor.load_state_dict(weights)
    normalizer.load_state_dict(state["normalizers"]["actor"] if best is None else best["normalizer"])
    return actor.to(device).eval(), normalizer.to(device), config


def settings_of(state: Mapping[str, Any], kind: type[OffPolicyConfig]) -> dict[str, Any]:
    """Those of the checkpoint ``state`` of a learner of ``kind``."""
    legal = {each.name for each in fields(kind)}
    return {**{name: value for name, value in ABSENT_DEFAULTS.items() if name in legal}, **state["config"]}


def config_of(state: dict[str, Any], kind: type[C]) -> C:
    """The configuration, a ``kind``, of the checkpoint ``state``."""
    settings = settings_of(state, kind)
    if different := set(settings) ^ {each.name for each in fields(kind)}:
        raise checkpoint.CheckpointError(
            f"{state['path']} was written by another version: settings {sorted(different)} differ")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return kind(**given)
