"""From a formula to the instructions of :mod:`temporeal.sim.stl.monitoring.stream_kernels`.

:func:`stream_program` makes those of a stream: every node once per sample, at a sample that lies a fixed number behind
the newest. :func:`bounds_program` makes those of the bounds at one sample, time 0: *points*, nodes asked for at one
sample, and *sequences*, nodes asked for at many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isinf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import (
    Apply,
    Component,
    Constant,
    Expr,
    Formula,
    Predicate,
    Signal,
    to_text,
)
from temporeal.sim.stl.language.queries import children, leaves
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import FUTURE, Next, Window, WindowedUnary
from temporeal.sim.stl.language.values import numpy_arrays, value
from temporeal.sim.stl.monitoring import stream_kernels as code
from temporeal.sim.stl.rewriting.lower import Builder, Fixed, Leaf, Merge, Shift, Slide


@dataclass(frozen=True)
class Fold:
    """``keep U[0,width] reach`` in samples (``past``: since; without ``most`` their duals); None: without an end."""

    most: bool
    keep: int
    reach: int
    width: int | None
    past: bool


class _Nodes(Builder):
    """The lowering for streams: an until keeps its window, so that it has a delay."""

    nodes: list[Any]

    def until(self, most: bool, keep: int, reach: int, window: Window, past: bool) -> int:
        lo, hi = window_steps(window, self.dt)
        if self.closed:
            reach = self.merge(not most, [reach, keep])
        width = None if hi is None else hi - lo
        whole = reach if width == 0 else self.fold(Fold(most, keep, reach, width, past))
        if not lo:
            return whole
        fill = -inf if most else inf
        if past:  # lo samples ago, with what ``keep`` has been since; where there is no such sample, nothing counts
            kept = self.slide_steps(not most, keep, 1, lo, False)
            return self.shift(self.merge(not most, [whole, kept]), lo, fill, True)
        return self.merge(not most, [self.shift(whole, lo, fill, False),
                                     self.slide_steps(not most, keep, 0, lo - 1, False)])

    def fold(self, node: Fold) -> int:
        return self.add(node)  # type: ignore[arg-type]


def unbounded(formula: Formula) -> Formula | None:
    """The first sub-formula that looks to the end of the trace."""
    if isinstance(formula, FUTURE) and not isinstance(formula, Next) and isinf(formula.window.hi):
        return formula
    return next((found for child in children(formula) if (found := unbounded(child)) is not None), None)


# ---------------------------------------------------------------- arithmetic of the predicates

_BINARY: Mapping[str, int] = {
    "+": code.ADD, "-": code.SUB, "*": code.MUL, "/": code.DIV, "min": code.LEAST, "max": code.GREATEST}
_UNARY: Mapping[str, int] = {"neg": code.NEG, "abs": code.ABS, "sqrt": code.SQRT}
_SIMPLE = {*_BINARY, *_UNARY, "norm", "dist"}


def _size(e: Expr) -> int:
    return prod(e.shape)


@dataclass
class Front:
    """Instructions that make the predicates' margins out of the signals, and what their registers and inputs are.

    ``picks``: per signal the pairs (input row, index into the signal, flat); ``outside``: expressions that numpy
    computes, and their first input row; ``constants``: value by register.
    """

    dtype: Any
    table: list[tuple[int, ...]] = field(default_factory=list)
    picks: dict[Signal, dict[int, int]] = field(default_factory=dict)
    outside: list[tuple[Expr, int]] = field(default_factory=list)
    constants: dict[float, int] = field(default_factory=dict)
    inputs: int = 0
    registers: int = 0
    known: dict[Any, Any] = field(default_factory=dict)

    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def input(self, count: int = 1) -> int:
        self.inputs += count
        return self.inputs - count

    def constant(self, number: float) -> int:
        if number not in self.constants:
            self.constants[number] = self.register()
        return self.constants[number]

    def load(self, row: int) -> int:
        return self._once(("load", row), code.LOAD, row)

    def apply(self, op: int, a: int, b: int = 0) -> int:
        return self._once((op, a, b), code.ARITHMETIC, a, b, op)

    def _once(self, key: Any, *ins: int) -> int:
        if key not in self.known:
            self.known[key] = self.register()
            self.table.append((ins[0], self.known[key], *ins[1:]))
        return int(self.known[key])

    def of(self, e: Expr) -> list[int]:
        """Registers of the components of ``e``, flat."""
        if e not in self.known:
            self.known[e] = self._of(e)
        return list(self.known[e])

    def _of(self, e: Expr) -> list[int]:
        if all(isinstance(leaf, Constant) for leaf in leaves(e)):
            with np.errstate(all="ignore"):
                numbers = np.ravel(value(e, {}, numpy_arrays(np.float64)))
            return [self.constant(float(x)) for x in numbers]
        match e:
            case Signal():
                return [self.signal(e, i) for i in range(_size(e))]
            case Component(Signal() as signal, index):
                size = _size(e)
                return [self.signal(signal, i) for i in range(index * size, (index + 1) * size)]
            case Component(of, index):
                size = _size(e)
                return self.of(of)[index * size : (index + 1) * size]
            case Apply(op, args) if op in _SIMPLE:
                return self.simple(op, [self.of(a) for a in args])
        first = self.input(_size(e))
        self.outside.append((e, first))
        return [self.load(first + i) for i in range(_size(e))]

    def signal(self, signal: Signal, index: int) -> int:
        rows = self.picks.setdefault(signal, {})
        if index not in rows:
            rows[index] = self.input()
        return self.load(rows[index])

    def simple(self, op: str, args: list[list[int]]) -> list[int]:
        if op == "norm" or op == "dist":
            v = args[0] if op == "norm" else self.simple("-", args)
            squares = [self.apply(code.MUL, x, x) for x in v]
            total = squares[0]
            for square in squares[1:]:
                total = self.apply(code.ADD, total, square)
            return [self.apply(code.SQRT, total)]
        if op in _UNARY:
            return [self.apply(_UNARY[op], x) for x in args[0]]
        size = max(map(len, args))
        wide = [a * size if len(a) == 1 else a for a in args]
        out = wide[0]
        for other in wide[1:]:
            out = [self.apply(_BINARY[op], a, b) for a, b in zip(out, other)]
        return out

    def margin(self, predicate: Predicate) -> int:
        """Register of the margin of ``predicate``."""
        (left,), (right,) = self.of(predicate.left), self.of(predicate.right)
        if predicate.op in ("==", "!="):
            size = self.apply(code.ABS, self.apply(code.SUB, left, right))
            return self.apply(code.NEG, size) if predicate.op == "==" else size
        return self.apply(code.SUB, left, right) if predicate.op[0] == ">" else self.apply(code.SUB, right, left)

    def negative(self, register: int) -> int:
        return self.apply(code.NEG, register)


def table_of(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Instructions as one array, filled up with zeros."""
    out = np.zeros((len(rows), code.COLUMNS), dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


# ---------------------------------------------------------------- streams


@dataclass(frozen=True)
class StreamProgram:
    """Instructions of a stream; ``delay`` in samples; ``fills``: what ring rows hold at the start and after a reset.

    ``forget``: the rows that must be filled again for a lane that starts anew.
    """

    front: Front
    table: NDArray[np.int64]
    delay: int
    fills: NDArray[np.float64]
    forget: NDArray[np.int64]


class _Streamed:
    """Register and delay of each node; every operator has the smallest delay that it can have."""

    def __init__(self, front: Front, nodes: Sequence[Any]) -> None:
        self.front, self.nodes = front, nodes
        self.table: list[tuple[int, ...]] = []
        self.fills: list[float] = []
        self.forget: list[int] = []
        self.known: dict[Any, tuple[int, int]] = {}

    def rows(self, *fills: float, forget: bool) -> int:
        base = len(self.fills)
        self.fills += fills
        if forget:
            self.forget += range(base, len(self.fills))
        return base

    def emit(self, *ins: int) -> int:
        """An instruction into a register of its own."""
        out = self.front.register()
        self.table.append((ins[0], out, *ins[1:]))
        return out

    def of(self, i: int) -> tuple[int, int]:
        if i not in self.known:
            self.known[i] = self._of(self.nodes[i])
        return self.known[i]

    def delayed(self, i: int, delay: int) -> int:
        """Register of node ``i`` at a delay no smaller than its own."""
        register, own = self.of(i)
        return self.ring(register, delay - own)

    def ring(self, register: int, by: int) -> int:
        if by == 0:
            return register
        key = "ring", register, by
        if key not in self.known:
            base = self.rows(*[0.0] * by, forget=False)
            self.known[key] = self.emit(code.DELAY, register, 0, 0, base, by), 0
        return self.known[key][0]

    def begun(self, register: int, delay: int, most: bool) -> int:
        """``register``, but neutral where its sample, ``delay`` behind, lies before the start."""
        key = "begun", register, delay, most
        if key not in self.known:
            self.known[key] = self.emit(code.SINCE, register, 0, most, 0, delay), 0
        return self.known[key][0]

    def slide(self, most: bool, register: int, width: int, past: bool) -> int:
        neutral = -inf if most else inf
        base = self.rows(*[neutral] * (width + 1), forget=past)
        return self.emit(code.SLIDE, register, 0, most, base, width)

    def _of(self, node: Any) -> tuple[int, int]:
        match node:
            case Leaf(predicate, negated):
                margin = self.front.margin(predicate)
                return self.front.negative(margin) if negated else margin, 0
            case Fixed(number):
                return self.front.constant(number), 0
            case Merge(most, args):
                return self.merge(most, args)
            case Slide(most, arg, lo, int(hi), False):
                register, delay = self.of(arg)
                return self.slide(most, register, hi - lo + 1, False), delay + hi
            case Slide(most, arg, lo, hi, True):
                return self.past_slide(most, arg, lo, hi)
            case Shift(arg, by, _, False):
                register, delay = self.of(arg)
                return register, delay + by
            case Shift(arg, by, fill, True):
                register, delay = self.of(arg)
                own = max(0, delay - by)
                return self.begun(self.ring(register, own + by - delay), own + by, fill < 0), own
            case Fold(most, keep, reach, width, past):
                return self.fold(most, keep, reach, width, past)
        raise TypeError(f"not a node of a stream: {node!r}")

    def merge(self, most: bool, args: Sequence[int]) -> tuple[int, int]:
        delay = max(self.of(a)[1] for a in args)
        first, second, *others = (self.delayed(a, delay) for a in args)
        out = self.emit(code.JOIN, first, second, most)
        for other in others:
            self.table.append((code.INTO, out, other, 0, most))
        return out, delay

    def past_slide(self, most: bool, arg: int, lo: int, hi: int | None) -> tuple[int, int]:
        register, delay = self.of(arg)
        own = max(0, delay - lo)
        register = self.begun(self.ring(register, own + lo - delay), own + lo, most)
        if hi is not None:
            return self.slide(most, register, hi - lo + 1, True), own
        base = self.rows(-inf if most else inf, forget=True)
        return self.emit(code.HOLD, register, 0, most, base), own

    def fold(self, most: bool, keep: int, reach: int, width: int | None, past: bool) -> tuple[int, int]:
        delay = max(self.of(keep)[1], self.of(reach)[1])
        a, b = self.delayed(keep, delay), self.delayed(reach, delay)
        neutral = -inf if most else inf
        if past:  # ``keep`` counts after a sample of ``reach``: never at the first one, be it missing
            a, b = self.begun(a, delay + 1, not most), self.begun(b, delay, most)
        if width is None:
            base = self.rows(neutral, forget=True)
            return self.emit(code.SCAN, a, b, most, base), delay
        count = width + 1
        base = self.rows(*[neutral] * count, *[-neutral] * count, neutral, -neutral, forget=past)
        return self.emit(code.FOLD, a, b, most, base, count, past), delay if past else delay + width


def stream_program(formula: Formula, dt: float, semantics: Semantics, dtype: Any) -> StreamProgram:
    """The program whose output 0 is the robustness of ``formula`` at the sample ``delay`` behind the newest."""
    endless = unbounded(formula)
    if endless is not None:
        raise FormulaError(
            f"a stream needs bounded windows of the future, for its delay is their reach; this one has no end: "
            f"{to_text(endless)}")
    builder = _Nodes(dt, semantics)
    root = builder.of(formula, False)
    front = Front(dtype)
    streamed = _Streamed(front, builder.nodes)
    register, delay = streamed.of(root)
    streamed.table.append((code.OUT, 0, register, 0, 0, 0, delay))
    return StreamProgram(front, table_of(streamed.table), delay, np.array(streamed.fills),
                         np.array(streamed.forget, dtype=np.int64))


# ---------------------------------------------------------------- bounds


@dataclass(frozen=True)
class BoundsProgram:
    """Instructions of the bounds at time 0 of several formulas, one output each.

    ``nodes``: the table of sequences; ``rows``: of memory; ``fills``: value by row that is not zero at the start;
    ``last``: index of the last sample that anything depends on, None without one; ``memory``: number of lost samples
    after which another one changes nothing.
    """

    front: Front
    table: NDArray[np.int64]
    nodes: NDArray[np.int64]
    rows: int
    fills: Mapping[int, float]
    last: int | None
    memory: int


@dataclass
class _Sequence:
    """A node at many samples, seen from the newest sample, now.

    Args:
        settled: samples back from now at which its value can no longer change.
        ahead: (lower, upper bounds) the last sample after now whose value still depends on known samples.
        depth: how far back its values are kept.
        pure: its value is unknown where all that it reads is.
        args: the sequences it reads.
        whole: its values are made from all those of ``args``, also while they do not matter.
        need: (lower, upper) sample from which on its unsettled values matter.
    """

    settled: int
    ahead: tuple[int, int]
    depth: int
    pure: bool
    args: tuple[int, ...]
    whole: bool
    need: tuple[int, int] = (code.FOREVER, code.FOREVER)


def _pairwise(function: Callable[..., int], pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    low, high = zip(*pairs)
    return function(low), function(high)


class _Bounded:
    """Sequences by node, points by (node, sample index)."""

    def __init__(self, front: Front, nodes: Sequence[Any]) -> None:
        self.front, self.nodes = front, nodes
        self.table: list[Callable[[], tuple[int, ...]]] = []
        self.sequences: list[_Sequence] = []
        self.known: dict[Any, int] = {}
        self.fills: dict[int, float] = {}
        self.rows = 0
        self.last: int | None = 0
        self.latest = 0

    def take(self, count: int, *fills: float) -> int:
        base = self.rows
        self.rows += count
        self.fills.update({base + i: f for i, f in enumerate(fills)})
        return base

    # sequences: the table's rows are made at the end, when every depth is known

    def sequence(
        self, settled: int, ahead: tuple[int, int], pure: bool, reads: Mapping[int, int], *ins: Any, depth: int = 0,
        whole: bool = False,
    ) -> int:
        """A new sequence, made by the instruction ``ins``; ``reads``: how far back it reads others."""
        i = len(self.sequences)
        self.sequences.append(_Sequence(settled, ahead, max(settled, depth), pure, tuple(reads), whole))
        for j, back in reads.items():
            self.sequences[j].depth = max(self.sequences[j].depth, back)
        self.table.append(lambda: (ins[0], i, *ins[1:]))
        return i

    def of(self, node: int) -> int:
        """The sequence of ``node``."""
        if node not in self.known:
            self.known[node] = self._of(self.nodes[node])
        return self.known[node]

    def _of(self, node: Any) -> int:
        match node:
            case Leaf(predicate, negated):
                margin = self.front.margin(predicate)
                # at a margin of 0 the comparison decides: true for <=, >= and ==
                true = predicate.op in ("<=", ">=", "==")
                return self.sequence(0, (0, 0), True, {}, code.R_LEAF, margin, 0, 0, -1 if negated else 1,
                                     1 if true != negated else -1)
            case Fixed(number):
                return self.sequence(0, (0, 0), False, {}, code.R_FIXED, 0, 0, number > 0)
            case Merge(most, args):
                return self.merge(most, [self.of(a) for a in args])
            case Slide(most, arg, lo, None, True):
                return self.hold(most, self.shift(self.of(arg), lo, -inf if most else inf, True))
            case Slide(most, arg, lo, int(hi), past):
                first, final = (-hi, -lo) if past else (lo, hi)
                return self.slide(most, self.of(arg), first, final, -inf if most else inf, past)
            case Shift(arg, by, fill, past):
                return self.shift(self.of(arg), by, fill, past)
            case Fold(most, keep, reach, width, True):
                return self.since(most, self.of(keep), self.of(reach), width)
            case Fold(most, keep, reach, int(width), False):
                return self.until(most, self.of(keep), self.of(reach), width)
        raise TypeError(f"not a node of bounds: {node!r}")

    def merge(self, most: bool, args: Sequence[int]) -> int:
        of = [self.sequences[a] for a in args]
        settled, pure = max(s.settled for s in of), all(s.pure for s in of)
        ahead = _pairwise(max, [s.ahead for s in of])
        if pure:  # one unknown argument decides for the maximum if it may be anything above, for the minimum below
            ahead = _on(most, ahead, _pairwise(min, [s.ahead for s in of]))
        first, second, *others = args
        reads = dict.fromkeys(args, settled)
        out = self.sequence(settled, ahead, pure, reads, code.R_JOIN, first, second, most)
        for other in others:
            self.table.append(lambda other=other: (code.R_INTO, out, other, 0, most))  # type: ignore[misc]
        return out

    def slide(self, most: bool, arg: int, first: int, final: int, empty: float, past: bool) -> int:
        of = self.sequences[arg]
        settled, ahead = max(0, of.settled + final), _shifted(of.ahead, -first)
        if of.pure:  # as for merge: one unknown sample in the window
            ahead = _on(most, ahead, _shifted(of.ahead, -final))
        if past:  # the row that stands for all later samples must be one at which the window has begun in every lane
            ahead = _pairwise(max, [ahead, (-final - 1, -final - 1)])
        back = settled - first
        scratch = self.take(1 + (back + 1 + max(*of.ahead, -1) + 1 if past else final - first + 2))
        return self.sequence(settled, ahead, of.pure, {arg: back}, code.R_SLIDE, arg, arg, most, first, final,
                             1 if empty > 0 else -1, scratch, past, whole=past)

    def shift(self, arg: int, by: int, fill: float, past: bool) -> int:
        at = -by if past else by
        return self.slide(fill < 0, arg, at, at, fill, past) if by else arg

    def hold(self, most: bool, arg: int) -> int:
        of = self.sequences[arg]
        ahead = _pairwise(max, [of.ahead, (-1, -1)])
        return self.sequence(of.settled, ahead, False, {arg: of.settled}, code.R_HOLD, arg, arg, most, 0, 0, 0,
                             self.take(2), depth=of.settled + 1, whole=True)

    def since(self, most: bool, keep: int, reach: int, width: int | None) -> int:
        of = self.sequences[keep], self.sequences[reach]
        settled, ahead = max(s.settled for s in of), _pairwise(max, [*(s.ahead for s in of), (-1, -1)])
        reads = dict.fromkeys((keep, reach), settled)
        whole = self.sequence(settled, ahead, False, reads, code.R_SCAN, keep, reach, most, 0, 0, 0, self.take(2),
                              depth=settled + 1, whole=True)
        if width is None:
            return whole
        # a recursion that looks further than the window is cut to it by asking for ``reach`` within it
        return self.merge(not most, [whole, self.slide(most, reach, -width, 0, -inf if most else inf, True)])

    def until(self, most: bool, keep: int, reach: int, width: int) -> int:
        within = self.slide(most, reach, 0, width, -inf if most else inf, False)
        of = self.sequences[keep], self.sequences[reach], self.sequences[within]
        settled = max(s.settled for s in of[:2]) + width
        neutral = -inf if most else inf
        count = width + 1
        blocks = self.take(2 * count + 2, *[neutral] * count, *[-neutral] * count, neutral, -neutral)
        return self.sequence(settled, _pairwise(max, [s.ahead for s in of]), of[0].pure and of[1].pure,
                             dict.fromkeys((keep, reach, within), settled), code.R_FOLD, keep, reach, most, within,
                             count, 0, blocks)

    # points

    def at(self, node: int, s: int) -> int:
        """Row of the value of ``node`` at sample ``s`` of each lane."""
        key = node, s
        if key not in self.known:
            self.known[key] = self._at(node, s)
        return self.known[key]

    def constant(self, number: float) -> int:
        key = "row", number
        if key not in self.known:
            self.known[key] = self.take(1, number)
        return self.known[key]

    def _at(self, i: int, s: int) -> int:
        node = self.nodes[i]
        match node:
            case Leaf():
                return self.window(False, i, s, s)
            case Fixed(number):
                return self.constant(number)
            case Merge(most, args):
                return self.joined(most, [self.at(a, s) for a in args])
            case Slide(most, arg, lo, hi, False):
                return self.window(most, arg, s + lo, None if hi is None else s + hi)
            case Slide(most, arg, lo, hi, True):
                return self.window(most, arg, 0 if hi is None else max(0, s - hi), s - lo)
            case Shift(arg, by, fill, True):
                return self.at(arg, s - by) if s >= by else self.constant(fill)
            case Shift(arg, by, fill, False):
                row, out = self.at(arg, s + by), self.take(1)
                self.table.append(lambda: (code.P_SHIFT, out, row, 0, fill < 0, s + by))
                return out
            case Fold(most, keep, reach, width, past):
                first = s if not past else 0 if width is None else max(0, s - width)
                final = s if past else None if width is None else s + width
                kind = code.P_SINCE if past else code.P_UNTIL
                return self.over(kind, most, keep, reach, first, final)
        raise TypeError(f"not a node of bounds: {node!r}")

    def joined(self, most: bool, rows: Sequence[int]) -> int:
        out = self.take(1)
        self.table.append(lambda: (code.P_JOIN, out, rows[0], rows[1], most))
        for row in rows[2:]:
            self.table.append(lambda row=row: (code.P_INTO, out, row, 0, most))  # type: ignore[misc]
        return out

    def window(self, most: bool, arg: int, first: int, final: int | None) -> int:
        """Maximum or minimum of ``arg`` over the samples first .. final."""
        if final is not None and final < first:
            return self.constant(-inf if most else inf)
        return self.over(code.P_WINDOW, most, arg, arg, first, final)

    def over(self, kind: int, most: bool, arg: int, other: int, first: int, final: int | None) -> int:
        a, b = self.of(arg), self.of(other)
        delay = max(self.sequences[i].settled for i in (a, b))
        for i in (a, b):
            self.sequences[i].depth = max(self.sequences[i].depth, delay)
        neutral = -inf if most else inf
        out, state = self.take(2), self.take(2, neutral, -neutral)
        until, of = code.FOREVER if final is None else final, self.sequences[a]
        need = (0, 0)
        if kind == code.P_WINDOW and of.pure:
            # as long as the window goes on where all is unknown, the maximum may be anything above
            need = _on(most, need, (until - of.ahead[0], until - of.ahead[1]))
        for i in (a, b):
            self.sequences[i].need = _pairwise(min, [self.sequences[i].need, need])
        self.table.append(lambda: (kind, out, a, b, most, first, until, state, *need))
        self.last = None if final is None or self.last is None else max(self.last, final + delay)
        self.latest = max(self.latest, first + delay, 0 if final is None else final + delay)
        return out

    def finished(self, outputs: Sequence[int]) -> BoundsProgram:
        table = [make() for make in self.table]
        table += [(code.P_OUT, k, row) for k, row in enumerate(outputs)]
        for s in reversed(self.sequences):
            for j in s.args:
                self.sequences[j].need = _pairwise(min, [self.sequences[j].need, (0, 0) if s.whole else s.need])
        nodes = []
        for s in self.sequences:
            period = max(1, s.depth)
            nodes.append((self.rows, s.depth, period, s.settled, *s.ahead, *s.need))
            self.rows += s.depth + period + max(*s.ahead, -1) + 1
        memory = self.latest + sum(s.depth + max(*s.ahead, -1) + 1 for s in self.sequences)
        return BoundsProgram(self.front, table_of(table), np.array(nodes, dtype=np.int64).reshape(-1, 8), self.rows,
                             self.fills, self.last, memory)


def _shifted(pair: tuple[int, int], by: int) -> tuple[int, int]:
    return pair[0] + by, pair[1] + by


def _on(most: bool, pair: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """``pair``, with that of ``other`` on the side whose unknown wins: above for a maximum, below for a minimum."""
    return (pair[0], other[1]) if most else (other[0], pair[1])


def endless_inside(formula: Formula) -> Formula | None:
    """The first sub-formula without an end that another temporal operator asks for at many samples."""
    window = getattr(formula, "window", None)
    one = isinstance(formula, WindowedUnary) and formula.window.lo == formula.window.hi
    look = endless_inside if window is None or one else unbounded
    return next((found for child in children(formula) if (found := look(child)) is not None), None)


def bounds_program(formulas: Sequence[Formula], dt: float, semantics: Semantics, dtype: Any) -> BoundsProgram:
    """The program whose outputs are the bounds of ``formulas`` at time 0."""
    for formula in formulas:
        endless = endless_inside(formula)
        if endless is not None:
            raise FormulaError(
                f"bounds while a trace runs need bounded windows inside other operators of time; this one has no end: "
                f"{to_text(endless)}; robustness() judges the whole trace")
    builder = _Nodes(dt, semantics)
    roots = [builder.of(formula, False) for formula in formulas]
    bounded = _Bounded(Front(dtype), builder.nodes)
    return bounded.finished([bounded.at(root, 0) for root in roots])
