"""How well a model of progress judges episodes: against time, against their verdicts, against a formula.

E episodes. An episode's value is that of its last sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.evaluate.ope.ranking import rank_correlation
from temporeal.policies.training.progress_models.protocol import ProgressModel
from temporeal.policies.training.progress_models.thresholds import auc

Numbers = NDArray[np.float64]
STILL = 1e-3
"""A value that fell by at most this much did not: rounding, and what a model says of a robot at rest."""


@dataclass(frozen=True)
class Judged:
    """What a model says of an episode.

    Args:
        values: [T] in [0, 1].
        success: 1, 0, or NaN where nobody judged.
        robustness: of the formula; NaN without.
        done: the sample at which the task was done, 1 at least, the last one in a failure; after it nothing is left
            to order.
    """

    episode: int
    values: Numbers
    success: float
    robustness: float
    done: int

    @property
    def voc(self) -> float:
        """Value-order correlation: Spearman's, of values and time, until the task is done (GVL, VLAC). NaN where all
        values are equal."""
        return rank_correlation(self.values[: self.done + 1], np.arange(self.done + 1))

    @property
    def voc_whole(self) -> float:
        """The same with what was recorded after the task was done."""
        return rank_correlation(self.values, np.arange(len(self.values)))

    @property
    def negative(self) -> float:
        """Negative rate: the share of the steps until the task is done in which the value fell (VLAC)."""
        return float((np.diff(self.values[: self.done + 1]) < -STILL).mean())

    @property
    def final(self) -> float:
        """The value of the last sample."""
        return float(self.values[-1])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        figures = {"voc": self.voc, "negative_rate": self.negative, "robustness": self.robustness}
        known = {name: None if np.isnan(value) else value for name, value in figures.items()}
        return {"episode": self.episode, "success": None if np.isnan(self.success) else bool(self.success), **known,
                "final": self.final, "greatest": float(self.values.max()),
                "values": [round(float(v), 4) for v in self.values]}


@dataclass(frozen=True)
class Summary:
    """Figures of a model over episodes; NaN where there is nothing that they could be of.

    Args:
        voc: mean over successes; ``voc_failures``: over failures, where it should be lower; ``voc_whole``: over
            successes, with what they recorded after the task was done.
        negative_rate: mean over successes; ``negative_rate_failures``: over failures.
        auc: chance that a success has the greater final value than a failure; ``auc_greatest``: by greatest values.
        agreement: rank correlation of final value and robustness over the episodes.
        successes, failures: how many.
    """

    voc: float
    voc_failures: float
    negative_rate: float
    negative_rate_failures: float
    auc: float
    auc_greatest: float
    agreement: float
    voc_whole: float
    successes: int
    failures: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: None if value != value else value for name, value in self.__dict__.items()}


def judged(
    model: ProgressModel, data: Dataset, episodes: Sequence[int], robustness: np.ndarray | None = None,
    done: np.ndarray | None = None,
) -> Iterator[Judged]:
    """What ``model`` says of the ``episodes`` of ``data``. ``robustness``, ``done``: [E] of all that there are."""
    if missing := [name for name in model.names if name not in data.interface.signals]:
        raise DataError(f"{data.folder}: the model reads {', '.join(missing)}, which the set does not have; it has: "
                        f"{', '.join(data.interface.signals)}")
    for e in episodes:
        signals, success = data.episode(e).signals, data.records[e].success
        values = model.values(tensors(signals, model.names)).double().numpy()
        yield Judged(e, values, np.nan if success is None else float(success),
                     np.nan if robustness is None else float(robustness[e]),
                     max(int(done[e]), 1) if done is not None and success is not False else len(values) - 1)


def tensors(signals: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The signals ``names``; what is no picture as float32, as models were trained."""
    return {name: torch.from_numpy(np.array(signals[name], np.uint8 if signals[name].dtype == np.uint8 else np.float32))
            for name in names}


def summary(found: Sequence[Judged]) -> Summary:
    """Figures over episodes."""
    good, bad = ([one for one in found if one.success == wanted] for wanted in (1.0, 0.0))

    def mean(of: Sequence[float]) -> float:
        known = [value for value in of if value == value]
        return float(np.mean(known)) if known else float("nan")

    def both(name: str) -> list[float]:
        return [mean([getattr(one, name) for one in part]) for part in (good, bad)]

    def area(of: str) -> float:
        good_values, bad_values = (np.array([value_of(one, of) for one in part]) for part in (good, bad))
        return auc(good_values, bad_values)

    known = [one for one in found if one.robustness == one.robustness]
    agreement = rank_correlation(np.array([one.final for one in known]), np.array([one.robustness for one in known])) \
        if len(known) > 1 else float("nan")
    voc, voc_failures = both("voc")
    negative, negative_failures = both("negative")
    return Summary(voc, voc_failures, negative, negative_failures, area("final"), area("greatest"), agreement,
                   mean([one.voc_whole for one in good]), len(good), len(bad))


def value_of(one: Judged, of: str) -> float:
    """An episode's ``final`` or ``greatest`` value."""
    return one.final if of == "final" else float(one.values.max())
