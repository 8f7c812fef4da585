"""Stepwise attribution: what each step contributed to how the episode ended (SPA-RL: Wang et al. 2025, arXiv
2505.20732).

Only the end of an episode is judged. A network says what each step contributed, from its first and last moment, and is
taught that an episode's contributions sum to its outcome y, 1 or 0:

    loss = (sum_k c(s_k, s_k+1) - y)^2 + e sum_k c(s_k, s_k+1)^2

The first term leaves open which steps; with the second, e small, those that all successes have in common share it. The
sum up to now is the progress, and a step's contribution a dense reward whose sum is the sparse one's.

B episodes, K steps of ``stride`` samples, C numbers of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.policies.training.errors import require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import ComparingNetwork, Memory, ProgressNetwork
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class AttributionConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/attribution.yaml`` has the same names.

    Args:
        batch: episodes of an update.
        stride: samples of a step.
        even: e.
    """

    updates: int = 500
    batch: int = 32
    stride: int = 16
    even: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, stride="[1, inf)", even="[0, inf)")


class Episodes(NamedTuple):
    """Signals [K + 1, B, *shape] between steps, which steps [K, B] there are, and outcomes [B]."""

    signals: dict[str, Tensor]
    there: Tensor
    outcome: Tensor


class Attribution(ComparingNetwork):
    """The contributions."""

    figures = ("loss", "outcome_error")

    def __init__(self, specs: Sequence[SignalSpec], config: AttributionConfig) -> None:
        super().__init__(specs, encoder_of(specs, config), config.context, config.stride)
        self.even = config.even

    def follow(self, value: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """The sum goes on; it may leave [0, 1], where an episode is told to be neither failed nor done for good."""
        return value + self.compare(before, after)

    def step(self, context: Tensor, memory: Memory, elapsed: int) -> tuple[Tensor, Memory]:
        """The sum, between 0 and 1."""
        value, memory = super().step(context, memory, elapsed)
        return value.clamp(0.0, 1.0), memory

    def loss(self, batch: Episodes, averaged: ProgressNetwork) -> Tensor:
        """How far sums are from outcomes, and how uneven they are made up."""
        read = {name: value.flatten(0, 1) for name, value in batch.signals.items()}
        context = self.encoder(read).unflatten(0, (-1, len(batch.outcome)))
        steps = self.compare(context[:-1], context[1:]) * batch.there
        error = (steps.sum(0) - batch.outcome).square().mean()
        return torch.stack([error + self.even * steps.square().sum(0).mean(), error])


def draw(drawing: Drawing) -> Episodes:
    """Whole episodes, whose first step is as long as chance wants: steps begin everywhere."""
    config, data = drawing.config, drawing.data
    episode = drawing.episodes(config.batch)
    last = data.starts[episode + 1] - 1
    count = -(-int(data.lengths.max()) // config.stride)
    begin = drawing.whole(config.stride, config.batch) + 1
    steps = begin + config.stride * torch.arange(count)[:, None]
    at = torch.minimum(data.starts[episode] + torch.cat([torch.zeros_like(begin)[None], steps]), last)
    return Episodes(drawing.signals(at), (at.diff(dim=0) > 0).float(), data.success[episode])


def train(data: Source, config: AttributionConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the episodes of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    return learner.train(data, config, Attribution, draw, out=out, seed=seed, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    return learner.load(run, AttributionConfig, Attribution, device)
