"""The exact robustness of a formula online, for one robot or thousands of worlds. numpy; numba if present.

After every sample a :class:`Stream` gives the robustness at the sample ``delay_steps`` before it, which is how far the
formula looks ahead. The values equal those of `semantics.robustness.robustness` on the whole trace. Time per sample and
operator is O(1) amortized, memory O(window), whatever the formula and however long the stream::

    stream = Stream(formula, dt=0.02, worlds=4096)
    values = stream.update({"height": heights})  # [4096] of [4096]; NaN before sample ``delay_steps``
    stream.reset(done)                           # these worlds start anew

    one = Stream(formula, dt=0.02)               # one robot: signals without a leading axis, and a float
    value = one.update({"height": 1.0})

`temporeal bench stl` times ``update`` of ``Stream(formula, 1.0, worlds=4096)`` on float32 arrays [4096], per world, and
of ``Stream(formula, 1.0)`` on floats, after more samples than the delay, so that every window is full, on average over
a multiple of the window's samples, as the work comes in blocks.

Every node of the lowered formula has a fixed delay; ring buffers bring branches to a common one. A window of the future
is a window over the last samples of its argument, aggregated by blocks (van Herk 1992; Gil and Werman 1993). So is a
timed until, over the maps ``u -> max(reach, min(keep, u))``, which compose associatively.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.monitoring.batch import BatchEvaluator, check
from temporeal.sim.stl.monitoring.stream_program import stream_program


class Stream(BatchEvaluator):
    """The robustness of ``formula`` at the sample ``delay_steps`` before the newest, after every sample.

    Args:
        formula: windows of the future must be bounded, those of the past need not be.
        dt: sample period in s.
        worlds: number of worlds that step together; None: one robot, signals without a leading axis.
        dtype: float32 or float64, of the memory and the arithmetic.
        semantics: ``until`` is followed; a stream has no end.
        compiled: True: numba or an error; False: numpy; None: numba if it is installed.

    Attributes:
        delay_steps: how far the formula looks ahead, in samples.

    A NaN in a signal (None: in all of its worlds) is a missing sample: values that depend on it are NaN, no others;
    ``p S q`` reads p at samples after one of q, never at the first. A late sample counts as missing: a stream knows no
    time but the order of its updates.
    """

    def __init__(
        self, formula: Formula, dt: float, worlds: int | None = None, dtype: Any = np.float32,
        semantics: Semantics = RTAMT, compiled: bool | None = None,
    ) -> None:
        check(formula, dt, worlds, dtype)
        program = stream_program(formula, dt, semantics, np.dtype(dtype))
        super().__init__(formula, dt, worlds, dtype, semantics, program.margins, compiled)
        self.delay_steps = program.delay
        self._program, self._nodes = program, self.kernels.table(program.table)
        self._fills = program.fills.astype(self.dtype)
        self._ring = np.empty((self.tiles, len(program.fills), self.lanes), dtype=self.dtype)
        self._ring[:] = self._fills[:, None]
        self._out = np.full((1, self.start.size), nan, dtype=self.dtype)
        self._run(nothing=True)  # numba compiles now, not at the first sample

    def update(self, signals: Mapping[str, Any] | None) -> Any:
        """Take one sample: values [worlds, *shape] of the signals by name (others are ignored); None: all missing.

        Returns the robustness [worlds] at the sample ``delay_steps`` ago, NaN for worlds that had none yet.
        """
        self._take(signals)
        self.time += 1
        self._run()
        return float(self._out[0, 0]) if self.worlds is None else self._out[0, : self.count].copy()

    def _run(self, nothing: bool = False) -> None:
        tables = (self._table[:0], self._nodes[:0]) if nothing else (self._table, self._nodes)
        arguments = (*tables, self.time, self._inputs, self.start, self._work, self._ring, self._out)
        if self.compiled:
            self.kernels.run_stream(*arguments)
        else:
            with np.errstate(all="ignore"):
                self.kernels.run_stream(*arguments)

    def _begin(self, lanes: NDArray[np.intp]) -> None:
        super()._begin(lanes)
        rows = self._program.forget
        tile, lane = np.divmod(lanes, self.lanes)
        self._ring[tile[:, None], rows, lane[:, None]] = self._fills[rows]

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on elsewhere: arrays, as ``np.savez`` takes them."""
        return self._state(self._ring)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of a stream of the same formula, period and options."""
        self._go_on(self._of_state(state, self._ring), self._ring)
