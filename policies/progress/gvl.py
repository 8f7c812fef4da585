"""GVL: values of an episode's frames that are shown in random order (Ma et al. 2024, arXiv 2411.04549).

A model that sees frames in their order says that each is further than the last, whatever they show. So it is shown the
first frame, which it is told is 0 % of the task, and the others shuffled, and asked how much of the task is done in
each; the answers are put back in order. Frames stand in one another's context: how far one is shows beside the others.

What answers is behind :class:`FrameJudge`, which a large vision-language model can stand behind, too
(:func:`shuffled_values`). Ours is small: attention between the frames without any positions, taught the share of time
of demonstrations, and 0 for all frames of failures.

N episodes, F frames, T samples, C numbers of a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Block
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import Memory, ProgressNetwork
from temporeal.robots.signals import SignalSpec

ORDER_SEED = 0x6011  # of the order in which frames are shown: the same episode has the same values


class FrameJudge(Protocol):
    """Says how much of a task is done in frames that are in no order."""

    def completion(self, first: Mapping[str, Tensor], frames: Mapping[str, Tensor]) -> Tensor:
        """[F] in [0, 1] of the signals ``frames`` [F, *shape] of an episode that began with ``first`` [1, *shape]."""


def shuffled_values(judge: FrameJudge, signals: Mapping[str, Tensor], count: int, generator: torch.Generator) -> Tensor:
    """[T] values of an episode: ``count`` frames, evenly spaced, are shown in an order of ``generator``; between them
    the value is on a line."""
    total = len(next(iter(signals.values())))
    at = torch.linspace(0.0, total - 1.0, min(count, total)).round().long()
    order = torch.randperm(len(at), generator=generator)
    told = judge.completion({name: value[:1] for name, value in signals.items()},
                            {name: value[at[order]] for name, value in signals.items()})
    return between(at, torch.empty_like(told).index_put((order,), told), total)


def between(at: Tensor, value: Tensor, total: int) -> Tensor:
    """[``total``] on lines through ``value`` [F] at the samples ``at`` [F], ascending from 0 to the last."""
    sample = torch.arange(total)
    right = torch.searchsorted(at, sample).clamp(1, max(len(at) - 1, 1))
    left, right = right - 1, right.clamp(max=len(at) - 1)
    share = (sample - at[left]) / (at[right] - at[left]).clamp(min=1)
    return value[left] + share * (value[right] - value[left])


@dataclass(frozen=True)
class GVLConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/gvl.yaml`` has the same names.

    Args:
        batch: episodes of an update.
        frames: F, of an episode.
        stride: samples between the frames that are remembered while an episode runs.
        heads: of attention. layers: of it.
    """

    updates: int = 600
    batch: int = 24
    frames: int = 16
    stride: int = 12
    heads: int = 4
    layers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, frames="[1, inf)", stride="[1, inf)", heads="[1, inf)", layers="[1, inf)")
        if self.context % self.heads:
            raise SettingsError(f"algo.context={self.context} is no multiple of algo.heads={self.heads}")


class Shuffled(NamedTuple):
    """Signals [F + 1, B, *shape] of frames, the first one of each episode in front, and what is done in the others
    [B, F]."""

    signals: dict[str, Tensor]
    done: Tensor


class GVL(ProgressNetwork):
    """Our judge of frames. While an episode runs it remembers its first frame and the last F, ``stride`` apart."""

    def __init__(self, specs: Sequence[SignalSpec], config: GVLConfig) -> None:
        super().__init__(specs, encoder_of(specs, config))
        self.frames, self.stride = config.frames, config.stride
        self.anchor = nn.Parameter(0.02 * torch.randn(config.context))
        self.blocks = nn.ModuleList(Block(config.context, config.heads) for _ in range(config.layers))
        self.last = nn.Sequential(nn.LayerNorm(config.context), nn.Linear(config.context, 1))

    def logits(self, first: Tensor, frames: Tensor) -> Tensor:
        """[N, F] of contexts: first [N, C], and frames [N, F, C] in any order."""
        tokens = torch.cat([(first + self.anchor)[:, None], frames], 1)
        for block in self.blocks:
            tokens = block(tokens)
        found: Tensor = self.last(tokens[:, 1:])[..., 0]
        return found

    @torch.no_grad()
    def completion(self, first: Mapping[str, Tensor], frames: Mapping[str, Tensor]) -> Tensor:
        """As :class:`FrameJudge`."""
        return torch.sigmoid(self.logits(self.encoder(first), self.contexts(frames)[None]))[0]

    def values(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[T] of one episode."""
        read = {name: signals[name] for name in self.names}
        return shuffled_values(self, read, self.frames, torch.Generator().manual_seed(ORDER_SEED))

    def begin(self, context: Tensor) -> Memory:
        """The first frame, many times."""
        return {"first": context, "seen": context[:, None].repeat(1, self.frames, 1),
                "age": context.new_zeros(len(context))}

    def step(self, context: Tensor, memory: Memory, elapsed: int) -> tuple[Tensor, Memory]:
        """The value of this frame beside those that are remembered."""
        shown = torch.cat([memory["seen"][:, 1:], context[:, None]], 1)
        value = torch.sigmoid(self.logits(memory["first"], shown)[:, -1])
        due = memory["age"] >= self.stride
        age = torch.where(due, torch.zeros_like(memory["age"]), memory["age"])
        return value, {"first": memory["first"], "seen": torch.where(due[:, None, None], shown, memory["seen"]),
                       "age": age + elapsed}

    def loss(self, batch: Shuffled, averaged: ProgressNetwork) -> Tensor:
        """Cross-entropy with the share that is done."""
        read = {name: value.flatten(0, 1) for name, value in batch.signals.items()}
        context = self.encoder(read).unflatten(0, (-1, len(batch.done))).transpose(0, 1)
        logits = self.logits(context[:, 0], context[:, 1:])
        return nn.functional.binary_cross_entropy_with_logits(logits, batch.done)[None]


def draw(drawing: Drawing) -> Shuffled:
    """Frames of episodes in random order. Half of the episodes are shown until some moment only: while an episode runs,
    the model sees no more."""
    config, data = drawing.config, drawing.data
    episode = drawing.episodes(config.batch)
    until = torch.where(drawing.uniform(config.batch) < 0.5, drawing.uniform(config.batch), torch.ones(config.batch))
    at = data.at(episode, until * drawing.uniform(config.frames, config.batch))
    signals = drawing.signals(torch.cat([data.starts[episode][None], at]))
    return Shuffled(signals, data.progress(episode, at).T)


def train(data: Source, config: GVLConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the episodes of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    return learner.train(data, config, GVL, draw, out=out, seed=seed, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    return learner.load(run, GVLConfig, GVL, device)
