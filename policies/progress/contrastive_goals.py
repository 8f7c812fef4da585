"""Contrasting language goals: how much nearer a moment is to the sentence that says that the task is done than to the
one that says that it is not (VLM-RL: Huang et al. 2024, arXiv 2412.15544).

    S(s) = cos(f(s), g+) - cos(f(s), g-)           a positive and a negative goal
    progress = sigmoid(S(s) / temperature)

One goal alone leaves open what a similarity of 0.3 means; the difference is 0 where the moment is as near to both.
VLM-RL takes both embeddings from CLIP; ours are learned on the set's own episodes, where both sentences are the
instruction and a vector, "done" or "not done": moments of a demonstration are taught their share of time, those of
failures 0. Where there are several instructions, ends of demonstrations are told apart by them, too (the contrast of
CLIP: Radford et al. 2021, arXiv 2103.00020): the moment that ends one task must not look like the end of another.

B moments, D numbers of an embedding, L words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import is_words
from temporeal.policies.training.errors import require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import (
    ProgressNetwork,
    Sentence,
    StillNetwork,
    head,
)
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class ContrastiveConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/contrastive_goals.yaml`` has the same names.

    Args:
        temperature: of similarities, which lie in [-1, 1]; their difference in [-2, 2].
        contrast: weight of telling ends of different instructions apart.
    """

    temperature: float = 0.2
    contrast: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, temperature="(0, inf)", contrast="[0, inf)")


class Labelled(NamedTuple):
    """Signals [2, B, *shape] of moments, and of ends of demonstrations; the share that is done [B] in the moments."""

    signals: dict[str, Tensor]
    done: Tensor


class Goals(nn.Module):
    """Moment and goals in one space: raw signals, by name [N, *shape], to cosines [N, 2] with the positive and the
    negative goal of their instruction."""

    def __init__(self, specs: Sequence[SignalSpec], config: ContrastiveConfig) -> None:
        super().__init__()
        width = config.context
        self.told = tuple(spec.name for spec in specs if is_words(spec))
        self.moment = encoder_of([spec for spec in specs if not is_words(spec)], config)
        self.sentence = Sentence(config.words, width)
        self.done = nn.Parameter(torch.randn(2, width))
        self.goal = head(width, width, width)

    @property
    def seen(self) -> nn.Module:
        """What has the numbers' statistics."""
        return self.moment.seen

    def goals(self, signals: Mapping[str, Tensor], count: int) -> Tensor:
        """Unit vectors [count, 2, D]: the task is done, and is not."""
        said = sum((self.sentence(signals[name]) for name in self.told), torch.zeros(count, self.done.shape[1]))
        return nn.functional.normalize(self.goal(said[:, None] + self.done), dim=-1)

    def state(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Unit vectors [N, D]."""
        return nn.functional.normalize(self.moment(signals), dim=-1)

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The cosines."""
        state = self.state(signals)
        return (self.goals(signals, len(state)) @ state[..., None])[..., 0]


class ContrastiveGoals(StillNetwork):
    """The model. A moment's context is its two cosines."""

    figures = ("loss", "goal_loss", "contrast_loss")

    def __init__(self, specs: Sequence[SignalSpec], config: ContrastiveConfig) -> None:
        super().__init__(specs, Goals(specs, config))
        self.temperature, self.contrast = config.temperature, config.contrast

    def logit(self, context: Tensor) -> Tensor:
        """[N] of the cosines [N, 2]."""
        return (context[:, 0] - context[:, 1]) / self.temperature

    def value(self, context: Tensor) -> Tensor:
        """[N]."""
        return torch.sigmoid(self.logit(context))

    def loss(self, batch: Labelled, averaged: ProgressNetwork) -> Tensor:
        """Cross-entropy of the two goals, and of the instructions of ends."""
        now, ends = ({name: value[k] for name, value in batch.signals.items()} for k in (0, 1))
        goal = nn.functional.binary_cross_entropy_with_logits(self.logit(self.encoder(now)), batch.done)
        told = self.encoder.told
        apart = contrast(self.encoder.state(ends), self.encoder.goals(ends, len(batch.done))[:, 0],
                         torch.cat([ends[name].flatten(1) for name in told], 1), self.temperature) if told else 0 * goal
        return torch.stack([goal + self.contrast * apart, goal, apart])


def contrast(state: Tensor, goal: Tensor, words: Tensor, temperature: float) -> Tensor:
    """Cross-entropy [] of which of the instructions ``words`` [B, L] of the batch, whose goals are ``goal`` [B, D], a
    moment ``state`` [B, D] is the end of; rows with equal instructions are all right."""
    same = (words[:, None] == words).all(-1).float()
    chance = torch.log_softmax(state @ goal.T / temperature, 1)
    return -(chance * same / same.sum(1, keepdim=True)).sum(1).mean()


def draw(drawing: Drawing) -> Labelled:
    """Moments of all episodes, and ends of demonstrations."""
    config, data = drawing.config, drawing.data
    episode = drawing.episodes(config.batch)
    now = data.at(episode, drawing.uniform(config.batch))
    good = drawing.successes[drawing.whole(len(drawing.successes), config.batch)]
    return Labelled(drawing.signals(torch.stack([now, data.starts[good + 1] - 1])),
                    data.progress(episode, now))


def train(data: Source, config: ContrastiveConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the episodes of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    return learner.train(data, config, ContrastiveGoals, draw, out=out, seed=seed, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    return learner.load(run, ContrastiveConfig, ContrastiveGoals, device)
