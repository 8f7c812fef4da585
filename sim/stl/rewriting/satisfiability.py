"""States that can never hold by more than 0, as far as their form shows it. A state has no temporal operators.

A state is *unsatisfiable* here if its margin is never above 0: ``norm(p) < 0``, ``x == 1``, ``x > 0 & x <= 0``. Two are
*mutually exclusive* if never both margins are above 0: ``x > 0`` and ``x <= 0``. At 0 the comparison decides, so that
``x == 1`` may still be true; but nothing can aim at it with a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations

from temporeal.sim.stl.language.propositional import And, Formula, Not, Or
from temporeal.sim.stl.language.queries import is_temporal
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
from temporeal.sim.stl.rewriting.entailment import entails
from temporeal.sim.stl.rewriting.normal import FALSE, all_of, any_of, positive
from temporeal.sim.stl.rewriting.ranges import margin_upper_bound


def unsatisfiable(state: Formula) -> bool:
    """Whether ``state``, in positive normal form, never holds by more than 0."""
    return margin_upper_bound(state) <= 0.0 or (isinstance(state, And) and bool(mutually_exclusive(state.args)))


def mutually_exclusive(states: Iterable[Formula]) -> dict[Formula, set[Formula]]:
    """For each of ``states``, in positive normal form, those that exclude it; states without any are left out.

    Two exclude each other if one entails the negation of the other.
    """
    opposite, out = {state: positive(Not(state)) for state in states}, dict[Formula, set[Formula]]()
    for one, other in combinations(opposite, 2):
        if entails(one, opposite[other]) or entails(other, opposite[one]):
            out.setdefault(one, set()).add(other)
            out.setdefault(other, set()).add(one)
    return out


def without_unsatisfiable(formula: Formula, origins: dict[Formula, Formula]) -> tuple[Formula, tuple[Formula, ...]]:
    """``formula``, in positive normal form, with ``false`` in place of its unsatisfiable states, and these states.

    Where its robustness is positive it keeps its value; elsewhere it stays not positive. ``origins``, as of
    `normal.positive`, is filled for the new sub-formulas.
    """
    found: dict[Formula, None] = {}

    def of(f: Formula) -> Formula:
        if not is_temporal(f):
            return _state(f, found)
        made = _with(f, of)
        if f in origins:
            origins.setdefault(made, origins[f])
        return made

    return of(formula), tuple(found)


def never_positive(f: Formula) -> bool:
    """Whether the form of ``f``, made by :func:`without_unsatisfiable`, shows that it never holds by more than 0."""
    match f:
        case And(args):
            return any(map(never_positive, args))
        case Or(args):
            return all(map(never_positive, args))
        case Always(arg) | Eventually(arg) | Next(arg):
            return never_positive(arg)
        case Until(left, right, window):
            return never_positive(right) or (window.lo > 0 and never_positive(left))
        case Release(left, right, window):
            return never_positive(right) and (window.lo == 0 or never_positive(left))
        case WeakUntil(left, right):
            return never_positive(left) and never_positive(right)
    return f == FALSE


def _state(f: Formula, found: dict[Formula, None]) -> Formula:
    """``f``, or ``false`` if it is unsatisfiable; ``found`` gets the conjuncts that are so, or else ``f``."""
    if f == FALSE or not unsatisfiable(f):
        return f
    parts = [part for part in (f.args if isinstance(f, And) else ()) if unsatisfiable(part) and part != FALSE]
    found.update(dict.fromkeys(parts or [f]))
    return FALSE


def _with(f: Formula, of: Callable[[Formula], Formula]) -> Formula:
    """``f`` with ``of`` applied to its sub-formulas."""
    match f:
        case And(args):
            parts = [of(arg) for arg in args]
            state = all_of(part for part in parts if not is_temporal(part))
            return f if parts == [*args] and of(state) == state else all_of([of(state), *parts])
        case Or(args):
            parts = [of(arg) for arg in args]
            return f if parts == [*args] else any_of(parts)
        case Eventually(arg) | Once(arg):
            made = of(arg)
            return FALSE if made == FALSE else replace(f, arg=made)
        case Until(left, right) | Since(left, right):
            made = of(right)
            return FALSE if made == FALSE else replace(f, left=of(left), right=made)
        case Release(left, right) | WeakUntil(left, right):
            return replace(f, left=of(left), right=of(right))
        case Always(arg) | Historically(arg) | Next(arg) | Previous(arg):
            return replace(f, arg=of(arg))
    return f  # a negated since: an unsatisfiable state makes it true
