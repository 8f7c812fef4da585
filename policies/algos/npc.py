"""STL neural predictive control: a policy learned by the gradient of smooth robustness through known dynamics.

Meng and Fan, "Signal Temporal Logic Neural Predictive Control", RA-L 2023 (arXiv 2309.05131). No reward, no critic:

    draw start states, let the network act, roll the model out over the whole mission
    loss: how far the smooth robustness of each trace stays below a margin, max(0, margin - robustness)
    one Adam step on the network, by the gradient through robustness, dynamics and network

At run time (:func:`plan`; repeatedly with :class:`temporeal.policies.planning.receding.Receding`) the network gives the
plan, the model predicts the trace, and the exact robustness judges it. Where that is too low, the *backup policy* takes
over: gradient ascent on the smooth robustness of the actions themselves, from the network's plan, from the plan
followed so far, and from random ones. Without a network that is the gradient-based planner of the paper's comparison.

    learned = train(Missions(model, formula, dt, steps, draw), NPCConfig(), out=folder)  # or of an environment
    found = plan(model, formula, dt, signals0, steps, config, policy=learned.policy)
    policy = Receding(partial(plan, policy=learned.policy), model, formula, dt, steps, config, every=10)

``chunk`` is how many control steps the network plans at a call: the whole mission (0, as in the paper), or that many,
again and again; 1 is a feedback policy. B robots, T steps, A action, D state. Temperature and margin have the unit of
the formula's margins. """

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import ACTIVATIONS
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.planning.problem import (
    Plan,
    Problem,
    Signals,
    better,
    check_start,
    judge,
    judged,
    problem,
    rollout,
    smoothed,
)
from temporeal.policies.planning.splines import basis, check_spline
from temporeal.policies.training import checkpoint
from temporeal.policies.training.budget import fraction_spent, spend
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.predictive_policy import Next, Policy, Seen, act
from temporeal.policies.training.progress import CLOCKS, Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.semantics.smooth import METHODS, Method
from temporeal.sim.types import TaskEnv

if TYPE_CHECKING:
    from temporeal.sim.system import Model
    from temporeal.sim.task import Task


@dataclass(frozen=True)
class NPCConfig:
    """Settings of the learner and of the planner. ``configs/algo/npc.yaml`` has the same names."""

    # budget: the run ends at whichever is reached first
    updates: int = 1500
    max_seconds: float | None = None  # of ``clock``, earlier parts of a resumed run included
    clock: str = "wall"  # or cpu: time that this process computes
    # objective
    batch: int = 256  # start states of an update
    margin: float = 0.2  # smooth robustness beyond which a trace no longer pulls
    temperature: float = 0.1  # of the smooth robustness at the start, falls geometrically ...
    temperature_end: float = 0.02  # ... to this
    method: str = "logsumexp"  # or softmax: of the smooth robustness
    effort: float = 0.0  # weight of the mean square of the actions
    # steps
    learning_rate: float = 1e-3  # of Adam, falls linearly ...
    learning_rate_end: float = 1e-5  # ... to this
    grad_norm: float = 1.0  # the gradient is scaled down to at most this length
    segment: int = 0  # the gradient keeps every so many states and computes the rest again: less memory; 0: keeps all
    truncate: int = 0  # the gradient does not go back through every so many states (biased, tame); 0: it does
    # network
    hidden: Sequence[int] = (256, 256)
    activation: str = "silu"
    chunk: int = 0  # control steps that one call plans; 0: all of the mission
    knots: int = 0  # of the spline that a call gives; 0: one for each step
    spline: str = "linear"  # between the knots: hold, linear, cubic
    # on line
    replan: int = 0  # control steps between plans where the plan is followed; 0: once
    backup_below: float | None = 0.0  # predicted robustness below which the backup policy takes over; null: never
    backup_steps: int = 100  # gradient steps of the backup policy
    backup_rate: float = 0.05  # of Adam on actions in [-1, 1]
    backup_restarts: int = 4  # random plans that it improves besides the network's
    checkpoint_seconds: float = 30.0  # between checkpoints; 0: after each update

    def __post_init__(self) -> None:
        check_spline(self.knots, self.spline)
        for name, legal in (("method", METHODS), ("activation", tuple(ACTIVATIONS))):
            if getattr(self, name) not in legal:
                raise ValueError(f"{name} is {getattr(self, name)!r}; legal: {', '.join(legal)}")
        for name in ("updates", "batch", "temperature", "temperature_end", "learning_rate", "grad_norm", "backup_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("effort", "learning_rate_end", "segment", "truncate", "chunk", "replan", "backup_steps",
                     "backup_restarts", "checkpoint_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive or null, got {self.max_seconds}")
        if self.clock not in CLOCKS:
            raise ValueError(f"clock is {self.clock!r}; legal: {', '.join(CLOCKS)}")
        widths = tuple(self.hidden)
        if not widths or min(widths) < 1:
            raise ValueError(f"hidden is a list of layer widths, at least one, all positive; got {list(widths)}")
        object.__setattr__(self, "hidden", widths)


MAY_CHANGE = ("updates", "max_seconds", "clock", "checkpoint_seconds", "replan", "backup_below", "backup_steps",
              "backup_rate", "backup_restarts")  # between a run and its resumption


@dataclass(frozen=True)
class Missions:
    """What is learned: a formula, the dynamics, and the distribution of starts."""

    model: Model
    formula: Formula
    dt: float  # s, control period
    steps: int  # control steps of a mission
    draw: Callable[[int, torch.Generator], Signals]  # signals [count, *shape] of that many starts, with its randomness


def plan(
    model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, config: NPCConfig,
    generator: torch.Generator | None = None, *, past: Signals | None = None, start: Tensor | None = None,
    policy: Policy | None = None,
) -> Plan:
    """The network's plan for the B robots of ``signals0``, improved by the backup policy if its robustness is too low.

    Args:
        model: differentiable; its states are ``policy``'s.
        formula: judged on samples each ``dt`` s, from the first of ``past`` (or from ``signals0``) to step ``steps``.
        generator: of the random plans that the backup policy tries.
        past: samples before, [k, B, *shape]; the mission's first k of ``policy.steps`` steps are over.
        start: actions [B, T, A] of the plan followed so far, a candidate beside the network's.
        policy: None: the backup policy alone, a gradient-based planner.
    """
    asked = problem(model, formula, dt, signals0, steps, past)
    start = check_start(start, asked)
    found = None if start is None else Plan(start, judge(asked, start))
    if policy is not None:
        with torch.no_grad():
            actions, states = act(policy, model, _first(policy, asked, signals0, past), asked.state, asked.seen, steps)
        learned = Plan(actions, judged(asked, states))
        found = learned if found is None else better(found, learned)
    if found is None:
        idle = asked.state.new_zeros(len(asked.state), steps, model.action_dim)
        found = Plan(idle, judge(asked, idle))
    if config.backup_below is None:
        return found
    worlds = (~(found.robustness >= config.backup_below)).nonzero()[:, 0]
    if len(worlds):
        was = Plan(*(x[worlds] for x in found))
        now = better(was, backup(asked.of(worlds), was.actions, config, generator))
        found = Plan(found.actions.clone(), found.robustness.clone())
        found.actions[worlds], found.robustness[worlds] = now
    return found


def _first(policy: Policy, asked: Problem, signals0: Signals, past: Signals | None) -> Tensor:
    """The state [B, D] at the start of the mission."""
    if asked.seen + asked.steps != policy.steps:
        raise ValueError(f"the network knows missions of {policy.steps} control steps; this one has "
                         f"{asked.seen} + {asked.steps}")
    if not asked.seen or not past:
        return asked.state
    if missing := [name for name in signals0 if name not in past]:
        raise ValueError(f"the network asks for the state that the mission began in: past must have all signals, "
                         f"also {', '.join(missing)}")
    return asked.model.state({name: past[name][0] for name in signals0})


def backup(asked: Problem, actions: Tensor, config: NPCConfig, generator: torch.Generator | None = None) -> Plan:
    """Projected gradient ascent (Adam) on the smooth robustness of ``actions`` [B, T, A] and of random sequences.

    Returns the best by exact robustness among all iterates, for each of the B robots; ends when all have the margin.
    The temperature falls as in training.
    """
    count, tries = len(actions), 1 + config.backup_restarts
    draw = torch.rand(count, config.backup_restarts, 4, actions.shape[-1], generator=generator, dtype=actions.dtype,
                      device=actions.device)
    others = basis(asked.steps, 4, "linear", actions) @ (2.0 * draw - 1.0)  # slow ones: they come far
    owner = torch.arange(count, device=actions.device).repeat_interleave(tries)
    tried, several = torch.cat([actions[:, None], others], 1).flatten(0, 1), asked.of(owner)
    moving = tried.clone().requires_grad_()
    optimizer = torch.optim.Adam([moving], lr=config.backup_rate)
    best = Plan(tried, tried.new_full((len(tried),), -torch.inf))
    for step in range(config.backup_steps + 1):
        with torch.enable_grad():
            states = rollout(asked.model, several.state, moving, segment=config.segment, truncate=config.truncate)
        best = better(best, Plan(moving.detach().clone(), judged(several, states.detach())))
        if step == config.backup_steps or bool((best.robustness.view(count, tries).amax(1) >= config.margin).all()):
            break
        with torch.enable_grad():
            heat = temperature(config, step / max(config.backup_steps, 1))
            loss = shortfall(config, smoothed(several, states, heat, _method(config)), moving).sum()
            optimizer.zero_grad()
            loss.backward()
        assert moving.grad is not None
        moving.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step()
        with torch.no_grad():
            moving.clamp_(-1.0, 1.0)
    value, which = best.robustness.view(count, tries).max(1)
    return Plan(best.actions.unflatten(0, (count, tries))[torch.arange(count, device=actions.device), which], value)


@dataclass
class Learner:
    """All state of a run, as in its checkpoints."""

    task: Missions
    config: NPCConfig
    seed: int
    policy: Policy
    optimizer: torch.optim.Adam
    generator: torch.Generator
    update: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


class Result(NamedTuple):
    """A trained policy."""

    policy: Policy
    history: list[dict[str, float]]


OnIteration = Callable[[Learner], "bool | None"]


def train(
    env: TaskEnv | Missions, config: NPCConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Train until the budget is spent or ``on_iteration`` returns True.

    ``env``: the missions, or an environment of a task of `temporeal.sim.tasks.stl`, of which only the task is used:
    learning uses the model. Checkpoints go to ``out/checkpoints``; ``resume`` continues from the last of them, or from
    the one given, exactly as an uninterrupted run. ``seed`` sets the network and the starts.
    """
    if ranks.size > 1:
        raise SettingsError(f"npc trains in one process, not in {ranks.size}: processes=1")
    out = Path(out)
    learner = begin(env if isinstance(env, Missions) else missions(env.task), config, seed)
    if resume:
        restore(learner, resume if isinstance(resume, Path) else checkpoint.latest(out / "checkpoints", 0, 1))
    spend(learner, improve, lambda it: it.update * config.batch * it.task.steps, lambda it: keep(it, out), progress,
          logger, on_iteration)
    return Result(learner.policy, learner.history)


def missions(task: Task) -> Missions:
    """The missions of a task of `temporeal.sim.tasks.stl`, whose system has a model."""
    system = getattr(task.observe, "system", None)
    if getattr(system, "model", None) is None:
        where = f"task {task.name!r}{f' on system {system.name!r}' if system else ''}"
        raise SettingsError(f"npc learns through a differentiable model, which {where} does not have; take ppo or tgpo")

    def draw(count: int, generator: torch.Generator) -> Signals:
        return task.initial(lambda _, numbers: torch.rand(count, numbers, generator=generator))

    return Missions(system.model, task.formula, task.control_dt, task.steps, draw)  # type: ignore[union-attr]


def begin(task: Missions, config: NPCConfig, seed: int) -> Learner:
    """A learner before its first update; its network has the scales of the states that random actions reach."""
    generator = torch.Generator().manual_seed(seed)
    asked = draw(task, config.batch, generator)
    size = task.model.action_dim
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = Policy(asked.state.shape[1], size, task.steps, config).to(asked.state)
    turns = 2.0 * torch.rand(config.batch, 4, size, generator=generator).to(asked.state) - 1.0
    with torch.no_grad():
        states = rollout(task.model, asked.state, basis(task.steps, 4, "linear", turns) @ turns)
    if not bool(torch.isfinite(states).all()):
        raise SettingsError("the model's states are not finite numbers under random actions")
    policy.first.update(moments(asked.state))
    policy.now.update(moments(states.flatten(0, 1)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    return Learner(task, config, seed, policy, optimizer, generator)


def draw(task: Missions, count: int, generator: torch.Generator) -> Problem:
    """Missions from ``count`` new starts."""
    return problem(task.model, task.formula, task.dt, task.draw(count, generator), task.steps)


def improve(learner: Learner) -> dict[str, float]:
    """One update; returns its figures."""
    config, policy, spent = learner.config, learner.policy, fraction_spent(learner)
    asked = draw(learner.task, config.batch, learner.generator)
    actions, states = act(policy, asked.model, asked.state, asked.state, 0, asked.steps, segment=config.segment,
                          truncate=config.truncate)
    heat = temperature(config, spent)
    value = smoothed(asked, states, heat, _method(config))
    loss = shortfall(config, value, actions).mean()
    learner.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    lost, norm = float(loss.detach()), float(nn.utils.clip_grad_norm_(policy.parameters(), config.grad_norm))
    if not math.isfinite(lost) or not math.isfinite(norm):
        raise NonFiniteError(f"update {learner.update}: loss {lost:g}, gradient {norm:g}; the model's gradient grows "
                             "over the mission: set truncate, or a smaller learning_rate")
    rate = config.learning_rate + (config.learning_rate_end - config.learning_rate) * spent
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    learner.optimizer.step()
    learner.update += 1
    exact = judged(asked, states.detach())
    return {"loss": lost, "robustness": float(exact.mean()),
            "success": float((exact > 0).float().mean()), "smooth": float(value.detach().mean()),
            "gradient_norm": norm, "learning_rate": rate, "temperature": heat}


def shortfall(config: NPCConfig, value: Tensor, actions: Tensor) -> Tensor:
    """Loss [B] of traces with smooth robustness ``value`` [B] under ``actions`` [B, T, A]: the paper's hinge plus the
    effort."""
    return (config.margin - value).clamp(min=0.0) + config.effort * actions.square().mean((1, 2))


def temperature(config: NPCConfig, spent: float) -> float:
    """Temperature of the smooth robustness after a share ``spent`` of the budget."""
    return config.temperature * (config.temperature_end / config.temperature) ** spent


def _method(config: NPCConfig) -> Method:
    return "logsumexp" if config.method == "logsumexp" else "softmax"


KIND = "temporeal npc 1"


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder = Path(out) / "checkpoints"
    checkpoint.save(checkpoint.file_of(folder, learner.update, 0, 1), {
        "kind": KIND, "config": _plain(learner.config), "task": _sizes(learner), "seed": learner.seed,
        "policy": learner.policy.state_dict(), "optimizer": learner.optimizer.state_dict(),
        "generator": learner.generator.get_state(), "update": learner.update, "seconds": learner.seconds,
        "history": learner.history})
    checkpoint.prune(folder, 0, 1)


def restore(learner: Learner, path: Path) -> None:
    """Set ``learner`` to the state of the checkpoint ``path``."""
    state = _read(path)
    checkpoint.require_same(path, "task", state["task"], _sizes(learner), MAY_CHANGE)
    checkpoint.require_same(path, "configuration", state["config"], _plain(learner.config), MAY_CHANGE)
    checkpoint.require_same(path, "run", {"seed": state["seed"]}, {"seed": learner.seed}, MAY_CHANGE)
    learner.policy.load_state_dict(state["policy"])
    learner.optimizer.load_state_dict(state["optimizer"])
    learner.generator.set_state(state["generator"])
    learner.update, learner.seconds, learner.history = state["update"], state["seconds"], state["history"]


def load_policy(path: Path, device: str = "cpu") -> tuple[Policy, NPCConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder, and its settings."""
    path = Path(path)
    if path.is_dir():
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        path = checkpoint.latest(folder, 0, 1)
    state = _read(path)
    known = {f.name for f in fields(NPCConfig)}
    if set(state["config"]) != known:
        raise checkpoint.CheckpointError(
            f"{path} was written by another version: settings {sorted(set(state['config']) ^ known)} differ")
    config, sizes = NPCConfig(**state["config"]), state["task"]
    checkpoint.require_held(path, [sizes["state_dim"], *config.hidden, sizes["action_dim"]], state["policy"])
    plan = [min(config.chunk or sizes["steps"], sizes["steps"]), *([config.knots] if config.knots else [])]
    checkpoint.require_held(path, plan, state["policy"])
    policy = Policy(sizes["state_dim"], sizes["action_dim"], sizes["steps"], config)
    policy.load_state_dict(state["policy"])
    return policy.to(device).eval(), config


JUDGED_WITHOUT = ("the network alone is judged and exported, without STL-NPC's backup policy, which plans with the "
                  "system's model; with it: temporeal bench stl-tasks --methods npc")
"""What whoever judges a run through its policy should know."""


def load_graph(path: Path, task: Task, device: str = "cpu") -> PolicyGraph:
    """The network of a run between raw signals and raw commands, without the backup policy, which needs the model."""
    policy, _ = load_policy(path, device)
    asked = missions(task)
    if policy.steps != asked.steps:
        raise checkpoint.CheckpointError(f"the network in {path} knows missions of {policy.steps} control steps, those "
                                         f"of task {task.name!r} with these settings have {asked.steps}")
    return PolicyGraph(Seen(task, policy), nn.Identity(), Next(policy), task.act).to(device).eval()


def _sizes(learner: Learner) -> dict[str, Any]:
    task = learner.task
    return {"formula": to_text(task.formula), "dt": task.dt, "steps": task.steps,
            "action_dim": task.model.action_dim, "state_dim": int(learner.policy.first.mean.shape[0])}


def _plain(config: NPCConfig) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def _read(path: Path) -> dict[str, Any]:
    state = checkpoint.load(path)
    if state.get("kind") != KIND:
        raise checkpoint.CheckpointError(f"{path} is not of this NPC: its kind is {state.get('kind')!r}, not {KIND!r}")
    return state
