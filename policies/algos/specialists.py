"""Specialists beside a generalist: each acts where it is surely better, and all else stays as it was, bit for bit.

After R2SE (Liu et al. 2025, arXiv 2506.09800): the generalist ``algo.adapt``, and specialists that were trained from it
or anew (``algo.specialists=[RUN,RUN]``), all of algo=ppo. In turn each of them flies an episode in every world; an
ensemble learns which of them fail from where; who acts is decided in each control step
(:mod:`temporeal.policies.training.warm_starts.easy_cases`). Nothing of the policies is trained.

``algo.merge=true`` makes one network of them instead, where they were trained from the generalist: their weights are
averaged (:mod:`temporeal.policies.training.warm_starts.merging`), by ``algo.weights`` or as held-out episodes say.
Policies that give chunks are merged likewise (:mod:`temporeal.policies.training.warm_starts.chunk_merging`); they take
no turns.

What they are together is one policy, which is judged and exported as any other, and distilled to one network by
``algo=dagger algo.expert=RUN``. N worlds, O observation.
"""

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
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, choose, require, require_widths
from temporeal.policies.training.progress import CLOCKS, Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.warm_starts import chunk_merging, merged_run, merging
from temporeal.policies.training.warm_starts.chunk_merging import ChunkStart
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
        merge: whether weights are averaged instead; of what is above only adapt and specialists count then.
        weights: of each specialist's difference from the generalist; none: chosen. choices: those that are tried.
        episodes: of each task in an evaluation.
        execute: of merged policies that give chunks: control steps of each chunk that are played; None: they give
            single commands. A command fills it in, as algo.adapt plays its chunks.
        ensemble: of chunks, see :class:`temporeal.policies.training.chunks.learner.CloningConfig`.
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
    merge: bool = False
    weights: Sequence[float] = ()
    choices: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    episodes: int = 128
    execute: int | None = None
    ensemble: float | None = None

    def __post_init__(self) -> None:
        require(self, updates="[1, inf)", round_updates="[1, inf)", max_seconds="(0, inf)", members="[2, inf)",
                batch="[1, inf)", learning_rate="(0, inf)", weight_decay="[0, inf)", width="[0, inf)",
                margin="[0, 1]", rows="[1, inf)", checkpoint_seconds="[0, inf)", threads="[1, inf)",
                episodes="[1, inf)", execute="[1, inf)", ensemble="[0, inf)")
        for name in ("weights", "choices"):
            if wrong := [x for x in getattr(self, name) if not -2.0 <= x <= 2.0]:
                raise SettingsError(f"algo.{name}={wrong}: of a specialist's difference, -2 to 2; 1 is all of it")
        if not (self.weights or self.choices):
            raise SettingsError("algo.choices=[] leaves none to choose algo.weights from")
        if self.weights and not self.merge:
            raise SettingsError("algo.weights are those of merged specialists: algo.merge=true")
        if self.execute is not None and not self.merge:
            raise SettingsError(f"algo.execute={self.execute} plays chunks, and policies that give chunks do not take "
                                "turns: algo.merge=true, or algo.execute=null")
        if self.ensemble is not None and self.execute is None:
            raise SettingsError(f"algo.ensemble={self.ensemble} averages chunks: only where policies that give chunks "
                                "are merged, algo.execute=N")
        require_widths(self, "hidden")
        choose(self, clock=tuple(CLOCKS))


class Result(NamedTuple):
    """The policy: the deterministic action is ``actor(normalizer(obs))``; the normalizer changes nothing."""

    actor: Switch | FeedForwardActor | ChunkPolicy
    normalizer: nn.Module
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
    env: TaskEnv, config: SpecialistsConfig, *, out: Path, seed: int = 0,
    policies: Sequence[WarmStart] | Sequence[ChunkStart] = (),
    judges: Sequence[merging.Judge] = (), resume: bool | Path = False, progress: Progress | None = None,
    logger: Logger | None = None,
    on_iteration: Callable[[Any], bool | None] | None = None, ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Fly and judge until the budget is spent or ``on_iteration`` returns True. ``policies``: the generalist first.
    ``judges``: of their tasks, where they are merged."""
    if ranks.size > 1:
        raise SettingsError(f"specialists are judged in one process, not in {ranks.size}: processes=1")
    if len(policies) < 2:
        raise SettingsError("algo=specialists takes a generalist, algo.adapt=RUN, and one specialist at least, "
                            "algo.specialists=[RUN]")
    if config.merge:
        return merge(config, policies, judges, Path(out), resume, logger, on_iteration)
    learner = begin(env, config, cast("Sequence[WarmStart]", policies), seed)
    if resume:
        restore(learner, resume if isinstance(resume, Path) else checkpoint.latest(Path(out) / "checkpoints", 0, 1))
    with offline_learner.threads(config.threads):
        budget.spend(learner, round_of, lambda it: it.flown, lambda it: keep(it, Path(out)), progress, logger,
                     on_iteration)
    return Result(learner.switch.eval(), untouched(env.obs_dim), learner.history)


def merge(
    config: SpecialistsConfig, policies: Sequence[WarmStart] | Sequence[ChunkStart], judges: Sequence[merging.Judge],
    out: Path, resume: bool | Path, logger: Logger | None, on_iteration: Callable[[Any], bool | None] | None,
) -> Result:
    """Average the policies' weights, and write what came of it."""
    start = Path(policies[0].run)
    actor, normalizer, history = merged_run.run(
        config, policies, judges, out, resume, logger, on_iteration, lambda it: keep_merged(it, config, start, out))
    return Result(cast("Any", actor), normalizer, history)


def keep_merged(found: merging.Found, config: SpecialistsConfig, start: Path, out: Path) -> None:
    """Write the checkpoint of the merged policy."""
    if config.execute is not None:
        return chunk_merging.keep(found, start, plain(config), out)
    one = OnePolicy(cast("Normalizer", found.normalizer), found.actor)
    checkpoint.save(checkpoint.file_of(out / "checkpoints", 1, 0, 1), {
        "kind": KIND, "config": plain(config), "sizes": {"policies": [size_of(one)]}, "switch": one.state_dict()})


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
    loss.backward()
    learner.adam.step()
    return loss.detach()


ABSENT = ("merge", "weights", "choices", "episodes", "execute", "ensemble")
"""Settings that older checkpoints lack: their defaults are what was done then."""
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
    checkpoint.require_same(path, "configuration", with_absent(state["config"]), plain(learner.config), MAY_CHANGE)
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
    return {"policies": [size_of(cast("OnePolicy", policy)) for policy in switch.policies]}


def size_of(policy: OnePolicy) -> dict[str, Any]:
    """Widths of its layers, and the activation between them."""
    net = cast("FeedForwardActor", policy.actor).net
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    others = [type(layer).__name__.lower() for layer in net if not isinstance(layer, nn.Linear)]
    return {"widths": [layers[0].in_features, *(layer.out_features for layer in layers)],
            "activation": others[0] if others else "silu"}


def with_absent(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a checkpoint, with the defaults of those that older ones lack."""
    defaults = plain(SpecialistsConfig())
    return {**{name: defaults[name] for name in ABSENT}, **config}


def plain(config: SpecialistsConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}


def gives_chunks_with(algo: Mapping[str, Any]) -> bool:
    """Whether the policy of a run with these settings of the algorithm gives chunks."""
    return bool(algo.get("merge")) and algo.get("execute") is not None


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The merged policy of a run, which gives chunks."""
    return chunk_merging.load(Path(run), device)


def load_policy(run: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, SpecialistsConfig]:
    """The policy of a checkpoint file, or of the last one of a run's folder, and the settings."""
    state = offline_learner.read(Path(run), KIND)
    told = with_absent(state["config"])
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in told.items()}
    if different := set(given) ^ {each.name for each in fields(SpecialistsConfig)}:
        raise checkpoint.CheckpointError(f"{state['path']} was written by another version: settings "
                                         f"{sorted(different)} differ")
    config = SpecialistsConfig(**given)
    members = [rebuilt(state["path"], each, state["switch"]) for each in state["sizes"]["policies"]]
    if config.merge:
        (one,) = members
        filled(one, state)
        return cast("FeedForwardActor", one.actor).to(device).eval(), one.normalizer.to(device), config
    size = len(members[0].normalizer.shift)
    checkpoint.require_held(state["path"], [size, *config.hidden, len(members)], state["switch"])
    switch = Switch(members, Judges(size, len(members), config.members, config.hidden), config.width, config.margin)
    filled(switch, state)
    return switch.to(device).eval(), untouched(size).to(device), config


def filled(policy: nn.Module, state: Mapping[str, Any]) -> None:
    """Take the weights of a checkpoint."""
    try:
        policy.load_state_dict(state["switch"])
    except RuntimeError as error:
        raise checkpoint.CheckpointError(f"{state['path']} holds no policy of its settings: {error}") from error


def rebuilt(path: str, sizes: Mapping[str, Any], weights: Mapping[str, Tensor]) -> OnePolicy:
    """A policy of these ``sizes``, without its weights."""
    widths = list(sizes["widths"])
    checkpoint.require_held(path, widths, weights)
    actor = FeedForwardActor(widths[0], widths[-1], widths[1:-1], str(sizes["activation"]), 1.0)
    return OnePolicy(Normalizer(widths[0]), actor)
