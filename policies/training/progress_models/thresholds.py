"""When a value says that a task is done: so often in a row at or above a threshold, which held-out episodes choose.

An episode's score is the highest threshold at which it would be called done: the greatest value that so many samples
in a row reach. P successes and Q moments that must not be called done, each with its score: failures, and successes
until shortly before they were done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from temporeal.policies.training.errors import SettingsError

LEAST, BEYOND = 0.5, float(np.nextafter(1.0, 2.0))  # below the half, not done is more likely; none reaches the other


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it does to held-out episodes.

    Args:
        value: at least this much, ``in_a_row`` samples long, is called done.
        auc: chance that a success has a greater score than what is none.
        found: share of the successes that are called done.
        false_positives: share of what must not be called done and is.
        fresh_found, fresh_false_positives: the same with a threshold that the other half of the episodes chose: what
            episodes that chose nothing say. None: there are too few for halves.
        interval: of ``fresh_false_positives`` (Clopper and Pearson, 95 %).
        successes, others: P, Q.
    """

    value: float
    in_a_row: int
    auc: float
    found: float
    false_positives: float
    fresh_found: float | None
    fresh_false_positives: float | None
    interval: tuple[float, float] | None
    successes: int
    others: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def score(values: np.ndarray, in_a_row: int, stays: bool) -> float:
    """Of values [T], T at least 1: the greatest that ``in_a_row`` of them in a row reach; -1 where there are too few.
    ``stays``: what the last one says would go on to be said."""
    if stays:
        values = np.concatenate([values, np.repeat(values[-1:], in_a_row - 1)])
    if len(values) < in_a_row:
        return -1.0
    return float(np.lib.stride_tricks.sliding_window_view(values, in_a_row).min(1).max())


def auc(good: np.ndarray, bad: np.ndarray) -> float:
    """The chance that one of ``good`` [P] is greater than one of ``bad`` [Q], ties count half: the area under the
    receiver's curve (Mann and Whitney's U over P Q). NaN where one is empty."""
    if not len(good) or not len(bad):
        return float("nan")
    ordered = np.sort(bad)
    below = np.searchsorted(ordered, good, "left") + np.searchsorted(ordered, good, "right")
    return float(below.mean() / (2.0 * len(bad)))


def between(good: np.ndarray, bad: np.ndarray, share: float) -> float:
    """The threshold at or above which at most ``share`` of the scores ``bad`` [Q] lie: in the middle between the
    greatest of the others and the least of ``good`` [P] above it, but at least :data:`LEAST`: a success that is missed
    costs an episode some time, one that is none teaches something wrong. Beyond 1 where none of ``good`` is above."""
    bar = np.sort(bad)[::-1][min(int(share * len(bad) + 1e-9), len(bad) - 1)]
    above = good[good > bar]
    return max(float(0.5 * (max(bar, 0.0) + above.min())), LEAST) if len(above) else BEYOND


def chosen(good: Sequence[float], bad: Sequence[float], in_a_row: int, share: float) -> Threshold:
    """The threshold that the scores of held-out episodes choose, and how it does on them; at least one of each kind."""
    from temporeal.sim.stl.analysis.binomial import clopper_pearson

    if not len(good) or not len(bad):
        raise SettingsError(f"a threshold is chosen by scores of at least one success and of one moment that must not "
                            f"be called done; got {len(good)} and {len(bad)}")
    p, q = np.asarray(good, float), np.asarray(bad, float)
    value = between(p, q, share)
    fresh_found = fresh_false = interval = None
    if len(p) > 1 and len(q) > 1:
        found, false = (sum(counts) for counts in zip(*(_fresh(p, q, share, half) for half in (0, 1))))
        fresh_found, fresh_false, interval = found / len(p), false / len(q), clopper_pearson(false, len(q))
    return Threshold(value, in_a_row, auc(p, q), float((p >= value).mean()), float((q >= value).mean()), fresh_found,
                     fresh_false, interval, len(p), len(q))


def _fresh(good: np.ndarray, bad: np.ndarray, share: float, half: int) -> tuple[int, int]:
    """How many of the scores of one half, each second one, are called done by the threshold of the other half."""
    value = between(good[1 - half :: 2], bad[1 - half :: 2], share)
    return int((good[half::2] >= value).sum()), int((bad[half::2] >= value).sum())
