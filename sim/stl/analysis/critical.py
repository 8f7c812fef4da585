"""Critical operands: which part of a sub-formula, at which sample, its value comes from. numpy only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.analysis.valuation import Numbers, Path, Values, extreme, first_equal, fold, iff_pairs
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or
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
from temporeal.sim.stl.semantics.verdicts import UNDECIDED, verdict_of

MOST_BEYOND = 10_000_000
"""Samples past the end of a trace that the strong, weak and partial views follow at most."""


@dataclass(frozen=True)
class Operand:
    """Sub-formula ``index``, or with ``negated`` its negation, at ``sample``."""

    index: int
    negated: bool
    sample: int


@dataclass(frozen=True)
class Operands:
    """What a value is made of; ``operands[critical]`` equals it. None: it has no operands."""

    operands: tuple[Operand, ...]
    critical: int | None


EMPTY = Operands((), None)


@dataclass(frozen=True)
class UntilPath:
    """The samples that an until passes, in its order, and its value if it is released at each."""

    samples: NDArray[np.intp]
    whole: Numbers


def operands(values: Values, path: Path, f: Formula, negated: bool, at: int) -> Operands:
    """What the value of ``f`` (or of its negation) at sample ``at`` is made of, and which operand is critical."""
    target = values.of(path, f, negated)[at]

    def operand(index: int, sample: int, flip: bool = False) -> Operand:
        return Operand(index, negated != flip, sample)

    match f:
        case Not():
            return Operands((operand(0, at, True),), 0)
        case And(args) | Or(args):
            return _one_of(values, path, f, [operand(i, at) for i in range(len(args))], target)
        case Implies():
            return _one_of(values, path, f, [operand(0, at, True), operand(1, at)], target)
        case Iff():
            for pair, sides in zip(iff_pairs(negated), values.pairs(path, f, negated)):
                if fold(not negated, [side[at : at + 1] for side in sides])[0] == target:
                    return _one_of(values, path, f, [Operand(i, flip, at) for i, flip in pair], target)
        case Always() | Eventually() | Historically() | Once():
            first, last = values.window(path, f, at)
            if first > last:
                return EMPTY
            return Operands((operand(0, first_equal(values.child(path, f, 0, negated), first, last, target)),), 0)
        case Next() | Previous():
            at += -1 if isinstance(f, Previous) else 1
            return Operands((operand(0, at),), 0) if 0 <= at < values.rows else EMPTY
        case Until() | Since() | Release() | WeakUntil():
            return _until_operands(values, path, f, negated, at, target)
    return EMPTY


def _one_of(values: Values, path: Path, f: Formula, found: Sequence[Operand], target: float) -> Operands:
    """Those ``found``; critical is the first with the value ``target``."""
    critical = next(k for k, a in enumerate(found) if values.child(path, f, a.index, a.negated)[a.sample] == target)
    return Operands(tuple(found), critical)


def until_path(values: Values, path: Path, f: Any, negated: bool, at: int) -> UntilPath:
    """The samples that an until at ``at`` passes, to the end of its window."""
    keep, reach = (values.child(path, f, i, negated) for i in (0, 1))
    most, past = isinstance(f, Release) == negated, isinstance(f, Since)
    first, last = values.window(path, f, at)
    span = np.arange(at, (first if past else last) + (-1 if past else 1), -1 if past else 1)
    worst = (np.minimum if most else np.maximum).accumulate(keep[span])
    if not values.closed:
        worst = np.concatenate([[inf if most else -inf], worst])[: len(span)]
    return UntilPath(span, fold(not most, [reach[span], worst]))


def _until_operands(values: Values, path: Path, f: Any, negated: bool, at: int, target: float) -> Operands:
    """The critical sample of the window, and whether the right side is critical there or the left before it."""
    keep, reach = (values.child(path, f, i, negated) for i in (0, 1))
    most = isinstance(f, Release) == negated
    first, last = values.window(path, f, at)
    if isinstance(f, WeakUntil) and extreme(keep[at : last + 1], not most) == target:
        return Operands((Operand(0, negated, first_equal(keep, at, last, target)),), 0)
    if first > last:
        return EMPTY
    way = until_path(values, path, f, negated, at)
    inside = (way.samples >= first) & (way.samples <= last)
    k = int(np.flatnonzero(inside & (way.whole == target))[0])
    there, before = int(way.samples[k]), way.samples[: k + values.closed]
    found = [Operand(1, negated, there)]
    if len(before):
        worst = np.flatnonzero(keep[before] == extreme(keep[before], not most))[0]
        found.append(Operand(0, negated, int(before[worst])))
    return Operands(tuple(found), 0 if reach[there] == target else 1)


@dataclass(frozen=True)
class Bounds:
    """Values with everything unknown false, and with everything unknown true: one object if they are equal."""

    low: Values
    high: Values

    def at(self, path: Path, f: Formula, negated: bool, sample: int) -> tuple[float, float]:
        """Bounds of ``f``, or of its negation."""
        return float(self.low.of(path, f, negated)[sample]), float(self.high.of(path, f, negated)[sample])

    def operands(self, path: Path, f: Formula, negated: bool, at: int) -> Operands:
        """Those of the bound that proves the verdict; without one, an undecided operand is critical."""
        low, high = self.at(path, f, negated, at)
        if verdict_of(low, high) != UNDECIDED:
            return operands(self.low if low > 0 else self.high, path, f, negated, at)
        known = operands(self.low, path, f, negated, at).operands
        waits = next((a for a in self.candidates(path, f, negated, at, known) if self.open(path, f, a)), None)
        if waits is None:
            return EMPTY
        return Operands((waits, *(a for a in known if a.index != waits.index)), 0)

    def open(self, path: Path, f: Formula, one: Operand) -> bool:
        """Whether the operand is undecided."""
        found = self.at((*path, one.index), children(f)[one.index], one.negated, one.sample)
        return verdict_of(*found) == UNDECIDED

    def candidates(
        self, path: Path, f: Formula, negated: bool, at: int, known: Sequence[Operand]
    ) -> Iterator[Operand]:
        """The operands that may be undecided, and leave ``f`` undecided."""
        first, last = self.low.window(path, f, at) if hasattr(f, "window") else (at, at)
        match f:
            case Iff():
                for k, pair in enumerate(iff_pairs(negated)):
                    sides = [b.pairs(path, f, negated)[k] for b in (self.low, self.high)]
                    if verdict_of(*(float(fold(not negated, side)[at]) for side in sides)) == UNDECIDED:
                        yield from (Operand(i, flip, at) for i, flip in pair)
            case Always() | Eventually() | Historically() | Once():
                yield from (Operand(0, negated, s) for s in range(first, last + 1))
            case Until() | Since() | Release() | WeakUntil():
                yield from self.on_the_way(path, f, negated, at)
            case _:
                yield from known

    def on_the_way(self, path: Path, f: Any, negated: bool, at: int) -> Iterator[Operand]:
        """For an undecided until, the operands up to a sample that leaves it undecided."""
        first, last = self.low.window(path, f, at)
        step = -1 if isinstance(f, Since) else 1
        if isinstance(f, WeakUntil):
            yield from (Operand(0, negated, s) for s in range(at, last + 1))
        spans = [until_path(b, path, f, negated, at) for b in (self.low, self.high)]
        for k, s in enumerate(spans[0].samples.tolist()):
            if first <= s <= last and verdict_of(spans[0].whole[k], spans[1].whole[k]) == UNDECIDED:
                yield Operand(1, negated, s)
                yield from (Operand(0, negated, r) for r in range(at, s + step * self.low.closed, step))

    def asked(self, formula: Formula) -> dict[Path, Operand]:
        """The sample at which each sub-formula matters, starting with the formula at the first sample."""
        out: dict[Path, Operand] = {}

        def walk(path: Path, f: Formula, negated: bool, at: int) -> None:
            out[path] = Operand(path[-1] if path else 0, negated, at)
            for a in self.operands(path, f, negated, at).operands:
                walk((*path, a.index), children(f)[a.index], a.negated, a.sample)

        walk((), formula, False, 0)
        return out


def bounds_of(
    formula: Formula, used: Mapping[str, NDArray[Any]], count: int, dt: float, semantics: Semantics, partial: bool
) -> Bounds:
    """Bounds of ``formula`` on a trace of ``count`` samples; a :class:`FormulaError` if it looks too far past it."""
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
    """Windows in samples, by sub-formula.

    In the ``extended`` views a window into the future is cut where nothing changes any more.
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
    """Samples at which any sub-formula is needed to evaluate the formula at every sample of the trace."""

    def walk(path: Path, f: Formula, last: int) -> int:
        lo, hi = windows.get(path, (0, 0))
        ahead = int(isinstance(f, Next))
        if isinstance(f, (Always, Eventually, Until, Release, WeakUntil)):
            # an unbounded window: to where nothing changes any more
            ahead = max(0, max(lo, settled_at) if hi is None else hi)
        return max([last, *(walk((*path, i), c, last + ahead) for i, c in enumerate(children(f)))])

    settled_at = count + sum(lo if hi is None else hi for lo, hi in windows.values())
    return walk((), formula, count - 1) + 2
