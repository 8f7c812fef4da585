"""Compile functions of worlds into vector instructions: tensor operations in, one pass over the rows out.

The maps, objectives and automata of a task are written once, in torch, because they are traced into the artifact and
run on any device. Run eagerly on a CPU, each of their few hundred small operations costs a dispatch and a trip through
memory for a few thousand numbers: that was nine tenths of a simulated step. Every row of such a function is computed
from that row alone, so it is traced once with a row of symbols (:mod:`temporeal.sim.compiler.tracing`) and written as
LLVM code over 16 rows at a time, each intermediate value a vector register.

    kernel = Kernel(function, columns={"x": (3,), "y": ()}, rows={"action": (4,), "obs": (20,)})
    kernel(table, {"action": action, "obs": obs})       # y and obs are what function({"x": .., "action": ..}) returns

Float32 in the order of the traced operations, without contraction to fused multiply-adds: a row's result does not
depend on the number of rows, its place or the processor (exponentials and hyperbolic tangents are those of
:mod:`temporeal.sim.compiler.elementary`, sines, logarithms and the like the C library's). NaN propagates as in torch:
comparisons with NaN are false (``!=`` is true), and maxima, minima and clamps of NaN are NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler import llvm
from temporeal.sim.compiler.arguments import checked, first_columns, placed
from temporeal.sim.compiler.devices import lacks_warp
from temporeal.sim.compiler.expressions import (
    ARITHMETIC,
    COMPARE,
    INTRINSICS,
    LIBRARY,
    LOGIC,
    CannotCompile,
    Symbol,
    Value,
    needed,
    operands,
    spaced,
)
from temporeal.sim.compiler.llvm import BITS, FLOATS, INTEGERS, LANES, splat
from temporeal.sim.compiler.tracing import Function, Shapes, Traced

WORDS, POINTERS = f"<{LANES} x i64>", f"<{LANES} x ptr>"
LONG, PART = 6000, 500  # lines of a loop that is written in parts, and of a part
GATHER = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"


class Writer:
    """The body of the loop over blocks of rows, as LLVM text.

    ``columns``, ``names``: as for :func:`assembly`; ``sizes``: of the parameters, by name.
    """

    def __init__(self, columns: Sequence[str], names: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.columns, self.parameters, self.sizes = columns, names, sizes
        self.lines: list[str] = []
        self.names = (f"%v{i}" for i in count())
        self.register: dict[int, str] = {}
        self.library: set[tuple[str, int]] = set()
        self.stored: dict[tuple[str, ...], str] = {}  # numbers in memory of the function, by which they are
        self.places: dict[tuple[Any, ...], str] = {}  # of numbers that are picked, behind the first one

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
        op, args = symbol.op, [self.operand(a) for a in operands(symbol)]
        if op in ARITHMETIC:
            return self.emit(f"{ARITHMETIC[op][0]} {FLOATS} {args[0]}, {args[1]}")
        if op in COMPARE:
            return self.emit(f"fcmp {COMPARE[op][0]} {FLOATS} {args[0]}, {args[1]}")
        if op in ("max", "min"):
            return self.extreme(op, symbol.args)
        if op == "pick":
            return self.picked(*symbol.args)
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

        ``a > b ? a : b`` is one instruction, and NaN where b is. A constant a is a number
        (:meth:`temporeal.sim.compiler.tracing.Trace.binary`), so that this is all it takes; a constant b changes places
        with a, except 0: of two zeros the second would then be the other one.
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

    def picked(self, place: Symbol, *values: Value) -> str:
        """That of ``values`` at the ``place`` of each lane: where they lie in memory, or else from where they are put.
        What lies beyond them is not read, whatever the place is."""
        last, found = len(values) - 1, spaced(values)
        if found is None:
            base, step, lane = self.kept(values), str(LANES), 1
        else:
            name, first, between = found
            base, column = f"%p{self.parameters.index(name)}", name in self.columns
            size = 1 if column else self.sizes[name]
            row = "%row" if size == 1 else self.emit(f"mul i64 %row, {size}")
            start = self.emit(f"add i64 {row}, {self.emit(f'mul i64 %stride, {first}') if column else first}")
            base, lane = self.address(base, start), size
            step = self.emit(f"mul i64 %stride, {between}") if column else str(between)
        key = (id(place), last, found and (found[0] in self.columns, found[2], lane))
        if key not in self.places:
            x = self.operand(place)
            low = self.emit(f"fcmp ogt {FLOATS} {x}, {splat(0.0)}")
            x = self.emit(f"select {BITS} {low}, {FLOATS} {x}, {FLOATS} {splat(0.0)}")
            high = self.emit(f"fcmp olt {FLOATS} {x}, {splat(float(last))}")
            x = self.emit(f"select {BITS} {high}, {FLOATS} {x}, {FLOATS} {splat(float(last))}")
            whole = self.emit(f"fptoui {FLOATS} {x} to {WORDS}")
            one = self.emit(f"insertelement {WORDS} poison, i64 {step}, i32 0")
            every = self.emit(f"shufflevector {WORDS} {one}, {WORDS} poison, <{LANES} x i32> zeroinitializer")
            lanes = ", ".join(f"i64 {lane * k}" for k in range(LANES))
            self.places[key] = self.emit(f"add {WORDS} {self.emit(f'mul {WORDS} {whole}, {every}')}, <{lanes}>")
        at = self.emit(f"getelementptr float, ptr {base}, {WORDS} {self.places[key]}")
        return self.emit(f"call {FLOATS} @{GATHER}({POINTERS} {at}, i32 4, {BITS} {splat(True)}, {FLOATS} poison)")

    def kept(self, values: Sequence[Value]) -> str:
        """The vectors ``values`` one after the other in memory of the function: where they begin."""
        key = tuple(map(self.operand, values))
        if key not in self.stored:
            self.stored[key] = f"%s{len(self.stored)}"
            for k, value in enumerate(key):
                place = self.address(self.stored[key], str(LANES * k))
                self.lines.append(f"  store {FLOATS} {value}, ptr {place}, align 64")
        return self.stored[key]

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


def _load(w: Writer, base: str, places: Sequence[int], column: bool) -> list[str]:
    """The vectors of one parameter: the numbers at ``places`` of each of 16 rows, from row ``%row``; those of a tensor
    are all read."""
    if column:
        offsets = [w.emit(f"add i64 {w.emit(f'mul i64 %stride, {j}')}, %row") if j else "%row" for j in places]
        return [w.emit(f"load {FLOATS}, ptr {w.address(base, o)}, align 4") for o in offsets]
    size = len(places)
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
    w = Writer(columns, names, {name: len(values) for name, values in (*inputs.items(), *outputs.items())})
    used = needed([v for values in outputs.values() for v in values])
    read = {id(s) for s in used if s.op == "input"}
    wanted = {s.args[0] for s in used if s.op == "input"}
    for name in names:  # all reads come before all writes: an output may lie where an input did
        if name in wanted:
            every, base = list(enumerate(inputs[name])), f"%p{names.index(name)}"
            if name in columns:
                every = [(j, symbol) for j, symbol in every if id(symbol) in read]
            for (_, symbol), vector in zip(every, _load(w, base, [j for j, _ in every], name in columns)):
                w.register[id(symbol)] = vector
    for symbol in used:
        if symbol.op != "input":
            w.register[id(symbol)] = w.compute(symbol)
    for name, values in outputs.items():
        _store(w, f"%p{names.index(name)}", [w.operand(v) for v in values], name in columns)
    pointers = []
    for i in range(len(names)):
        pointers += [f"  %a{i} = getelementptr ptr, ptr %parameters, i64 {i}", f"  %p{i} = load ptr, ptr %a{i}"]
    body, end = parted(w.lines)
    pointers += [f"  {name} = alloca [{LANES * len(key)} x float], align 64" for key, name in w.stored.items()]
    text = "\n".join([
        *([f"declare {FLOATS} @{GATHER}({POINTERS}, i32, {BITS}, {FLOATS})"] if w.places else []),
        *(f"declare {FLOATS} @llvm.{name}.v{LANES}f32({FLOATS})" for name, _ in INTRINSICS.values()),
        *(f"declare float @{op}f({', '.join(['float'] * size)})" for op, size in sorted(w.library)),
        "define void @kernel(ptr noalias %parameters, i64 %stride, i64 %first, i64 %last) {", "entry:", *pointers,
        "  %any = icmp slt i64 %first, %last", "  br i1 %any, label %block, label %exit", "block:",
        f"  %row = phi i64 [ %first, %entry ], [ %next, %{end} ]", *body, f"  %next = add i64 %row, {LANES}",
        "  %more = icmp slt i64 %next, %last", "  br i1 %more, label %block, label %exit", "exit:", "  ret void", "}"])
    return text, w.library


def parted(lines: Sequence[str]) -> tuple[list[str], str]:
    """The body of the loop, and the label of its last part. Long ones have several parts, one after the other: the
    time that LLVM takes to order the instructions of a part grows faster than their number."""
    if len(lines) <= LONG:
        return list(lines), "block"
    out, label = list(lines[:PART]), "block"
    for first in range(PART, len(lines), PART):
        label = f"part{first // PART}"
        # always taken, which LLVM does not know: parts that only follow each other would become one again
        out += [f"  br i1 %any, label %{label}, label %exit", f"{label}:", *lines[first : first + PART]]
    return out, label


@cache
def _machine_code(text: str, library: frozenset[str]) -> tuple[Any, Any]:
    number = ctypes.c_int64
    return llvm.function(text, "kernel", (ctypes.c_void_p, number, number, number), library)


class Kernel:
    """``function`` over N rows, compiled.

    Args:
        function: ``{name: [N, ...]} -> {name: [N, ...]}``, each row from that row alone.
        columns: inputs and outputs that lie in a table [F, stride] (feature first, rows padded to whole blocks of
            LANES): name -> shape of a row. They follow each other there in the order of ``columns``.
        rows: inputs and outputs that are tensors of their own, [N, ...] contiguous: name -> shape of a row.
        inputs: the names of both that the function reads (it may write any of them).
        known: ``function`` as it was traced before.
    """

    def __init__(
        self, function: Function, columns: Shapes, rows: Shapes, inputs: Sequence[str], known: Traced | None = None
    ) -> None:
        given, found = placed(function, columns, rows, inputs, known)
        self.columns, self.rows = columns, rows
        self.offsets = 4 * np.array(first_columns(columns), dtype=np.int64)
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


def kernels_of(device: torch.device) -> Any:
    """The class of compiled functions of rows on ``device``: :class:`Kernel`, or on a GPU its like of
    :mod:`temporeal.sim.compiler.vectorize_warp`, which needs Warp (:class:`ModuleNotFoundError`)."""
    if device.type == "cpu":
        return Kernel
    if why := lacks_warp():
        raise ModuleNotFoundError(f"compiled functions of rows on {device}: {why}. Slower, but without: compiled=false")
    from temporeal.sim.compiler import vectorize_warp

    return vectorize_warp.Kernel


class VectorizedFunction:
    """``function`` of numbers [N, ...], compiled for the device and the shapes that it is called with.

    It is traced once for such shapes: what it reads besides its arguments must not change. A copy compiles again. A
    function that cannot be compiled raises :class:`temporeal.sim.compiler.expressions.CannotCompile`.

    Args:
        outputs: what it returns: name -> shape of a row.
    """

    def __init__(self, function: Function, outputs: Shapes) -> None:
        self.function, self.outputs = function, outputs
        self._made: dict[tuple[Any, ...], Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    def __call__(self, given: Mapping[str, Tensor], compiled: bool = True) -> dict[str, Tensor]:
        """The outputs [N, ...], float32; without ``compiled`` by tensor operations."""
        tensors = {name: value.to(torch.float32).contiguous() for name, value in given.items()}
        first, shapes = next(iter(tensors.values())), {name: tuple(x.shape[1:]) for name, x in tensors.items()}
        kind = (compiled, first.device, *shapes.items())
        if kind not in self._made:
            make = kernels_of(first.device) if compiled else Plain
            self._made[kind] = make(self.function, {}, {**shapes, **self.outputs}, tuple(given))
        found = {name: first.new_empty(len(first), *shape) for name, shape in self.outputs.items()}
        self._made[kind](None, {**tensors, **found})
        return found


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
