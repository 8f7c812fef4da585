"""From a lowered formula to a program: instructions of a register machine that evaluates it sample by sample.

Future operators run backward in time and past ones forward. Where they are nested in each other, the program makes one
pass over the trace for each change of direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Node, Scan, Shift, Slide, inputs
from temporeal.sim.stl.semantics.scalarize import Scalar, margin_scalar, operands

Ints = NDArray[np.int64]
Floats = NDArray[Any]

(LOAD, GET, PUT, OUT, MASK, DELAY, RUN_MIN, RUN_MAX, SLIDE_MIN, SLIDE_MAX, UNTIL, RELEASE, MIN, MAX, ADD, SUB, MUL, DIV,
 NEG, ABS, SQRT, EXP, SIN, COS, ATAN2, HYPOT, POW, LT, LE, EQ, NE) = range(31)
_ARITHMETIC = {"+": ADD, "-": SUB, "*": MUL, "/": DIV, "neg": NEG, "abs": ABS, "sqrt": SQRT, "exp": EXP, "sin": SIN,
               "cos": COS, "atan2": ATAN2, "hypot": HYPOT, "pow": POW, "min": MIN, "max": MAX,
               "<": LT, "<=": LE, "==": EQ, "!=": NE}


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions in passes over time.

    Args:
        code: [I, 6] operation, destination register, first and second argument, two parameters.
        passes: [P, 3] first and last + 1 instruction, direction of time (-1: backward).
        loads: what LOAD reads: (signal name and flat component, or index of a leaf), factor 1 or -1, offset.
        constants: (register, value), set once.
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
        """The register of the result if an instruction computes it at every sample, else -1."""
        result = int(self.code[-1, 2])
        written = self.code[(self.code[:, 1] == result) & ~np.isin(self.code[:, 0], (LOAD, PUT, OUT))]
        return result if len(written) else -1

    @cached_property
    def places(self) -> int:
        """The number of registers that instructions may name; state rows count too."""
        return int(max(self.code[:, 1:4].max() + 1, self.registers))


@dataclass
class _Writer:
    """Writes the instructions of one program."""

    rows: int
    masked: bool
    nodes: Sequence[Node]
    stage: Sequence[int]
    leaf: Callable[[Leaf], Scalar]
    beyond: float | None  # value of every leaf past the end of its trace; None: no samples there
    code: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    loads: dict[tuple[Any, float, float], int] = field(default_factory=dict)
    constants: dict[float, int] = field(default_factory=dict)
    masks: dict[float, int] = field(default_factory=dict)
    initial: list[float] = field(default_factory=list)
    buffers: dict[int, int] = field(default_factory=dict)
    done: dict[Any, int] = field(default_factory=dict)  # the register of each value of the pass being written
    now: int = 0  # the pass being written
    registers: Any = field(default_factory=count)
    counters: Any = field(default_factory=count)

    def emit(self, key: Any, op: int, a: int = 0, b: int = 0, p: int = 0, q: int = 0) -> int:
        """The register that this instruction writes; equal instructions of a pass are written once."""
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
        """The register of node ``index``: computed in this pass, or fetched from the pass that computed it."""
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
    """The pass of each node if passes alternate in direction, beginning with ``first``."""
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
