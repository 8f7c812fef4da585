"""Models and predicates as affine functions of state, time and one, for mixed-integer programs.

A margin is an affine function, or a minimum or maximum of several: |x| is max(x, -x), a box has four sides. A disc in
the plane is replaced by a polygon on the safe side: ``norm(p - a) < r`` asks for the inscribed polygon of ``sides``
sides, ``norm(p - a) > r`` for the outside of the circumscribed one of ``facets`` sides. D state, A action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.planning.problem import TIME, Problem
from temporeal.sim.stl.language.propositional import (
    Apply,
    Component,
    Constant,
    Expr,
    Signal,
    expr_text,
    to_text,
)
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.language.values import NUMPY_OPERATIONS
from temporeal.sim.stl.rewriting.lower import Leaf

Array = np.ndarray


class NotLinear(ValueError):
    """A predicate or a model is not affine in state and action."""


class System(NamedTuple):
    """x[t+1] = a x[t] + b u[t] + c, and the affine signals of x: rows [*shape, D + 2] (state, time in s, 1)."""

    a: Array  # [D, D]
    b: Array  # [D, A]
    c: Array  # [D]
    start: Array  # [D]
    signals: dict[str, Array]


TOLERANCE = 1e-4  # relative: rounding of a float32 model


@torch.no_grad()
def linearized(asked: Problem) -> System:
    """The model's matrices at the robot's state, checked at other states too; otherwise a :class:`NotLinear`."""
    model, x0 = asked.model, asked.state[:1].double()
    size, acts = x0.shape[1], model.action_dim
    draws = torch.Generator().manual_seed(0)
    elsewhere = torch.randn(8, size, generator=draws), torch.rand(8, acts, generator=draws) * 2 - 1
    x = torch.cat([torch.zeros(1, size), torch.eye(size), torch.zeros(acts, size), elsewhere[0]])
    u = torch.cat([torch.zeros(1 + size, acts), torch.eye(acts), elsewhere[1]])
    x, u = x.to(x0) + x0, u.to(x0)
    c, a, b = _affine(model.step(x, u), x - x0, u, size, f"the model ({type(model).__name__}.step)")
    out = model.signals(x)
    signals = {}
    for name in signals_in(asked.formula):
        if name == TIME:
            signals[TIME] = np.eye(size + 2)[size]
            continue
        flat = out[name].reshape(len(x), -1)
        offset, rows, _ = _affine(flat, x - x0, torch.zeros_like(u), size, f"signal {name!r} of {type(model).__name__}")
        row = np.concatenate([rows, np.zeros((len(rows), 1)), (offset - rows @ _numbers(x0[0]))[:, None]], 1)
        signals[name] = row.reshape(*out[name].shape[1:], size + 2)
    start = _numbers(x0[0])
    return System(a, b, c - a @ start, start, signals)


def _affine(y: Tensor, x: Tensor, u: Tensor, size: int, what: str) -> tuple[Array, Array, Array]:
    """c, a and b of y = c + a x + b u from the first rows (zero, unit vectors), checked on the rest."""
    y, x, u = (_numbers(v) for v in (y, x, u))
    acts = u.shape[1]
    c, a, b = y[0], (y[1 : 1 + size] - y[0]).T, (y[1 + size : 1 + size + acts] - y[0]).T
    error = np.abs(y - (c + x @ a.T + u @ b.T)).max(initial=0.0)
    if not error <= TOLERANCE * (1.0 + np.abs(y).max(initial=0.0)):
        raise NotLinear(f"{what} is not affine in state and action (off by {error:.3g}): milp plans for linear "
                        "systems; take cem or npc")
    clean = [np.where(np.abs(v) < 1e-6, 0.0, v) for v in (a, b)]  # differences of rounded numbers
    return c, clean[0], clean[1]


def _numbers(x: Tensor) -> Array:
    return x.detach().cpu().double().numpy()


class Least(NamedTuple):
    """The minimum of several :data:`Terms`."""

    args: tuple[Any, ...]


class Most(NamedTuple):
    """The maximum of several :data:`Terms`."""

    args: tuple[Any, ...]


Terms = Any
"""An affine function [D + 2] of state, time and 1; or a :class:`Least` or :class:`Most` of some."""


@dataclass(frozen=True)
class Shapes:
    """Numbers of sides of polygons."""

    signals: dict[str, Array]
    sides: int
    facets: int


def margin_terms(leaf: Leaf, shapes: Shapes) -> Terms:
    """Terms that never exceed the margin of ``leaf``: the margin itself, except for discs."""
    predicate = leaf.predicate
    gap = Apply("-", (predicate.left, predicate.right))
    equality = predicate.op in ("==", "!=")
    positive = predicate.op in (">", ">=", "!=")
    try:
        return under(Apply("abs", (gap,)) if equality else gap, positive != leaf.negated, shapes)
    except NotLinear as error:
        raise NotLinear(f"predicate {to_text(predicate)}: {error}; milp takes affine functions of the state, abs, min, "
                        "max of them and norms in the plane") from None


def under(e: Expr, positive: bool, shapes: Shapes) -> Terms:
    """A lower bound of ``e``, or of ``-e`` if ``positive`` is false; exact except for norms."""
    row = affine(e, shapes)
    if row is not None:
        return row if positive else -row
    match e:
        case Apply("neg", (arg,)):
            return under(arg, not positive, shapes)
        case Apply("+" | "-" as op, (left, right)):
            return summed(under(left, positive, shapes), under(right, positive == (op == "+"), shapes))
        case Apply("*" | "/" as op, (left, right)):
            return _multiple(e, op, left, right, positive, shapes)
        case Apply("abs", (arg,)):
            both = (under(arg, True, shapes), under(arg, False, shapes))
            return Most(both) if positive else Least(both)
        case Apply("min" | "max" as op, args):
            kind = Least if (op == "min") == positive else Most
            return kind(tuple(under(a, positive, shapes) for a in args))
        case Apply("norm", (v,)):
            return _norm(e, affine(v, shapes), positive, shapes)
        case Apply("dist", (v, w)):
            return _norm(e, affine(Apply("-", (v, w)), shapes), positive, shapes)
        case Apply("hypot", (x, y)):
            parts = [affine(x, shapes), affine(y, shapes)]
            return _norm(e, None if any(p is None for p in parts) else np.stack(parts), positive, shapes)  # type: ignore[arg-type]
    raise NotLinear(f"{expr_text(e)} is not affine in the state")


def affine(e: Expr, shapes: Shapes) -> Array | None:
    """The rows [*shape, D + 2] of an affine expression; None if it is not affine."""
    match e:
        case Signal(name):
            return shapes.signals[name]
        case Constant(value):
            flat = np.asarray(value, float)
            width = next(iter(shapes.signals.values())).shape[-1]
            return np.concatenate([np.zeros((*flat.shape, width - 1)), flat[..., None]], -1)
        case Component(of, index):
            rows = affine(of, shapes)
            return None if rows is None else rows[index]
        case Apply(op, args):
            rows = [affine(a, shapes) for a in args]
            return None if any(r is None for r in rows) else _applied(op, rows)  # type: ignore[arg-type]
    raise TypeError(f"not an expression: {e!r}")


def _applied(op: str, rows: Sequence[Array]) -> Array | None:
    """``op`` of affine functions, if the result is affine."""
    if op == "+" or op == "-":
        return rows[0] + rows[1] if op == "+" else rows[0] - rows[1]
    if op == "neg":
        return -rows[0]
    fixed = [not r[..., :-1].any() for r in rows]
    if op == "*" and any(fixed):
        factor, other = (rows[0], rows[1]) if fixed[0] else (rows[1], rows[0])
        if factor.ndim <= other.ndim:
            return factor[..., -1:] * other
        return factor[..., -1:] * other[None]
    if op == "/" and fixed[1]:
        return rows[0] / rows[1][..., -1:]
    if not all(fixed):
        return None
    numbers = [r[..., -1] for r in rows]
    value = np.asarray(numbers[0] if len(numbers) > 1 else NUMPY_OPERATIONS[op](numbers[0]))
    for x in numbers[1:]:
        value = np.asarray(NUMPY_OPERATIONS[op](value, x))
    return np.concatenate([np.zeros((*value.shape, rows[0].shape[-1] - 1)), value[..., None]], -1)


def summed(a: Terms, b: Terms) -> Terms:
    """a + b: the sum of two minima is the minimum of all sums."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, (Least, Most)):
            return type(x)(tuple(summed(part, y) for part in x.args))
    return a + b


def _scaled(a: Terms, by: float) -> Terms:
    return type(a)(tuple(_scaled(x, by) for x in a.args)) if isinstance(a, (Least, Most)) else a * by


def _multiple(e: Expr, op: str, left: Expr, right: Expr, positive: bool, shapes: Shapes) -> Terms:
    for number, other in ((right, left), (left, right))[: 1 if op == "/" else 2]:
        row = affine(number, shapes)
        if row is not None and not row[..., :-1].any():
            by = 1.0 / row[-1] if op == "/" else float(row[-1])
            return _scaled(under(other, positive == (by >= 0), shapes), abs(by))
    raise NotLinear(f"{expr_text(e)} is not affine in the state")


def _norm(e: Expr, rows: Array | None, positive: bool, shapes: Shapes) -> Terms:
    """Bound of the length of a vector of affine functions [n, D + 2], of which at most two may vary."""
    if rows is None:
        raise NotLinear(f"{expr_text(e)} is the length of what is not affine in the state")
    moving = rows[:, :-1].any(1)
    fixed, rows = float(np.linalg.norm(rows[~moving, -1])), rows[moving]
    if len(rows) > 2:
        raise NotLinear(f"{expr_text(e)} is a length in {len(rows)} dimensions")
    if len(rows) == 1:
        sides, shrink = [rows[0], -rows[0]], 1.0
    else:
        count = shapes.facets if positive else shapes.sides
        angles = 2 * pi * np.arange(count) / count
        sides, shrink = list(np.stack([np.cos(angles), np.sin(angles)], 1) @ rows), cos(pi / count)
    constant = np.zeros(rows.shape[1])
    constant[-1] = fixed
    if positive:  # |v| >= every n.v with |n| = 1
        return Most((*sides, *([constant] if fixed else [])))
    return Least(tuple(-side / shrink - constant for side in sides))  # |v| <= max n.v / cos(pi / n)
