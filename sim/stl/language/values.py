"""Values of expressions and margins of predicates on arrays: one recursion for every array library. numpy only.

The array library is an :class:`Arrays` value, so that the monitor on a robot never imports torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.errors import FormulaError
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

Array = Any
"""A numpy array or a torch tensor."""


@dataclass(frozen=True)
class Arrays:
    """The functions of one array library.

    Args:
        operations: functions by their names in `operations.OPERATIONS`; those of vectors reduce the last axis.
        vector: makes an array like the signals of a vector constant.
    """

    operations: Mapping[str, Callable[..., Array]]
    vector: Callable[[tuple[float, ...]], Array]


def _norm(v: Array) -> Array:
    return np.sqrt((v * v).sum(-1))


def _angle(v: Array, w: Array) -> Array:
    """Angle of two vectors on the last axis, rad (Kahan's formula, see `propositional.Apply`)."""
    v, w = v * _norm(w)[..., None], w * _norm(v)[..., None]
    return 2 * np.arctan2(_norm(v - w), _norm(v + w))


def _rotation_angle(q: Array, p: Array) -> Array:
    half = _angle(q, p)
    return 2 * np.minimum(half, np.pi - half)


def _quotient(a: Array, b: Array) -> Array:
    """a / b; a division by zero has no value: NaN, so that what depends on it is undecided."""
    out = np.divide(a, b)
    return out if isinstance(b, float) and b != 0 else np.where(np.equal(b, 0), np.nan, out)


def _power(a: Array, n: Array) -> Array:
    """a ** n; a negative power of zero is a division by zero."""
    out = np.power(a, n)
    if isinstance(n, float) and n >= 0:
        return out
    return np.where(np.equal(a, 0) & np.less(n, 0), np.nan, out)


NUMPY_OPERATIONS: Mapping[str, Callable[..., Array]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "neg": operator.neg,
    "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "sin": np.sin, "cos": np.cos,
    "wrap": lambda a: np.arctan2(np.sin(a), np.cos(a)), "pow": _power,
    "norm": _norm, "dist": lambda a, b: _norm(a - b), "angle": _angle, "rotation_angle": _rotation_angle,
    "hypot": np.hypot, "atan2": np.arctan2, "min": np.minimum, "max": np.maximum,
}


def numpy_arrays(dtype: Any = np.float64) -> Arrays:
    """The functions of numpy, with constants of ``dtype``."""
    return Arrays(NUMPY_OPERATIONS, lambda value: np.asarray(value, dtype=dtype))


def value(expression: Expr, signals: Mapping[str, Array], arrays: Arrays) -> Array:
    """Value of ``expression``: the signals' leading dimensions, then its own shape. A constant scalar stays a float."""
    match expression:
        case Signal(name):
            return signals[name]
        case Constant(number):
            return arrays.vector(number) if isinstance(number, tuple) else number
        case Component(of, index):
            return value(of, signals, arrays)[(..., index, *[slice(None)] * (len(of.shape) - 1))]
        case Apply(op, args):
            rank = len(expression.shape) if op == "*" or op == "/" else 0
            numbers = [raised(value(a, signals, arrays), rank - len(a.shape)) for a in args]
            if all(isinstance(x, float) for x in numbers):
                return float(_applied(NUMPY_OPERATIONS[op], numbers))
            return _applied(arrays.operations[op], numbers)
    raise TypeError(f"not an expression: {expression!r}")


def _applied(function: Callable[..., Array], numbers: list[Array]) -> Array:
    return reduce(function, numbers) if len(numbers) > 1 else function(numbers[0])


def raised(x: Array, axes: int) -> Array:
    """``x`` with ``axes`` new last axes, so that a scalar meets a vector."""
    if isinstance(x, float) or axes <= 0:
        return x
    return x[(..., *[None] * axes)]


def predicate_margin(predicate: Predicate, signals: Mapping[str, Array], arrays: Arrays) -> Array:
    """The robustness of ``predicate``: positive where it holds, negative where it fails."""
    return signed_margin(predicate.op, value(predicate.left, signals, arrays), value(predicate.right, signals, arrays))


def signed_margin(op: str, left: Array, right: Array) -> Array:
    """The margin of ``left op right``."""
    if op in ("==", "!="):
        return -abs(left - right) if op == "==" else abs(left - right)
    if isinstance(right, float) and right == 0:
        return left if op[0] == ">" else -left
    return left - right if op[0] == ">" else right - left


COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


def predicate_truth(predicate: Predicate, signals: Mapping[str, Array], arrays: Arrays) -> Array:
    """Whether ``predicate`` holds; at a margin of zero the comparison decides."""
    return COMPARE[predicate.op](value(predicate.left, signals, arrays), value(predicate.right, signals, arrays))


def state_margin(formula: Formula, signals: Mapping[str, Array], arrays: Arrays) -> Array:
    """Robustness of a formula without temporal operators, at each sample."""
    least, most = arrays.operations["min"], arrays.operations["max"]

    def of(f: Formula) -> Array:
        match f:
            case Predicate():
                return predicate_margin(f, signals, arrays)
            case Truth(truth):
                return float("inf") if truth else float("-inf")
            case Not(arg):
                return -of(arg)
            case And(args):
                return _folded(least, min, [of(a) for a in args])
            case Or(args):
                return _folded(most, max, [of(a) for a in args])
            case Implies(left, right):
                return _folded(most, max, [-of(left), of(right)])
            case Iff(left, right):
                a, b = of(left), of(right)
                return _folded(least, min, [_folded(most, max, [-a, b]), _folded(most, max, [a, -b])])
        raise FormulaError(f"a margin is that of one sample; this formula looks further: {to_text(f)}")

    return of(formula)


def _folded(function: Callable[..., Array], of_floats: Callable[..., float], margins: list[Array]) -> Array:
    """``function`` over all margins; ``of_floats`` where both are floats, the values of constant sub-formulas."""

    def both(a: Array, b: Array) -> Array:
        return of_floats(a, b) if isinstance(a, float) and isinstance(b, float) else function(a, b)

    return reduce(both, margins)


def check_shape(signal: Signal, array: Array) -> None:
    """Raise a :class:`SignalError` unless the last dimensions of ``array`` are those of ``signal``."""
    rank = len(signal.shape)
    if array.ndim < rank or tuple(array.shape[array.ndim - rank :]) != signal.shape:
        raise SignalError(
            f"signal {signal.name!r} has shape {tuple(array.shape)}; by its spec it must end in {signal.shape}")


def required(names: Mapping[str, Signal], signals: Mapping[str, Any]) -> dict[str, Any]:
    """The signals called ``names``; a :class:`SignalError` lists those missing and those given."""
    missing = [name for name in names if name not in signals]
    if missing:
        raise SignalError(f"the formula reads {missing}, which are missing; signals given: {sorted(signals)}")
    return {name: signals[name] for name in names}
