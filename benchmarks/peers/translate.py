"""Formulas as the peers write them."""

from __future__ import annotations

from math import inf, isinf
from typing import Any

from temporeal.sim.stl.language.propositional import (
    And,
    Apply,
    Constant,
    Expr,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    to_text,
)
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Since,
    Until,
    WeakUntil,
    Window,
)
from temporeal.sim.stl.language.text import number_text

_RTAMT_UNARY = {Always: "always", Eventually: "eventually", Historically: "historically", Once: "once"}
_RTAMT_BINARY = {Until: "until", Since: "since", WeakUntil: "unless"}


class NotThere(ValueError):
    """A peer has no such operator."""


def to_rtamt(formula: Formula) -> str:
    """``formula`` in the language of rtamt, every sub-formula in parentheses; scalar signals only."""

    def infix(word: str, *parts: Formula) -> str:
        return "(" + f" {word} ".join(to_rtamt(p) for p in parts) + ")"

    match formula:
        case Predicate(op, left, right):
            return f"({_rtamt_expr(left)} {'!==' if op == '!=' else op} {_rtamt_expr(right)})"
        case Not(arg):
            return f"(not {to_rtamt(arg)})"
        case And(args):
            return infix("and", *args)
        case Or(args):
            return infix("or", *args)
        case Implies(left, right):
            return infix("implies", left, right)
        case Iff(left, right):
            return infix("iff", left, right)
        case Next(arg, strong):
            return f"({'s_next' if strong else 'next'} {to_rtamt(arg)})"
        case Previous(arg, strong):
            return f"({'s_prev' if strong else 'prev'} {to_rtamt(arg)})"
        case Always(arg, window) | Eventually(arg, window) | Historically(arg, window) | Once(arg, window):
            return f"({_RTAMT_UNARY[type(formula)]}{_rtamt_window(window)} {to_rtamt(arg)})"
        case Until(left, right, window) | Since(left, right, window):
            return infix(_RTAMT_BINARY[type(formula)] + _rtamt_window(window), left, right)
        case WeakUntil(left, right, window) if not isinf(window.hi):  # rtamt's parser breaks off without a window
            return infix(_RTAMT_BINARY[type(formula)] + _rtamt_window(window), left, right)
    raise NotThere(f"rtamt has no {to_text(formula)}")


def _rtamt_window(window: Window) -> str:
    if window == Window(0.0, inf):
        return ""
    if isinf(window.hi):
        raise NotThere("rtamt has no window that begins later than now and has no end")
    return f"[{number_text(window.lo)},{number_text(window.hi)}]"


def _rtamt_expr(expr: Expr) -> str:
    match expr:
        case Signal(name, ()):
            return name
        case Constant(float(number)):
            return number_text(number)
        case Apply("neg", (arg,)):
            return f"(0 - {_rtamt_expr(arg)})"
        case Apply("-", (left, Constant() as right)):  # its grammar has two readings of "x - 1"
            return f"({_rtamt_expr(left)} - ({_rtamt_expr(right)}))"
        case Apply("+" | "-" | "*" | "/" as op, (left, right)):
            return f"({_rtamt_expr(left)} {op} {_rtamt_expr(right)})"
        case Apply("abs" | "sqrt" | "exp" | "pow" as op, args):
            return f"{op}({', '.join(_rtamt_expr(a) for a in args)})"
    raise NotThere(f"rtamt has no {expr}")


def to_stlcgpp(formula: Formula, dt: float) -> list[Any]:
    """``formula`` for :func:`temporeal_benchmarks.peers.stlcgpp_worker.build`: ``signal > number``, and, G, F and U."""
    match formula:
        case Predicate(">", Signal(name, ()), Constant(float(number))):
            return [">", name, number]
        case And(args):
            return ["and", *(to_stlcgpp(a, dt) for a in args)]
        case Always(arg, window) | Eventually(arg, window):
            return ["G" if isinstance(formula, Always) else "F", *_bounded(window, dt), to_stlcgpp(arg, dt)]
        case Until(left, right, window):
            return ["U", *_bounded(window, dt), to_stlcgpp(left, dt), to_stlcgpp(right, dt)]
    raise NotThere(f"no translation to stlcg++ of {to_text(formula)}")


def _bounded(window: Window, dt: float) -> tuple[int, int]:
    lo, hi = window_steps(window, dt)
    if hi is None:
        raise NotThere("windows without an end are not translated to stlcg++")
    return lo, hi
