"""The data that a formula is: frozen dataclasses, their text and their JSON form. Standard library only.

Two kinds of nodes. An :class:`Expr` is arithmetic over the signals of one sample; it has a shape, ``()`` for a scalar.
A :class:`Formula` is true or false at a sample of a trace. Both are built with Python operators::

    height = Signal("height", (), "m")
    pos = Signal("base_pos_w", (3,), "m")
    mission = always(0, 10, height > 0.3) & eventually(0, 4, norm(pos - (1, 0, 1)) < 0.1)

``+ - * / **``, ``abs(x)``, ``v[0]`` and ``< <= > >=`` work on expressions, ``&``, ``|``, ``~`` and ``>>`` (implies) on
formulas; :func:`iff`, :func:`xor`, :func:`rise` and :func:`fall` are functions. ``==`` compares nodes, it builds none:
:func:`equal` and :func:`unequal` build those predicates. Operators of time are functions: ``always``, ``eventually``,
``until``, ``release``, ``weak_until``, ``next_sample``; of the past ``historically``, ``once``, ``since``,
``previous_sample``. Where a formula is asked for, a scalar expression ``x`` says ``x > 0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import inf, isfinite, isinf, isnan
from operator import index as whole_number
from reprlib import repr as short
from typing import Any, Union


class FormulaError(ValueError):
    """A formula breaks a rule. The message shows the text with a caret under the place, the rule and the legal names.

    ``rule`` is the rule alone; ``text``, ``start`` and ``end`` say where (offsets, ``start == end`` for one place).
    """

    def __init__(self, rule: str, text: str = "", start: int = 0, end: int = 0, legal: str = "") -> None:
        self.rule, self.text, self.start, self.end, self.legal = rule, text, start, end, legal
        super().__init__("\n".join([rule, *excerpt(text, start, end), *([legal] if legal else [])]))


WIDTH = 200
"""Characters of a line that an error shows: those around the place."""


def excerpt(text: str, start: int, end: int) -> list[str]:
    """The line of ``text`` that ``start`` lies in, of a long one a part, and carets below the marked place."""
    if not text:
        return []
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    number = f"{text.count(chr(10), 0, start) + 1}:{start - first + 1}"
    shown = (first, last) if last - first <= WIDTH else (max(first, start - WIDTH // 2), min(last, start + WIDTH // 2))
    more = ["..." if cut else "" for cut in (shown[0] > first, shown[1] < last)]
    marked = max(1, min(end, shown[1]) - start)
    line = more[0] + text[slice(*shown)] + more[1]
    # tabs stay tabs in the second line, or the caret would point elsewhere
    blank = "".join("\t" if c == "\t" else " " for c in line[: len(more[0]) + start - shown[0]])
    return [f"  {number} | {line}", f"  {' ' * len(number)} | {blank}{'^' * marked}"]


# ---------------------------------------------------------------- expressions

Shape = tuple[int, ...]
Number = int | float
ExprLike = Union["Expr", Number, Sequence[Number], Any]
"""An expression, a number, a sequence of numbers or an array of one dimension."""


class Expr:
    """Arithmetic over the signals of one sample; ``shape`` is that of its value for one robot."""

    __array_ufunc__ = None  # numpy leaves ``array - x`` to ``x``

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
    """``value`` as a float or a tuple of floats; a ``TypeError`` for texts and truth values, in arrays too."""
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
    """A number or a vector of numbers; ``name`` is its name in the configuration, ``""`` for a literal."""

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


# function or operator -> number of arguments, (least, most)
OPERATIONS: Mapping[str, tuple[int, int]] = {
    "+": (2, 2), "-": (2, 2), "*": (2, 2), "/": (2, 2), "neg": (1, 1),
    "abs": (1, 1), "sqrt": (1, 1), "exp": (1, 1), "sin": (1, 1), "cos": (1, 1), "norm": (1, 1),
    "wrap": (1, 1),
    "pow": (2, 2), "dist": (2, 2), "angle": (2, 2), "rotation_angle": (2, 2),
    "hypot": (2, 2), "atan2": (2, 2), "min": (2, 16), "max": (2, 16),
}
FUNCTIONS = tuple(name for name in OPERATIONS if name.isidentifier() and name != "neg")
OF_VECTORS = ("norm", "dist", "angle", "rotation_angle")
"""Functions that make a scalar of one or two vectors; ``rotation_angle`` is that of two quaternions of length 4."""


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


def operation_shape(op: str, shapes: Sequence[Shape]) -> Shape:
    """Shape of ``op`` over arguments of ``shapes``; a :class:`FormulaError` where they do not fit."""
    if op in OF_VECTORS:
        if any(len(s) != 1 for s in shapes) or len(set(shapes)) != 1 or (op == "rotation_angle" and shapes[0] != (4,)):
            wanted = {"norm": "a vector", "rotation_angle": "two quaternions"}.get(op, "two vectors of one length")
            raise FormulaError(f"{op} takes {wanted}, got {' and '.join(map(shape_text, shapes))}")
        return ()
    distinct = set(shapes)
    if len(distinct) == 1:
        return shapes[0]
    if op == "*" and () in distinct:
        return max(shapes, key=len)
    if op == "/" and shapes[1] == ():
        return shapes[0]
    raise FormulaError(f"{op} of {' and '.join(map(shape_text, shapes))}: the shapes must be equal")


def shape_text(shape: Shape) -> str:
    """A shape in words."""
    return "a scalar" if not shape else f"a vector [{shape[0]}]" if len(shape) == 1 else f"an array {list(shape)}"


def expr(value: ExprLike) -> Expr:
    """``value`` as an expression: numbers and sequences of numbers become constants."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (str, bytes)) or value is None:
        raise FormulaError(f"{value!r} is no expression: use a Signal, a number or a sequence of numbers")
    return Constant(value)  # type: ignore[arg-type]  # numbers and arrays become floats there


def norm(v: ExprLike) -> Expr:
    """Euclidean length of a vector."""
    return Apply("norm", (expr(v),))


def dist(a: ExprLike, b: ExprLike) -> Expr:
    """Euclidean distance of two vectors."""
    return Apply("dist", (expr(a), expr(b)))


def angle(v: ExprLike, w: ExprLike) -> Expr:
    """Angle between two vectors, rad, in [0, pi]."""
    return Apply("angle", (expr(v), expr(w)))


def rotation_angle(q: ExprLike, p: ExprLike) -> Expr:
    """Angle of the rotation between two unit quaternions, rad, in [0, pi]."""
    return Apply("rotation_angle", (expr(q), expr(p)))


def wrap(a: ExprLike) -> Expr:
    """The angle ``a``, rad, in [-pi, pi]."""
    return Apply("wrap", (expr(a),))


def sqrt(x: ExprLike) -> Expr:
    """Square root."""
    return Apply("sqrt", (expr(x),))


def exp(x: ExprLike) -> Expr:
    """e to the power ``x``."""
    return Apply("exp", (expr(x),))


def sin(x: ExprLike) -> Expr:
    """Sine of an angle in rad."""
    return Apply("sin", (expr(x),))


def cos(x: ExprLike) -> Expr:
    """Cosine of an angle in rad."""
    return Apply("cos", (expr(x),))


def atan2(y: ExprLike, x: ExprLike) -> Expr:
    """Angle of the point (x, y), rad."""
    return Apply("atan2", (expr(y), expr(x)))


def hypot(x: ExprLike, y: ExprLike) -> Expr:
    """Length of the vector (x, y)."""
    return Apply("hypot", (expr(x), expr(y)))


def minimum(*args: ExprLike) -> Expr:
    """The smallest of 2 to 16 values."""
    return Apply("min", tuple(expr(a) for a in args))


def maximum(*args: ExprLike) -> Expr:
    """The largest of 2 to 16 values."""
    return Apply("max", tuple(expr(a) for a in args))


# ---------------------------------------------------------------- formulas


class Formula:
    """True or false at each sample of a trace."""

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


def as_formula(value: FormulaLike) -> Formula:
    """``value`` as a formula: a scalar expression ``x`` says ``x > 0``, so that its robustness is its value."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, Expr):
        return Predicate(">", value, Constant(0.0))
    hint = "for == and != write equal(a, b) and unequal(a, b), for a constant Truth(True)"
    raise FormulaError(f"{short(value)} is no formula{f': {hint}' if isinstance(value, bool) else ''}")


def _parts(kind: type[And] | type[Or], formula: Formula) -> tuple[Formula, ...]:
    return formula.args if isinstance(formula, kind) else (formula,)


MAX_DEPTH = 100
"""Formulas below each other, predicates included, that the parser, :func:`from_json` and `check_depth` accept."""
MAX_LEVELS = 200
"""Nodes below each other, those of arithmetic too: a sum of n terms has n levels. Recursion over them fits Python's."""
TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels, or {MAX_LEVELS} with those of arithmetic (one each term)"
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

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise FormulaError(f"unknown comparison {self.op!r}; known: {' '.join(COMPARISONS)}")
        shapes = (self.left.shape, self.right.shape)
        if shapes != ((), ()):
            found = " and ".join(map(shape_text, shapes))
            raise FormulaError(f"{self.op} compares scalars, got {found}: {COMPARE_HINT}")


@dataclass(frozen=True)
class Truth(Formula):
    """``true`` (robustness +inf) or ``false`` (-inf)."""

    value: bool


@dataclass(frozen=True)
class Not(Formula):
    """Negation."""

    arg: Formula


@dataclass(frozen=True)
class And(Formula):
    """Conjunction of two or more."""

    args: tuple[Formula, ...]

    def __post_init__(self) -> None:
        if len(self.args) < 2:
            raise FormulaError(f"a conjunction has two or more parts, got {len(self.args)}")


@dataclass(frozen=True)
class Or(Formula):
    """Disjunction of two or more."""

    args: tuple[Formula, ...]

    def __post_init__(self) -> None:
        if len(self.args) < 2:
            raise FormulaError(f"a disjunction has two or more parts, got {len(self.args)}")


@dataclass(frozen=True)
class Implies(Formula):
    """``not left or right``."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Iff(Formula):
    """``left`` and ``right`` are both true or both false."""

    left: Formula
    right: Formula


@dataclass(frozen=True)
class Window:
    """Closed time window ``[lo, hi]`` in seconds from now; ``hi = inf`` reaches to the end of the trace."""

    lo: float = 0.0
    hi: float = inf

    def __post_init__(self) -> None:
        if isnan(self.lo) or isnan(self.hi) or isinf(self.lo):
            raise FormulaError(f"window [{self.lo},{self.hi}]: the bounds must be numbers, the lower one finite")
        if not 0 <= self.lo <= self.hi:
            shown = f"window [{number_text(self.lo)},{number_text(self.hi)}]"
            raise FormulaError(f"{shown} {'starts before now' if self.lo < 0 else 'is reversed'}: 0 <= lo <= hi")


ALL_TIME = Window()


@dataclass(frozen=True)
class Always(Formula):
    """``arg`` at every sample of the window."""

    arg: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Eventually(Formula):
    """``arg`` at some sample of the window."""

    arg: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Until(Formula):
    """``right`` at some sample of the window, and ``left`` at every sample from now to the one before it."""

    left: Formula
    right: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Release(Formula):
    """At every sample of the window ``right``, or ``left`` at a sample from now to the one before it.

    The dual of until: ``!(!left U !right)``.
    """

    left: Formula
    right: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class WeakUntil(Formula):
    """``left U[lo,hi] right``, or ``left`` at every sample from now to the end of the window: ``G[0,hi] left``."""

    left: Formula
    right: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Next(Formula):
    """``arg`` at the next sample. At the last sample of a trace it is true, with ``strong`` false."""

    arg: Formula
    strong: bool = False


@dataclass(frozen=True)
class Historically(Formula):
    """``arg`` at every sample from ``hi`` to ``lo`` seconds ago; an unbounded window begins with the trace."""

    arg: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Once(Formula):
    """``arg`` at some sample from ``hi`` to ``lo`` seconds ago."""

    arg: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Since(Formula):
    """``right`` at some sample from ``hi`` to ``lo`` seconds ago, and ``left`` at every later one up to now."""

    left: Formula
    right: Formula
    window: Window = ALL_TIME


@dataclass(frozen=True)
class Previous(Formula):
    """``arg`` at the sample before. At the first sample of a trace it is true, with ``strong`` false."""

    arg: Formula
    strong: bool = False


WindowedUnary = (Always, Eventually, Historically, Once)
WindowedBinary = (Until, Release, WeakUntil, Since)
FUTURE = (Always, Eventually, Until, Release, WeakUntil, Next)
PAST = (Historically, Once, Since, Previous)


def _window(lo: float, hi: float) -> Window:
    return Window(float(lo), float(hi))


def always(lo: float, hi: float, formula: FormulaLike) -> Formula:
    """``G[lo,hi] formula``."""
    return Always(as_formula(formula), _window(lo, hi))


def eventually(lo: float, hi: float, formula: FormulaLike) -> Formula:
    """``F[lo,hi] formula``."""
    return Eventually(as_formula(formula), _window(lo, hi))


def until(left: FormulaLike, lo: float, hi: float, right: FormulaLike) -> Formula:
    """``left U[lo,hi] right``."""
    return Until(as_formula(left), as_formula(right), _window(lo, hi))


def release(left: FormulaLike, lo: float, hi: float, right: FormulaLike) -> Formula:
    """``left R[lo,hi] right``."""
    return Release(as_formula(left), as_formula(right), _window(lo, hi))


def weak_until(left: FormulaLike, lo: float, hi: float, right: FormulaLike) -> Formula:
    """``left W[lo,hi] right``."""
    return WeakUntil(as_formula(left), as_formula(right), _window(lo, hi))


def next_sample(formula: FormulaLike, strong: bool = False) -> Formula:
    """``X formula``, with ``strong`` ``s_next formula``."""
    return Next(as_formula(formula), strong)


def historically(lo: float, hi: float, formula: FormulaLike) -> Formula:
    """``H[lo,hi] formula``."""
    return Historically(as_formula(formula), _window(lo, hi))


def once(lo: float, hi: float, formula: FormulaLike) -> Formula:
    """``O[lo,hi] formula``."""
    return Once(as_formula(formula), _window(lo, hi))


def since(left: FormulaLike, lo: float, hi: float, right: FormulaLike) -> Formula:
    """``left S[lo,hi] right``."""
    return Since(as_formula(left), as_formula(right), _window(lo, hi))


def previous_sample(formula: FormulaLike, strong: bool = False) -> Formula:
    """``Y formula``, with ``strong`` ``s_prev formula``."""
    return Previous(as_formula(formula), strong)


def iff(left: FormulaLike, right: FormulaLike) -> Formula:
    """``left <-> right``."""
    return Iff(as_formula(left), as_formula(right))


def xor(left: FormulaLike, right: FormulaLike) -> Formula:
    """``left xor right``: ``!(left <-> right)``."""
    return Not(iff(left, right))


def rise(formula: FormulaLike) -> Formula:
    """``rise(p)``: p, and not at the sample before; at the first sample p (as rtamt has it)."""
    arg = as_formula(formula)
    return And((arg, Not(Previous(arg, strong=True))))


def fall(formula: FormulaLike) -> Formula:
    """``fall(p)``: not p, but at the sample before; at the first sample not p (as rtamt has it)."""
    arg = as_formula(formula)
    return And((Previous(arg), Not(arg)))


def equal(left: ExprLike, right: ExprLike) -> Formula:
    """``left == right``."""
    return Predicate("==", expr(left), expr(right))


def unequal(left: ExprLike, right: ExprLike) -> Formula:
    """``left != right``."""
    return Predicate("!=", expr(left), expr(right))


# ---------------------------------------------------------------- questions about a formula


def children(formula: Formula) -> tuple[Formula, ...]:
    """The direct sub-formulas."""
    match formula:
        case And(args) | Or(args):
            return args
        case Not(arg) | Always(arg) | Eventually(arg) | Historically(arg) | Once(arg) | Next(arg) | Previous(arg):
            return (arg,)
        case Implies(left, right) | Iff(left, right):
            return (left, right)
        case Until(left, right) | Release(left, right) | WeakUntil(left, right) | Since(left, right):
            return (left, right)
        case Predicate() | Truth():
            return ()
    raise TypeError(f"not a formula: {formula!r}")


def depth(node: Formula | Expr) -> tuple[int, int]:
    """Nodes of ``node`` below each other at most, and how many at most of them are formulas.

    Without recursion, and once for each node, however often it stands there.
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
    """A :class:`FormulaError` where ``node`` is nested more deeply than the recursions over formulas go."""
    levels, formulas = depth(node)
    if levels > MAX_LEVELS or formulas > MAX_DEPTH:
        raise FormulaError(f"the formula is {TOO_DEEP}")


def is_temporal(formula: Formula) -> bool:
    """Whether the formula looks beyond one sample."""
    return isinstance(formula, FUTURE + PAST) or any(is_temporal(c) for c in children(formula))


def looks_back(formula: Formula) -> bool:
    """Whether the formula has an operator of the past."""
    return isinstance(formula, PAST) or any(looks_back(c) for c in children(formula))


def horizon(formula: Formula, dt: float | None = None) -> float:
    """Seconds of trace after which the value at time 0 no longer depends on the future; ``inf`` if unbounded.

    ``next`` looks one sample ahead: a formula with it needs ``dt``, the sample period in seconds.
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
    """Seconds before a sample on which the value there may depend; ``inf`` if unbounded. ``dt`` as in `horizon`."""
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
        raise FormulaError(f"{to_text(formula)} counts in samples: how far it looks needs the sample period dt")
    return dt


def clauses(formula: Formula) -> list[tuple[str, Formula]]:
    """The top-level conjuncts in order, each with its text; the formula is their conjunction."""
    if isinstance(formula, And):
        return [clause for arg in formula.args for clause in clauses(arg)]
    return [(to_text(formula), formula)]


def predicates_in(formula: Formula) -> Iterator[Predicate]:
    """Every predicate, from left to right, repeated ones repeated."""
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


def leaves_in(formula: Formula) -> Iterator[Signal | Constant]:
    """Every signal and constant of a formula, from left to right."""
    for predicate in predicates_in(formula):
        yield from leaves(predicate.left)
        yield from leaves(predicate.right)


def signals_in(formula: Formula) -> dict[str, Signal]:
    """The signals that the formula reads, by name."""
    return {leaf.name: leaf for leaf in leaves_in(formula) if isinstance(leaf, Signal)}


def constant_tuple(constant: Constant) -> tuple[float, ...]:
    """The value as a tuple, of length 1 for a scalar."""
    return constant.value if isinstance(constant.value, tuple) else (constant.value,)


def constants_in(formula: Formula) -> list[tuple[float, ...]]:
    """The constants of the formula from left to right, each as a tuple (of length 1 for a scalar)."""
    return [constant_tuple(leaf) for leaf in leaves_in(formula) if isinstance(leaf, Constant)]


# ---------------------------------------------------------------- text


def number_text(x: float) -> str:
    """The shortest text that reads back as ``x``."""
    return repr(float(x)).removesuffix(".0")


LETTERS = "xyz"


def component_names(of: Expr) -> str:
    """Letters of the components in storage order, ``""`` where components have numbers only.

    Quaternions (unit ``wxyz``) are stored scalar first. A vector of four that is no known quaternion has no letters:
    its ``w`` could be the first or the last.
    """
    if isinstance(of, Signal) and of.unit == "wxyz":
        return "wxyz"
    return LETTERS[: of.shape[0]] if len(of.shape) == 1 and of.shape[0] in (2, 3) else ""


WORDS: Mapping[str, str] = {
    word: terminal for terminal, words in {
        "ALWAYS": "G always", "EVENTUALLY": "F eventually", "HISTORICALLY": "H historically", "ONCE": "O once",
        "UNTIL": "U until", "RELEASE": "R release", "WEAK": "W unless weak_until", "SINCE": "S since",
        "NEXT": "X next sX s_next", "PREVIOUS": "Y prev previous sY s_prev", "NOT": "not", "AND": "and", "OR": "or",
        "IMPLIES": "implies", "IFF": "iff", "XOR": "xor", "TRUE": "true", "FALSE": "false",
        "TYPE": "float int long complex"}.items() for word in words.split()}
"""Words of the language and their terminals: a signal named so stands in quotes, nothing else can be named so."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def name_text(name: str) -> str:
    """The name of a signal as it stands in a text: in quotes where it is a word of the language or no plain name."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in WORDS else f'"{name}"'


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


# a comparison stands below U and the prefix operators, so that it gets parentheses there, for the reader
_LEVEL: Mapping[type[Formula], int] = {
    Iff: 1, Implies: 2, Or: 3, And: 4, Until: 5, Release: 5, WeakUntil: 5, Since: 5, Predicate: 5,
    Not: 6, Always: 6, Eventually: 6, Next: 6, Historically: 6, Once: 6, Previous: 6, Truth: 7}
_LETTER: Mapping[type[Formula], str] = {
    Always: "G", Eventually: "F", Historically: "H", Once: "O", Until: "U", Release: "R", WeakUntil: "W", Since: "S"}


def to_text(formula: Formula, level: int = 0) -> str:
    """Text that :func:`temporeal.sim.stl.language.parse.parse` reads back to an equal formula (given the same named
    constants)."""
    try:
        return _text(formula, level)
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def _text(formula: Formula, level: int) -> str:
    own = _LEVEL[type(formula)]
    match formula:
        case Truth(value):
            out = "true" if value else "false"
        case Predicate(op, left, right):
            out = f"{expr_text(left)} {op} {expr_text(right)}"
        case Not(arg):
            out = f"!{_text(arg, own)}"
        case And(args):
            out = " & ".join(_text(a, own + 1) for a in args)
        case Or(args):
            out = " | ".join(_text(a, own + 1) for a in args)
        case Implies(left, right):
            out = f"{_text(left, own + 1)} -> {_text(right, own + 1)}"
        case Iff(left, right):
            out = f"{_text(left, own + 1)} <-> {_text(right, own + 1)}"
        case Always(arg, window) | Eventually(arg, window) | Historically(arg, window) | Once(arg, window):
            out = f"{_LETTER[type(formula)]}{window_text(window)} {_text(arg, own)}"
        case Next(arg, strong) | Previous(arg, strong):
            letter, word = ("X", "s_next") if isinstance(formula, Next) else ("Y", "s_prev")
            out = f"{word if strong else letter} {_text(arg, own)}"
        case Until(left, right) | Release(left, right) | WeakUntil(left, right) | Since(left, right):
            operator = f"{_LETTER[type(formula)]}{window_text(formula.window)}"
            out = f"{_text(left, own + 1)} {operator} {_text(right, own + 1)}"
        case _:
            raise TypeError(f"not a formula: {formula!r}")
    return f"({out})" if own < level else out


def window_text(window: Window) -> str:
    """``[lo,hi]`` in seconds, nothing for all time."""
    return "" if window == ALL_TIME else f"[{number_text(window.lo)},{number_text(window.hi)}]"


# ---------------------------------------------------------------- JSON

_NODE_TYPES = (
    Signal, Constant, Component, Apply, Predicate, Truth, Not, And, Or, Implies, Iff, Always, Eventually, Until,
    Release, WeakUntil, Next, Historically, Once, Since, Previous)
_NODES: Mapping[str, type[Any]] = {cls.__name__.lower(): cls for cls in _NODE_TYPES}


def to_json(node: Formula | Expr) -> dict[str, Any]:
    """The node as JSON data: ``{"node": kind, field: value, ...}``; an unbounded window has ``null`` as its end."""
    try:
        return _data(node)
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def _data(node: Formula | Expr) -> dict[str, Any]:
    out: dict[str, Any] = {"node": type(node).__name__.lower()}
    for field in fields(node):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        if isinstance(value, (Formula, Expr)):
            value = _data(value)
        elif isinstance(value, Window):
            value = [value.lo, None if isinf(value.hi) else value.hi]
        elif isinstance(value, tuple):
            value = [_data(v) if isinstance(v, (Formula, Expr)) else v for v in value]
        out[field.name] = value
    return out


def from_json(data: Any) -> Any:
    """The formula or expression that :func:`to_json` wrote. It carries its constants, shapes and units.

    Anything else is a :class:`FormulaError` that names the place, as in ``.args[1].window``.
    """
    node = _node(data, "", 1, (Formula, Expr))
    if depth(node)[1] > MAX_DEPTH:
        raise _json_error("", TOO_DEEP)
    return node


def _json_error(place: str, rule: str) -> FormulaError:
    return FormulaError(f"formula JSON, {place or 'top level'}: {rule}")


def _node(data: Any, place: str, level: int, kinds: tuple[type[Any], ...]) -> Any:
    """The node ``data``, an instance of one of ``kinds``, and what is below it."""
    if level > MAX_LEVELS:
        raise _json_error(f"...{place[-40:]}", TOO_DEEP)
    known = ", ".join(name for name, cls in _NODES.items() if issubclass(cls, kinds))
    if not isinstance(data, Mapping):
        raise _json_error(place, f"a node is an object with the field 'node', got {short(data)}; known: {known}")
    name = data.get("node")
    if not isinstance(name, str) or name not in _NODES or not issubclass(_NODES[name], kinds):
        raise _json_error(place, f"unknown node {short(name)}; known: {known}")
    cls = _NODES[name]
    names, found = [f.name for f in fields(cls)], sorted(short(key) for key in data if key != "node")
    if found != sorted(map(repr, names)):
        raise _json_error(place, f"node {name!r} has the fields {', '.join(names)}; got {', '.join(found)}")
    values = {}
    for key in names:  # few frames of Python for each level, or the deepest formula would not fit
        values[key] = _field(cls, key, data[key], f"{place}.{key}", level)
    try:
        return cls(**values)
    except FormulaError as error:
        raise _json_error(place, error.rule) from None


def _field(cls: type[Any], name: str, data: Any, place: str, level: int) -> Any:
    """The field ``name`` of a node of class ``cls``."""
    if name in ("left", "right", "arg", "of"):
        return _node(data, place, level + 1, (Expr,) if cls in (Predicate, Component) else (Formula,))
    if name == "args":
        kinds = (Expr,) if cls is Apply else (Formula,)
        args = []
        for i, d in enumerate(_list(data, place)):
            args.append(_node(d, f"{place}[{i}]", level + 1, kinds))
        return tuple(args)
    if name == "window":
        return _json_window(data, place)
    if name == "dims":
        return tuple(_whole(d, f"{place}[{i}]", 1) for i, d in enumerate(_list(data, place)))
    if name == "index":
        return _whole(data, place, 0)
    if cls is Constant and name == "value":
        if isinstance(data, list):
            return tuple(_number(d, f"{place}[{i}]") for i, d in enumerate(data))
        return _number(data, place)
    kind = bool if name in ("strong", "value") else str
    if not isinstance(data, kind):
        raise _json_error(place, f"{'true or false' if kind is bool else 'a text'} expected, got {short(data)}")
    return data


def _json_window(data: Any, place: str) -> Window:
    bounds = _list(data, place)
    if len(bounds) != 2:
        raise _json_error(place, f"a window is [lo, hi] in seconds, hi null for no end, got {short(data)}")
    low = _number(bounds[0], f"{place}[0]")
    high = inf if bounds[1] is None else _number(bounds[1], f"{place}[1]")
    try:
        return Window(low, high)
    except FormulaError as error:
        raise _json_error(place, error.rule) from None


def _list(data: Any, place: str) -> Sequence[Any]:
    if not isinstance(data, (list, tuple)):
        raise _json_error(place, f"a list expected, got {short(data)}")
    return data


def _whole(data: Any, place: str, least: int) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or data < least:
        raise _json_error(place, f"a whole number, {least} or more, expected, got {short(data)}")
    return data


def _number(data: Any, place: str) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise _json_error(place, f"a number expected, got {short(data)}")
    try:
        number = float(data)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise _json_error(place, f"a finite number expected, got {short(data)}")
    return number
