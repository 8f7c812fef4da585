"""The fast evaluator of lowered formulas on the CPU: a small register machine, compiled once for all formulas.

A formula becomes a program of a few dozen instructions. The machine runs it sample by sample for a block of traces
side by side, so that every instruction is one vector loop, all intermediate values stay in the cache, and the signals
are read and the result written once. Future operators run backward in time and past ones forward; where they are
nested in each other, the machine makes one pass for each change of direction.

A sliding minimum over w samples costs three comparisons per sample whatever w is (van Herk, Pattern Recognition
Letters 13(7), 1992; Gil and Werman, IEEE PAMI 15(5), 1993): the samples come in blocks of w, each with its running
minimum from the left and, once complete, from the right; every window is a right part of one block and a left part of
the next. Work is O(T) for every operator, memory O(w) per trace of the block.

NaN propagates: what depends on one is NaN. The second kernel also carries the place that each value came from, the
leaf and the sample, through all minima and maxima: the exact subgradient is then one addition per value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Node, Scan, Shift, Slide, inputs
from temporeal.sim.stl.semantics.scalars import Scalar, margin_scalar, operands

Ints = NDArray[np.int64]
Floats = NDArray[Any]

# ---------------------------------------------------------------- instructions

(LOAD, GET, PUT, OUT, MASK, DELAY, RUN_MIN, RUN_MAX, SLIDE_MIN, SLIDE_MAX, UNTIL, RELEASE, MIN, MAX, ADD, SUB, MUL, DIV,
 NEG, ABS, SQRT, EXP, SIN, COS, ATAN2, HYPOT, POW, LT, LE, EQ, NE) = range(31)
_ARITHMETIC = {"+": ADD, "-": SUB, "*": MUL, "/": DIV, "neg": NEG, "abs": ABS, "sqrt": SQRT, "exp": EXP, "sin": SIN,
               "cos": COS, "atan2": ATAN2, "hypot": HYPOT, "pow": POW, "min": MIN, "max": MAX,
               "<": LT, "<=": LE, "==": EQ, "!=": NE}
_ALIGN = 16  # lanes: a whole vector register of float32


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions in passes over time.

    Args:
        code: [I, 6] operation, destination register, first and second argument, two parameters.
        passes: [P, 3] first and last + 1 instruction, direction of time (-1: backward).
        loads: what LOAD reads: (signal name and flat component, or index of a leaf), factor 1 or -1, offset.
        constants: (register, value) that are set once.
        initial: value of each state row before the first sample.
    """

    code: Ints
    passes: Ints
    loads: tuple[tuple[Any, float, float], ...]
    constants: tuple[tuple[int, float], ...]
    masks: tuple[float, ...]
    initial: Floats
    registers: int
    buffers: int
    counters: int

    @cached_property
    def root(self) -> int:
        """The register of the result, if an instruction computes it anew for each sample; else -1."""
        result = int(self.code[-1, 2])
        written = self.code[(self.code[:, 1] == result) & ~np.isin(self.code[:, 0], (LOAD, PUT, OUT))]
        return result if len(written) else -1

    @cached_property
    def places(self) -> int:
        """How many numbers name registers or state rows in the instructions."""
        return int(max(self.code[:, 1:4].max() + 1, self.registers))


@dataclass
class _Writer:
    """Writes the instructions of one program."""

    rows: int
    masked: bool
    nodes: Sequence[Node]
    stage: Sequence[int]
    leaf: Callable[[Leaf], Scalar]
    beyond: float | None  # value of every leaf past the end of its trace; None: there is nothing
    code: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    loads: dict[tuple[Any, float, float], int] = field(default_factory=dict)
    constants: dict[float, int] = field(default_factory=dict)
    masks: dict[float, int] = field(default_factory=dict)
    initial: list[float] = field(default_factory=list)
    buffers: dict[int, int] = field(default_factory=dict)
    done: dict[Any, int] = field(default_factory=dict)  # what a register holds in the pass being written
    now: int = 0  # the pass being written
    registers: Any = field(default_factory=count)
    counters: Any = field(default_factory=count)

    def emit(self, key: Any, op: int, a: int = 0, b: int = 0, p: int = 0, q: int = 0) -> int:
        """The register of what this instruction computes; equal ones of a pass are written once."""
        if key not in self.done:
            self.done[key] = next(self.registers)
            self.code.append((op, self.done[key], a, b, p, q))
        return self.done[key]

    def state(self, fill: float, rows: int = 1) -> int:
        self.initial += [fill] * rows
        return len(self.initial) - rows

    def constant(self, value: float) -> int:
        if value not in self.constants:
            self.constants[value] = next(self.registers)
        return self.constants[value]

    def scalar(self, scalar: Scalar) -> int:
        op, *args = scalar
        if op == "const":
            return self.constant(args[0])
        if op == "load":
            slot = self.loads.setdefault((args[0], args[1], args[2]), len(self.loads))
            return self.emit(scalar, LOAD, slot)
        registers = [self.scalar(a) for a in operands(scalar)]
        return self.emit(scalar, _ARITHMETIC[op], *registers)

    def delayed(self, key: Any, a: int, by: int, fill: float) -> int:
        if not by:
            return a
        if by >= self.rows:
            return self.constant(fill)
        return self.emit((key, "delay"), DELAY, a, self.state(fill, by), by, next(self.counters))

    def neutral(self, index: int, fill: float, past: bool) -> int:
        """The register of node ``index``, ``fill`` past the end of each trace."""
        a = self.value(index)
        return a if past or not self.masked or self.beyond is not None else self.mask(index, a, fill)

    def mask(self, index: int, a: int, fill: float) -> int:
        return self.emit(("mask", index, fill), MASK, a, 0, self.masks.setdefault(fill, len(self.masks)))

    def value(self, index: int) -> int:
        """The register of node ``index``: computed in this pass, or brought from the one that computed it."""
        node = self.nodes[index]
        if isinstance(node, Leaf):
            a = self.scalar(self.leaf(node))
            return a if self.beyond is None else self.mask(index, a, self.beyond)
        if isinstance(node, Fixed):
            return self.constant(node.value)
        if self.stage[index] == self.now:
            return self.done[index]
        return self.emit(("get", index), GET, 0, 0, self.buffers[index])

    def node(self, index: int) -> None:
        node = self.nodes[index]
        match node:
            case Merge(most, args):
                op, first = (MAX if most else MIN), self.value(args[0])
                for k, arg in enumerate(args[1:], 2):
                    key = index if k == len(args) else (index, k)
                    first = self.emit(key, op, first, self.value(arg))
            case Slide(most, arg, lo, hi, past):
                neutral = -inf if most else inf
                a = self.delayed(index, self.neutral(arg, neutral, past), lo, neutral)
                width = self.rows if hi is None else min(hi - lo + 1, self.rows)
                if width == self.rows:
                    self.emit(index, RUN_MAX if most else RUN_MIN, a, self.state(neutral))
                elif width == 1:
                    self.done[index] = a
                else:
                    first = self.state(neutral, width + 1)
                    self.emit(index, SLIDE_MAX if most else SLIDE_MIN, a, first, width, next(self.counters))
            case Scan(most, keep, reach, past):
                a = self.neutral(keep, inf if most else -inf, past)
                b = self.neutral(reach, -inf if most else inf, past)
                self.emit(index, UNTIL if most else RELEASE, a, b, self.state(-inf if most else inf))
            case Shift(arg, by, fill, past):
                self.done[index] = self.delayed(index, self.neutral(arg, fill, past), by, fill)


def _directions(nodes: Sequence[Node], first: int) -> list[int]:
    """The pass of each node when passes alternate, the first one in direction ``first``."""
    stage: list[int] = []
    for node in nodes:
        at = max((stage[i] for i in inputs(node)), default=0)
        if isinstance(node, (Slide, Scan, Shift)) and (1 if node.past else -1) != (first if at % 2 == 0 else -first):
            at += 1
        stage.append(at)
    return stage


def _write(lowered: Lowered, rows: int, masked: bool, leaf: Callable[[Leaf], Scalar]) -> Program:
    nodes = lowered.nodes
    beyond = {"clip": None, "strong": -inf, "weak": inf}[lowered.semantics.end]
    plans = {first: _directions(nodes, first) for first in (-1, 1)}
    first = min(plans, key=lambda d: max(plans[d]))
    stage = plans[first]
    w = _Writer(rows, masked, nodes, stage, leaf, beyond)
    later = {i for j, node in enumerate(nodes) for i in inputs(node) if stage[i] < stage[j]}
    passes = []
    for now in range(max(stage) + 1):
        start = len(w.code)
        w.now, w.done = now, {}
        for index, node in enumerate(nodes):
            if stage[index] == now and not isinstance(node, (Leaf, Fixed)):
                w.node(index)
                if index in later:
                    w.buffers[index] = len(w.buffers)
                    w.code.append((PUT, 0, w.done[index], 0, w.buffers[index], 0))
        if now == max(stage):
            w.code.append((OUT, 0, w.value(len(nodes) - 1), 0, 0, 0))
        passes.append((start, len(w.code), first if now % 2 == 0 else -first))
    return Program(
        np.array(w.code, dtype=np.int64), np.array(passes, dtype=np.int64), tuple(w.loads),
        tuple((r, v) for v, r in w.constants.items()), tuple(w.masks), np.array(w.initial, dtype=np.float64),
        next(w.registers), len(w.buffers), next(w.counters))


@lru_cache(maxsize=256)
def of_signals(lowered: Lowered, rows: int, masked: bool, truth: bool) -> Program:
    """The program that reads signals; with ``truth`` a leaf is 1 where it holds, else -1."""
    return _write(lowered, rows, masked, lambda leaf: margin_scalar(leaf.predicate, leaf.negated, truth))


@lru_cache(maxsize=256)
def of_leaves(lowered: Lowered, rows: int, masked: bool) -> Program:
    """The program that reads one array for each leaf, in the order of the leaves."""
    order = {lowered.nodes[i]: k for k, i in enumerate(lowered.leaves)}
    return _write(lowered, rows, masked, lambda leaf: ("load", order[leaf], 1.0, 0.0))


# ---------------------------------------------------------------- the machine


def _as_pointer(typingctx: Any, address: Any, like: Any) -> Any:
    """The integer ``address`` as a pointer to numbers of the type of ``like``."""
    pointer: Any = types.CPointer(like)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(address, like), codegen


_pointer: Any = intrinsic(_as_pointer)


def _jit(function: Callable[..., Any]) -> Any:
    options: Any = {"nogil": True, "error_model": "numpy", "inline": "never"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to keep what is compiled: a read-only install
        return njit(**options)(function)


@njit(inline="always")
def _least(x: Any, y: Any) -> Any:
    o = x if x < y else y
    return o if x == x else x


@njit(inline="always")
def _most(x: Any, y: Any) -> Any:
    o = x if x > y else y
    return o if x == x else x


@_jit
def _load(o: Any, x: Any, stride: int, lanes: int, sign: Any, offset: Any) -> None:
    if stride == 1:
        for i in range(lanes):
            o[i] = sign * x[i] + offset
    else:
        for i in range(lanes):
            o[i] = sign * x[i * stride] + offset


@_jit
def _pack(o: Any, x: Any, stride: int, lanes: int, tag: Any) -> None:
    """The bits of float32 numbers such that they order like the numbers, and ``tag`` below them."""
    for i in range(lanes):
        bits = np.int64(x[i * stride])
        ordered = (bits ^ (0x80000000 | -(bits >> 31))) & 0xFFFFFFFF
        o[i] = (np.uint64(ordered) << np.uint64(32)) | tag


@_jit
def _unpack(o: Any, tags: Any, x: Any, lanes: int) -> None:
    for i in range(lanes):
        ordered = np.int64(x[i] >> np.uint64(32))
        o[i] = np.uint32((ordered ^ (0x80000000 | -((ordered >> 31) ^ 1))) & 0xFFFFFFFF)
        tags[i] = np.uint32(x[i] & np.uint64(0xFFFFFFFF))


def _take(
    o: Any, address: int, stride: int, lanes: int, signs: Any, offsets: Any, slot: int, tag: int, one: Any
) -> None:
    """LOAD: numbers of a signal or, where the machine runs on tagged numbers, of a leaf with their origin."""


@overload(_take, strict=False)
def _take_of(
    o: Any, address: Any, stride: Any, lanes: Any, signs: Any, offsets: Any, slot: Any, tag: Any, one: Any
) -> Any:
    if one == types.uint64:
        return lambda o, address, stride, lanes, signs, offsets, slot, tag, one: _pack(
            o, _pointer(address, np.uint32(0)), stride, lanes, np.uint64(tag))
    return lambda o, address, stride, lanes, signs, offsets, slot, tag, one: _load(
        o, _pointer(address, one), stride, lanes, signs[slot], offsets[slot])


def _give(address: int, tags: int, x: Any, lanes: int, one: Any) -> None:
    """OUT."""


@overload(_give, strict=False)
def _give_of(address: Any, tags: Any, x: Any, lanes: Any, one: Any) -> Any:
    if one == types.uint64:
        return lambda address, tags, x, lanes, one: _unpack(
            _pointer(address, np.uint32(0)), _pointer(tags, np.uint32(0)), x, lanes)
    return lambda address, tags, x, lanes, one: _copy(_pointer(address, one), x, lanes)


@_jit
def _copy(o: Any, x: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = x[i]


@_jit
def _swap(o: Any, ring: Any, x: Any, lanes: int) -> None:
    for i in range(lanes):
        v = ring[i]
        ring[i] = x[i]
        o[i] = v


@_jit
def _fill(o: Any, value: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = value


@_jit
def _mask(o: Any, x: Any, t: int, ends: Any, fill: Any, lanes: int) -> None:
    for i in range(lanes):
        a = x[i]
        o[i] = a if t < ends[i] else fill


@_jit
def _min(o: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = _least(x[i], y[i])


@_jit
def _max(o: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        o[i] = _most(x[i], y[i])


@_jit
def _run_min(o: Any, x: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = _least(x[i], u[i])
        u[i] = v
        o[i] = v


@_jit
def _run_max(o: Any, x: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = _most(x[i], u[i])
        u[i] = v
        o[i] = v


@_jit
def _until(o: Any, keep: Any, reach: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = _most(reach[i], _least(keep[i], u[i]))
        u[i] = v
        o[i] = v


@_jit
def _release(o: Any, keep: Any, reach: Any, u: Any, lanes: int) -> None:
    for i in range(lanes):
        v = _least(reach[i], _most(keep[i], u[i]))
        u[i] = v
        o[i] = v


@_jit
def _slide_min(o: Any, x: Any, here: Any, after: Any, run: Any, lanes: int) -> None:
    for i in range(lanes):
        v = x[i]
        r = _least(v, run[i])
        run[i] = r
        o[i] = _least(r, after[i])
        here[i] = v


@_jit
def _slide_max(o: Any, x: Any, here: Any, after: Any, run: Any, lanes: int) -> None:
    for i in range(lanes):
        v = x[i]
        r = _most(v, run[i])
        run[i] = r
        o[i] = _most(r, after[i])
        here[i] = v


@_jit
def _close_min(o: Any, x: Any, here: Any, run: Any, lanes: int, fill: Any) -> None:
    """The last sample of a block: its window is the whole block."""
    for i in range(lanes):
        v = x[i]
        o[i] = _least(v, run[i])
        here[i] = v
        run[i] = fill


@_jit
def _close_max(o: Any, x: Any, here: Any, run: Any, lanes: int, fill: Any) -> None:
    for i in range(lanes):
        v = x[i]
        o[i] = _most(v, run[i])
        here[i] = v
        run[i] = fill


@_jit
def _arithmetic(op: int, o: Any, x: Any, y: Any, lanes: int, one: Any) -> None:
    if op == ADD:
        for i in range(lanes):
            o[i] = x[i] + y[i]
    elif op == SUB:
        for i in range(lanes):
            o[i] = x[i] - y[i]
    elif op == MUL:
        for i in range(lanes):
            o[i] = x[i] * y[i]
    elif op == DIV:
        for i in range(lanes):
            o[i] = x[i] / y[i]
    elif op == NEG:
        for i in range(lanes):
            o[i] = -x[i]
    elif op == ABS:
        for i in range(lanes):
            o[i] = abs(x[i])
    elif op == SQRT:
        for i in range(lanes):
            o[i] = np.sqrt(x[i])
    elif op == EXP:
        for i in range(lanes):
            o[i] = np.exp(x[i])
    elif op == SIN:
        for i in range(lanes):
            o[i] = np.sin(x[i])
    elif op == COS:
        for i in range(lanes):
            o[i] = np.cos(x[i])
    elif op == ATAN2:
        for i in range(lanes):
            o[i] = np.arctan2(x[i], y[i])
    elif op == HYPOT:
        for i in range(lanes):
            o[i] = np.hypot(x[i], y[i])
    elif op == POW:
        for i in range(lanes):
            o[i] = x[i] ** y[i]
    elif op == LT:
        for i in range(lanes):
            o[i] = one if x[i] < y[i] else -one
    elif op == LE:
        for i in range(lanes):
            o[i] = one if x[i] <= y[i] else -one
    elif op == EQ:
        for i in range(lanes):
            o[i] = one if x[i] == y[i] else -one
    else:
        for i in range(lanes):
            o[i] = one if x[i] != y[i] else -one


def _compute(op: int, o: Any, x: Any, y: Any, lanes: int, one: Any) -> None:
    """Arithmetic: of numbers, never of tagged ones."""


@overload(_compute, strict=False)
def _compute_of(op: Any, o: Any, x: Any, y: Any, lanes: Any, one: Any) -> Any:
    if one == types.uint64:
        return lambda op, o, x, y, lanes, one: None
    return lambda op, o, x, y, lanes, one: _arithmetic(op, o, x, y, lanes, one)


@_jit
def _any_nan(x: Any, lanes: int) -> bool:
    found = False
    for i in range(lanes):
        found |= x[i] != x[i]
    return found


@_jit
def _run(
    code: Ints, passes: Ints, loads: Ints, signs: Floats, offsets: Floats, constants: Ints, values: Floats,
    masks: Floats, initial: Floats, ends: Ints, out: int, out_stride: int, origins: int, tags: Ints, rows: int,
    run_rows: int, worlds: int, lanes: int, work: int, registers: int, counters: Ints, homes: Ints, root: int, one: Any,
    size: int, outer: int,
) -> bool:
    """Run a program over ``worlds`` traces, ``lanes`` at a time.

    The machine runs on numbers of the type of ``one``: float32, float64, or uint64 for tagged float32, in which the
    minimum or maximum of two brings the place that it came from with it.

    Args:
        loads: [K, 3] address, bytes from row to row, numbers from lane to lane.
        tags: [K] tag of the first sample of what each LOAD reads; ``origins`` is the address of the results' tags.
        outer: bytes of a number outside the machine, ``size`` inside.
        homes: [registers] where each register is: at ``work``, or where a signal or the result is itself.
        root: the register of the result, if an instruction computes it; else -1.

    Returns whether a recursion met a NaN, which it carries on past any window.
        ends: [worlds + lanes] samples of each trace.
        out: address of the result [rows, worlds]; ``out_stride`` bytes from row to row.
        run_rows: samples to run; those from ``rows`` on have no signals (a MASK hides what is loaded there).
        work: address of [registers + states + buffers * run_rows, lanes] numbers of ``size`` bytes.
    """
    row = lanes * size
    states = work + registers * row
    buffers = states + len(initial) * row
    spread = False
    for block in range(0, worlds, lanes):
        here = min(lanes, worlds - block)
        for i in range(registers):
            _fill(_pointer(work + i * row, one), one, lanes)
        for i in range(len(constants)):
            _fill(_pointer(work + constants[i] * row, one), values[i], lanes)
        for i in range(len(initial)):
            _fill(_pointer(states + i * row, one), initial[i], lanes)
        for i in range(registers):
            homes[i] = work + i * row
        counters[:] = 0
        whole = here == lanes and size == outer
        end = _pointer(ends.ctypes.data + block * 8, counters[0])
        for k in range(len(passes)):
            for step in range(run_rows):
                t = step if passes[k, 2] > 0 else run_rows - 1 - step
                if whole and root >= 0 and k == len(passes) - 1:
                    homes[root] = out + t * out_stride + block * outer if t < rows else work + root * row
                for i in range(passes[k, 0], passes[k, 1]):
                    op, p, q = code[i, 0], code[i, 4], code[i, 5]
                    if op == LOAD:
                        slot = code[i, 2]
                        if t < rows:
                            source = loads[slot, 0] + t * loads[slot, 1] + block * loads[slot, 2] * outer
                            if whole and loads[slot, 2] == 1 and signs[slot] == 1 and offsets[slot] == 0:
                                homes[code[i, 1]] = source
                                continue
                            o = _pointer(homes[code[i, 1]], one)
                            _take(o, source, loads[slot, 2], here, signs, offsets, slot, tags[slot] + t, one)
                        continue
                    o = _pointer(homes[code[i, 1]], one)
                    x = _pointer(homes[code[i, 2]], one)
                    y = _pointer(homes[code[i, 3]], one)
                    if op == MIN:
                        _min(o, x, y, lanes)
                    elif op == MAX:
                        _max(o, x, y, lanes)
                    elif op == SLIDE_MIN or op == SLIDE_MAX:
                        at, first = counters[q], states + code[i, 3] * row
                        ring = _pointer(first + at * row, one)
                        run = _pointer(first + p * row, one)
                        if at < p - 1:
                            after = _pointer(first + (at + 1) * row, one)
                            if op == SLIDE_MIN:
                                _slide_min(o, x, ring, after, run, lanes)
                            else:
                                _slide_max(o, x, ring, after, run, lanes)
                            counters[q] = at + 1
                        else:
                            if op == SLIDE_MIN:
                                _close_min(o, x, ring, run, lanes, initial[code[i, 3]])
                            else:
                                _close_max(o, x, ring, run, lanes, initial[code[i, 3]])
                            # from here on the block is needed as the aggregates of its right parts
                            for j in range(p - 2, -1, -1):
                                left = _pointer(first + j * row, one)
                                right = _pointer(first + (j + 1) * row, one)
                                if op == SLIDE_MIN:
                                    _min(left, left, right, lanes)
                                else:
                                    _max(left, left, right, lanes)
                            counters[q] = 0
                    elif op == RUN_MIN:
                        _run_min(o, x, _pointer(states + code[i, 3] * row, one), lanes)
                    elif op == RUN_MAX:
                        _run_max(o, x, _pointer(states + code[i, 3] * row, one), lanes)
                    elif op == UNTIL:
                        _until(o, x, y, _pointer(states + p * row, one), lanes)
                    elif op == RELEASE:
                        _release(o, x, y, _pointer(states + p * row, one), lanes)
                    elif op == DELAY:
                        at = counters[q]
                        _swap(o, _pointer(states + (code[i, 3] + at) * row, one), x, lanes)
                        counters[q] = at + 1 if at + 1 < p else 0
                    elif op == MASK:
                        _mask(o, x, t, end, masks[p], lanes)
                    elif op == PUT:
                        _copy(_pointer(buffers + (p * run_rows + t) * row, one), x, lanes)
                    elif op == GET:
                        _copy(o, _pointer(buffers + (p * run_rows + t) * row, one), lanes)
                    elif op == OUT:
                        if t < rows:
                            place = t * out_stride + block * outer
                            if homes[code[i, 2]] == out + place:
                                continue
                            _give(out + place, origins + place, x, here, one)
                    else:
                        _compute(op, o, x, y, lanes, one)
            for i in range(passes[k, 0], passes[k, 1]):
                if code[i, 0] == UNTIL or code[i, 0] == RELEASE:
                    spread |= _any_nan(_pointer(states + code[i, 4] * row, one), here)
    return spread


# ---------------------------------------------------------------- the machine that knows where each value came from


@_jit
def _load2(o: Any, o_tags: Any, x: Any, stride: int, lanes: int, tag: Any) -> None:
    for i in range(lanes):
        o[i] = x[i * stride]
        o_tags[i] = tag


@_jit
def _mask2(o: Any, o_tags: Any, x: Any, x_tags: Any, t: int, ends: Any, fill: Any, none: Any, lanes: int) -> None:
    for i in range(lanes):
        a, at = x[i], x_tags[i]
        inside = t < ends[i]
        o[i] = a if inside else fill
        o_tags[i] = at if inside else none


@_jit
def _pick(o: Any, first: Any, x: Any, y: Any, lanes: int) -> None:
    for i in range(lanes):
        a, b = x[i], y[i]  # both are loaded: a choice between loads would not be a vector instruction
        o[i] = a if first[i] else b


@_jit
def _min2(o: Any, o_tags: Any, x: Any, x_tags: Any, y: Any, y_tags: Any, first: Any, lanes: int) -> None:
    # three short loops: with all six arrays in one, the compiler gives up on proving that they do not overlap
    for i in range(lanes):
        first[i] = (x[i] < y[i]) | (x[i] != x[i])
    _pick(o_tags, first, x_tags, y_tags, lanes)
    _min(o, x, y, lanes)


@_jit
def _max2(o: Any, o_tags: Any, x: Any, x_tags: Any, y: Any, y_tags: Any, first: Any, lanes: int) -> None:
    for i in range(lanes):
        first[i] = (x[i] > y[i]) | (x[i] != x[i])
    _pick(o_tags, first, x_tags, y_tags, lanes)
    _max(o, x, y, lanes)


@_jit
def _slide2(
    most: bool, o: Any, o_tags: Any, x: Any, x_tags: Any, states: int, tags: int, first: int, width: int, at: int,
    row: int, tag_row: int, first_of: Any, lanes: int, one: Any, none: Any, fill: Any,
) -> None:
    """One sample of a sliding minimum or maximum; ``_slide_min``, ``_close_min`` and the right parts in one."""
    run, run_t = _pointer(states + (first + width) * row, one), _pointer(tags + (first + width) * tag_row, none)
    if most:
        _max2(run, run_t, x, x_tags, run, run_t, first_of, lanes)
    else:
        _min2(run, run_t, x, x_tags, run, run_t, first_of, lanes)
    _copy(_pointer(states + (first + at) * row, one), x, lanes)
    _copy(_pointer(tags + (first + at) * tag_row, none), x_tags, lanes)
    if at < width - 1:
        after = _pointer(states + (first + at + 1) * row, one)
        after_t = _pointer(tags + (first + at + 1) * tag_row, none)
        if most:
            _max2(o, o_tags, run, run_t, after, after_t, first_of, lanes)
        else:
            _min2(o, o_tags, run, run_t, after, after_t, first_of, lanes)
        return
    _copy(o, run, lanes)
    _copy(o_tags, run_t, lanes)
    _fill(run, fill, lanes)
    _fill(run_t, none, lanes)
    for j in range(width - 2, -1, -1):
        left, left_t = _pointer(states + (first + j) * row, one), _pointer(tags + (first + j) * tag_row, none)
        right, right_t = _pointer(states + (first + j + 1) * row, one), _pointer(tags + (first + j + 1) * tag_row, none)
        if most:
            _max2(left, left_t, left, left_t, right, right_t, first_of, lanes)
        else:
            _min2(left, left_t, left, left_t, right, right_t, first_of, lanes)


@_jit
def _run_traced(
    code: Ints, passes: Ints, loads: Ints, leaves: Ints, constants: Ints, values: Floats, masks: Floats,
    initial: Floats, ends: Ints, out: int, out_stride: int, origins: int, origins_stride: int, rows: int,
    run_rows: int, worlds: int, lanes: int, work: int, tags: int, registers: int, counters: Ints, one: Any, size: int,
    none: Any, tag_size: int, scratch: int,
) -> None:
    """``_run`` on leaves, with the origin of each value beside it: leaf * rows + sample, or ``none`` (-1).

    Args:
        leaves: [K] the leaf that each LOAD reads.
        origins: address of the origins of the results [rows, worlds].
        tags: address of as many numbers like ``none`` as there are at ``work``; ``scratch`` of one for each lane.
    """
    row, tag_row = lanes * size, lanes * tag_size
    first_of = _pointer(scratch, none)
    total = registers + len(initial)
    states, state_tags = work + registers * row, tags + registers * tag_row
    buffers, buffer_tags = work + total * row, tags + total * tag_row
    for block in range(0, worlds, lanes):
        here = min(lanes, worlds - block)
        for i in range(registers):
            _fill(_pointer(work + i * row, one), one, lanes)
            _fill(_pointer(tags + i * tag_row, none), none, lanes)
        for i in range(len(constants)):
            _fill(_pointer(work + constants[i] * row, one), values[i], lanes)
        for i in range(len(initial)):
            _fill(_pointer(states + i * row, one), initial[i], lanes)
            _fill(_pointer(state_tags + i * tag_row, none), none, lanes)
        counters[:] = 0
        end = _pointer(ends.ctypes.data + block * 8, counters[0])
        for k in range(len(passes)):
            for step in range(run_rows):
                t = step if passes[k, 2] > 0 else run_rows - 1 - step
                for i in range(passes[k, 0], passes[k, 1]):
                    op, b, p, q = code[i, 0], code[i, 3], code[i, 4], code[i, 5]
                    o, o_tags = _pointer(work + code[i, 1] * row, one), _pointer(tags + code[i, 1] * tag_row, none)
                    x, x_tags = _pointer(work + code[i, 2] * row, one), _pointer(tags + code[i, 2] * tag_row, none)
                    y, y_tags = _pointer(work + b * row, one), _pointer(tags + b * tag_row, none)
                    u, u_tags = _pointer(states + b * row, one), _pointer(state_tags + b * tag_row, none)
                    if op == LOAD:
                        slot = code[i, 2]
                        if t < rows:
                            source = loads[slot, 0] + t * loads[slot, 1] + block * loads[slot, 2] * size
                            _load2(o, o_tags, _pointer(source, one), loads[slot, 2], here, leaves[slot] * rows + t)
                    elif op == MIN:
                        _min2(o, o_tags, x, x_tags, y, y_tags, first_of, lanes)
                    elif op == MAX:
                        _max2(o, o_tags, x, x_tags, y, y_tags, first_of, lanes)
                    elif op == SLIDE_MIN or op == SLIDE_MAX:
                        _slide2(op == SLIDE_MAX, o, o_tags, x, x_tags, states, state_tags, b, p, counters[q], row,
                                tag_row, first_of, lanes, one, none, initial[b])
                        counters[q] = counters[q] + 1 if counters[q] + 1 < p else 0
                    elif op == RUN_MIN:
                        _min2(u, u_tags, x, x_tags, u, u_tags, first_of, lanes)
                        _copy(o, u, lanes)
                        _copy(o_tags, u_tags, lanes)
                    elif op == RUN_MAX:
                        _max2(u, u_tags, x, x_tags, u, u_tags, first_of, lanes)
                        _copy(o, u, lanes)
                        _copy(o_tags, u_tags, lanes)
                    elif op == UNTIL or op == RELEASE:
                        v, v_tags = _pointer(states + p * row, one), _pointer(state_tags + p * tag_row, none)
                        if op == UNTIL:
                            _min2(v, v_tags, x, x_tags, v, v_tags, first_of, lanes)
                            _max2(v, v_tags, y, y_tags, v, v_tags, first_of, lanes)
                        else:
                            _max2(v, v_tags, x, x_tags, v, v_tags, first_of, lanes)
                            _min2(v, v_tags, y, y_tags, v, v_tags, first_of, lanes)
                        _copy(o, v, lanes)
                        _copy(o_tags, v_tags, lanes)
                    elif op == DELAY:
                        at = counters[q]
                        _swap(o, _pointer(states + (b + at) * row, one), x, lanes)
                        _swap(o_tags, _pointer(state_tags + (b + at) * tag_row, none), x_tags, lanes)
                        counters[q] = at + 1 if at + 1 < p else 0
                    elif op == MASK:
                        _mask2(o, o_tags, x, x_tags, t, end, masks[p], none, lanes)
                    elif op == PUT:
                        _copy(_pointer(buffers + (p * run_rows + t) * row, one), x, lanes)
                        _copy(_pointer(buffer_tags + (p * run_rows + t) * tag_row, none), x_tags, lanes)
                    elif op == GET:
                        _copy(o, _pointer(buffers + (p * run_rows + t) * row, one), lanes)
                        _copy(o_tags, _pointer(buffer_tags + (p * run_rows + t) * tag_row, none), lanes)
                    elif op == OUT and t < rows:
                        _copy(_pointer(out + t * out_stride + block * size, one), x, here)
                        _copy(_pointer(origins + t * origins_stride + block * tag_size, none), x_tags, here)


@_jit
def _scatter(origins: Any, gradient: Any, out: Any, lanes: int) -> None:
    """Add each ``gradient`` [T, N] to ``out`` [K * T, N] at the row where its value came from."""
    rows, worlds = origins.shape
    for block in range(0, worlds, lanes):
        last = min(block + lanes, worlds)
        for t in range(rows):
            for n in range(block, last):
                if gradient[t, n] != 0 and origins[t, n] >= 0:
                    out[origins[t, n], n] += gradient[t, n]


# ---------------------------------------------------------------- from arrays

_CACHE = 3 << 18  # bytes of registers and state that a block of traces may take: most of a core's second-level cache


def _lanes(rows: int, worlds: int, size: int) -> int:
    """Traces side by side, so that ``rows`` numbers for each fit the cache."""
    if worlds == 1:
        return 1
    fit = _CACHE // (max(rows, 1) * size) // _ALIGN * _ALIGN
    return int(min(max(fit, _ALIGN), 512, -(-worlds // _ALIGN) * _ALIGN))


def _strided(array: Floats) -> Floats:
    """``array`` [T, N, *shape] with the numbers of a sample side by side and whole strides; a copy where it has not."""
    packed = array.itemsize
    for axis in range(array.ndim - 1, 1, -1):
        if array.shape[axis] > 1 and array.strides[axis] != packed:
            return np.ascontiguousarray(array)
        packed *= array.shape[axis]
    whole = array.strides[1] % array.itemsize == 0 and array.flags.aligned and array.dtype.isnative
    return array if whole else np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


@dataclass(frozen=True)
class _Inputs:
    """Where LOAD reads, and the arrays that must live as long as it does."""

    loads: Ints
    signs: Floats
    offsets: Floats
    keep: list[Floats]


def _inputs(program: Program, arrays: Any, flat: bool, typed: _Typed) -> _Inputs:
    loads = np.zeros((max(1, len(program.loads)), 3), dtype=np.int64)
    held: dict[Any, Floats] = {}
    for k, (key, _, _) in enumerate(program.loads):
        name, offset = key if flat else (key, 0)
        if name not in held:
            held[name] = _strided(arrays[name])
        x = held[name]
        loads[k] = x.ctypes.data + offset * x.itemsize, x.strides[0], x.strides[1] // x.itemsize
    return _Inputs(loads, typed.signs, typed.offsets, list(held.values()))


@dataclass(frozen=True)
class _Run:
    """A program and the memory for one run of it: what both machines need."""

    program: Program
    rows: int
    run_rows: int
    worlds: int
    lanes: int
    size: int
    given: _Inputs
    constants: Ints
    values: Floats
    masks: Floats
    initial: Floats
    ends: Ints
    counters: Ints
    homes: Ints

    @property
    def numbers(self) -> int:
        """Numbers that the registers, states and buffers of a block take."""
        return _total(self.program, self.run_rows) * self.lanes


def _total(program: Program, run_rows: int) -> int:
    return program.registers + len(program.initial) + program.buffers * run_rows


def _prepared(
    lowered: Lowered, arrays: Any, shape: tuple[int, int], dtype: Any, truth: bool, lengths: Ints | None,
    of_each_leaf: bool, bytes_each: int,
) -> _Run:
    rows, worlds = shape
    lowered, more = lowered.viewed(rows)
    run_rows, masked = rows + more, lengths is not None or lowered.semantics.end != "clip"
    program = (of_leaves(lowered, run_rows, masked) if of_each_leaf
               else of_signals(lowered, run_rows, masked, truth))
    lanes = _lanes(_total(program, run_rows), worlds, bytes_each)
    ends = np.full(worlds + lanes, rows, dtype=np.int64)
    if lengths is not None:
        ends[:worlds] = lengths
    typed = _typed(program, np.dtype(dtype))
    return _Run(
        program, rows, run_rows, worlds, lanes, np.dtype(dtype).itemsize,
        _inputs(program, arrays, not of_each_leaf, typed), typed.constants, typed.values, typed.masks, typed.initial,
        ends, np.zeros(program.counters + 1, dtype=np.int64), np.zeros(program.places, dtype=np.int64))


class _Typed(NamedTuple):
    """The numbers of a program in the type that the machine runs on."""

    constants: Ints
    values: Floats
    masks: Floats
    initial: Floats
    signs: Floats
    offsets: Floats


@lru_cache(maxsize=512)
def _typed(program: Program, dtype: Any) -> _Typed:
    signs, offsets = (np.array([entry[i] for entry in program.loads] or [0.0], dtype=dtype) for i in (1, 2))
    return _Typed(
        np.array([r for r, _ in program.constants], dtype=np.int64),
        np.array([v for _, v in program.constants], dtype=dtype), np.array(program.masks, dtype=dtype),
        program.initial.astype(dtype), signs, offsets)


def _aligned(count: int, size: int) -> tuple[Any, int]:
    """Memory for ``count`` numbers of ``size`` bytes, and its address at the start of a cache line."""
    raw = np.empty(count * size + 64, dtype=np.uint8)
    return raw, -(-raw.ctypes.data // 64) * 64


def evaluate(
    lowered: Lowered, arrays: Any, shape: tuple[int, int], dtype: Any, *, truth: bool = False,
    lengths: Ints | None = None, of_each_leaf: bool = False,
) -> tuple[Floats, bool]:
    """The value of a lowered formula at every sample, [T, N], and whether a recursion met a NaN.

    A recursion (until, since) carries a NaN on to the beginning or the end of the trace, past the window it is for.

    Args:
        arrays: signals [T, N, *shape] by name, or with ``of_each_leaf`` one array [T, N] for each leaf in order; all of
            ``dtype``, float32 or float64.
        shape: (T, N), both at least 1.
        truth: 1 where the formula holds and -1 where it does not, instead of the robustness.
        lengths: [N] samples of each trace. What is returned past them has no meaning.
    """
    run = _prepared(lowered, arrays, shape, dtype, truth, lengths, of_each_leaf, np.dtype(dtype).itemsize)
    out = np.empty(shape, dtype=dtype)
    _held, work = _aligned(run.numbers, run.size)
    spread = _run(
        run.program.code, run.program.passes, run.given.loads, run.given.signs, run.given.offsets, run.constants,
        run.values, run.masks, run.initial, run.ends, out.ctypes.data, out.strides[0], 0, np.zeros(1, dtype=np.int64),
        run.rows, run.run_rows, run.worlds, run.lanes, work, run.program.registers, run.counters, run.homes,
        run.program.root, np.dtype(dtype).type(1), run.size, run.size)
    return out, bool(spread)


def evaluate_traced(
    lowered: Lowered, leaves: Sequence[Floats], shape: tuple[int, int], dtype: Any, lengths: Ints | None = None
) -> tuple[Floats, NDArray[Any]]:
    """Values [T, N] and where each came from, [T, N] integers: leaf * T + sample, -1 where from no leaf."""
    taggable = np.dtype(dtype) == np.float32 and len(leaves) * shape[0] < 2**31
    if taggable and not any(np.isnan(leaf.max()) for leaf in leaves):
        return _evaluate_tagged(lowered, leaves, shape, lengths)
    tag = np.int32 if taggable else np.int64
    tag_size = np.dtype(tag).itemsize
    run = _prepared(lowered, leaves, shape, dtype, False, lengths, True, np.dtype(dtype).itemsize + tag_size)
    out, origins = np.empty(shape, dtype=dtype), np.empty(shape, dtype=tag)
    _held, work = _aligned(run.numbers, run.size)
    _held_tags, tags = _aligned(run.numbers + run.lanes, tag_size)
    _run_traced(
        run.program.code, run.program.passes, run.given.loads, _leaf_of_load(run.program), run.constants, run.values,
        run.masks, run.initial, run.ends, out.ctypes.data, out.strides[0], origins.ctypes.data, origins.strides[0],
        run.rows, run.run_rows, run.worlds, run.lanes, work, tags, run.program.registers, run.counters,
        np.dtype(dtype).type(1), run.size, tag(-1), tag_size, tags + run.numbers * tag_size)
    return out, origins


def _leaf_of_load(program: Program) -> Ints:
    return np.array([key for key, _, _ in program.loads] or [0], dtype=np.int64)


_NO_ORIGIN = 0xFFFFFFFF


def _tagged(values: Floats) -> NDArray[np.uint64]:
    """float32 numbers of no origin as the machine has them: see ``_pack``."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    ordered = (bits ^ (0x80000000 | -(bits >> 31))) & 0xFFFFFFFF
    return (ordered.astype(np.uint64) << np.uint64(32)) | np.uint64(_NO_ORIGIN)


def _evaluate_tagged(
    lowered: Lowered, leaves: Sequence[Floats], shape: tuple[int, int], lengths: Ints | None
) -> tuple[Floats, NDArray[Any]]:
    """``evaluate_traced`` of float32 numbers without NaN: one integer holds a number and its origin."""
    run = _prepared(lowered, leaves, shape, np.float32, False, lengths, True, 8)
    out, origins = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int32)
    _held, work = _aligned(run.numbers, 8)
    blank = np.zeros(1, dtype=np.uint64)
    _run(run.program.code, run.program.passes, run.given.loads, blank, blank, run.constants, _tagged(run.values),
         _tagged(run.masks), _tagged(run.initial), run.ends, out.ctypes.data, out.strides[0],
         origins.ctypes.data, _leaf_of_load(run.program) * shape[0], run.rows,
         run.run_rows, run.worlds, run.lanes, work, run.program.registers, run.counters, run.homes, run.program.root,
         np.uint64(1), 8, 4)
    return out, origins


def gradient(origins: NDArray[Any], upstream: Floats, leaves: int) -> Floats:
    """Gradients [K, T, N] of each leaf, from those of the values and where these came from."""
    rows, worlds = origins.shape
    out = np.zeros((leaves * rows, worlds), dtype=upstream.dtype)
    _scatter(origins, upstream, out, 64)
    return out.reshape(leaves, rows, worlds)
