"""The formula while the mission runs: bounds on its robustness at time 0 after every sample. numpy; numba if present.

After k samples the future is unknown, so the robustness is known up to an interval. It starts as (-inf, inf), only
ever shrinks, and is a point at the formula's horizon at the latest. The verdict falls as soon as every future
agrees. What the bounds are exactly, and what they cost, says :mod:`sim.stl.stream_bounds`, which watches many worlds
at once; the robustness at every sample, not only at time 0, is :class:`sim.stl.stream.Stream`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, inf, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.signals import SignalError
from sim.stl.lower import RTAMT, End, Semantics
from sim.stl.stream_bounds import Missions
from sim.stl.syntax import Formula, signals_in
from sim.stl.values import required

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"

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

    Attributes:
        horizon_steps: index of the last sample that matters; None: a window has no end.
        reading: what is known now.
    """

    def __init__(
        self, formula: Formula, dt: float, semantics: Semantics = RTAMT, compiled: bool | None = None
    ) -> None:
        self.formula, self.dt = formula, dt
        self._missions = Missions(formula, dt, None, np.float64, semantics, compiled)
        self.names = self._missions.names
        self.horizon_steps = self._missions.horizon_steps
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

        ``at`` is the time of the sample in s since time 0 of the mission; it counts for the nearest sample index. If
        that is not the next one, those between are lost. If it has passed (a late or repeated sample, time that runs
        backwards, a sample before the mission), the sample is not used and counted as late; a verdict is never undone.
        Without ``at`` the sample is the next one.
        """
        if at is not None:
            gap = self._index(at) - self._samples
            if gap < 0:
                self._late += 1
                self.reading = self.reading._replace(late=self._late)
                return self.reading
            if gap:
                self._skip(gap)
        if self.horizon_steps is None or self._samples <= self.horizon_steps:
            self._missions.advance(sample)
        elif sample is not None:
            required(self.names, sample)
        self._samples += 1
        self._lost += sample is None
        self.reading = self._read()
        return self.reading

    def _index(self, at: float) -> int:
        if not isfinite(at):
            raise SignalError(f"the time of a sample must be a number of seconds, got at = {at}")
        return floor(at / self.dt + 0.5)

    def _skip(self, count: int) -> None:
        self._samples += count
        self._lost += count
        if self.horizon_steps is not None:
            count = min(count, max(0, self.horizon_steps + 1 - (self._samples - count)))
        self._missions.skip(count)

    def finish(self, end: End | None = None) -> Reading:
        """The reading if the trace ended with the newest sample; the monitor itself may go on.

        ``end`` is the convention (see :class:`sim.stl.lower.Semantics`), by default that of the semantics: ``clip``.
        The bounds meet unless samples were lost.
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
        self._missions.set_state(state)
        self._samples, self._lost, self._late = (int(n) for n in state["counts"])
        self.reading = self._read()

    def reset(self) -> None:
        """Start anew: the next sample is time 0."""
        self._missions.reset()
        self._samples = self._lost = self._late = 0
        self.reading = self._read()


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
