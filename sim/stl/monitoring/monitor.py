"""Online monitoring of a mission: bounds on the robustness at time 0 after every sample. numpy; numba if present.

After k samples the future is unknown, and the robustness is known up to an interval. It starts as (-inf, inf), never
grows, and is a point at the formula's horizon at the latest. A verdict holds for every continuation. `batch_monitor`
defines the bounds exactly, says what they cost, and monitors many worlds at once; `stream` gives the robustness at
every sample and not only at time 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.conventions import RTAMT, End, Semantics
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import clauses, signals_in
from temporeal.sim.stl.language.values import required
from temporeal.sim.stl.monitoring.batch import check, fitting, is_number
from temporeal.sim.stl.monitoring.batch_monitor import BatchMonitor
from temporeal.sim.stl.monitoring.bounds_program import bounds_program
from temporeal.sim.stl.semantics.verdicts import UNDECIDED, shown, verdict_of

LONG_GAP_S = 3600.0
_FARTHEST = 2.0**52  # sample index up to which floats distinguish samples


class ClauseReading(NamedTuple):
    """Bounds on the robustness of one top-level conjunct, and its verdict."""

    text: str
    lower: float
    upper: float
    verdict: str


class Reading(NamedTuple):
    """What is known after ``samples`` samples, the last at ``time_s``.

    ``lower <= robustness <= upper`` for every continuation. ``verdict`` is ``satisfied``, ``violated`` or
    ``undecided``. ``final``: no further sample can change anything. ``lost``: how many of the samples were missing
    entirely; ``late``: how many more came out of turn and were not used.
    """

    samples: int
    time_s: float
    lower: float
    upper: float
    verdict: str
    final: bool
    clauses: tuple[ClauseReading, ...]
    lost: int = 0
    late: int = 0


class Monitor:
    """Monitors ``formula`` at time 0 of a mission sampled every ``dt`` seconds.

    Give one sample per period to :meth:`update`. For a lost one give ``None`` (or NaN in a signal), or give the times
    of the samples: what depends on a lost sample stays unknown, and so does the verdict unless the rest decides it. An
    unbounded window may stand at the top of the formula; that part is decided by :meth:`finish` at the latest.
    ``compiled``: True: numba's kernels or an error; False: numpy; None: numba if it is installed. ``max_gap_s``: a
    sample later than this after the one before is refused, as a time of day is not a time of the mission; by default an
    hour or ten horizons, whichever is more.

    Attributes:
        horizon_steps: index of the last sample that matters; None: a window is unbounded.
        reading: what is known now.
    """

    def __init__(
        self, formula: Formula, dt: float, semantics: Semantics = RTAMT, compiled: bool | None = None,
        max_gap_s: float | None = None,
    ) -> None:
        self.formula, self.dt = formula, dt
        self._batch = BatchMonitor(formula, dt, None, np.float64, semantics, compiled)
        self.names = self._batch.names
        self.horizon_steps = self._batch.horizon_steps
        self.max_gap_s = max(LONG_GAP_S, 10 * dt * (self.horizon_steps or 0)) if max_gap_s is None else max_gap_s
        if not self.max_gap_s > 0:
            raise SignalError(f"the longest gap between samples is a time above 0 s, got max_gap_s = {max_gap_s}")
        self._samples = self._lost = self._late = 0
        self._bounds: tuple[list[float], list[float]] = ([], [])
        self._clauses: tuple[ClauseReading, ...] = ()
        self._whole = -inf, inf, UNDECIDED
        self.reading = self._read()

    @property
    def compiled(self) -> bool:
        """Whether numba's kernels are in use; the readings are the same without."""
        return self._batch.compiled

    def update(self, sample: Mapping[str, Any] | None, at: float | None = None) -> Reading:
        """The reading after one more sample: values of the signals by name (others are ignored), or None if lost.

        A refused sample (:class:`~temporeal.robots.signals.SignalError`) changes nothing. ``at`` is its time in s since
        time 0 of the mission, rounded to the nearest sample index. The indices that it skips are lost. If its index has
        passed (a late or repeated sample, a clock that runs backwards, a sample before the mission), it is not used and
        counts as late; a verdict is never undone. Without ``at`` it is the next sample.
        """
        if at is not None:
            gap = self._index(at) - self._samples
            if gap < 0:
                self._late += 1
                self.reading = self.reading._replace(late=self._late)
                return self.reading
            if gap:
                self._batch.check(sample)
                self._skip(gap)
        if self.horizon_steps is None or self._samples <= self.horizon_steps:
            self._batch.advance(sample)
        else:
            self._batch.check(sample)
        self._samples += 1
        self._lost += sample is None
        self.reading = self._read()
        return self.reading

    def _index(self, at: float) -> int:
        if not is_number(at) or not -inf < at < inf:
            raise SignalError(f"the time of a sample must be a number of seconds, got at = {at!r}")
        next_s, farthest_s = self._samples * self.dt, _FARTHEST * self.dt
        allowed_s = min(self.max_gap_s, farthest_s)
        if at > next_s + allowed_s or at > farthest_s:
            raise SignalError(
                f"at = {min(at, 1e300):g} s lies too far ahead of the next sample, at {next_s:g} s; at most "
                f"{allowed_s:g} s ahead is accepted (max_gap_s). Time counts from the beginning of the mission, not "
                "that of a clock")
        return floor(max(at, -farthest_s) / self.dt + 0.5)

    def _skip(self, count: int) -> None:
        self._samples += count
        self._lost += count
        if self.horizon_steps is not None:
            count = min(count, max(0, self.horizon_steps + 1 - (self._samples - count)))
        self._batch.skip(count)

    def finish(self, end: End | None = None) -> Reading:
        """The reading if the trace ended with the newest sample; the monitor itself may go on.

        ``end`` is a convention of `conventions.Semantics`, by default the monitor's. The bounds meet unless samples
        were lost.
        """
        if self._samples == 0:
            raise SignalError("a trace has at least one sample; this one has none to finish")
        return self._read(self._batch._ended(end))

    def _read(self, ended: NDArray[Any] | None = None) -> Reading:
        lows, highs = (self._batch._out if ended is None else ended)[:, :, 0].tolist()
        if (lows, highs) != self._bounds:  # most samples change nothing
            self._bounds = lows, highs
            self._clauses = tuple([ClauseReading(text, shown(low), shown(high), verdict_of(low, high))
                                   for text, low, high in zip(self._batch.texts, lows, highs)])
            low, high = min(lows), min(highs)
            self._whole = shown(low), shown(high), verdict_of(low, high)
        over = self.horizon_steps is not None and self._samples > self.horizon_steps
        final = ended is not None or over or lows == highs
        time_s = max(0, self._samples - 1) * self.dt
        return Reading(self._samples, time_s, *self._whole, final, self._clauses, self._lost, self._late)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on elsewhere: arrays, as ``np.savez`` takes them."""
        return {**self._batch.state(), "counts": np.array([self._samples, self._lost, self._late])}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of a monitor of the same formula and period."""
        counts = fitting(state, "counts", np.array([self._samples, self._lost, self._late]))
        self._batch.set_state(state)
        self._samples, self._lost, self._late = counts.tolist()
        self.reading = self._read()

    def reset(self) -> None:
        """Start anew: the next sample is time 0."""
        self._batch.reset()
        self._samples = self._lost = self._late = 0
        self.reading = self._read()


def numpy_update_s(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> float:
    """Estimated time of the slowest update of a monitor without numba, in s, on one core.

    20 us per instruction and 4 us per row that an update may recompute: the reaches, in samples, of operators inside
    others. Measured with numpy 2 on a 2-core x86 server, worst of each hundred updates: ``G[0,20] (p -> O[0,4] q)`` at
    500 Hz 17 ms (16 ms by this model), at 50 Hz 2.4 ms (1.8), ``G[0,20] (p U[0,4] q)`` at 50 Hz 1.7 ms (1.8),
    ``F[0,20] G[0,4] p`` at 50 Hz 0.7 ms (0.9). Most updates are far cheaper than the slowest.
    """
    check(formula, dt, None, np.float64)
    program = bounds_program([part for _, part in clauses(formula)], dt, semantics, np.dtype(np.float64))
    _, _, _, settled, low, high, *_ = program.nodes.T if len(program.nodes) else np.zeros((8, 0))
    rows = float(np.sum(settled * 2 + np.maximum(low, 0) + np.maximum(high, 0)))
    return 20e-6 * len(program.table) + 4e-6 * rows


def real_time_monitor(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> tuple[Monitor, str]:
    """A monitor that keeps up with its sample period, and a warning, empty unless it may not.

    numpy, which needs no compilation, if its slowest update is estimated at less than a quarter of the period. Else
    numba, which has compiled (seconds, the first time on a machine) when this returns; a warning if it does not work.
    """
    cost = numpy_update_s(formula, dt, semantics)
    if cost < dt / 4:
        return Monitor(formula, dt, semantics, compiled=False), ""
    try:
        return Monitor(formula, dt, semantics, compiled=True), ""
    except ImportError as error:
        return Monitor(formula, dt, semantics, compiled=False), (
            f"an update of the formula may take {1e3 * cost:.1f} ms and the sample period is {1e3 * dt:g} ms: "
            f"the monitor may fall behind ({error})")


def monitor_trace(formula: Formula, signals: Mapping[str, Any], dt: float) -> Reading:
    """The reading at time 0 after a whole trace, ``signals`` [T, *shape]: ``undecided`` if it is too short."""
    monitor = Monitor(formula, dt, compiled=False)
    used = required(signals_in(formula), signals)
    lengths = {len(value) for value in used.values()}
    if len(lengths) > 1:
        raise SignalError(f"signals differ in length: { {n: len(v) for n, v in used.items()} }")
    for k in range(lengths.pop() if lengths else 0):
        monitor.update({name: value[k] for name, value in used.items()})
    return monitor.reading
