"""Positive normal form: an equivalent formula of conjunctions, disjunctions and temporal operators, without negations.

Equivalent means the same robustness and the same truth on every trace. Negations are pushed to the predicates, whose
comparisons they reverse (``!(x > 0)`` is ``x <= 0``, with the same margin). ``F true`` and ``G false`` stay: on a trace
shorter than their window they are not constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from temporeal.sim.stl.language.conventions import Left
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, Predicate, Truth, to_text
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
    Window,
)

TRUE, FALSE = Truth(True), Truth(False)
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
EXPANDED = 20_000
"""Operators and predicates that the normal form may have more than the formula."""


class NotDecomposable(FormulaError):
    """The formula has no finite decomposition into timed subgoals; the message names the sub-formula and the reason."""

    def __init__(self, reason: str, formula: Formula) -> None:
        super().__init__(f"not decomposable: {to_text(formula)}: {reason}")
        self.formula, self.reason = formula, reason


@dataclass(frozen=True)
class _How:
    closed: bool
    origins: dict[Formula, Formula] = field(default_factory=dict)

    def note(self, made: Formula, f: Formula, negated: bool) -> Formula:
        self.origins.setdefault(made, Not(f) if negated else f)
        return made


def positive(
    formula: Formula, until: Left = "half-open", origins: dict[Formula, Formula] | None = None
) -> Formula:
    """The positive normal form.

    ``until`` is the convention for until, release and since in ``formula``; in the result they are half-open. A negated
    since stays: the language has no operator for its dual. ``origins`` is filled with the sub-formula, or the negation
    of one, that each part of the result comes from. Raises :class:`NotDecomposable` if the result would have more than
    :data:`EXPANDED` operators more than ``formula``, before it is made.
    """
    how = _How(until == "closed", {} if origins is None else origins)
    _sizes(formula, False, how.closed, {})
    return how.note(_positive(formula, False, False, how), formula, False)


def _sizes(f: Formula, negated: bool, closed: bool, known: dict[tuple[int, bool], tuple[int, int]]) -> tuple[int, int]:
    """Operators and predicates of ``f`` and of its normal form without folding."""
    if (id(f), negated) in known:
        return known[id(f), negated]
    match f:
        case Iff(left, right):
            parts = [(left, False), (right, False), (left, True), (right, True)]
        case Not(arg):
            parts = [(arg, not negated)]
        case Implies(left, right):
            parts = [(left, not negated), (right, negated)]
        case Since(left, right):
            parts = [(left, False), (right, False), *[(left, False)] * closed]
        case Until(left, right) | Release(left, right) | WeakUntil(left, right):
            again = closed + (negated and isinstance(f, WeakUntil))
            parts = [(left, negated), (right, negated), *[(left, negated)] * again]
        case _:
            parts = [(child, negated) for child in children(f)]
    sizes = [_sizes(part, wrong, closed, known) for part, wrong in parts]
    written, made = 1 + sum(own for own, _ in sizes[: len(children(f))]), 1 + sum(of for _, of in sizes)
    if made - written > EXPANDED:
        raise NotDecomposable(
            f"its normal form would have {made:,} operators and predicates; at most {EXPANDED:,} more than the formula "
            "has are made: each <-> doubles its two sides, and a closed until its left side", f)
    known[id(f), negated] = written, made
    return written, made


def _positive(f: Formula, negated: bool, under_always: bool, how: _How) -> Formula:
    def of(g: Formula, also: bool = False, under: bool = under_always) -> Formula:
        return how.note(_positive(g, negated != also, under, how), g, negated != also)

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
            return _iff(left, right, negated, under_always, how)
        case Next(arg, strong) | Previous(arg, strong):
            return type(f)(of(arg), strong != negated)
        case Always(arg, window) | Historically(arg, window) | Eventually(arg, window) | Once(arg, window):
            always = isinstance(f, (Always, Historically)) != negated
            return _windowed(always, of(arg, under=always), window, isinstance(f, (Historically, Once)))
        case Since(left, right, window):
            inside = [how.note(_positive(g, False, True, how), g, False) for g in (left, right)]
            since = Since(inside[0], all_of(inside[::-1]) if how.closed else inside[1], window)
            return Not(since) if negated else since
        case Until(left, right, window) | Release(left, right, window) | WeakUntil(left, right, window):
            release = isinstance(f, Release) != negated
            parts = of(left, under=under_always or not release), of(right, under=under_always or release)
            return _until(f, *parts, window, release, how.closed)
    raise TypeError(f"not a formula: {f!r}")


def _until(
    f: Until | Release | WeakUntil, left: Formula, right: Formula, window: Window, dual: bool, closed: bool
) -> Formula:
    """``f``, or its negation, over sides in normal form that are negated with it; ``dual``: it becomes a release."""
    if not dual:
        reached = all_of([right, left]) if closed else right
        return WeakUntil(left, reached, window) if isinstance(f, WeakUntil) else Until(left, reached, window)
    release = Release(left, any_of([right, left]) if closed else right, window)
    if isinstance(f, WeakUntil):  # the negation of an until or an always
        return all_of([release, Eventually(left, Window(0.0, window.hi))])
    return release


def _iff(left: Formula, right: Formula, negated: bool, under_always: bool, how: _How) -> Formula:
    """Under an always two implications, which are two clauses; elsewhere two cases.

    The robustness is the same: in a Kleene algebra min(a, -a) <= max(b, -b), so that the terms in which the two forms
    differ never decide.
    """
    def of(f: Formula, negate: bool) -> Formula:
        return how.note(_positive(f, negate, under_always, how), f, negate)

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
