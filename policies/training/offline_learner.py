"""What all learners from data share: the loop over batches, its budget, figures, checkpoints and evaluations.

A learner gives an :class:`Algorithm`, which makes one gradient step of a batch, and :class:`Batches`, which draw them
with the loop's generator. A resumed run goes on bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from temporeal.policies.training import checkpoint
from temporeal.policies.training.errors import NonFiniteError, choose, require
from temporeal.policies.training.progress import CLOCKS, Logger, Progress

KIND = "temporeal offline 1"
MAY_CHANGE = ("updates", "max_seconds", "clock", "checkpoint_seconds", "report_updates", "evaluate_updates",
              "evaluate_episodes")
ABSENT_DEFAULTS: Mapping[str, Any] = {"rest": None}
"""Settings that older checkpoints lack, and their values then."""


@dataclass(frozen=True)
class OfflineConfig:
    """Settings of all learners from data.

    Args:
        updates: gradient steps.
        max_seconds: of the clock, earlier parts of a resumed run included; None: no limit.
        clock: "wall", or "cpu": time that the process computes.
        batch: rows of an update.
        report_updates: between reports; an interrupted run stops after one.
        evaluate_updates: between evaluations on the task, whose figures are logged; 0: none.
        evaluate_episodes: of such an evaluation.
        checkpoint_seconds: between checkpoints; 0: after each report.
        threads: of torch's operations on a CPU.
    """

    updates: int = 100_000
    max_seconds: float | None = None
    clock: str = "wall"
    batch: int = 256
    report_updates: int = 200
    evaluate_updates: int = 10_000
    evaluate_episodes: int = 64
    checkpoint_seconds: float = 30.0
    threads: int = 1

    def __post_init__(self) -> None:
        require(self, updates="[1, inf)", batch="[1, inf)", report_updates="[1, inf)", threads="[1, inf)",
                max_seconds="(0, inf)", evaluate_updates="[0, inf)", evaluate_episodes="[1, inf)",
                checkpoint_seconds="[0, inf)")
        choose(self, clock=tuple(CLOCKS))


class Algorithm(Protocol):
    """What a learner from data is to the loop. ``updates``: how many it has made; set where a run is resumed."""

    updates: int

    @property
    def figures(self) -> Sequence[str]:
        """Names of what :meth:`update` returns."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """All that learns, by name: saved and restored."""

    @property
    def optimizers(self) -> Mapping[str, Any]:
        """Likewise."""

    @property
    def actor(self) -> nn.Module:
        """The deterministic action [B, A] of a normalized observation [B, O]; what is evaluated and deployed."""

    def update(self, batch: Any) -> Tensor:
        """One gradient step. Returns its figures [F]."""


class Batches(Protocol):
    """Where an algorithm's batches come from."""

    @property
    def normalizer(self) -> nn.Module:
        """What the actor's observations went through."""

    @property
    def sizes(self) -> Mapping[str, Any]:
        """What a policy's network is rebuilt from."""

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Any]:
        """``count`` batches, all random choices from ``generator``."""

    def fingerprint(self) -> str:
        """A hash of the data."""


class Result(NamedTuple):
    """A trained policy: the deterministic action is ``actor(normalizer(obs))``."""

    actor: nn.Module
    normalizer: nn.Module
    history: list[dict[str, float]]


@dataclass
class Loop:
    """The state of a training."""

    algorithm: Algorithm
    batches: Batches
    config: OfflineConfig
    seed: int
    generator: torch.Generator
    updates: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


Evaluate = Callable[[nn.Module, nn.Module, int], Mapping[str, float]]
"""``evaluate(actor, normalizer, episodes)``: figures of the deterministic policy on fresh episodes."""
OnIteration = Callable[[Loop], "bool | None"]


def learn(
    algorithm: Algorithm, batches: Batches, config: OfflineConfig, *, out: Path, seed: int, generator: torch.Generator,
    resume: bool | Path = False, progress: Progress | None = None, logger: Logger | None = None,
    on_iteration: OnIteration | None = None, evaluate: Evaluate | None = None,
) -> Result:
    """Update until the budget is spent. Checkpoints go to ``out/checkpoints``.

    Args:
        generator: of all random numbers: batches are drawn with it, and the algorithm holds it for its noise.
        on_iteration: after each report; the training ends where it returns True.
    """
    loop = Loop(algorithm, batches, config, seed, generator)
    if resume:
        restore(loop, resume if isinstance(resume, Path) else checkpoint.latest(Path(out) / "checkpoints", 0, 1))
    passed = CLOCKS[config.clock]
    began, saved = passed() - loop.seconds, time.monotonic()
    done = spent(loop)
    with progress if progress is not None else nullcontext(), threads(config.threads):
        while not done:
            figures = iterate(loop)
            loop.seconds = passed() - began
            if evaluate is not None and evaluation_due(loop):
                algorithm.actor.eval()
                figures |= evaluate(algorithm.actor, batches.normalizer, config.evaluate_episodes)
                algorithm.actor.train()
            report(loop, figures, progress, logger)
            asked = on_iteration is not None and bool(on_iteration(loop))
            done = asked or spent(loop)
            if done or time.monotonic() - saved >= config.checkpoint_seconds:
                keep(loop, Path(out))
                saved = time.monotonic()
    algorithm.actor.eval()
    return Result(algorithm.actor, batches.normalizer, loop.history)


def iterate(loop: Loop) -> dict[str, float]:
    """The updates until the next report. Returns means of their figures."""
    count = min(loop.config.report_updates, loop.config.updates - loop.updates)
    began = time.perf_counter()
    total = sum(loop.algorithm.update(batch) for batch in loop.batches.draw(loop.generator, count))
    assert isinstance(total, Tensor)
    loop.updates += count
    figures = dict(zip(loop.algorithm.figures, (total / count).tolist()))
    if bad := {name: value for name, value in figures.items() if not math.isfinite(value)}:
        raise NonFiniteError(f"after {loop.updates} updates {', '.join(f'{k} is {v}' for k, v in bad.items())}")
    return figures | {"rate": count / (time.perf_counter() - began)}


def spent(loop: Loop) -> bool:
    """Whether the budget is."""
    return fraction_spent(loop) >= 1.0


def fraction_spent(loop: Loop) -> float:
    """Of the updates or of the time, whichever is more."""
    limit = loop.config.max_seconds
    return max(loop.updates / loop.config.updates, loop.seconds / limit if limit else 0.0)


def evaluation_due(loop: Loop) -> bool:
    """Whether this report has passed one more multiple of ``evaluate_updates``."""
    every, last = loop.config.evaluate_updates, loop.updates - loop.config.report_updates
    return every > 0 and (loop.updates // every > last // every or loop.updates >= loop.config.updates)


def report(loop: Loop, figures: dict[str, float], progress: Progress | None, logger: Logger | None) -> None:
    """Enter the figures in the history, and show and log them."""
    fraction = fraction_spent(loop)
    eta = loop.seconds * (1.0 - fraction) / fraction if 0 < fraction < 1 else 0.0
    row = {"updates": float(loop.updates), "seconds": loop.seconds, "eta": eta, "fraction": fraction, **figures}
    loop.history.append(row)
    if progress is not None:
        progress(row)
    if logger is not None:
        logger(loop.updates, {key: value for key, value in row.items() if key not in ("updates", "eta", "fraction")})


def keep(loop: Loop, out: Path) -> None:
    """Write a checkpoint and remove older ones except the last."""
    folder = out / "checkpoints"
    checkpoint.save(checkpoint.file_of(folder, loop.updates, 0, 1), {
        "kind": KIND, "config": plain(loop.config), "sizes": dict(loop.batches.sizes), "seed": loop.seed,
        "data": loop.batches.fingerprint(), "updates": loop.updates, "seconds": loop.seconds, "history": loop.history,
        "normalizer": loop.batches.normalizer.state_dict(), "generator": loop.generator.get_state(),
        "torch_rng": torch.get_rng_state(),
        **{part: {name: thing.state_dict() for name, thing in getattr(loop.algorithm, part).items()}
           for part in ("modules", "optimizers")}})
    checkpoint.prune(folder, 0, 1)


def restore(loop: Loop, path: Path) -> None:
    """Set ``loop`` to the state of the checkpoint ``path``."""
    state = read(path)
    same = checkpoint.require_same
    same(path, "sizes", state["sizes"], loop.batches.sizes, MAY_CHANGE)
    same(path, "configuration", settings_of(state, type(loop.config)), plain(loop.config), MAY_CHANGE)
    same(path, "run", {"seed": state["seed"]}, {"seed": loop.seed}, MAY_CHANGE)
    same(path, "data", {"SHA-256": state["data"]}, {"SHA-256": loop.batches.fingerprint()}, MAY_CHANGE)
    for part in ("modules", "optimizers"):
        for name, thing in getattr(loop.algorithm, part).items():
            thing.load_state_dict(state[part][name])
    loop.updates, loop.seconds, loop.history = state["updates"], state["seconds"], state["history"]
    loop.algorithm.updates = loop.updates
    loop.generator.set_state(state["generator"])
    torch.set_rng_state(state["torch_rng"])


def read(path: Path, kind: str = KIND) -> dict[str, Any]:
    """The state in a checkpoint file, or in the last one of a run's folder; of another ``kind``: refused."""
    path = Path(path)
    if path.is_dir():
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        path = checkpoint.latest(folder, 0, 1)
    state = checkpoint.load(path)
    if state.get("kind") != kind:
        raise checkpoint.CheckpointError(
            f"{path} is not of this learner from data: its kind is {state.get('kind')!r}, not {kind!r}")
    return {**state, "path": str(path)}


C = TypeVar("C", bound=OfflineConfig)


def settings_of(state: Mapping[str, Any], kind: type[OfflineConfig]) -> dict[str, Any]:
    """Those of the checkpoint ``state`` of a learner whose settings are a ``kind``."""
    known = {f.name for f in fields(kind)}
    return {**{name: value for name, value in ABSENT_DEFAULTS.items() if name in known}, **state["config"]}


def config_of(state: Mapping[str, Any], kind: type[C]) -> C:
    """The configuration, a ``kind``, of the checkpoint ``state``."""
    known, settings = {f.name for f in fields(kind)}, settings_of(state, kind)
    if set(settings) != known:
        raise checkpoint.CheckpointError(
            f"{state['path']} was written by another version: settings {sorted(set(settings) ^ known)} differ")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})


def plain(config: OfflineConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """``count`` threads of torch's operations inside: sums must not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
