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
from temporeal.policies.data.curation.robustness import Table, judge, table_of
from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Formula

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


@dataclass(frozen=True)
class Wanted:
    """Which episodes to take; what is None asks for nothing.

    Args:
        formula: with ``satisfied``, episodes that satisfy it; what ``robustness`` and ``progress`` are of.
        progress: of the share of the formula's timed subgoals that were hit.
        returns, length: of the return, and the seconds that an episode lasts.
        success: True, False: judged so. ``language``: a part of the instruction.
        top: the share with the largest return, or with ``by_robustness`` robustness, of those that meet all else.
    """

    formula: Formula | None = None
    satisfied: bool = False
    robustness: Condition | None = None
    progress: Condition | None = None
    returns: Condition | None = None
    length: Condition | None = None
    success: bool | None = None
    language: str | None = None
    top: float | None = None
    by_robustness: bool = False


def masks(data: Dataset, wanted: Wanted, semantics: Semantics = RTAMT) -> dict[str, NDArray[np.bool_]]:
    """[E] by condition: which episodes meet it. The last, ``top``, is among those that meet all others."""
    out: dict[str, NDArray[np.bool_]] = {}
    table, robust = table_of(data), np.full(data.episodes, np.nan)
    if wanted.formula is not None and (wanted.satisfied or wanted.robustness or wanted.by_robustness):
        found = judge(wanted.formula, table, semantics)
        robust = found.robustness
        if wanted.satisfied:
            out["formula"] = found.verdicts > 0
    for name, rule, values in (("robustness", wanted.robustness, lambda: robust),
                               ("progress", wanted.progress, lambda: progress(data, table, wanted.formula)),
                               ("return", wanted.returns, lambda: returns(data)),
                               ("length", wanted.length, lambda: (table.lengths - 1) * table.dt)):
        if rule is not None:
            out[name] = rule(values())
    if wanted.success is not None:
        out["success"] = successes(data) == float(wanted.success)
    if wanted.language is not None:
        out["language"] = np.array([wanted.language in record.language for record in data.records], dtype=bool)
    if wanted.top is not None:
        so_far = np.logical_and.reduce(list(out.values())) if out else np.ones(data.episodes, dtype=bool)
        value = robust if wanted.by_robustness else returns(data)
        out["top"] = best(np.where(so_far, value, np.nan), wanted.top)
    return out


def progress(data: Dataset, table: Table, formula: Formula | None) -> NDArray[np.float64]:
    """[E] the share of the formula's timed subgoals that each episode hits."""
    from temporeal.policies.data.curation.relabeling import hit_shares

    if formula is None:
        raise DataError("progress is that of a formula")
    return hit_shares(formula, table)


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
