"""Why a formula holds or fails on one trace: which predicate decided it, at which sample, by how much. numpy only.

Robustness is made of minima and maxima, so that one value of one predicate at one sample *is* the robustness (up to the
sign that negations give it). :func:`explain` walks from the formula down to it and keeps every step: the *chain*.
Where several are equal the first part, and the earliest sample, is taken.

What is unknown (a NaN margin; with ``partial`` also every sample past the end) is bounded: evaluated once as false and
once as true. Where both agree the value is known whatever the truth was; where they differ the robustness is NaN, and
the verdict still falls if both bounds have one sign.

Deadline slack. An *obligation* is an ``F[a,b] p`` or ``p U[a,b] q`` that must become true, or (under a negation) a
``G`` or ``R`` that must become false. Asked for at time t0, it is *met* at the first sample s >= t0 + a of the trace at
which its goal is true (and p at every sample from t0 to the one before s, in the closed semantics also at s). Its
deadline is t0 + b and its slack (t0 + b) - s seconds: positive if it was met early, negative if late. So it is true at
t0 exactly if the slack is at least zero. ``never`` means no such sample in the trace.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.signals import SignalError
from sim.stl.lower import RTAMT, Semantics
from sim.stl.syntax import (
    Always,
    And,
    Apply,
    Component,
    Constant,
    Eventually,
    Expr,
    Formula,
    FormulaError,
    Historically,
    Iff,
    Implies,
    Next,
    Not,
    Once,
    Or,
    Predicate,
    Previous,
    Release,
    Signal,
    Since,
    Truth,
    Until,
    WeakUntil,
    children,
    horizon,
    leaves,
    signals_in,
    to_text,
    window_text,
)
from sim.stl.units import NUMBER, ONE, Unit, common, operation_unit, parse_unit, unit_text
from sim.stl.values import Arrays, check_shape, numpy_arrays, predicate_margin, predicate_truth, required, value
from sim.stl.windows import window_steps

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"
MOST_BEYOND = 10_000_000
"""Samples past the end of a trace that the strong, weak and partial views follow."""

Path = tuple[int, ...]
"""Place in the formula: the number of the sub-formula at each level, from the root down; ``()`` is the formula."""
Numbers = NDArray[np.float64]

# A margin of zero is true for <= and >=, false for < and >: it is carried as the smallest number of that sign, so that
# the sign is the truth. It is shown as zero again.
_TINY = float(np.finfo(np.float64).tiny)
_ARRAYS = {np.dtype(kind): numpy_arrays(kind) for kind in (np.float32, np.float64)}


@dataclass(frozen=True)
class Step:
    """One step of a deciding chain: the sub-formula that decides, and where.

    Args:
        path, text, place: which sub-formula; ``place`` is (start, end) in :attr:`Explanation.formula`.
        negated: an odd number of negations stands above it.
        sample, time_s: at which sample it decides; past the end of the trace in the strong, weak and partial views.
        value: its robustness there (its own: negations above it are not applied).
        verdict: of that value.
        how: in words, why its next one decides.
    """

    path: Path
    text: str
    place: tuple[int, int]
    negated: bool
    sample: int
    time_s: float
    value: float
    verdict: str
    how: str


@dataclass(frozen=True)
class Decider:
    """The end of a deciding chain.

    Args:
        kind: ``predicate``; ``constant`` (true or false); ``empty`` (a window without a sample, no next or previous
            sample); ``unknown`` (a NaN) or ``end`` (a sample past the end of the trace).
        text, path, sample, time_s: which sub-formula, and where.
        value, verdict: its robustness there, and whether it holds.
        left, right: the values of the predicate's two sides; ``unit`` is theirs and that of ``value``.
        signals: the values of the signals that it reads, by name.
    """

    kind: str
    text: str
    path: Path
    sample: int
    time_s: float
    value: float
    verdict: str
    left: float = nan
    right: float = nan
    unit: str = ""
    signals: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Obligation:
    """A deadline and how it was kept; the definition of slack is that of the module.

    Args:
        path, text: the sub-formula.
        asked_s: time at which the explanation asks for it.
        opens_s, due_s: its window, from the start of the trace; ``due_s`` is infinite without a deadline.
        met_s: first time at which it is met, NaN if never.
        slack_s: ``due_s - met_s``; NaN if never met, infinite without a deadline.
        state: ``met``, ``late``, ``never``, or ``open`` while it is undecided.
        covered: the trace reaches to the deadline.
    """

    path: Path
    text: str
    asked_s: float
    opens_s: float
    due_s: float
    met_s: float
    slack_s: float
    state: str
    covered: bool


@dataclass(frozen=True)
class Part:
    """One sub-formula.

    Args:
        path, text, place, formula: which one.
        robustness: [T] its own at every sample; NaN where it is unknown.
        verdicts: [T] 1 satisfied, -1 violated, 0 undecided.
        matters: first and last sample at which the formula's value at the first sample can depend on it; None: none.
        sample: the sample at which the explanation asks for it; None: it has no say.
        value, verdict: of it there.
        deciding: whether it is on the deciding chain.
    """

    path: Path
    text: str
    place: tuple[int, int]
    formula: Formula
    robustness: Numbers
    verdicts: NDArray[np.int8]
    matters: tuple[int, int] | None
    sample: int | None
    value: float
    verdict: str
    deciding: bool


@dataclass(frozen=True)
class Clause:
    """A top-level conjunct, judged at the first sample: its verdict and what decided it."""

    path: Path
    text: str
    robustness: float
    verdict: str
    decider: Decider
    slack_s: float
    """Smallest slack of its obligations, -inf if one was never met, NaN if none has a deadline and is decided."""


@dataclass(frozen=True)
class Explanation:
    """Why ``formula`` has its verdict on a trace of ``samples`` samples each ``dt`` seconds, from the first sample on.

    ``robustness`` is NaN where what is unknown could change it; it lies between ``lower`` and ``upper`` in any case.
    """

    formula: str
    dt: float
    samples: int
    horizon_s: float
    semantics: Semantics
    partial: bool
    robustness: float
    lower: float
    upper: float
    verdict: str
    chain: tuple[Step, ...]
    decider: Decider
    clauses: tuple[Clause, ...]
    obligations: tuple[Obligation, ...]
    parts: tuple[Part, ...]

    @property
    def times(self) -> Numbers:
        """[T] seconds since the first sample."""
        return np.asarray(np.arange(self.samples) * self.dt, dtype=np.float64)

    @property
    def predicates(self) -> tuple[Part, ...]:
        """The parts that are predicates."""
        return tuple(part for part in self.parts if isinstance(part.formula, Predicate))

    @property
    def decided_by(self) -> str | None:
        """Text of what decided the verdict, None while it is undecided."""
        return None if self.verdict == UNDECIDED else self.decider.text

    @property
    def at_s(self) -> float | None:
        """When it decided, seconds since the first sample; None while undecided."""
        return None if self.verdict == UNDECIDED else self.decider.time_s

    def part(self, path: Path) -> Part:
        """The part at ``path``."""
        return next(part for part in self.parts if part.path == path)

    def text(self, width: int = 100) -> str:
        """The explanation in words, lines of at most ``width`` characters where the formula allows it."""
        return "\n".join(_words(self, width))

    def to_json(self, series: bool = False) -> dict[str, Any]:
        """JSON data without NaN: unknown is ``null``, infinite is ``"inf"`` or ``"-inf"``.

        ``series`` adds the robustness of every part at every sample.
        """
        return _data(self, series)


def explain(
    formula: Formula, signals: Mapping[str, Any], dt: float, semantics: Semantics = RTAMT, partial: bool = False
) -> Explanation:
    """Explain the verdict of ``formula`` at the first sample of one trace, ``signals`` [T, *shape] each ``dt`` s.

    ``partial`` takes the trace as the beginning of a longer one: the verdict is undecided unless every continuation
    agrees (``semantics.end`` is not used then). A NaN makes what depends on it unknown, not the whole. Raises
    :class:`SignalError` for signals that are missing or of a wrong shape.
    """
    used, count = _trace(formula, signals)
    listed = _listed(formula)
    bounds = _bounds(formula, used, count, dt, semantics, partial)
    low, high = bounds.at((), formula, False, 0)
    asked = bounds.asked(formula)
    text = to_text(formula)
    chain, decider = _chain(bounds, (), formula, False, 0, listed)
    deciding = {step.path for step in chain}
    parts = tuple(_part(bounds, asked, deciding, path, f, place, span)
                  for (path, (f, place)), span in zip(listed.items(), _matters(formula, dt, count, semantics)))
    kept = [_obligation(bounds, asked, path, f) for path, (f, _) in listed.items()]
    obligations = tuple(o for o in kept if o is not None)
    clauses = _clauses(bounds, formula, listed, obligations)
    return Explanation(
        text, dt, count, horizon(formula, dt), semantics, partial, _shown(low) if low == high else nan, _shown(low),
        _shown(high), _verdict(low, high), chain, decider, clauses, obligations, parts)


def _trace(formula: Formula, signals: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int]:
    """The signals that the formula reads, and the number of samples."""
    names = signals_in(formula)
    given = {n: np.asarray(v) for n, v in (required(names, signals) if names else signals).items()}
    for name, array in given.items():
        if array.dtype.kind not in "fiub":
            raise SignalError(f"signal {name!r} is of type {array.dtype}: real numbers are needed")
    # as `robustness` and `satisfied` take them: a constant at float32 is not that at float64
    single = bool(given) and np.result_type(*given.values()).itemsize <= 4
    used = {n: array.astype(np.float32 if single else np.float64) for n, array in given.items()}
    for name, signal in names.items():
        check_shape(signal, used[name])
        if used[name].ndim != 1 + len(signal.shape):
            wanted = ", ".join(["T", *map(str, signal.shape)])
            raise SignalError(f"signal {name!r} has shape {used[name].shape}; one trace has [{wanted}]")
    lengths = {name: len(v) for name, v in used.items()}
    if len(set(lengths.values())) > 1:
        raise SignalError(f"signals differ in length: {lengths}")
    if not lengths or min(lengths.values()) == 0:
        raise SignalError("a trace has at least one sample; this one has none")
    return used, next(iter(lengths.values()))


def _verdict(low: float, high: float) -> str:
    return SATISFIED if low > 0 else VIOLATED if high < 0 else UNDECIDED


def _time(samples: int, dt: float) -> float:
    """Seconds: 0.3, not the 0.30000000000000004 of 3 times 0.1."""
    return round(samples * dt, 12)


def _shown(x: float) -> float:
    return 0.0 if abs(x) == _TINY else float(x)


# ---------------------------------------------------------------- values of every sub-formula


@dataclass
class _Values:
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
            self.margins[predicate] = np.where(found == 0, np.where(truth, _TINY, -_TINY), found)
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

    def choice(self, path: Path, f: Formula, negated: bool, at: int) -> _Choice:
        """What the value of ``f`` (or of its negation) at sample ``at`` is made of, and which of it decides."""
        target = self.of(path, f, negated)[at]

        def ask(index: int, sample: int, flip: bool = False) -> _Ask:
            return _Ask(index, negated != flip, sample)

        match f:
            case Not():
                return _Choice((ask(0, at, True),), 0)
            case And(args) | Or(args):
                return self._one_of(path, f, [ask(i, at) for i in range(len(args))], target)
            case Implies():
                return self._one_of(path, f, [ask(0, at, True), ask(1, at)], target)
            case Iff():
                for pair, values in zip(_iff_pairs(negated), self.pairs(path, f, negated)):
                    if _fold(not negated, [v[at : at + 1] for v in values])[0] == target:
                        return self._one_of(path, f, [_Ask(i, flip, at) for i, flip in pair], target)
            case Always() | Eventually() | Historically() | Once():
                first, last = self.window(path, f, at)
                if first > last:
                    return _EMPTY
                return _Choice((ask(0, _where(self.child(path, f, 0, negated), first, last, target)),), 0)
            case Next() | Previous():
                at += -1 if isinstance(f, Previous) else 1
                return _Choice((ask(0, at),), 0) if 0 <= at < self.rows else _EMPTY
            case Until() | Since() | Release() | WeakUntil():
                return self._until_choice(path, f, negated, at, target)
        return _EMPTY

    def window(self, path: Path, f: Any, at: int) -> tuple[int, int]:
        """First and last sample of the window of ``f`` at sample ``at``, cut to what there is."""
        lo, hi = self.windows[path]
        if isinstance(f, (Historically, Once, Since)):
            return (0 if hi is None else max(0, at - hi)), at - lo
        return at + lo, self.rows - 1 if hi is None else min(at + hi, self.rows - 1)

    def _one_of(self, path: Path, f: Formula, asks: Sequence[_Ask], target: float) -> _Choice:
        deciding = next(k for k, a in enumerate(asks) if self.child(path, f, a.index, a.negated)[a.sample] == target)
        return _Choice(tuple(asks), deciding)

    def way(self, path: Path, f: Any, negated: bool, at: int) -> _Way:
        """The samples that an until at ``at`` passes, to the end of its window."""
        keep, reach = (self.child(path, f, i, negated) for i in (0, 1))
        most, past = isinstance(f, Release) == negated, isinstance(f, Since)
        first, last = self.window(path, f, at)
        span = np.arange(at, (first if past else last) + (-1 if past else 1), -1 if past else 1)
        worst = (np.minimum if most else np.maximum).accumulate(keep[span])
        if not self.closed:
            worst = np.concatenate([[inf if most else -inf], worst])[: len(span)]
        return _Way(span, _fold(not most, [reach[span], worst]))

    def _until_choice(self, path: Path, f: Any, negated: bool, at: int, target: float) -> _Choice:
        """The sample of the window that decides, and whether the right side decides there or the left on the way."""
        keep, reach = (self.child(path, f, i, negated) for i in (0, 1))
        most = isinstance(f, Release) == negated
        first, last = self.window(path, f, at)
        if isinstance(f, WeakUntil) and _extreme(keep[at : last + 1], not most) == target:
            return _Choice((_Ask(0, negated, _where(keep, at, last, target)),), 0)
        if first > last:
            return _EMPTY
        way = self.way(path, f, negated, at)
        inside = (way.samples >= first) & (way.samples <= last)
        k = int(np.flatnonzero(inside & (way.whole == target))[0])
        there, before = int(way.samples[k]), way.samples[: k + self.closed]
        asks = [_Ask(1, negated, there)]
        if len(before):
            worst = np.flatnonzero(keep[before] == _extreme(keep[before], not most))[0]
            asks.append(_Ask(0, negated, int(before[worst])))
        return _Choice(tuple(asks), 0 if reach[there] == target else 1)


@dataclass(frozen=True)
class _Way:
    """The samples that an until passes, in its order, and what it is worth if it ends there."""

    samples: NDArray[np.intp]
    whole: Numbers


@dataclass(frozen=True)
class _Ask:
    """Sub-formula ``index``, or with ``negated`` its negation, at ``sample``."""

    index: int
    negated: bool
    sample: int


@dataclass(frozen=True)
class _Choice:
    """What a value is made of; ``asks[deciding]`` equals it. None: there is nothing to ask."""

    asks: tuple[_Ask, ...]
    deciding: int | None


_EMPTY = _Choice((), None)


def _iff_pairs(negated: bool) -> list[list[tuple[int, bool]]]:
    """Of ``a <-> b`` (index, negated) of the two implications, of its negation those of the two differences."""
    same, other = [(0, True), (1, False)], [(0, False), (1, True)]
    return [other, same] if negated else [same, other]


@dataclass(frozen=True)
class _Bounds:
    """Values with everything unknown false, and with everything unknown true: one object where that is the same."""

    low: _Values
    high: _Values

    def at(self, path: Path, f: Formula, negated: bool, sample: int) -> tuple[float, float]:
        """Bounds of ``f``, or of its negation."""
        return float(self.low.of(path, f, negated)[sample]), float(self.high.of(path, f, negated)[sample])

    def choice(self, path: Path, f: Formula, negated: bool, at: int) -> _Choice:
        """That of the bound which proves the verdict; where none does, a part that is undecided itself decides."""
        low, high = self.at(path, f, negated, at)
        if _verdict(low, high) != UNDECIDED:
            return (self.low if low > 0 else self.high).choice(path, f, negated, at)
        asks = self.low.choice(path, f, negated, at).asks
        waits = next((a for a in self.candidates(path, f, negated, at, asks) if self.open(path, f, a)), None)
        if waits is None:
            return _EMPTY
        return _Choice((waits, *(a for a in asks if a.index != waits.index)), 0)

    def open(self, path: Path, f: Formula, ask: _Ask) -> bool:
        """Whether what is asked for is undecided."""
        found = self.at((*path, ask.index), children(f)[ask.index], ask.negated, ask.sample)
        return _verdict(*found) == UNDECIDED

    def candidates(
        self, path: Path, f: Formula, negated: bool, at: int, asks: Sequence[_Ask]
    ) -> Iterator[_Ask]:
        """Where a part may be undecided because of which ``f`` is."""
        first, last = self.low.window(path, f, at) if hasattr(f, "window") else (at, at)
        match f:
            case Iff():
                for k, pair in enumerate(_iff_pairs(negated)):
                    sides = [b.pairs(path, f, negated)[k] for b in (self.low, self.high)]
                    if _verdict(*(float(_fold(not negated, side)[at]) for side in sides)) == UNDECIDED:
                        yield from (_Ask(i, flip, at) for i, flip in pair)
            case Always() | Eventually() | Historically() | Once():
                yield from (_Ask(0, negated, s) for s in range(first, last + 1))
            case Until() | Since() | Release() | WeakUntil():
                yield from self.on_the_way(path, f, negated, at)
            case _:
                yield from asks

    def on_the_way(self, path: Path, f: Any, negated: bool, at: int) -> Iterator[_Ask]:
        """Of an until that is undecided: the samples of its sides up to one that leaves it so."""
        first, last = self.low.window(path, f, at)
        step = -1 if isinstance(f, Since) else 1
        if isinstance(f, WeakUntil):
            yield from (_Ask(0, negated, s) for s in range(at, last + 1))
        spans = [b.way(path, f, negated, at) for b in (self.low, self.high)]
        for k, s in enumerate(spans[0].samples.tolist()):
            if first <= s <= last and _verdict(spans[0].whole[k], spans[1].whole[k]) == UNDECIDED:
                yield _Ask(1, negated, s)
                yield from (_Ask(0, negated, r) for r in range(at, s + step * self.low.closed, step))

    def asked(self, formula: Formula) -> dict[Path, _Ask]:
        """Where the explanation asks for every sub-formula, starting with the formula at the first sample."""
        out: dict[Path, _Ask] = {}

        def walk(path: Path, f: Formula, negated: bool, at: int) -> None:
            out[path] = _Ask(path[-1] if path else 0, negated, at)
            for a in self.choice(path, f, negated, at).asks:
                walk((*path, a.index), children(f)[a.index], a.negated, a.sample)

        walk((), formula, False, 0)
        return out


def _bounds(
    formula: Formula, used: Mapping[str, NDArray[Any]], count: int, dt: float, semantics: Semantics, partial: bool
) -> _Bounds:
    windows = _windows(formula, count, dt, partial or semantics.end != "clip")
    rows = max(count, _rows_asked(formula, count, windows) if partial or semantics.end != "clip" else 0)
    if rows > count + MOST_BEYOND:
        raise FormulaError(f"the formula looks {rows - count} samples past the end of the trace; at most {MOST_BEYOND} "
                           "are followed there: end='clip' cuts windows to the trace")
    closed = semantics.until == "closed"
    beyond = (-inf, inf) if partial else ((-inf,) * 2 if semantics.end == "strong" else (inf,) * 2)
    low = _Values(used, count, rows, dt, closed, -inf, beyond[0], windows)
    holes = any(np.isnan(low.margin(p)).any() for p in _predicates(formula))
    if not holes and not partial:
        return _Bounds(low, low)
    return _Bounds(low, _Values(used, count, rows, dt, closed, inf, beyond[1], windows, margins=low.margins))


def _predicates(formula: Formula) -> list[Predicate]:
    if isinstance(formula, Predicate):
        return [formula]
    return [p for c in children(formula) for p in _predicates(c)]


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
    """``keep U[lo,hi] reach``, or its dual without ``most``, by the identity of :mod:`sim.stl.lower`."""
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


# ---------------------------------------------------------------- chains, parts, clauses


def _listed(formula: Formula) -> dict[Path, tuple[Formula, tuple[int, int]]]:
    """Every sub-formula in the order of the text, with its place there."""
    text = to_text(formula)
    out: dict[Path, tuple[Formula, tuple[int, int]]] = {}

    def walk(path: Path, f: Formula, start: int, end: int) -> None:
        out[path] = f, (start, end)
        for i, child in enumerate(children(f)):
            own = to_text(child)
            start = text.index(own, start, end)  # what stands before it is operators: they hold no formula
            walk((*path, i), child, start, start + len(own))
            start += len(own)

    walk((), formula, 0, len(text))
    return out


def _chain(
    bounds: _Bounds, path: Path, f: Formula, negated: bool, at: int, listed: Mapping[Path, Any]
) -> tuple[tuple[Step, ...], Decider]:
    """The steps from the sub-formula at ``path`` down to what decides it at sample ``at``."""
    steps: list[Step] = []
    while True:
        choice, verdict = bounds.choice(path, f, negated, at), _verdict(*bounds.at(path, f, negated, at))
        # of a verdict that is certain the bound that proves it
        signed = {SATISFIED: bounds.low, VIOLATED: bounds.high}.get(verdict)
        own = nan if signed is None else float(signed.of(path, f, negated)[at]) * (-1 if negated else 1)
        time_s, how = _time(at, bounds.low.dt), _how(bounds.low, path, f, at, own)
        step = Step(path, to_text(f), listed[path][1], negated, at, time_s, _shown(own), _verdict(own, own), how)
        steps.append(step)
        if choice.deciding is None:
            return tuple(steps), _decider(bounds.low, step, f)
        ask = choice.asks[choice.deciding]
        path, f, negated, at = (*path, ask.index), children(f)[ask.index], ask.negated, ask.sample


def _decider(values: _Values, step: Step, f: Formula) -> Decider:
    out = Decider("empty", step.text, step.path, step.sample, step.time_s, step.value, step.verdict)
    if isinstance(f, Truth):
        return replace(out, kind="constant")
    if not isinstance(f, Predicate):
        return out
    out = replace(out, unit=_unit(f))
    if step.sample >= values.count:
        return replace(out, kind="end")
    here = {name: values.used[name][step.sample] for name in _names(f)}
    with np.errstate(all="ignore"):
        left, right = (float(value(side, here, values.arrays)) for side in (f.left, f.right))
    kind = "unknown" if np.isnan(values.margin(f)[step.sample]) else "predicate"
    shown = {n: v.tolist() for n, v in here.items()}
    return replace(out, kind=kind, left=left, right=right, signals=shown)


def _names(predicate: Predicate) -> list[str]:
    found = [*leaves(predicate.left), *leaves(predicate.right)]
    return list(dict.fromkeys(leaf.name for leaf in found if isinstance(leaf, Signal)))


def _how(values: _Values, path: Path, f: Formula, at: int, own: float) -> str:
    """Why the next step decides, by the operator and by whether it holds."""
    true = own > 0
    if own != own:
        return "" if isinstance(f, (Predicate, Truth)) else "this is not known"
    match f:
        case And():
            return "all parts hold, this one by the least" if true else "this part fails by the most"
        case Or() | Implies():
            return "this part holds by the most" if true else "no part holds, this one comes closest"
        case Iff():
            return f"the sides {'agree' if true else 'differ'}, this one is closest to changing that"
        case Not():
            return "the negation of"
        case Next() | Previous():
            word = "next" if isinstance(f, Next) else "previous"
            return f"at the {word} sample" if 0 <= at + (1 if word == "next" else -1) < values.rows else (
                f"there is no {word} sample")
        case Always() | Eventually() | Historically() | Once():
            if (ends := values.window(path, f, at))[0] > ends[1]:
                return "no sample lies in its window"
            if isinstance(f, (Always, Historically)):
                return "holds throughout, here by the least" if true else "fails here by the most"
            return "holds here by the most" if true else "never holds in the window, here it comes closest"
        case Until() | Since():
            return "reached in time; this is closest to failing" if true else "not reached; here it comes closest"
        case Release() | WeakUntil():
            return "kept; this is closest to failing" if true else "given up; this fails"
    return ""


def _part(
    bounds: _Bounds, asked: Mapping[Path, _Ask], deciding: set[Path], path: Path, f: Formula,
    place: tuple[int, int], matters: tuple[int, int] | None,
) -> Part:
    low, high = (b.of(path, f, False) for b in (bounds.low, bounds.high))
    count = bounds.low.count
    verdicts = (low[:count] > 0).astype(np.int8) - (high[:count] < 0).astype(np.int8)
    known = np.where(np.abs(low) == _TINY, 0.0, low)
    known = np.where(low == high, known, nan)[:count]
    if path not in asked:
        return Part(path, to_text(f), place, f, known, verdicts, matters, None, nan, UNDECIDED, False)
    ask = asked[path]
    pair = bounds.at(path, f, ask.negated, ask.sample)
    if ask.negated:
        pair = -pair[1], -pair[0]
    number = _shown(pair[0]) if pair[0] == pair[1] else nan
    return Part(path, to_text(f), place, f, known, verdicts, matters, ask.sample, number, _verdict(*pair),
                path in deciding)


def _matters(formula: Formula, dt: float, count: int, semantics: Semantics) -> list[tuple[int, int] | None]:
    """By sub-formula, in the order of the text: the samples of the trace at which it may have a say."""
    out: list[tuple[int, int] | None] = []
    closed = semantics.until == "closed"

    def walk(f: Formula, first: float, last: float) -> None:
        inside = max(first, 0), min(last, count - 1)
        out.append((int(inside[0]), int(inside[1])) if inside[0] <= inside[1] else None)
        lo, hi = window_steps(f.window, dt) if hasattr(f, "window") else (0, 0)
        end = inf if hi is None else hi
        way = end if closed else end - 1
        match f:
            case Always() | Eventually():
                spans = [(first + lo, last + end)]
            case Historically() | Once():
                spans = [(first - end, last - lo)]
            case Next():
                spans = [(first + 1, last + 1)]
            case Previous():
                spans = [(first - 1, last - 1)]
            case Until() | Release():
                spans = [(first, last + way), (first + lo, last + end)]
            case WeakUntil():
                spans = [(first, last + end), (first + lo, last + end)]
            case Since():
                spans = [(first - way, last), (first - end, last - lo)]
            case _:
                spans = [(first, last)] * len(children(f))
        for child, span in zip(children(f), spans):
            walk(child, *span)

    walk(formula, 0, 0)
    return out


def _clauses(
    bounds: _Bounds, formula: Formula, listed: Mapping[Path, Any], obligations: Sequence[Obligation]
) -> tuple[Clause, ...]:
    rows = []
    for path in _conjuncts((), formula):
        f = listed[path][0]
        low, high = bounds.at(path, f, False, 0)
        decider = _chain(bounds, path, f, False, 0, listed)[1]
        slack = [-inf if o.state == "never" else o.slack_s for o in obligations
                 if o.path[: len(path)] == path and isfinite(o.due_s) and o.state != "open"]
        rows.append(Clause(path, to_text(f), _shown(low) if low == high else nan, _verdict(low, high),
                           decider, min(slack, default=nan)))
    return tuple(rows)


def _conjuncts(path: Path, f: Formula) -> list[Path]:
    """Paths of the top-level conjuncts, as :func:`sim.stl.syntax.clauses` has them."""
    if isinstance(f, And):
        return [p for i, arg in enumerate(f.args) for p in _conjuncts((*path, i), arg)]
    return [path]


def _obligation(bounds: _Bounds, asked: Mapping[Path, _Ask], path: Path, f: Formula) -> Obligation | None:
    """The deadline of ``f`` where the explanation asks for it; None: it has no obligation."""
    ask, values = asked.get(path), bounds.low
    kinds = (Always, Release) if ask is not None and ask.negated else (Eventually, Until)
    if ask is None or ask.sample >= values.count or not isinstance(f, kinds):
        return None
    lo, hi = window_steps(f.window, values.dt)
    goal = values.child(path, f, len(children(f)) - 1, ask.negated)[: values.count] > 0
    first = ask.sample + lo
    until = values.count
    if isinstance(f, (Until, Release)):
        keep = values.child(path, f, 0, ask.negated)[ask.sample : values.count] > 0
        lost = np.flatnonzero(~keep)
        # the last sample at which the goal counts is the one where keep is lost, in the closed semantics the one before
        until = ask.sample + int(lost[0]) + (not values.closed) if len(lost) else values.count
    met = np.flatnonzero(goal[first:until])
    due = inf if hi is None else _time(ask.sample + hi, values.dt)
    met_s = _time(first + int(met[0]), values.dt) if len(met) else nan
    # in samples first, so that a slack of no samples is exactly zero
    slack = nan if not len(met) else inf if hi is None else _time(hi - lo - int(met[0]), values.dt)
    state = "never" if not len(met) else "met" if slack >= 0 else "late"
    if _verdict(*bounds.at(path, f, ask.negated, ask.sample)) == UNDECIDED:
        state, met_s, slack = "open", nan, nan
    covered = hi is None or ask.sample + hi < values.count
    asked_s, opens_s = _time(ask.sample, values.dt), _time(first, values.dt)
    return Obligation(path, to_text(f), asked_s, opens_s, due, met_s, slack, state, covered)


# ---------------------------------------------------------------- units


def unit_of(formula: Formula) -> str:
    """Unit of the robustness of ``formula``, ``""`` where it is unknown, a plain number or not the same everywhere."""
    units = {_unit(predicate) for predicate in _predicates(formula)}
    return units.pop() if len(units) == 1 else ""


def _unit(predicate: Predicate) -> str:
    try:
        unit = common([_expr_unit(predicate.left), _expr_unit(predicate.right)])
    except ValueError:
        return ""
    return "" if unit in (None, NUMBER, ONE) else unit_text(unit)


def _expr_unit(expression: Expr) -> Unit:
    match expression:
        case Signal():
            return parse_unit(expression.unit)
        case Constant(_, name):
            return None if name else NUMBER
        case Component(of, _):
            return _expr_unit(of)
        case Apply(op, args):
            return operation_unit(op, [_expr_unit(a) for a in args])
    raise TypeError(f"not an expression: {expression!r}")


# ---------------------------------------------------------------- words and JSON


def number(x: float, unit: str = "") -> str:
    """``x`` to four digits, with its unit."""
    shown = "unknown" if x != x else "inf" if x == inf else "-inf" if x == -inf else f"{x:.4g}"
    return f"{shown} {unit}" if unit and isfinite(x) else shown


def seconds(x: float) -> str:
    """A time to the microsecond, without trailing zeros."""
    return f"{x:.6f}".rstrip("0").rstrip(".") + " s" if isfinite(x) else f"{number(x)} s"


def operator_text(f: Formula) -> str:
    """The operator of ``f`` alone: ``G[0,10]``, ``and``, ``U[0,2]``; the text of a predicate."""
    names = {Not: "not", And: "and", Or: "or", Implies: "implies", Iff: "iff", Always: "G", Eventually: "F",
             Until: "U", Release: "R", WeakUntil: "W", Historically: "H", Once: "O", Since: "S"}
    if isinstance(f, (Next, Previous)):
        letter = "X" if isinstance(f, Next) else "Y"
        return f"{letter} (strong)" if f.strong else letter
    if type(f) not in names:
        return to_text(f)
    return names[type(f)] + (window_text(f.window) if hasattr(f, "window") else "")


def describe(decider: Decider) -> list[str]:
    """What decided, in one or two lines."""
    where = f"at {seconds(decider.time_s)} (sample {decider.sample})"
    if decider.kind == "constant":
        return [f"{decider.text}, a constant"]
    if decider.kind == "empty":
        return [decider.text, f"asked for {where}: there is no such sample"]
    if decider.kind == "end":
        return [f"{decider.text} {where}", "past the end of the trace"]
    read = ", ".join(f"{name} = {_value_text(v)}" for name, v in decider.signals.items())
    if decider.kind == "unknown":
        lost = any(np.isnan(v).any() for v in decider.signals.values())
        why = "the margin is not a number" if lost else (
            "its arithmetic is undefined there, as the root of a negative number is")
        return [f"{decider.text} {where}", f"{read or 'its value'}: {why}"]
    sides = f"{number(decider.left, decider.unit)} against {number(decider.right, decider.unit)}"
    verb = "holds" if decider.verdict == SATISFIED else "fails"
    return [f"{decider.text} {where}",
            f"{read + ': ' if read else ''}{sides}, {verb} by {number(abs(decider.value), decider.unit)}"]


def describe_obligation(o: Obligation) -> str:
    """How a deadline was kept, in words."""
    due = "without a deadline" if o.due_s == inf else f"due at {seconds(o.due_s)}"
    asked = f"asked for at {seconds(o.asked_s)}, {due}"
    if o.state == "met":
        early = "" if o.due_s == inf else f", {seconds(o.slack_s)} before the deadline"
        return f"{asked}: met at {seconds(o.met_s)}{early}"
    if o.state == "open":
        return f"{asked}: open, not met so far"
    if o.state == "late":
        return f"{asked}: late, met at {seconds(o.met_s)}, {seconds(-o.slack_s)} after the deadline"
    return f"{asked}: never met in the trace{'' if o.covered else ', which ends before the deadline'}"


def note(e: Explanation) -> str:
    """What the reader must know of a trace that ends before the formula's horizon, else ``""``."""
    last = (e.samples - 1) * e.dt
    if not isfinite(e.horizon_s) or last >= e.horizon_s - 1e-6 * e.dt:
        return ""
    taken = {"clip": "windows are cut to the trace", "strong": "what is past its end counts as false",
             "weak": "what is past its end counts as true"}[e.semantics.end]
    taken = "what is past its end is unknown" if e.partial else taken
    return f"the trace ends at {seconds(last)}, the formula looks {seconds(e.horizon_s)} ahead: {taken}"


_SIGN = {SATISFIED: "+", VIOLATED: "-", UNDECIDED: "?"}


def _value_text(v: Any) -> str:
    return f"[{', '.join(map(_value_text, v))}]" if isinstance(v, list) else number(float(v))


def _short(text: str, width: int) -> str:
    """``text`` cut in its middle to at most ``width`` characters."""
    if len(text) <= width:
        return text
    tail = max(0, (width - 5) // 3)
    return f"{text[: width - 5 - tail]} ... {text[len(text) - tail :]}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def _words(e: Explanation, width: int) -> list[str]:
    unit = e.decider.unit
    found = f"robustness {number(e.robustness, unit)}"
    if e.robustness != e.robustness:
        found = f"robustness between {number(e.lower, unit)} and {number(e.upper, unit)}"
    out = [f"{e.verdict}: {found}", *_wrapped(e.formula, width, "  ")]
    if told := note(e):
        out += _wrapped(f"note: {told}", width, "")
    first, *rest = describe(e.decider)
    out += ["", f"{'decided by' if e.verdict != UNDECIDED else 'waits for'}  {first}", *(f"  {line}" for line in rest)]
    out += ["", "why", *_chain_words(e.chain, width)]
    if len(e.clauses) > 1:
        out += ["", "clauses", *(line for clause in e.clauses for line in _clause_words(clause, width))]
    if e.obligations:
        out += ["", "deadlines"]
        for o in e.obligations:
            sign = {"met": "+", "open": "?"}.get(o.state, "-")
            out += [f"  {sign} {_short(o.text, width - 4)}", *_wrapped(describe_obligation(o), width, "      ")]
    return out


def _chain_words(chain: Sequence[Step], width: int) -> list[str]:
    out = []
    for depth, step in enumerate(chain):
        head = f"  {seconds(step.time_s):>10} {_SIGN[step.verdict]} {number(step.value):>9}  {'  ' * depth}"
        out.append(f"{head}{_short(step.text, max(20, width - len(head)))}")
        if step.how:
            out.append(f"{' ' * len(head)}  {step.how}")
    return out


def _clause_words(clause: Clause, width: int) -> list[str]:
    first, *_ = describe(clause.decider)
    head = f"  {_SIGN[clause.verdict]} {number(clause.robustness, clause.decider.unit):>11}  "
    return [head + _short(clause.text, max(20, width - len(head))), f"{' ' * len(head)}  {first}"]


def _data(e: Explanation, series: bool) -> dict[str, Any]:
    out = {
        "formula": e.formula, "dt": e.dt, "samples": e.samples, "horizon_s": e.horizon_s,
        "semantics": {"end": "partial" if e.partial else e.semantics.end, "until": e.semantics.until},
        "robustness": e.robustness, "lower": e.lower, "upper": e.upper, "verdict": e.verdict,
        "decided_by": e.decided_by, "at_s": e.at_s, "note": note(e) or None,
        "decider": _fields(e.decider), "chain": [_fields(s) for s in e.chain],
        "clauses": [{**_fields(c), "decider": _fields(c.decider)} for c in e.clauses],
        "obligations": [_fields(o) for o in e.obligations],
        "parts": [_part_data(p, series) for p in e.parts],
    }
    return {key: _valid(item) for key, item in out.items()}


def _fields(record: Any) -> dict[str, Any]:
    return dict(vars(record))


def _part_data(part: Part, series: bool) -> dict[str, Any]:
    out = {**_fields(part), "formula": type(part.formula).__name__.lower()}
    out["operator"] = out.pop("formula")
    return out if series else {key: item for key, item in out.items() if key not in ("robustness", "verdicts")}


def _valid(item: Any) -> Any:
    """``item`` as JSON can hold it."""
    if isinstance(item, Mapping):
        return {key: _valid(v) for key, v in item.items()}
    if isinstance(item, np.ndarray):
        return _valid(item.tolist())
    if isinstance(item, (list, tuple)):
        return [_valid(v) for v in item]
    if isinstance(item, float) and not isfinite(item):
        return None if item != item else "inf" if item > 0 else "-inf"
    return item
