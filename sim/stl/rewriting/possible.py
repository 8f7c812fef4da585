"""What can hold by more than 0 at all, as far as the form tells: of states, formulas without temporal operators.

A state is *impossible* if its margin is never above 0: ``norm(p) < 0``, ``x == 1``, ``x > 0 & x <= 0``. Two states
*exclude* each other if their margins are never above 0 both: ``x > 0`` and ``x <= 0``. At 0 the comparison decides, so
that ``x == 1`` may be satisfied; but no strategy has any room there.
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
from temporeal.sim.stl.planning.simplify import entails
from temporeal.sim.stl.rewriting.normal import FALSE, all_of, any_of, positive
from temporeal.sim.stl.rewriting.ranges import greatest


def impossible(state: Formula) -> bool:
    """Whether ``state``, in positive normal form, never holds by more than 0."""
    return greatest(state) <= 0.0 or (isinstance(state, And) and bool(excluding(state.args)))


def excluding(states: Iterable[Formula]) -> dict[Formula, set[Formula]]:
    """For each of ``states``, in positive normal form, that excludes another one, those: it entails their negation."""
    opposite, out = {state: positive(Not(state)) for state in states}, dict[Formula, set[Formula]]()
    for one, other in combinations(opposite, 2):
        if entails(one, opposite[other]) or entails(other, opposite[one]):
            out.setdefault(one, set()).add(other)
            out.setdefault(other, set()).add(one)
    return out


def possible(formula: Formula, origins: dict[Formula, Formula]) -> tuple[Formula, tuple[Formula, ...]]:
    """``formula``, in positive normal form, with ``false`` in the place of its impossible states, and these.

    Its robustness stays as it is where that is positive, and stays not positive elsewhere. ``origins``
    (:func:`temporeal.sim.stl.rewriting.normal.positive`) is filled for what is made.
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


def hopeless(f: Formula) -> bool:
    """Whether ``f``, as :func:`possible` makes it, never holds by more than 0, as far as its form tells."""
    match f:
        case And(args):
            return any(map(hopeless, args))
        case Or(args):
            return all(map(hopeless, args))
        case Always(arg) | Eventually(arg) | Next(arg):
            return hopeless(arg)
        case Until(left, right, window):
            return hopeless(right) or (window.lo > 0 and hopeless(left))
        case Release(left, right, window):
            return hopeless(right) and (window.lo == 0 or hopeless(left))
        case WeakUntil(left, right):
            return hopeless(left) and hopeless(right)
    return f == FALSE


def _state(f: Formula, found: dict[Formula, None]) -> Formula:
    """``f``, or ``false`` where it is impossible, which is then entered in ``found``: by the parts that make it so."""
    if f == FALSE or not impossible(f):
        return f
    parts = [part for part in (f.args if isinstance(f, And) else ()) if impossible(part) and part != FALSE]
    found.update(dict.fromkeys(parts or [f]))
    return FALSE


def _with(f: Formula, of: Callable[[Formula], Formula]) -> Formula:
    """``f`` with its parts as ``of`` makes them."""
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
    return f  # a negated since: what is impossible always holds under the negation
