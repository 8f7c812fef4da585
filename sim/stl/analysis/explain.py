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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.deciding import Ask, Bounds, Numbers, Path, Values, bounds_of
from temporeal.sim.stl.analysis.wording import data, words
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import (
    And,
    Apply,
    Component,
    Constant,
    Expr,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    to_text,
)
from temporeal.sim.stl.language.queries import children, horizon, leaves, predicates_in, signals_in
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
from temporeal.sim.stl.language.units import NUMBER, ONE, Unit, common, operation_unit, parse_unit, unit_text
from temporeal.sim.stl.language.values import check_shape, required, value
from temporeal.sim.stl.semantics.verdicts import SATISFIED, TINY, UNDECIDED, VIOLATED, verdict_of


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
        return "\n".join(words(self, width))

    def to_json(self, series: bool = False) -> dict[str, Any]:
        """JSON data without NaN: unknown is ``null``, infinite is ``"inf"`` or ``"-inf"``.

        ``series`` adds the robustness of every part at every sample.
        """
        return data(self, series)


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
    bounds = bounds_of(formula, used, count, dt, semantics, partial)
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
        _shown(high), verdict_of(low, high), chain, decider, clauses, obligations, parts)


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


def _time(samples: int, dt: float) -> float:
    """Seconds: 0.3, not the 0.30000000000000004 of 3 times 0.1."""
    return round(samples * dt, 12)


def _shown(x: float) -> float:
    return 0.0 if abs(x) == TINY else float(x)


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
    bounds: Bounds, path: Path, f: Formula, negated: bool, at: int, listed: Mapping[Path, Any]
) -> tuple[tuple[Step, ...], Decider]:
    """The steps from the sub-formula at ``path`` down to what decides it at sample ``at``."""
    steps: list[Step] = []
    while True:
        choice, verdict = bounds.choice(path, f, negated, at), verdict_of(*bounds.at(path, f, negated, at))
        # of a verdict that is certain the bound that proves it
        signed = {SATISFIED: bounds.low, VIOLATED: bounds.high}.get(verdict)
        own = nan if signed is None else float(signed.of(path, f, negated)[at]) * (-1 if negated else 1)
        time_s, how = _time(at, bounds.low.dt), _how(bounds.low, path, f, at, own)
        step = Step(path, to_text(f), listed[path][1], negated, at, time_s, _shown(own), verdict_of(own, own), how)
        steps.append(step)
        if choice.deciding is None:
            return tuple(steps), _decider(bounds.low, step, f)
        ask = choice.asks[choice.deciding]
        path, f, negated, at = (*path, ask.index), children(f)[ask.index], ask.negated, ask.sample


def _decider(values: Values, step: Step, f: Formula) -> Decider:
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


def _how(values: Values, path: Path, f: Formula, at: int, own: float) -> str:
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
    bounds: Bounds, asked: Mapping[Path, Ask], deciding: set[Path], path: Path, f: Formula,
    place: tuple[int, int], matters: tuple[int, int] | None,
) -> Part:
    low, high = (b.of(path, f, False) for b in (bounds.low, bounds.high))
    count = bounds.low.count
    verdicts = (low[:count] > 0).astype(np.int8) - (high[:count] < 0).astype(np.int8)
    known = np.where(np.abs(low) == TINY, 0.0, low)
    known = np.where(low == high, known, nan)[:count]
    if path not in asked:
        return Part(path, to_text(f), place, f, known, verdicts, matters, None, nan, UNDECIDED, False)
    ask = asked[path]
    pair = bounds.at(path, f, ask.negated, ask.sample)
    if ask.negated:
        pair = -pair[1], -pair[0]
    number = _shown(pair[0]) if pair[0] == pair[1] else nan
    return Part(path, to_text(f), place, f, known, verdicts, matters, ask.sample, number, verdict_of(*pair),
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
    bounds: Bounds, formula: Formula, listed: Mapping[Path, Any], obligations: Sequence[Obligation]
) -> tuple[Clause, ...]:
    rows = []
    for path in _conjuncts((), formula):
        f = listed[path][0]
        low, high = bounds.at(path, f, False, 0)
        decider = _chain(bounds, path, f, False, 0, listed)[1]
        slack = [-inf if o.state == "never" else o.slack_s for o in obligations
                 if o.path[: len(path)] == path and isfinite(o.due_s) and o.state != "open"]
        rows.append(Clause(path, to_text(f), _shown(low) if low == high else nan, verdict_of(low, high),
                           decider, min(slack, default=nan)))
    return tuple(rows)


def _conjuncts(path: Path, f: Formula) -> list[Path]:
    """Paths of the top-level conjuncts, as :func:`temporeal.sim.stl.language.queries.clauses` has them."""
    if isinstance(f, And):
        return [p for i, arg in enumerate(f.args) for p in _conjuncts((*path, i), arg)]
    return [path]


def _obligation(bounds: Bounds, asked: Mapping[Path, Ask], path: Path, f: Formula) -> Obligation | None:
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
    if verdict_of(*bounds.at(path, f, ask.negated, ask.sample)) == UNDECIDED:
        state, met_s, slack = "open", nan, nan
    covered = hi is None or ask.sample + hi < values.count
    asked_s, opens_s = _time(ask.sample, values.dt), _time(first, values.dt)
    return Obligation(path, to_text(f), asked_s, opens_s, due, met_s, slack, state, covered)


# ---------------------------------------------------------------- units


def unit_of(formula: Formula) -> str:
    """Unit of the robustness of ``formula``, ``""`` where it is unknown, a plain number or not the same everywhere."""
    units = {_unit(predicate) for predicate in predicates_in(formula)}
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
