"""Questions about a formula: its sub-formulas, signals and constants, its depth, horizon and history."""

from __future__ import annotations

from collections.abc import Iterator

from temporeal.sim.stl.language.errors import MAX_DEPTH, MAX_LEVELS, TOO_DEEP, FormulaError
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
    constant_tuple,
    to_text,
)
from temporeal.sim.stl.language.temporal import (
    FUTURE,
    PAST,
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
    WindowedBinary,
    WindowedUnary,
)


def require_formula(formula: object) -> None:
    """A :class:`FormulaError` unless ``formula`` is one, such as its text."""
    if not isinstance(formula, Formula):
        raise FormulaError(f"not a formula: {formula!r}; temporeal.parse makes one from text")


def children(formula: Formula) -> tuple[Formula, ...]:
    """The direct sub-formulas."""
    match formula:
        case And(args) | Or(args):
            return args
        case Not(arg) | WindowedUnary(arg) | Next(arg) | Previous(arg):
            return (arg,)
        case Implies(left, right) | Iff(left, right) | WindowedBinary(left, right):
            return (left, right)
        case Predicate() | Truth():
            return ()
    raise TypeError(f"not a formula: {formula!r}")


def depth(node: Formula | Expr) -> tuple[int, int]:
    """The most nodes nested in each other, ``node`` included, and the most of them that are formulas.

    No recursion, and each node is counted once, however often it occurs.
    """
    found: dict[int, tuple[int, int]] = {}
    rest: list[Formula | Expr] = [node]
    while rest:
        top = rest[-1]
        below = _below(top)
        missing = [n for n in below if id(n) not in found]
        if missing:
            rest.extend(missing)
            continue
        levels, formulas = (max((found[id(n)][k] for n in below), default=0) for k in (0, 1))
        found[id(rest.pop())] = levels + 1, formulas + isinstance(top, Formula)
    return found[id(node)]


def _below(node: Formula | Expr) -> tuple[Formula | Expr, ...]:
    match node:
        case Predicate(_, left, right):
            return (left, right)
        case Apply(_, args):
            return args
        case Component(of, _):
            return (of,)
        case Expr():
            return ()
    return children(node)


def check_depth(node: Formula | Expr) -> None:
    """Raise a :class:`FormulaError` if ``node`` is nested too deeply for the recursions over formulas."""
    levels, formulas = depth(node)
    if levels > MAX_LEVELS or formulas > MAX_DEPTH:
        raise FormulaError(f"the formula is {TOO_DEEP}")


def is_temporal(formula: Formula) -> bool:
    """Whether the formula has a temporal operator."""
    return isinstance(formula, FUTURE + PAST) or any(is_temporal(c) for c in children(formula))


def looks_back(formula: Formula) -> bool:
    """Whether the formula has a temporal operator of the past."""
    return isinstance(formula, PAST) or any(looks_back(c) for c in children(formula))


def horizon(formula: Formula, dt: float | None = None) -> float:
    """Seconds of trace that the value at time 0 depends on; ``inf`` if unbounded.

    ``next`` and ``previous`` count in samples: a formula with one needs ``dt``, the sample period in seconds.
    """
    below = max((horizon(c, dt) for c in children(formula)), default=0.0)
    match formula:
        case Always() | Eventually() | Until() | Release() | WeakUntil():
            return formula.window.hi + below
        case Next():
            return below + _sample_period(formula, dt)
        case Historically() | Once():
            return max(0.0, below - formula.window.lo)
        case Since(left, right, window):
            return max(horizon(left, dt), horizon(right, dt) - window.lo, 0.0)
        case Previous():
            return max(0.0, below - _sample_period(formula, dt))
    return below


def history(formula: Formula, dt: float | None = None) -> float:
    """Seconds before a sample that its value may depend on; ``inf`` if unbounded. ``dt`` as in :func:`horizon`."""
    below = max((history(c, dt) for c in children(formula)), default=0.0)
    match formula:
        case Historically() | Once() | Since():
            return formula.window.hi + below
        case Previous():
            return below + _sample_period(formula, dt)
        case Next():
            return max(0.0, below - _sample_period(formula, dt))
        case Always() | Eventually():
            return max(0.0, below - formula.window.lo)
    return below


def _sample_period(formula: Formula, dt: float | None) -> float:
    if dt is None:
        raise FormulaError(f"{to_text(formula)} counts in samples: its horizon needs the sample period dt")
    return dt


def clauses(formula: Formula) -> list[tuple[str, Formula]]:
    """The top-level conjuncts in order, each with its text; the formula is their conjunction."""
    if isinstance(formula, And):
        return [clause for arg in formula.args for clause in clauses(arg)]
    return [(to_text(formula), formula)]


def predicates_in(formula: Formula) -> Iterator[Predicate]:
    """Every predicate from left to right, repetitions included."""
    if isinstance(formula, Predicate):
        yield formula
    for child in children(formula):
        yield from predicates_in(child)


def leaves(expression: Expr) -> Iterator[Signal | Constant]:
    """Every signal and constant of an expression, from left to right."""
    match expression:
        case Signal() | Constant():
            yield expression
        case Component(of, _):
            yield from leaves(of)
        case Apply(_, args):
            for arg in args:
                yield from leaves(arg)


def operations_in(predicate: Predicate) -> set[str]:
    """The operations of arithmetic in a predicate."""

    def of(expression: Expr) -> set[str]:
        match expression:
            case Component(inner, _):
                return of(inner)
            case Apply(op, args):
                return {op}.union(*map(of, args))
        return set()

    return of(predicate.left) | of(predicate.right)


def leaves_in(formula: Formula) -> Iterator[Signal | Constant]:
    """Every signal and constant of a formula, from left to right."""
    for predicate in predicates_in(formula):
        yield from leaves(predicate.left)
        yield from leaves(predicate.right)


def signals_in(formula: Formula) -> dict[str, Signal]:
    """The signals that the formula reads, by name."""
    return {leaf.name: leaf for leaf in leaves_in(formula) if isinstance(leaf, Signal)}


def constants_in(formula: Formula) -> list[tuple[float, ...]]:
    """The constants of the formula from left to right, each as a tuple (of length 1 for a scalar)."""
    return [constant_tuple(leaf) for leaf in leaves_in(formula) if isinstance(leaf, Constant)]
