"""What a robustness on one trace is made of: values of every sub-formula, and of each what decides it. numpy only.

:mod:`temporeal.sim.stl.analysis.explain` asks here. Negations are pushed down to the predicates; what is unknown is
evaluated once as false and once as true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, Predicate, Truth
from temporeal.sim.stl.language.queries import children, predicates_in
from temporeal.sim.stl.language.sampling import window_steps
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

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"
MOST_BEYOND = 10_000_000
"""Samples past the end of a trace that the strong, weak and partial views follow."""

Path = tuple[int, ...]
"""Place in the formula: the number of the sub-formula at each level, from the root down; ``()`` is the formula."""
Numbers = NDArray[np.float64]

# A margin of zero is true for <= and >=, false for < and >: it is carried as the smallest number of that sign, so that
# the sign is the truth. It is shown as zero again.
TINY = float(np.finfo(np.float64).tiny)
_ARRAYS = {np.dtype(kind): numpy_arrays(kind) for kind in (np.float32, np.float64)}


def verdict_of(low: float, high: float) -> str:
    """Of a robustness between ``low`` and ``high``."""
    return SATISFIED if low > 0 else VIOLATED if high < 0 else UNDECIDED


@dataclass
class Values:
    """Values [R] of sub-formulas, R the samples and those past the end that may be asked for.

    ``of(path, f, negated)`` is the value of ``f`` or of its negation, every negation pushed to the predicates, and
    ``unknown`` stands for each predicate or negated predicate whose margin is NaN, ``beyond`` for those past the end.
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
        """[T] with the truth at zero as its sign; NaN where unknown."""
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
                return _fold(isinstance(f, Or) != negated, [arg(i) for i in range(len(args))])
            case Implies():
                return _fold(not negated, [arg(0, True), arg(1)])
            case Iff():
                return _fold(negated, [_fold(not negated, pair) for pair in self.pairs(path, f, negated)])
            case Always() | Eventually() | Historically() | Once():
                most, past = isinstance(f, (Eventually, Once)) != negated, isinstance(f, (Historically, Once))
                return _slide(arg(0), *self.windows[path], most, past)
            case Next(_, strong) | Previous(_, strong):
                return _shift(arg(0), 1, -inf if strong != negated else inf, isinstance(f, Previous))
            case Until() | Since() | Release() | WeakUntil():
                return self._until(path, f, arg(0), arg(1), negated)
        raise TypeError(f"not a formula: {f!r}")

    def pairs(self, path: Path, f: Iff, negated: bool) -> list[list[Numbers]]:
        """The values of ``!a, b`` and of ``a, !b``; of ``a <-> b`` negated those of ``a, !b`` and ``!a, b``."""
        return [[self.child(path, f, i, flip) for i, flip in pair] for pair in _iff_pairs(negated)]

    def _until(
        self, path: Path, f: Until | Since | Release | WeakUntil, keep: Numbers, reach: Numbers, negated: bool
    ) -> Numbers:
        most = isinstance(f, Release) == negated
        lo, hi = self.windows[path]
        out = _timed_until(keep, reach, lo, hi, most, self.closed, isinstance(f, Since))
        return _fold(most, [out, _slide(keep, 0, hi, not most, False)]) if isinstance(f, WeakUntil) else out

    # -------------------------------------------------------- what decides

    def choice(self, path: Path, f: Formula, negated: bool, at: int) -> Choice:
        """What the value of ``f`` (or of its negation) at sample ``at`` is made of, and which of it decides."""
        target = self.of(path, f, negated)[at]

        def ask(index: int, sample: int, flip: bool = False) -> Ask:
            return Ask(index, negated != flip, sample)

        match f:
            case Not():
                return Choice((ask(0, at, True),), 0)
            case And(args) | Or(args):
                return self._one_of(path, f, [ask(i, at) for i in range(len(args))], target)
            case Implies():
                return self._one_of(path, f, [ask(0, at, True), ask(1, at)], target)
            case Iff():
                for pair, values in zip(_iff_pairs(negated), self.pairs(path, f, negated)):
                    if _fold(not negated, [v[at : at + 1] for v in values])[0] == target:
                        return self._one_of(path, f, [Ask(i, flip, at) for i, flip in pair], target)
            case Always() | Eventually() | Historically() | Once():
                first, last = self.window(path, f, at)
                if first > last:
                    return EMPTY
                return Choice((ask(0, _where(self.child(path, f, 0, negated), first, last, target)),), 0)
            case Next() | Previous():
                at += -1 if isinstance(f, Previous) else 1
                return Choice((ask(0, at),), 0) if 0 <= at < self.rows else EMPTY
            case Until() | Since() | Release() | WeakUntil():
                return self._until_choice(path, f, negated, at, target)
        return EMPTY

    def window(self, path: Path, f: Any, at: int) -> tuple[int, int]:
        """First and last sample of the window of ``f`` at sample ``at``, cut to what there is."""
        lo, hi = self.windows[path]
        if isinstance(f, (Historically, Once, Since)):
            return (0 if hi is None else max(0, at - hi)), at - lo
        return at + lo, self.rows - 1 if hi is None else min(at + hi, self.rows - 1)

    def _one_of(self, path: Path, f: Formula, asks: Sequence[Ask], target: float) -> Choice:
        deciding = next(k for k, a in enumerate(asks) if self.child(path, f, a.index, a.negated)[a.sample] == target)
        return Choice(tuple(asks), deciding)

    def way(self, path: Path, f: Any, negated: bool, at: int) -> Way:
        """The samples that an until at ``at`` passes, to the end of its window."""
        keep, reach = (self.child(path, f, i, negated) for i in (0, 1))
        most, past = isinstance(f, Release) == negated, isinstance(f, Since)
        first, last = self.window(path, f, at)
        span = np.arange(at, (first if past else last) + (-1 if past else 1), -1 if past else 1)
        worst = (np.minimum if most else np.maximum).accumulate(keep[span])
        if not self.closed:
            worst = np.concatenate([[inf if most else -inf], worst])[: len(span)]
        return Way(span, _fold(not most, [reach[span], worst]))

    def _until_choice(self, path: Path, f: Any, negated: bool, at: int, target: float) -> Choice:
        """The sample of the window that decides, and whether the right side decides there or the left on the way."""
        keep, reach = (self.child(path, f, i, negated) for i in (0, 1))
        most = isinstance(f, Release) == negated
        first, last = self.window(path, f, at)
        if isinstance(f, WeakUntil) and _extreme(keep[at : last + 1], not most) == target:
            return Choice((Ask(0, negated, _where(keep, at, last, target)),), 0)
        if first > last:
            return EMPTY
        way = self.way(path, f, negated, at)
        inside = (way.samples >= first) & (way.samples <= last)
        k = int(np.flatnonzero(inside & (way.whole == target))[0])
        there, before = int(way.samples[k]), way.samples[: k + self.closed]
        asks = [Ask(1, negated, there)]
        if len(before):
            worst = np.flatnonzero(keep[before] == _extreme(keep[before], not most))[0]
            asks.append(Ask(0, negated, int(before[worst])))
        return Choice(tuple(asks), 0 if reach[there] == target else 1)


@dataclass(frozen=True)
class Way:
    """The samples that an until passes, in its order, and what it is worth if it ends there."""

    samples: NDArray[np.intp]
    whole: Numbers


@dataclass(frozen=True)
class Ask:
    """Sub-formula ``index``, or with ``negated`` its negation, at ``sample``."""

    index: int
    negated: bool
    sample: int


@dataclass(frozen=True)
class Choice:
    """What a value is made of; ``asks[deciding]`` equals it. None: there is nothing to ask."""

    asks: tuple[Ask, ...]
    deciding: int | None


EMPTY = Choice((), None)


def _iff_pairs(negated: bool) -> list[list[tuple[int, bool]]]:
    """Of ``a <-> b`` (index, negated) of the two implications, of its negation those of the two differences."""
    same, other = [(0, True), (1, False)], [(0, False), (1, True)]
    return [other, same] if negated else [same, other]


@dataclass(frozen=True)
class Bounds:
    """Values with everything unknown false, and with everything unknown true: one object where that is the same."""

    low: Values
    high: Values

    def at(self, path: Path, f: Formula, negated: bool, sample: int) -> tuple[float, float]:
        """Bounds of ``f``, or of its negation."""
        return float(self.low.of(path, f, negated)[sample]), float(self.high.of(path, f, negated)[sample])

    def choice(self, path: Path, f: Formula, negated: bool, at: int) -> Choice:
        """That of the bound which proves the verdict; where none does, a part that is undecided itself decides."""
        low, high = self.at(path, f, negated, at)
        if verdict_of(low, high) != UNDECIDED:
            return (self.low if low > 0 else self.high).choice(path, f, negated, at)
        asks = self.low.choice(path, f, negated, at).asks
        waits = next((a for a in self.candidates(path, f, negated, at, asks) if self.open(path, f, a)), None)
        if waits is None:
            return EMPTY
        return Choice((waits, *(a for a in asks if a.index != waits.index)), 0)

    def open(self, path: Path, f: Formula, ask: Ask) -> bool:
        """Whether what is asked for is undecided."""
        found = self.at((*path, ask.index), children(f)[ask.index], ask.negated, ask.sample)
        return verdict_of(*found) == UNDECIDED

    def candidates(
        self, path: Path, f: Formula, negated: bool, at: int, asks: Sequence[Ask]
    ) -> Iterator[Ask]:
        """Where a part may be undecided because of which ``f`` is."""
        first, last = self.low.window(path, f, at) if hasattr(f, "window") else (at, at)
        match f:
            case Iff():
                for k, pair in enumerate(_iff_pairs(negated)):
                    sides = [b.pairs(path, f, negated)[k] for b in (self.low, self.high)]
                    if verdict_of(*(float(_fold(not negated, side)[at]) for side in sides)) == UNDECIDED:
                        yield from (Ask(i, flip, at) for i, flip in pair)
            case Always() | Eventually() | Historically() | Once():
                yield from (Ask(0, negated, s) for s in range(first, last + 1))
            case Until() | Since() | Release() | WeakUntil():
                yield from self.on_the_way(path, f, negated, at)
            case _:
                yield from asks

    def on_the_way(self, path: Path, f: Any, negated: bool, at: int) -> Iterator[Ask]:
        """Of an until that is undecided: the samples of its sides up to one that leaves it so."""
        first, last = self.low.window(path, f, at)
        step = -1 if isinstance(f, Since) else 1
        if isinstance(f, WeakUntil):
            yield from (Ask(0, negated, s) for s in range(at, last + 1))
        spans = [b.way(path, f, negated, at) for b in (self.low, self.high)]
        for k, s in enumerate(spans[0].samples.tolist()):
            if first <= s <= last and verdict_of(spans[0].whole[k], spans[1].whole[k]) == UNDECIDED:
                yield Ask(1, negated, s)
                yield from (Ask(0, negated, r) for r in range(at, s + step * self.low.closed, step))

    def asked(self, formula: Formula) -> dict[Path, Ask]:
        """Where the explanation asks for every sub-formula, starting with the formula at the first sample."""
        out: dict[Path, Ask] = {}

        def walk(path: Path, f: Formula, negated: bool, at: int) -> None:
            out[path] = Ask(path[-1] if path else 0, negated, at)
            for a in self.choice(path, f, negated, at).asks:
                walk((*path, a.index), children(f)[a.index], a.negated, a.sample)

        walk((), formula, False, 0)
        return out


def bounds_of(
    formula: Formula, used: Mapping[str, NDArray[Any]], count: int, dt: float, semantics: Semantics, partial: bool
) -> Bounds:
    """Bounds of ``formula`` on a trace of ``count`` samples; a :class:`FormulaError` where it looks too far past it."""
    windows = _windows(formula, count, dt, partial or semantics.end != "clip")
    rows = max(count, _rows_asked(formula, count, windows) if partial or semantics.end != "clip" else 0)
    if rows > count + MOST_BEYOND:
        raise FormulaError(f"the formula looks {rows - count} samples past the end of the trace; at most {MOST_BEYOND} "
                           "are followed there: end='clip' cuts windows to the trace")
    closed = semantics.until == "closed"
    beyond = (-inf, inf) if partial else ((-inf,) * 2 if semantics.end == "strong" else (inf,) * 2)
    low = Values(used, count, rows, dt, closed, -inf, beyond[0], windows)
    holes = any(np.isnan(low.margin(p)).any() for p in predicates_in(formula))
    if not holes and not partial:
        return Bounds(low, low)
    return Bounds(low, Values(used, count, rows, dt, closed, inf, beyond[1], windows, margins=low.margins))


def _windows(formula: Formula, count: int, dt: float, extended: bool) -> dict[Path, tuple[int, int | None]]:
    """Windows in samples, by sub-formula. In the ``extended`` views a window into the future ends at the latest where
    nothing changes any more: there is only one value beyond.
    """
    out: dict[Path, tuple[int, int | None]] = {}

    def settled(path: Path, f: Formula) -> int:
        """The sample of the extended trace from which on ``f`` is constant."""
        since = max([settled((*path, i), c) for i, c in enumerate(children(f))], default=count)
        if isinstance(f, Previous):
            return since + 1
        if not hasattr(f, "window"):
            return since
        lo, hi = out[path] = window_steps(f.window, dt)
        if isinstance(f, (Historically, Once, Since)):
            return since + 1 + (lo if hi is None else hi)
        if extended and hi is not None:
            out[path] = lo, min(hi, max(lo, since))
        return since

    settled((), formula)
    return out


def _rows_asked(formula: Formula, count: int, windows: Mapping[Path, tuple[int, int | None]]) -> int:
    """Samples that any sub-formula is asked for when the formula is at every sample of the trace."""

    def walk(path: Path, f: Formula, last: int) -> int:
        lo, hi = windows.get(path, (0, 0))
        ahead = int(isinstance(f, Next))
        if isinstance(f, (Always, Eventually, Until, Release, WeakUntil)):
            # a window without an end: to where nothing changes any more
            ahead = max(0, max(lo, settled_at) if hi is None else hi)
        return max([last, *(walk((*path, i), c, last + ahead) for i, c in enumerate(children(f)))])

    settled_at = count + sum(lo if hi is None else hi for lo, hi in windows.values())
    return walk((), formula, count - 1) + 2


def _fold(most: bool, arrays: Sequence[Numbers]) -> Numbers:
    return np.asarray(reduce(np.maximum if most else np.minimum, arrays))


def _extreme(x: Numbers, most: bool) -> float:
    return float((x.max if most else x.min)(initial=-inf if most else inf))


def _where(x: Numbers, first: int, last: int, target: float) -> int:
    """First sample in first .. last with the value ``target``."""
    return first + int(np.flatnonzero(x[first : last + 1] == target)[0])


def _shift(x: Numbers, by: int, fill: float, past: bool) -> Numbers:
    by = min(by, len(x))
    gap = np.full(by, fill)
    return np.concatenate([gap, x[: len(x) - by]]) if past else np.concatenate([x[by:], gap])


def _slide(x: Numbers, lo: int, hi: int | None, most: bool, past: bool) -> Numbers:
    """Extreme over the samples t+lo .. t+hi, by doubling; past: t-hi .. t-lo."""
    if past:
        return _slide(x[::-1], lo, hi, most, False)[::-1]
    combine, neutral = (np.maximum, -inf) if most else (np.minimum, inf)
    width = (len(x) if hi is None else min(hi, len(x) - 1) + 1) - lo
    if width <= 0:
        return np.full(len(x), neutral)
    out, size = _shift(x, lo, neutral, False), 1
    while size < width:
        step = min(size, width - size)
        out = combine(out, _shift(out, step, neutral, False))
        size += step
    return out


def _timed_until(
    keep: Numbers, reach: Numbers, lo: int, hi: int | None, most: bool, closed: bool, past: bool
) -> Numbers:
    """``keep U[lo,hi] reach``, or its dual without ``most``, by the identity of
    :mod:`temporeal.sim.stl.rewriting.lower`."""
    if past:
        return _timed_until(keep[::-1], reach[::-1], lo, hi, most, closed, False)[::-1]
    if closed:
        reach = _fold(not most, [reach, keep])
    better, worse = (max, min) if most else (min, max)
    whole, last = np.empty(len(keep)), -inf if most else inf
    for t, (k, r) in enumerate(zip(reversed(keep.tolist()), reversed(reach.tolist()))):
        whole[-1 - t] = last = better(r, worse(k, last))
    parts = [_shift(whole, lo, -inf if most else inf, False), _slide(reach, lo, hi, most, False)]
    return _fold(not most, parts + ([_slide(keep, 0, lo - 1, not most, False)] if lo else []))
