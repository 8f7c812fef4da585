"""Exponential and hyperbolic tangent as arithmetic on symbols, 16 rows at once; the C library takes one number a call.

No fused multiply-adds, so that a result is the same on every processor. The polynomials are minimax polynomials of the
reduced argument, fitted in float64 by Lawson's reweighted least squares; the reduction by two parts of ln 2 follows
Cody and Waite, Software Manual for the Elementary Functions, 1980. Both functions are within 1.5 units in the last
place of the true value (``tests/sim/compiler/test_elementary.py`` fits the polynomials anew).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from temporeal.sim.compiler.expressions import Trace, Value

LOG2_E = 1.44269504
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # the first has 9 bits: its multiples by up to 2^15 are exact
EXP = (0.49999994, 0.16666520, 0.041668393, 0.0083687808, 0.0013814467)  # (e^r - 1 - r) / r^2, |r| <= ln(2) / 2
TANH = (-0.33333281, 0.13331442, -0.053739715, 0.020639088, -0.0057049873)  # (tanh(x) - x) / x^3 of x^2, |x| <= 0.625
EXP_ENDS = -104.0, 89.0  # where it is 0 and infinity in float32
TANH_ONE = 10.0  # from here on it is 1


def exp(t: Trace, x: Value) -> Value:
    """e to the power of ``x``."""
    x = t.binary("min", t.binary("max", x, EXP_ENDS[0]), EXP_ENDS[1])
    n, p = _reduced(t, x)
    half = t.unary("floor", t.binary("mul", n, 0.5))  # by two powers of 2: one alone would end at 2^-126 and 2^127
    scaled = t.binary("mul", p, t.unary("power2", half))
    return t.binary("mul", scaled, t.unary("power2", t.binary("sub", n, half)))


def tanh(t: Trace, x: Value) -> Value:
    """The hyperbolic tangent of ``x``."""
    size, square = t.unary("abs", x), t.binary("mul", x, x)
    n, p = _reduced(t, t.binary("mul", t.binary("min", size, TANH_ONE), 2.0))
    e = t.binary("mul", p, t.unary("power2", n))
    far = t.binary("sub", 1.0, t.binary("div", 2.0, t.binary("add", e, 1.0)))
    near = t.binary("mul", x, t.binary("add", t.binary("mul", square, _polynomial(t, square, TANH)), 1.0))
    signed = t.where(t.binary("lt", x, 0.0), t.unary("neg", far), far)
    return t.where(t.binary("lt", size, 0.625), near, signed)


def _reduced(t: Trace, x: Value) -> tuple[Value, Value]:
    """n and p with e^x = p 2^n."""
    n = t.unary("round", t.binary("mul", x, LOG2_E))
    r = t.binary("sub", t.binary("sub", x, t.binary("mul", n, LN2_HIGH)), t.binary("mul", n, LN2_LOW))
    tail = t.binary("mul", t.binary("mul", r, r), _polynomial(t, r, EXP))
    return n, t.binary("add", t.binary("add", r, tail), 1.0)


def _polynomial(t: Trace, x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule, the constant coefficient first."""
    first, *rest = reversed(coefficients)
    return reduce(lambda value, c: t.binary("add", t.binary("mul", value, x), c), rest, first)


ARITHMETIC = {"exp": exp, "tanh": tanh}
