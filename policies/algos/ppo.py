"""Proximal policy optimization (Schulman et al. 2017) for thousands of worlds at once.

Collect T steps of N worlds, estimate advantages with GAE (Schulman et al. 2016), climb the clipped objective for a few
epochs of large minibatches, repeat. Asymmetric critic (Pinto et al. 2018), running normalization of
observations, true successor values where an episode is cut by time (Pardo et al. 2018), learning rate by KL divergence.

T time, N worlds, B rows, O / C observation of actor / critic, A action. All tensors on the environment's device.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from policies.algos import checkpoint, fused
from policies.algos.progress import CLOCKS, Logger, Progress
from policies.algos.ranks import Ranks
from policies.algos.watch import Watch
from policies.nets.actor import ACTIVATIONS, Actor, Critic, Gaussian, RecurrentActor, make_actor
from policies.nets.normalizer import Moments, Normalizer, moments
from sim.env import Env
from sim.types import Obs, VecEnv

SCHEDULES = ("constant", "linear", "adaptive")
PRECISIONS = ("float32", "bfloat16")
ADVANTAGES = ("batch", "minibatch", "none")


@dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters, each with its meaning. ``configs/algo/ppo.yaml`` has the same names."""

    # budget: the run ends at whichever is reached first
    total_steps: int = 20_000_000  # environment steps of all worlds and processes
    max_seconds: float | None = None  # of ``clock``, earlier parts of a resumed run included
    clock: str = "wall"  # or cpu: time that this process computes, for fair comparisons on a machine with other work
    # data
    rollout_steps: int = 16  # T: steps of each world between updates
    epochs: int = 4  # passes over a rollout
    minibatches: int = 4  # gradient steps per pass (recurrent actor: the worlds are divided, not the rows)
    # cut the first episodes at random, so that worlds are not in step: where all episodes last equally long, a rollout
    # would hold but one part of them, and each update forget the others
    stagger: bool = False
    # objective
    gamma: float = 0.99  # discount per step
    gae_lambda: float = 0.95  # 0: one-step advantages (biased), 1: whole returns (noisy)
    clip: float = 0.2  # probability ratio beyond which a sample no longer pulls
    value_clip: float | None = None  # same for the value, in scaled returns; None: off
    value_coef: float = 0.5  # weight of the value loss
    entropy_coef: float = 5e-4  # weight of the entropy bonus
    max_grad_norm: float = 1.0  # of actor and critic together
    normalize_advantages: str = "batch"  # to mean 0 and std 1: over the rollout, each minibatch, or none
    normalize_observations: bool = True
    scale_rewards: bool = True  # divide by the running standard deviation of the discounted return
    # steps
    learning_rate: float = 3e-4
    schedule: str = "adaptive"  # constant, linear (to 0 at total_steps), adaptive (holds the KL at desired_kl)
    desired_kl: float = 0.01  # nats between the policies before and after an update; adaptive only
    final_kl: float = 1.0  # desired_kl falls linearly to this share of itself over the budget; adaptive only
    min_learning_rate: float = 1e-5  # adaptive only
    max_learning_rate: float = 3e-3  # adaptive only
    # networks
    actor_hidden: Sequence[int] = (64, 64)
    critic_hidden: Sequence[int] = (64, 64)
    activation: str = "silu"  # on CPU, tanh costs as much as the matrix products
    init_std: float = 0.6  # of the first actions, in units of the nominal range [-1, 1]
    # most: what is cut off at +-1 costs nothing, and the entropy bonus would widen it for ever. None: no limit
    max_std: float | None = None
    # what max_std falls to over the second half of the budget, in equal ratios: the policy that is deployed does not
    # explore, and must not need it to cross an edge. None: it does not fall
    final_std: float | None = None
    memory: int = 0  # hidden units of a recurrent (GRU) actor; 0: feed-forward
    # execution
    precision: str = "float32"  # or bfloat16: mixed precision by autocast
    compile: bool = False  # torch.compile of the loss: for GPUs; on CPU it takes longer to compile than it saves
    # workers of one process on CPU. A number and not "all cores": sums are grouped by it, so it is part of the result
    threads: int = 2
    checkpoint_seconds: float = 30.0  # between checkpoints; 0: after each iteration

    def __post_init__(self) -> None:
        choices = {"schedule": SCHEDULES, "precision": PRECISIONS, "normalize_advantages": ADVANTAGES,
                   "activation": tuple(ACTIVATIONS), "clock": tuple(CLOCKS)}
        for name, legal in choices.items():
            if getattr(self, name) not in legal:
                raise ValueError(f"{name} is {getattr(self, name)!r}; legal: {', '.join(legal)}")
        for name in ("threads", "total_steps", "rollout_steps", "epochs", "minibatches", "learning_rate", "desired_kl",
                     "clip", "max_grad_norm", "init_std", "min_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("max_seconds", "value_clip", "max_std", "final_std"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive or null, got {getattr(self, name)}")
        for name in ("memory", "checkpoint_seconds", "value_coef", "entropy_coef"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.max_std is not None and self.max_std < self.init_std:
            raise ValueError(f"max_std must be at least init_std ({self.init_std}), got {self.max_std}")
        if self.final_std is not None and not (self.max_std is not None and self.final_std <= self.max_std):
            raise ValueError(f"final_std is what max_std ({self.max_std}) falls to: at most that, or null, got "
                             f"{self.final_std}")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be within [0, 1], got {getattr(self, name)}")
        for name in ("actor_hidden", "critic_hidden"):
            widths = tuple(getattr(self, name))
            if not widths or min(widths) < 1:
                raise ValueError(f"{name} is a list of layer widths, at least one, all positive; got {list(widths)}")
            object.__setattr__(self, name, widths)


C = TypeVar("C", bound="PPOConfig")

MAY_CHANGE = ("total_steps", "max_seconds", "clock", "checkpoint_seconds")  # between a run and its resumption


class Batch(NamedTuple):
    """What an update needs of each step. Columns of one table [..., F], so that a shuffle is one gather."""

    obs: Tensor  # [..., O] normalized
    critic_obs: Tensor  # [..., C] normalized
    action: Tensor  # [..., A]
    mean: Tensor  # [..., A] of the policy that acted
    log_prob: Tensor  # [...] of ``action`` then
    advantage: Tensor  # [...]
    target: Tensor  # [...] value target, in scaled returns
    value: Tensor  # [...] prediction then
    first: Tensor  # [...] 1 where the step begins an episode


def columns(table: Tensor, obs_dim: int, critic_dim: int, action_dim: int) -> Batch:
    """Views of the columns of ``table`` [..., F]."""
    parts = table.split([obs_dim, critic_dim, action_dim, action_dim, 5], -1)
    return Batch(*parts[:4], *parts[4].unbind(-1))


@dataclass
class Rollout:
    """Preallocated storage of T steps of N worlds."""

    table: Tensor  # [T, N, F]
    noise: Tensor  # [T, N, A]
    reward: Tensor  # [T, N]
    terminated: Tensor  # [T, N] bool
    truncated: Tensor  # [T, N] bool
    hidden: Tensor  # [N, H] before the first step
    cut: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)  # (t, worlds [K], true successor [K, C])
    # sums over the whole episodes of the last rollout in which any ended; "count" of them
    episodes: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, Moments] = field(default_factory=dict)  # of the rollout, by the learner's normalizer


class SettingsError(ValueError):
    """Settings that do not fit the environment."""


class NonFiniteError(RuntimeError):
    """A loss or gradient became NaN or infinite."""


class Replica(NamedTuple):
    """Networks that share their parameters with all replicas, and a gradient of their own."""

    actor: Actor
    critic: Critic
    gradient: Tensor  # [P + 4]: all gradients (the parameters' ``grad`` are views), then FIGURES
    # compiled, where they can be: the derivative, the actor and the critic
    fused: fused.Gradient | None = None
    forward: tuple[fused.Forward, fused.Forward] | None = None


@dataclass
class Learner:
    """All state of a run: what a checkpoint holds."""

    config: PPOConfig
    env: VecEnv
    ranks: Ranks
    seed: int
    actor: Actor
    critic: Critic
    normalizer: Normalizer
    critic_normalizer: Normalizer
    optimizer: torch.optim.Adam
    replicas: list[Replica]  # one per thread; the first is the networks themselves
    workers: ThreadPoolExecutor
    generator: torch.Generator
    obs: Obs
    hidden: Tensor  # [N, H]
    running_return: Tensor  # [N] discounted return of the episode so far
    return_moments: Normalizer  # of ``running_return``
    learning_rate: float
    iteration: int = 0
    steps: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    companion: Companion | None = None
    watch: Watch | None = None  # where the task is a formula and nothing else

    @property
    def device(self) -> torch.device:
        return self.env.device


CHUNK = 8192  # rows differentiated at once: larger tensors cost page faults, smaller ones the interpreter
FIGURES = ("loss", "kl", "policy_loss", "value_loss")


class Result(NamedTuple):
    """A trained policy: the deterministic action is ``actor(normalizer(obs))``."""

    actor: Actor
    normalizer: Normalizer
    history: list[dict[str, float]]


Loss = Callable[..., Tensor]
OnIteration = Callable[[Learner], "bool | None"]


class Companion(Protocol):
    """What learns beside the networks, in every process: called after each iteration, kept in its checkpoints."""

    def __call__(self, learner: Learner) -> None:
        """After an iteration."""

    def finish(self, learner: Learner) -> None:
        """After the last one, before its checkpoint; leaves what a resumed run goes on with as it is."""

    def needs(self, learner: Learner) -> float:
        """How long :meth:`finish` takes, about [s]: it is part of the budget."""

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def train(
    env: VecEnv, config: PPOConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
    companion: Companion | None = None,
) -> Result:
    """Train on ``env`` until the budget is spent or ``on_iteration`` (of the first process) returns True.

    Checkpoints go to ``out/checkpoints``; ``resume`` continues from the last of them, or from the one given, as if the
    run had never stopped, but for the log's figures of the formula, which begin anew.

    ``seed`` is that of networks, actions and shuffles; ``env`` has its own.
    """
    out = Path(out)
    learner = start(env, config, seed, ranks)
    learner.companion = companion
    if resume:
        restore(learner, resume if isinstance(resume, Path) else _latest(out, ranks))
    rollout = allocate(learner)
    if isinstance(env, Env) and env.task.finite:
        learner.watch = Watch(env)
    loss = torch.compile(losses) if config.compile else losses
    passed = CLOCKS[config.clock]
    began, saved, stop = passed() - learner.seconds, time.monotonic(), _spent(learner)
    display = progress if progress is not None and ranks.is_first else nullcontext()
    with display, learner.workers, _threads_of_an_operation(config):
        while not stop:
            figures = iterate(learner, rollout, loss, out)
            if companion is not None:
                companion(learner)
            learner.seconds = ranks.of_first(passed() - began, learner.device)
            report(learner, rollout, figures, progress, logger)
            wished = bool(on_iteration(learner)) if on_iteration is not None and ranks.is_first else False
            stop = bool(ranks.of_first(wished or _spent(learner), learner.device))
            if stop and companion is not None:
                companion.finish(learner)
                learner.seconds = ranks.of_first(passed() - began, learner.device)
            due = stop or time.monotonic() - saved >= config.checkpoint_seconds
            if ranks.of_first(due, learner.device):
                keep(learner, out)
                saved = time.monotonic()
    return Result(learner.actor, learner.normalizer, learner.history)


def iterate(learner: Learner, rollout: Rollout, loss: Loss, out: Path) -> dict[str, float]:
    """One iteration: collect, estimate, improve. Returns figures about it."""
    began, health = time.monotonic(), _health(learner)
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
    curriculum = getattr(learner.env, "curriculum", None)
    if curriculum is not None:
        curriculum.update(learner.ranks.gathered)
        figures |= curriculum.metrics()
    if learner.watch is not None:
        figures |= learner.watch.figures()
    figures |= troubles(learner, health)
    return figures | {"collect_seconds": collected - began, "improve_seconds": time.monotonic() - collected}


def _health(learner: Learner) -> dict[str, int]:
    """What has gone wrong in the worlds of this process so far; nothing where the environment does not say."""
    ask = getattr(learner.env, "health", None)
    return dict(ask()) if ask is not None else {}


def troubles(learner: Learner, before: Mapping[str, int]) -> dict[str, float]:
    """What went wrong in the worlds of all processes since ``before``: faults, the simulator's warnings, and how many
    worlds lack room for contacts or constraints now.
    """
    now = _health(learner)
    if not now:
        return {}
    row = [now["faults"] - before["faults"], now["warnings"] - before["warnings"], now["overflow"]]
    rows = learner.ranks.gathered(torch.tensor([row], dtype=torch.float64, device=learner.device))
    return dict(zip(("faults", "warnings", "overflow"), rows.sum(0).tolist()))


@contextmanager
def _threads_of_an_operation(config: PPOConfig) -> Iterator[None]:
    """One thread in each operation of this thread too, and as before afterwards: sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads if config.compile else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def start(env: VecEnv, config: PPOConfig, seed: int, ranks: Ranks) -> Learner:
    """A learner at iteration 0 in a freshly reset environment."""
    if config.memory and env.num_worlds < config.minibatches:
        raise SettingsError(
            f"minibatches is {config.minibatches}, but a recurrent actor divides the {env.num_worlds} worlds into them")
    if config.minibatches > config.rollout_steps * env.num_worlds:
        raise SettingsError(f"minibatches is {config.minibatches}, but a rollout has {config.rollout_steps} steps of "
                         f"{env.num_worlds} worlds: choose at most their product")
    device = env.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = make_actor(env.obs_dim, env.action_dim, config.actor_hidden, name=config.activation,
                           init_std=config.init_std, hidden_dim=config.memory).to(device)
        critic = Critic(env.critic_dim, config.critic_hidden, config.activation).to(device)
    weights = flatten(actor, critic)
    ranks.copy_from_first([weights])
    stagger = getattr(env, "stagger", None)
    if config.stagger and stagger is None:
        raise SettingsError(f"stagger: {type(env).__name__} cannot cut its first episodes; leave it false")
    threads = config.threads if device.type == "cpu" and not config.compile else 1
    replicas = [replicate(actor, critic, own=i == 0) for i in range(threads)]
    if fused.serves(actor, config, device):
        replicas = [compiled(r, config.activation, row_width(env), weights) for r in replicas]
    parameter = torch.nn.Parameter(weights[:-1])  # of the optimizer: one operation for all
    parameter.grad = replicas[0].gradient[: -len(FIGURES)]
    n, first = env.num_worlds, env.reset()
    if config.stagger and stagger is not None:
        stagger()
    return Learner(
        config, env, ranks, seed, actor, critic,
        Normalizer(env.obs_dim).to(device), Normalizer(env.critic_dim).to(device),
        torch.optim.Adam([parameter], lr=config.learning_rate, eps=1e-5, fused=True),
        replicas, ThreadPoolExecutor(threads, "ppo", _one_thread),
        # distinct for (seed, rank); a world's own randomness is the environment's
        torch.Generator(device).manual_seed(seed * 65_537 + ranks.index),
        first, torch.zeros(n, config.memory, device=device), torch.zeros(n, device=device),
        Normalizer(1).to(device), config.learning_rate)


def flatten(actor: Actor, critic: Critic) -> Tensor:
    """All parameters as one tensor [P + 1] that they become views of; the last is zero."""
    parameters = [*actor.parameters(), *critic.parameters()]
    sizes = [p.numel() for p in parameters]
    flat = torch.cat([*(p.data.reshape(-1) for p in parameters), parameters[0].data.new_zeros(1)])
    for parameter, part in zip(parameters, flat.split([*sizes, 1])):
        parameter.data = part.view_as(parameter)
    return flat


def replicate(actor: Actor, critic: Critic, own: bool) -> Replica:
    """A replica of the networks (with ``own``: of themselves). An update of the parameters reaches all of them."""
    pair = (actor, critic) if own else copy.deepcopy((actor, critic))
    parameters = [p for module in pair for p in module.parameters()]
    sizes = [p.numel() for p in parameters]
    gradient = torch.zeros(sum(sizes) + len(FIGURES), device=actor.log_std.device)
    originals = [*actor.parameters(), *critic.parameters()]
    for parameter, original, part in zip(parameters, originals, gradient.split([*sizes, len(FIGURES)])):
        parameter.data = original.data
        parameter.grad = part.view_as(parameter)
    return Replica(*pair, gradient)


def compiled(replica: Replica, activation: str, width: int, weights: Tensor) -> Replica:
    """``replica`` with its compiled functions, for rows of ``width`` numbers."""
    actor, critic = replica.actor, replica.critic
    return replica._replace(
        fused=fused.Gradient(actor, critic, activation, width, weights, replica.gradient),
        forward=(fused.Forward(actor.net, activation), fused.Forward(critic.net, activation)))


def _one_thread() -> None:
    """Each worker computes alone: the threads of one operation would wait for each other after each operation."""
    torch.set_num_threads(1)


def in_parallel(learner: Learner, work: Callable[[Replica, Tensor], None], items: Tensor) -> None:
    """``work`` on an equal share of ``items`` [M] in each thread."""
    if len(learner.replicas) == 1:
        work(learner.replicas[0], items)
        return
    shares = items.tensor_split(len(learner.replicas))
    for future in [learner.workers.submit(work, r, share) for r, share in zip(learner.replicas, shares)]:
        future.result()


def allocate(learner: Learner) -> Rollout:
    """Storage for the rollouts of ``learner``."""
    env, t, n, device = learner.env, learner.config.rollout_steps, learner.env.num_worlds, learner.device
    return Rollout(
        torch.zeros(t, n, row_width(env), device=device), torch.zeros(t, n, env.action_dim, device=device),
        torch.zeros(t, n, device=device), torch.zeros(t, n, dtype=torch.bool, device=device),
        torch.zeros(t, n, dtype=torch.bool, device=device), torch.zeros_like(learner.hidden))


def row_width(env: VecEnv) -> int:
    """Numbers in a row of a rollout's table (:func:`columns`)."""
    return env.obs_dim + env.critic_dim + 2 * env.action_dim + 5


def _columns(learner: Learner, table: Tensor) -> Batch:
    return columns(table, learner.env.obs_dim, learner.env.critic_dim, learner.env.action_dim)


def _autocast(learner: Learner) -> torch.autocast:
    return torch.autocast(learner.device.type, torch.bfloat16, enabled=learner.config.precision == "bfloat16")


# ---------------------------------------------------------------- data


@torch.no_grad()
def collect(learner: Learner, rollout: Rollout) -> None:
    """Act for T steps. Observations are stored raw: their statistics are taken before they are normalized."""
    batch = _columns(learner, rollout.table)
    rollout.noise.normal_(generator=learner.generator)
    scaled_noise = rollout.noise * learner.actor.log_std.exp()
    rollout.hidden.copy_(learner.hidden)
    rollout.cut.clear()
    episodes: dict[str, Tensor] = {}
    for t in range(len(rollout.table)):
        batch.obs[t] = learner.obs.actor
        batch.critic_obs[t] = learner.obs.critic
        mean = act(learner, batch.obs[t])
        action = mean + scaled_noise[t]
        batch.mean[t] = mean
        batch.action[t] = action
        step = learner.env.step(action)
        rollout.reward[t] = step.reward
        rollout.terminated[t] = step.terminated
        rollout.truncated[t] = step.truncated
        learner.obs = step.obs
        if learner.watch is not None:
            learner.watch(step)
        ended = (step.terminated | step.truncated).nonzero()[:, 0]
        if len(ended):
            cut = step.truncated.nonzero()[:, 0]
            if len(cut):
                rollout.cut.append((t, cut, step.final_obs.critic[cut]))
            _count_episodes(episodes, step.info, ended)
            learner.hidden[ended] = 0.0
    rollout.episodes = episodes or rollout.episodes


def take_weights(learner: Learner) -> None:
    """Act with the weights of now."""
    for network in (f for replica in learner.replicas for f in replica.forward or ()):
        network.take()


def act(learner: Learner, obs: Tensor) -> Tensor:
    """Mean actions [N, A] for raw observations [N, O]; moves the hidden state on."""
    obs = learner.normalizer(obs)
    if learner.replicas[0].forward is not None:
        return learner.replicas[0].forward[0](obs)
    with _autocast(learner):
        if isinstance(learner.actor, RecurrentActor):
            mean, hidden = learner.actor(obs, learner.hidden)
            learner.hidden = hidden.float()
        else:
            mean = learner.actor(obs)
    return mean.float()


def _count_episodes(sums: dict[str, Tensor], info: Mapping[str, Any], ended: Tensor) -> None:
    """Add the figures [N] in ``info`` of the worlds ``ended`` [K], of whole episodes only."""
    if "midway" in info:
        ended = ended[~info["midway"][ended]]
    if not len(ended):
        return
    for name, value in info.items():
        name = name.removeprefix("episode_")
        if isinstance(value, Tensor) and value.ndim == 1 and name != "midway":
            total = value[ended].double().sum()
            sums[name] = sums[name] + total if name in sums else total
    count = torch.tensor(float(len(ended)), dtype=torch.float64, device=ended.device)
    sums["count"] = sums["count"] + count if "count" in sums else count


# ---------------------------------------------------------------- advantages


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, done: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Generalized advantage estimates [T, N].

    ``next_value`` [T, N] is the value of the true successor of each step: 0 where the episode terminated, that of the
    last state where it was truncated. ``done`` [T, N]: the next row belongs to another episode.
    """
    delta = reward + gamma * next_value - value
    carry = gamma * gae_lambda * (~done).to(value.dtype)
    advantage = torch.empty_like(delta)
    last = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        last = torch.addcmul(delta[t], carry[t], last, out=advantage[t])
    return advantage


@torch.no_grad()
def take_statistics(learner: Learner, rollout: Rollout) -> None:
    """Moments of the raw observations and of the discounted return, over all processes."""
    config, batch = learner.config, _columns(learner, rollout.table)
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
    """Enter the statistics of a rollout, once it is no longer needed: acting and learning must normalize alike."""
    for name, batch in rollout.moments.items():
        getattr(learner, name).update(batch)


@torch.no_grad()
def estimate_advantages(learner: Learner, rollout: Rollout) -> dict[str, float]:
    """Normalize the observations in place and fill the columns that the update needs."""
    config, batch = learner.config, _columns(learner, rollout.table)
    done = rollout.terminated | rollout.truncated
    value = torch.empty_like(rollout.reward)

    @torch.no_grad()
    def prepare(replica: Replica, times: Tensor) -> None:
        for t in times.tolist():
            learner.normalizer.normalize_(batch.obs[t])
            learner.critic_normalizer.normalize_(batch.critic_obs[t])
            value[t] = evaluate(learner, batch.critic_obs[t], replica)
            batch.log_prob[t] = Gaussian(batch.mean[t], learner.actor.log_std).log_prob(batch.action[t])

    in_parallel(learner, prepare, torch.arange(len(value)))
    next_value = torch.empty_like(value)
    next_value[:-1] = value[1:]
    own = learner.replicas[0]
    next_value[-1] = evaluate(learner, learner.critic_normalizer(learner.obs.critic), own)
    for t, worlds, final in rollout.cut:  # not value[t + 1]: that is of the next episode
        next_value[t, worlds] = evaluate(learner, learner.critic_normalizer(final), own)
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


def evaluate(learner: Learner, critic_obs: Tensor, replica: Replica) -> Tensor:
    """Values [N] of normalized ``critic_obs`` [N, C]."""
    if replica.forward is not None:
        return replica.forward[1](critic_obs)[:, 0]
    with _autocast(learner):
        return replica.critic(critic_obs).float()


def standardized(values: Tensor, ranks: Ranks) -> Tensor:
    """``values`` shifted and scaled to mean 0 and standard deviation 1 over all processes."""
    total = ranks.merged(moments(values.reshape(-1, 1)))
    return (values - total.mean.to(values.dtype)) / (total.var.sqrt() + 1e-8).to(values.dtype)


# ---------------------------------------------------------------- update


def losses(
    actor: Actor, critic: Critic, batch: Batch, hidden: Tensor, old_log_std: Tensor, config: PPOConfig
) -> Tensor:
    """FIGURES [4] of a batch; the first is what is minimized. Rows [B, .], or windows [T, B, .] (recurrent)."""
    with torch.autocast(batch.obs.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        if isinstance(actor, RecurrentActor):
            mean = actor.unroll(batch.obs, hidden, batch.first > 0)
        else:
            mean = actor(batch.obs)
        value = critic(batch.critic_obs)
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
    """The epochs of minibatches on one rollout. Returns the means of what it saw."""
    config = learner.config
    axis = 1 if config.memory else 0  # a recurrent actor learns from whole windows of a world, else any row will do
    table = rollout.table if axis else rollout.table.flatten(0, 1)
    old_log_std = learner.actor.log_std.detach().clone()
    seen = []
    for _ in range(config.epochs):
        order = torch.randperm(table.shape[axis], generator=learner.generator, device=learner.device)
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
    size = max(1, CHUNK // (len(table) if axis else 1))

    def work(replica: Replica, share: Tensor) -> None:
        if replica.fused is not None:
            figures = replica.fused(table, share, len(chosen), old_log_std, learner.config)
            replica.gradient[-len(FIGURES) :] = figures
            return
        replica.gradient.zero_()
        if not len(share):  # fewer rows than workers
            return
        for part in share.split(size):
            batch = _columns(learner, table.index_select(axis, part))
            hidden = rollout.hidden[part] if axis else rollout.hidden
            figures = loss(replica.actor, replica.critic, batch, hidden, old_log_std, learner.config)
            figures = figures * (len(part) / len(chosen))
            figures[0].backward()
            replica.gradient[-len(FIGURES) :] += figures.detach()

    in_parallel(learner, work, chosen)
    for other in learner.replicas[1:]:
        learner.replicas[0].gradient.add_(other.gradient)


def descend(learner: Learner, gradient: Tensor, minibatch: Callable[[], Tensor], out: Path) -> list[float]:
    """One step of the optimizer. Returns FIGURES and the gradient's norm, means over the processes."""
    config = learner.config
    learner.ranks.mean_(gradient)  # one message: gradients and figures
    slopes = gradient[: -len(FIGURES)]
    norm = torch.linalg.vector_norm(slopes)
    values: list[float] = torch.cat([gradient[-len(FIGURES) :], norm[None]]).tolist()
    if not all(map(math.isfinite, values)):
        raise NonFiniteError(_dump(learner, minibatch(), values, out))
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
    """Standardize the advantages of a minibatch in the table (of an affine map of them it gives the same)."""
    advantage = _columns(learner, table).advantage
    advantage.index_copy_(axis, chosen, standardized(advantage.index_select(axis, chosen), learner.ranks))


def next_learning_rate(learner: Learner, kl: float) -> float:
    """The learning rate for this step, given the divergence [nats] that the steps before it caused."""
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
    """The largest deviation that actions may have now; None: any."""
    config = learner.config
    if config.max_std is None or config.final_std is None:
        return config.max_std
    return config.max_std * float((config.final_std / config.max_std) ** max(2.0 * fraction_spent(learner) - 1.0, 0.0))


def fraction_spent(learner: Learner) -> float:
    """Share of the budget used before this iteration, whichever of steps and seconds is further: 0 to 1."""
    config = learner.config
    fraction = learner.steps / config.total_steps
    if config.max_seconds is not None:
        fraction = max(fraction, learner.seconds / config.max_seconds)
    return min(1.0, fraction)


def _dump(learner: Learner, minibatch: Tensor, values: list[float], out: Path) -> str:
    """Save what is needed to find the cause, and say where and what."""
    batch = _columns(learner, minibatch)
    path = out / f"nonfinite.rank{learner.ranks.index}.pt"
    names = (*FIGURES, "gradient_norm")
    checkpoint.save(path, {
        "batch": {k: v.detach().clone() for k, v in batch._asdict().items()},
        "figures": dict(zip(names, values)), "iteration": learner.iteration, "steps": learner.steps,
        "learning_rate": learner.learning_rate, **_modules(learner)})
    wrong = [n for n, v in zip(names, values) if not math.isfinite(v)]
    inputs = [k for k, v in batch._asdict().items() if not torch.isfinite(v).all()]
    cause = f"non-finite inputs: {', '.join(inputs)}" if inputs else "all inputs are finite: a step was too large"
    return (f"iteration {learner.iteration}: {', '.join(wrong)} not finite ({cause}); the minibatch, networks and "
            f"optimizer are in {path}, the last good state in {out / 'checkpoints'}")


# ---------------------------------------------------------------- reporting and resuming


def _spent(learner: Learner) -> bool:
    config, needed = learner.config, 0.0
    if learner.companion is not None and learner.iteration:
        needed = learner.companion.needs(learner)
    return learner.steps >= config.total_steps or (
        config.max_seconds is not None and learner.seconds + needed >= config.max_seconds)


def report(
    learner: Learner, rollout: Rollout, figures: dict[str, float], display: Progress | None, logger: Logger | None
) -> None:
    """Enter an iteration into the history, the display and the log."""
    before = learner.history[-1] if learner.history else {"steps": 0.0, "seconds": 0.0}
    fraction = fraction_spent(learner)
    row = {
        "iteration": float(learner.iteration), "steps": float(learner.steps), "seconds": learner.seconds,
        "rate": (learner.steps - before["steps"]) / max(learner.seconds - before["seconds"], 1e-9),
        "fraction": fraction, "eta": max(0.0, learner.seconds * (1.0 / fraction - 1.0)),
        "reward": float(rollout.reward.mean()), "std": float(learner.actor.log_std.detach().exp().mean()),
        **_episode_means(learner, rollout), **figures}
    learner.history.append(row)
    for listener in (display, partial(logger, learner.steps) if logger else None):
        if listener is not None and learner.ranks.is_first:
            listener(row)


def _episode_means(learner: Learner, rollout: Rollout) -> dict[str, float]:
    """Means over the whole episodes that ended, and their number: of this process' last rollout in which any did."""
    sums = {k: float(v) for k, v in rollout.episodes.items()}
    count = sums.pop("count", 0.0)
    return {"episodes": count, **{k: v / max(count, 1.0) for k, v in sums.items()}}


def _modules(learner: Learner) -> dict[str, Any]:
    names = ("actor", "critic", "normalizer", "critic_normalizer", "return_moments", "optimizer")
    return {name: getattr(learner, name).state_dict() for name in names}


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint of this process and remove those before the last."""
    folder, ranks = Path(out) / "checkpoints", learner.ranks
    cuda = torch.cuda.get_rng_state(learner.device) if learner.device.type == "cuda" else None
    checkpoint.save(checkpoint.file_of(folder, learner.iteration, ranks.index, ranks.size), {
        "kind": KIND, "config": _plain(learner.config), "sizes": _sizes(learner.env), "seed": learner.seed,
        **_modules(learner), "learning_rate": learner.learning_rate, "iteration": learner.iteration,
        "steps": learner.steps, "seconds": learner.seconds, "history": learner.history,
        "generator": learner.generator.get_state(), "torch_rng": torch.get_rng_state(), "cuda_rng": cuda,
        "env": learner.env.state_dict(), "obs": list(learner.obs), "hidden": learner.hidden,
        "running_return": learner.running_return,
        "companion": None if learner.companion is None else learner.companion.state_dict()})
    ranks.wait()  # all processes have this iteration before any forgets an older one
    checkpoint.prune(folder, ranks.index, ranks.size)


KIND = "temporeal ppo 2"
UNSAID = {"stagger": False}
"""Settings that checkpoints of before do not have, as they were then."""


def restore(learner: Learner, path: Path) -> None:
    """Put ``learner`` where the checkpoint ``path`` was written."""
    state = _read(path)
    _require_same(path, "environment", state["sizes"], _sizes(learner.env))
    was, now = ({k: v for k, v in c.items() if k not in MAY_CHANGE} for c in (state["config"], _plain(learner.config)))
    _require_same(path, "configuration", was, now)
    _require_same(path, "run", {"seed": state["seed"]}, {"seed": learner.seed})
    for name in ("actor", "critic", "normalizer", "critic_normalizer", "return_moments", "optimizer"):
        getattr(learner, name).load_state_dict(state[name])
    for name in ("learning_rate", "iteration", "steps", "seconds", "history"):
        setattr(learner, name, state[name])
    if learner.companion is not None:
        learner.companion.load_state_dict(state["companion"])
    device = learner.device
    learner.generator.set_state(state["generator"])
    torch.set_rng_state(state["torch_rng"])
    if state["cuda_rng"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda_rng"], device)
    try:
        learner.env.load_state_dict(_to(state["env"], device))
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    learner.obs = Obs(*_to(state["obs"], device))
    learner.hidden, learner.running_return = _to([state["hidden"], state["running_return"]], device)


def load_policy(path: Path, device: str = "cpu") -> tuple[Actor, Normalizer, PPOConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return policy_of(read_last(path), PPOConfig, device)


def policy_of(state: Mapping[str, Any], kind: type[C], device: str) -> tuple[Actor, Normalizer, C]:
    """Actor, normalizer and configuration, a ``kind``, of the checkpoint ``state``."""
    config = config_of(state, kind)
    actor = make_actor(state["sizes"]["obs_dim"], state["sizes"]["action_dim"], config.actor_hidden,
                       name=config.activation, init_std=config.init_std, hidden_dim=config.memory)
    normalizer = Normalizer(state["sizes"]["obs_dim"])
    actor.load_state_dict(state["actor"])
    normalizer.load_state_dict(state["normalizer"])
    return actor.to(device), normalizer.to(device), config


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
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if set(state["config"]) != known:
        raise checkpoint.CheckpointError(
            f"{state['path']} was written by another version: settings {sorted(set(state['config']) ^ known)} differ")
    return kind(**state["config"])


def _read(path: Path) -> dict[str, Any]:
    state = checkpoint.load(path)  # to the CPU: random states stay there, load_state_dict moves the rest
    if state.get("kind") != KIND:
        raise checkpoint.CheckpointError(f"{path} is not of this PPO: its kind is {state.get('kind')!r}, not {KIND!r}")
    return {**state, "config": {**UNSAID, **state["config"]}}


def _latest(out: Path, ranks: Ranks) -> Path:
    return checkpoint.latest(out / "checkpoints", ranks.index, ranks.size)


def _plain(config: PPOConfig) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def _sizes(env: VecEnv) -> dict[str, int]:
    return {k: int(getattr(env, k)) for k in ("num_worlds", "obs_dim", "critic_dim", "action_dim")}


def _require_same(path: Path, what: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    different = [f"{k} {was.get(k)!r} -> {now.get(k)!r}" for k in {**was, **now} if was.get(k) != now.get(k)]
    if different:
        raise checkpoint.CheckpointError(
            f"{path} cannot be resumed: the {what} differs ({'; '.join(different)}); "
            f"only {', '.join(MAY_CHANGE)} may change")


def _to(value: Any, device: torch.device) -> Any:
    """``value`` with all tensors in it on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {k: _to(v, device) for k, v in value.items()}
    return [_to(v, device) for v in value] if isinstance(value, (list, tuple)) else value
