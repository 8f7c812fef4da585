"""The two sets of interpreters: over numpy calls as they are written, or over loops that numba compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.monitoring import bounds_interpreter, instructions, numba_rows, stream_interpreter
from temporeal.sim.stl.monitoring.instructions import Table
from temporeal.sim.stl.semantics.numba_cache import named_by_sources


class Kernels(NamedTuple):
    """Interpreters; ``compiled``: by numba. ``table`` brings an instruction table into the form they take."""

    run_stream: Callable[..., None]
    run_bounds: Callable[..., None]
    compiled: bool
    table: Callable[[NDArray[np.int64]], Table]


NUMPY = Kernels(
    stream_interpreter.run_stream, bounds_interpreter.run_bounds, False, lambda table: table.tolist())


def kernels(compiled: bool | None = None) -> Kernels:
    """The interpreters: compiled if numba works, or as ``compiled`` says."""
    found = None if compiled is False else compiled_kernels()
    if compiled and found is None:
        raise ImportError(f"compiled kernels need numba, which {numba()[1] or 'is not installed'}; "
                          "compiled=None takes what is at hand")
    return found or NUMPY



@lru_cache(maxsize=1)
def numba() -> tuple[Any, str]:
    """numba's decorator, or None and why there is none. It is imported here and not before."""
    try:
        from numba import njit
    except ModuleNotFoundError as error:
        return None, "is not installed" if error.name == "numba" else f"cannot be imported: {error}"
    except Exception as error:  # of another version of numpy, without its library, half installed: anything may come
        return None, f"cannot be imported: {type(error).__name__}: {error}"
    return njit, ""


@lru_cache(maxsize=1)
def compiled_kernels() -> Kernels | None:
    """The interpreters over loops, by numba; None if it does not work.

    Compiled code is cached on disk beside the package or, if that is read-only, in the user's folder for caches. With
    neither, each process compiles anew.
    """
    njit, _ = numba()
    if njit is None:
        return None
    try:
        return _bound(njit, cache=True)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return _bound(njit, cache=False)


def _bound(njit: Any, cache: bool) -> Kernels:
    """Copies of the interpreters whose globals are compiled functions, the row functions those of `numba_rows`.

    Every function is cached, not only the two entry points: numba then optimizes each on its own before it becomes part
    of its caller. Without that, updates of 4096 worlds took up to 1.6 times as long.
    """
    sources = (instructions, numba_rows, stream_interpreter, bounds_interpreter)
    space: dict[str, Any] = {}
    for module in (instructions, stream_interpreter, bounds_interpreter, numba_rows):
        space |= vars(module)
    for module in (numba_rows, stream_interpreter, bounds_interpreter):
        for function in _own_functions(module):
            copied = FunctionType(function.__code__, space, function.__name__)
            copied.__module__ = function.__module__
            named_by_sources(copied, *sources)
            space[function.__name__] = njit(nogil=True, cache=cache, error_model="numpy")(copied)
    return Kernels(space["run_stream"], space["run_bounds"], True, np.ascontiguousarray)


def _own_functions(module: ModuleType) -> list[FunctionType]:
    """The functions that ``module`` defines, in order."""
    return [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == module.__name__]
