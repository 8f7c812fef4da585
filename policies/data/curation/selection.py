"""Which episodes of a dataset to take: by return, length, success, instruction, formula; and parts of a set by chance.

E episodes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.data.curation.copying import ORIGIN
from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError

COMPARISONS: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Condition:
    """``compare`` with ``value``: ``>= 5``. NaN meets no condition."""

    sign: str
    value: float

    def __call__(self, values: np.ndarray) -> NDArray[np.bool_]:
        """[E] which of ``values`` [E] meet it."""
        return np.asarray(COMPARISONS[self.sign](values, self.value) & ~np.isnan(values))


def condition(text: str, name: str) -> Condition:
    """``">=5"`` as a condition; ``name`` of the option, for the error."""
    found = re.fullmatch(r"\s*(>=|<=|==|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
    if not found:
        raise DataError(f"{name} {text!r}: write a comparison and a number, such as '>=5'; comparisons: "
                        f"{', '.join(COMPARISONS)}")
    return Condition(found[1], float(found[2]))


def returns(data: Dataset) -> NDArray[np.float64]:
    """[E] the sum of each episode's rewards; NaN of episodes without."""
    if not data.episodes:
        return np.zeros(0)
    reward = np.asarray(data.column(layout.REWARD), dtype=np.float64)
    if layout.HAS_ACTION in data.columns:  # the last sample of an episode has no command, and no reward
        reward = np.where(data.column(layout.HAS_ACTION), reward, 0.0)
    sums = np.add.reduceat(reward, data.starts[:-1])
    return np.where([record.has_reward for record in data.records], sums, np.nan)


def successes(data: Dataset) -> NDArray[np.float64]:
    """[E] 1, 0, or NaN where nobody judged."""
    return np.array([np.nan if record.success is None else float(record.success) for record in data.records])


def best(values: np.ndarray, share: float) -> NDArray[np.bool_]:
    """[E] the ``share`` with the largest ``values`` (at least one); NaN is never among them."""
    if not 0 < share <= 1:
        raise DataError(f"a share is above 0 and at most 1, got {share:g}")
    known = np.flatnonzero(~np.isnan(values))
    count = max(1, round(share * len(known)))
    out = np.zeros(len(values), dtype=bool)
    out[known[np.argsort(-values[known], kind="stable")[:count]]] = True
    return out


def parts(data: Dataset, shares: Mapping[str, float], seed: int) -> dict[str, NDArray[np.int64]]:
    """Numbers of the episodes in each part, drawn by ``seed``: ``shares`` by name, at most 1 in all.

    Episodes that were made of one recording, such as its mirror image, stay together: the test would know the training
    set otherwise. So parts differ from their shares by as much as that takes.
    """
    if not shares or any(not 0 < share <= 1 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise DataError(f"parts have shares above 0, at most 1 in all: train=.9,test=.1; got {dict(shares)}")
    groups: dict[str, list[int]] = {}
    for record in data.records:
        groups.setdefault(str(record.info.get(ORIGIN, f"#{record.index}")), []).append(record.index)
    order = np.random.default_rng(seed).permutation(len(groups))
    members, ends = list(groups.values()), np.cumsum(list(shares.values())) * len(groups)
    cuts = [0, *np.round(ends).astype(int).tolist()]
    found = {name: np.sort(np.array([e for k in order[first:last] for e in members[k]], dtype=np.int64))
             for name, first, last in zip(shares, cuts, cuts[1:])}
    if empty := [name for name, numbers in found.items() if not len(numbers)]:
        raise DataError(f"{data.folder}: part {empty[0]!r} would be empty: there are {len(groups)} recordings")
    return found
