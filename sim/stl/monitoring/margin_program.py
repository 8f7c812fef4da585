"""Instructions that compute the predicates' margins from the signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.propositional import Apply, Component, Constant, Expr, Predicate, Signal
from temporeal.sim.stl.language.queries import leaves
from temporeal.sim.stl.language.values import numpy_arrays, value
from temporeal.sim.stl.monitoring import instructions as code

_BINARY: Mapping[str, int] = {
    "+": code.ADD, "-": code.SUB, "*": code.MUL, "/": code.DIV, "min": code.LEAST, "max": code.GREATEST}
_UNARY: Mapping[str, int] = {"neg": code.NEG, "abs": code.ABS, "sqrt": code.SQRT}
_SIMPLE = {*_BINARY, *_UNARY, "norm", "dist"}


def _size(e: Expr) -> int:
    return prod(e.shape)


@dataclass
class MarginProgram:
    """Instructions for the margins of predicates, and the meaning of their registers and input rows.

    ``picks``: per signal the input row of each flat index; ``outside``: expressions that numpy computes, and their
    first input row; ``constants``: register by value.
    """

    dtype: Any
    table: list[tuple[int, ...]] = field(default_factory=list)
    picks: dict[Signal, dict[int, int]] = field(default_factory=dict)
    outside: list[tuple[Expr, int]] = field(default_factory=list)
    constants: dict[float, int] = field(default_factory=dict)
    inputs: int = 0
    registers: int = 0
    known: dict[Any, Any] = field(default_factory=dict)

    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def input(self, count: int = 1) -> int:
        self.inputs += count
        return self.inputs - count

    def constant(self, number: float) -> int:
        if number not in self.constants:
            self.constants[number] = self.register()
        return self.constants[number]

    def load(self, row: int) -> int:
        return self._once(("load", row), code.LOAD, row)

    def apply(self, op: int, a: int, b: int = 0) -> int:
        return self._once((op, a, b), code.ARITHMETIC, a, b, op)

    def _once(self, key: Any, *ins: int) -> int:
        if key not in self.known:
            self.known[key] = self.register()
            self.table.append((ins[0], self.known[key], *ins[1:]))
        return int(self.known[key])

    def of(self, e: Expr) -> list[int]:
        """Registers of the components of ``e``, flat."""
        if e not in self.known:
            self.known[e] = self._of(e)
        return list(self.known[e])

    def _of(self, e: Expr) -> list[int]:
        if all(isinstance(leaf, Constant) for leaf in leaves(e)):
            with np.errstate(all="ignore"):
                numbers = np.ravel(value(e, {}, numpy_arrays(np.float64)))
            return [self.constant(float(x)) for x in numbers]
        match e:
            case Signal():
                return [self.signal(e, i) for i in range(_size(e))]
            case Component(Signal() as signal, index):
                size = _size(e)
                return [self.signal(signal, i) for i in range(index * size, (index + 1) * size)]
            case Component(of, index):
                size = _size(e)
                return self.of(of)[index * size : (index + 1) * size]
            case Apply(op, args) if op in _SIMPLE:
                return self.simple(op, [self.of(a) for a in args])
        first = self.input(_size(e))
        self.outside.append((e, first))
        return [self.load(first + i) for i in range(_size(e))]

    def signal(self, signal: Signal, index: int) -> int:
        rows = self.picks.setdefault(signal, {})
        if index not in rows:
            rows[index] = self.input()
        return self.load(rows[index])

    def simple(self, op: str, args: list[list[int]]) -> list[int]:
        if op == "norm" or op == "dist":
            v = args[0] if op == "norm" else self.simple("-", args)
            squares = [self.apply(code.MUL, x, x) for x in v]
            total = squares[0]
            for square in squares[1:]:
                total = self.apply(code.ADD, total, square)
            return [self.apply(code.SQRT, total)]
        if op in _UNARY:
            return [self.apply(_UNARY[op], x) for x in args[0]]
        size = max(map(len, args))
        wide = [a * size if len(a) == 1 else a for a in args]
        out = wide[0]
        for other in wide[1:]:
            out = [self.apply(_BINARY[op], a, b) for a, b in zip(out, other)]
        return out

    def margin(self, predicate: Predicate) -> int:
        """Register of the margin of ``predicate``."""
        (left,), (right,) = self.of(predicate.left), self.of(predicate.right)
        if predicate.op in ("==", "!="):
            size = self.apply(code.ABS, self.apply(code.SUB, left, right))
            return self.apply(code.NEG, size) if predicate.op == "==" else size
        return self.apply(code.SUB, left, right) if predicate.op[0] == ">" else self.apply(code.SUB, right, left)

    def negative(self, register: int) -> int:
        return self.apply(code.NEG, register)


def table_of(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Instructions as one array, padded with zeros."""
    out = np.zeros((len(rows), code.COLUMNS), dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
