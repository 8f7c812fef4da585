"""DAgger, dataset aggregation: the learner flies, and the expert says what it should have done where it came.

Ross, Gordon and Bagnell 2011 (arXiv 1011.0686), algorithm 3.1, for rounds i = 0, 1, ...:

    fly pi_i: in a share mix^i of the worlds the expert, in the others the learner so far
    D = D and {(o, expert(o))} over what was flown
    clone D                           (algo=bc), from the weights so far

With judge = expert every observation is labelled. With judge = formula the task's formula decides: what the learner
flew is labelled only where it violated the formula, and what the expert flew is kept only where it satisfied it. That
asks the expert less, and does not clone its failures. N worlds, T control steps, O observation, A action. """

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.data.demonstrators.scripted import scripted
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.imitation import bc
from temporeal.policies.imitation.bc import BCConfig
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import budget, checkpoint, offline_learner, policy_graphs
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.policies.training.offline_learner import Result
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.types import Obs, TaskEnv

JUDGES = ("expert", "formula")
SCRIPTED = "scripted"
KIND = "temporeal dagger 1"
MAY_CHANGE = ("updates", "max_seconds", "clock", "checkpoint_seconds")


@dataclass(frozen=True)
class DaggerConfig(BCConfig):
    """Settings of the learner. ``configs/algo/dagger.yaml`` has the same names; those of cloning are ``bc``'s.

    Args:
        updates: gradient steps of all rounds.
        round_updates: those of a round.
        expert: scripted, or the folder of a run on the same task.
        judge: expert or formula.
        mix: share of worlds that the expert flies, to the power of the round; in the first one it flies all.
    """

    updates: int = 8000
    round_updates: int = 1000
    expert: str = SCRIPTED
    judge: str = "expert"
    mix: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.judge not in JUDGES:
            raise SettingsError(f"algo.judge={self.judge}: one of {', '.join(JUDGES)}")
        if self.round_updates < 1 or not 0 <= self.mix <= 1:
            raise SettingsError(f"algo.round_updates is at least 1, algo.mix from 0 to 1; got {self.round_updates} and "
                                f"{self.mix}")


Expert = Callable[[Obs, Mapping[str, Tensor]], Tensor]
"""Observation and true signals to the action [N, A]; of one batch of episodes that begin together."""


class Flown(NamedTuple):
    """What was seen in one episode of each world, and what the expert said: [S, O], [S, A], of the S states that are
    taken into the data; the share of the learner's episodes that satisfied the formula (NaN: it flew none)."""

    obs: Tensor
    action: Tensor
    success: float


@dataclass
class Learner:
    """All state of a run, as in its checkpoints. ``obs`` [M, O] and ``action`` [M, A]: the data so far."""

    env: TaskEnv
    config: DaggerConfig
    make_expert: Callable[[], Expert]
    seed: int
    algorithm: bc.BC
    generator: torch.Generator
    normalizer: Normalizer
    obs: Tensor
    action: Tensor
    rounds: int = 0
    update: int = 0
    seconds: float = 0.0
    flown: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    env: TaskEnv, config: DaggerConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None,
    on_iteration: Callable[[Learner], bool | None] | None = None, ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
    make_expert: Callable[[], Expert] | None = None,
) -> Result:
    """Train until the budget is spent or ``on_iteration`` returns True. Checkpoints, one a round, hold the data, too.

    ``make_expert``: makes the expert of a batch of episodes, in place of that which the settings name.
    """
    if ranks.size > 1:
        raise SettingsError(f"dagger trains in one process, not in {ranks.size}: processes=1")
    learner = begin(env, config, make_expert or expert_of(env, config), seed)
    if resume:
        found = resume if isinstance(resume, Path) else checkpoint.latest(Path(out) / "checkpoints", 0, 1)
        restore(learner, found)
    with offline_learner.threads(config.threads):
        budget.spend(learner, round_of, lambda it: it.flown, lambda it: keep(it, Path(out)), progress, logger,
                     on_iteration)
    return Result(learner.algorithm.actor.eval(), learner.normalizer, learner.history)


def begin(env: TaskEnv, config: DaggerConfig, make_expert: Callable[[], Expert], seed: int) -> Learner:
    """A learner before its first round."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = bc.make_actor(env.obs_dim, env.action_dim, config)
    return Learner(env, config, make_expert, seed, bc.BC(actor, config, generator), generator, Normalizer(env.obs_dim),
                   torch.zeros(0, env.obs_dim), torch.zeros(0, env.action_dim))


def expert_of(env: TaskEnv, config: DaggerConfig) -> Callable[[], Expert]:
    """What makes the expert that the settings name."""
    if config.expert != SCRIPTED:
        graph = policy_graphs.load_graph(Path(config.expert), env.task)

        def learned() -> Expert:
            act = graph_policy(graph)
            return lambda obs, signals: act(obs.actor)

        return learned
    try:
        make = scripted(env.task)
    except ValueError as error:
        raise SettingsError(f"algo.expert={SCRIPTED}: {error}") from error

    def by_hand() -> Expert:
        controller, pace = make(env.num_worlds), torch.ones(env.num_worlds)
        return lambda obs, signals: controller(signals, pace)

    return by_hand


def round_of(learner: Learner) -> dict[str, float]:
    """One round: fly, aggregate, clone; its figures."""
    config = learner.config
    found = fly(learner)
    learner.obs, learner.action = torch.cat([learner.obs, found.obs]), torch.cat([learner.action, found.action])
    learner.flown += learner.env.num_worlds * learner.env.task.steps
    learner.rounds += 1
    if not len(learner.obs):
        raise SettingsError("the judge kept nothing of the first round: the expert satisfied the formula in no episode")
    count = min(config.round_updates, config.updates - learner.update)
    batches = TransitionBatches(steps_of(learner.obs, learner.action), config.batch)
    total = sum(learner.algorithm.update(batch) for batch in batches.draw(learner.generator, count))
    learner.normalizer = batches.normalizer
    learner.update += count
    assert isinstance(total, Tensor)
    figures = dict(zip(learner.algorithm.figures, (total / count).tolist()))
    return {**figures, "success": found.success, "labels": float(len(found.obs)), "data": float(len(learner.obs))}


@torch.no_grad()
def fly(learner: Learner) -> Flown:
    """One fresh episode in every world."""
    env, config = learner.env, learner.config
    expert, obs = learner.make_expert(), env.reset()
    by_expert = torch.rand(env.num_worlds, generator=learner.generator) < config.mix**learner.rounds
    running, satisfied = torch.ones_like(by_expert), torch.zeros_like(by_expert)
    seen, said, alive = list[Tensor](), list[Tensor](), list[Tensor]()
    for _ in range(env.task.steps):
        label = expert(obs, env.true_signals()).clamp(-1.0, 1.0)
        seen.append(obs.actor.clone())
        said.append(label.clone())
        alive.append(running)
        own = learner.algorithm.actor(learner.normalizer(obs.actor)).clamp(-1.0, 1.0)
        step = env.step(torch.where(by_expert[:, None], label, own))
        over = running & (step.terminated | step.truncated)
        satisfied |= over & (step.info["success"] > 0.5)
        running, obs = running & ~over, step.obs
        if not bool(running.any()):
            break
    taken = torch.stack(alive) & chosen(config.judge, by_expert, satisfied)
    rate = satisfied[~by_expert].float().mean()
    return Flown(torch.stack(seen)[taken], torch.stack(said)[taken], float(rate))


def chosen(judge: str, by_expert: Tensor, satisfied: Tensor) -> Tensor:
    """Whose states [N] are taken into the data: of the learner what it did wrong, of the expert what it did right."""
    return torch.ones_like(satisfied) if judge == "expert" else satisfied == by_expert


def steps_of(obs: Tensor, action: Tensor) -> Transitions:
    """Labelled observations as steps, which cloning takes."""
    none = torch.zeros(len(obs))
    return Transitions(obs, action, none, obs, none + 1, none.long(), torch.tensor([0, len(obs)]))


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder, algorithm = out / "checkpoints", learner.algorithm
    checkpoint.save(checkpoint.file_of(folder, learner.rounds, 0, 1), {
        "kind": KIND, "config": offline_learner.plain(learner.config), "seed": learner.seed,
        "sizes": {"obs_dim": learner.env.obs_dim, "action_dim": learner.env.action_dim},
        "actor": algorithm.actor.state_dict(), "optimizer": algorithm.optimizers["actor"].state_dict(),
        "normalizer": learner.normalizer.state_dict(), "generator": learner.generator.get_state(),
        "env": learner.env.state_dict(), **{name: getattr(learner, name) for name in KEPT}})
    checkpoint.prune(folder, 0, 1)


KEPT: Sequence[str] = ("obs", "action", "rounds", "update", "seconds", "flown", "history")


def restore(learner: Learner, path: Path) -> None:
    """Set ``learner`` to the state of the checkpoint ``path``."""
    state, algorithm = offline_learner.read(path, KIND), learner.algorithm
    checkpoint.require_same(path, "configuration", state["config"], offline_learner.plain(learner.config), MAY_CHANGE)
    checkpoint.require_same(path, "run", {"seed": state["seed"]}, {"seed": learner.seed}, ())
    try:
        learner.env.load_state_dict(state["env"])
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    algorithm.actor.load_state_dict(state["actor"])
    algorithm.optimizers["actor"].load_state_dict(state["optimizer"])
    learner.normalizer.load_state_dict(state["normalizer"])
    learner.generator.set_state(state["generator"])
    for name in KEPT:
        setattr(learner, name, state[name])


def load_policy(run: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, DaggerConfig]:
    """Actor and normalizer of a checkpoint file, or of the last one of a run's folder, and the settings."""
    state = offline_learner.read(run, KIND)
    config, sizes = offline_learner.config_of(state, DaggerConfig), state["sizes"]
    return (*bc.rebuilt(state["path"], config, sizes, state["actor"], state["normalizer"], device), config)
