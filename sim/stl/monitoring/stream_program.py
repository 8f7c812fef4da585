"""From a formula to the instructions of `stream_interpreter`: every node once per sample, at a fixed delay."""

from __future__ import annotations

from collections.abc import Sequence
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
from temporeal.sim.stl.monitoring.stream_lowering import Fold, StreamBuilder, unbounded_future
from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Merge, Shift, Slide


@dataclass(frozen=True)
class StreamProgram:
    """Instructions of a stream.

    ``delay`` in samples; ``fills``: initial values of the ring rows; ``forget``: the rows to fill again in a lane that
    starts anew.
    """

    margins: MarginProgram
    table: NDArray[np.int64]
    delay: int
    fills: NDArray[np.float64]
    forget: NDArray[np.int64]


class _Compiler:
    """Gives each node its register and its smallest possible delay."""

    def __init__(self, margins: MarginProgram, nodes: Sequence[Any]) -> None:
        self.margins, self.nodes = margins, nodes
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
        out = self.margins.register()
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
        """``register``, neutral where its sample, ``delay`` before the newest, lies before the start."""
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
                margin = self.margins.margin(predicate)
                return self.margins.negative(margin) if negated else margin, 0
            case Fixed(number):
                return self.margins.constant(number), 0
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
        if past:  # ``keep`` counts after a sample of ``reach``: never at the first one, even if that is missing
            a, b = self.begun(a, delay + 1, not most), self.begun(b, delay, most)
        if width is None:
            base = self.rows(neutral, forget=True)
            return self.emit(code.SCAN, a, b, most, base), delay
        count = width + 1
        base = self.rows(*[neutral] * count, *[-neutral] * count, neutral, -neutral, forget=past)
        return self.emit(code.FOLD, a, b, most, base, count, past), delay if past else delay + width


def stream_program(formula: Formula, dt: float, semantics: Semantics, dtype: Any) -> StreamProgram:
    """The program whose output 0 is the robustness of ``formula`` at the sample ``delay`` before the newest."""
    endless = unbounded_future(formula)
    if endless is not None:
        raise FormulaError(
            "a stream needs bounded windows of the future, as its delay is their reach; this one has no end: "
            f"{to_text(endless)}")
    builder = StreamBuilder(dt, semantics)
    root = builder.of(formula, False)
    margins = MarginProgram(dtype)
    streamed = _Compiler(margins, builder.nodes)
    register, delay = streamed.of(root)
    streamed.table.append((code.OUT, 0, register, 0, 0, 0, delay))
    return StreamProgram(margins, table_of(streamed.table), delay, np.array(streamed.fills),
                         np.array(streamed.forget, dtype=np.int64))
