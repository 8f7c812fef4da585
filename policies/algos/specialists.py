"""Specialists beside a generalist: each acts where it is surely better, and all else stays as it was, bit for bit.

After R2SE (Liu et al. 2025, arXiv 2506.09800): the generalist ``algo.adapt``, and specialists that were trained from it
or anew (``algo.specialists=[RUN,RUN]``), all of algo=ppo. In turn each of them flies an episode in every world; an
ensemble learns which of them fail from where; who acts is decided in each control step
(:mod:`temporeal.policies.training.warm_starts.easy_cases`). Nothing of the policies is trained.

What they are together is one policy, which is judged and exported as any other, and distilled to one network by
``algo=dagger algo.expert=RUN``. N worlds, O observation. """

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import FeedForwardActor
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training import budget, checkpoint, offline_learner
from temporeal.policies.training.errors import SettingsError, choose, require, require_widths
from temporeal.policies.training.progress import CLOCKS, Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.warm_starts.easy_cases import Judges, OnePolicy, Switch, judged_loss, untouched
from temporeal.policies.training.warm_starts.ppo_start import WarmStart, on_this_task
from temporeal.sim.types import TaskEnv

KIND = "temporeal specialists 1"
MAY_CHANGE = ("updates", "max_seconds", "clock", "checkpoint_seconds")


@dataclass(frozen=True)
class SpecialistsConfig:
    """Settings of the learner. ``configs/algo/specialists.yaml`` has the same names.

    Args:
        adapt: folder of the generalist's run. specialists: those of the others.
        updates: gradient steps of the judges in all rounds; round_updates: those after an episode of one policy.
        members: judges. hidden: widths of their layers. batch: rows of an update, of each judge.
        learning_rate, weight_decay: of AdamW.
        width: deviations by which a specialist must surely be better. margin: and by how much, of the chance to fail.
        rows: that are kept, the latest ones.
    """

    adapt: str = ""
    specialists: Sequence[str] = ()
    updates: int = 4000
    round_updates: int = 250
    max_seconds: float | None = None
    clock: str = "wall"
    members: int = 5
    hidden: Sequence[int] = (64, 64)
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    width: float = 1.0
    margin: float = 0.05
    rows: int = 500_000
    checkpoint_seconds: float = 30.0
    threads: int = 1

    def __post_init__(self) -> None:
        require(self, updates="[1, inf)", round_updates="[1, inf)", max_seconds="(0, inf)", members="[2, inf)",
                batch="[1, inf)", learning_rate="(0, inf)", weight_decay="[0, inf)", width="[0, inf)",
                margin="[0, 1]", rows="[1, inf)", checkpoint_seconds="[0, inf)", threads="[1, inf)")
        require_widths(self, "hidden")
        choose(self, clock=tuple(CLOCKS))


class Result(NamedTuple):
    """The policy: the deterministic action is ``actor(normalizer(obs))``; the normalizer changes nothing."""

    actor: Switch
    normalizer: Normalizer
    history: list[dict[str, float]]


@dataclass
class Learner:
    """All state of a run, as in its checkpoints. ``obs`` [R, O], ``who`` and ``failed`` [R]: what was flown."""

    env: TaskEnv
    config: SpecialistsConfig
    seed: int
    switch: Switch
    adam: torch.optim.Optimizer
    generator: torch.Generator
    obs: Tensor
    who: Tensor
    failed: Tensor
    rounds: int = 0
    update: int = 0
    seconds: float = 0.0
    flown: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    env: TaskEnv, config: SpecialistsConfig, *, out: Path, seed: int = 0, policies: Sequence[WarmStart] = (),
    resume: bool | Path = False, progress: Progress | None = None, logger: Logger | None = None,
    on_iteration: Callable[[Learner], bool | None] | None = None, ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Fly and judge until the budget is spent or ``on_iteration`` returns True. ``policies``: the generalist first."""
    if ranks.size > 1:
        raise SettingsError(f"specialists are judged in one process, not in {ranks.size}: processes=1")
    if len(policies) < 2:
        raise SettingsError("algo=specialists takes a generalist, algo.adapt=RUN, and one specialist at least, "
                            "algo.specialists=[RUN]")
    learner = begin(env, config, policies, seed)
    if resume:
        restore(learner, resume if isinstance(resume, Path) else checkpoint.latest(Path(out) / "checkpoints", 0, 1))
    with offline_learner.threads(config.threads):
        budget.spend(learner, round_of, lambda it: it.flown, lambda it: keep(it, Path(out)), progress, logger,
                     on_iteration)
    return Result(learner.switch.eval(), untouched(env.obs_dim), learner.history)


def begin(env: TaskEnv, config: SpecialistsConfig, policies: Sequence[WarmStart], seed: int) -> Learner:
    """A learner before its first round."""
    for each in policies:
        if not isinstance(each.actor, FeedForwardActor):
            raise SettingsError(f"{each.run}: its policy is a {type(each.actor).__name__}; one with memory, or that "
                                "sees, cannot take over in the middle of an episode")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        judges = Judges(env.obs_dim, len(policies), config.members, config.hidden)
    members = [OnePolicy(*on_this_task(each)).requires_grad_(False) for each in policies]
    switch = Switch(members, judges, config.width, config.margin)
    adam = torch.optim.AdamW(judges.parameters(), config.learning_rate, weight_decay=config.weight_decay, foreach=True)
    return Learner(env, config, seed, switch, adam, torch.Generator().manual_seed(seed), torch.zeros(0, env.obs_dim),
                   torch.zeros(0, dtype=torch.int64), torch.zeros(0))


def round_of(learner: Learner) -> dict[str, float]:
    """One round: the next policy flies an episode in every world, and the judges learn of all that was flown."""
    config, policies = learner.config, learner.switch.policies
    number = learner.rounds % len(policies)
    obs, failed = fly(learner, cast("OnePolicy", policies[number]))
    for name, rows in (("obs", obs), ("who", torch.full((len(obs),), number)), ("failed", failed)):
        setattr(learner, name, torch.cat([getattr(learner, name), rows])[-config.rows:])
    learner.rounds += 1
    if learner.rounds == 1:
        learner.switch.judges.normalizer.update(moments(obs))
    if learner.rounds < len(policies):
        return {}
    count = min(config.round_updates, config.updates - learner.update)
    total = sum(float(judge(learner)) for _ in range(count))
    learner.update += count
    acts = (learner.switch.who(obs) > 0).float().mean()
    return {"judges_loss": total / count, "failed": float(failed.mean()), "specialists_act": float(acts)}


@torch.no_grad()
def fly(learner: Learner, policy: OnePolicy) -> tuple[Tensor, Tensor]:
    """One fresh episode of ``policy`` in every world: what was seen [R, O], and whether [R] its episode failed."""
    env, obs = learner.env, learner.env.reset()
    running = torch.ones(env.num_worlds, dtype=torch.bool)
    success = torch.zeros(env.num_worlds)
    seen, alive = list[Tensor](), list[Tensor]()
    for _ in range(env.task.steps):
        seen.append(obs.actor.clone())
        alive.append(running)
        step = env.step(policy(obs.actor).clamp(-1.0, 1.0))
        over = running & (step.terminated | step.truncated)
        success = torch.where(over, step.info["success"].float(), success)
        running, obs = running & ~over, step.obs
        if not bool(running.any()):
            break
    taken = torch.stack(alive)
    learner.flown += int(taken.sum())
    failed = (1.0 - success).expand(len(seen), -1)
    return torch.stack(seen)[taken], failed[taken]


def judge(learner: Learner) -> Tensor:
    """One gradient step of the judges, each on rows of its own."""
    config, judges = learner.config, learner.switch.judges
    rows = torch.randint(len(learner.obs), (config.members, config.batch), generator=learner.generator)
    loss = judged_loss(judges, learner.obs[rows], learner.who[rows], learner.failed[rows])
    learner.adam.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    learner.adam.step()
    return loss.detach()


KEPT = ("obs", "who", "failed", "rounds", "update", "seconds", "flown", "history")


def keep(learner: Learner, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder, switch = out / "checkpoints", learner.switch
    checkpoint.save(checkpoint.file_of(folder, learner.rounds, 0, 1), {
        "kind": KIND, "config": plain(learner.config), "seed": learner.seed, "sizes": sizes_of(switch),
        "switch": switch.state_dict(), "optimizer": learner.adam.state_dict(),
        "generator": learner.generator.get_state(), "env": learner.env.state_dict(),
        **{name: getattr(learner, name) for name in KEPT}})
    checkpoint.prune(folder, 0, 1)


def restore(learner: Learner, path: Path) -> None:
    """Set ``learner`` to the state of the checkpoint ``path``."""
    state = offline_learner.read(path, KIND)
    checkpoint.require_same(path, "configuration", state["config"], plain(learner.config), MAY_CHANGE)
    checkpoint.require_same(path, "run", {"seed": state["seed"]}, {"seed": learner.seed}, ())
    checkpoint.require_same(path, "policies", state["sizes"], sizes_of(learner.switch), ())
    try:
        learner.env.load_state_dict(state["env"])
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    learner.switch.load_state_dict(state["switch"])
    learner.adam.load_state_dict(state["optimizer"])
    learner.generator.set_state(state["generator"])
    for name in KEPT:
        setattr(learner, name, state[name])


def sizes_of(switch: Switch) -> dict[str, Any]:
    """What the networks are rebuilt from: of each policy its layers' widths and the activation between them."""
    members = []
    for policy in switch.policies:
        net = cast("FeedForwardActor", policy.actor).net
        layers = [layer for layer in net if isinstance(layer, nn.Linear)]
        others = [type(layer).__name__.lower() for layer in net if not isinstance(layer, nn.Linear)]
        members.append({"widths": [layers[0].in_features, *(layer.out_features for layer in layers)],
                        "activation": others[0] if others else "silu"})
    return {"policies": members}


def plain(config: SpecialistsConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}


def load_policy(run: Path, device: str = "cpu") -> tuple[Switch, Normalizer, SpecialistsConfig]:
    """The policy of a checkpoint file, or of the last one of a run's folder, and the settings."""
    state = offline_learner.read(Path(run), KIND)
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in state["config"].items()}
    if different := set(given) ^ {each.name for each in fields(SpecialistsConfig)}:
        raise checkpoint.CheckpointError(f"{state['path']} was written by another version: settings "
                                         f"{sorted(different)} differ")
    config = SpecialistsConfig(**given)
    members = [rebuilt(state["path"], each, state["switch"]) for each in state["sizes"]["policies"]]
    size = len(members[0].normalizer.shift)
    checkpoint.require_held(state["path"], [size, *config.hidden, len(members)], state["switch"])
    switch = Switch(members, Judges(size, len(members), config.members, config.hidden), config.width, config.margin)
    try:
        switch.load_state_dict(state["switch"])
    except RuntimeError as error:
        raise checkpoint.CheckpointError(f"{state['path']} holds no policy of its settings: {error}") from error
    return switch.to(device).eval(), untouched(size).to(device), config


def rebuilt(path: str, sizes: Mapping[str, Any], weights: Mapping[str, Tensor]) -> OnePolicy:
    """A policy of these ``sizes``, without its weights."""
    widths = list(sizes["widths"])
    checkpoint.require_held(path, widths, weights)
    actor = FeedForwardActor(widths[0], widths[-1], widths[1:-1], str(sizes["activation"]), 1.0)
    return OnePolicy(Normalizer(widths[0]), actor)
