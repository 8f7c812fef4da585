"""A reflex for a trained policy: a safety critic evaluated at each control step, and an action that replaces a risky
one.

Bresa (H. Zhang, G. Solak, A. Ajoudani, "Bio-inspired Reflexive Safe Reinforcement Learning for Contact-Rich Robotic
Tasks", arXiv 2503.21989): the task policy decides slowly; a critic of the risk is evaluated at the faster rate of the
low-level control. Where the risk of the task's action exceeds a threshold, a reflex replaces the action until the risk
is low again. No code of it is public. The critic is that of Recovery RL (Thananjeyan et al., RA-L 2021, arXiv
2010.15920): the discounted probability that a constraint will be violated, a violation being absorbing,

    Q(s, a) = c + (1 - c) gamma E[Q(s', a')],     c: violated at s',  a': the task policy's action at s'

The reflex is the deterministic policy that minimizes it (Silver et al., ICML 2014). Both use the larger of two critics
(Fujimoto et al., TD3, ICML 2018), so that errors overestimate the risk.

The constraint is the task's formula itself: its parts G[0,b] p, so that one formula is reward, test, monitor and
reflex. The risk is that of going on without a reflex. It does not depend on the threshold, which may be chosen
afterwards. Violations are replayed as often as they occur, not more often as in Recovery RL: that overestimates the
risk wherever the critic is uncertain, and a reflex without need is a risk itself.

The task network is evaluated every ``every`` control steps and its action is held meanwhile; the risk of the held
action under the newest observation is evaluated at each step. N worlds, O observation, A action, S = O + A + 1 state of
the reflex. """

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from temporeal.policies.nets.actor import ACTIVATIONS
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training import checkpoint, policy_graphs
from temporeal.policies.training.budget import fraction_spent, spend
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.progress import CLOCKS, Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.reflex_policy import Reflex, ReflexGraph
from temporeal.robots.artifact.manifest import ENGAGED, HELD, ReflexSpec
from temporeal.sim.maps import Memory, PolicyGraph
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import clauses, is_temporal
from temporeal.sim.stl.language.temporal import Always
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.stl.semantics.torch_ops import margin_function
from temporeal.sim.task import MISSION_TIME, Task
from temporeal.sim.types import TaskEnv

EPS = 1e-6  # s: windows are closed, sample times are rounded multiples of the control period


@dataclass(frozen=True)
class ReflexConfig:
    """Settings. ``configs/algo/reflex.yaml`` has the same names."""

    policy: str = ""  # folder of the run whose policy gets the reflex
    # deployment
    every: int = 1  # control steps between evaluations of the task network, whose action is held meanwhile
    threshold: float = 0.1  # risk of the task's action above which the reflex takes over
    release: float = 0.05  # risk at which it lets go
    # what is learned
    lookahead_s: float = 0.5  # a violation so far ahead counts 1/e: the discount is exp(-control_dt / lookahead_s)
    stay: float = 0.03  # weight of the squared distance of the reflex' action from the task's
    # budget: the run ends at whichever is reached first
    updates: int = 8000  # of the critics and the reflex
    max_seconds: float | None = None  # of ``clock``, earlier parts of a resumed run included
    clock: str = "wall"  # or cpu: time that this process computes
    # data
    rollout_steps: int = 4  # control steps of each world between updates
    gradient_steps: int = 16  # updates between rollouts
    warmup: int = 50  # control steps of each world before the first update
    rows: int = 300_000  # control steps of all worlds that are remembered
    batch: int = 1024  # steps of an update
    dwell: int = 15  # control steps on average before a world changes who acts in it
    noise: float = 0.3  # largest standard deviation of the noise on actions; each world draws its own
    # steps
    learning_rate: float = 1e-3  # of Adam, falls linearly ...
    learning_rate_end: float = 1e-4  # ... to this
    target_rate: float = 0.01  # how far the target critics move to the critics at each update
    hidden: Sequence[int] = (64, 64)
    activation: str = "silu"
    checkpoint_seconds: float = 60.0  # between checkpoints; 0: after each iteration

    def __post_init__(self) -> None:
        self.spec  # noqa: B018 (checks every, threshold, release)
        for name, legal in (("activation", tuple(ACTIVATIONS)), ("clock", tuple(CLOCKS))):
            if getattr(self, name) not in legal:
                raise ValueError(f"{name} is {getattr(self, name)!r}; legal: {', '.join(legal)}")
        for name in ("lookahead_s", "updates", "rollout_steps", "gradient_steps", "warmup", "rows", "batch", "dwell",
                     "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("stay", "noise", "learning_rate_end", "checkpoint_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 < self.target_rate <= 1:
            raise ValueError(f"target_rate is above 0 and at most 1, got {self.target_rate}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive or null, got {self.max_seconds}")
        widths = tuple(self.hidden)
        if not widths or min(widths) < 1:
            raise ValueError(f"hidden is a list of layer widths, at least one, all positive; got {list(widths)}")
        object.__setattr__(self, "hidden", widths)

    @property
    def spec(self) -> ReflexSpec:
        """Its part of the artifact's manifest."""
        return ReflexSpec(self.every, self.threshold, self.release)


class Constraint:
    """The parts G[0,b] p of a formula, p without windows: constraints from the start on.

    A G whose window opens later is a goal to be reached by then, not a constraint before.
    """

    def __init__(self, formula: Formula) -> None:
        parts = [part for _, part in clauses(positive(formula))]
        kept = [p for p in parts if isinstance(p, Always) and p.window.lo <= EPS and not is_temporal(p.arg)]
        if not kept:
            raise SettingsError(f"a reflex keeps what the formula says must always hold, a part G[0,b] p without "
                                f"windows in p; there is none in: {formula}")
        self.kept = [(p.window.hi, margin_function(p.arg)) for p in kept]

    def margin(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The least margin [N] of the constraints at this sample, violated below 0; infinite without active ones."""
        time = signals[MISSION_TIME.name]
        return reduce(torch.minimum, [torch.where(time <= end + EPS, value(signals), torch.inf)
                                      for end, value in self.kept])


class Batch(NamedTuple):
    """B control steps."""

    state: Tensor  # [B, S]
    held: Tensor  # [B, A] what the task wanted
    action: Tensor  # [B, A] what was done
    cost: Tensor  # [B] 1 where that led to a violation
    over: Tensor  # [B] 1 where nothing comes after
    after: Tensor  # [B, S]
    wanted: Tensor  # [B, A] what the task wanted then


class Steps:
    """The last control steps of all worlds: columns [T, N, ...]; row ``at`` is written next."""

    def __init__(self, rows: int, worlds: int, obs_dim: int, action_dim: int) -> None:
        self.length = max(rows // worlds, 3)
        self.columns = {"obs": torch.zeros(self.length, worlds, obs_dim), "phase": torch.zeros(self.length, worlds),
                        "held": torch.zeros(self.length, worlds, action_dim),
                        "action": torch.zeros(self.length, worlds, action_dim),
                        "cost": torch.zeros(self.length, worlds), "over": torch.zeros(self.length, worlds),
                        "cut": torch.zeros(self.length, worlds)}
        self.at = self.count = 0

    def add(self, **values: Tensor) -> None:
        """Add one step of each world, by column."""
        for name, value in values.items():
            self.columns[name][self.at] = value
        self.at, self.count = (self.at + 1) % self.length, min(self.count + 1, self.length)

    def usable(self) -> Tensor:
        """Row numbers [R] whose next row is known."""
        first = self.at if self.count == self.length else 0
        return (first + torch.arange(self.count - 1)) % self.length

    def take(self, rows: Tensor, worlds: Tensor, reflex: Reflex) -> Batch:
        """The steps at ``rows`` [B] of ``worlds`` [B], without those at which an episode was truncated."""
        keep = self.columns["cut"][rows, worlds] < 0.5
        rows, worlds = rows[keep], worlds[keep]
        now = {name: column[rows, worlds] for name, column in self.columns.items()}
        then = {name: self.columns[name][(rows + 1) % self.length, worlds] for name in ("obs", "held", "phase")}
        return Batch(reflex.state(now["obs"], now["held"], now["phase"]), now["held"], now["action"], now["cost"],
                     now["over"], reflex.state(then["obs"], then["held"], then["phase"]), then["held"])


TASK, DEPLOYED, REFLEXIVE, RANDOM = range(4)  # who acts in a world while data are gathered
SHARES = (0.35, 0.25, 0.25, 0.15)


@dataclass
class Learner:
    """All state of a run, as in its checkpoints."""

    config: ReflexConfig
    env: TaskEnv
    graph: ReflexGraph
    seed: int
    target: Reflex
    optimizers: dict[str, torch.optim.Adam]
    constraint: Constraint
    steps: Steps
    generator: torch.Generator
    obs: Tensor  # [N, O]
    carried: Memory
    who: Tensor  # [N] who acts
    constant: Tensor  # [N, A] action of a world that acts at random
    std: Tensor  # [N, 1] of its noise
    update: int = 0
    sampled: int = 0  # control steps of each world
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def reflex(self) -> Reflex:
        """The learned reflex."""
        return self.graph.reflex


class Result(NamedTuple):
    """A policy with its reflex."""

    graph: ReflexGraph
    history: list[dict[str, float]]


OnIteration = Callable[[Learner], "bool | None"]
TASK_RUN = "task"  # in a run's folder: the run whose policy got the reflex


def train(
    env: TaskEnv, config: ReflexConfig, *, base: PolicyGraph, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Learn a reflex for the policy ``base`` of the run ``config.policy``, which stays unchanged.

    ``env`` shows the task as ``base`` sees it, at the rate of the commands. The run ``config.policy`` is copied
    (settings and last checkpoint) to ``out/task``, so that ``out`` needs no other folder.
    """
    if ranks.size > 1:
        raise SettingsError(f"reflex trains in one process, not in {ranks.size}: processes=1")
    if resume:
        raise SettingsError("reflex does not resume: the steps that it remembers are not kept; --overwrite starts anew")
    out, learner = Path(out), begin(env, config, base, seed)
    copy_run(Path(config.policy), out / TASK_RUN)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small products: threads would wait for each other after each
    try:
        spend(learner, iterate, lambda it: it.sampled * env.num_worlds, lambda it: keep(it, out), progress, logger,
              on_iteration)
    finally:
        torch.set_num_threads(threads)
    return Result(learner.graph, learner.history)


def begin(env: TaskEnv, config: ReflexConfig, base: PolicyGraph, seed: int) -> Learner:
    """A learner before its first update."""
    if env.device.type != "cpu":
        raise SettingsError(f"reflex trains on the CPU, not on {env.device}: device=cpu")
    generator, n, size = torch.Generator().manual_seed(seed), env.num_worlds, env.action_dim
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reflex = Reflex(env.obs_dim, size, config.hidden, config.activation, config.every)
    graph = ReflexGraph(base, reflex, config.spec)
    return Learner(
        config, env, graph, seed, deepcopy(reflex),
        {"critics": torch.optim.Adam(reflex.critics.parameters(), lr=config.learning_rate),
         "actor": torch.optim.Adam(reflex.actor.parameters(), lr=config.learning_rate)},
        Constraint(env.task.formula), Steps(config.rows, n, env.obs_dim, size), generator, env.reset().actor,
        {name: torch.zeros(n, *shape) for name, shape in graph.carried.items()},
        torch.zeros(n, dtype=torch.int64), torch.zeros(n, size), torch.zeros(n, 1))


def iterate(learner: Learner) -> dict[str, float]:
    """Gather some steps, then learn from all remembered ones. Returns figures about it."""
    config = learner.config
    if not learner.sampled:
        gather(learner, config.warmup)
        seen = learner.steps.columns["obs"][: learner.steps.count]
        for reflex in (learner.reflex, learner.target):
            reflex.normalizer.update(moments(seen))
    figures = gather(learner, config.rollout_steps)
    rows = learner.steps.usable()
    seen = [improve(learner, rows) for _ in range(config.gradient_steps)]
    return {**figures, **{name: sum(row[name] for row in seen) / len(seen) for name in seen[0]}}


@torch.no_grad()
def gather(learner: Learner, steps: int) -> dict[str, float]:
    """Act for ``steps`` control steps in each world, to see dangerous states and ways out of them.

    Behaviour alternates between the task's policy, the policy with its reflex, the reflex alone, and a random constant
    action.
    """
    graph, env = learner.graph, learner.env
    violated = engaged = 0.0
    for _ in range(steps):
        change_over(learner)
        wanted, phase = graph.want(learner.obs, learner.carried)
        choice, learner.carried = graph.decide(learner.obs, learner.carried)
        held = wanted[HELD]
        own = graph.reflex(graph.reflex.state(learner.obs, held, phase), held)
        action = torch.stack([held, choice, own, learner.constant])[learner.who, torch.arange(len(held))]
        noise = torch.randn(held.shape, generator=learner.generator)
        action = (action + learner.std * noise).clamp(-1.0, 1.0)
        step = env.step(action)
        cost = (learner.constraint.margin(step.info["signals"]) < 0).float()
        learner.steps.add(obs=learner.obs, held=held, phase=phase, action=action, cost=cost,
                          over=step.terminated.float(), cut=(step.truncated & (cost < 0.5)).float())
        learner.obs = step.obs.actor
        ended = (step.terminated | step.truncated).nonzero()[:, 0]
        for value in learner.carried.values() if len(ended) else ():
            value[ended] = 0.0
        learner.sampled += 1
        violated, engaged = violated + float(cost.mean()), engaged + float(learner.carried[ENGAGED].mean())
    return {"violated": violated / steps, "engaged": engaged / steps}


def change_over(learner: Learner) -> None:
    """Redraw the behaviour of some worlds."""
    config, n = learner.config, len(learner.who)
    u = torch.rand(3, n, generator=learner.generator)
    new = u[0] < 1.0 / config.dwell
    learner.who = torch.where(new, torch.bucketize(u[1], torch.tensor(SHARES).cumsum(0)[:-1]), learner.who)
    learner.std = torch.where(new[:, None], config.noise * u[2][:, None], learner.std)
    constant = 2.0 * torch.rand(learner.constant.shape, generator=learner.generator) - 1.0
    learner.constant = torch.where(new[:, None], constant, learner.constant)


def draw(learner: Learner, rows: Tensor) -> Batch:
    """Draw steps to learn from: any of ``rows`` [R] of any world."""
    size, generator = (learner.config.batch,), learner.generator
    worlds = torch.randint(learner.env.num_worlds, size, generator=generator)
    return learner.steps.take(rows[torch.randint(len(rows), size, generator=generator)], worlds, learner.reflex)


@torch.no_grad()
def targets(target: Reflex, batch: Batch, gamma: float) -> Tensor:
    """c + (1 - c) gamma Q(s', a') [B], with Q = 0 where the episode ends."""
    risk = target.risk(batch.after, batch.wanted)
    return batch.cost + (1.0 - batch.cost) * (1.0 - batch.over) * gamma * risk


def improve(learner: Learner, rows: Tensor) -> dict[str, float]:
    """One update of critics, reflex and target."""
    config, reflex, batch = learner.config, learner.reflex, draw(learner, rows)
    gamma = math.exp(-learner.env.task.control_dt / config.lookahead_s)
    rate = config.learning_rate + (config.learning_rate_end - config.learning_rate) * fraction_spent(learner)
    for optimizer in learner.optimizers.values():
        optimizer.param_groups[0]["lr"] = rate
    wanted = targets(learner.target, batch, gamma)
    # cross entropy of a probability: its least is where the squared error's is, and it does not vanish at 0 and 1
    loss = binary_cross_entropy_with_logits(reflex.logits(batch.state, batch.action), wanted.expand(2, -1))
    step(learner.optimizers["critics"], loss)
    action = reflex(batch.state, batch.held)
    # softplus(logit) = -log(1 - risk): it pulls where the risk is high, and not where there is none
    danger = softplus(reflex.logits(batch.state, action).amax(0)).mean()
    away = config.stay * (action - batch.held).square().sum(-1).mean()
    step(learner.optimizers["actor"], danger + away)
    with torch.no_grad():
        for old, new in zip(learner.target.parameters(), reflex.parameters()):
            old.lerp_(new, config.target_rate)
    learner.update += 1
    figures = {"loss": float(loss.detach()), "danger": float(danger.detach()), "risk": float(wanted.mean())}
    if not all(map(math.isfinite, figures.values())):
        raise NonFiniteError(f"update {learner.update}: {figures}")
    return {**figures, "learning_rate": rate}


def step(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    """One optimizer step on the optimizer's own parameters."""
    parameters = optimizer.param_groups[0]["params"]
    for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters)):
        parameter.grad = slope
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


KIND = "temporeal reflex 1"


def copy_run(run: Path, to: Path) -> None:
    """Copy the settings and the last checkpoint of ``run``, which contain its whole policy."""
    files = sorted((run / "checkpoints").glob("*.rank0of*.pt"))  # all processes have the same networks
    if not files:
        raise checkpoint.CheckpointError(f"{run} holds no checkpoint: train first, or name another folder")
    (to / "checkpoints").mkdir(parents=True, exist_ok=True)
    for file in (run / policy_graphs.CONFIG, files[-1]):
        shutil.copyfile(file, to / file.relative_to(run))


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder = Path(out) / "checkpoints"
    config = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(learner.config).items()}
    checkpoint.save(checkpoint.file_of(folder, learner.update, 0, 1), {
        "kind": KIND, "config": config, "obs_dim": learner.env.obs_dim, "action_dim": learner.env.action_dim,
        "seed": learner.seed, "reflex": learner.reflex.state_dict(), "update": learner.update,
        "seconds": learner.seconds, "history": learner.history})
    checkpoint.prune(folder, 0, 1)


def load_graph(path: Path, task: Task, device: str = "cpu") -> ReflexGraph:
    """The policy of a run with its reflex, between raw signals and raw commands."""
    file = checkpoint.latest(path / "checkpoints", 0, 1)
    state = checkpoint.load(file)
    if state.get("kind") != KIND:
        raise checkpoint.CheckpointError(f"{file} is not of a reflex: its kind is {state.get('kind')!r}, not {KIND!r}")
    if different := set(state["config"]) ^ {f.name for f in fields(ReflexConfig)}:
        raise checkpoint.CheckpointError(
            f"{file} was written by another version: settings {sorted(different)} differ")
    config, base = ReflexConfig(**state["config"]), policy_graphs.load_graph(path / TASK_RUN, task, device)
    checkpoint.require_held(file, [state["obs_dim"], *config.hidden, state["action_dim"]], state["reflex"])
    reflex = Reflex(state["obs_dim"], state["action_dim"], config.hidden, config.activation, config.every)
    reflex.load_state_dict(state["reflex"])
    return ReflexGraph(base, reflex, config.spec).to(device).eval()
