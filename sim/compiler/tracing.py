"""Tracing: a function of rows is called once with a row of symbols, and each result is an expression.

The function consists of tensor operations and computes every row from that row alone. Indexing, shapes, views and
concatenations are resolved while tracing: what remains are operations on single numbers, each distinct one once
(:mod:`temporeal.sim.compiler.expressions`). :mod:`temporeal.sim.compiler.vectorize` writes them as vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler import elementary
from temporeal.sim.compiler.expressions import (
    ARITHMETIC,
    COMPARE,
    INTRINSICS,
    LIBRARY,
    LOGIC,
    CannotCompile,
    Symbol,
    Trace,
    Value,
)

Function = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]
Shapes = Mapping[str, tuple[int, ...]]


class TracedTensor(Tensor):
    """A tensor [1, ...] whose numbers are symbols: what a function is called with to be traced."""

    values: np.ndarray
    trace: Trace

    @staticmethod
    def __new__(cls, values: np.ndarray, trace: Trace) -> TracedTensor:
        first = values.flat[0] if values.size else 0.0
        boolean = first.boolean if isinstance(first, Symbol) else isinstance(first, bool)
        made: TracedTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.shape, dtype=torch.bool if boolean else torch.float32)
        made.values, made.trace = values, trace
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"TracedTensor(shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in OPERATIONS:
            raise CannotCompile(f"{name}: {REASONS.get(name, 'not among the operations on rows')}; "
                                f"known: {', '.join(sorted(OPERATIONS))}")
        trace = next(a.trace for a in _flat(args) if isinstance(a, TracedTensor))
        found = OPERATIONS[name](trace, *(_values(a) for a in args), **{
            k: _values(v) for k, v in (kwargs or {}).items() if k not in ("device", "layout", "pin_memory",
                                                                          "memory_format", "non_blocking")})
        if isinstance(found, (list, tuple)):
            return [cls(x, trace) for x in found]
        return cls(found, trace)


REASONS = {
    "_local_scalar_dense": "the function decides by the values of a row (if, bool, int or float of a tensor); "
                           "use torch.where"}


def _flat(args: Any) -> Iterator[Any]:
    for a in args:
        if isinstance(a, (list, tuple)):
            yield from _flat(a)
        else:
            yield a


def _values(a: Any) -> Any:
    if isinstance(a, TracedTensor):
        return a.values
    if isinstance(a, Tensor):
        numbers = a.detach().cpu()
        return _constants(numbers.numpy() if numbers.dtype == torch.bool else numbers.to(torch.float32).numpy())
    if isinstance(a, (list, tuple)):
        return [_values(x) for x in a]
    return a


def _constants(a: np.ndarray) -> np.ndarray:
    out = np.empty(a.shape, dtype=object)
    out[...] = a.tolist() if a.ndim else a.item()
    return out


def _each(function: Callable[..., Value], *arrays: Any) -> np.ndarray:
    """``function`` of each element, with broadcasting."""
    parts = [a if isinstance(a, np.ndarray) else _constants(np.asarray(a)) for a in arrays]
    shapes = np.broadcast_arrays(*parts)
    out = np.empty(shapes[0].shape, dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(*(s[index] for s in shapes))
    return out


def _binary(op: str) -> Callable[..., np.ndarray]:
    def of(t: Trace, a: Any, b: Any, alpha: float = 1) -> np.ndarray:
        if alpha != 1:
            b = _each(lambda x: t.binary("mul", x, float(alpha)), b)
        return _each(lambda x, y: t.binary(op, x, y), a, b)

    return of


def _logic(op: str) -> Callable[..., np.ndarray]:
    return lambda t, a, b: _each(lambda x, y: t.logic(op, x, y), a, b)


def _unary(op: str) -> Callable[..., np.ndarray]:
    made = elementary.ARITHMETIC.get(op)

    def of(t: Trace, x: Value) -> Value:
        return made(t, x) if made is not None and isinstance(x, Symbol) else t.unary(op, x)

    return lambda t, a: _each(lambda x: of(t, x), a)


NEUTRAL: dict[str, float | bool] = {"or": False, "and": True, "mul": 1.0, "add": 0.0}


def _fold(op: str) -> Callable[..., np.ndarray]:
    """A reduction over axes: ``op`` from left to right."""

    def of(t: Trace, a: np.ndarray, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> np.ndarray:
        combine = t.logic if op in LOGIC else t.binary
        axes = _axes(a, dim)
        kept = [s for i, s in enumerate(a.shape) if i not in axes]
        moved = np.moveaxis(a, axes, range(len(axes))).reshape(prod(a.shape[i] for i in axes), prod(kept))
        if not len(moved):
            if op not in NEUTRAL:
                raise CannotCompile(f"{op} of no elements: shape {a.shape}, axes {axes}")
            moved = _constants(np.full((1, moved.shape[1]), NEUTRAL[op]))
        out = np.empty(moved.shape[1], dtype=object)
        for i in range(len(out)):
            out[i] = reduce(lambda x, y: combine(op, x, y), moved[1:, i], moved[0, i])
            out[i] = t.truth(out[i]) if op in LOGIC else t.number(out[i])
        out = out.reshape(kept)
        return np.expand_dims(out, axes) if keepdim else out

    return of


def _axes(a: np.ndarray, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == []:
        return tuple(range(a.ndim))
    return tuple(d % a.ndim for d in (dim if isinstance(dim, (list, tuple)) else [dim]))


def _sum(t: Trace, a: np.ndarray, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> np.ndarray:
    return _fold("add")(t, a, dim, keepdim)


def _mean(t: Trace, a: np.ndarray, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> np.ndarray:
    size = prod(a.shape[i] for i in _axes(a, dim))
    return _each(lambda x: t.binary("div", x, float(size)), _sum(t, a, dim, keepdim))


def _extreme(op: str) -> Callable[..., Any]:
    def of(t: Trace, a: np.ndarray, *rest: Any, **named: Any) -> Any:
        if rest and isinstance(rest[0], np.ndarray):  # of two tensors
            return _binary(op)(t, a, rest[0])
        values = _fold(op)(t, a, *rest, **named)
        # with a dimension, torch returns places too: never needed here, and not a number if they are
        return values if not rest and not named else (values, _each(lambda v: t.make("no place", v), values))

    return of


def _norm(t: Trace, a: np.ndarray, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if ord != 2:
        raise CannotCompile(f"norm of order {ord}; known: 2")
    return _unary("sqrt")(t, _sum(t, _binary("mul")(t, a, a), dim, keepdim))


def _pow(t: Trace, a: Any, b: Any) -> np.ndarray:
    fixed = None if isinstance(b, np.ndarray) else b
    if fixed == 2:
        return _binary("mul")(t, a, a)
    return _unary("sqrt")(t, a) if fixed == 0.5 else _binary("pow")(t, a, b)


def _clamp(t: Trace, a: np.ndarray, min: Any = None, max: Any = None) -> np.ndarray:
    a = a if min is None else _binary("max")(t, a, min)
    return a if max is None else _binary("min")(t, a, max)


def _cumsum(t: Trace, a: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
    parts = np.split(a, a.shape[dim], dim) if a.shape[dim] else [a]
    for i in range(1, len(parts)):
        parts[i] = _binary("add")(t, parts[i - 1], parts[i])
    return np.concatenate(parts, dim)


def _matmul(t: Trace, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    vector = b.ndim == 1
    right = b[:, None] if vector else b
    terms = _binary("mul")(t, a[..., :, :, None], right[..., None, :, :])
    out = _sum(t, terms, -2)
    return out[..., 0] if vector else out


def _addmm(t: Trace, bias: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _binary("add")(t, _matmul(t, a, b), bias)


def _nan_to_num(t: Trace, a: np.ndarray, nan: Any = None, posinf: Any = None, neginf: Any = None) -> np.ndarray:
    if any(x not in (None, 0.0) for x in (nan, posinf, neginf)) or None in (posinf, neginf):
        raise CannotCompile("nan_to_num: only to 0, infinities too")
    return _each(lambda x: t.where(t.make("isfinite", x), x, 0.0), a)


def _slice(t: Trace, a: np.ndarray, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> np.ndarray:
    return a[(*[slice(None)] * (dim % a.ndim), slice(start, end, step))]


def _index(t: Trace, a: np.ndarray, places: Sequence[Any]) -> np.ndarray:
    return a[tuple(slice(None) if p is None else _whole(p) for p in places)]


def _gather(t: Trace, a: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    out, dim = np.empty(index.shape, dtype=object), dim % a.ndim
    for place in np.ndindex(index.shape):
        out[place] = t.pick(index[place], a[(*place[:dim], slice(None), *place[dim + 1:])])
    return out


def _whole(places: np.ndarray) -> np.ndarray:
    if any(isinstance(p, Symbol) for p in places.flat):
        raise CannotCompile("index: the place depends on the values of a row; use torch.where")
    return places.astype(bool) if places.size and isinstance(places.flat[0], bool) else places.astype(np.int64)


def _split(t: Trace, a: np.ndarray, sizes: Any, dim: int = 0) -> list[np.ndarray]:
    step = [sizes] * -(-a.shape[dim] // sizes) if isinstance(sizes, int) else sizes
    return np.split(a, np.cumsum(step)[:-1], dim)


def _cast(t: Trace, a: np.ndarray, dtype: Any = None) -> np.ndarray:
    if dtype is None:
        return a
    if dtype == torch.bool:
        return _each(t.truth, a)
    return _each(t.number, a) if dtype.is_floating_point else _each(lambda x: t.unary("trunc", x), a)


def _unsqueeze(t: Trace, a: np.ndarray, dim: int) -> np.ndarray:
    return np.expand_dims(a, dim % (a.ndim + 1))


def _squeeze(t: Trace, a: np.ndarray, dim: Any = None) -> np.ndarray:
    axes = [d for d in _axes(a, dim) if a.shape[d] == 1 and (dim is not None or d > 0)]
    return np.squeeze(a, tuple(axes))


def _expand(t: Trace, a: np.ndarray, size: Sequence[int], implicit: bool = False) -> np.ndarray:
    shape = [a.shape[i - len(size) + a.ndim] if s == -1 else s for i, s in enumerate(size)]
    return np.broadcast_to(a, shape)


def _full(fill: float | None = None) -> Callable[..., np.ndarray]:
    """``zeros_like(x)``, ``full_like(x, v)``, ``new_zeros(x, size)``, ``new_full(x, size, v)``."""

    def of(t: Trace, a: np.ndarray, *rest: Any, dtype: Any = None) -> np.ndarray:
        size = rest[0] if rest and isinstance(rest[0], (list, tuple)) else a.shape
        value = rest[-1] if fill is None else fill
        boolean = dtype == torch.bool if dtype is not None else a.size and getattr(a.flat[0], "boolean", False)
        return _constants(np.full(size, bool(value) if boolean else float(value)))

    return of


def _unchanged(t: Trace, a: np.ndarray) -> np.ndarray:
    return a


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{n: _binary(n) for n in (*ARITHMETIC, *COMPARE, "atan2")},
    "rsub": lambda t, a, b, alpha=1: _binary("sub")(t, b, a, alpha), "maximum": _binary("max"),
    "minimum": _binary("min"), "pow": _pow,
    **{f"{kind}_{n}": _logic(n) for kind in ("logical", "bitwise") for n in LOGIC},
    **{f"__{n}__": _logic(n) for n in LOGIC},
    "logical_not": lambda t, a: _each(t.negated, a), "bitwise_not": lambda t, a: _each(t.negated, a),
    **{n: _unary(n) for n in (*INTRINSICS, *LIBRARY, *elementary.ARITHMETIC, "neg", "isfinite")
       if n not in ("pow", "atan2")},
    "square": lambda t, a: _binary("mul")(t, a, a),
    "reciprocal": lambda t, a: _binary("div")(t, 1.0, a),
    "rsqrt": lambda t, a: _binary("div")(t, 1.0, _unary("sqrt")(t, a)),
    "sign": lambda t, a: _each(lambda x: t.binary("sub", t.binary("gt", x, 0.0), t.binary("lt", x, 0.0)), a),
    "where": lambda t, c, a, b: _each(t.where, c, a, b), "clamp": _clamp,
    "clamp_min": lambda t, a, low: _clamp(t, a, low), "clamp_max": lambda t, a, high: _clamp(t, a, None, high),
    "nan_to_num": _nan_to_num, "sum": _sum, "mean": _mean, "prod": _fold("mul"), "amax": _fold("max"),
    "amin": _fold("min"), "max": _extreme("max"), "min": _extreme("min"), "any": _fold("or"), "all": _fold("and"),
    "linalg_vector_norm": _norm, "cumsum": _cumsum, "mm": _matmul, "bmm": _matmul, "mv": _matmul, "addmm": _addmm,
    **{n: lambda t, a, size, dtype=None: a.reshape(size) for n in ("view", "_unsafe_view", "reshape")},
    "expand": _expand, "permute": lambda t, a, dims: a.transpose(dims),
    "transpose": lambda t, a, i, j: a.swapaxes(i, j), "t": lambda t, a: a.T, "unsqueeze": _unsqueeze,
    "squeeze": _squeeze, "select": lambda t, a, dim, i: a.take(i, dim), "slice": _slice, "index": _index,
    "index_select": lambda t, a, dim, i: a.take(_whole(i), dim), "gather": _gather, "split": _split,
    "split_with_sizes": _split,
    "unbind": lambda t, a, dim=0: [a.take(i, dim) for i in range(a.shape[dim])],
    "cat": lambda t, parts, dim=0: np.concatenate([p for p in parts if p.shape != (0,)], dim),
    "stack": lambda t, parts, dim=0: np.stack(parts, dim), "repeat": lambda t, a, times: np.tile(a, times),
    "flip": lambda t, a, dims: np.flip(a, dims), "_to_copy": _cast,
    **dict.fromkeys(("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy"), _unchanged),
    "zeros_like": _full(0.0), "ones_like": _full(1.0), "full_like": _full(), "new_zeros": _full(0.0),
    "new_ones": _full(1.0), "new_full": _full(),
}


class Traced(NamedTuple):
    """A function of one row of symbols: the symbols of each input and output by name, flat."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def traced(function: Function, inputs: Shapes) -> Traced:
    """``function`` of one row of symbols; ``inputs``: name -> shape of a row."""
    trace, given = Trace(), dict[str, np.ndarray]()
    for name, shape in inputs.items():
        given[name] = np.empty((1, *shape), dtype=object)
        for i, index in enumerate(np.ndindex(given[name].shape)):
            given[name][index] = trace.make("input", name, i, boolean=False)
    with torch.no_grad():
        found = function({name: TracedTensor(values, trace) for name, values in given.items()})
    outputs = {name: np.vectorize(trace.number, otypes=[object])(_values(value)) for name, value in found.items()}
    for name, value in outputs.items():
        if value.ndim < 1 or value.shape[0] != 1:
            raise CannotCompile(f"output {name!r} has shape {value.shape}: its first axis must be that of the rows")
    return Traced({k: v.reshape(-1) for k, v in given.items()}, {k: v.reshape(-1) for k, v in outputs.items()})


# ---------------------------------------------------------------- what is alike


def alike(functions: Mapping[Function, Shapes], pairs: Mapping[str, str]) -> tuple[dict[str, str], list[Traced]]:
    """Those ``pairs`` of names that stay equal: from a row in which they all are, each of the ``functions`` makes them
    equal again, by the same operations. And the functions, traced with the second of each pair in the place of the
    first (:func:`joined`), so that what is computed from both is computed once; none where no pair stays.

    Args:
        functions: each with its inputs, name -> shape of a row.
    """
    kept = dict(pairs)
    while kept:
        found = [_traced_joined(function, inputs, kept) for function, inputs in functions.items()]
        stay = {a: b for a, b in kept.items() if all(_equal(x.outputs.get(a), x.outputs.get(b)) for x in found)}
        if stay == kept:
            return kept, found
        kept = stay
    return {}, []


def joined(x: Mapping[str, Tensor], pairs: Mapping[str, str]) -> dict[str, Tensor]:
    """``x`` with the second of each pair in the place of the first."""
    return {**x, **{a: x[b] for a, b in pairs.items()}}


def _traced_joined(function: Function, inputs: Shapes, pairs: Mapping[str, str]) -> Traced:
    return traced(lambda x: function(joined(x, pairs)), inputs)


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Whether both are there, and the same symbols or numbers."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x is y or (not isinstance(x, Symbol) and not isinstance(y, Symbol) and x == y) for x, y in zip(a, b))
