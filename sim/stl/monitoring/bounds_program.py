"""From formulas to the instructions of `bounds_interpreter`: the bounds of each at one sample, time 0.

*Points* are nodes needed at one sample, *sequences* nodes needed at many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.monitoring import instructions as code
from temporeal.sim.stl.monitoring.margin_program import MarginProgram, table_of
from temporeal.sim.stl.monitoring.stream_lowering import Fold, StreamBuilder, nested_unbounded
from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Merge, Shift, Slide


@dataclass(frozen=True)
class BoundsProgram:
    """Instructions of the bounds at time 0 of several formulas, one output each.

    ``nodes``: the table of sequences; ``rows``: number of rows of memory; ``fills``: initial value by row, if not zero;
    ``last``: index of the last sample that anything depends on, None if unbounded; ``memory``: number of lost samples
    after which one more changes nothing.
    """

    margins: MarginProgram
    table: NDArray[np.int64]
    nodes: NDArray[np.int64]
    rows: int
    fills: Mapping[int, float]
    last: int | None
    memory: int


@dataclass
class _Sequence:
    """A node at many samples; times count from the newest sample, now.

    Args:
        settled: samples before now from which back its value can no longer change.
        ahead: (lower, upper bounds) the last sample after now whose value still depends on known samples.
        depth: how far back its values are kept.
        pure: its value is unknown if everything that it reads is.
        args: the sequences that it reads.
        whole: it needs all values of ``args``, even while its own do not matter.
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


class _Compiler:
    """Makes the sequences, by node, and the points, by node and sample index."""

    def __init__(self, margins: MarginProgram, nodes: Sequence[Any]) -> None:
        self.margins, self.nodes = margins, nodes
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

    # sequences; rows of the table are made at the end, when every depth is known

    def sequence(
        self, settled: int, ahead: tuple[int, int], pure: bool, reads: Mapping[int, int], *ins: Any, depth: int = 0,
        whole: bool = False,
    ) -> int:
        """A new sequence by the instruction ``ins``; ``reads``: how far back it reads each other sequence."""
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
                margin = self.margins.margin(predicate)
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
        if pure:  # one unknown argument leaves a maximum unbounded above, a minimum below
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
        if past:  # the row for all later samples must be one at which the window has begun in every lane
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
        # the recursion looks beyond the window: it is cut off by requiring ``reach`` within it
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
            # while the window goes on over unknown samples, a maximum is unbounded above
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
        return BoundsProgram(self.margins, table_of(table), np.array(nodes, dtype=np.int64).reshape(-1, 8), self.rows,
                             self.fills, self.last, memory)


def _shifted(pair: tuple[int, int], by: int) -> tuple[int, int]:
    return pair[0] + by, pair[1] + by


def _on(most: bool, pair: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """``pair``, with the part of ``other`` on the side where unknowns win: above for a maximum, below for a minimum."""
    return (pair[0], other[1]) if most else (other[0], pair[1])


def bounds_program(formulas: Sequence[Formula], dt: float, semantics: Semantics, dtype: Any) -> BoundsProgram:
    """The program whose outputs are the bounds of ``formulas`` at time 0."""
    for formula in formulas:
        endless = nested_unbounded(formula)
        if endless is not None:
            raise FormulaError(
                "online bounds need bounded windows inside other temporal operators; this one has no end: "
                f"{to_text(endless)}; robustness() evaluates the whole trace")
    builder = StreamBuilder(dt, semantics)
    roots = [builder.of(formula, False) for formula in formulas]
    bounded = _Compiler(MarginProgram(dtype), builder.nodes)
    return bounded.finished([bounded.at(root, 0) for root in roots])
