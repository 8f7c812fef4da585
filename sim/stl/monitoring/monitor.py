"""The formula while the mission runs: bounds on its robustness at time 0 after every sample. numpy; numba if present.

After k samples the future is unknown, so the robustness is known up to an interval. It starts as (-inf, inf), only
ever shrinks, and is a point at the formula's horizon at the latest. A verdict holds whatever
comes. What the bounds are exactly, and what they cost, says :mod:`temporeal.sim.stl.monitoring.stream_bounds`, which
watches many worlds
at once; the robustness at every sample, not only at time 0, is :class:`temporeal.sim.stl.monitoring.stream.Stream`'s.
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
from temporeal.sim.stl.monitoring.stream import check, fitting, is_number
from temporeal.sim.stl.monitoring.stream_bounds import Missions
from temporeal.sim.stl.monitoring.stream_program import bounds_program

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"

LONG_GAP_S = 3600.0
_FARTHEST = 2.0**52  # sample index: up to there a float tells samples apart
# A margin of zero is true for <= and >=, false for < and >: it is carried as the smallest number of that sign, so
# that the verdict is the sign of the bounds. Readings show it as zero again.
_TINY = float(np.finfo(np.float64).tiny)


class ClauseReading(NamedTuple):
    """Bounds on the robustness of one top-level conjunct, and its verdict."""

    text: str
    lower: float
    upper: float
    verdict: str


class Reading(NamedTuple):
    """What is known after ``samples`` samples, the last at ``time_s``.

    ``lower <= robustness <= upper`` whatever comes. ``verdict`` is ``satisfied``, ``violated`` or ``undecided``.
    ``final``: no further sample can change anything. ``lost``: how many of the samples were missing as a whole;
    ``late``: how many more came after their turn and were not used.
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
    """Watches ``formula`` at time 0 of a mission sampled each ``dt`` seconds.

    Feed one sample per period to :meth:`update`; where one was lost, feed ``None`` for it (or NaN in a signal), or say
    when the samples were taken: what depends on a lost sample stays unknown, and the verdict with it unless the rest
    decides. A window without an end may stand at the top of the formula: such a part is decided by :meth:`finish` at
    the latest. ``compiled``: True: numba's kernels or an error; False: numpy's; None: numba if it is installed.
    ``max_gap_s``: a sample whose time lies further than this behind the one before it is refused (a time of day is no
    time of a mission); by default an hour or ten horizons, whichever is more.

    Attributes:
        horizon_steps: index of the last sample that matters; None: a window has no end.
        reading: what is known now.
    """

    def __init__(
        self, formula: Formula, dt: float, semantics: Semantics = RTAMT, compiled: bool | None = None,
        max_gap_s: float | None = None,
    ) -> None:
        self.formula, self.dt = formula, dt
        self._missions = Missions(formula, dt, None, np.float64, semantics, compiled)
        self.names = self._missions.names
        self.horizon_steps = self._missions.horizon_steps
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
        return self._missions.compiled

    def update(self, sample: Mapping[str, Any] | None, at: float | None = None) -> Reading:
        """The reading after one more sample: values of the signals by name (others are ignored), or None if lost.

        What is refused (:class:`~temporeal.robots.signals.SignalError`) changes nothing. ``at`` is the time of the
        sample in s
        since time 0 of the mission; it counts for the nearest sample index. If that is not the next one, those between
        are lost. If it has passed (a late or repeated sample, time that runs backwards, a sample before the mission),
        the sample is not used and counted as late; a verdict is never undone. Without ``at`` the sample is the next
        one.
        """
        if at is not None:
            gap = self._index(at) - self._samples
            if gap < 0:
                self._late += 1
                self.reading = self.reading._replace(late=self._late)
                return self.reading
            if gap:
                self._missions.check(sample)
                self._skip(gap)
        if self.horizon_steps is None or self._samples <= self.horizon_steps:
            self._missions.advance(sample)
        else:
            self._missions.check(sample)
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
                f"at = {min(at, 1e300):g} s lies too far ahead of the sample that is next, at {next_s:g} s; at most "
                f"{allowed_s:g} s is taken (max_gap_s). Time counts from the beginning of the mission, not from that "
                "of a clock")
        return floor(max(at, -farthest_s) / self.dt + 0.5)

    def _skip(self, count: int) -> None:
        self._samples += count
        self._lost += count
        if self.horizon_steps is not None:
            count = min(count, max(0, self.horizon_steps + 1 - (self._samples - count)))
        self._missions.skip(count)

    def finish(self, end: End | None = None) -> Reading:
        """The reading if the trace ended with the newest sample; the monitor itself may go on.

        ``end`` is the convention (see :class:`temporeal.sim.stl.language.conventions.Semantics`), by default that of the
        semantics: ``clip``. The bounds meet unless samples were lost.
        """
        if self._samples == 0:
            raise SignalError("a trace has at least one sample: there is nothing to finish")
        return self._read(self._missions._ended(end))

    def _read(self, ended: NDArray[Any] | None = None) -> Reading:
        lows, highs = (self._missions._out if ended is None else ended)[:, :, 0].tolist()
        if (lows, highs) != self._bounds:  # most samples change nothing
            self._bounds = lows, highs
            self._clauses = tuple([ClauseReading(text, _shown(low), _shown(high), _verdict(low, high))
                                   for text, low, high in zip(self._missions.texts, lows, highs)])
            low, high = min(lows), min(highs)
            self._whole = _shown(low), _shown(high), _verdict(low, high)
        over = self.horizon_steps is not None and self._samples > self.horizon_steps
        final = ended is not None or over or lows == highs
        time_s = max(0, self._samples - 1) * self.dt
        return Reading(self._samples, time_s, *self._whole, final, self._clauses, self._lost, self._late)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on elsewhere: arrays, as ``np.savez`` takes them."""
        return {**self._missions.state(), "counts": np.array([self._samples, self._lost, self._late])}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of a monitor of the same formula and period."""
        counts = fitting(state, "counts", np.array([self._samples, self._lost, self._late]))
        self._missions.set_state(state)
        self._samples, self._lost, self._late = counts.tolist()
        self.reading = self._read()

    def reset(self) -> None:
        """Start anew: the next sample is time 0."""
        self._missions.reset()
        self._samples = self._lost = self._late = 0
        self.reading = self._read()


def numpy_update_s(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> float:
    """About how long the slowest updates of a monitor without numba take, in s, on one core of a present-day machine.

    20 us per instruction and 4 us per row that an update may compute anew: the reaches of the operators inside others,
    in samples. Measured with numpy 2 on a 2-core x86 server, worst of each hundred updates: ``G[0,20] (p -> O[0,4] q)``
    at 500 Hz 17 ms (16 ms by this model), at 50 Hz 2.4 ms (1.8), ``G[0,20] (p U[0,4] q)`` at 50 Hz 1.7 ms (1.8),
    ``F[0,20] G[0,4] p`` at 50 Hz 0.7 ms (0.9). What is decided lazily is mostly far cheaper than its worst update.
    """
    check(formula, dt, None, np.float64)
    program = bounds_program([part for _, part in clauses(formula)], dt, semantics, np.dtype(np.float64))
    _, _, _, settled, low, high, *_ = program.nodes.T if len(program.nodes) else np.zeros((8, 0))
    rows = float(np.sum(settled * 2 + np.maximum(low, 0) + np.maximum(high, 0)))
    return 20e-6 * len(program.table) + 4e-6 * rows


def keeping_pace(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> tuple[Monitor, str]:
    """A monitor that is fast enough for its sample period where that is possible, and a warning, empty if it is.

    numpy where its slowest update is estimated at less than a quarter of the period: it is there at once. Else numba,
    which has compiled (seconds, the first time on a machine) when this returns. A warning if numba does not work.
    """
    cost = numpy_update_s(formula, dt, semantics)
    if cost < dt / 4:
        return Monitor(formula, dt, semantics, compiled=False), ""
    try:
        return Monitor(formula, dt, semantics, compiled=True), ""
    except ImportError as error:
        return Monitor(formula, dt, semantics, compiled=False), (
            f"an update of the formula may take {1e3 * cost:.1f} ms, the sample period is {1e3 * dt:g} ms: the monitor "
            f"may fall behind ({error})")


def watch(formula: Formula, signals: Mapping[str, Any], dt: float) -> Reading:
    """The reading at time 0 after a whole trace, ``signals`` [T, *shape]: ``undecided`` if it is too short."""
    monitor = Monitor(formula, dt, compiled=False)
    used = required(signals_in(formula), signals)
    lengths = {len(value) for value in used.values()}
    if len(lengths) > 1:
        raise SignalError(f"signals differ in length: { {n: len(v) for n, v in used.items()} }")
    for k in range(lengths.pop() if lengths else 0):
        monitor.update({name: value[k] for name, value in used.items()})
    return monitor.reading


def _verdict(low: float, high: float) -> str:
    return SATISFIED if low > 0 else VIOLATED if high < 0 else UNDECIDED


def _shown(bound: float) -> float:
    return 0.0 if -_TINY <= bound <= _TINY else bound
