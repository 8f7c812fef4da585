"""Proximal policy optimization (Schulman et al. 2017) for thousands of worlds at once.

Collect T steps of N worlds, estimate advantages with GAE (Schulman et al. 2016), climb the clipped objective for a few
epochs of large minibatches, repeat. Asymmetric critic (Pinto et al. 2018), running normalization of
observations, true successor values where an episode is cut by time (Pardo et al. 2018), learning rate by KL divergence.
Where the environment has cameras the actor reads their pictures, which are kept as bytes, moved at random in the update
(DrQ, Kostrikov et al. 2020) and encoded once for actor and critic.

T time, N worlds, B rows, O / C observation of actor / critic, A action, F numbers that eyes find in pictures. All
tensors on the environment's device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.policies.nets.actor import Actor, Critic, Gaussian, RecurrentActor, SeeingActor
from temporeal.policies.nets.encoders import shifted
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training.advantages import gae, standardized
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.formula_metrics import FormulaMetrics
from temporeal.policies.training.ppo_checkpoint import keep, latest, policy_of, read_last, restore
from temporeal.policies.training.ppo_reports import count_episodes, dump_non_finite, health_of, report, troubles
from temporeal.policies.training.ppo_state import (
    FIGURES,
    Batch,
    Companion,
    Learner,
    PPOConfig,
    Replica,
    Rollout,
    allocate,
    autocast,
    columns_of,
    fraction_spent,
    in_parallel,
    seen_dim,
    start,
)
from temporeal.policies.training.progress import CLOCKS, Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.warm_starts import ppo_start
from temporeal.policies.training.warm_starts.ppo_start import WarmStart
from temporeal.sim.types import Obs, VecEnv

CHUNK = 8192  # rows differentiated at once: larger tensors cost page faults, smaller ones the interpreter
PICTURES = 128  # the same of rows with pictures, whose feature maps are large
SEES = True  # whether cameras may be given


class Result(NamedTuple):
    """A trained policy: the deterministic action is ``actor(normalizer(obs))``."""

    actor: Actor
    normalizer: Normalizer
    history: list[dict[str, float]]


Loss = Callable[..., Tensor]
OnIteration = Callable[[Learner], "bool | None"]


def train(
    env: VecEnv, config: PPOConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
    companion: Companion | None = None, warm: WarmStart | None = None,
) -> Result:
    """Train on ``env`` until the budget, including the companion's finish, is spent.

    ``on_iteration`` (of the first process) ends the training at once by returning True. Checkpoints go to
    ``out/checkpoints``; ``resume`` continues from the last of them, or from the one given, exactly as an uninterrupted
    run, except that the formula's metrics begin anew. ``seed`` sets networks, actions and shuffles; ``env`` has its
    own. ``warm``: the policy of ``config.adapt``.

    Raises:
        SettingsError: the task follows schedules, and no companion chooses them.
    """
    out = Path(out)
    check_view(env, companion)
    learner = start(env, config, seed, ranks)
    learner.companion = companion
    ppo_start.begin(learner, warm)
    if resume:
        restore(learner, resume if isinstance(resume, Path) else latest(out, ranks))
    rollout = allocate(learner)
    worlds = env.capabilities.task_env
    if worlds is not None and worlds.task.finite:
        learner.metrics = FormulaMetrics(worlds)
    loss = torch.compile(losses) if config.compile else losses
    passed = CLOCKS[config.clock]
    estimate_finish(learner)
    began, saved, wished = passed() - learner.seconds, time.monotonic(), False
    spent = fraction_spent(learner) >= 1.0
    display = progress if progress is not None and ranks.is_first else nullcontext()
    with display, learner.workers, _threads_of_an_operation(config):
        while not spent and not wished:
            figures = iterate(learner, rollout, loss, out)
            if companion is not None:
                companion(learner, rollout)
            learner.seconds = ranks.of_first(passed() - began, learner.device)
            report(learner, rollout, figures, progress, logger)
            if learner.metrics is not None and ranks.is_first:
                learner.metrics.warn(fraction_spent(learner))
            estimate_finish(learner)
            asked = bool(on_iteration(learner)) if on_iteration is not None and ranks.is_first else False
            wished = bool(ranks.of_first(asked, learner.device))
            spent = bool(ranks.of_first(fraction_spent(learner) >= 1.0, learner.device))
            due = wished or spent or time.monotonic() - saved >= config.checkpoint_seconds
            if ranks.of_first(due, learner.device):
                keep(learner, out)
                saved = time.monotonic()
        if companion is not None and not wished and not companion.finished:
            companion.finish(learner)
            learner.seconds = ranks.of_first(passed() - began, learner.device)
            keep(learner, out)
    return Result(learner.actor, learner.normalizer, learner.history)


def check_view(env: VecEnv, companion: Companion | None) -> None:
    """Refuse a policy that follows schedules without a companion that chooses them: deployed it would have none, and an
    evaluation would draw them at random."""
    worlds = env.capabilities.task_env
    if companion is None and worlds is not None and worlds.task.schedules is not None:
        raise SettingsError(
            f"task {worlds.task.name!r} is shown by the view of algo=tgpo, whose policy follows schedules "
            "that ppo does not choose: say algo=tgpo, or for ppo "
            "task.settings.view=terminal_robustness (tau_mdp and f_mdp are other views)"
        )


def iterate(learner: Learner, rollout: Rollout, loss: Loss, out: Path) -> dict[str, float]:
    """One iteration: collect, estimate, improve. Returns its figures."""
    began, health = time.monotonic(), health_of(learner)
    take_weights(learner)
    collect(learner, rollout)
    collected = time.monotonic()
    take_statistics(learner, rollout)
    figures: dict[str, float] = {}
    if learner.iteration > 0 or not rollout.moments:  # the first rollout only finds the scales
        figures = estimate_advantages(learner, rollout) | improve(learner, rollout, loss, out)
    update_normalizers(learner, rollout)
    learner.iteration += 1
    learner.steps += rollout.reward.numel() * learner.ranks.size
    curriculum = learner.env.capabilities.curriculum
    if curriculum is not None:
        curriculum.update(learner.ranks.gathered)
        figures |= curriculum.metrics()
    if learner.metrics is not None:
        figures |= learner.metrics.means()
    figures |= troubles(learner, health)
    return figures | {"collect_seconds": collected - began, "improve_seconds": time.monotonic() - collected}


@contextmanager
def _threads_of_an_operation(config: PPOConfig) -> Iterator[None]:
    """Set the threads of torch operations inside, so that sums do not depend on the machine; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads if config.compile else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def collect(learner: Learner, rollout: Rollout) -> None:
    """Act for T steps. Observations are stored raw: their statistics are taken before they are normalized."""
    batch = columns_of(learner, rollout.table)
    rollout.noise.normal_(generator=learner.generator)
    scaled_noise = rollout.noise * learner.actor.log_std.exp()
    rollout.hidden.copy_(learner.hidden)
    rollout.cut.clear()
    episodes: dict[str, Tensor] = {}
    for t in range(len(rollout.table)):
        batch.obs[t] = learner.obs.actor
        batch.critic_obs[t] = learner.obs.critic
        for name, pictures in rollout.pictures.items():
            pictures[t] = learner.obs.images[name]
        mean, seen = act(learner, batch.obs[t], learner.obs.images)
        rollout.seen[t] = seen[:, : rollout.seen.shape[-1]]
        action = mean + scaled_noise[t]
        batch.mean[t] = mean
        batch.action[t] = action
        step = learner.env.step(action)
        rollout.reward[t] = step.reward
        rollout.terminated[t] = step.terminated
        rollout.truncated[t] = step.truncated
        learner.obs = step.obs
        if learner.metrics is not None:
            learner.metrics(step)
        ended = (step.terminated | step.truncated).nonzero()[:, 0]
        if len(ended):
            cut = step.truncated.nonzero()[:, 0]
            if len(cut):
                rollout.cut.append((t, cut, step.final_obs.critic[cut], looked(learner, step.final_obs, cut)))
            count_episodes(episodes, step.info, ended)
            learner.hidden[ended] = 0.0
    rollout.episodes = episodes or rollout.episodes


def take_weights(learner: Learner) -> None:
    """Use the current weights for acting."""
    for network in (f for replica in learner.replicas for f in replica.forward or ()):
        network.take()


def act(learner: Learner, obs: Tensor, pictures: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Mean actions [N, A] for raw observations [N, O], and what the eyes found in the ``pictures`` [N, F]; updates the
    hidden state."""
    obs, seen = learner.normalizer(obs), obs[:, :0]
    if learner.replicas[0].forward is not None:
        return learner.replicas[0].forward[0](obs), seen
    with autocast(learner):
        if isinstance(learner.actor, SeeingActor):
            seen = learner.actor.look(pictures)
            mean = learner.actor.decide(obs, seen)
        elif isinstance(learner.actor, RecurrentActor):
            mean, hidden = learner.actor(obs, learner.hidden)
            learner.hidden = hidden.float()
        else:
            mean = learner.actor(obs)
    return mean.float(), seen.float()


def looked(learner: Learner, obs: Obs, worlds: Tensor) -> Tensor:
    """What the critic reads of the pictures of ``worlds`` [K]: [K, F], F = 0 where it reads nothing."""
    actor = learner.actor
    if not isinstance(actor, SeeingActor) or not seen_dim(actor, learner.config):
        return obs.critic.new_zeros(len(worlds), 0)
    with autocast(learner):
        return actor.look({name: obs.images[name][worlds] for name in actor.pictures}).float()


@torch.no_grad()
def take_statistics(learner: Learner, rollout: Rollout) -> None:
    """Compute moments of the raw observations and of the discounted return, over all processes."""
    config, batch = learner.config, columns_of(learner, rollout.table)
    if config.normalize_observations:
        rollout.moments["normalizer"] = learner.ranks.merged(moments(batch.obs))
        rollout.moments["critic_normalizer"] = learner.ranks.merged(moments(batch.critic_obs))
    if config.scale_rewards:
        goes_on = (~(rollout.terminated | rollout.truncated)).float()
        returns = torch.empty_like(rollout.reward)
        for reward, on, row in zip(rollout.reward, goes_on, returns):
            torch.add(reward, learner.running_return, alpha=config.gamma, out=row)
            learner.running_return = row * on
        rollout.moments["return_moments"] = learner.ranks.merged(moments(returns[..., None]))


def update_normalizers(learner: Learner, rollout: Rollout) -> None:
    """Add a rollout's statistics to the normalizers after its use: acting and learning must normalize alike."""
    for name, batch in rollout.moments.items():
        getattr(learner, name).update(batch)


@torch.no_grad()
def estimate_advantages(learner: Learner, rollout: Rollout) -> dict[str, float]:
    """Normalize the observations in place and fill the columns that the update needs."""
    config, batch = learner.config, columns_of(learner, rollout.table)
    done = rollout.terminated | rollout.truncated
    value = torch.empty_like(rollout.reward)

    @torch.no_grad()
    def prepare(replica: Replica, times: Tensor) -> None:
        for t in times.tolist():
            learner.normalizer.normalize_(batch.obs[t])
            learner.critic_normalizer.normalize_(batch.critic_obs[t])
            value[t] = evaluate(learner, batch.critic_obs[t], rollout.seen[t], replica)
            batch.log_prob[t] = Gaussian(batch.mean[t], learner.actor.log_std).log_prob(batch.action[t])

    in_parallel(learner, prepare, torch.arange(len(value)))
    next_value = torch.empty_like(value)
    next_value[:-1] = value[1:]
    own, everyone = learner.replicas[0], torch.arange(value.shape[1], device=value.device)
    seen = looked(learner, learner.obs, everyone)
    next_value[-1] = evaluate(learner, learner.critic_normalizer(learner.obs.critic), seen, own)
    for t, worlds, final, seen in rollout.cut:  # not value[t + 1]: that is of the next episode
        next_value[t, worlds] = evaluate(learner, learner.critic_normalizer(final), seen, own)
    next_value.masked_fill_(rollout.terminated, 0.0)
    reward = rollout.reward * learner.return_moments.scale if config.scale_rewards else rollout.reward
    advantage = gae(reward, value, next_value, done, config.gamma, config.gae_lambda)
    target = advantage + value
    batch.value.copy_(value)
    batch.target.copy_(target)
    whole = config.normalize_advantages == "batch"
    batch.advantage.copy_(standardized(advantage, learner.ranks) if whole else advantage)
    batch.first[0] = 0.0
    batch.first[1:] = done[:-1]
    return {"explained": float(1.0 - advantage.var() / target.var().clamp(min=1e-12))}


def evaluate(learner: Learner, critic_obs: Tensor, seen: Tensor, replica: Replica) -> Tensor:
    """Values [N] of normalized ``critic_obs`` [N, C] and what was ``seen`` [N, F]."""
    if replica.forward is not None:
        return replica.forward[1](critic_obs)[:, 0]
    with autocast(learner):
        return replica.critic(torch.cat([critic_obs, seen], -1)).float()


def outputs(
    actor: Actor, critic: Critic, batch: Batch, hidden: Tensor, pictures: Mapping[str, Tensor], critic_sees: bool
) -> tuple[Tensor, Tensor]:
    """Mean actions [B, A] and values [B]; windows [T, B, .] of a recurrent actor."""
    if isinstance(actor, RecurrentActor):
        return actor.unroll(batch.obs, hidden, batch.first > 0), critic(batch.critic_obs)
    if not isinstance(actor, SeeingActor):
        return actor(batch.obs), critic(batch.critic_obs)
    seen = actor.look(pictures)
    told = torch.cat([batch.critic_obs, seen], -1) if critic_sees else batch.critic_obs
    return actor.decide(batch.obs, seen), critic(told)


def losses(
    actor: Actor, critic: Critic, batch: Batch, hidden: Tensor, old_log_std: Tensor, config: PPOConfig,
    pictures: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """FIGURES [4] of a batch; the first is the objective. Rows [B, .], or windows [T, B, .] (recurrent)."""
    with torch.autocast(batch.obs.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        mean, value = outputs(actor, critic, batch, hidden, pictures, config.critic_sees)
    mean, value = mean.float(), value.float()
    policy = Gaussian(mean, actor.log_std)
    ratio = torch.exp(policy.log_prob(batch.action) - batch.log_prob)
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -torch.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    error = (value - batch.target).square()
    if config.value_clip is not None:
        near = batch.value + (value - batch.value).clamp(-config.value_clip, config.value_clip)
        error = torch.maximum(error, (near - batch.target).square())
    value_loss = error.mean()
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * policy.entropy()
    with torch.no_grad():
        kl = policy.kl_from(Gaussian(batch.mean, old_log_std)).mean()
    return torch.stack([total, kl, policy_loss, value_loss])


def improve(learner: Learner, rollout: Rollout, loss: Loss, out: Path) -> dict[str, float]:
    """The epochs of minibatches on one rollout. Returns means of their figures."""
    config = learner.config
    axis = 1 if config.memory else 0  # a recurrent actor learns from whole windows of a world, else any row will do
    table = rollout.table if axis else rollout.table.flatten(0, 1)
    old_log_std = learner.actor.log_std.detach().clone()
    seen = []
    for _ in range(config.epochs):
        order = torch.randperm(table.shape[axis], generator=learner.generator, device=learner.device)
        if rollout.pictures and config.shift:
            rollout.move = torch.randint(-config.shift, config.shift + 1, (2, len(order)), device=learner.device,
                                         generator=learner.generator)
        for chosen in order.chunk(config.minibatches):
            if config.normalize_advantages == "minibatch":
                _standardize_chosen(learner, table, axis, chosen)
            differentiate(learner, rollout, table, chosen, old_log_std, loss)
            gradient = learner.replicas[0].gradient
            seen.append(descend(learner, gradient, partial(table.index_select, axis, chosen), out))
    mean = [sum(column) / len(seen) for column in zip(*seen)]
    return dict(zip((*FIGURES, "gradient_norm"), mean)) | {"learning_rate": learner.learning_rate}


def differentiate(
    learner: Learner, rollout: Rollout, table: Tensor, chosen: Tensor, old_log_std: Tensor, loss: Loss
) -> None:
    """Leave gradient and FIGURES of the loss over ``chosen`` rows (or worlds) of ``table`` in the first replica."""
    axis = table.ndim - 2
    size = PICTURES if rollout.pictures else max(1, CHUNK // (len(table) if axis else 1))

    def work(replica: Replica, share: Tensor) -> None:
        if replica.derivative is not None:
            figures = replica.derivative(table, share, len(chosen), old_log_std, learner.config)
            replica.gradient[-len(FIGURES) :] = figures
            return
        replica.gradient.zero_()
        if not len(share):  # fewer rows than workers
            return
        for part in share.split(size):
            batch = columns_of(learner, table.index_select(axis, part))
            hidden = rollout.hidden[part] if axis else rollout.hidden
            figures = loss(replica.actor, replica.critic, batch, hidden, old_log_std, learner.config,
                           pictures_of(rollout, part))
            figures = figures * (len(part) / len(chosen))
            figures[0].backward()
            replica.gradient[-len(FIGURES) :] += figures.detach()

    in_parallel(learner, work, chosen)
    for other in learner.replicas[1:]:
        learner.replicas[0].gradient.add_(other.gradient)


def pictures_of(rollout: Rollout, rows: Tensor) -> dict[str, Tensor]:
    """The pictures uint8 [B, H, W, 3] of ``rows`` [B] of the rollout, moved as in this epoch."""
    found = {name: pictures.flatten(0, 1)[rows] for name, pictures in rollout.pictures.items()}
    if not rollout.move.shape[1]:
        return found
    return {name: shifted(pictures, rollout.move[:, rows, None]) for name, pictures in found.items()}


def descend(learner: Learner, gradient: Tensor, minibatch: Callable[[], Tensor], out: Path) -> list[float]:
    """One optimizer step. Returns FIGURES and the gradient's norm, means over the processes."""
    config = learner.config
    learner.ranks.mean_(gradient)  # one message: gradients and figures
    slopes = gradient[: -len(FIGURES)]
    norm = torch.linalg.vector_norm(slopes)
    values: list[float] = torch.cat([gradient[-len(FIGURES) :], norm[None]]).tolist()
    if not all(map(math.isfinite, values)):
        raise NonFiniteError(dump_non_finite(learner, minibatch(), values, out))
    if values[-1] > config.max_grad_norm:
        slopes.mul_(config.max_grad_norm / values[-1])
    learner.learning_rate = next_learning_rate(learner, kl=values[1])
    for group in learner.optimizer.param_groups:
        group["lr"] = learner.learning_rate
    learner.optimizer.step()
    limit = widest(learner)
    if limit is not None:
        with torch.no_grad():
            learner.actor.log_std.clamp_(max=math.log(limit))
    return values


def _standardize_chosen(learner: Learner, table: Tensor, axis: int, chosen: Tensor) -> None:
    """Standardize the advantages of a minibatch in the table; earlier affine changes of them do not matter."""
    advantage = columns_of(learner, table).advantage
    advantage.index_copy_(axis, chosen, standardized(advantage.index_select(axis, chosen), learner.ranks))


def next_learning_rate(learner: Learner, kl: float) -> float:
    """The learning rate for this step, given the KL divergence [nats] of the steps before it."""
    config, rate = learner.config, learner.learning_rate
    if config.schedule == "linear":
        return config.learning_rate * max(0.0, 1.0 - learner.steps / config.total_steps)
    desired = config.desired_kl * (1.0 - (1.0 - config.final_kl) * fraction_spent(learner))
    if config.schedule == "adaptive" and kl > 2.0 * desired:
        return max(config.min_learning_rate, rate / 1.5)
    if config.schedule == "adaptive" and 0.0 < kl < 0.5 * desired:
        return min(config.max_learning_rate, rate * 1.5)
    return rate


def widest(learner: Learner) -> float | None:
    """The largest standard deviation of actions allowed now; None: any."""
    config = learner.config
    if config.max_std is None or config.final_std is None:
        return config.max_std
    return config.max_std * float((config.final_std / config.max_std) ** max(2.0 * fraction_spent(learner) - 1.0, 0.0))


FINISH_ESTIMATED = 5  # the first iteration with an estimate: those before it may wait for a compiler


def estimate_finish(learner: Learner) -> None:
    """Set aside the time that the companion needs to finish, by the first process's clock."""
    if learner.companion is not None and learner.iteration >= FINISH_ESTIMATED:
        learner.finish_seconds = learner.ranks.of_first(learner.companion.needs(learner), learner.device)


def load_policy(path: Path, device: str = "cpu") -> tuple[Actor, Normalizer, PPOConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return policy_of(read_last(path), PPOConfig, device)
