"""What learners of progress share: settings, updates, a moving average, loading. The loop, its budget, its checkpoints
and its resumption are those of all learners from data.

The model that is judged has the moving average of the weights; it is also what a bootstrapped target is taken from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import is_picture, is_words, shifted, vector
from temporeal.policies.nets.normalizer import moments as statistics
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.chunks.learner import follow, interface_of, plain_interface, rate
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline_learner import OfflineConfig
from temporeal.policies.training.progress_models.moments import Moments, Source, learned_from, moments
from temporeal.policies.training.progress_models.network import MomentEncoder, ProgressNetwork
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class ProgressConfig(OfflineConfig):
    """Settings of all learners of progress.

    Args:
        signals: names of the dataset's signals that the model reads; (): all.
        hold_out: each so many-th episode is not learned from; `temporeal data progress` judges by those. 0: none.
        failures: share of the moments that are drawn from failures, where the set has any.
        learning_rate: of AdamW, after a linear warm-up over 2 % of the updates; falls as a cosine ...
        learning_rate_end: ... to this.
        grad_norm: the gradient is scaled down to at most this length.
        average: share of the moving average of the weights that an update keeps.
        shift: pixels by which pictures are moved at random.
        noise: of the numbers that are read, in their standard deviations.
        context: numbers that a moment is encoded to.
        keypoints: of each picture.
        words: of the vocabulary, where an instruction is read.
    """

    updates: int = 1000
    batch: int = 128
    signals: Sequence[str] = ()
    hold_out: int = 5
    failures: float = 0.4
    learning_rate: float = 1e-3
    learning_rate_end: float = 1e-5
    weight_decay: float = 1e-2
    grad_norm: float = 1.0
    average: float = 0.99
    shift: int = 4
    noise: float = 0.1
    context: int = 128
    keypoints: int = 16
    words: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, failures="[0, 1]", learning_rate="(0, inf)", learning_rate_end="[0, inf)",
                weight_decay="[0, inf)", grad_norm="(0, inf)", average="[0, 1)", shift="[0, inf)", noise="[0, inf)",
                context="[1, inf)", keypoints="[1, inf)", words="[1, inf)")
        if self.hold_out < 0 or self.hold_out == 1:
            raise SettingsError(f"algo.hold_out is 0 for none, or at least 2: each so many-th episode is held out; got "
                                f"{self.hold_out}")


class Result(NamedTuple):
    """A trained model of progress, with the averaged weights."""

    model: ProgressNetwork
    history: list[dict[str, float]]


class Drawing:
    """Moments of the episodes that are learned from, drawn with the loop's generator, disturbed as the settings say."""

    def __init__(self, data: Moments, config: Any, generator: torch.Generator) -> None:
        self.data, self.config, self.generator = data, config, generator
        numbers = learned_from(len(data.success), config.hold_out)
        good = data.success[numbers] > 0
        self.successes, self.failures = numbers[good], numbers[~good]
        if not len(self.successes):
            raise SettingsError("no episode that is learned from was a success: progress is learned from how tasks are "
                                "done; `temporeal data info` says how many were")
        self.spread = {name: value.std(0, correction=0) for name, value in data.numbers.items()
                       if not is_words(data.interface.signals[name])}

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1)."""
        return torch.rand(*shape, generator=self.generator)

    def whole(self, high: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to below ``high``."""
        return torch.randint(high, shape, generator=self.generator)

    def episodes(self, count: int) -> Tensor:
        """Numbers [count]: the share ``failures`` of them failures, the others successes."""
        good = self.successes[self.whole(len(self.successes), count)]
        if not len(self.failures):
            return good
        bad = self.failures[self.whole(len(self.failures), count)]
        return torch.where(self.uniform(count) < self.config.failures, bad, good)

    def signals(self, at: Tensor) -> dict[str, Tensor]:
        """The signals [..., B, *shape] of samples [..., B], disturbed. All pictures of a row b are moved alike: between
        moments that are compared nothing moved that did not."""
        found = self.data.signals(at)
        for name in self.data.pictures if self.config.shift else ():
            pixels, pictures = self.config.shift, found[name]
            move = torch.randint(-pixels, pixels + 1, (2, *at.shape[-1:], 1), generator=self.generator)
            rows = pictures.reshape(-1, *pictures.shape[-4:])
            found[name] = torch.stack([shifted(row, move) for row in rows]).reshape(pictures.shape)
        for name, spread in self.spread.items() if self.config.noise else ():
            noise = torch.randn(found[name].shape, generator=self.generator)
            found[name] = found[name] + self.config.noise * spread * noise
        return found


def encoder_of(specs: Sequence[SignalSpec], config: ProgressConfig) -> MomentEncoder:
    """An encoder with new weights."""
    return MomentEncoder(specs, config.context, config.keypoints, config.words)


Draw = Callable[[Drawing], Any]
"""A batch of the algorithm's own."""
C = TypeVar("C", bound=ProgressConfig)
Build = Callable[[tuple[SignalSpec, ...], Any], ProgressNetwork]
"""From the signals that are read and the settings to a model with new weights."""


class MomentBatches:
    """Batches of an algorithm's ``draw``, for the loop."""

    def __init__(self, drawing: Drawing, draw: Draw) -> None:
        self.drawing, self.of = drawing, draw
        self.normalizer = nn.Identity()  # it is in the model
        self.sizes = {"interface": plain_interface(drawing.data.interface)}

    def fingerprint(self) -> str:
        """A hash of the data."""
        return self.drawing.data.fingerprint()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Any]:
        """``count`` batches; ``generator`` is the drawing's, too."""
        for _ in range(count):
            yield self.of(self.drawing)


class Learning:
    """AdamW steps down a model's loss.

    Attributes:
        actor: the model with the moving average of the weights; the loss may ask it for targets.
    """

    def __init__(self, network: ProgressNetwork, config: ProgressConfig) -> None:
        self.network, self.config, self.updates = network, config, 0
        self.actor = deepcopy(network).requires_grad_(False)
        self.weights = list(network.parameters())
        self.modules = {"network": network, "actor": self.actor}
        adamw = torch.optim.AdamW(self.weights, config.learning_rate, weight_decay=config.weight_decay, foreach=True)
        self.optimizers: dict[str, Any] = {
            "adamw": adamw, "schedule": torch.optim.lr_scheduler.LambdaLR(adamw, lambda n: rate(config, n))}
        self.figures = (*network.figures, "gradient_norm")

    def update(self, batch: Any) -> Tensor:
        """One gradient step. Returns its figures [F]."""
        figures = self.network.loss(batch, self.actor)
        adamw, schedule = self.optimizers.values()
        adamw.zero_grad()
        figures[0].backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.weights, self.config.grad_norm)
        adamw.step()
        schedule.step()
        self.updates += 1
        follow(self.actor, self.network, min(self.config.average, self.updates / (self.updates + 10.0)))
        return torch.cat([figures.detach(), norm[None]])


def train(
    data: Source, config: ProgressConfig, build: Build, draw: Draw, *, out: Path, seed: int = 0,
    names: Sequence[str] | None = None, done: np.ndarray | None = None, **rest: Any,
) -> Result:
    """Train the model that ``build`` makes on the batches of ``draw``.

    Args:
        names: of the signals, if not those of the settings.
        done: [E], the sample of each episode at which its task was done; None: the last one.
        rest: as :func:`temporeal.policies.training.offline_learner.learn` takes it.
    """
    generator = torch.Generator().manual_seed(seed)
    seen = moments(data, config.signals if names is None else names, done)
    specs = tuple(seen.interface.signals.values())
    check_words(seen, config.words)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(specs, config)
    plain = network.encoder.seen.plain
    if plain:
        network.encoder.seen.normalizer.update(statistics(vector(plain, seen.numbers)))
    algorithm, batches = Learning(network, config), MomentBatches(Drawing(seen, config, generator), draw)
    found = offline_learner.learn(algorithm, batches, config, out=out, seed=seed, generator=generator, **rest)
    return Result(algorithm.actor.eval(), found.history)


def check_words(data: Moments, words: int) -> None:
    """Refuse words beyond the vocabulary."""
    for name, spec in data.interface.signals.items():
        if is_words(spec) and (most := int(data.numbers[name].max())) > words:
            raise SettingsError(f"algo.words={words}: signal {name} has word number {most}; set algo.words to at least "
                                f"{most}")


def load(run: Path, kind: type[C], build: Build, device: str = "cpu") -> ProgressNetwork:
    """The averaged model in a checkpoint file, or in the last one of a run's folder."""
    state = offline_learner.read(Path(run))
    config, weights = offline_learner.config_of(state, kind), state["modules"]["actor"]
    interface = interface_of(state["sizes"]["interface"])
    specs = tuple(interface.signals.values())
    pictures = [[-(-side // 4) for side in spec.shape[:2]] for spec in specs if is_picture(spec)]
    for widths in ([config.context], [config.keypoints], *pictures):
        checkpoint.require_held(state["path"], widths, weights)
    network = build(specs, config)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise checkpoint.CheckpointError(f"{state['path']} holds no model of its settings: {error}") from error
    network.interface = interface
    return network.to(device).eval()
