"""Lowering for streams: an until keeps its window, so that it has a fixed delay; and formulas without one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from typing import Any

from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import children
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import FUTURE, Next, Window, WindowedUnary
from temporeal.sim.stl.rewriting.lower import Builder


@dataclass(frozen=True)
class Fold:
    """``keep U[0,width] reach`` in samples (``past``: since; without ``most`` their duals); width None: unbounded."""

    most: bool
    keep: int
    reach: int
    width: int | None
    past: bool


class StreamBuilder(Builder):
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
        if past:  # lo samples ago, and ``keep`` since then; false where there is no such sample
            kept = self.slide_steps(not most, keep, 1, lo, False)
            return self.shift(self.merge(not most, [whole, kept]), lo, fill, True)
        return self.merge(not most, [self.shift(whole, lo, fill, False),
                                     self.slide_steps(not most, keep, 0, lo - 1, False)])

    def fold(self, node: Fold) -> int:
        return self.add(node)  # type: ignore[arg-type]


def unbounded_future(formula: Formula) -> Formula | None:
    """The first sub-formula that looks to the end of the trace; None: there is none."""
    if isinstance(formula, FUTURE) and not isinstance(formula, Next) and isinf(formula.window.hi):
        return formula
    return next((found for child in children(formula) if (found := unbounded_future(child)) is not None), None)


def nested_unbounded(formula: Formula) -> Formula | None:
    """The first unbounded sub-formula that another temporal operator needs at many samples; None: there is none."""
    window = getattr(formula, "window", None)
    one = isinstance(formula, WindowedUnary) and formula.window.lo == formula.window.hi
    look = nested_unbounded if window is None or one else unbounded_future
    return next((found for child in children(formula) if (found := look(child)) is not None), None)
