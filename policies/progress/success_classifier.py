"""Whether the task is done, from what is seen and measured: the classifier that rewards learning on a robot
(SERL: Luo et al. 2024, arXiv 2401.16013, section IV-B; HIL-SERL: 2410.21845).

    p(s) = sigmoid(f(s)),      last moments of successes -> 1,      all else -> 0

What is taught as done are a success's last ``ends`` samples, or those from the moment on at which the objective of the
set's task calls it done; as not done, failures and what came earlier in successes, but for the ``margin`` samples
before, of which nobody can say. Half of a batch is each. A policy finds what a classifier takes for success wrongly: it
must have seen failures, is done only where ``in_a_row`` samples in a row are above its threshold, and held-out episodes
choose that (:mod:`temporeal.policies.training.progress_models.thresholds`).

:data:`FILE` in the run's folder has the threshold, and what it did to held-out episodes. B moments, C numbers of a
context.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.progress_models import learner, thresholds
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Moments, Source, held_out, learned_from, moments
from temporeal.policies.training.progress_models.network import ProgressNetwork, StillNetwork, head
from temporeal.policies.training.progress_models.thresholds import Threshold
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import SignalSpec

FILE = "success.json"


@dataclass(frozen=True)
class SuccessConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/success_classifier.yaml`` has the same names.

    Args:
        failures: share, of the moments that are not done, that comes from failures.
        ends: last samples of a success that are taught as done, where the set does not say when it was.
        margin: samples before those that are taught as neither, and may be called done.
        in_a_row: samples above the threshold that make a success.
        false_positives: share of held-out episodes that may be called done wrongly, by the threshold that they choose.
    """

    failures: float = 0.5
    ends: int = 2
    margin: int = 2
    in_a_row: int = 2
    false_positives: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, ends="[1, inf)", margin="[0, inf)", in_a_row="[1, inf)", false_positives="[0, 1)")
        if not self.hold_out:
            raise SettingsError("algo.hold_out=0: the threshold is chosen by episodes that are held out; at least 2")


class Told(NamedTuple):
    """Signals [B, *shape] of moments, and whether the task is done there [B]."""

    signals: dict[str, Tensor]
    done: Tensor


class SuccessClassifier(StillNetwork):
    """The classifier.

    Attributes:
        chosen: its threshold, and how that does; None: nobody has chosen one yet.
    """

    chosen: Threshold | None = None

    def __init__(self, specs: Sequence[SignalSpec], config: SuccessConfig) -> None:
        super().__init__(specs, encoder_of(specs, config))
        self.head = head(config.context, config.context)

    def value(self, context: Tensor) -> Tensor:
        """The chance [N] that the task is done."""
        return torch.sigmoid(self.head(context)[..., 0])

    @property
    def weights(self) -> str:
        """SHA-256 of them: by it actor and learner know that they have the same classifier."""
        return digest(self)

    def loss(self, batch: Told, averaged: ProgressNetwork) -> Tensor:
        """Cross-entropy."""
        logit = self.head(self.encoder(batch.signals))[..., 0]
        return nn.functional.binary_cross_entropy_with_logits(logit, batch.done)[None]


def first_done(data: Moments, ends: int, known: bool) -> Tensor:
    """[E], the first sample of each success that is taught as done. ``known``: ``data.done`` says when it was."""
    first = data.done if known else data.starts[1:] - ends
    return torch.maximum(first, data.starts[:-1] + 1)


def draw(drawing: Drawing, known: bool) -> Told:
    """Half of the moments are done. Of the others the share ``failures`` is of failures."""
    config, data, count = drawing.config, drawing.data, drawing.config.batch
    begin, end = data.starts[:-1], data.starts[1:]
    first = first_done(data, config.ends, known)
    done = torch.arange(count) < count / 2
    failed = ~done & (drawing.uniform(count) < config.failures)
    good, bad = (of[drawing.whole(len(of), count)] for of in (drawing.successes, drawing.failures))
    episode = torch.where(failed, bad, good)
    low = torch.where(done, first[episode], begin[episode])
    before = torch.maximum(first - config.margin, begin + 1)[episode]
    high = torch.where(done | failed, end[episode], before)
    at = low + (drawing.uniform(count) * (high - low)).long().clamp(max=high - low - 1)
    return Told(drawing.signals(at), done.float())


def train(
    data: Source, config: SuccessConfig, *, out: Path, seed: int = 0, done: np.ndarray | None = None, **rest: Any
) -> Result:
    """Train on the episodes of a dataset, and let those that are held out choose the threshold; ``done`` and ``rest``:
    see :func:`temporeal.policies.training.progress_models.learner.train`."""
    require_verdicts(data, config.hold_out)
    require_long_enough(data, config.in_a_row)
    found = learner.train(data, config, SuccessClassifier, partial(draw, known=done is not None), out=out, seed=seed,
                          done=done, **rest)
    seen = moments(data, config.signals, done)
    chosen = judged(found.model, seen, held_out(len(data.records), config.hold_out), config, done is not None)
    write_whole(out / FILE, json.dumps({"weights": digest(found.model), "threshold": chosen.to_json()}).encode())
    if chosen.found == 0.0 and found.history[-1]["fraction"] >= 1.0:
        raise SettingsError(f"{out}: no threshold tells the {chosen.successes} held-out successes from what is none "
                            f"(AUC {chosen.auc:.2f}): more episodes of both kinds, other signals (algo.signals), or "
                            "more updates")
    figures = {name: float(value) for name, value in chosen.to_json().items() if isinstance(value, (int, float))}
    return Result(found.model, [*found.history[:-1], {**found.history[-1], "threshold": figures.pop("value"),
                                                      **figures}])


def require_verdicts(data: Source, every: int) -> None:
    """Refuse episodes that nobody judged, and a set in which one kind is not learned from, or judges nothing."""
    verdicts = [record.success for record in data.records]
    if unknown := [k for k, verdict in enumerate(verdicts) if verdict is None]:
        raise DataError(f"of {len(unknown)} of {len(verdicts)} episodes nobody said whether they succeeded, such as "
                        f"episode {unknown[0]}; a classifier is taught verdicts: `temporeal data relabel` judges by a "
                        "formula, `temporeal data filter` leaves them out")
    for kind, wanted in (("success", True), ("failure", False)):
        for what, numbers in (("learned from", learned_from(len(verdicts), every)),
                              ("held out, which choose the threshold,", held_out(len(verdicts), every))):
            if not any(bool(verdicts[k]) is wanted for k in numbers.tolist()):
                raise DataError(f"of the {len(numbers)} episodes that are {what} none is a {kind}; the set has "
                                f"{sum(bool(v) is wanted for v in verdicts)} of {len(verdicts)}: record more, or hold "
                                f"out others than each {every}th (algo.hold_out)")


def require_long_enough(data: Source, in_a_row: int) -> None:
    """Refuse more samples in a row than any episode has: nothing would be called done."""
    longest = int(np.diff(data.starts).max(initial=0))
    if in_a_row > longest:
        raise SettingsError(f"algo.in_a_row={in_a_row}: the longest episode of the set has {longest} samples, so that "
                            f"none could ever be called done; at most {longest}")


@torch.no_grad()
def judged(
    model: ProgressNetwork, data: Moments, episodes: Tensor, config: SuccessConfig, known: bool
) -> Threshold:
    """The threshold that the ``episodes`` choose."""
    first, good, bad = first_done(data, config.ends, known) - data.starts[:-1], list[float](), list[float]()
    for e in episodes.tolist():
        values = model.values(data.signals(torch.arange(int(data.starts[e]), int(data.starts[e + 1])))).double().numpy()
        if not data.success[e]:
            bad.append(thresholds.score(values, config.in_a_row, stays=True))
            continue
        begin = int(first[e])
        good.append(thresholds.score(values[begin:], config.in_a_row, stays=True))
        if early := max(begin - config.margin, 0):
            bad.append(thresholds.score(values[:early], config.in_a_row, stays=False))
    return thresholds.chosen(good, bad, config.in_a_row, config.false_positives)


def digest(model: nn.Module) -> str:
    """SHA-256 of a model's weights."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(f"{name} {list(value.shape)}".encode() + value.detach().numpy().tobytes())
    return found.hexdigest()


def load_progress(run: Path, device: str = "cpu") -> SuccessClassifier:
    """The classifier of a run, with its threshold."""
    model = learner.load(run, SuccessConfig, SuccessClassifier, device)
    assert isinstance(model, SuccessClassifier)
    file = (Path(run) if Path(run).is_dir() else Path(run).parent.parent) / FILE
    try:
        content: Any = from_json(file.read_bytes(), str(file))
        model.chosen = threshold_of(content["threshold"])
        if content["weights"] != digest(model):
            raise ValueError("it is of other weights than the last checkpoint's")
    except (OSError, Refused, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} does not say when this run's classifier calls a task done ({error}): train it "
                              "again, resume=true") from error
    return model


def notes(run: Path) -> list[str]:
    """What a user is told after the training."""
    found = Threshold(**json.loads((run / FILE).read_text())["threshold"])
    fresh = "" if found.fresh_found is None or found.fresh_false_positives is None or found.interval is None else (
        f"; chosen by the other half of them: {found.fresh_found:.0%} and {found.fresh_false_positives:.0%} [95%: "
        f"{found.interval[0]:.0%}, {found.interval[1]:.0%}]")
    return [f"done are {found.in_a_row} samples in a row from {found.value:.4g} on: of held-out episodes "
            f"{found.found:.0%} of {found.successes} successes, {found.false_positives:.0%} of {found.others} others "
            f"(failures, and successes before they were done){fresh}"]


def threshold_of(content: Any) -> Threshold:
    """What :data:`FILE` says; a ValueError where that is no threshold."""
    interval = content["interval"]
    found = Threshold(**{**content, "interval": None if interval is None else tuple(interval)})
    if not (isinstance(found.value, float) and 0.0 < found.value <= 1.0):
        raise ValueError(f"its threshold is {str(found.value)[:40]}, not in (0, 1]")
    if type(found.in_a_row) is not int or found.in_a_row < 1:
        raise ValueError(f"in_a_row is {str(found.in_a_row)[:40]}, not a whole number from 1")
    if not (isinstance(found.found, float) and found.found > 0.0):
        raise ValueError("it finds none of the held-out successes")
    return found
