"""Online bounds on the robustness at time 0, for many worlds at once, each with its own time 0.

After k samples the future is unknown, and the robustness is known up to an interval (robust satisfaction intervals:
Deshmukh et al., "Robust online monitoring of signal temporal logic", 2017). Its ends are the values with every
predicate that is not known yet, and its negation, at its worst (strong view) or best (weak view). The interval never
grows, and is a point at the formula's horizon at the latest. A verdict holds for every continuation. The interval is
sound but not always the smallest, as it follows the formula's structure: ``p | !p`` is undecided until p is known. A
missing sample (NaN) stays unknown::

    monitor = BatchMonitor(formula, dt=0.02, worlds=4096)
    known = monitor.update({"height": heights})  # known.lower, known.upper, known.verdict: [4096]
    monitor.reset(known.verdict != 0)            # these worlds start anew with the next sample

Cost per sample and operator: O(1) amortized for an operator that is needed at one sample (at the top of the formula,
under Boolean operators) over a formula without temporal operators. One inside another is O(1) while only its settled
values can matter: inside ``F G``, ``G F`` and ``G (p -> F q)`` until the outer window of the oldest world closes.
Otherwise it is recomputed at the samples where it may still change, as many as its own reach: O(h) vector operations
for h samples. An operator of the past inside another is always of this kind. Worlds past their horizon cost as much as
others while any is monitored: reset them. We know of no O(1) algorithm for the bounds of every formula; `stream`, which
has no bounds, is O(1). Memory is that of the inner windows, however long the outer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.conventions import ENDS, RTAMT, End, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import clauses
from temporeal.sim.stl.monitoring.batch import BatchEvaluator, check
from temporeal.sim.stl.monitoring.bounds_program import bounds_program
from temporeal.sim.stl.monitoring.instructions import CLIP, RUNNING, STRONG, WEAK

_END = {"clip": CLIP, "strong": STRONG, "weak": WEAK}


@dataclass(frozen=True)
class BatchBounds:
    """The bounds for each world's mission.

    Attributes:
        lower, upper: [worlds] bounds on the robustness at time 0.
        verdict: [worlds] int8: 1 satisfied in every continuation, -1 violated, 0 undecided.
        clause_lower, clause_upper: [clauses, worlds] the same of each top-level conjunct.
    """

    lower: NDArray[Any]
    upper: NDArray[Any]
    verdict: NDArray[np.int8]
    clause_lower: NDArray[Any]
    clause_upper: NDArray[Any]


class BatchMonitor(BatchEvaluator):
    """Monitors ``formula`` at time 0 of each world's mission.

    Args:
        formula: an unbounded window may stand where it is needed at one sample (``G p`` at the top: undecided or
            violated until :meth:`finish`); inside another temporal operator it is refused.
        dt: sample period in s.
        worlds, dtype, compiled: as for `stream.Stream`.
        semantics: ``until``; ``end`` is the convention of :meth:`finish`.

    Attributes:
        texts: the top-level conjuncts.
        horizon_steps: index of the last sample that matters; None: there is none.
    """

    def __init__(
        self, formula: Formula, dt: float, worlds: int | None = None, dtype: Any = np.float32,
        semantics: Semantics = RTAMT, compiled: bool | None = None,
    ) -> None:
        check(formula, dt, worlds, dtype)
        self.texts, parts = zip(*clauses(formula))
        program = bounds_program(parts, dt, semantics, np.dtype(dtype))
        super().__init__(formula, dt, worlds, dtype, semantics, program.margins, compiled)
        self.horizon_steps = program.last
        self._program = program
        self._nodes, self._instructions = self.kernels.table(program.nodes), self.kernels.table(program.table)
        self._memory = np.zeros((self.tiles, 2, program.rows, self.lanes), dtype=self.dtype)
        for row, number in program.fills.items():
            self._memory[:, :, row] = number
        self._out = np.empty((2, len(parts), self.start.size), dtype=self.dtype)
        self._out[0], self._out[1] = -inf, inf
        self._tiny = np.finfo(self.dtype).tiny
        self._run(False, RUNNING, self._out, nothing=True)  # numba compiles now, not at the first sample

    def update(self, signals: Mapping[str, Any] | None) -> BatchBounds:
        """The bounds after one more sample in every world: values [worlds, *shape] by name; None: all missing."""
        self.advance(signals)
        return self.bounds()

    def advance(self, signals: Mapping[str, Any] | None) -> None:
        """:meth:`update` without returning bounds."""
        self._take(signals)
        self.time += 1
        self._run(True, RUNNING, self._out)

    def bounds(self) -> BatchBounds:
        """The current bounds."""
        return self._answer(self._out)

    def finish(self, end: End | None = None) -> BatchBounds:
        """The bounds if every world's trace ended with its newest sample.

        ``end`` is a convention of `conventions.Semantics`, by default the monitor's. The bounds meet unless samples
        were missing. Nothing changes: the worlds may go on.
        """
        return self._answer(self._ended(end))

    def _ended(self, end: End | None) -> NDArray[Any]:
        name = end or self.semantics.end
        if name not in _END:
            raise FormulaError(f"end of a trace {name!r}; legal: {', '.join(ENDS)}")
        if self.latest > self.time:
            young = np.flatnonzero(self.ages < 1)
            raise SignalError(f"a trace has at least one sample; worlds without: {young[:8].tolist()}")
        out = np.empty_like(self._out)
        self._run(False, _END[name], out)
        return out

    def skip(self, count: int) -> None:
        """Skip ``count`` missing samples.

        The cost is that of at most about twice the summed reach of the operators inside others; a longer gap costs no
        more.
        """
        program = self._program
        needed = min(count, max(0, program.memory - int(self.ages.min())) + program.memory + 1)
        for _ in range(needed):
            self.advance(None)
        self.start -= count - needed
        self.earliest, self.latest = self.earliest - (count - needed), self.latest - (count - needed)

    def _run(self, advance: bool, end: int, out: NDArray[Any], nothing: bool = False) -> None:
        tables = (self._table[:0], self._instructions[:0]) if nothing else (self._table, self._instructions)
        arguments = (*tables, self._nodes, self.time, advance, end, self._inputs, self.start, self.earliest,
                     self.latest, self._work, self._memory, out)
        if self.compiled:
            self.kernels.run_bounds(*arguments)
        else:
            with np.errstate(all="ignore"):
                self.kernels.run_bounds(*arguments)

    def _answer(self, out: NDArray[Any]) -> BatchBounds:
        # a margin of 0 is carried as the smallest number of the sign of its truth, see `verdicts.TINY`
        low, high = out[:, :, : self.count].min(axis=1)
        verdict = (low > 0).astype(np.int8) - (high < 0)
        shown = np.where(np.abs(out[:, :, : self.count]) == self._tiny, 0, out[:, :, : self.count])
        lower, upper = shown.min(axis=1)
        return BatchBounds(lower, upper, verdict, shown[0], shown[1])

    def reset(self, mask: ArrayLike | None = None) -> None:
        """Worlds where ``mask`` [worlds] is true (all, without one) start anew: the next sample is their time 0."""
        super().reset(mask)

    def _begin(self, lanes: NDArray[np.intp]) -> None:
        super()._begin(lanes)
        self._out[0, :, lanes], self._out[1, :, lanes] = -inf, inf

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on elsewhere: arrays, as ``np.savez`` takes them."""
        return {**self._state(self._memory), "bounds": self._out.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of the same formula, period and options."""
        found = self._of_state(state, self._memory, bounds=self._out)
        self._go_on(found, self._memory)
        self._out[...] = found["bounds"]
