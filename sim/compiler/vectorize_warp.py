"""The compiled functions of :mod:`temporeal.sim.compiler.vectorize` on an NVIDIA GPU: one kernel, one thread per row.

Run eagerly on a GPU, the few hundred small operations of a task's step are as many launches and take longer than the
physics of thousands of worlds. Here the traced symbols are written as C++, which Warp compiles and caches. With
``device="cpu"`` Warp compiles the same text, so that it can be tested without a GPU (except ``expm1`` and ``log1p``,
which its CPU device lacks).

Float32 in the order of the traced operations, without contraction to fused multiply-adds, as on the CPU. Sines,
logarithms and the like are CUDA's, which differ from the C library's in the last places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import isinf, isnan

import numpy as np
import torch
import warp as wp
from torch import Tensor

from temporeal.sim.compiler import warp_graphs
from temporeal.sim.compiler.arguments import checked, first_columns, placed
from temporeal.sim.compiler.expressions import INTRINSICS, LIBRARY, CannotCompile, Symbol, Value, needed, spaced
from temporeal.sim.compiler.tracing import Function, Shapes, Traced

BLOCK = 64  # threads: few, so that some thousand rows are on as many multiprocessors as can be
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==",
             "ne": "!=", "and": "&&", "or": "||", "xor": "!="}  # fmt: skip
FUNCTIONS = {**{name: f"{name}f" for name in (*INTRINSICS, *LIBRARY)}, "abs": "fabsf", "round": "rintf"}
WRITTEN = {
    # of two numbers NaN where one is, and the second where they are equal
    "max": "({0} > {1} || {0} != {0}) ? {0} : {1}", "min": "({0} < {1} || {0} != {0}) ? {0} : {1}",
    "power2": "ldexpf(1.0f, (int){0})", "neg": "-{0}", "not": "!{0}", "isfinite": "{0} - {0} == 0.0f",
    "number": "{0} ? 1.0f : 0.0f", "where": "{0} ? {1} : {2}",
    **{op: f"{{0}} {sign} {{1}}" for op, sign in OPERATORS.items()},
    **{op: f"{name}({{0}})" for op, name in FUNCTIONS.items()},
    **{op: f"{FUNCTIONS[op]}({{0}}, {{1}})" for op in ("pow", "atan2")}}  # fmt: skip


def literal(value: float | bool) -> str:
    """A constant in C++; a number as float32, exactly."""
    if isinstance(value, bool):
        return str(value).lower()
    number = float(np.float32(value))
    if isnan(number) or isinf(number):
        return "(0.0f / 0.0f)" if isnan(number) else f"({'-' if number < 0 else ''}1.0f / 0.0f)"
    return f"({number.hex()}f)"


def statements(
    inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], columns: Mapping[str, int], rows: Sequence[str]
) -> str:
    """The body of the kernel in C++, of row ``i``: reads, operations, writes.

    ``columns``: name -> where it begins in the table. ``rows``: names of the tensors of their own. The words of the
    kernel: address and stride of the table, addresses of ``rows``.
    """
    sizes = {name: len(values) for name, values in (*inputs.items(), *outputs.items())}
    used = needed([v for values in outputs.values() for v in values])
    register = {id(symbol): f"v{i}" for i, symbol in enumerate(used)}

    def operand(a: Value) -> str:
        return register[id(a)] if isinstance(a, Symbol) else literal(a)

    def place(name: str, j: int | str) -> str:
        if name in columns:
            return f"t[({columns[name]} + {j}) * stride + row]"
        return f"r{rows.index(name)}[{sizes[name]} * row + {j}]"

    def picked(symbol: Symbol) -> Iterator[str]:
        """What lies beyond the numbers is not read, whatever the place is."""
        index, *values = symbol.args
        found, own = spaced(values), operand(symbol)
        x, last = operand(index), len(values) - 1
        at = f"({x} > 0.0f ? {x} < {last}.0f ? (int){x} : {last} : 0)"
        if found is None:
            yield f"const float s{own}[{len(values)}] = {{{', '.join(map(operand, values))}}};"
            yield f"const float {own} = s{own}[{at}];"
        else:
            name, first, step = found
            yield f"const float {own} = {place(name, f'({first} + {step} * {at})')};"

    def lines() -> Iterator[str]:
        yield "float* const t = (float*)a[0];\nconst long long stride = a[1], row = i;"
        for k in range(len(rows)):
            yield f"float* const r{k} = (float*)a[{k + 2}];"
        for symbol in used:  # all reads come before all writes: an output may lie where an input did
            if symbol.op == "input":
                yield f"const float {operand(symbol)} = {place(*symbol.args)};"
        for symbol in used:
            if symbol.op == "input":
                continue
            if symbol.op == "pick":
                yield from picked(symbol)
                continue
            if symbol.op not in WRITTEN:
                raise CannotCompile("the place of a maximum or minimum is used; only its value can be")
            kind = "bool" if symbol.boolean else "float"
            yield f"const {kind} {operand(symbol)} = {WRITTEN[symbol.op].format(*map(operand, symbol.args))};"
        for name, values in outputs.items():
            for j, value in enumerate(values):
                yield f"{place(name, j)} = {operand(value)};"

    return "\n".join(lines())


class Native:
    """A kernel: C++ statements of thread ``i``, with ``count`` 64-bit words ``a``, addresses or whole numbers."""

    def __init__(self, text: str, count: int) -> None:
        self._words = words = wp.types.vector(length=count, dtype=wp.uint64)

        def body(i, a): ...

        def kernel(a):
            body(wp.tid(), a)

        body.__annotations__, kernel.__annotations__ = {"i": int, "a": words}, {"a": words}  # what Warp goes by
        body = wp.func_native(text)(body)
        self._kernel = wp.kernel(kernel, module="unique", enable_backward=False, module_options={"fuse_fp": False})

    def __call__(self, threads: int, device: torch.device, *words: int) -> None:
        """Run it on ``device``, on torch's current stream."""
        if threads:
            with warp_graphs.place(device).scope():
                wp.launch(self._kernel, threads, [self._words(*words)], block_dim=BLOCK)


@cache
def _native(text: str, count: int) -> Native:
    return Native(text, count)


class Kernel:
    """``function`` over N rows, where the tensors are; arguments as for
    :class:`temporeal.sim.compiler.vectorize.Kernel`."""

    def __init__(
        self, function: Function, columns: Shapes, rows: Shapes, inputs: Sequence[str], known: Traced | None = None
    ) -> None:
        given, found = placed(function, columns, rows, inputs, known)
        self.columns, self.rows = columns, rows
        text = statements(given, found, dict(zip(columns, first_columns(columns))), list(rows))
        self._run = _native(text, 2 + len(rows))

    def __call__(self, table: Tensor | None, rows: Mapping[str, Tensor]) -> None:
        """Compute all rows, in place: N is that of the tensors in ``rows``."""
        first = next(iter(rows.values()))
        tensors = [checked(name, rows[name], len(first), shape) for name, shape in self.rows.items()]
        for tensor in (*tensors, *(() if table is None else (table,))):
            if tensor.device != first.device:
                raise ValueError(f"rows and table must be on one device, got {first.device} and {tensor.device}")
        place = (0, 0) if table is None else (table.data_ptr(), table.shape[1])
        self._run(len(first), first.device, *place, *(tensor.data_ptr() for tensor in tensors))
