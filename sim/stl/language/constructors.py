"""Functions that build expressions and formulas: ``norm(pos - goal)``, ``always(0, 10, p)``, ``iff(p, q)``."""

from __future__ import annotations

from temporeal.sim.stl.language.propositional import (
    And,
    Apply,
    Expr,
    ExprLike,
    Formula,
    FormulaLike,
    Iff,
    Not,
    Predicate,
    as_formula,
    expr,
)
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
    Window,
)


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
