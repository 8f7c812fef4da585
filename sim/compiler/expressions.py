"""Arithmetic on symbols: what a traced function computes from the numbers of one row.

A :class:`Trace` keeps each distinct expression once and folds constants as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

import numpy as np


class CannotCompile(ValueError):
    """A function of rows does something that has no vector form here."""


class Symbol:
    """One number of each row: an operation on other symbols and constants. Equal ones are one object."""

    __slots__ = ("args", "boolean", "op")

    def __init__(self, op: str, args: tuple[Any, ...], boolean: bool) -> None:
        self.op, self.args, self.boolean = op, args, boolean


Value = Any  # a Symbol, or a Python bool or float that is the same in all rows

COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "gt": ("ogt", np.greater), "ge": ("oge", np.greater_equal), "lt": ("olt", np.less), "le": ("ole", np.less_equal),
    "eq": ("oeq", np.equal), "ne": ("une", np.not_equal)}
ARITHMETIC = {"add": ("fadd", np.add), "sub": ("fsub", np.subtract), "mul": ("fmul", np.multiply),
              "div": ("fdiv", np.divide)}
INTRINSICS = {"abs": ("fabs", np.abs), "sqrt": ("sqrt", np.sqrt), "floor": ("floor", np.floor),
              "ceil": ("ceil", np.ceil), "round": ("roundeven", np.round), "trunc": ("trunc", np.trunc)}
LIBRARY = {"log": np.log, "expm1": np.expm1, "log1p": np.log1p, "pow": np.power, "sin": np.sin, "cos": np.cos,
           "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
FOLD: dict[str, Callable[..., Any]] = {
    **{k: v[1] for table in (COMPARE, ARITHMETIC, INTRINSICS) for k, v in table.items()}, **LIBRARY, **LOGIC,
    "exp": np.exp, "tanh": np.tanh, "power2": np.exp2, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "not": np.logical_not, "isfinite": np.isfinite}
BOOLEAN = {*COMPARE, *LOGIC, "not", "isfinite"}


class Trace:
    """The symbols of one function, each distinct expression once."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Symbol] = {}

    def make(self, op: str, *args: Value, boolean: bool | None = None) -> Value:
        """The value of ``op``, folded where all arguments are constant."""
        symbolic = any(isinstance(a, Symbol) for a in args)
        if not symbolic and op in FOLD:
            with np.errstate(all="ignore"):
                return FOLD[op](*(a if isinstance(a, bool) else np.float32(a) for a in args)).item()
        key = (op, *(id(a) if isinstance(a, Symbol) else (type(a).__name__, repr(a)) for a in args))
        if key not in self.known:
            self.known[key] = Symbol(op, args, op in BOOLEAN if boolean is None else boolean)
        return self.known[key]

    def number(self, a: Value) -> Value:
        """``a`` as a float: 1 for true, 0 for false."""
        if isinstance(a, Symbol):
            return self.make("number", a, boolean=False) if a.boolean else a
        return float(a)

    def truth(self, a: Value) -> Value:
        """``a`` as a boolean: whether it differs from 0."""
        if isinstance(a, Symbol):
            return a if a.boolean else self.make("ne", a, 0.0)
        return bool(a)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """``a op b`` for arithmetic, comparisons, maxima and library functions."""
        a, b = self.number(a), self.number(b)
        if op in ("max", "min") and any(not isinstance(x, Symbol) and x != x for x in (a, b)):
            return nan
        neutral = {"add": 0.0, "mul": 1.0}.get(op)
        if neutral is not None and not isinstance(a, Symbol) and a == neutral:
            return b
        if not isinstance(b, Symbol) and b == {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}.get(op):
            return a
        return self.make(op, a, b)

    def logic(self, op: str, a: Value, b: Value) -> Value:
        """``a op b`` for booleans."""
        a, b = self.truth(a), self.truth(b)
        for x, y in ((a, b), (b, a)):
            if not isinstance(x, Symbol) and op in ("and", "or"):
                return (y if x else False) if op == "and" else (True if x else y)
        return self.make(op, a, b)

    def unary(self, op: str, a: Value) -> Value:
        """``op a`` for a float."""
        return self.make(op, self.number(a))

    def negated(self, a: Value) -> Value:
        """Not ``a``."""
        return self.make("not", self.truth(a))

    def pick(self, place: Value, values: Sequence[Value]) -> Value:
        """That of the numbers ``values`` at ``place``; the nearest one where there is none."""
        numbers = [self.number(v) for v in values]
        if not isinstance(place, Symbol):
            return numbers[min(max(int(place), 0), len(numbers) - 1)]
        if all(v is numbers[0] for v in numbers):
            return numbers[0]
        return self.make("pick", place, *numbers, boolean=False)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """``a`` where ``condition``, else ``b``."""
        condition = self.truth(condition)
        if not isinstance(condition, Symbol):
            return a if condition else b
        both = all(x.boolean if isinstance(x, Symbol) else isinstance(x, bool) for x in (a, b))
        if not both:
            a, b = self.number(a), self.number(b)
        if a is b or (not isinstance(a, Symbol) and not isinstance(b, Symbol) and a == b):
            return a
        return self.make("where", condition, a, b, boolean=both)


def spaced(values: Sequence[Value]) -> tuple[str, int, int] | None:
    """Of numbers of one input, at equal distances there: its name, the place of the first, the distance."""
    if not all(isinstance(v, Symbol) and v.op == "input" for v in values):
        return None
    (name, first), *others = (v.args for v in values)
    step = others[0][1] - first if others else 1
    return (name, first, step) if all(v == (name, first + step * k) for k, v in enumerate(others, 1)) else None


def operands(symbol: Symbol) -> tuple[Value, ...]:
    """What must be computed, or read, before ``symbol``: of a pick among :func:`spaced` numbers only the place."""
    return symbol.args[:1] if symbol.op == "pick" and spaced(symbol.args[1:]) is not None else symbol.args


def needed(outputs: Sequence[Value]) -> list[Symbol]:
    """The symbols that ``outputs`` need, each after its :func:`operands`."""
    order: dict[int, Symbol] = {}
    stack = [(v, False) for v in reversed(outputs) if isinstance(v, Symbol)]
    while stack:
        symbol, ready = stack.pop()
        if ready:
            order[id(symbol)] = symbol
        elif id(symbol) not in order:
            stack.append((symbol, True))
            stack += [(a, False) for a in reversed(operands(symbol)) if isinstance(a, Symbol) and id(a) not in order]
    return list(order.values())
