"""Why a formula holds or fails on one trace: its critical predicate, the sample, and the margin. numpy only.

Robustness consists of minima and maxima, so that one value of one predicate at one sample *is* the robustness (up to
the sign that negations give it). :func:`explain` walks from the formula down to it and keeps every step: the *chain*.
Of equal values the first part and the earliest sample is taken.

What is unknown (a NaN margin; with ``partial`` also every sample past the end) is bounded by two evaluations, as false
and as true. If they agree, the value is known; if they differ, the robustness is NaN, and there is still a verdict if
both bounds have one sign.

Deadline slack. An *obligation* is an ``F[a,b] p`` or ``p U[a,b] q`` that must become true, or (under a negation) a
``G`` or ``R`` that must become false. Evaluated at time t0, it is *met* at the first sample s >= t0 + a of the trace at
which its goal is true (and p at every sample from t0 to the one before s, in the closed semantics also at s). Its
deadline is t0 + b and its slack (t0 + b) - s seconds: positive if it was met early, negative if late. It is true at t0
if and only if the slack is at least zero. ``never`` means that the trace has no such sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.critical import Bounds, Operand, bounds_of
from temporeal.sim.stl.analysis.explanation import Clause, CriticalPredicate, Explanation, Obligation, Part, Step
from temporeal.sim.stl.analysis.robustness_unit import predicate_unit
from temporeal.sim.stl.analysis.valuation import Path, Values
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import (
    And,
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
from temporeal.sim.stl.language.queries import children, horizon, leaves, signals_in
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
from temporeal.sim.stl.language.values import check_shape, required, value
from temporeal.sim.stl.semantics.verdicts import SATISFIED, TINY, UNDECIDED, VIOLATED, shown, verdict_of


def explain(
    formula: Formula, signals: Mapping[str, Any], dt: float, semantics: Semantics = RTAMT, partial: bool = False
) -> Explanation:
    """Explain the verdict of ``formula`` at the first sample of one trace, ``signals`` [T, *shape] every ``dt`` s.

    ``partial`` takes the trace as the beginning of a longer one: the verdict is undecided unless it is the same for
    every continuation (``semantics.end`` is then unused). A NaN makes only what depends on it unknown. Raises
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
        text, dt, count, horizon(formula, dt), semantics, partial, shown(low) if low == high else nan, shown(low),
        shown(high), verdict_of(low, high), chain, decider, clauses, obligations, parts)


def _trace(formula: Formula, signals: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int]:
    """The signals that the formula reads, and the number of samples."""
    names = signals_in(formula)
    given = {n: np.asarray(v) for n, v in (required(names, signals) if names else signals).items()}
    for name, array in given.items():
        if array.dtype.kind not in "fiub":
            raise SignalError(f"signal {name!r} is of type {array.dtype}: real numbers are needed")
    # in the type that `robustness` and `satisfied` use: a constant differs between float32 and float64
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
    """``samples`` in seconds, rounded: 0.3 and not 3 * 0.1 = 0.30000000000000004."""
    return round(samples * dt, 12)


def _listed(formula: Formula) -> dict[Path, tuple[Formula, tuple[int, int]]]:
    """Every sub-formula in the order of the text, with its place in it."""
    text = to_text(formula)
    out: dict[Path, tuple[Formula, tuple[int, int]]] = {}

    def walk(path: Path, f: Formula, start: int, end: int) -> None:
        out[path] = f, (start, end)
        for i, child in enumerate(children(f)):
            own = to_text(child)
            start = text.index(own, start, end)  # only operators are before it
            walk((*path, i), child, start, start + len(own))
            start += len(own)

    walk((), formula, 0, len(text))
    return out


def _chain(
    bounds: Bounds, path: Path, f: Formula, negated: bool, at: int, listed: Mapping[Path, Any]
) -> tuple[tuple[Step, ...], CriticalPredicate]:
    """The steps from the sub-formula at ``path`` at sample ``at`` down to its critical predicate."""
    steps: list[Step] = []
    while True:
        found, verdict = bounds.operands(path, f, negated, at), verdict_of(*bounds.at(path, f, negated, at))
        # of a certain verdict, the bound that proves it
        signed = {SATISFIED: bounds.low, VIOLATED: bounds.high}.get(verdict)
        own = nan if signed is None else float(signed.of(path, f, negated)[at]) * (-1 if negated else 1)
        time_s, how = _time(at, bounds.low.dt), _how(bounds.low, path, f, at, own)
        step = Step(path, to_text(f), listed[path][1], negated, at, time_s, shown(own), verdict_of(own, own), how)
        steps.append(step)
        if found.critical is None:
            return tuple(steps), _critical_predicate(bounds.low, step, f)
        ask = found.operands[found.critical]
        path, f, negated, at = (*path, ask.index), children(f)[ask.index], ask.negated, ask.sample


def _critical_predicate(values: Values, step: Step, f: Formula) -> CriticalPredicate:
    out = CriticalPredicate("empty", step.text, step.path, step.sample, step.time_s, step.value, step.verdict)
    if isinstance(f, Truth):
        return replace(out, kind="constant")
    if not isinstance(f, Predicate):
        return out
    out = replace(out, unit=predicate_unit(f))
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
    """Why the next step is critical, by the operator and its truth."""
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
    bounds: Bounds, asked: Mapping[Path, Operand], deciding: set[Path], path: Path, f: Formula,
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
    number = shown(pair[0]) if pair[0] == pair[1] else nan
    return Part(path, to_text(f), place, f, known, verdicts, matters, ask.sample, number, verdict_of(*pair),
                path in deciding)


def _matters(formula: Formula, dt: float, count: int, semantics: Semantics) -> list[tuple[int, int] | None]:
    """By sub-formula, in the order of the text: the samples of the trace at which it may matter."""
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
        rows.append(Clause(path, to_text(f), shown(low) if low == high else nan, verdict_of(low, high),
                           decider, min(slack, default=nan)))
    return tuple(rows)


def _conjuncts(path: Path, f: Formula) -> list[Path]:
    """Paths of the top-level conjuncts, in the order of `queries.clauses`."""
    if isinstance(f, And):
        return [p for i, arg in enumerate(f.args) for p in _conjuncts((*path, i), arg)]
    return [path]


def _obligation(bounds: Bounds, asked: Mapping[Path, Operand], path: Path, f: Formula) -> Obligation | None:
    """The deadline of ``f`` at the sample where it matters; None: it has no obligation there."""
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
        # the last sample at which the goal counts: where keep is lost, in the closed semantics the one before
        until = ask.sample + int(lost[0]) + (not values.closed) if len(lost) else values.count
    met = np.flatnonzero(goal[first:until])
    due = inf if hi is None else _time(ask.sample + hi, values.dt)
    met_s = _time(first + int(met[0]), values.dt) if len(met) else nan
    # in samples first, so that a slack of zero samples is exactly zero
    slack = nan if not len(met) else inf if hi is None else _time(hi - lo - int(met[0]), values.dt)
    state = "never" if not len(met) else "met" if slack >= 0 else "late"
    if verdict_of(*bounds.at(path, f, ask.negated, ask.sample)) == UNDECIDED:
        state, met_s, slack = "open", nan, nan
    covered = hi is None or ask.sample + hi < values.count
    asked_s, opens_s = _time(ask.sample, values.dt), _time(first, values.dt)
    return Obligation(path, to_text(f), asked_s, opens_s, due, met_s, slack, state, covered)
