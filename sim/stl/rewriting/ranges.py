"""Bounds on margins, whatever the signals are, by interval arithmetic.

    state = parse("norm(base_pos_w - a) < r", signals, {"a": [2, 0, 0], "r": 0.6})
    margin_upper_bound(state)    # 0.6: a length is not negative

A range [low, high] contains every value that can occur; it is (-inf, inf) where the form shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from math import inf, pi

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
)

Range = tuple[float, float]
EVERYTHING: Range = (-inf, inf)

OF_OPERATION: Mapping[str, Range] = {
    **dict.fromkeys(("norm", "dist", "hypot", "sqrt", "exp"), (0.0, inf)), **dict.fromkeys(("sin", "cos"), (-1.0, 1.0)),
    **dict.fromkeys(("angle", "rotation_angle"), (0.0, pi)), **dict.fromkeys(("wrap", "atan2"), (-pi, pi))}
"""Operations whose values are bounded for all arguments."""


def margin_upper_bound(formula: Formula) -> float:
    """The largest margin that a formula without temporal operators can have; infinite if its form shows no bound."""
    return margin_range(formula)[1]


def margin_range(formula: Formula) -> Range:
    """Range of the margin of a formula without temporal operators."""
    match formula:
        case Predicate(op, left, right):
            return _compared(op, _sum(value_range(left), _negated(value_range(right))))
        case Not(arg):
            return _negated(margin_range(arg))
        case And(args):
            return _folded("min", map(margin_range, args))
        case Or(args):
            return _folded("max", map(margin_range, args))
        case Implies(left, right):
            return margin_range(Or((Not(left), right)))
        case Iff(left, right):
            return margin_range(And((Implies(left, right), Implies(right, left))))
        case Truth(value):
            return (inf, inf) if value else (-inf, -inf)
    return EVERYTHING


def value_range(expression: Expr) -> Range:
    """Range of a scalar expression."""
    match expression:
        case Constant(float(number)):
            return number, number
        case Component(Constant() as of, index):
            return (constant_tuple(of)[index],) * 2
        case Component(Signal() as of, _):
            return (-1.0, 1.0) if of.unit == "wxyz" else EVERYTHING  # components of a unit quaternion
        case Apply("*", (a, b)) if a == b and not expression.shape:
            return 0.0, inf
        case Apply(op, args) if not expression.shape:
            return OF_OPERATION[op] if op in OF_OPERATION else _applied(op, [value_range(arg) for arg in args])
    return EVERYTHING


def _applied(op: str, args: list[Range]) -> Range:
    """Range of an operation on values in the ranges ``args``."""
    match op, args:
        case "+", [a, b]:
            return _sum(a, b)
        case "-", [a, b]:
            return _sum(a, _negated(b))
        case "neg", [a]:
            return _negated(a)
        case "abs", [a]:
            return _size(a)
        case "*", [a, b]:
            return _product(a, b)
        case "/", [a, (low, high)] if low == high != 0.0:
            return _product(a, (1.0 / low, 1.0 / low))
        case "pow", [_, (low, high)] if low == high >= 0.0 and low % 2.0 == 0.0:
            return 0.0, inf
        case "min" | "max", _:
            return _folded(op, args)
    return EVERYTHING


def _compared(op: str, difference: Range) -> Range:
    """Range of the margin of a comparison whose left - right is in ``difference``."""
    if op in ("==", "!="):
        return _size(difference) if op == "!=" else _negated(_size(difference))
    return _negated(difference) if op in ("<", "<=") else difference


def _folded(op: str, ranges: Iterable[Range]) -> Range:
    fold = min if op == "min" else max
    return reduce(lambda a, b: (fold(a[0], b[0]), fold(a[1], b[1])), ranges)


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _negated(a: Range) -> Range:
    return -a[1], -a[0]


def _size(a: Range) -> Range:
    return max(a[0], -a[1], 0.0), max(a[1], -a[0])


def _product(a: Range, b: Range) -> Range:
    ends = [x * y if x and y else 0.0 for x in a for y in b]  # 0 times inf is 0 here
    return min(ends), max(ends)
