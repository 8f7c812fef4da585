"""A mission as timed subgoals to hit and invariants to keep.

A *grounding* picks a time for each subgoal, inside its window. The robustness of the formula at time 0 is the
largest value over all groundings of the smallest margin over everything a grounding asks for: each subgoal's
predicate over its hold, and each invariant over its interval. This is exact because a maximum under no minimum over
time (no ``F`` under ``G``) can be moved to the front. What has no such form raises :class:`NotDecomposable`.

=========================  ============================================================================
``F[a,b] p``               subgoal p in [a, b]
``F[a,b] (p & F[c,d] q)``  subgoal p in [a, b], subgoal q in [c, d] after it; nested to any depth
``F[a,b] G[c,d] p``        subgoal p in [a+c, b+c], held for d - c
``F[a,b] (p & G[c,d] q)``  subgoal p in [a, b], invariant q in [c, d] after it
``G[a,b] p``               invariant p in [a, b]; p any formula without temporal operators
``p U[a,b] q``             subgoal q in [a, b], invariant p from the start to the sample before the hit
=========================  ============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf

from sim.stl.syntax import (
    Always,
    And,
    Eventually,
    Formula,
    FormulaError,
    Implies,
    Not,
    Or,
    Until,
    Window,
    is_temporal,
    to_text,
    window_text,
)
from sim.stl.windows import window_steps


class NotDecomposable(FormulaError):
    """The formula has no finite decomposition here; the message names the sub-formula and the reason."""

    def __init__(self, reason: str, formula: Formula) -> None:
        super().__init__(f"not decomposable: {to_text(formula)}: {reason}")
        self.formula, self.reason = formula, reason


@dataclass(frozen=True)
class Subgoal:
    """Hit at a time inside ``window``: ``predicate`` from then on for ``hold`` seconds.

    Args:
        index: position in the decomposition.
        predicate: a formula without temporal operators.
        window: (earliest, latest) hit time, s, closed; counted from the hit of subgoal ``after``, from 0 if None.
        after: an index below ``index``.
        hold: s.
    """

    index: int
    predicate: Formula
    window: tuple[float, float]
    after: int | None = None
    hold: float = 0.0


@dataclass(frozen=True)
class Invariant:
    """Keep ``predicate`` in [lo, hi] seconds (closed), counted from the hit of subgoal ``after``, from 0 if None.

    With ``until`` it ends one sample before the hit of that subgoal, whose latest time ``hi`` + one sample is.
    """

    predicate: Formula
    lo: float
    hi: float
    after: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class Decomposition:
    """Everything that a grounding asks for, subgoals in an order in which each comes behind the one it counts from."""

    subgoals: tuple[Subgoal, ...] = ()
    invariants: tuple[Invariant, ...] = ()


def decompose(formula: Formula, dt: float) -> Decomposition:
    """The decomposition of ``formula`` at time 0, on samples each ``dt`` seconds; windows are multiples of ``dt``."""
    subgoals: list[Subgoal] = []
    invariants: list[Invariant] = []
    _require(_inward(formula), 0.0, None, dt, subgoals, invariants)
    return Decomposition(tuple(subgoals), tuple(invariants))


def _require(
    formula: Formula, offset: float, after: int | None, dt: float, subgoals: list[Subgoal], invariants: list[Invariant]
) -> None:
    """Add what ``formula`` asks for at ``offset`` seconds behind the hit of subgoal ``after``."""
    for part in _conjuncts(formula):
        if not is_temporal(part):
            invariants.append(Invariant(part, offset, offset, after))
            continue
        match part:
            case Always(arg, window):
                for kept, lo, hi in _kept(arg, *_bounded(part, window, dt), dt):
                    invariants.append(Invariant(kept, _time(offset + lo), _time(offset + hi), after))
            case Eventually():
                _hit(part, offset, after, dt, subgoals, invariants)
            case Until(left, right, window):
                lo, hi = _bounded(part, window, dt)
                if is_temporal(left):
                    raise NotDecomposable("the left side of U must be free of temporal operators", part)
                index = len(subgoals)
                _hit(Eventually(right, window), offset, after, dt, subgoals, invariants)
                if hi > 0:
                    invariants.append(Invariant(left, offset, _time(offset + hi - dt), after, until=index))
            case Or() | Implies():
                raise NotDecomposable("a disjunction of temporal formulas has several decompositions", part)
            case Not():
                raise NotDecomposable("the negation of an until asks for a release", part)
            case _:
                raise NotDecomposable("no rule for this operator over temporal formulas", part)


def _hit(
    formula: Eventually, offset: float, after: int | None, dt: float, subgoals: list[Subgoal],
    invariants: list[Invariant],
) -> None:
    """Add the subgoal that ``formula`` asks for, and what its body asks for behind the hit."""
    lo, hi = _bounded(formula, formula.window, dt)
    parts = _conjuncts(formula.arg)
    if len(parts) == 1 and isinstance(parts[0], Eventually):
        # a time in [a, b] and then one in [c, d] behind it is one time in [a+c, b+d]
        first, last = _bounded(parts[0], parts[0].window, dt)
        sooner = Eventually(parts[0].arg, Window(_time(lo + first), _time(hi + last)))
        return _hit(sooner, offset, after, dt, subgoals, invariants)
    now = [p for p in parts if not is_temporal(p)]
    later = [flat for p in parts if is_temporal(p) for flat in _flat(p, dt)]
    hold = 0.0
    if not now:
        # nothing is asked for at the hit itself: move the hit to where the first part begins, and hold from there
        shift = min(_begin(p, dt) for p in later)
        later = [_earlier(p, shift) for p in later]
        lo, hi = lo + shift, hi + shift
        held = next((p for p in later if isinstance(p, Always) and p.window.lo == 0), None)
        if held is None:
            raise NotDecomposable("F over temporal formulas of which none must hold from the hit on", formula)
        later.remove(held)
        now, hold = [held.arg], _bounded(held, held.window, dt)[1]
    index = len(subgoals)
    predicate = now[0] if len(now) == 1 else And(tuple(now))
    subgoals.append(Subgoal(index, predicate, (_time(offset + lo), _time(offset + hi)), after, hold))
    for part in later:
        _require(part, 0.0, index, dt, subgoals, invariants)


def _kept(formula: Formula, lo: float, hi: float, dt: float) -> list[tuple[Formula, float, float]]:
    """What ``G[lo,hi] formula`` keeps, as (state formula, first, last)."""
    if not is_temporal(formula):
        return [(formula, lo, hi)]
    out = []
    for part in _conjuncts(formula):
        if not is_temporal(part):
            out.append((part, lo, hi))
        elif isinstance(part, Always):
            first, last = _bounded(part, part.window, dt)
            out += _kept(part.arg, lo + first, hi + last, dt)
        else:
            above = window_text(Window(lo, hi))
            raise NotDecomposable(f"it stands under G{above}, and each sample would ask for its own choice", part)
    return out


def _flat(formula: Formula, dt: float) -> list[Formula]:
    """``formula``, or where it is a ``G`` the ``G`` over state formulas that it is the conjunction of."""
    if not isinstance(formula, Always):
        return [formula]
    kept = _kept(formula.arg, *_bounded(formula, formula.window, dt), dt)
    return [Always(state, Window(_time(lo), _time(hi))) for state, lo, hi in kept]


def _conjuncts(formula: Formula) -> list[Formula]:
    """Parts of a conjunction; one part if it is a state formula, so that a predicate stays as it was written."""
    if isinstance(formula, And) and is_temporal(formula):
        temporal = [p for p in formula.args if is_temporal(p)]
        state = [p for p in formula.args if not is_temporal(p)]
        whole: list[Formula] = [state[0] if len(state) == 1 else And(tuple(state))] if state else []
        return whole + [part for p in temporal for part in _conjuncts(p)]
    return [formula]


def _begin(formula: Formula, dt: float) -> float:
    """Seconds by which the first thing that a temporal formula asks for lies behind now."""
    match formula:
        case Always(_, window) | Eventually(_, window):
            return _bounded(formula, window, dt)[0]
    return 0.0


def _earlier(formula: Formula, by: float) -> Formula:
    """``formula`` as seen from ``by`` seconds later: its window moved towards now."""
    if by and isinstance(formula, (Always, Eventually)):
        return replace(formula, window=Window(_time(formula.window.lo - by), _time(formula.window.hi - by)))
    return formula


def _bounded(formula: Formula, window: Window, dt: float) -> tuple[float, float]:
    if isinf(window.hi):
        raise NotDecomposable("its window has no end; give it one in seconds", formula)
    window_steps(window, dt)
    return window.lo, window.hi


def _time(seconds: float) -> float:
    """Sums of decimal fractions without their rounding noise: 0.1 + 0.2 -> 0.3."""
    return round(seconds, 9)


def _inward(formula: Formula, negated: bool = False) -> Formula:
    """An equal formula in which no negation stands over a temporal operator but over ``U``."""
    if not is_temporal(formula):
        return Not(formula) if negated else formula
    match formula:
        case Not(arg):
            return _inward(arg, not negated)
        case And(args):
            parts = tuple(_inward(a, negated) for a in args)
            return Or(parts) if negated else And(parts)
        case Or(args):
            parts = tuple(_inward(a, negated) for a in args)
            return And(parts) if negated else Or(parts)
        case Implies(left, right):
            return _inward(Or((Not(left), right)), negated)
        case Always(arg, window):
            return Eventually(_inward(arg, True), window) if negated else Always(_inward(arg), window)
        case Eventually(arg, window):
            return Always(_inward(arg, True), window) if negated else Eventually(_inward(arg), window)
        case Until(left, right, window):
            inside = Until(_inward(left), _inward(right), window)
            return Not(inside) if negated else inside
    return Not(formula) if negated else formula
