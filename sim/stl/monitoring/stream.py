"""The exact robustness of a formula while samples come, for one robot or thousands of worlds. numpy; numba if present.

A :class:`Stream` gives after every sample the robustness at the sample that lies ``delay_steps`` behind it: as far as
the formula looks ahead. It equals what :func:`temporeal.sim.stl.semantics.robustness.robustness` says of the whole
trace. Time per sample
and operator is O(1) amortized, memory O(window), whatever the formula and however long the stream::

    stream = Stream(formula, dt=0.02, worlds=4096)
    values = stream.update({"height": heights})  # [4096] of [4096]; NaN before sample ``delay_steps``
    stream.reset(done)                           # these worlds start anew

    one = Stream(formula, dt=0.02)               # one robot: samples as the signals are, a float comes back
    value = one.update({"height": 1.0})

What `temporeal bench stl` times: ``update`` of ``Stream(formula, 1.0, worlds=4096)`` on float32 arrays [4096], per
world, and of ``Stream(formula, 1.0)`` on floats, after more samples than the delay, so that every window is full. The
average over a multiple of the window's samples counts: the work comes in blocks.

How: every node of the lowered formula has a fixed delay; branches are brought to one delay by ring buffers. A window of
the future is a window over the last samples of its argument, aggregated by blocks (van Herk 1992; Gil and Werman 1993).
A timed until is such a window too, of the maps ``u -> max(reach, min(keep, u))``, which compose associatively.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil, inf, nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, Signal
from temporeal.sim.stl.language.queries import leaves, signals_in
from temporeal.sim.stl.language.serialization import to_json
from temporeal.sim.stl.language.values import numpy_arrays, required, value
from temporeal.sim.stl.monitoring.stream_kernels import kernels
from temporeal.sim.stl.monitoring.stream_program import Front, stream_program, table_of

__all__ = ["Lanes", "Stream"]

TILE = 1024  # lanes that go through all instructions together: their registers fit a core's cache


class Lanes:
    """What evaluators of many worlds share: signals into rows, each lane's clock, the saved state.

    One *lane* is one world; the last lanes may be padding. ``start`` [lanes] is the time, in samples since this object
    was made, of the first sample of each lane's present trace; ``time`` that of the newest sample, -1 before it.
    """

    def __init__(
        self, formula: Formula, dt: float, worlds: int | None, dtype: Any, semantics: Semantics, front: Front,
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
        self._front, self._table = front, self.kernels.table(table_of(front.table))
        self._inputs = np.full((front.inputs, self.tiles * self.lanes), nan, dtype=self.dtype)
        self._work = np.zeros((max(1, front.registers), self.lanes), dtype=self.dtype)
        for number, register in front.constants.items():
            self._work[register] = number
        self._arrays = numpy_arrays(self.dtype)
        self._outside = {leaf.name for e, _ in front.outside for leaf in _signals(e)}
        self._places = [(name, signal.shape, [(row, i) for i, row in front.picks.get(signal, {}).items()])
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
        """Refuse (:class:`~temporeal.robots.signals.SignalError`) a sample that cannot be taken; nothing is remembered
        of it."""
        self._take(signals)

    def _take(self, signals: Mapping[str, Any] | None) -> None:
        """Signals into the input rows; None: everything is unknown."""
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
                for e, first in self._front.outside:
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
        """What is to be set, checked."""
        for key, own in self._identity().items():
            if key not in state or not np.array_equal(np.asarray(state[key]), own):
                found = state[key] if key in state else "nothing"
                raise FormulaError(
                    f"the state is that of another formula or period, or other options: {key} is {found}, here {own}")
        here = {"time": np.array(self.time), "start": self.start, "memory": memory, **others}
        return {key: fitting(state, key, array) for key, array in here.items()}

    def _go_on(self, state: Mapping[str, NDArray[Any]], memory: NDArray[Any]) -> None:
        memory[...] = state["memory"]
        self.start[:] = state["start"]
        self.time = int(state["time"])
        self._extremes()


def check(formula: Any, dt: Any, worlds: Any, dtype: Any) -> None:
    """Refuse what is no formula, sample period, number of worlds or type of float."""
    if not isinstance(formula, Formula):
        raise FormulaError(f"not a formula: {formula!r}; temporeal.sim.stl.language.parse.parse makes one of a text")
    if not is_number(dt) or not 0 < dt < inf:
        raise FormulaError(f"the sample period must be positive and finite, got dt = {dt!r} s")
    if worlds is not None and (not isinstance(worlds, (int, np.integer)) or isinstance(worlds, bool) or worlds < 1):
        raise SignalError(f"a stream has at least one world, a whole number of them; got worlds = {worlds!r}")
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise FormulaError(f"dtype {np.dtype(dtype)} of a stream; legal: float32, float64")


def is_number(x: Any) -> bool:
    """Whether ``x`` is a scalar of Python or numpy that can be ordered; a bool is none."""
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def fitting(state: Mapping[str, Any], key: str, own: NDArray[Any]) -> NDArray[Any]:
    """``state[key]`` as an array like ``own``, or a :class:`FormulaError`. Of nothing, any shape will do."""
    try:
        found = np.asarray(state[key])
        if found.shape == own.shape or found.size == own.size == 0:
            return found.astype(own.dtype, casting="same_kind" if found.size else "unsafe").reshape(own.shape)
        what = f"of shape {found.shape}"
    except KeyError:
        what = "missing"
    except (TypeError, ValueError) as error:
        what = f"unusable ({error})"
    raise FormulaError(f"the state is not one that state() returned here: {key} is {what}, here {own.shape}")


def _signals(e: Any) -> list[Signal]:
    return [leaf for leaf in leaves(e) if isinstance(leaf, Signal)]


def _float(name: str, x: Any) -> float:
    try:
        return float(x)
    except OverflowError:
        raise SignalError(f"signal {name!r} has a value beyond the range of floats") from None


def as_array(name: str, x: Any) -> NDArray[Any]:
    """``x`` as a numpy array without a copy where possible: numbers, sequences, arrays, tensors in the CPU's memory."""
    if isinstance(x, np.ma.MaskedArray):
        raise SignalError(f"signal {name!r} is a masked array; NaN stands for what is missing: x.filled(nan)")
    detach = getattr(x, "detach", None)
    try:
        array = np.asarray(x if detach is None else detach())
    except (TypeError, ValueError, RuntimeError) as error:
        raise SignalError(f"signal {name!r} is no array in the CPU's memory: {error}") from error
    if array.dtype.kind not in "fiub":
        raise SignalError(f"signal {name!r} has elements of type {array.dtype}, it must be numbers")
    return array


class Stream(Lanes):
    """The robustness of ``formula`` at the sample ``delay_steps`` behind the newest, after every sample.

    Args:
        formula: windows of the future must be bounded, those of the past need not be.
        dt: sample period in s.
        worlds: number of worlds that step together; None: one robot, signals without a leading axis.
        dtype: float32 or float64, of what is remembered and computed.
        semantics: ``until`` counts; a stream has no end.
        compiled: True: numba or an error; False: numpy; None: numba if it is installed.

    Attributes:
        delay_steps: how far the formula looks ahead, in samples.

    A NaN in a signal (None: in all of its worlds) is a sample that is missing: values that depend on it are NaN, no
    others; ``p S q`` reads p at samples after one of q, never at the first. A sample that comes late is
    missing: a stream has no time but the order of its updates.
    """

    def __init__(
        self, formula: Formula, dt: float, worlds: int | None = None, dtype: Any = np.float32,
        semantics: Semantics = RTAMT, compiled: bool | None = None,
    ) -> None:
        check(formula, dt, worlds, dtype)
        program = stream_program(formula, dt, semantics, np.dtype(dtype))
        super().__init__(formula, dt, worlds, dtype, semantics, program.front, compiled)
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
