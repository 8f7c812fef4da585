"""Compile a function of worlds into vector instructions: tensor operations in, one pass over the rows out.

The maps, objectives and automata of a task are written once, in torch, because they are traced into the artifact and
run on any device. Run as they are on a CPU, each of their few hundred small operations costs a dispatch and a trip
through memory for a few thousand numbers: that, and not the physics, was nine tenths of a simulated step. Every row of
such a function is computed from that row alone. So it is traced once with a single row of symbols, which leaves plain
arithmetic (indices, shapes, views and concatenations are gone), and that is written as LLVM code over 16 rows at a
time: each intermediate value is a vector register.

    kernel = Kernel(function, columns={"x": (3,), "y": ()}, rows={"action": (4,), "obs": (20,)})
    kernel(table, {"action": action, "obs": obs})       # y and obs are what function({"x": .., "action": ..}) returns

Float32 throughout, in the order of the traced operations, without contraction to fused multiply-adds: a row's result
does not depend on the number of rows, on the place of the row or on the processor (exponentials and hyperbolic tangents
are those of :mod:`sim.elementary`, sines, logarithms and the like the C library's). NaN goes where torch lets it go:
comparisons with NaN are false (``!=`` is true), and maxima, minima and clamps of NaN are NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import count
from math import nan, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim import elementary, jit
from sim.jit import BITS, FLOATS, INTEGERS, LANES, splat

Function = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]
Shapes = Mapping[str, tuple[int, ...]]


class CannotCompile(ValueError):
    """A function of rows does something that has no vector form here."""


# ---------------------------------------------------------------- symbols


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
    **elementary.FOLD, "neg": np.negative, "max": np.maximum, "min": np.minimum, "not": np.logical_not,
    "isfinite": np.isfinite}
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


# ---------------------------------------------------------------- tensors of symbols


class Row(Tensor):
    """A tensor [1, ...] whose numbers are symbols: what a function is called with to be traced."""

    values: np.ndarray
    trace: Trace

    @staticmethod
    def __new__(cls, values: np.ndarray, trace: Trace) -> Row:
        first = values.flat[0] if values.size else 0.0
        boolean = first.boolean if isinstance(first, Symbol) else isinstance(first, bool)
        made: Row = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.shape, dtype=torch.bool if boolean else torch.float32)
        made.values, made.trace = values, trace
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Row(shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in OPERATIONS:
            raise CannotCompile(f"{name}: {REASONS.get(name, 'not among the operations on rows')}; "
                                f"known: {', '.join(sorted(OPERATIONS))}")
        trace = next(a.trace for a in _flat(args) if isinstance(a, Row))
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
    if isinstance(a, Row):
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
        return values if not rest and not named else (values, _each(lambda _: t.make("no place"), values))

    return of


def _norm(t: Trace, a: np.ndarray, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if ord != 2:
        raise CannotCompile(f"norm of order {ord}; known: 2")
    return _unary("sqrt")(t, _sum(t, _binary("mul")(t, a, a), dim, keepdim))


def _pow(t: Trace, a: Any, b: Any) -> np.ndarray:
    if b == 2:
        return _binary("mul")(t, a, a)
    return _unary("sqrt")(t, a) if b == 0.5 else _binary("pow")(t, a, b)


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


def _same(t: Trace, a: np.ndarray) -> np.ndarray:
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
    "index_select": lambda t, a, dim, i: a.take(_whole(i), dim), "split": _split, "split_with_sizes": _split,
    "unbind": lambda t, a, dim=0: [a.take(i, dim) for i in range(a.shape[dim])],
    "cat": lambda t, parts, dim=0: np.concatenate([p for p in parts if p.shape != (0,)], dim),
    "stack": lambda t, parts, dim=0: np.stack(parts, dim), "repeat": lambda t, a, times: np.tile(a, times),
    "flip": lambda t, a, dims: np.flip(a, dims), "_to_copy": _cast,
    **dict.fromkeys(("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy"), _same),
    "zeros_like": _full(0.0), "ones_like": _full(1.0), "full_like": _full(), "new_zeros": _full(0.0),
    "new_ones": _full(1.0), "new_full": _full(),
}


def traced(function: Function, inputs: Shapes) -> tuple[Trace, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """``function`` of one row of symbols: the trace, and the symbols of each input and output by name, flat."""
    trace, given = Trace(), dict[str, np.ndarray]()
    for name, shape in inputs.items():
        given[name] = np.empty((1, *shape), dtype=object)
        for i, index in enumerate(np.ndindex(given[name].shape)):
            given[name][index] = trace.make("input", name, i, boolean=False)
    with torch.no_grad():
        found = function({name: Row(values, trace) for name, values in given.items()})
    outputs = {name: np.vectorize(trace.number, otypes=[object])(_values(value)) for name, value in found.items()}
    for name, value in outputs.items():
        if value.ndim < 1 or value.shape[0] != 1:
            raise CannotCompile(f"output {name!r} has shape {value.shape}: its first axis must be that of the rows")
    return trace, {k: v.reshape(-1) for k, v in given.items()}, {k: v.reshape(-1) for k, v in outputs.items()}


# ---------------------------------------------------------------- vector code

class Writer:
    """The body of the loop over blocks of rows, as LLVM text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = (f"%v{i}" for i in count())
        self.register: dict[int, str] = {}
        self.library: set[tuple[str, int]] = set()

    def emit(self, text: str) -> str:
        """One instruction; the name of its result."""
        name = next(self.names)
        self.lines.append(f"  {name} = {text}")
        return name

    def operand(self, a: Value) -> str:
        return self.register[id(a)] if isinstance(a, Symbol) else splat(a)

    def address(self, base: str, offset: str) -> str:
        return self.emit(f"getelementptr float, ptr {base}, i64 {offset}")

    def compute(self, symbol: Symbol) -> str:
        """The instruction of one symbol whose arguments are there."""
        op, args = symbol.op, [self.operand(a) for a in symbol.args]
        if op in ARITHMETIC:
            return self.emit(f"{ARITHMETIC[op][0]} {FLOATS} {args[0]}, {args[1]}")
        if op in COMPARE:
            return self.emit(f"fcmp {COMPARE[op][0]} {FLOATS} {args[0]}, {args[1]}")
        if op in ("max", "min"):
            return self.extreme(op, symbol.args)
        if op in INTRINSICS:
            return self.emit(f"call {FLOATS} @llvm.{INTRINSICS[op][0]}.v{LANES}f32({FLOATS} {args[0]})")
        if op in LOGIC:
            return self.emit(f"{op} {BITS} {args[0]}, {args[1]}")
        if op in LIBRARY:
            return self.called(op, args)
        if op == "power2":  # of a whole number from -126 to 127: the sum has it and the bias in its last bits
            biased = self.emit(f"fadd {FLOATS} {args[0]}, {splat(1.5 * 2**23 + 127)}")
            bits = self.emit(f"shl {INTEGERS} {self.emit(f'bitcast {FLOATS} {biased} to {INTEGERS}')}, splat (i32 23)")
            return self.emit(f"bitcast {INTEGERS} {bits} to {FLOATS}")
        if op == "neg":
            return self.emit(f"fneg {FLOATS} {args[0]}")
        if op == "not":
            return self.emit(f"xor {BITS} {args[0]}, {splat(True)}")
        if op == "isfinite":  # the difference with itself is 0, for infinities and NaN it is NaN
            zero = self.emit(f"fsub {FLOATS} {args[0]}, {args[0]}")
            return self.emit(f"fcmp ord {FLOATS} {zero}, {zero}")
        if op == "number":
            return self.emit(f"uitofp {BITS} {args[0]} to {FLOATS}")
        if op == "where":
            kind = BITS if symbol.boolean else FLOATS
            return self.emit(f"select {BITS} {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        raise CannotCompile("the place of a maximum or minimum is used; only its value can be")

    def extreme(self, op: str, values: Sequence[Value]) -> str:
        """The greater or smaller of two, or NaN if either is.

        ``a > b ? a : b`` is one instruction, and NaN where b is. A constant a is a number (:meth:`Trace.binary`), so
        that this is all it takes; a constant b changes places with a, except 0: of two zeros the second would then
        be the other one.
        """
        first, second = values
        more = "gt" if op == "max" else "lt"
        if not isinstance(second, Symbol) and second != 0:
            first, second = second, first
        a, b = self.operand(first), self.operand(second)
        unordered = not isinstance(second, Symbol)
        above = self.emit(f"fcmp {'u' if unordered else 'o'}{more} {FLOATS} {a}, {b}")
        out = self.emit(f"select {BITS} {above}, {FLOATS} {a}, {FLOATS} {b}")
        if not (isinstance(first, Symbol) and isinstance(second, Symbol)):
            return out
        unsound = self.emit(f"fcmp uno {FLOATS} {a}, {a}")
        return self.emit(f"select {BITS} {unsound}, {FLOATS} {a}, {FLOATS} {out}")

    def called(self, op: str, args: list[str]) -> str:
        """A function of the C library, lane by lane."""
        self.library.add((op, len(args)))
        out = "poison"
        for lane in range(LANES):
            parts = [self.emit(f"extractelement {FLOATS} {a}, i32 {lane}") for a in args]
            value = self.emit(f"call float @{op}f({', '.join(f'float {p}' for p in parts)})")
            out = self.emit(f"insertelement {FLOATS} {out}, float {value}, i32 {lane}")
        return out

    def shuffle(self, a: str, b: str, picks: Sequence[int]) -> str:
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.emit(f"shufflevector {FLOATS} {a}, {FLOATS} {b}, <{len(picks)} x i32> <{mask}>")

    def transposed(self, square: list[str]) -> list[str]:
        """The transpose of a 16 x 16 square of vectors: each stage swaps blocks of half the size."""
        size = LANES // 2
        while size:
            out = list(square)
            for i in range(LANES):
                if i & size:
                    continue
                a, b = square[i], square[i + size]
                low = [j if not j & size else LANES + j - size for j in range(LANES)]
                high = [j + size if not j & size else LANES + j for j in range(LANES)]
                out[i], out[i + size] = self.shuffle(a, b, low), self.shuffle(a, b, high)
            square, size = out, size // 2
        return square


def needed(outputs: Sequence[Value]) -> list[Symbol]:
    """The symbols that ``outputs`` need, each after its arguments."""
    order: dict[int, Symbol] = {}
    stack = [(v, False) for v in reversed(outputs) if isinstance(v, Symbol)]
    while stack:
        symbol, ready = stack.pop()
        if ready:
            order[id(symbol)] = symbol
        elif id(symbol) not in order:
            stack.append((symbol, True))
            stack += [(a, False) for a in reversed(symbol.args) if isinstance(a, Symbol) and id(a) not in order]
    return list(order.values())


def _load(w: Writer, base: str, size: int, column: bool) -> list[str]:
    """The vectors of one parameter: ``size`` numbers of each of 16 rows, from row ``%row``."""
    if column:
        offsets = ["%row", *(w.emit(f"add i64 {w.emit(f'mul i64 %stride, {j}')}, %row") for j in range(1, size))]
        return [w.emit(f"load {FLOATS}, ptr {w.address(base, o)}, align 4") for o in offsets]
    first = w.emit(f"mul i64 %row, {size}")
    out: list[str] = []
    while len(out) < size:
        start = min(len(out), size - LANES)
        if start < 0:  # fewer numbers than lanes: pick them out of the rows, which lie one after the other
            vectors = [w.emit(f"load {FLOATS}, ptr {w.address(base, w.emit(f'add i64 {first}, {LANES * j}'))}, align 4")
                       for j in range(size)]
            return [_picked(w, vectors, [lane * size + j for lane in range(LANES)]) for j in range(size)]
        lines = [w.emit(f"load {FLOATS}, ptr "
                        f"{w.address(base, w.emit(f'add i64 {first}, {lane * size + start}'))}, align 4")
                 for lane in range(LANES)]
        out += w.transposed(lines)[len(out) - start:]
    return out


def _picked(w: Writer, vectors: Sequence[str], places: Sequence[int]) -> str:
    """A vector of the numbers at ``places`` of the concatenated ``vectors``."""
    out = vectors[0]
    if len(vectors) == 1:
        return w.shuffle(out, "poison", places)
    for j in range(1, len(vectors)):
        picks = [LANES + p % LANES if p // LANES == j else (i if j > 1 else (p if p < LANES else 0))
                 for i, p in enumerate(places)]
        out = w.shuffle(out, vectors[j], picks)
    return out


def _store(w: Writer, base: str, vectors: Sequence[str], column: bool) -> None:
    """The opposite of :func:`_load`."""
    size = len(vectors)
    if column:
        for j, vector in enumerate(vectors):
            offset = w.emit(f"add i64 {w.emit(f'mul i64 %stride, {j}')}, %row")
            w.lines.append(f"  store {FLOATS} {vector}, ptr {w.address(base, offset)}, align 4")
        return
    first = w.emit(f"mul i64 %row, {size}")
    done = 0
    while done < size:
        start = min(done, size - LANES)
        if start < 0:
            for j, vector in enumerate(vectors):
                for lane in range(LANES):
                    value = w.emit(f"extractelement {FLOATS} {vector}, i32 {lane}")
                    place = w.address(base, w.emit(f"add i64 {first}, {lane * size + j}"))
                    w.lines.append(f"  store float {value}, ptr {place}, align 4")
            return
        for lane, line in enumerate(w.transposed(list(vectors[start : start + LANES]))):
            place = w.address(base, w.emit(f"add i64 {first}, {lane * size + start}"))
            w.lines.append(f"  store {FLOATS} {line}, ptr {place}, align 4")
        done = start + LANES


def assembly(
    inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], columns: Sequence[str], names: Sequence[str]
) -> tuple[str, set[tuple[str, int]]]:
    """The kernel as LLVM text, and the functions (name, arguments) of the C library that it calls.

    ``kernel(parameters, stride, first, last)``: pointers in the order of ``names``; rows [first, last), whole blocks.
    """
    w = Writer()
    used = needed([v for values in outputs.values() for v in values])
    wanted = {s.args[0] for s in used if s.op == "input"}
    for name in names:  # all reads come before all writes: an output may lie where an input did
        if name in wanted:
            for symbol, vector in zip(inputs[name], _load(w, f"%p{names.index(name)}", len(inputs[name]),
                                                          name in columns)):
                w.register[id(symbol)] = vector
    for symbol in used:
        if symbol.op != "input":
            w.register[id(symbol)] = w.compute(symbol)
    for name, values in outputs.items():
        _store(w, f"%p{names.index(name)}", [w.operand(v) for v in values], name in columns)
    pointers = []
    for i in range(len(names)):
        pointers += [f"  %a{i} = getelementptr ptr, ptr %parameters, i64 {i}", f"  %p{i} = load ptr, ptr %a{i}"]
    text = "\n".join([
        *(f"declare {FLOATS} @llvm.{name}.v{LANES}f32({FLOATS})" for name, _ in INTRINSICS.values()),
        *(f"declare float @{op}f({', '.join(['float'] * size)})" for op, size in sorted(w.library)),
        "define void @kernel(ptr noalias %parameters, i64 %stride, i64 %first, i64 %last) {", "entry:", *pointers,
        "  %any = icmp slt i64 %first, %last", "  br i1 %any, label %block, label %exit", "block:",
        "  %row = phi i64 [ %first, %entry ], [ %next, %block ]", *w.lines, f"  %next = add i64 %row, {LANES}",
        "  %more = icmp slt i64 %next, %last", "  br i1 %more, label %block, label %exit", "exit:", "  ret void", "}"])
    return text, w.library


@cache
def _machine_code(text: str, library: frozenset[str]) -> tuple[Any, Any]:
    number = ctypes.c_int64
    return jit.function(text, "kernel", (ctypes.c_void_p, number, number, number), library)


class Kernel:
    """``function`` over N rows, compiled.

    Args:
        function: ``{name: [N, ...]} -> {name: [N, ...]}``, each row from that row alone.
        columns: inputs and outputs that lie in a table [F, stride] (feature first, rows padded to whole blocks of
            LANES): name -> shape of a row. They follow each other there in the order of ``columns``.
        rows: inputs and outputs that are tensors of their own, [N, ...] contiguous: name -> shape of a row.
        inputs: the names of both that the function reads (it may write any of them).
    """

    def __init__(self, function: Function, columns: Shapes, rows: Shapes, inputs: Sequence[str]) -> None:
        shapes = {**columns, **rows}
        _, given, found = traced(function, {name: shapes[name] for name in inputs})
        for name, values in found.items():
            if name not in shapes:
                raise CannotCompile(f"output {name!r} has no place; places: {', '.join(shapes)}")
            if len(values) != prod(shapes[name]):
                raise CannotCompile(f"output {name!r} has {len(values)} numbers in a row, its place {shapes[name]}")
        self.columns, self.rows = columns, rows
        sizes = [prod(shape) for shape in columns.values()]
        self.offsets = 4 * (np.cumsum([0, *sizes[:-1]], dtype=np.int64) if sizes else np.zeros(0, dtype=np.int64))
        self.outputs = [name for name in found if name in rows]
        names = [*columns, *rows]
        text, library = assembly(given, found, list(columns), names)
        self.code, self._engine = _machine_code(text, frozenset(f"{name}f" for name, _ in library))
        self.pointers = np.zeros(len(names), dtype=np.int64)
        self.address = self.pointers.ctypes.data

    def __call__(self, table: Tensor | None, rows: Mapping[str, Tensor]) -> None:
        """Compute all rows, in place: N is that of the tensors in ``rows``, ``table`` is from :func:`table`."""
        n, stride = len(next(iter(rows.values()))), 0 if table is None else table.shape[1]
        whole, own = n // LANES * LANES, len(self.columns)
        if table is not None:
            self.pointers[:own] = table.data_ptr() + stride * self.offsets
        tensors = [checked(name, rows[name], n, shape) for name, shape in self.rows.items()]
        self.pointers[own:] = [t.data_ptr() for t in tensors]
        self.code(self.address, stride, 0, whole)
        if whole < n:  # the last block is not whole: it is computed in copies
            copies = [torch.zeros(LANES, *shape) for shape in self.rows.values()]
            for i, (tensor, copy) in enumerate(zip(tensors, copies)):
                copy[: n - whole] = tensor[whole:]
                self.pointers[own + i] = copy.data_ptr() - 4 * whole * (copy.numel() // LANES)
            self.code(self.address, stride, whole, n)
            for name, tensor, copy in zip(self.rows, tensors, copies):
                if name in self.outputs:
                    tensor[whole:] = copy[: n - whole]


class Plain:
    """``function`` over N rows as it is, by tensor operations on any device; arguments as for :class:`Kernel`."""

    def __init__(self, function: Function, columns: Shapes, rows: Shapes, inputs: Sequence[str]) -> None:
        self.function, self.columns, self.rows, self.inputs = function, columns, rows, inputs

    def __call__(self, table: Tensor | None, rows: Mapping[str, Tensor]) -> None:
        """Compute all rows, in place."""
        n = len(next(iter(rows.values())))
        places = {**({} if table is None else views(table, self.columns, n)), **rows}
        found = self.function({name: places[name] for name in self.inputs})
        for name, value in [(name, value.clone()) for name, value in found.items()]:  # none is an input any more
            places[name].copy_(value)


class RowFunction:
    """``function`` of numbers [N, ...], compiled on a CPU for the shapes that it is called with.

    It is traced once for such shapes: what it reads beside its arguments must stay as it is. A copy compiles anew. One
    that cannot be compiled raises :class:`CannotCompile`.

    Args:
        outputs: what it returns: name -> shape of a row.
    """

    def __init__(self, function: Function, outputs: Shapes) -> None:
        self.function, self.outputs = function, outputs
        self._made: dict[tuple[Any, ...], Kernel | Plain] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    def __call__(self, given: Mapping[str, Tensor], compiled: bool = True) -> dict[str, Tensor]:
        """The outputs [N, ...], float32; without ``compiled`` by tensor operations."""
        tensors = {name: value.to(torch.float32).contiguous() for name, value in given.items()}
        first, shapes = next(iter(tensors.values())), {name: tuple(x.shape[1:]) for name, x in tensors.items()}
        compiled = compiled and first.device.type == "cpu"
        kind = (compiled, *shapes.items())
        if kind not in self._made:
            make = Kernel if compiled else Plain
            self._made[kind] = make(self.function, {}, {**shapes, **self.outputs}, tuple(given))
        found = {name: first.new_empty(len(first), *shape) for name, shape in self.outputs.items()}
        self._made[kind](None, {**tensors, **found})
        return found


def checked(name: str, tensor: Tensor, n: int, shape: tuple[int, ...]) -> Tensor:
    """``tensor`` if a kernel can take it as the rows [n, *shape]; a ValueError otherwise."""
    if tensor.shape != (n, *shape) or tensor.dtype != torch.float32 or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous float32 {(n, *shape)}, got {tensor.dtype} {tuple(tensor.shape)} "
                         f"with strides {tensor.stride()}")
    return tensor


def table(columns: Shapes, n: int, device: torch.device | str = "cpu") -> Tensor:
    """Zeros for ``columns`` of ``n`` rows: [F, stride]."""
    return torch.zeros(sum(prod(s) for s in columns.values()), padded(n), device=device)


def views(table: Tensor, columns: Shapes, n: int) -> dict[str, Tensor]:
    """Each column of ``table`` as a tensor [n, ...] that shares its memory."""
    out, first = {}, 0
    for name, shape in columns.items():
        part = table[first : first + prod(shape), :n]
        out[name] = part.T.unflatten(1, shape) if shape else part[0]
        first += prod(shape)
    return out


def padded(n: int) -> int:
    """``n`` rows in whole blocks of LANES."""
    return -(-n // LANES) * LANES
