"""The state of a PPO run: its settings, the learner with its networks and workers, and storage for rollouts.

The algorithm is :mod:`temporeal.policies.algos.ppo`; checkpoints are :mod:`temporeal.policies.training.ppo_checkpoint`.

T time, N worlds, B rows, O / C observation of actor / critic, A action. All tensors on the environment's device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from temporeal.policies.nets.actor import (
    ACTIVATIONS,
    Actor,
    Critic,
    SeeingActor,
    begin_at_zero,
    make_actor,
    make_critic,
)
from temporeal.policies.nets.normalizer import Moments, Normalizer
from temporeal.policies.nets.sets import SetActor, SetCritic
from temporeal.policies.training.compiled_gradient.networks import Forward, Gradient, serves
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.formula_metrics import FormulaMetrics
from temporeal.policies.training.progress import CLOCKS
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.types import Obs, VecEnv

SCHEDULES = ("constant", "linear", "adaptive")
PRECISIONS = ("float32", "bfloat16")
ADVANTAGES = ("batch", "minibatch", "none")
FIGURES = ("loss", "kl", "policy_loss", "value_loss")  # of an update


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
    # what max_std falls to over the second half of the time to learn, in equal ratios: what is deployed does not
    # explore, and must not need it to cross an edge. None: it does not fall
    final_std: float | None = None
    memory: int = 0  # hidden units of a recurrent (GRU) actor; 0: feed-forward
    # a warm start (:mod:`temporeal.policies.training.warm_starts.ppo_start`)
    adapt: str = ""  # folder of the run whose policy this one begins as; "": it begins anew
    adapters: int = 0  # rank of what is learned beside its frozen layers; 0, and modulate false: all weights go on
    modulate: bool = False  # a scale of each output of its frozen layers is learned
    # pictures, where there are cameras
    hide: Sequence[str] = ()  # signals that the actor must find in the pictures; the critic is given their true values
    keypoints: int = 16  # features whose places are found in each picture
    # pixels by which each picture is moved at random, anew in each epoch (DrQ). The ratio of probabilities then starts
    # near 1 and not at 1: what acts sees pictures as they are, or as ``augment`` makes them
    shift: int = 0
    critic_sees: bool = False  # the critic reads what the eyes found, besides its observation
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
                     "clip", "max_grad_norm", "init_std", "min_learning_rate", "keypoints"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("max_seconds", "value_clip", "max_std", "final_std"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive or null, got {getattr(self, name)}")
        for name in ("memory", "checkpoint_seconds", "value_coef", "entropy_coef", "shift", "adapters"):
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
        object.__setattr__(self, "hide", tuple(self.hide))


class Batch(NamedTuple):
    """Data of each step for an update. Columns of one table [..., F], so that a shuffle is one gather."""

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
    pictures: dict[str, Tensor]  # [T, N, H, W, 3] uint8: as many bytes as the cameras gave
    seen: Tensor  # [T, N, F] what the eyes found in them when the policy acted; F = 0 unless the critic reads it
    move: Tensor  # [2, T * N] pixels by which each is shifted in this epoch; [2, 0]: not
    # (t, worlds [K], true successor [K, C], what the eyes found there [K, F])
    cut: list[tuple[int, Tensor, Tensor, Tensor]] = field(default_factory=list)
    # sums over the whole episodes of the last rollout in which any ended; "count" of them
    episodes: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, Moments] = field(default_factory=dict)  # of the rollout, by the learner's normalizer


class Replica(NamedTuple):
    """Networks that share their parameters with all replicas, and have their own gradient."""

    actor: Actor
    critic: Critic | SetCritic
    gradient: Tensor  # [P + 4]: all gradients (the parameters' ``grad`` are views), then FIGURES
    # compiled, where they can be: the derivative, the actor and the critic
    derivative: Gradient | None = None
    forward: tuple[Forward, Forward] | None = None


@dataclass
class Learner:
    """All state of a run, as in its checkpoints."""

    config: PPOConfig
    env: VecEnv
    ranks: Ranks
    seed: int
    actor: Actor
    critic: Critic | SetCritic
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
    finish_seconds: float = 0.0  # that its end will take, about
    metrics: FormulaMetrics | None = None  # None unless the task is a finite formula
    began: str = ""  # digest of the policy that it began as; "": none

    @property
    def device(self) -> torch.device:
        return self.env.device


class Companion(Protocol):
    """A second learner beside the networks, in every process: called after each iteration, saved in checkpoints."""

    finished: bool
    """Whether no iteration came after :meth:`finish`."""

    def __call__(self, learner: Learner, rollout: Rollout) -> None:
        """Called after an iteration, with the rollout that it learned from."""

    def finish(self, learner: Learner) -> None:
        """Called after the last iteration of a run whose budget is spent, and its checkpoint; leaves the state that a
        resumed run continues from unchanged."""

    def needs(self, learner: Learner) -> float:
        """Estimated duration of :meth:`finish` [s], which is part of the budget."""

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


def start(env: VecEnv, config: PPOConfig, seed: int, ranks: Ranks) -> Learner:
    """A learner at iteration 0 in a freshly reset environment."""
    if config.memory and env.num_worlds < config.minibatches:
        raise SettingsError(
            f"minibatches is {config.minibatches}, but a recurrent actor divides the {env.num_worlds} worlds into them")
    if config.minibatches > config.rollout_steps * env.num_worlds:
        raise SettingsError(f"minibatches is {config.minibatches}, but a rollout has {config.rollout_steps} steps of "
                         f"{env.num_worlds} worlds: choose at most their product")
    device, first = env.device, env.reset()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = make_actor(
            env.obs_dim, env.action_dim, config.actor_hidden, name=config.activation, init_std=config.init_std,
            hidden_dim=config.memory, pictures=shown_pictures(first, config.memory), keypoints=config.keypoints,
            elements=env.capabilities.elements).to(device)
        if env.capabilities.zero_start:
            begin_at_zero(actor)
        critic = make_critic(
            env.critic_dim + seen_dim(actor, config), config.critic_hidden, config.activation,
            env.capabilities.elements if isinstance(actor, SetActor) else None).to(device)
    weights = flatten(actor, critic)
    ranks.copy_from_first([weights])
    stagger = env.capabilities.stagger
    if config.stagger and stagger is None:
        raise SettingsError(f"stagger: {type(env).__name__} cannot cut its first episodes; leave it false")
    threads = config.threads if device.type == "cpu" and not config.compile else 1
    replicas = [replicate(actor, critic, own=i == 0) for i in range(threads)]
    if not isinstance(actor, SeeingActor | SetActor) and serves(actor, config, device):
        replicas = [compiled(r, config.activation, row_width(env), weights) for r in replicas]
    parameter = torch.nn.Parameter(weights[:-1])  # of the optimizer: one operation for all
    parameter.grad = replicas[0].gradient[: -len(FIGURES)]
    n = env.num_worlds
    if config.stagger and stagger is not None:
        stagger()
    return Learner(
        config, env, ranks, seed, actor, critic,
        Normalizer(env.obs_dim).to(device), Normalizer(env.critic_dim).to(device),
        torch.optim.Adam([parameter], lr=config.learning_rate, eps=1e-5, fused=True),
        replicas, ThreadPoolExecutor(threads, "ppo", _one_thread),
        # distinct for (seed, rank), of any size; a world's own randomness is the environment's
        torch.Generator(device).manual_seed((seed * 65_537 + ranks.index) & 0x7FFF_FFFF_FFFF_FFFF),
        first, torch.zeros(n, config.memory, device=device), torch.zeros(n, device=device),
        Normalizer(1).to(device), config.learning_rate)


def shown_pictures(obs: Obs, memory: int = 0) -> dict[str, tuple[int, ...]]:
    """Shapes (H, W, 3) of the pictures that the actor reads, by name: all in colour; depth is not read. ``memory``:
    hidden units of a recurrent actor.

    Raises:
        SettingsError: cameras that give depth alone, or pictures for a recurrent actor.
    """
    found = {name: tuple(value.shape[1:]) for name, value in obs.images.items() if value.dtype == torch.uint8}
    if obs.images and not found:
        raise SettingsError(f"cameras: {', '.join(obs.images)}: a policy reads pictures in colour, and there are none: "
                            "kinds=[rgb]")
    if found and memory:
        raise SettingsError(f"memory is {memory}, but a recurrent actor reads no pictures ({', '.join(found)}): "
                            "leave the cameras out, or memory=0")
    return found


def seen_dim(actor: Actor, config: PPOConfig) -> int:
    """Numbers F of what the eyes found that the critic reads."""
    return actor.seen_dim if isinstance(actor, SeeingActor) and config.critic_sees else 0


def flatten(actor: Actor, critic: Critic) -> Tensor:
    """All parameters as one tensor [P + 1], of which they become views; the last entry is zero."""
    parameters = [*actor.parameters(), *critic.parameters()]
    sizes = [p.numel() for p in parameters]
    flat = torch.cat([*(p.data.reshape(-1) for p in parameters), parameters[0].data.new_zeros(1)])
    for parameter, part in zip(parameters, flat.split([*sizes, 1])):
        parameter.data = part.view_as(parameter)
    return flat


def replicate(actor: Actor, critic: Critic, own: bool) -> Replica:
    """A replica of the networks (with ``own``, the networks themselves). A parameter update reaches all of them."""
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
        derivative=Gradient(actor, critic, activation, width, weights, replica.gradient),
        forward=(Forward(actor.net, activation), Forward(critic.net, activation)))


def _one_thread() -> None:
    """Set one thread per operation in a worker: several would wait for each other after each operation."""
    torch.set_num_threads(1)


def in_parallel(learner: Learner, work: Callable[[Replica, Tensor], None], items: Tensor) -> None:
    """Run ``work`` on an equal share of ``items`` [M] in each thread."""
    if len(learner.replicas) == 1:
        work(learner.replicas[0], items)
        return
    shares = items.tensor_split(len(learner.replicas))
    for future in [learner.workers.submit(work, r, share) for r, share in zip(learner.replicas, shares)]:
        future.result()


def allocate(learner: Learner) -> Rollout:
    """Storage for the rollouts of ``learner``."""
    env, t, n, device = learner.env, learner.config.rollout_steps, learner.env.num_worlds, learner.device
    pictures = getattr(learner.actor, "pictures", {})
    return Rollout(
        torch.zeros(t, n, row_width(env), device=device), torch.zeros(t, n, env.action_dim, device=device),
        torch.zeros(t, n, device=device), torch.zeros(t, n, dtype=torch.bool, device=device),
        torch.zeros(t, n, dtype=torch.bool, device=device), torch.zeros_like(learner.hidden),
        {name: torch.zeros(t, n, *shape, dtype=torch.uint8, device=device) for name, shape in pictures.items()},
        torch.zeros(t, n, seen_dim(learner.actor, learner.config), device=device),
        torch.zeros(2, 0, dtype=torch.int64, device=device))


def row_width(env: VecEnv) -> int:
    """Numbers in a row of a rollout's table (:func:`columns`)."""
    return env.obs_dim + env.critic_dim + 2 * env.action_dim + 5


def columns_of(learner: Learner, table: Tensor) -> Batch:
    """:func:`columns` of the learner's sizes."""
    return columns(table, learner.env.obs_dim, learner.env.critic_dim, learner.env.action_dim)


def autocast(learner: Learner) -> torch.autocast:
    """The precision context of the learner's networks."""
    return torch.autocast(learner.device.type, torch.bfloat16, enabled=learner.config.precision == "bfloat16")


def fraction_spent(learner: Learner) -> float:
    """Share of the learning budget used so far, 0 to 1: the larger one of steps and seconds.

    The same in all processes, because learning rate and deviation follow it.
    """
    config = learner.config
    fraction = learner.steps / config.total_steps
    if config.max_seconds is not None:
        fraction = max(fraction, learner.seconds / max(config.max_seconds - learner.finish_seconds, 1e-9))
    return min(1.0, fraction)
