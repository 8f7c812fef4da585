"""What learners of action chunks share: settings, updates on batches of windows, a moving average, loading.

The loop, its budget and its checkpoints are those of all learners from data. The policy that is judged and exported has
the moving average of the weights: single steps of so noisy a loss wander (Diffusion Policy, arXiv 2303.04137).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.nets.encoders import SignalEncoder, count, is_picture, is_words, random_shift, vector
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunks import outliers
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder
from temporeal.policies.training.chunks.windows import Batch, Source, Windows, chosen, windows
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline_learner import OfflineConfig
from temporeal.robots.signals import SignalSpec, schema


@dataclass(frozen=True)
class CloningConfig(OfflineConfig):
    """Settings of learners whose policies give action chunks: how they learn, and how chunks are played in simulation.

    Args:
        execute: control steps of each chunk that are executed in simulation; a robot plays chunks by time.
        ensemble: m: in simulation, infer each step and average what all chunks say of it with weights exp(-m i), i = 0
            the oldest chunk; None: do not.
        learning_rate: of AdamW, after a linear warm-up over 2 % of the updates; falls as a cosine ...
        learning_rate_end: ... to this.
        grad_norm: the gradient is scaled down to at most this length.
        average: share of the moving average that an update keeps; 0: the last weights are deployed.
        shift: pixels by which pictures are moved at random.
        noise: of the numbers that are read, in their standard deviations: the commands stay, and so a policy learns to
            come back to where demonstrations were.
    """

    updates: int = 6000
    batch: int = 128
    execute: int = 8
    ensemble: float | None = None
    learning_rate: float = 2e-3
    learning_rate_end: float = 1e-5
    weight_decay: float = 1e-4
    grad_norm: float = 1.0
    average: float = 0.995
    shift: int = 4
    noise: float = 0.03

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, learning_rate="(0, inf)", grad_norm="(0, inf]", execute="[1, inf)", learning_rate_end="[0, inf)",
                weight_decay="[0, inf)", shift="[0, inf)", noise="[0, inf)", ensemble="[0, inf)", average="[0, 1)")


def check_execute(config: CloningConfig, horizon: int) -> None:
    """Refuse to execute more of a chunk than it has."""
    if config.execute > horizon:
        raise SettingsError(f"algo.execute is at most {horizon}, the control steps of a chunk, got {config.execute}")


@dataclass(frozen=True)
class ChunkConfig(CloningConfig):
    """Settings of learners that begin with new networks; the algorithms add their own.

    Args:
        signals: names of the dataset's signals that the policy reads; (): all.
        relative: name of a signal [J] that the command's first J components are relative to: where they are set points
            of what it measures, a chunk begins where the robot is; "": none.
        horizon: H, control steps of a chunk.
        context: numbers that the signals are encoded to.
        keypoints: of each picture.
        auxiliary: signals that the context must tell in training: places of objects, where a policy sees pictures.
        auxiliary_weight: of the squared error in that.
    """

    signals: Sequence[str] = ()
    relative: str = ""
    horizon: int = 16
    context: int = 256
    keypoints: int = 16
    auxiliary: Sequence[str] = ()
    auxiliary_weight: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, context="[1, inf)", keypoints="[1, inf)", horizon="[2, inf)", auxiliary_weight="[0, inf)")
        check_execute(self, self.horizon)


WARM_UP = 0.02  # share of the updates
C = TypeVar("C", bound=ChunkConfig)
Build = Callable[[Any, int], Decoder]
"""From settings and U to the algorithm's decoder."""
Encode = Callable[[Interface, Any], Any]
"""From the interface and settings to an encoder, as :class:`temporeal.policies.nets.encoders.SignalEncoder` is one."""


def signal_encoder(interface: Interface, config: ChunkConfig) -> SignalEncoder:
    """The encoder of policies that are told nothing in words."""
    if words := [name for name, spec in interface.signals.items() if is_words(spec)]:
        raise SettingsError(f"signal {words[0]} is a sentence, which this algorithm does not read: name the signals "
                            "that it reads in algo.signals, or take algo=vla")
    return SignalEncoder(tuple(interface.signals.values()), config.context, config.keypoints)


class Result(NamedTuple):
    """A trained policy, with the averaged weights."""

    policy: ChunkPolicy
    history: list[dict[str, float]]


class Telling(Protocol):
    """Signals ``plain`` that the context must tell in training."""

    plain: tuple[SignalSpec, ...]
    normalizer: Normalizer

    def loss(self, context: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Mean squared error []; ``context`` [B, ...]."""


class Told(nn.Module):
    """The same by a linear layer that the policy goes without."""

    def __init__(self, specs: Sequence[SignalSpec], context: int) -> None:
        super().__init__()
        self.plain = tuple(specs)
        self.normalizer = Normalizer(sum(map(count, specs)), limit=5.0)
        self.head = nn.Linear(context, len(self.normalizer.shift))

    def loss(self, context: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Mean squared error []; ``context`` [B, ...]."""
        return (self.head(context.flatten(1)) - self.normalizer(vector(self.plain, signals))).square().mean()


class WindowBatches:
    """Batches of windows, disturbed as ``config`` says: pictures are moved, numbers are noisy.

    Attributes:
        sizes: of the policy, for checkpoints.
    """

    def __init__(self, data: Windows, config: CloningConfig, sizes: Mapping[str, Any]) -> None:
        self.data, self.config, self.sizes = data, config, sizes
        self.normalizer = nn.Identity()  # it is in the policy
        self.spread = {name: value[data.at].std(0, correction=0) for name, value in data.numbers.items()
                       if value.is_floating_point()}

    def fingerprint(self) -> str:
        """SHA-256 of the interface, the commands and the numbers."""
        data = self.data
        found = hashlib.sha256(data.interface.digest().encode())
        for value in (data.command, data.at, *data.numbers.values()):
            found.update(value.numpy().tobytes())
        return found.hexdigest()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Batch]:
        """``count`` batches."""
        for _ in range(count):
            which = torch.randint(len(self.data.at), (self.config.batch,), generator=generator)
            yield self.disturbed(self.data.batch(which), generator)

    def disturbed(self, batch: Batch, generator: torch.Generator) -> Batch:
        """``batch`` with its pictures moved and its numbers noisy."""
        signals, config = dict(batch.signals), self.config
        for name in self.data.pictures if config.shift else ():
            signals[name] = random_shift(signals[name], config.shift, generator)
        for name, spread in self.spread.items() if config.noise else ():
            noise = torch.randn(signals[name].shape, generator=generator)
            signals[name] = signals[name] + config.noise * spread * noise
        return batch._replace(signals=signals)


def on_top(encoder: Any, specs: Sequence[SignalSpec]) -> Telling:
    """A layer on top of the context."""
    return Told(specs, encoder.size)


Tell = Callable[[Any, Sequence[SignalSpec]], Telling]
"""From an encoder and signals to what tells them."""


Objective = Callable[[Tensor, Tensor, Tensor, torch.Generator], Tensor]
"""As :meth:`temporeal.policies.training.chunks.policy.Decoder.loss`."""


class Cloning:
    """Supervised learning of a chunk policy: AdamW steps on an objective, and on what the context must tell.

    Attributes:
        actor: the policy with the moving average of the weights.
        updates: done so far.
    """

    def __init__(
        self, policy: ChunkPolicy, config: CloningConfig, generator: torch.Generator, objective: Objective,
        figures: Sequence[str], told: Telling | None = None, told_weight: float = 0.0,
    ) -> None:
        self.policy, self.config, self.generator, self.objective = policy, config, generator, objective
        self.told, self.told_weight = told, told_weight
        self.actor, self.updates = deepcopy(policy), 0
        apart = {"told": told} if isinstance(told, nn.Module) and told not in set(policy.modules()) else {}
        self.modules = {"policy": policy, "actor": self.actor, **apart}
        learned = [policy, *apart.values()]
        self.weights = [value for part in learned for value in part.parameters() if value.requires_grad]
        adamw = torch.optim.AdamW(self.weights, config.learning_rate, weight_decay=config.weight_decay, foreach=True)
        self.optimizers: dict[str, Any] = {
            "adamw": adamw, "schedule": torch.optim.lr_scheduler.LambdaLR(adamw, lambda n: rate(config, n))}
        self.figures = (*figures, *([] if told is None else ["auxiliary"]), "gradient_norm", "learning_rate")

    def update(self, batch: Batch) -> Tensor:
        """One gradient step. Returns its figures [F]."""
        loss, figures = self.losses(batch)
        adamw, schedule = self.optimizers.values()
        adamw.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.weights, self.config.grad_norm)
        now = schedule.get_last_lr()[0]
        adamw.step()
        schedule.step()
        self.updates += 1
        follow(self.actor, self.policy, min(self.config.average, self.updates / (self.updates + 10.0)))
        return torch.cat([figures.detach(), norm[None], torch.tensor([now])])

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What is minimized [], and its parts."""
        return self.of_context(self.policy.encoder(batch.signals), batch)

    def of_context(self, context: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same, of the ``context`` of the batch."""
        figures = self.objective(context, self.policy.chunk(batch.command, batch.signals), batch.given, self.generator)
        if self.told is None:
            return figures[0], figures
        told = self.told.loss(context, batch.signals)
        return figures[0] + self.told_weight * told, torch.cat([figures, told[None]])


class Schedule(Protocol):
    """What :func:`rate` asks of settings."""

    @property
    def updates(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def learning_rate_end(self) -> float: ...


def rate(config: Schedule, done: int) -> float:
    """Learning rate after ``done`` updates, as a share of its largest: a linear warm-up, then a cosine."""
    first = max(1, round(WARM_UP * config.updates))
    if done < first:
        return (done + 1) / first
    falls = 0.5 * (1.0 + math.cos(math.pi * min(1.0, (done - first) / max(config.updates - first, 1))))
    last = config.learning_rate_end / config.learning_rate
    return last + (1.0 - last) * falls


@torch.no_grad()
def follow(averaged: nn.Module, policy: nn.Module, kept: float) -> None:
    """Move the averaged weights towards those of ``policy``."""
    torch._foreach_lerp_(list(averaged.parameters()), list(policy.parameters()), 1.0 - kept)


def train(data: Source, config: ChunkConfig, build: Build, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train the policy whose decoder ``build`` makes, on ``data``.

    ``rest``: as :func:`temporeal.policies.training.offline_learner.learn` takes it (resume, progress, logger,
    on_iteration, evaluate).
    """
    generator = torch.Generator().manual_seed(seed)
    algorithm, batches = begin(data, config, build, seed, generator)
    return learned(algorithm, batches, config, out=out, seed=seed, generator=generator, **rest)


def learned(algorithm: Cloning, batches: WindowBatches, config: CloningConfig, **rest: Any) -> Result:
    """The result of the loop."""
    found = offline_learner.learn(algorithm, batches, config, **rest)
    return Result(algorithm.actor.eval(), found.history)


def begin(
    data: Source, config: ChunkConfig, build: Build, seed: int, generator: torch.Generator,
    encode: Encode = signal_encoder, tell: Tell = on_top, kind: Callable[..., Cloning] = Cloning,
) -> tuple[Cloning, WindowBatches]:
    """A learner before its first update, with the scales of ``data`` where none are given."""
    read = chosen(data.interface, config.signals)
    hidden = chosen(data.interface, config.auxiliary).signals if config.auxiliary else {}
    seen = windows(data, tuple({**read.signals, **hidden}), config.horizon)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = make_policy(read, config, build, encode)
        told = tell(policy.encoder, tuple(hidden.values())) if hidden else None
    outliers.warn(seen, config.relative)
    policy.scale.fit(*seen.span(config.relative))
    shown = {name: value[seen.at] for name, value in seen.numbers.items()}
    for part in (policy.encoder, told):
        if part is not None and len(part.normalizer.shift) and not bool(part.normalizer.count):
            part.normalizer.update(moments(vector(part.plain, shown)))
    decoder = policy.decoder
    return (kind(policy, config, generator, decoder.loss, decoder.figures, told, config.auxiliary_weight),
            WindowBatches(seen, config, {"interface": plain_interface(read)}))


def make_policy(
    interface: Interface, config: ChunkConfig, build: Build, encode: Encode = signal_encoder
) -> ChunkPolicy:
    """A policy with new weights."""
    check_relative(config.relative, interface)
    encoder = encode(interface, config)
    try:
        return ChunkPolicy(interface, config.horizon, encoder, build(config, interface.action.size), config.relative)
    except ValueError as error:
        raise SettingsError(f"algo: {error}") from error


def check_relative(name: str, interface: Interface) -> None:
    """Refuse a signal that commands cannot be relative to."""
    size = interface.action.size
    fit = [each for each, spec in interface.signals.items() if len(spec.shape) == 1 and spec.size <= size]
    if name and name not in fit:
        raise SettingsError(f"algo.relative={name}: a signal that the policy reads, of at most {size} numbers; legal: "
                            f"{', '.join(fit)}")


def load(run: Path, kind: type[C], build: Build, device: str = "cpu") -> tuple[ChunkPolicy, C]:
    """The averaged policy in a checkpoint file, or in the last one of a run's folder, and its settings."""
    return of_state(offline_learner.read(Path(run)), kind, build, device)


def of_state(
    state: Mapping[str, Any], kind: type[C], build: Build, device: str = "cpu", encode: Encode = signal_encoder
) -> tuple[ChunkPolicy, C]:
    """The averaged policy of a checkpoint ``state``, and its settings."""
    config = offline_learner.config_of(state, kind)
    interface = interface_of(state["sizes"]["interface"])
    hold(state, config, interface)
    policy = make_policy(interface, config, build, encode)
    return weighted(policy, state).to(device).eval(), config


SIZES = ("context", "keypoints", "horizon", "train_steps", "width", "layers", "latent", "tokens", "camera_tokens",
         "bins", "text_layers", "fusion_layers", "patches", "plan")
"""Settings, of some algorithm, that networks take their sizes from."""


def hold(state: Mapping[str, Any], config: ChunkConfig, interface: Interface) -> None:
    """Refuse sizes that the weights of a checkpoint cannot have, before memory is taken for them."""
    single = [[value] for name in SIZES if (value := getattr(config, name, 0))]
    pictures = [[-(-side // 4) for side in spec.shape[:2]] for spec in interface.signals.values() if is_picture(spec)]
    for widths in (*single, *pictures, [config.horizon, interface.action.size],
                   *(list(getattr(config, name, ())) for name in ("hidden", "channels"))):
        checkpoint.require_held(state["path"], widths, state["modules"]["actor"])


def weighted(policy: ChunkPolicy, state: Mapping[str, Any]) -> ChunkPolicy:
    """``policy`` with the weights of a checkpoint."""
    try:
        policy.load_state_dict(state["modules"]["actor"])
    except RuntimeError as error:
        raise checkpoint.CheckpointError(f"{state['path']} holds no policy of its settings: {error}") from error
    return policy


def plain_interface(interface: Interface) -> dict[str, Any]:
    """The hashed part of an interface, in plain values."""
    found: dict[str, Any] = json.loads(json.dumps(interface.hashed()))
    return found


def interface_of(content: Mapping[str, Any]) -> Interface:
    """The interface that :func:`plain_interface` wrote."""
    signals = [SignalSpec(**tupled(each)) for each in content["signals"].values()]
    return Interface(content["robot"], schema(*signals), ActionSpec(**tupled(content["action"])), content["rate_hz"],
                     content["task_action"])


def tupled(content: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
