"""The loop of a tuning: iterate, judge the deterministic policy on fresh episodes, keep the best, go back from a
collapse.

Reinforcement learning of flow policies is known for collapses after a good start (ReinFlow#5, RLinf#1557). So the
policy that a run gives is the best one by its evaluations, and a run whose policy became much worse goes on from that
one with smaller steps. A method (:class:`Method`) makes the updates. A resumed run goes on bit for bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from temporeal.policies.training import budget, checkpoint, offline_learner
from temporeal.policies.training.chunk_rl.halves import Halves, Worlds
from temporeal.policies.training.chunk_rl.rewards import make_reward
from temporeal.policies.training.chunk_rl.settings import MAY_CHANGE, TuningConfig, plain
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv, ChunkWorlds, Coder
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.progress_models.protocol import ProgressModel
from temporeal.policies.training.ranks import Ranks

KIND = "temporeal chunk_rl 1"
GIVEN_UP = 4  # collapses after which a run ends with the best policy: smaller steps do not help

Evaluate = Callable[[ChunkPolicy, int], Mapping[str, float]]
"""``evaluate(policy, episodes)``: figures of the deterministic policy, with ``success``, on fresh episodes: the same
ones each time, neither those of the training nor those that `temporeal eval` takes."""


@dataclass(frozen=True)
class Base:
    """What is tuned, and how it sees.

    Args:
        policy: of the run in the folder ``run``.
        measured: makes, of an environment, what gives the signals [N, *shape] that are measured now, without pictures.
        pictures: names of the signals that are pictures.
        beside: makes as many worlds again, with other episodes.
        progress: the model of ``algo.reward=progress``.
    """

    policy: ChunkPolicy
    run: Path
    measured: Callable[[ChunkEnv], Callable[[], Mapping[str, Tensor]]]
    pictures: Sequence[str] = ()
    evaluate: Evaluate | None = None
    progress: ProgressModel | None = None
    beside: Callable[[], ChunkEnv] | None = None


class Method(Protocol):
    """An algorithm.

    Attributes:
        policy: what is deployed, deterministic.
        modules: all that learns, by name; with ``optimizers`` and ``memory`` (plain values and tensors) all its state.
    """

    policy: ChunkPolicy
    memory: dict[str, Any]

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """By name."""

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """By name."""

    def iterate(self, worlds: Any, generator: torch.Generator) -> dict[str, float]:
        """Collect, and learn of it. Returns figures."""

    def soften(self) -> None:
        """Make steps half as large from now on."""


@dataclass
class Best:
    """The best policy so far, and the state of all modules then."""

    success: float
    steps: int
    modules: dict[str, dict[str, Tensor]]


@dataclass
class Tuning:
    """All state of a run. ``update``: control steps of all worlds, which is what the budget counts."""

    config: TuningConfig
    worlds: Worlds
    method: Method
    base: Base
    seed: int
    generator: torch.Generator
    update: int = 0
    seconds: float = 0.0
    iteration: int = 0
    evaluated: int = -1
    collapses: int = 0
    best: Best | None = None
    history: list[dict[str, float]] = field(default_factory=list)


class Result(NamedTuple):
    """The best policy."""

    policy: ChunkPolicy
    history: list[dict[str, float]]


OnIteration = Callable[[Tuning], "bool | None"]


def tune(
    worlds: Worlds, config: TuningConfig, method: Method, base: Base, *, out: Path, seed: int,
    generator: torch.Generator, resume: bool | Path = False, progress: Progress | None = None,
    logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """Iterate until the budget is spent or ``on_iteration`` returns True. Checkpoints go to ``out/checkpoints``, a copy
    of what is tuned to ``out/base``."""
    if ranks.size > 1:
        raise SettingsError(f"a chunk policy is tuned in one process, not in {ranks.size}: processes=1")
    tuning = Tuning(config, worlds, method, base, seed, generator)
    if resume:
        restore(tuning, resume if isinstance(resume, Path) else checkpoint.latest(Path(out) / "checkpoints", 0, 1))
    else:
        copy_base(base.run, Path(out) / BASE)
    with offline_learner.threads(config.threads):
        budget.spend(tuning, iterate, lambda it: it.update, lambda it: keep(it, Path(out)), progress, logger,
                     lambda it: bool(on_iteration and on_iteration(it)) or it.collapses >= GIVEN_UP)
    return Result(deployed(tuning), tuning.history)


def make_worlds(env: ChunkEnv, coder: Coder, config: TuningConfig, base: Base) -> Worlds:
    """The worlds of ``env``, with the reward that the settings name; ``config.overlap``: and as many beside them."""
    if config.execute > coder.horizon:
        raise SettingsError(f"algo.execute is at most {coder.horizon}, the control steps of a chunk of {base.run}, got "
                            f"{config.execute}")
    first = worlds_of(env, coder, config, base)
    if not config.overlap:
        return first
    if base.beside is None or config.reward == "progress":
        raise SettingsError("algo.overlap=true: not with algo.reward=progress, whose model follows one set of worlds, "
                            "nor in worlds of your own; algo.overlap=false")
    return Halves(first, worlds_of(base.beside(), coder, config, base))


def worlds_of(env: ChunkEnv, coder: Coder, config: TuningConfig, base: Base) -> ChunkWorlds:
    """The worlds of one environment."""
    reward = make_reward(config.reward, env, base.progress, config.execute)
    return ChunkWorlds(env, coder, base.measured(env), base.pictures, config.execute, reward)


def copied(base: Base) -> ChunkPolicy:
    """The policy that is to be tuned: what it begins as stays as it was."""
    return deepcopy(base.policy).eval()


M = TypeVar("M")


def seeded(seed: int, make: Callable[[], M]) -> M:
    """What ``make`` gives with networks drawn by ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def iterate(tuning: Tuning) -> dict[str, float]:
    """One iteration, and an evaluation where one is due. Returns the figures."""
    first = judged(tuning) if tuning.iteration == 0 else {}
    figures = tuning.method.iterate(tuning.worlds, tuning.generator)
    tuning.iteration += 1
    tuning.update = tuning.worlds.steps
    if bad := [name for name, value in figures.items() if not math.isfinite(value)]:
        went_back(tuning, NonFiniteError(f"after {tuning.update} steps not finite: {', '.join(bad)}"))
    found = judged(tuning) if due(tuning) else {}
    return {**first, **figures, **found, "collapses": float(tuning.collapses)}


def due(tuning: Tuning) -> bool:
    """Whether an evaluation is."""
    every = tuning.config.evaluate_steps
    if not every:
        return False
    return tuning.update // every > tuning.evaluated // every or tuning.update >= tuning.config.total_steps


def judged(tuning: Tuning) -> dict[str, float]:
    """Evaluate; keep the policy if it is the best, and go back to the best if this is much worse."""
    config, evaluate = tuning.config, tuning.base.evaluate
    if evaluate is None or not config.evaluate_steps:
        return {}
    found = evaluate(tuning.method.policy, config.evaluate_episodes)
    tuning.evaluated = tuning.update
    success = float(found["success"])
    if tuning.best is None or success >= tuning.best.success:
        tuning.best = Best(success, tuning.update, state_of(tuning.method))
    elif config.collapse and success < tuning.best.success - config.collapse:
        go_back(tuning)
    return {**{f"evaluated_{name}": float(value) for name, value in found.items()}, "best": tuning.best.success}


def went_back(tuning: Tuning, error: NonFiniteError) -> None:
    """Go back from numbers that are none; ``error`` where there is nothing to go back to."""
    if tuning.best is None:
        raise error
    go_back(tuning)


def go_back(tuning: Tuning) -> None:
    """Go on from the best policy, with smaller steps and no momentum."""
    assert tuning.best is not None
    for name, module in tuning.method.modules.items():
        module.load_state_dict(tuning.best.modules[name])
    for optimizer in tuning.method.optimizers.values():
        optimizer.state.clear()
    tuning.method.soften()
    tuning.collapses += 1


def state_of(method: Method) -> dict[str, dict[str, Tensor]]:
    """A copy of the state of all modules."""
    return {name: {key: value.clone() for key, value in module.state_dict().items()}
            for name, module in method.modules.items()}


def deployed(tuning: Tuning) -> ChunkPolicy:
    """The best policy; the last one where none was evaluated."""
    found = deepcopy(tuning.method.policy)
    if tuning.best is not None:
        found.load_state_dict(tuning.best.modules["policy"])
    return found.eval()


# ---- on disk

BASE = "base"
"""In a run's folder: the run whose policy was tuned."""


def copy_base(run: Path, to: Path) -> None:
    """Copy the settings and the last checkpoint of ``run`` (of a run that was tuned itself, with its base): all that
    its policy is read from."""
    from temporeal.policies.training.policy_graphs import CONFIG
    from temporeal.robots.atomic_files import write_whole
    from temporeal.robots.handed_over import files

    folder, file = checkpoint_of(run)
    for source, name in ((folder / CONFIG, CONFIG), (file, f"checkpoints/{file.name}")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(to / name, files.read(source, checkpoint.LARGEST, within=folder))
    if (folder / BASE).is_dir():
        copy_base(folder / BASE, to / BASE)


def checkpoint_of(run: Path) -> tuple[Path, Path]:
    """The folder of a run and its checkpoint: the last one, or that which ``run`` itself is."""
    if run.is_dir():
        return run, checkpoint.latest(run / "checkpoints", 0, 1)
    return run.parent.parent, run


def keep(tuning: Tuning, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder, method = out / "checkpoints", tuning.method
    checkpoint.save(checkpoint.file_of(folder, tuning.iteration, 0, 1), {
        "kind": KIND, "config": plain(tuning.config), "seed": tuning.seed, "base": digest(tuning.base.policy),
        **{name: getattr(tuning, name) for name in KEPT},
        "best": None if tuning.best is None else vars(tuning.best),
        "modules": state_of(method), "memory": method.memory,
        "optimizers": {name: each.state_dict() for name, each in method.optimizers.items()},
        "generator": tuning.generator.get_state(), "worlds": tuning.worlds.state_dict()})
    checkpoint.prune(folder, 0, 1)


KEPT = ("update", "seconds", "iteration", "evaluated", "collapses", "history")


def restore(tuning: Tuning, path: Path) -> None:
    """Set ``tuning`` to the state of the checkpoint ``path``."""
    state, method = offline_learner.read(path, KIND), tuning.method
    same = checkpoint.require_same
    now = plain(tuning.config)
    same(path, "configuration", settings_in(state, now), now, (*MAY_CHANGE, "policy"))
    same(path, "run", {"seed": state["seed"], "base": state["base"]},
         {"seed": tuning.seed, "base": digest(tuning.base.policy)}, ())
    try:
        tuning.worlds.load_state_dict(state["worlds"])
    except ValueError as error:
        raise checkpoint.CheckpointError(f"{path} cannot be resumed: {error}") from error
    for name, module in method.modules.items():
        module.load_state_dict(state["modules"][name])
    for name, optimizer in method.optimizers.items():
        optimizer.load_state_dict(state["optimizers"][name])
    method.memory.update(state["memory"])
    tuning.generator.set_state(state["generator"])
    tuning.best = None if state["best"] is None else Best(**state["best"])
    for name in KEPT:
        setattr(tuning, name, state[name])


def digest(policy: nn.Module) -> str:
    """SHA-256 of the weights."""
    found = hashlib.sha256()
    for name, value in sorted(policy.state_dict().items()):
        found.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


ABSENT_DEFAULTS: Mapping[str, Any] = {"adapters": 0, "modulate": False}
"""Settings that older checkpoints lack, and their values then."""


def settings_in(state: Mapping[str, Any], legal: Collection[str]) -> dict[str, Any]:
    """The settings in a checkpoint's ``state``, of a learner that has the ``legal`` ones."""
    return {**{key: value for key, value in ABSENT_DEFAULTS.items() if key in legal}, **state["config"]}


C = TypeVar("C", bound=TuningConfig)


def load(
    run: Path, kind: type[C], device: str = "cpu",
    shaped: Callable[[ChunkPolicy, C, Mapping[str, Tensor]], ChunkPolicy] | None = None,
) -> ChunkPolicy:
    """The best policy of a run's folder, or of a checkpoint file in it.

    ``shaped``: makes of the base policy one of the shape of what was tuned, for its weights; left out, both have one.
    """
    from temporeal.policies.training.policy_graphs import learner_of

    folder, file = checkpoint_of(Path(run))
    state = offline_learner.read(file, KIND)
    legal = {each.name for each in fields(kind)}
    given = settings_in(state, legal)
    if different := set(given) ^ legal:
        raise checkpoint.CheckpointError(f"{file} was written by another version: settings {sorted(different)} differ")
    settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    policy: ChunkPolicy = learner_of(folder / BASE).load_chunks(folder / BASE)
    weights = (state["modules"] if state["best"] is None else state["best"]["modules"])["policy"]
    try:
        config = kind(**settings)
        policy = policy if shaped is None else shaped(policy, config, weights)
        policy.load_state_dict(weights)
    except (RuntimeError, LookupError, TypeError, SettingsError) as error:
        raise checkpoint.CheckpointError(f"{file} holds no policy of its settings: {error}") from error
    return policy.to(device).eval()
