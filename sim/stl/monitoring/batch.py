"""The common part of evaluators of many worlds: signals as rows, each world's clock, the saved state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil, inf, nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, Signal
from temporeal.sim.stl.language.queries import leaves, require_formula, signals_in
from temporeal.sim.stl.language.serialization import to_json
from temporeal.sim.stl.language.values import numpy_arrays, required, value
from temporeal.sim.stl.monitoring.kernels import kernels
from temporeal.sim.stl.monitoring.margin_program import MarginProgram, table_of

TILE = 1024  # lanes that go through all instructions together: their registers fit a core's cache


class BatchEvaluator:
    """The common part of `stream.Stream` and `batch_monitor.BatchMonitor`.

    One *lane* is one world; the last lanes may be padding. ``start`` [lanes] is the time, in samples since this object
    was made, of the first sample of each lane's current trace; ``time`` that of the newest sample, -1 before any.
    """

    def __init__(
        self, formula: Formula, dt: float, worlds: int | None, dtype: Any, semantics: Semantics, margins: MarginProgram,
        compiled: bool | None,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.formula, self.dt, self.semantics, self.worlds = formula, dt, semantics, worlds
        self.kernels = kernels(compiled)
        self.count = worlds or 1
        self.tiles = ceil(self.count / TILE)
        self.lanes = ceil(self.count / self.tiles)
        self.names: Mapping[str, Signal] = signals_in(formula)
        self.start = np.zeros(self.tiles * self.lanes, dtype=np.int64)
        self.earliest, self.latest, self.time = 0, 0, -1
        self._margins, self._table = margins, self.kernels.table(table_of(margins.table))
        self._inputs = np.full((margins.inputs, self.tiles * self.lanes), nan, dtype=self.dtype)
        self._work = np.zeros((max(1, margins.registers), self.lanes), dtype=self.dtype)
        for number, register in margins.constants.items():
            self._work[register] = number
        self._arrays = numpy_arrays(self.dtype)
        self._outside = {leaf.name for e, _ in margins.outside for leaf in _signals(e)}
        self._places = [(name, signal.shape, [(row, i) for i, row in margins.picks.get(signal, {}).items()])
                        for name, signal in self.names.items()]

    @property
    def compiled(self) -> bool:
        """Whether numba's kernels are in use; the results are the same without."""
        return self.kernels.compiled

    @property
    def ages(self) -> NDArray[np.int64]:
        """[worlds] samples that each world has seen since its start."""
        return self.time + 1 - self.start[: self.count]

    def reset(self, mask: ArrayLike | None = None) -> None:
        """Worlds where ``mask`` [worlds] is true (all, without one) start anew with the next sample."""
        self._begin(self._chosen(mask))

    def _chosen(self, mask: ArrayLike | None) -> NDArray[np.intp]:
        if mask is None:
            return np.arange(self.start.size)
        array = np.asarray(mask)
        if array.shape != (self.count,) or array.dtype != bool:
            raise SignalError(f"a mask is bool [{self.count}], got {array.dtype} {list(array.shape)}")
        return np.flatnonzero(array)

    def _begin(self, lanes: NDArray[np.intp]) -> None:
        self.start[lanes] = self.time + 1
        self._extremes()

    def _extremes(self) -> None:
        own = self.start[: self.count]
        self.earliest, self.latest = int(own.min()), int(own.max())

    # signals

    def check(self, signals: Mapping[str, Any] | None) -> None:
        """Raise a :class:`~temporeal.robots.signals.SignalError` for a sample that cannot be taken, and forget it."""
        self._take(signals)

    def _take(self, signals: Mapping[str, Any] | None) -> None:
        """Copy the signals into the input rows; None: everything is unknown."""
        if signals is None:
            self._inputs.fill(nan)
            return
        if not isinstance(signals, Mapping):
            raise SignalError(f"a sample is a mapping from signal names to values, got {type(signals).__name__}")
        given: dict[str, Any] = {}
        for name, shape, picks in self._places:
            if name not in signals:
                required(self.names, signals)
            x = signals[name]
            if self.worlds is None and not shape and isinstance(x, (float, int, np.floating)):
                number = _float(name, x)
                for row, _ in picks:
                    self._inputs[row, 0] = number
                if name in self._outside:
                    given[name] = np.asarray(number, dtype=self.dtype)
                continue
            array = self._checked(name, shape, x)
            flat = array.reshape(self.count, -1)
            for row, index in picks:
                self._inputs[row, : self.count] = flat[:, index]
            if name in self._outside:
                given[name] = array.astype(self.dtype, copy=False)
        if given:
            with np.errstate(all="ignore"):
                for e, first in self._margins.outside:
                    x = np.asarray(value(e, given, self._arrays)).reshape(self.count, -1)
                    self._inputs[first : first + x.shape[1], : self.count] = x.T

    def _checked(self, name: str, shape: tuple[int, ...], x: Any) -> NDArray[Any]:
        wanted = shape if self.worlds is None else (self.worlds, *shape)
        if x is None:
            return np.full(wanted, nan, dtype=self.dtype)
        array = as_array(name, x)
        if array.shape != wanted:
            raise SignalError(f"signal {name!r} has shape {array.shape}, the formula needs {wanted}")
        return array

    # state

    def _identity(self) -> dict[str, NDArray[Any]]:
        return {"formula": np.array(json.dumps(to_json(self.formula), sort_keys=True)), "dt": np.array(self.dt),
                "worlds": np.array(self.worlds or 0), "dtype": np.array(self.dtype.name),
                "semantics": np.array([self.semantics.end, self.semantics.until])}

    def _state(self, memory: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {**self._identity(), "time": np.array(self.time), "start": self.start.copy(), "memory": memory.copy()}

    def _of_state(
        self, state: Mapping[str, Any], memory: NDArray[Any], **others: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The arrays to set, checked."""
        for key, own in self._identity().items():
            if key not in state or not np.array_equal(np.asarray(state[key]), own):
                found = state[key] if key in state else "nothing"
                raise FormulaError(
                    f"the state belongs to another formula, period or options: {key} is {found}, here {own}")
        here = {"time": np.array(self.time), "start": self.start, "memory": memory, **others}
        return {key: fitting(state, key, array) for key, array in here.items()}

    def _go_on(self, state: Mapping[str, NDArray[Any]], memory: NDArray[Any]) -> None:
        memory[...] = state["memory"]
        self.start[:] = state["start"]
        self.time = int(state["time"])
        self._extremes()


def check(formula: Any, dt: Any, worlds: Any, dtype: Any) -> None:
    """Raise an error unless these are a formula, a sample period, a number of worlds and a float type."""
    require_formula(formula)
    if not is_number(dt) or not 0 < dt < inf:
        raise FormulaError(f"the sample period must be positive and finite, got dt = {dt!r} s")
    if worlds is not None and (not isinstance(worlds, (int, np.integer)) or isinstance(worlds, bool) or worlds < 1):
        raise SignalError(f"a stream has at least one world, a whole number of them; got worlds = {worlds!r}")
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise FormulaError(f"dtype {np.dtype(dtype)} of a stream; legal: float32, float64")


def is_number(x: Any) -> bool:
    """Whether ``x`` is a real scalar of Python or numpy, and not a bool."""
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def fitting(state: Mapping[str, Any], key: str, own: NDArray[Any]) -> NDArray[Any]:
    """``state[key]`` as an array like ``own``, or a :class:`FormulaError`. Empty arrays may have any shape."""
    try:
        found = np.asarray(state[key])
        if found.shape == own.shape or found.size == own.size == 0:
            return found.astype(own.dtype, casting="same_kind" if found.size else "unsafe").reshape(own.shape)
        what = f"of shape {found.shape}"
    except KeyError:
        what = "missing"
    except (TypeError, ValueError) as error:
        what = f"unusable ({error})"
    raise FormulaError(f"the state was not returned by state() of this kind: {key} is {what}, here {own.shape}")


def _signals(e: Any) -> list[Signal]:
    return [leaf for leaf in leaves(e) if isinstance(leaf, Signal)]


def _float(name: str, x: Any) -> float:
    try:
        return float(x)
    except OverflowError:
        raise SignalError(f"signal {name!r} has a value beyond the range of floats") from None


def as_array(name: str, x: Any) -> NDArray[Any]:
    """``x`` as a numpy array, without a copy if possible: numbers, sequences, arrays, tensors in the CPU's memory."""
    if isinstance(x, np.ma.MaskedArray):
        raise SignalError(f"signal {name!r} is a masked array; mark missing values by NaN: x.filled(nan)")
    detach = getattr(x, "detach", None)
    try:
        array = np.asarray(x if detach is None else detach())
    except (TypeError, ValueError, RuntimeError) as error:
        raise SignalError(f"signal {name!r} is no array in the CPU's memory: {error}") from error
    if array.dtype.kind not in "fiub":
        raise SignalError(f"signal {name!r} has elements of type {array.dtype}, it must be numbers")
    return array
