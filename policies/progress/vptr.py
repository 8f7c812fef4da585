"""V-PTR: a value from video alone, whose encoder policies start from (Bhateja et al. 2023, arXiv 2309.13041).

Video has no actions, but time goes on in it: the value of a picture is how soon the task will be done,

    V(s) = E[gamma^(time to go)],      V(s_t) <- gamma^k V'(s_t+k),      V(s_T) <- y

with y = 1 at the end of a demonstration and 0 at that of a failure, by temporal differences against V', the moving
average. Only pictures, and the instruction where there is one, are read; the paper's value is of any later frame as an
intention instead. What the encoder must tell for that, where things are and where they should be, is what a policy must
see: :func:`eyes` are the weights of its pictures' encoders.

gamma is such that an episode of mean length begins at ``floor``. B moments, C numbers of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import SignalEncoder, is_picture, is_words
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import ProgressNetwork, StillNetwork, head
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class VPTRConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/vptr.yaml`` has the same names.

    Args:
        signals: pictures, and instructions; (): all that the dataset has.
        lookahead: k, samples of a temporal difference, at most.
        floor: the value that an episode of mean length begins with.
    """

    lookahead: int = 32
    floor: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, lookahead="[1, inf)", floor="(0, 1)")


class Differences(NamedTuple):
    """Signals [2, B, *shape] of moments and of later ones, gamma^k [B] between them, whether the later one is the last
    [B], and the outcome [B]."""

    signals: dict[str, Tensor]
    discount: Tensor
    last: Tensor
    outcome: Tensor


class VPTR(StillNetwork):
    """The value."""

    def __init__(self, specs: Sequence[SignalSpec], config: VPTRConfig) -> None:
        super().__init__(specs, encoder_of(specs, config))
        self.head = head(config.context, config.context)

    def value(self, context: Tensor) -> Tensor:
        """[N]."""
        return torch.sigmoid(self.head(context)[..., 0])

    def loss(self, batch: Differences, averaged: ProgressNetwork) -> Tensor:
        """Cross-entropy with the target."""
        now, later = ({name: value[k] for name, value in batch.signals.items()} for k in (0, 1))
        assert isinstance(averaged, VPTR)
        with torch.no_grad():
            reached = torch.where(batch.last, batch.outcome, averaged.value(averaged.encoder(later)))
        logit = self.head(self.encoder(now))[..., 0]
        return nn.functional.binary_cross_entropy_with_logits(logit, batch.discount * reached)[None]


def draw(drawing: Drawing) -> Differences:
    """Moments and later ones. One in eight moments is the last itself: its value is the outcome."""
    config, data = drawing.config, drawing.data
    episode = drawing.episodes(config.batch)
    share = torch.where(drawing.uniform(config.batch) < 0.125, torch.ones(config.batch), drawing.uniform(config.batch))
    now = data.at(episode, share)
    later, last = data.later(episode, now, 1 + drawing.whole(config.lookahead, config.batch))
    gamma = config.floor ** (1.0 / data.mean_length)
    return Differences(drawing.signals(torch.stack([now, later])), gamma ** (later - now), last,
                       data.success[episode])


def eyes(run: Path, encoder: SignalEncoder) -> list[str]:
    """Start the pictures' encoders of ``encoder`` from the model of ``run``; the names of those that it has."""
    model = load_progress(run)
    found = {name: eye for name, eye in model.encoder.seen.eyes.items() if name in encoder.eyes}
    for name, eye in found.items():
        try:
            encoder.eyes[name].load_state_dict(eye.state_dict())
        except RuntimeError as error:
            raise SettingsError(f"{run}: its encoder of {name} is of another size: {error}") from error
    return list(found)


def train(data: Source, config: VPTRConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the pictures of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    specs = data.interface.signals
    names = tuple(config.signals) or tuple(n for n, spec in specs.items() if is_picture(spec) or is_words(spec))
    if not any(name in specs and is_picture(specs[name]) for name in names):
        raise SettingsError("algo=vptr learns from pictures, and there are none among the dataset's signals "
                            f"{', '.join(config.signals or specs)}: generate it with cameras=...")
    return learner.train(data, config, VPTR, draw, out=out, seed=seed, names=names, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    return learner.load(run, VPTRConfig, VPTR, device)
