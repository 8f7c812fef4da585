"""VLAC: a critic of progress that compares two moments of an episode (Zhai et al. 2025, arXiv 2509.15937).

From two moments i and j and the instruction it says how much of the task was done between them, c in [-1, 1]. The value
follows from one moment to a later one by

    v <- v + (1 - v) c      c > 0: the share of what was left to do that was done
    v <- v + v c            c < 0: the share of what was done that was undone

so that c of the moments with values v, w is (w - v) / (1 - v) where w > v, and (w - v) / v where not. Pairs of a
demonstration that was done after T samples are taught the share of its time, v = i / T; the same pair in reverse order
is taught what is undone. Pairs of a failure, and pairs that are shown with the instruction of another task, are taught
c = 0: whatever was done there led nowhere.

N pairs, C numbers of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.policies.nets.encoders import is_words
from temporeal.policies.training.errors import require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import ComparingNetwork, ProgressNetwork
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class VLACConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/vlac.yaml`` has the same names.

    Args:
        stride: samples between the two moments that are compared when values are computed; a moment between is compared
            with the last one before it.
        near: share of the pairs that are at most two strides apart; the others are of any distance.
        end: share of the pairs whose second moment is the episode's last: there it shows whether the task was done.
        swapped: share of the pairs that are shown with another episode's instruction, where one is read.
    """

    stride: int = 16
    near: float = 0.5
    end: float = 0.15
    swapped: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, stride="[1, inf)", near="[0, 1]", end="[0, 1]", swapped="[0, 1]")


class Pairs(NamedTuple):
    """Signals of first and second moments [2, B, *shape], and the change c [B] between them."""

    signals: dict[str, Tensor]
    change: Tensor


def change(before: Tensor, after: Tensor) -> Tensor:
    """c [N] from the value ``before`` [N] to ``after`` [N]: the inverse of :func:`recursion`."""
    room = torch.where(after > before, 1.0 - before, before).clamp(min=1e-6)
    return (after - before) / room


def recursion(value: Tensor, change: Tensor) -> Tensor:
    """The value [N] after the ``change`` [N]."""
    return value + torch.where(change > 0, 1.0 - value, value) * change


class VLAC(ComparingNetwork):
    """The critic."""

    def __init__(self, specs: Sequence[SignalSpec], config: VLACConfig) -> None:
        super().__init__(specs, encoder_of(specs, config), config.context, config.stride)

    def change(self, before: Tensor, after: Tensor) -> Tensor:
        """c [N] in [-1, 1] between two contexts [N, C]."""
        return torch.tanh(self.compare(before, after))

    def follow(self, value: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """The recursion."""
        return recursion(value, self.change(before, after))

    def loss(self, pairs: Pairs, averaged: ProgressNetwork) -> Tensor:
        """Squared error of the change."""
        before, after = (self.encoder({name: value[k] for name, value in pairs.signals.items()}) for k in (0, 1))
        return (self.change(before, after) - pairs.change).square().mean()[None]


def draw(drawing: Drawing) -> Pairs:
    """Pairs of moments and what is taught of them."""
    config, data = drawing.config, drawing.data
    count = config.batch
    episode = drawing.episodes(count)
    first, second = drawing.uniform(2, count)
    reach = 2.0 * config.stride / (data.lengths[episode] - 1)
    close = (first + reach * (2.0 * second - 1.0)).clamp(0.0, 1.0)
    second = torch.where(drawing.uniform(count) < config.near, close, second)
    second = torch.where(drawing.uniform(count) < config.end, torch.ones(count), second)
    at = torch.stack([data.at(episode, first), data.at(episode, second)])
    taught = change(*data.progress(episode, at))
    signals = drawing.signals(at)
    return Pairs(signals, swap(drawing, signals, taught))


def swap(drawing: Drawing, signals: dict[str, Tensor], taught: Tensor) -> Tensor:
    """Show some pairs with the instruction of the next row; where that is another one, nothing was done of it."""
    told = [name for name, spec in drawing.data.interface.signals.items() if is_words(spec)]
    if not told:
        return taught
    swapped, differs = drawing.uniform(len(taught)) < drawing.config.swapped, torch.zeros(len(taught), dtype=torch.bool)
    for name in told:
        other = signals[name].roll(1, 1)
        differs |= (other[0] != signals[name][0]).flatten(1).any(1)
        signals[name] = torch.where(swapped[:, None], other, signals[name])
    return torch.where(swapped & differs, torch.zeros_like(taught), taught)


def train(data: Source, config: VLACConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the episodes of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    return learner.train(data, config, VLAC, draw, out=out, seed=seed, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    return learner.load(run, VLACConfig, VLAC, device)
