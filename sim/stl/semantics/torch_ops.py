"""Exact semantics of torch tensors on any device, and margins as functions of tensors. Imported for tensors only."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from math import inf, nan, pi
from typing import Any

import torch
from torch import Tensor

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
    constant_tuple,
)
from temporeal.sim.stl.language.queries import leaves, operations_in, signals_in
from temporeal.sim.stl.language.values import Arrays, numpy_arrays, predicate_margin, raised, signed_margin, value
from temporeal.sim.stl.rewriting.lower import Leaf, Lowered
from temporeal.sim.stl.semantics.torch_scans import Algebra, Fold, Parts, recursion, walk


def _norm(v: Tensor) -> Tensor:
    # not sqrt(sum of squares): the gradient of vector_norm at zero is zero, not NaN
    out: Tensor = torch.linalg.vector_norm(v, dim=-1)
    return out


def _tensors(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """``function`` that also takes a number as one of its arguments."""

    def of(a: Tensor | float, b: Tensor | float) -> Tensor:
        if isinstance(a, Tensor):
            return function(a, b if isinstance(b, Tensor) else torch.full_like(a, b))
        assert isinstance(b, Tensor)  # two numbers were folded before
        return function(torch.full_like(b, a), b)

    return of


def _hypot(a: Tensor, b: Tensor) -> Tensor:
    return _norm(torch.stack([a, b], -1))


def _angle(v: Tensor, w: Tensor) -> Tensor:
    v, w = v * _norm(w)[..., None], w * _norm(v)[..., None]
    return 2 * torch.atan2(_norm(v - w), _norm(v + w))


def _rotation_angle(q: Tensor, p: Tensor) -> Tensor:
    half = _angle(q, p)
    return 2 * torch.minimum(half, pi - half)


def _quotient(a: Any, b: Any) -> Any:
    """See `language.values`: a division by zero is NaN."""
    return a / b if isinstance(b, float) and b != 0 else _undefined(a / b, b == 0)


def _power(a: Any, n: Any) -> Any:
    """See `language.values`: a negative power of zero is NaN."""
    out = torch.pow(a, n)
    return out if isinstance(n, float) and n >= 0 else _undefined(out, (a == 0) & (n < 0))


def _undefined(x: Tensor, where: Any) -> Tensor:
    """``x``, NaN at the samples ``where`` it has no value."""
    return torch.where(where, nan, x) if isinstance(where, torch.Tensor) else x * nan if where else x


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "neg": operator.neg,
    "abs": torch.abs, "sqrt": torch.sqrt, "exp": torch.exp, "sin": torch.sin, "cos": torch.cos,
    "wrap": lambda a: torch.atan2(torch.sin(a), torch.cos(a)), "pow": _power,
    "norm": _norm, "dist": lambda a, b: _norm(a - b), "angle": _angle, "rotation_angle": _rotation_angle,
    "hypot": _tensors(_hypot), "atan2": _tensors(torch.atan2),
    "min": _tensors(torch.minimum), "max": _tensors(torch.maximum),
}


def torch_arrays(like: Tensor) -> Arrays:
    """The functions of torch, with vector constants of the type and device of ``like``."""
    dtype = like.dtype if like.dtype.is_floating_point else torch.get_default_dtype()

    def vector(value: tuple[float, ...]) -> Tensor:
        # filled on the device, not copied to it: no synchronization, and no warning of a tracer
        return torch.stack([torch.full((), x, dtype=dtype, device=like.device) for x in value])

    return Arrays(OPERATIONS, vector)


# operations whose gradient is infinite or undefined somewhere in their domain
_SINGULAR = frozenset(("sqrt", "pow", "/", "exp", "atan2", "hypot", "angle", "rotation_angle"))


def nan_safe_margin(predicate: Predicate, signals: Mapping[str, Tensor]) -> Any:
    """The margin of a predicate; signals get a gradient of zero at every sample at which the margin's is zero.

    Otherwise a zero gradient would become NaN at an infinite derivative (``sqrt(x)`` at 0), from samples that are not
    critical.
    """
    names = signals_in(predicate)
    arrays = torch_arrays(next(iter(signals.values())))
    plain = all(not torch._C._functorch.is_functorch_wrapped_tensor(signals[n]) for n in names)
    if not plain or not any(signals[n].requires_grad for n in names) or not operations_in(predicate) & _SINGULAR:
        return predicate_margin(predicate, signals, arrays)
    critical: dict[str, Tensor] = {}

    def note(gradient: Tensor) -> None:
        critical["samples"] = gradient != 0

    def masked(gradient: Tensor) -> Tensor:
        samples = critical["samples"]
        return torch.where(samples.reshape(*samples.shape, *[1] * (gradient.ndim - samples.ndim)), gradient, 0)

    used = dict(signals)
    for name in names:
        if signals[name].requires_grad:
            used[name] = signals[name].view_as(signals[name])
            used[name].register_hook(masked)
    margin = predicate_margin(predicate, used, arrays)
    if isinstance(margin, Tensor) and margin.requires_grad:
        margin.register_hook(note)
    return margin


def margin_function(formula: Formula) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """The margin of a formula without temporal operators as one function of the signals, for the step of a simulation.

    The same as `robustness.margin`, but the formula is walked and checked once and not at each call. Signals have any
    equal leading dimensions. Each predicate must read a signal.
    """
    match formula:
        case Predicate(op, left, right):
            a, b = _value_function(left), _value_function(right)
            return lambda s: signed_margin(op, a(s), b(s))
        case Not(arg):
            inner = margin_function(arg)
            return lambda s: -inner(s)
        case And(args) | Or(args):
            fold = torch.minimum if isinstance(formula, And) else torch.maximum
            parts = [margin_function(arg) for arg in args]
            return lambda s: reduce(fold, [part(s) for part in parts])
        case Implies(left, right):
            return margin_function(Or((Not(left), right)))
        case Iff(left, right):
            return margin_function(And((Implies(left, right), Implies(right, left))))
    raise FormulaError(f"a margin is that of one sample; this formula looks further: {formula}")


def _value_function(expression: Expr) -> Callable[[Mapping[str, Tensor]], Any]:
    match expression:
        case Signal(name):
            return lambda s: s[name]
        case Constant(number):
            if not isinstance(number, tuple):
                return lambda s: number
            made: dict[tuple[torch.device, torch.dtype], Tensor] = {}

            def vector(s: Mapping[str, Tensor]) -> Tensor:
                like = next(iter(s.values()))
                key = (like.device, like.dtype)
                if key not in made:
                    made[key] = torch_arrays(like).vector(number)
                return made[key]

            return vector
        case Component(of, index):
            if isinstance(of, Constant):
                entry = constant_tuple(of)[index]
                return lambda s: entry
            inner, rest = _value_function(of), [slice(None)] * (len(of.shape) - 1)
            return lambda s: inner(s)[(..., index, *rest)]
        case Apply() if not expression.shape and all(isinstance(leaf, Constant) for leaf in leaves(expression)):
            folded = float(value(expression, {}, numpy_arrays()))
            return lambda s: folded
        case Apply(op, args):
            function, parts = OPERATIONS[op], [_value_function(a) for a in args]
            rank = len(expression.shape) if op in ("*", "/") else 0
            axes = [max(0, rank - len(a.shape)) for a in args]

            def apply(s: Mapping[str, Tensor]) -> Any:
                numbers = [raised(part(s), n) for part, n in zip(parts, axes)]
                return reduce(function, numbers) if len(numbers) > 1 else function(numbers[0])

            return apply
    raise TypeError(f"not an expression: {expression!r}")


# ---------------------------------------------------------------- exact evaluation


def evaluate(
    lowered: Lowered, leaf: Callable[[Leaf], Tensor], shape: Sequence[int], like: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Value [T, ...] of a lowered formula at every sample, on any device: O(T) work and memory for every node.

    Args:
        lowered: the formula. The caller appends the samples past the end of the strong and weak views.
        leaf: the margins ``shape`` of a leaf, or its truth, with the negation applied.
        shape: T and the batch dimensions.
        like: a tensor of the type and device of the values: floating for robustness, bool for satisfaction.
        mask: true where a sample exists. Values where it is false mean nothing.

    A NaN makes every value NaN that depends on it. The gradient is a subgradient: that of the critical sample, of the
    last one or half and half where several are equal, none where a window is empty. ``torch.func`` transforms apply.
    """
    return walk(lowered, leaf, shape, like, mask, _TRUTH if like.dtype == torch.bool else _MARGIN)


def _running(function: Callable[..., Any], parts: Parts, turned: bool) -> Parts:
    """``torch.cummax`` or ``cummin`` along axis 1; ``turned``: from the end."""
    (x,) = parts
    if not turned:
        return (function(x, 1).values,)
    return (function(x.flip(1), 1).values.flip(1),)


def _exact(neutral: float | bool, pair: Callable[[Tensor, Tensor], Tensor], running: Callable[..., Any]) -> Fold:
    def join(a: Parts, b: Parts) -> Parts:
        return (pair(a[0], b[0]),)

    return Fold(neutral, lambda x: (x,), join, lambda parts: parts[0],
                partial(_running, running, turned=False), partial(_running, running, turned=True))


def _scan(bottom: float | bool, top: float | bool, most: bool, keep: Tensor, reach: Tensor) -> Tensor:
    """``u[t] = max(reach[t], min(keep[t], u[t+1]))``; without ``most`` min and max are swapped.

    The maps u -> max(p, min(q, u)) are closed under composition, because min and max distribute over each other.
    """
    join, meet = (torch.maximum, torch.minimum) if most else (torch.minimum, torch.maximum)

    def apply(f: Parts, u: Parts) -> Parts:
        return (join(f[0], meet(f[1], u[0])),)

    def compose(f: Parts, g: Parts) -> Parts:
        return (*apply(f, g[:1]), meet(f[1], g[1]))

    last = torch.full_like(reach[:1], bottom if most else top)
    return recursion((reach, keep), (last,), compose, apply)[0]


def _algebra(bottom: float | bool, top: float | bool) -> Algebra:
    return Algebra(_exact(bottom, torch.maximum, torch.cummax), _exact(top, torch.minimum, torch.cummin),
                   partial(_scan, bottom, top))


_MARGIN, _TRUTH = _algebra(-inf, inf), _algebra(False, True)
