"""Positive normal form: an equal formula whose operators are And, Or and those of time, with no negation left.

Equal means the same robustness and the same truth on every trace. Negations end at the predicates, whose comparison
they turn round (``!(x > 0)`` is ``x <= 0``, with the same margin). ``F true`` and ``G false`` stay: on a trace that is
shorter than their window they are not constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sim.stl.lower import Left
from sim.stl.syntax import (
    Always,
    And,
    Eventually,
    Formula,
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
    Since,
    Truth,
    Until,
    WeakUntil,
    Window,
)

TRUE, FALSE = Truth(True), Truth(False)
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def positive(formula: Formula, until: Left = "half-open") -> Formula:
    """The positive normal form. ``until`` says what until, release and since mean in ``formula``; in the result they
    are half-open. Only a negated since stays as it is: the syntax has no operator for its dual."""
    return _positive(formula, False, False, until == "closed")


def _positive(f: Formula, negated: bool, under_always: bool, closed: bool) -> Formula:
    def of(g: Formula, also: bool = False, under: bool = under_always) -> Formula:
        return _positive(g, negated != also, under, closed)

    match f:
        case Predicate(op):
            return replace(f, op=OPPOSITE[op]) if negated else f
        case Truth(value):
            return Truth(value != negated)
        case Not(arg):
            return of(arg, True)
        case And(args):
            return (any_of if negated else all_of)(of(a) for a in args)
        case Or(args):
            return (all_of if negated else any_of)(of(a) for a in args)
        case Implies(left, right):
            return (all_of if negated else any_of)([of(left, True), of(right)])
        case Iff(left, right):
            return _iff(left, right, negated, under_always, closed)
        case Next(arg, strong) | Previous(arg, strong):
            return type(f)(of(arg), strong != negated)
        case Always(arg, window) | Historically(arg, window) | Eventually(arg, window) | Once(arg, window):
            always = isinstance(f, (Always, Historically)) != negated
            return _windowed(always, of(arg, under=always), window, isinstance(f, (Historically, Once)))
        case Since(left, right, window):
            inside = [_positive(g, False, True, closed) for g in (left, right)]
            since = Since(inside[0], all_of(inside[::-1]) if closed else inside[1], window)
            return Not(since) if negated else since
        case Until(left, right, window) | Release(left, right, window) | WeakUntil(left, right, window):
            release = isinstance(f, Release) != negated
            parts = of(left, under=under_always or not release), of(right, under=under_always or release)
            return _until(f, *parts, window, release, closed)
    raise TypeError(f"not a formula: {f!r}")


def _until(
    f: Until | Release | WeakUntil, left: Formula, right: Formula, window: Window, dual: bool, closed: bool
) -> Formula:
    """What ``f``, or its negation, is of parts in normal form (and negated, where it is): ``dual`` says a release."""
    if not dual:
        reached = all_of([right, left]) if closed else right
        return WeakUntil(left, reached, window) if isinstance(f, WeakUntil) else Until(left, reached, window)
    release = Release(left, any_of([right, left]) if closed else right, window)
    if isinstance(f, WeakUntil):  # the negation of an until or an always
        return all_of([release, Eventually(left, Window(0.0, window.hi))])
    return release


def _iff(left: Formula, right: Formula, negated: bool, under_always: bool, closed: bool) -> Formula:
    """Two implications under an always, which are two clauses; else two cases. The robustness is the same (in a
    Kleene algebra min(a, -a) <= max(b, -b), so the terms by which the two forms differ decide nothing)."""
    def of(f: Formula, negate: bool) -> Formula:
        return _positive(f, negate, under_always, closed)

    if under_always:
        return all_of([any_of([of(left, not negated), of(right, False)]), any_of([of(left, negated), of(right, True)])])
    return any_of([all_of([of(left, False), of(right, negated)]), all_of([of(left, True), of(right, not negated)])])


def _windowed(always: bool, arg: Formula, window: Window, past: bool) -> Formula:
    if arg == Truth(always):
        return arg
    if always:
        return Historically(arg, window) if past else Always(arg, window)
    return Once(arg, window) if past else Eventually(arg, window)


def all_of(parts: Iterable[Formula]) -> Formula:
    """Conjunction: flat, without repetitions, constants folded; ``true`` of none."""
    return _joined(And, parts, TRUE, FALSE)


def any_of(parts: Iterable[Formula]) -> Formula:
    """Disjunction: flat, without repetitions, constants folded; ``false`` of none."""
    return _joined(Or, parts, FALSE, TRUE)


def _joined(kind: type[And] | type[Or], parts: Iterable[Formula], neutral: Truth, decisive: Truth) -> Formula:
    flat: dict[Formula, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.args if isinstance(part, kind) else (part,)))
    flat.pop(neutral, None)
    if decisive in flat:
        return decisive
    return neutral if not flat else next(iter(flat)) if len(flat) == 1 else kind(tuple(flat))
