"""What learners from replay share: worlds are stepped, steps are remembered, batches are drawn, updates are made.

An algorithm (:class:`Algorithm`) explores, and makes one update of a batch. With demonstrations a share of each batch
is theirs (symmetric sampling: Ball et al. 2023, RLPD, arXiv 2302.02948). Time that cuts an episode is bootstrapped
through. A resumed run goes on bit for bit.

N worlds, O / C observation of actor / critics, A action, B rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import begin_at_zero
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.nets.seeing_policy import places
from temporeal.policies.training import budget, offline_learner
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.off_policy import checkpoints
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.drawing import batches
from temporeal.policies.training.off_policy.replay import Replay, remembered
from temporeal.policies.training.off_policy.settings import OffPolicyConfig, require_demonstrations
from temporeal.policies.training.off_policy.sight import Sight
from temporeal.policies.training.ppo_reports import count_episodes
from temporeal.policies.training.ppo_state import shown_pictures
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.residual.off_policy_episodes import both, own_episodes
from temporeal.sim.types import Obs, Step, VecEnv


class Algorithm(offline_learner.Algorithm, Protocol):
    """What a learner is to the loop: what one from data is, and it tries actions. ``error``: the critics' mean distance
    [B] from what they were to say in the last batch; ``reach`` []: the policy's share of its own action;
    ``sight``: its eyes, where there are pictures."""

    error: Tensor
    sight: Sight | None
    reach: Tensor

    def explore(self, obs: Tensor) -> Tensor:
        """An action [N, A] to try where [N, O] is seen, normalized, with what eyes found beside it."""

    def ended(self, worlds: Tensor) -> None:
        """The episodes of ``worlds`` [N] bool ended in the last step."""


class Result(NamedTuple):
    """A trained policy: the deterministic action is ``actor(normalizer(obs))``."""

    actor: nn.Module
    normalizer: Normalizer
    history: list[dict[str, float]]


Evaluate = Callable[[nn.Module, nn.Module, int], Mapping[str, float]]
"""``evaluate(actor, normalizer, episodes)``: figures of the deterministic policy on fresh episodes."""
Build = Callable[[Sizes, Any, torch.Generator], Algorithm]
"""``build(sizes, config, generator)``: the algorithm with new networks."""


@dataclass
class Learner:
    """All state of a run, as in its checkpoints.

    Args:
        normalizers: of what the actor sees, and of what the critics see; one for both where that is the same.
        update: control steps of all worlds so far, which the budget counts.
        owed: updates that the steps so far have paid for.
        evaluated: at how many steps the policy was last evaluated.
        best: the best policy by its evaluations, where that is kept.
        base_steps: control steps of the base's own episodes, before the first.
        snapshots: share of episodes that begin at states of demonstrations now.
        episodes: sums of figures over the episodes that ended since the last report.
    """

    config: OffPolicyConfig
    env: VecEnv
    algorithm: Algorithm
    sizes: Sizes
    seed: int
    generator: torch.Generator
    replay: Replay
    demonstrations: Replay | None
    normalizers: dict[str, Normalizer]
    obs: Obs
    update: int = 0
    seconds: float = 0.0
    owed: float = 0.0
    evaluated: int = 0
    best: dict[str, Any] | None = None
    base_steps: int = 0
    snapshots: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    episodes: dict[str, Tensor] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether the critics see what the actor sees, and nothing else."""
        return len(self.normalizers) == 1


def learn(
    env: VecEnv, config: OffPolicyConfig, build: Build, *, out: Path, seed: int, resume: bool | Path = False,
    demonstrations: Transitions | None = None, evaluate: Evaluate | None = None, progress: Progress | None = None,
    logger: Logger | None = None, on_iteration: Callable[[Learner], bool | None] | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Learn in the worlds of ``env`` until the budget is spent. Checkpoints go to ``out/checkpoints``.

    Args:
        demonstrations: steps whose observations are the critics', which begin with the actor's.
    """
    if ranks.size > 1:
        raise SettingsError(f"a learner from replay trains in one process, not in {ranks.size}: processes=1")
    if env.device.type != "cpu":
        raise SettingsError(f"a learner from replay learns on the cpu, not on {env.device}: device=cpu")
    if config.keep_best and evaluate is None:
        raise SettingsError("algo.keep_best=true: nobody evaluates here; algo.keep_best=false")
    learner = start(env, config, build, seed, demonstrations)
    if resume:
        checkpoints.restore(learner, resume if isinstance(resume, Path) else checkpoints.latest(out))
    with offline_learner.threads(1):
        budget.spend(learner, partial(iterate, evaluate=evaluate), lambda found: found.update,
                     partial(checkpoints.keep, out=Path(out)), progress, logger, on_iteration)
    learner.algorithm.actor.eval()
    if learner.best is not None:
        learner.algorithm.actor.load_state_dict(learner.best["actor"])
        learner.normalizers["actor"].load_state_dict(learner.best["normalizer"])
    return Result(learner.algorithm.actor, learner.normalizers["actor"], learner.history)


def start(
    env: VecEnv, config: OffPolicyConfig, build: Build, seed: int, demonstrations: Transitions | None
) -> Learner:
    """A learner at step 0 in a freshly reset environment."""
    require_demonstrations(config, demonstrations is not None)
    obs = env.reset()
    pictures = shown_pictures(obs)
    require_pictures(pictures, demonstrations, config)
    shared = obs.critic is obs.actor or not config.privileged or bool(pictures)
    sizes = Sizes(env.obs_dim, env.obs_dim if shared else env.critic_dim, env.action_dim, pictures,
                  places(pictures, config.keypoints))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        algorithm = build(sizes, config, generator)
    if env.capabilities.zero_start:
        for name in {"actor", "actor_target"} & set(algorithm.modules):
            begin_at_zero(algorithm.modules[name])
    parts = {"actor": sizes.obs_dim} if shared else {"actor": sizes.obs_dim, "critic": sizes.critic_dim}
    learner = Learner(
        config, env, algorithm, sizes, seed, generator,
        Replay(times_of(config, env.num_worlds), env.num_worlds, sum(parts.values()), sizes.action_dim, pictures), None,
        {name: Normalizer(size) for name, size in parts.items()}, obs)
    if config.base_episodes:
        own, learner.base_steps = own_episodes(env, config.base_episodes, config.base_failures, not shared, generator)
        demonstrations = own if demonstrations is None else both(demonstrations, own)
        learner.obs = env.reset()
    if demonstrations is not None:
        learner.demonstrations = shown(learner, demonstrations)
    return learner


def require_pictures(
    pictures: Mapping[str, tuple[int, ...]], demonstrations: Transitions | None, config: OffPolicyConfig
) -> None:
    """Refuse demonstrations that do not show what cameras show, in its size."""
    if pictures and config.base_episodes:
        raise SettingsError(f"algo.base_episodes={config.base_episodes}: the base's own episodes are kept without "
                            "pictures; algo.base_episodes=0, or no cameras")
    shown = {} if demonstrations is None else demonstrations.pictures
    for name, shape in pictures.items() if demonstrations is not None else ():
        if name not in shown or tuple(shown[name].shape[1:]) != tuple(shape):
            has = ", ".join(f"{each} {list(value.shape[1:])}" for each, value in shown.items()) or "none"
            raise SettingsError(f"cameras show {name} {list(shape)} (rows, columns, colours), the demonstrations do "
                                f"not: of these cameras they have {has}; record them with the same cameras")


def times_of(config: OffPolicyConfig, worlds: int) -> int:
    """Steps of all worlds that are remembered, T: no more than there will be."""
    return max(2, -(-min(config.size, config.total_steps) // worlds))


def shown(learner: Learner, data: Transitions) -> Replay:
    """Demonstrations as they are remembered; the normalizers know them from the start."""
    sizes = learner.sizes
    if data.obs.shape[1] != sizes.critic_dim or data.action.shape[1] != sizes.action_dim:
        raise SettingsError(f"the demonstrations show {data.obs.shape[1]} numbers and {data.action.shape[1]} of an "
                            f"action, the critics read {sizes.critic_dim} and {sizes.action_dim}")

    def state(obs: Tensor) -> Tensor:
        return obs if learner.shared else torch.cat([obs[:, : sizes.obs_dim], obs], -1)

    found = remembered(data, state(data.obs), state(data.next_obs))
    found.bonus = learner.config.demonstration_bonus or 0.0
    normalize(learner, state(data.obs))
    return found


@torch.no_grad()
def iterate(learner: Learner, evaluate: Evaluate | None = None) -> dict[str, float]:
    """The steps until the next report, with the updates that they pay for. Returns the figures."""
    config, env = learner.config, learner.env
    first = evaluation(learner, evaluate) if config.keep_best and not learner.update else {}
    choose_starts(learner)
    learner.episodes, total, count = {}, torch.zeros(len(learner.algorithm.figures)), 0
    times = -(-min(config.report_steps, config.total_steps - learner.update) // env.num_worlds)
    reward = torch.zeros(())
    for _ in range(times):
        reward += step(learner).mean() / times
        for batch in batches(learner):
            total += learner.algorithm.update(batch)
            count += 1
    figures = {"reward": float(reward), **means_of(learner.episodes)}
    if count:
        figures |= dict(zip(learner.algorithm.figures, (total / count).tolist()))
    if bad := [name for name, value in figures.items() if not math.isfinite(value)]:
        raise NonFiniteError(f"after {learner.update} steps not finite: {', '.join(bad)}")
    return {**{f"first_{name}": value for name, value in first.items()}, **figures,
            "gradient_steps": float(learner.algorithm.updates), **evaluation(learner, evaluate)}


def choose_starts(learner: Learner) -> None:
    """How many of the next episodes begin at snapshots."""
    share, worlds = learner.config.share_of_snapshots(learner.update), learner.env.capabilities.task_env
    if worlds is not None and share != learner.snapshots:
        worlds.set_mid_episode_starts(share, learner.config.snapshot_length)
        learner.snapshots = share


@torch.no_grad()
def step(learner: Learner) -> Tensor:
    """One control step of all worlds, remembered. Returns the rewards [N]."""
    config, seen = learner.config, state_of(learner, learner.obs)
    normalize(learner, seen)
    if config.ramp_steps:
        learner.algorithm.reach.fill_(config.reach(learner.update))
    if learner.update < config.warmup:
        shape = learner.env.num_worlds, learner.sizes.action_dim
        action = torch.rand(shape, generator=learner.generator) * 2.0 - 1.0
    else:
        action = learner.algorithm.explore(observed(learner))
    found = learner.env.step(action)
    ended = found.terminated | found.truncated
    if learner.replay.pictures is not None:
        learner.replay.pictures.add(learner.obs, found.final_obs, found.truncated)
    learner.replay.add(seen, action, found.reward, state_of(learner, found.final_obs), found.terminated, ended)
    learner.obs = found.obs
    learner.algorithm.ended(ended)
    learner.update += learner.env.num_worlds
    if learner.update > config.warmup:
        learner.owed += config.updates_per_step * min(learner.env.num_worlds, learner.update - config.warmup)
    note(learner, found, ended)
    return found.reward


def observed(learner: Learner) -> Tensor:
    """What the actor reads now, normalized, with what is found in the pictures beside it [N, O + F]."""
    obs, sight = learner.normalizers["actor"](learner.obs.actor), learner.algorithm.sight
    return obs if sight is None else torch.cat([obs, sight.eyes(learner.obs.images)], -1)


def note(learner: Learner, found: Step, ended: Tensor) -> None:
    """Count the episodes that ended."""
    rows = ended.nonzero()[:, 0]
    if len(rows):
        count_episodes(learner.episodes, found.info, rows)


def state_of(learner: Learner, obs: Obs) -> Tensor:
    """What is remembered of ``obs`` [N, S]: what the actor sees, and what the critics see where that is more."""
    return obs.actor if learner.shared else torch.cat([obs.actor, obs.critic], -1)


def normalize(learner: Learner, state: Tensor) -> None:
    """Add states [N, S] to the statistics."""
    if learner.config.normalize_observations:
        parts = state.split([len(each.shift) for each in learner.normalizers.values()], -1)
        for normalizer, part in zip(learner.normalizers.values(), parts):
            normalizer.update(moments(part))


def means_of(episodes: Mapping[str, Tensor]) -> dict[str, float]:
    """Means over whole episodes, and their number."""
    sums = {name: float(value) for name, value in episodes.items()}
    count = sums.pop("count", 0.0)
    return {"episodes": count, **{name: value / max(count, 1.0) for name, value in sums.items()}}


def evaluation(learner: Learner, evaluate: Evaluate | None) -> dict[str, float]:
    """Figures of the deterministic policy, where an evaluation is due."""
    every = learner.config.evaluate_steps
    if evaluate is None or not every:
        return {}
    if learner.update // every == learner.evaluated // every and 0 < learner.update < learner.config.total_steps:
        return {}
    learner.evaluated = learner.update
    actor, normalizer = learner.algorithm.actor, learner.normalizers["actor"]
    found = evaluate(actor, normalizer, learner.config.evaluate_episodes)
    if learner.config.keep_best and (learner.best is None or found["success"] >= learner.best["success"]):
        learner.best = {"success": float(found["success"]), "steps": learner.update, "actor": copied(actor),
                        "normalizer": copied(normalizer)}
    return {f"evaluated_{name}": float(value) for name, value in found.items()}


def copied(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's state."""
    return {name: value.clone() for name, value in module.state_dict().items()}
