"""Margins and truths of predicates as arithmetic on scalars, for interpreters without vectors. numpy only.

A scalar is a nested tuple: ``("load", (signal, component), sign, offset)`` is ``sign * signal[component] + offset``,
``("const", x)`` a number, and ``(operation, a[, b])`` one of `operations.OPERATIONS` on scalars or a comparison (1
where it holds, else -1). Equal tuples are equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import pi
from typing import Any

import numpy as np

from temporeal.sim.stl.language.propositional import Apply, Component, Constant, Expr, Predicate, Signal
from temporeal.sim.stl.language.values import NUMPY_OPERATIONS

Scalar = tuple[Any, ...]


def operands(scalar: Scalar) -> tuple[Scalar, ...]:
    """The scalars from which ``scalar`` is computed."""
    return () if scalar[0] in ("const", "load") else scalar[1:]


def constant(value: float) -> Scalar:
    """A number."""
    return ("const", float(value))


def apply(op: str, *args: Scalar) -> Scalar:
    """``op`` on scalars; constants are folded, and a signal plus or minus a constant becomes one load."""
    if all(a[0] == "const" for a in args):
        with np.errstate(all="ignore"):
            return constant(float(NUMPY_OPERATIONS[op](*(np.float64(a[1]) for a in args))))
    if op == "neg" and args[0][0] == "load":
        return _load(args[0], -1.0, 0.0)
    if op in ("+", "-"):
        (first, second), sign = args, 1.0 if op == "+" else -1.0
        if first[0] == "load" and first[3] == 0 and second[0] == "const":
            return _load(first, 1.0, sign * second[1])
        if second[0] == "load" and second[3] == 0 and first[0] == "const":
            return _load(second, sign, first[1])
    return (op, *args)


def _load(load: Scalar, sign: float, offset: float) -> Scalar:
    return ("load", load[1], sign * load[2], sign * load[3] + offset)


def _sum(terms: Any) -> Scalar:
    return reduce(lambda a, b: apply("+", a, b), terms)


def _norm(v: Any) -> Scalar:
    return apply("sqrt", _sum(apply("*", x, x) for x in v))


def _angle(v: Any, w: Any) -> Scalar:
    """See `propositional.Apply`."""
    a, b = _norm(v), _norm(w)
    pairs = [(apply("*", x, b), apply("*", y, a)) for x, y in zip(v, w)]
    apart, together = (_norm([apply(op, x, y) for x, y in pairs]) for op in "-+")
    return apply("*", constant(2), apply("atan2", apart, together))


def _rotation_angle(q: Any, p: Any) -> Scalar:
    half = _angle(q, p)
    return apply("*", constant(2), apply("min", half, apply("-", constant(pi), half)))


def _dist(a: Any, b: Any) -> Scalar:
    return _norm([apply("-", x, y) for x, y in zip(a, b)])


_OF_VECTORS: Mapping[str, Callable[..., Scalar]] = {
    "norm": _norm, "dist": _dist, "angle": _angle, "rotation_angle": _rotation_angle}


def scalarized(expression: Expr) -> Any:
    """The entries of an expression as scalars: an object array of its shape."""
    out = np.empty(expression.shape, dtype=object)
    match expression:
        case Signal(name, shape):
            for flat, at in enumerate(np.ndindex(*shape)):
                out[at] = ("load", (name, flat), 1.0, 0.0)
        case Constant(value):
            for at in np.ndindex(*expression.shape):
                out[at] = constant(value[at[0]] if isinstance(value, tuple) else value)
        case Component(of, index):
            return scalarized(of)[(index,)] if len(of.shape) > 1 else _cell(scalarized(of)[index])
        case Apply(op, args) if op in _OF_VECTORS:
            return _cell(_OF_VECTORS[op](*(scalarized(a) for a in args)))
        case Apply(op, args):
            parts = [scalarized(a) for a in args]
            # a scalar argument is combined with every entry of a vector
            for at in np.ndindex(*expression.shape):
                entries = [part[at] if part.shape else part[()] for part in parts]
                out[at] = _elementwise(op, entries)
        case _:
            raise TypeError(f"not an expression: {expression!r}")
    return out


def _cell(scalar: Scalar) -> Any:
    out = np.empty((), dtype=object)
    out[()] = scalar
    return out


def _elementwise(op: str, entries: list[Scalar]) -> Scalar:
    if op == "wrap":
        return apply("atan2", apply("sin", entries[0]), apply("cos", entries[0]))
    if op in ("min", "max"):
        return reduce(lambda a, b: apply(op, a, b), entries)
    return apply(op, *entries)


def margin_scalar(predicate: Predicate, negated: bool, truth: bool) -> Scalar:
    """The margin of a predicate, or its truth as 1 or -1; of its negation with ``negated``."""
    op, left, right = predicate.op, scalarized(predicate.left)[()], scalarized(predicate.right)[()]
    if truth:
        # NaN was refused before, so that each comparison has a complement
        if op in ("==", "!="):
            return ("==" if (op == "==") != negated else "!=", left, right)
        if op[0] == ">":
            op, left, right = op.replace(">", "<"), right, left
        return (op, left, right) if not negated else ("<=" if op == "<" else "<", right, left)
    if op in ("==", "!="):
        distance = apply("abs", apply("-", left, right))
        return distance if (op == "!=") != negated else apply("neg", distance)
    first, second = (left, right) if (op[0] == ">") != negated else (right, left)
    return apply("-", first, second)
