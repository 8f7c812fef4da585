"""Values of every sub-formula at every sample of one trace. numpy only.

Negations are pushed to the predicates; what is unknown is evaluated once as false and once as true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, Predicate, Truth
from temporeal.sim.stl.language.queries import children
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Release,
    Since,
    Until,
    WeakUntil,
)
from temporeal.sim.stl.language.values import Arrays, numpy_arrays, predicate_margin, predicate_truth
from temporeal.sim.stl.semantics.verdicts import TINY

Path = tuple[int, ...]
"""Place in the formula: the number of the sub-formula at each level, from the root down; ``()`` is the formula."""
Numbers = NDArray[np.float64]

_ARRAYS = {np.dtype(kind): numpy_arrays(kind) for kind in (np.float32, np.float64)}


@dataclass
class Values:
    """Values [R] of sub-formulas; R are the samples of the trace and those past its end that may be needed.

    ``of(path, f, negated)`` is the value of ``f`` or of its negation, with negations pushed to the predicates.
    ``unknown`` replaces the margin, also a negated one, where it is NaN, and ``beyond`` past the end.
    """

    used: Mapping[str, NDArray[Any]]
    count: int
    rows: int
    dt: float
    closed: bool
    unknown: float
    beyond: float
    windows: Mapping[Path, tuple[int, int | None]]
    known: dict[tuple[Path, bool], Numbers] = field(default_factory=dict)
    margins: dict[Predicate, Numbers] = field(default_factory=dict)

    def of(self, path: Path, f: Formula, negated: bool) -> Numbers:
        """[R]."""
        key = path, negated
        if key not in self.known:
            self.known[key] = self._of(path, f, negated)
        return self.known[key]

    def child(self, path: Path, f: Formula, index: int, negated: bool) -> Numbers:
        """[R] of the sub-formula ``index`` of ``f``."""
        return self.of((*path, index), children(f)[index], negated)

    @property
    def arrays(self) -> Arrays:
        """numpy with constants of the signals' type."""
        return _ARRAYS[next(iter(self.used.values())).dtype]

    def margin(self, predicate: Predicate) -> Numbers:
        """[T]; at zero the sign is the truth (`verdicts.TINY`); NaN where unknown."""
        if predicate not in self.margins:
            with np.errstate(all="ignore"):
                margin = predicate_margin(predicate, self.used, self.arrays)
                found = np.array(np.broadcast_to(margin, self.count), float)
                truth = np.broadcast_to(predicate_truth(predicate, self.used, self.arrays), self.count)
            self.margins[predicate] = np.where(found == 0, np.where(truth, TINY, -TINY), found)
        return self.margins[predicate]

    def _of(self, path: Path, f: Formula, negated: bool) -> Numbers:
        def arg(index: int, flip: bool = False) -> Numbers:
            return self.child(path, f, index, negated != flip)

        match f:
            case Predicate():
                margin = self.margin(f)
                known = np.where(np.isnan(margin), self.unknown, -margin if negated else margin)
                return np.concatenate([known, np.full(self.rows - self.count, self.beyond)])
            case Truth(truth):
                return np.full(self.rows, inf if truth != negated else -inf)
            case Not():
                return arg(0, True)
            case And(args) | Or(args):
                return fold(isinstance(f, Or) != negated, [arg(i) for i in range(len(args))])
            case Implies():
                return fold(not negated, [arg(0, True), arg(1)])
            case Iff():
                return fold(negated, [fold(not negated, pair) for pair in self.pairs(path, f, negated)])
            case Always() | Eventually() | Historically() | Once():
                most, past = isinstance(f, (Eventually, Once)) != negated, isinstance(f, (Historically, Once))
                return slide(arg(0), *self.windows[path], most, past)
            case Next(_, strong) | Previous(_, strong):
                return shift(arg(0), 1, -inf if strong != negated else inf, isinstance(f, Previous))
            case Until() | Since() | Release() | WeakUntil():
                return self._until(path, f, arg(0), arg(1), negated)
        raise TypeError(f"not a formula: {f!r}")

    def pairs(self, path: Path, f: Iff, negated: bool) -> list[list[Numbers]]:
        """The values of ``!a, b`` and of ``a, !b``; of ``a <-> b`` negated those of ``a, !b`` and ``!a, b``."""
        return [[self.child(path, f, i, flip) for i, flip in pair] for pair in iff_pairs(negated)]

    def _until(
        self, path: Path, f: Until | Since | Release | WeakUntil, keep: Numbers, reach: Numbers, negated: bool
    ) -> Numbers:
        most = isinstance(f, Release) == negated
        lo, hi = self.windows[path]
        out = _timed_until(keep, reach, lo, hi, most, self.closed, isinstance(f, Since))
        return fold(most, [out, slide(keep, 0, hi, not most, False)]) if isinstance(f, WeakUntil) else out

    def window(self, path: Path, f: Any, at: int) -> tuple[int, int]:
        """First and last sample of the window of ``f`` at sample ``at``, clipped."""
        lo, hi = self.windows[path]
        if isinstance(f, (Historically, Once, Since)):
            return (0 if hi is None else max(0, at - hi)), at - lo
        return at + lo, self.rows - 1 if hi is None else min(at + hi, self.rows - 1)


def iff_pairs(negated: bool) -> list[list[tuple[int, bool]]]:
    """(index, negated) of the operands: of the two implications of ``a <-> b``; negated, of the two differences."""
    same, other = [(0, True), (1, False)], [(0, False), (1, True)]
    return [other, same] if negated else [same, other]


def fold(most: bool, arrays: Sequence[Numbers]) -> Numbers:
    """The maximum (``most``) or minimum of several arrays."""
    return np.asarray(reduce(np.maximum if most else np.minimum, arrays))


def extreme(x: Numbers, most: bool) -> float:
    """The maximum (``most``) or minimum; of nothing -inf or +inf."""
    return float((x.max if most else x.min)(initial=-inf if most else inf))


def first_equal(x: Numbers, first: int, last: int, target: float) -> int:
    """First sample in first .. last with the value ``target``."""
    return first + int(np.flatnonzero(x[first : last + 1] == target)[0])


def shift(x: Numbers, by: int, fill: float, past: bool) -> Numbers:
    by = min(by, len(x))
    gap = np.full(by, fill)
    return np.concatenate([gap, x[: len(x) - by]]) if past else np.concatenate([x[by:], gap])


def slide(x: Numbers, lo: int, hi: int | None, most: bool, past: bool) -> Numbers:
    """Extreme over the samples t+lo .. t+hi, by doubling; past: t-hi .. t-lo."""
    if past:
        return slide(x[::-1], lo, hi, most, False)[::-1]
    combine, neutral = (np.maximum, -inf) if most else (np.minimum, inf)
    width = (len(x) if hi is None else min(hi, len(x) - 1) + 1) - lo
    if width <= 0:
        return np.full(len(x), neutral)
    out, size = shift(x, lo, neutral, False), 1
    while size < width:
        step = min(size, width - size)
        out = combine(out, shift(out, step, neutral, False))
        size += step
    return out


def _timed_until(
    keep: Numbers, reach: Numbers, lo: int, hi: int | None, most: bool, closed: bool, past: bool
) -> Numbers:
    """``keep U[lo,hi] reach``, or its dual without ``most``, by the identity of `rewriting.lower`."""
    if past:
        return _timed_until(keep[::-1], reach[::-1], lo, hi, most, closed, False)[::-1]
    if closed:
        reach = fold(not most, [reach, keep])
    better, worse = (max, min) if most else (min, max)
    whole, last = np.empty(len(keep)), -inf if most else inf
    for t, (k, r) in enumerate(zip(reversed(keep.tolist()), reversed(reach.tolist()))):
        whole[-1 - t] = last = better(r, worse(k, last))
    parts = [shift(whole, lo, -inf if most else inf, False), slide(reach, lo, hi, most, False)]
    return fold(not most, parts + ([slide(keep, 0, lo - 1, not most, False)] if lo else []))
