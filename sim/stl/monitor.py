"""The formula while the mission runs: bounds on its robustness at time 0 after every sample. numpy only.

After k samples the future is unknown, so the robustness is known up to an interval. It starts as (-inf, inf), only
ever shrinks, and is a point at the formula's horizon at the latest. The verdict falls as soon as every future
agrees. The interval is that of the formula's structure: sound, but not always the smallest (``p | !p`` is undecided
until p is known).

Cost: a temporal operator over a state formula that is asked for once (``G[a,b] p`` at top level) costs O(1) per
sample; a nested one O(h log w) in numpy passes for a horizon of h samples and a window of w. Memory is O(horizon).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.signals import SignalError
from sim.stl.syntax import (
    Always,
    And,
    Eventually,
    Formula,
    FormulaError,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    Until,
    children,
    clauses,
    is_temporal,
    signals_in,
    to_json,
    to_text,
)
from sim.stl.values import numpy_arrays, predicate_margin, predicate_truth, required
from sim.stl.windows import NUMPY_MARGINS, sliding, until, window_steps

SATISFIED, VIOLATED, UNDECIDED = "satisfied", "violated", "undecided"

Bounds = NDArray[np.float64]
"""[..., 2]: lower and upper bound."""

_UNKNOWN = (-inf, inf)
# A margin of zero is true for <= and >=, false for < and >: it is carried as the smallest number of that sign, so
# that the verdict is the sign of the bounds. Readings show it as zero again.
_TINY = float(np.finfo(np.float64).tiny)
_ARRAYS = numpy_arrays(np.float64)


@dataclass(frozen=True)
class ClauseReading:
    """Bounds on the robustness of one top-level conjunct, and its verdict."""

    text: str
    lower: float
    upper: float
    verdict: str


@dataclass(frozen=True)
class Reading:
    """What is known after ``samples`` samples, the last at ``time_s``.

    ``lower <= robustness <= upper`` whatever comes. ``verdict`` is ``satisfied``, ``violated`` or ``undecided``.
    ``final``: no further sample can change anything.
    """

    samples: int
    time_s: float
    lower: float
    upper: float
    verdict: str
    final: bool
    clauses: tuple[ClauseReading, ...]


@dataclass
class _Cell:
    """One sub-formula at the sample indices ``first .. last`` at which its value is asked for.

    ``reach`` samples after an index its value is settled. ``once``: asked for at a single index, over a state formula,
    so that a running bound replaces the buffer of its argument.
    """

    formula: Formula
    first: int
    last: int
    reach: int
    window: tuple[int, int]
    args: tuple[_Cell, ...]
    bounds: Bounds
    once: bool = False
    running: Bounds = field(default_factory=lambda: np.array([nan, nan]))


class Monitor:
    """Watches ``formula`` at time 0 of a mission sampled each ``dt`` seconds.

    The formula must be bounded. Feed one sample per period to :meth:`update`; where one was lost, feed ``None`` for it
    (or NaN in a signal): what depends on it stays unknown, and the verdict with it unless the rest decides.
    """

    def __init__(self, formula: Formula, dt: float) -> None:
        self.formula, self.dt = formula, dt
        self.names: Mapping[str, Signal] = signals_in(formula)
        self._texts, parts = zip(*clauses(formula))
        self._roots = tuple(_cell(part, 0, 0, dt) for part in parts)
        self.horizon_steps = max(root.reach for root in self._roots)
        self._samples = 0
        self.reading = self._read()

    def update(self, sample: Mapping[str, Any] | None) -> Reading:
        """The reading after one more sample: values of the signals by name (others are ignored), or None if lost."""
        values = {n: np.asarray(nan) for n in self.names} if sample is None else self._checked(sample)
        if self._samples <= self.horizon_steps:
            for root in self._roots:
                _advance(root, self._samples, sample is not None, values)
        self._samples += 1
        self.reading = self._read()
        return self.reading

    def _checked(self, sample: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        out = {}
        for name, value in required(self.names, sample).items():
            shape = self.names[name].shape
            array = np.full(shape, nan) if value is None else np.asarray(value, dtype=np.float64)
            if array.shape != shape:
                raise SignalError(f"signal {name!r} has shape {array.shape}, the formula needs {shape}")
            out[name] = array
        return out

    def _read(self) -> Reading:
        each = [root.bounds[0] for root in self._roots]
        whole = np.minimum.reduce(each)
        rows = tuple(ClauseReading(text, *_shown(b), _verdict(b)) for text, b in zip(self._texts, each))
        final = self._samples > self.horizon_steps or bool(whole[0] == whole[1] and all(b[0] == b[1] for b in each))
        time_s = max(0, self._samples - 1) * self.dt
        return Reading(self._samples, time_s, *_shown(whole), _verdict(whole), final, rows)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere: numbers, and arrays by clause."""
        cells = [_walk(root) for root in self._roots]
        return {"formula": to_json(self.formula), "dt": self.dt, "samples": self._samples,
                "bounds": [[c.bounds.copy() for c in row] for row in cells],
                "running": [[c.running.copy() for c in row] for row in cells]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of a monitor of the same formula and period."""
        if state["formula"] != to_json(self.formula) or state["dt"] != self.dt:
            raise FormulaError(f"the state is that of another formula or period than {self.formula}, dt = {self.dt} s")
        for root, bounds, running in zip(self._roots, state["bounds"], state["running"]):
            for cell, b, r in zip(_walk(root), bounds, running):
                cell.bounds, cell.running = np.array(b, dtype=np.float64), np.array(r, dtype=np.float64)
        self._samples = int(state["samples"])
        self.reading = self._read()


def watch(formula: Formula, signals: Mapping[str, Any], dt: float) -> Reading:
    """The reading at time 0 after a whole trace, ``signals`` [T, *shape]: ``undecided`` if it is too short."""
    monitor = Monitor(formula, dt)
    used = required(signals_in(formula), signals)
    lengths = {len(value) for value in used.values()}
    if len(lengths) > 1:
        raise SignalError(f"signals differ in length: { {n: len(v) for n, v in used.items()} }")
    for k in range(lengths.pop() if lengths else 0):
        monitor.update({name: value[k] for name, value in used.items()})
    return monitor.reading


# ---------------------------------------------------------------- cells


def _cell(formula: Formula, first: int, last: int, dt: float) -> _Cell:
    """The cell of ``formula`` at the indices first .. last, with the cells below it."""
    lo = hi = 0
    if isinstance(formula, (Always, Eventually, Until)):
        lo, end = window_steps(formula.window, dt)
        if end is None:
            raise FormulaError(f"a monitor needs bounded windows; this one has no end: {to_text(formula)}")
        hi = end
    once = isinstance(formula, (Always, Eventually)) and first == last and not is_temporal(formula.arg)
    args: tuple[_Cell, ...] = ()
    if is_temporal(formula) and not once:
        # the left side of an until is asked for from now on
        low = 0 if isinstance(formula, Until) else lo
        args = tuple(_cell(c, first + low, last + hi, dt) for c in children(formula))
    reach = hi + max((a.reach for a in args), default=0)
    unknown = np.tile(np.array(_UNKNOWN), (last - first + 1, 1))
    return _Cell(formula, first, last, reach, (lo, hi), args, unknown, once)


def _walk(cell: _Cell) -> list[_Cell]:
    return [cell, *(c for arg in cell.args for c in _walk(arg))]


def _advance(cell: _Cell, now: int, known: bool, values: Mapping[str, Any]) -> None:
    """Take the sample of index ``now`` into ``cell`` and those below it."""
    begin, end = max(cell.first, now - cell.reach), min(cell.last, now)
    if begin > end:
        return
    if cell.once:
        _run(cell, now, known, values)
        return
    if not cell.args:
        cell.bounds[now - cell.first] = _state_bounds(cell.formula, values) if known else _UNKNOWN
        return
    for arg in cell.args:
        _advance(arg, now, known, values)
    cell.bounds[begin - cell.first : end + 1 - cell.first] = _combined(cell, begin, end)


def _run(cell: _Cell, now: int, known: bool, values: Mapping[str, Any]) -> None:
    """``G`` or ``F`` at one index over a state formula: the bounds over the samples seen so far."""
    lo, hi = (cell.first + w for w in cell.window)
    if not lo <= now <= hi:
        return
    assert isinstance(cell.formula, (Always, Eventually))
    bounds = np.array(_state_bounds(cell.formula.arg, values) if known else _UNKNOWN)
    always = isinstance(cell.formula, Always)
    # fmin and fmax take the number where the other is NaN: the first sample
    cell.running = (np.fmin if always else np.fmax)(cell.running, bounds)
    cell.bounds[0] = cell.running
    if now < hi:
        cell.bounds[0, 0 if always else 1] = -inf if always else inf


def _combined(cell: _Cell, begin: int, end: int) -> Bounds:
    """Bounds of a cell at the indices begin .. end, from those of the cells below."""

    def of(arg: _Cell, lo: int = 0, hi: int = 0) -> Bounds:
        return arg.bounds[begin + lo - arg.first : end + hi + 1 - arg.first]

    (lo, hi), count = cell.window, end + 1 - begin
    match cell.formula:
        case Always():
            return _over(of(cell.args[0], lo, hi), count, np.minimum, inf)
        case Eventually():
            return _over(of(cell.args[0], lo, hi), count, np.maximum, -inf)
        case Until():
            keep, reach = of(cell.args[0], 0, hi), of(cell.args[1], lo, hi)
            # the right side is asked for from lo on only; before that it does not matter
            reach = np.concatenate([np.full((lo, 2), -inf), reach])
            return np.asarray(until(keep, reach, lo, hi, NUMPY_MARGINS)[:count])
    return _connected(cell.formula, [of(a) for a in cell.args])


def _over(x: Bounds, count: int, combine: np.ufunc, neutral: float) -> Bounds:
    """``combine`` over the windows that start at the first ``count`` rows and together reach to the last one."""
    if count == 1:
        return np.asarray(combine.reduce(x, axis=0, keepdims=True))
    return np.asarray(sliding(x, 0, len(x) - count, combine, neutral, NUMPY_MARGINS)[:count])


def _negated(bounds: Bounds) -> Bounds:
    return -bounds[..., ::-1]


def _connected(formula: Formula, parts: Sequence[Bounds]) -> Bounds:
    """Bounds of a Boolean connective from those of its parts."""
    match formula:
        case Not():
            return _negated(parts[0])
        case And():
            return np.asarray(np.minimum.reduce(parts))
        case Or():
            return np.asarray(np.maximum.reduce(parts))
        case Implies():
            return np.asarray(np.maximum(_negated(parts[0]), parts[1]))
        case Iff():
            a, b = parts
            return np.asarray(np.minimum(np.maximum(_negated(a), b), np.maximum(a, _negated(b))))
    raise TypeError(f"not a connective: {formula!r}")


def _state_bounds(formula: Formula, values: Mapping[str, Any]) -> Bounds:
    """Bounds [2] of a formula without temporal operators: a point, but where a value is NaN."""
    match formula:
        case Predicate():
            with np.errstate(invalid="ignore", divide="ignore"):
                margin = float(predicate_margin(formula, values, _ARRAYS))
                if margin == 0:
                    margin = _TINY if predicate_truth(formula, values, _ARRAYS) else -_TINY
            return np.array(_UNKNOWN if margin != margin else (margin, margin))
        case Truth(truth):
            return np.array((inf, inf) if truth else (-inf, -inf))
    return _connected(formula, [_state_bounds(c, values) for c in children(formula)])


def _verdict(bounds: Bounds) -> str:
    return SATISFIED if bounds[0] > 0 else VIOLATED if bounds[1] < 0 else UNDECIDED


def _shown(bounds: Bounds) -> tuple[float, float]:
    lower, upper = (0.0 if abs(x) == _TINY else float(x) for x in bounds)
    return lower, upper
