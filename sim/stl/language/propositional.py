"""Formulas of one sample: expressions over signals, predicates and Boolean connectives. Standard library only.

An :class:`Expr` is arithmetic over the signals of one sample; its shape is ``()`` for a scalar. A :class:`Formula` is
true or false at each sample of a trace; those that look at other samples are in `temporal`. Both are frozen
dataclasses that Python operators build::

    height = Signal("height", (), "m")
    pos = Signal("base_pos_w", (3,), "m")
    mission = always(0, 10, height > 0.3) & eventually(0, 4, norm(pos - (1, 0, 1)) < 0.1)

Expressions take ``+ - * / **``, ``abs(x)``, ``v[0]`` and ``< <= > >=``; formulas take ``&``, ``|``, ``~`` and ``>>``
(implies). ``==`` compares two nodes; the predicates are built by `constructors.equal` and `constructors.unequal`. All
functions and temporal operators are in `constructors`. A scalar expression ``x`` in place of a formula means ``x > 0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from operator import index as whole_number
from reprlib import repr as short
from typing import Any, ClassVar, Union

from temporeal.sim.stl.language.errors import TOO_DEEP, FormulaError
from temporeal.sim.stl.language.operations import FUNCTIONS, OPERATIONS, Shape, operation_shape, shape_text
from temporeal.sim.stl.language.text import name_text, number_text

Number = int | float
ExprLike = Union["Expr", Number, Sequence[Number], Any]
"""An expression, a number, a sequence of numbers or an array of one dimension."""


class Expr:
    """Arithmetic over the signals of one sample; ``shape`` is that of its value."""

    __array_ufunc__ = None  # numpy then leaves ``array - x`` to ``x``

    @property
    def shape(self) -> Shape:
        """Shape of the value, ``()`` for a scalar."""
        raise NotImplementedError

    def __add__(self, other: ExprLike) -> Expr:
        return Apply("+", (self, expr(other)))

    def __radd__(self, other: ExprLike) -> Expr:
        return Apply("+", (expr(other), self))

    def __sub__(self, other: ExprLike) -> Expr:
        return Apply("-", (self, expr(other)))

    def __rsub__(self, other: ExprLike) -> Expr:
        return Apply("-", (expr(other), self))

    def __mul__(self, other: ExprLike) -> Expr:
        return Apply("*", (self, expr(other)))

    def __rmul__(self, other: ExprLike) -> Expr:
        return Apply("*", (expr(other), self))

    def __truediv__(self, other: ExprLike) -> Expr:
        return Apply("/", (self, expr(other)))

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return Apply("/", (expr(other), self))

    def __pow__(self, other: ExprLike) -> Expr:
        return Apply("pow", (self, expr(other)))

    def __rpow__(self, other: ExprLike) -> Expr:
        return Apply("pow", (expr(other), self))

    def __neg__(self) -> Expr:
        return Apply("neg", (self,))

    def __abs__(self) -> Expr:
        return Apply("abs", (self,))

    def __getitem__(self, index: int) -> Expr:
        return Component(self, index)

    def __lt__(self, other: ExprLike) -> Predicate:
        return Predicate("<", self, expr(other))

    def __le__(self, other: ExprLike) -> Predicate:
        return Predicate("<=", self, expr(other))

    def __gt__(self, other: ExprLike) -> Predicate:
        return Predicate(">", self, expr(other))

    def __ge__(self, other: ExprLike) -> Predicate:
        return Predicate(">=", self, expr(other))

    def __str__(self) -> str:
        return expr_text(self)


@dataclass(frozen=True)
class Signal(Expr):
    """A named signal; ``unit`` ``""`` is unknown and matches every unit."""

    name: str
    dims: Shape = ()
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or '"' in self.name:
            raise FormulaError(f"signal {self.name!r}: a name is letters, digits and other visible signs, without \"")

    @property
    def shape(self) -> Shape:
        return self.dims


def numbers(value: Any) -> float | tuple[float, ...]:
    """``value`` as a float or a tuple of floats; a ``TypeError`` for texts and booleans, also inside arrays."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(plain, Sequence) and not isinstance(plain, (str, bytes, bytearray)):
        return tuple([_real(x) for x in plain])
    return _real(plain)


def _real(value: Any) -> float:
    plain = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(plain, bool) or not hasattr(plain, "__float__"):
        raise TypeError(f"{value!r} is no number")
    return float(plain)


@dataclass(frozen=True)
class Constant(Expr):
    """A number or a vector; ``name`` is its name in the configuration, ``""`` for a literal."""

    value: float | tuple[float, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if self.name and not self.name.isidentifier():
            raise FormulaError(f"constant {self.name!r}: a name is letters, digits and underscores")
        try:
            exact = numbers(self.value)
        except (TypeError, ValueError, OverflowError):
            shown = f"constant {self.name!r}" if self.name else "a constant"
            raise FormulaError(f"{shown} must be a number or a list of numbers, got {short(self.value)}") from None
        object.__setattr__(self, "value", exact)
        if exact == ():
            raise FormulaError(f"constant {self.name or '[]'} is an empty vector")
        if not all(isfinite(x) for x in constant_tuple(self)):
            raise FormulaError(f"constant {self.name or self.value} is not finite: {self.value}")

    @property
    def shape(self) -> Shape:
        return (len(self.value),) if isinstance(self.value, tuple) else ()

    def __neg__(self) -> Expr:
        if self.name:
            return Apply("neg", (self,))
        return Constant(tuple(-x for x in self.value) if isinstance(self.value, tuple) else -self.value)


def constant_tuple(constant: Constant) -> tuple[float, ...]:
    """The value as a tuple, of length 1 for a scalar."""
    return constant.value if isinstance(constant.value, tuple) else (constant.value,)


@dataclass(frozen=True)
class Component(Expr):
    """Entry ``index`` of the first axis of ``of``."""

    of: Expr
    index: int

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "index", whole_number(self.index))
        except TypeError:
            raise FormulaError(f"a component is a whole number, got {short(self.index)}") from None
        if not self.of.shape:
            raise FormulaError(f"{self.of} is a scalar and has no component {self.index}")
        if not 0 <= self.index < self.of.shape[0]:
            raise FormulaError(f"{self.of} has components 0 to {self.of.shape[0] - 1}, not {self.index}")

    @property
    def shape(self) -> Shape:
        return self.of.shape[1:]


@dataclass(frozen=True)
class Apply(Expr):
    """``op`` of :data:`OPERATIONS` applied to ``args``: elementwise; those of :data:`OF_VECTORS` make scalars.

    ``angle(v, w)`` is the angle between two vectors in rad, in [0, pi], 0 where one is zero; ``rotation_angle(q, p)``
    that of the rotation between two unit quaternions, q and -q being the same; ``wrap(a)`` is the angle ``a`` in
    [-pi, pi]. Both angles are 2 atan2(|v/|v| - w/|w||, |v/|v| + w/|w||) (Kahan, "How Futile are Mindless Assessments of
    Roundoff in Floating-Point Computation?", 2006), exact also for small ones.
    """

    op: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise FormulaError(f"unknown function {self.op!r}; known: {', '.join(FUNCTIONS)}")
        least, most = OPERATIONS[self.op]
        if not least <= len(self.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise FormulaError(f"{self.op} takes {wanted} argument{'s' * (wanted != '1')}, got {len(self.args)}")
        len(self.shape)  # an error where the arguments do not fit

    @cached_property
    def shape(self) -> Shape:
        return operation_shape(self.op, [a.shape for a in self.args])


def expr(value: ExprLike) -> Expr:
    """``value`` as an expression: numbers and sequences of numbers become constants."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (str, bytes)) or value is None:
        raise FormulaError(f"{value!r} is no expression: use a Signal, a number or a sequence of numbers")
    return Constant(value)  # type: ignore[arg-type]  # numbers and arrays become floats there


LETTERS = "xyz"


def component_names(of: Expr) -> str:
    """Letters of the components in storage order, ``""`` if components have numbers only.

    Quaternions (unit ``wxyz``) are stored scalar first. Another vector of four has no letters: its ``w`` could be the
    first or the last.
    """
    if isinstance(of, Signal) and of.unit == "wxyz":
        return "wxyz"
    return LETTERS[: of.shape[0]] if len(of.shape) == 1 and of.shape[0] in (2, 3) else ""


_EXPR_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3}
_ATOM = 4


def expr_text(expression: Expr, level: int = 0) -> str:
    """Text of an expression, in parentheses where it binds less tightly than ``level``."""
    match expression:
        case Signal(name):
            return name_text(name)
        case Constant(value, name):
            return name or _literal_text(value)
        case Component(of, index):
            names = component_names(of)
            if names and isinstance(of, (Signal, Constant)) and of.name:
                return f"{expr_text(of)}.{names[index]}"
            return f"{expr_text(of, _ATOM)}[{index}]"
        case Apply(op, args):
            own = _EXPR_LEVEL.get(op, _ATOM)
            if op == "neg":
                inner = expr_text(args[0], own)
                out = f"-({inner})" if inner[0].isdigit() else f"-{inner}"  # -2 is a number, -(2) an operation
            elif own < _ATOM:
                out = f"{expr_text(args[0], own)} {op} {expr_text(args[1], own + 1)}"
            else:
                out = f"{op}({', '.join(expr_text(a) for a in args)})"
            return f"({out})" if own < level else out
    raise TypeError(f"not an expression: {expression!r}")


def _literal_text(value: float | tuple[float, ...]) -> str:
    return f"[{', '.join(map(number_text, value))}]" if isinstance(value, tuple) else number_text(value)


class Formula:
    """True or false at each sample of a trace."""

    binding: ClassVar[int]
    """How tightly its operator binds, from 1 (``<->``) to 7 (``true``)."""

    def _text(self, level: int) -> str:
        """See :func:`to_text`."""
        raise NotImplementedError

    def _enclosed(self, text: str, level: int) -> str:
        return f"({text})" if self.binding < level else text

    def __and__(self, other: FormulaLike) -> Formula:
        return And((*_parts(And, self), *_parts(And, as_formula(other))))

    def __rand__(self, other: FormulaLike) -> Formula:
        return as_formula(other) & self

    def __or__(self, other: FormulaLike) -> Formula:
        return Or((*_parts(Or, self), *_parts(Or, as_formula(other))))

    def __ror__(self, other: FormulaLike) -> Formula:
        return as_formula(other) | self

    def __invert__(self) -> Formula:
        return Not(self)

    def __rshift__(self, other: FormulaLike) -> Formula:
        return Implies(self, as_formula(other))

    def __rrshift__(self, other: FormulaLike) -> Formula:
        return Implies(as_formula(other), self)

    def __bool__(self) -> bool:
        raise TypeError("a formula has no truth value: combine formulas with & | ~ >>, and write 0 < x < 1 as two")

    def __str__(self) -> str:
        return to_text(self)


FormulaLike = Formula | Expr


def to_text(formula: Formula, level: int = 0) -> str:
    """Text that `parse.parse` reads back to an equal formula, given the same named constants.

    It is in parentheses where its operator binds less tightly than ``level``.
    """
    try:
        return formula._text(level)
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def as_formula(value: FormulaLike) -> Formula:
    """``value`` as a formula: a scalar expression ``x`` means ``x > 0``, whose robustness is ``x``."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, Expr):
        return Predicate(">", value, Constant(0.0))
    hint = "for == and != write equal(a, b) and unequal(a, b), for a constant Truth(True)"
    raise FormulaError(f"{short(value)} is no formula{f': {hint}' if isinstance(value, bool) else ''}")


def _parts(kind: type[And] | type[Or], formula: Formula) -> tuple[Formula, ...]:
    return formula.args if isinstance(formula, kind) else (formula,)


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
COMPARE_HINT = "compare a component as in v.x, or a length as in norm(v)"


@dataclass(frozen=True)
class Predicate(Formula):
    """``left op right`` over scalars.

    Its margin (robustness) is left - right for ``>`` and ``>=``, right - left for ``<`` and ``<=``, -abs(left - right)
    for ``==`` (never positive) and abs(left - right) for ``!=``, as rtamt has them.
    """

    op: str
    left: Expr
    right: Expr
    binding = 5  # below the temporal operators: under one of them a comparison gets parentheses, for the reader

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise FormulaError(f"unknown comparison {self.op!r}; known: {' '.join(COMPARISONS)}")
        shapes = (self.left.shape, self.right.shape)
        if shapes != ((), ()):
            found = " and ".join(map(shape_text, shapes))
            raise FormulaError(f"{self.op} compares scalars, got {found}: {COMPARE_HINT}")

    def _text(self, level: int) -> str:
        return self._enclosed(f"{expr_text(self.left)} {self.op} {expr_text(self.right)}", level)


@dataclass(frozen=True)
class Truth(Formula):
    """``true`` (robustness +inf) or ``false`` (-inf)."""

    value: bool
    binding = 7

    def _text(self, level: int) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True)
class Not(Formula):
    """Negation."""

    arg: Formula
    binding = 6

    def _text(self, level: int) -> str:
        return self._enclosed(f"!{self.arg._text(self.binding)}", level)


@dataclass(frozen=True)
class _NaryConnective(Formula):
    args: tuple[Formula, ...]
    _name: ClassVar[str]
    _operator: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.args) < 2:
            raise FormulaError(f"a {self._name} has two or more parts, got {len(self.args)}")

    def _text(self, level: int) -> str:
        return self._enclosed(self._operator.join([arg._text(self.binding + 1) for arg in self.args]), level)


class And(_NaryConnective):
    """Conjunction of two or more formulas ``args``."""

    binding, _name, _operator = 4, "conjunction", " & "


class Or(_NaryConnective):
    """Disjunction of two or more formulas ``args``."""

    binding, _name, _operator = 3, "disjunction", " | "


@dataclass(frozen=True)
class _BinaryConnective(Formula):
    left: Formula
    right: Formula
    _operator: ClassVar[str]

    def _text(self, level: int) -> str:
        left, right = self.left._text(self.binding + 1), self.right._text(self.binding + 1)
        return self._enclosed(f"{left} {self._operator} {right}", level)


class Implies(_BinaryConnective):
    """``!left | right``."""

    binding, _operator = 2, "->"


class Iff(_BinaryConnective):
    """``left`` and ``right`` are both true or both false."""

    binding, _operator = 1, "<->"
